"""LLaVA-Med v1.5 and v1.0."""

from .adapter import LlavaMed as LlavaMed
from .adapter import LlavaMedArguments as LlavaMedArguments
