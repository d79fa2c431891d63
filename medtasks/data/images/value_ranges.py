"""Range of the values of an image, without the few that hide how dark or flat the rest is.

The letters of a side marker cover up to one per cent of a film, with a name plate two; hot pixels cover far less.
Anatomy covers more. Masks, drawings, text and slices in the air have a ground of one value, in which nothing is hidden.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from medtasks.data.images.strict_pillow import Range

OUTLIERS = 1 / 40  # at either end, of the pixels that are not ground
_HOT_PIXELS = 1 / 2000  # of all pixels, at either end


def is_range(value: Any) -> bool:
    """Return whether a setting is a list of two finite numbers, in any order.

    Example:
        >>> is_range([-160, 240]), is_range(["0", 1]), is_range([0, 1, 2])
        (True, False, False)
    """
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and {int, float}.issuperset(map(type, value))
        and all(map(math.isfinite, value))
    )


def central_range(values: Sequence[float], counts: Sequence[int]) -> Range:
    """Return the range of an image's values without outliers.

    The least or the largest value is the ground if more than half of the pixels have it. It is in the range.

    Args:
        values: Values that occur, in ascending order.
        counts: Number of pixels with each of them.

    Example:
        A dark film with a marker, and a mask:

        >>> central_range([10, 11, 12, 255], [300, 400, 300, 9])
        (10, 12)
        >>> central_range([0, 255], [991, 9])
        (0, 255)
    """
    pixels = sum(counts)
    remaining = list(counts)
    ground = []
    for end in (0, -1):
        if counts[end] > pixels / 2:
            ground = [values[end]]
            remaining[end] = 0
    sums = list(accumulate(remaining))
    left_out = max(sums[-1] * OUTLIERS, pixels * _HOT_PIXELS if ground else 0)
    if sums[-1] <= left_out:
        return ground[0], ground[0]
    low = values[bisect_right(sums, left_out)]
    high = values[bisect_left(sums, sums[-1] - left_out)]
    return min([low, *ground]), max([high, *ground])
