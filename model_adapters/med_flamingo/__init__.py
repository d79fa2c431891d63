"""Med-Flamingo."""

from .adapter import MedFlamingo, MedFlamingoArguments

__all__ = ["MedFlamingo", "MedFlamingoArguments"]
