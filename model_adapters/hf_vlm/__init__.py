"""Any image-text-to-text checkpoint of transformers."""

from .adapter import HfVlm as HfVlm
