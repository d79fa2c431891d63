"""A very small model with random weights."""

from .adapter import MedTasksTiny as MedTasksTiny
