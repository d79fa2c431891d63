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
class or not". An invalid reply is wrong and a false positive of no class.

*Cells* are the confusion counts of each class against all others, TP, FP, FN and TN of shape (..., classes) after each
other, and last the number of samples: shape (..., 4 * classes + 1). Leading dimensions are samples, clusters or
resamples; sums of cells are cells. A class in the target is a false negative also for an invalid reply. With several
labels the samples exceed the sum of the four by the invalid replies to samples without the label.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from medtasks.stats.bootstrap import Booleans, Floats, Integers

MULTICLASS_METRICS = (
    "macro_f1",
    "macro_accuracy",
    "balanced_accuracy",
    "macro_auroc",
    "present_class_auroc",
)
MULTILABEL_METRICS = (
    "macro_f1",
    "macro_accuracy",
    "macro_auroc",
    "present_label_f1",
    "present_label_auroc",
)


def count_classes(
    gold: Sequence[int],
    predicted: Sequence[int | None],
    classes: int,
) -> Integers:
    """Count predictions of one class per sample.

    An invalid reply misses the class of the target and predicts no other.

    Args:
        gold: Class of each sample, from 0.
        predicted: Predicted class of each sample, from 0, or ``None`` for an invalid reply.
        classes: Number of classes.

    Returns:
        One row of cells per sample, shape (samples, 4 * classes + 1).

    Raises:
        ValueError: Lengths differ, or a class is not in 0 ... ``classes`` - 1.

    Example:
        >>> count_classes([1], [0], classes=2).tolist()  # TP, FP, FN and TN of both classes, samples
        [[0, 0, 1, 0, 0, 1, 0, 0, 1]]
    """
    valid = [value for value in predicted if value is not None]
    for value in (*gold, *valid):
        if not 0 <= value < classes:
            raise ValueError(f"classes are numbered from 0 to {classes - 1}, but got {value}")
    numbers = np.arange(classes)
    # An invalid reply gets a number that no class has.
    guesses = [classes if value is None else value for value in predicted]
    right = np.asarray(gold, dtype=np.int64)[:, np.newaxis] == numbers
    guess = np.asarray(guesses, dtype=np.int64)[:, np.newaxis] == numbers
    return _cells(right, guess, np.ones((len(gold), 1), dtype=bool))


def count_labels(
    gold: Sequence[Sequence[int]],
    predicted: Sequence[Sequence[int] | None],
    labels: int,
) -> Integers:
    """Count predictions of several labels per sample.

    An invalid reply misses the labels of the target and recognises no other as absent, so that never answering earns
    nothing.

    Args:
        gold: 0 or 1 for each label of each sample.
        predicted: 0 or 1 for each label of each reply, or ``None`` for an invalid reply.
        labels: Number of labels.

    Returns:
        One row of cells per sample, shape (samples, 4 * labels + 1).

    Raises:
        ValueError: Shapes differ, or a value is not 0 or 1.

    Example:
        >>> count_labels([[1, 0]], [[1, 1]], labels=2).tolist()  # TP, FP, FN and TN of both labels, samples
        [[1, 0, 0, 1, 0, 0, 0, 0, 1]]
    """
    rows = [[0] * labels if row is None else row for row in predicted]
    if any(len(row) != labels for row in (*gold, *rows)):
        raise ValueError(
            f"expected {labels} labels in every row of the targets and of the predictions"
        )
    right = np.asarray(gold, dtype=np.int64).reshape(-1, labels)
    guess = np.asarray(rows, dtype=np.int64).reshape(-1, labels)
    if np.any(right & ~1) or np.any(guess & ~1):
        raise ValueError("labels are 0 or 1")
    answered = np.asarray([row is not None for row in predicted], dtype=bool)
    return _cells(right == 1, guess == 1, answered[:, np.newaxis])


def unseen_classes(
    gold: Sequence[int],
    predicted: Sequence[int | None],
    classes: int,
) -> tuple[Floats, list[float]]:
    """Return cells and weights of samples that were not seen, for the posterior of the metrics.

    As in Jeffreys' prior of the recall of each class in use, half a sample of the class is right and half a sample
    wrong. The wrong half is spread over the other classes in use, or is an invalid reply without another class.

    Args:
        gold: Class of each sample, from 0.
        predicted: Predicted class of each sample, or ``None`` for an invalid reply.
        classes: Number of classes.

    Returns:
        Cells, shape (unseen samples, 4 * classes + 1), and one weight per row.
    """
    in_use = sorted({*gold, *(value for value in predicted if value is not None)})
    targets = []
    values = []
    weights = []
    for target in in_use:
        others: list[int | None] = [value for value in in_use if value != target]
        others = others or [None]  # an invalid reply
        targets += [target] * (1 + len(others))
        values += [target, *others]
        weights += [0.5] + [0.5 / len(others)] * len(others)
    return count_classes(targets, values, classes).astype(np.float64), weights


