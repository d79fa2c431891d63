"""Width of the interval of a task's score for draws of several sizes."""

from typing import NamedTuple

from medtasks.scores.planning import Assumptions
from medtasks.stats.intervals import interval

_SIZES = (20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
_LARGEST_SHARE = 0.9  # of the questions; a larger draw saves little
_LEAST_CLUSTERS = 5  # for an interval worth planning with


class DrawSize(NamedTuple):
    """A draw and what it would show."""

    questions: int
    clusters: int
    half_width: float  # of the 95 % interval


def draw_sizes(assumed: Assumptions, questions: int, clusters: int) -> list[DrawSize]:
    """Return the width of the interval for the whole benchmark by size of the draw, the smallest first.

    Without strata, which narrow it. The design effect is that of the assumptions.

    Args:
        assumed: Assumptions about the task.
        questions: Number of questions that it has.
        clusters: Number of clusters that are drawn together.

    Example:
        >>> assumed = Assumptions("accuracy", 1000, 1000, 0.5, "", None, "", 1.0, "")
        >>> [(size.questions, round(size.half_width, 3)) for size in draw_sizes(assumed, 1000, 1000)]
        [(20, 0.21), (50, 0.133), (100, 0.092), (200, 0.062), (500, 0.031)]
    """
    sizes = []
    for size in _SIZES:
        share = size / questions
        drawn = round(share * clusters)
        if share > _LARGEST_SHARE or drawn < _LEAST_CLUSTERS:
            continue
        effective = share * assumed.samples / assumed.design / (1 - share)
        low, high = interval(assumed.score, 0.0, drawn - 1.0, True, effective)
        sizes.append(DrawSize(size, drawn, (high - low) / 2))
    return sizes
