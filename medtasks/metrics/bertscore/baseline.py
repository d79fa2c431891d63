"""The baselines that rescale BERTScore: the score of unrelated sentences under one encoder and layer.

Source of the numbers: ``rescale_baseline/en/<encoder>.tsv`` of the ``bert-score`` package, version 0.3.13.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from medtasks.errors import MedTasksError


@dataclass(frozen=True)
class Baseline:
    """What unrelated sentences score; each of the three scores is rescaled with its own.

    Attributes:
        precision: Baseline of precision, below 1.
        recall: Baseline of recall, below 1.
        f1: Baseline of F1, below 1.
    """

    precision: float
    recall: float
    f1: float


BASELINES: Mapping[tuple[str, int], Baseline] = MappingProxyType(
    {
        ("distilroberta-base", 5): Baseline(0.84732, 0.84759504, 0.8473319),
        ("roberta-large", 17): Baseline(0.83150584, 0.8314941, 0.83122575),
    }
)


def rescale(score: float, baseline: float) -> float:
    """Return the score on a scale where 0 is the baseline and 1 stays 1; lower scores become negative.

    Example:
        >>> rescale(0.75, 0.5)
        0.5
    """
    return (score - baseline) / (1.0 - baseline)


def read_baseline(path: Path, layer: int) -> Baseline:
    """Read a baseline file of ``bert-score``: a header ``LAYER,P,R,F`` and a row per layer.

    Raises:
        MedTasksError: The file cannot be read, is of another form, or lacks the layer.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = {int(row["LAYER"]): [float(row[name]) for name in "PRF"] for row in csv.DictReader(lines)}
    except OSError as error:
        raise MedTasksError(f"the baseline file {path} cannot be read: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise MedTasksError(
            f"{path} is no baseline file of bert-score: a header 'LAYER,P,R,F', then numbers"
        ) from error
    if layer not in rows:
        raise MedTasksError(f"the baseline file {path} has no row for layer {layer}")
    if not all(math.isfinite(value) and value < 1 for value in rows[layer]):
        raise MedTasksError(f"the baselines of layer {layer} in {path} must be numbers below 1")
    return Baseline(*rows[layer])
