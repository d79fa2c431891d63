"""Med-Flamingo."""

from .adapter import MedFlamingo as MedFlamingo
from .adapter import MedFlamingoArguments as MedFlamingoArguments