def unseen_labels(cells: Integers) -> tuple[Floats, list[float]]:
    """Return cells and weights of samples that were not seen, for the posterior of the metrics.

    For each label in use, half a sample is a TP, FP, FN and TN of it, and has the mean cells of the other labels.

    Args:
        cells: Cells of the samples that were seen, shape (samples, 4 * labels + 1).

    Returns:
        Cells, shape (unseen samples, 4 * labels + 1), and one weight per row.
    """
    total = cells.sum(axis=0)
    labels = len(total) // 4
    rows = []
    for label in range(labels):
        of_label = range(label, 4 * labels, labels)
        if not total[of_label[:3]].any():
            continue
        for cell in of_label:
            row = total / total[-1]
            row[of_label] = 0.0
            row[cell] = 1.0
            rows.append(row)
    unseen = np.asarray(rows, dtype=np.float64).reshape(-1, len(total))
    return unseen, [0.5] * len(rows)


def ratio(
    part: Integers | Floats,
    whole: Integers,
    undefined: float = 0.0,
) -> Floats:
    """Return ``part / whole``, or ``undefined`` where ``whole`` is 0.

    Args:
        part: Numerators, of a shape that broadcasts with that of ``whole``.
        whole: Denominators, not negative.
        undefined: Value for a denominator of 0.

    Example:
        >>> ratio(np.array([1, 0]), np.array([4, 0])).tolist()
        [0.25, 0.0]
    """
    return np.where(whole > 0, part / np.maximum(whole, 1), undefined)


def _cells(
    right: Booleans,
    guess: Booleans,
    answered: Booleans,
) -> Integers:
    """Return the cells of each sample, shape (samples, 4 * classes + 1).

    Args:
        right: Whether the target has each class, shape (samples, classes).
        guess: Whether the reply names each class, of the same shape.
        answered: Whether what the reply does not name is called absent, shape (samples, 1).

    Raises:
        ValueError: Targets and replies differ in number.
    """
    if len(right) != len(guess):
        raise ValueError(
            f"expected one prediction per sample, but got {len(guess)} for {len(right)}"
        )
    true_positives = right & guess
    false_positives = ~right & guess
    false_negatives = right & ~guess
    true_negatives = ~right & ~guess & answered
    samples = np.ones((len(right), 1), dtype=bool)
    return np.concatenate(
        [true_positives, false_positives, false_negatives, true_negatives, samples], axis=-1
    ).astype(np.int64)


def multiclass_metrics(cells: Integers) -> dict[str, Floats]:
    """Return :data:`MULTICLASS_METRICS` by name.

    Args:
        cells: Sums of :func:`count_classes`, shape (..., 4 * classes + 1).

    Returns:
        Values of shape (...), NaN where no class counts.

    Example:
        >>> cells = count_classes([0, 1, 1], [0, 1, 0], classes=2).sum(axis=0)
        >>> float(multiclass_metrics(cells)["balanced_accuracy"])
        0.75
    """
    counts = _counts(cells)
    in_use = counts.in_target | (counts.false_positives > 0)
    return {
        "macro_f1": _mean(counts.f1, in_use),
        "macro_accuracy": _mean(counts.recall, in_use),
        "balanced_accuracy": _mean(counts.recall, counts.in_target),
        "macro_auroc": _mean(counts.auroc, counts.samples > 0),
        "present_class_auroc": _mean(counts.auroc, counts.in_part),
    }


def multilabel_metrics(cells: Integers) -> dict[str, Floats]:
    """Return :data:`MULTILABEL_METRICS` by name.

    Args:
        cells: Sums of :func:`count_labels`, shape (..., 4 * labels + 1).

    Returns:
        Values of shape (...), NaN where no label counts.
    """
    counts = _counts(cells)
    every = counts.samples > 0
    right = counts.true_positives + counts.true_negatives
    return {
        "macro_f1": _mean(counts.f1, every),
        "macro_accuracy": _mean(ratio(right, counts.samples), every),
        "macro_auroc": _mean(counts.auroc, every),
        "present_label_f1": _mean(counts.f1, counts.in_target),
        "present_label_auroc": _mean(counts.auroc, counts.in_part),
    }


class _Counts(NamedTuple):
    """Counts of each class against all others and what follows from them, shape (..., classes)."""

    true_positives: Integers
    false_positives: Integers
    true_negatives: Integers
    samples: Integers  # shape (..., 1)
    in_target: Booleans  # whether a sample has the class in the target
    in_part: Booleans  # whether also a sample has it not
    recall: Floats  # TP / (TP + FN); 0 for a class that is not in the target
    f1: Floats  # 2 TP / (2 TP + FP + FN); 0 for a class that is neither in the target nor predicted
    # (TPR + TNR) / 2; 0 without positives or without negatives, as in torchmetrics
    auroc: Floats


def _counts(cells: Integers) -> _Counts:
    """Return the counts of each class from sums of cells, shape (..., 4 * classes + 1)."""
    tp, fp, fn, tn = np.split(cells[..., :-1], 4, axis=-1)
    samples = cells[..., -1:]
    positives = tp + fn
    negatives = samples - positives
    recall = ratio(tp, positives)
    f1 = ratio(2 * tp, 2 * tp + fp + fn)
    in_part = (positives > 0) & (negatives > 0)
    auroc = np.where(in_part, (recall + ratio(tn, negatives)) / 2, 0.0)
    return _Counts(tp, fp, tn, samples, positives > 0, in_part, recall, f1, auroc)


def _mean(values: Floats, included: Booleans) -> Floats:
    """Return the mean over the included classes, shape (...), NaN without any."""
    included = np.broadcast_to(included, values.shape)
    total = np.where(included, values, 0.0).sum(axis=-1)
    return ratio(total, included.sum(axis=-1), np.nan)
