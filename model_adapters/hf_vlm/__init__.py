"""Any image-text-to-text checkpoint of transformers."""

from .adapter import HfVlm

__all__ = ["HfVlm"]
