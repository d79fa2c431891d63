"""RadFM, for images and volumes."""

from .adapter import RadFM as RadFM
from .adapter import RadFMArguments as RadFMArguments
