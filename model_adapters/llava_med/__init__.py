"""LLaVA-Med v1.5 and v1.0."""

from .adapter import LlavaMed, LlavaMedArguments

__all__ = ["LlavaMed", "LlavaMedArguments"]
