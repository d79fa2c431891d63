"""The 14 conditions of a chest X-ray that CheXbert reads from a text, and what it can say of each.

Source: Smit et al., "CheXbert", EMNLP 2020; ``src/constants.py`` of https://github.com/stanfordmlgroup/CheXbert.
"""

import enum
from collections.abc import Sequence

CONDITIONS = (
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
    "No Finding",
)
"""The 14 conditions in the order of CheXbert's outputs."""

FIVE_CONDITIONS = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
"""The five that papers report beside the 14, in the same order."""


class Finding(enum.IntEnum):
    """What a text says of a condition, numbered as CheXbert's classes."""

    BLANK = 0
    POSITIVE = 1
    NEGATIVE = 2
    UNCERTAIN = 3


CLASS_COUNTS = (*(len(Finding) for _ in CONDITIONS[:-1]), 2)
"""Classes of each output: all of :class:`Finding`, and only blank and positive for No Finding."""


def positives(classes: Sequence[int], *, uncertain_is_positive: bool) -> tuple[int, ...]:
    """Return which conditions a text names, 1 or 0 each.

    Args:
        classes: A :class:`Finding` per condition.
        uncertain_is_positive: Whether an uncertain finding counts as one.

    Example:
        >>> positives([0, 1, 2, 3], uncertain_is_positive=True)
        (0, 1, 0, 1)
    """
    named = {Finding.POSITIVE, Finding.UNCERTAIN} if uncertain_is_positive else {Finding.POSITIVE}
    return tuple(int(found in named) for found in classes)
