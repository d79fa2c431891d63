"""A very small model with random weights."""

from .adapter import MedTasksTiny

__all__ = ["MedTasksTiny"]
