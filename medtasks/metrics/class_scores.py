"""Classification from hard predictions: one class per image, or several labels per image.

Published metrics follow torchmetrics 1.9 as MultiMedEval calls it with ``average="macro"`` (``ImageClassification`` in
``multimedeval/taskFamilies.py`` of v0.1.0, https://github.com/corentin-ryr/MultiMedEval). If absent classes mislead a
metric, a counterpart leaves these classes out. Values are between 0 and 1.

One class per image:

- ``macro_f1``: mean F1 over classes in the target or in a prediction, as in scikit-learn.
- ``macro_accuracy``: mean recall over the same classes; one that is predicted but not in the target counts 0.
- ``balanced_accuracy``: mean recall over classes in the target, as in scikit-learn.
- ``macro_auroc``: mean AUROC over *all* classes; one that is not in the target, or alone in it, counts 0. So a constant
  answer scores 0.3 if two of five classes are absent.
- ``present_class_auroc``: mean AUROC over classes with samples in and outside of them; a constant answer scores 0.5.

Several labels per image:

- ``macro_f1``: mean F1 over all labels; one that is neither in the target nor predicted counts 0.
- ``macro_accuracy``: mean share of right decisions, (TP + TN) / N, over all labels; high for "nothing found".
- ``macro_auroc``: mean AUROC over all labels; one that no image has, or every image, counts 0.
- ``present_label_f1``: mean F1 over labels that an image has.
- ``present_label_auroc``: mean AUROC over labels that some images have and some have not.

The ROC curve of a hard prediction has one corner; the area under it is (TPR + TNR) / 2, the balanced accuracy of "this
class or not". An invalid reply is wrong and a false positive of no class (:class:`ClassCounts`).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from medtasks.stats import bootstrap
from medtasks.stats.bootstrap import Floats, Integers

MULTICLASS_METRICS = ("macro_f1", "macro_accuracy", "balanced_accuracy", "macro_auroc", "present_class_auroc")
MULTILABEL_METRICS = ("macro_f1", "macro_accuracy", "macro_auroc", "present_label_f1", "present_label_auroc")


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Confusion counts of each class against all others, shape (..., classes); ``samples`` has shape (...).

    Leading dimensions are tables of samples, clusters or resamples; their sum is a table. A class in the target is a
    false negative also for an invalid reply. With several labels the samples exceed the sum of the four by the invalid
    replies to samples without the label.
    """

    true_positives: Integers
    false_positives: Integers
    false_negatives: Integers
    true_negatives: Integers
    samples: Integers

    @classmethod
    def of_cells(cls, cells: Integers) -> "ClassCounts":
        """Return the tables of :attr:`cells`."""
        true_positives, false_positives, false_negatives, true_negatives = np.split(cells[..., :-1], 4, axis=-1)
        return cls(true_positives, false_positives, false_negatives, true_negatives, cells[..., -1])

    @property
    def cells(self) -> Integers:
        """All counts of a table in one row, shape (..., 4 * classes + 1)."""
        four = (self.true_positives, self.false_positives, self.false_negatives, self.true_negatives)
        return np.concatenate([*four, self.samples[..., np.newaxis]], axis=-1)

    def total(self) -> "ClassCounts":
        """Return the sum over the first dimension."""
        return ClassCounts.of_cells(self.cells.sum(axis=0, dtype=np.int64))

    @property
    def positives(self) -> Integers:
        """Samples of the class in the target, shape (..., classes)."""
        return self.true_positives + self.false_negatives

    @property
    def negatives(self) -> Integers:
        """Samples without the class in the target, shape (..., classes)."""
        return self.samples[..., np.newaxis] - self.positives

    @property
    def recall(self) -> Floats:
        """TP / (TP + FN), shape (..., classes); 0 for a class that is not in the target."""
        return ratio(self.true_positives, self.positives)

    @property
    def f1(self) -> Floats:
        """2 TP / (2 TP + FP + FN), shape (..., classes); 0 for a class that is neither in the target nor predicted."""
        doubled = 2 * self.true_positives
        return ratio(doubled, doubled + self.false_positives + self.false_negatives)

    @property
    def auroc(self) -> Floats:
        """(TPR + TNR) / 2, shape (..., classes); 0 without positives or without negatives, as in torchmetrics."""
        area = (self.recall + ratio(self.true_negatives, self.negatives)) / 2
        return np.where((self.positives > 0) & (self.negatives > 0), area, 0.0)


