"""RadFM, for images and volumes."""

from .adapter import RadFM, RadFMArguments

__all__ = ["RadFM", "RadFMArguments"]