def count_classes(gold: Sequence[int], predicted: Sequence[int | None], classes: int) -> ClassCounts:
    """Count predictions of one class per sample, from 0, ``None`` for an invalid reply; one table per sample.

    An invalid reply misses the class of the target and predicts no other. Raises a ValueError where lengths differ, or
    a class is not in 0 ... ``classes`` - 1.
    """
    valid = [value for value in predicted if value is not None]
    if outside := [value for value in (*gold, *valid) if not 0 <= value < classes]:
        raise ValueError(f"classes are numbered from 0 to {classes - 1}, but got {outside[0]}")
    right = np.asarray(gold, dtype=np.int64)[:, np.newaxis] == np.arange(classes)
    guess = np.asarray([classes if value is None else value for value in predicted], dtype=np.int64)
    return _tables(right, guess[:, np.newaxis] == np.arange(classes), np.ones((len(gold), 1), dtype=bool))


def count_labels(gold: Sequence[Sequence[int]], predicted: Sequence[Sequence[int] | None], labels: int) -> ClassCounts:
    """Count predictions of several labels per sample, 0 or 1 each, ``None`` for an invalid reply; one table per sample.

    An invalid reply misses the labels of the target and recognises no other as absent, so that never answering earns
    nothing. Raises a ValueError where shapes differ, or a value is not 0 or 1.
    """
    rows = [[0] * labels if row is None else row for row in predicted]
    if any(len(row) != labels for table in (gold, rows) for row in table):
        raise ValueError(f"expected {labels} labels in every row of the targets and of the predictions")
    right, guess = (np.asarray(table, dtype=np.int64).reshape(-1, labels) for table in (gold, rows))
    if np.any(right & ~1) or np.any(guess & ~1):
        raise ValueError("labels are 0 or 1")
    answered = np.asarray([row is not None for row in predicted], dtype=bool)
    return _tables(right == 1, guess == 1, answered[:, np.newaxis])


def ratio(part: Integers | Floats, whole: Integers, undefined: float = 0.0) -> Floats:
    """Return ``part / whole``, ``undefined`` where ``whole`` is 0; the shapes broadcast."""
    return np.where(whole > 0, part / np.maximum(whole, 1), undefined)


def _tables(right: NDArray[np.bool_], guess: NDArray[np.bool_], answered: NDArray[np.bool_]) -> ClassCounts:
    if len(right) != len(guess):
        raise ValueError(f"expected one prediction per sample, but got {len(guess)} for {len(right)}")
    return ClassCounts(
        true_positives=(right & guess).astype(np.int64),
        false_positives=(~right & guess).astype(np.int64),
        false_negatives=(right & ~guess).astype(np.int64),
        true_negatives=(~right & ~guess & answered).astype(np.int64),
        samples=np.ones(len(right), dtype=np.int64),
    )


def multiclass_metrics(counts: ClassCounts) -> dict[str, Floats]:
    """Return :data:`MULTICLASS_METRICS` of sums of :func:`count_classes`, shape (...); NaN without a class."""
    in_target, every = counts.positives > 0, counts.samples[..., np.newaxis] > 0
    in_use = in_target | (counts.false_positives > 0)
    return {
        "macro_f1": _mean(counts.f1, in_use),
        "macro_accuracy": _mean(counts.recall, in_use),
        "balanced_accuracy": _mean(counts.recall, in_target),
        "macro_auroc": _mean(counts.auroc, every),
        "present_class_auroc": _mean(counts.auroc, in_target & (counts.negatives > 0)),
    }


def multilabel_metrics(counts: ClassCounts) -> dict[str, Floats]:
    """Return :data:`MULTILABEL_METRICS` of sums of :func:`count_labels`, shape (...); NaN without a label."""
    in_target, every = counts.positives > 0, counts.samples[..., np.newaxis] > 0
    right = ratio(counts.true_positives + counts.true_negatives, counts.samples[..., np.newaxis])
    return {
        "macro_f1": _mean(counts.f1, every),
        "macro_accuracy": _mean(right, every),
        "macro_auroc": _mean(counts.auroc, every),
        "present_label_f1": _mean(counts.f1, in_target),
        "present_label_auroc": _mean(counts.auroc, in_target & (counts.negatives > 0)),
    }


def values_with_errors(
    counts: ClassCounts, units: Sequence[Hashable], metrics: Callable[[ClassCounts], Mapping[str, Floats]]
) -> dict[str, float]:
    """Return ``metrics`` of the sum of tables, one per sample, with errors clustered by ``units``."""
    return bootstrap.values_with_errors(counts.cells, units, lambda cells: metrics(ClassCounts.of_cells(cells)))


def _mean(values: Floats, included: NDArray[np.bool_]) -> Floats:
    included = np.broadcast_to(included, values.shape)
    return ratio(np.where(included, values, 0.0).sum(axis=-1), included.sum(axis=-1), np.nan)
