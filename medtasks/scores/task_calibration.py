"""Calibration of a run's likelihoods: from recorded losses to probabilities, targets and clusters.

Reports call this, and comparisons for the AUROC of classes.

The geometric mean of a longer text's token probabilities is no probability of the text: of these there is no
calibration error, only how well the scores tell right answers from wrong ones. All rules choose the option with the
smallest loss and differ in ties alone. Here a tie counts as a random choice among the tied options, so that all rules
share one calibration.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from medtasks.data.samples import Documents, Sample
from medtasks.families.family import Replies
from medtasks.scores.scoring import answered_documents
from medtasks.stats.calibration import (
    Calibration,
    ClassArea,
    Measure,
    area_values,
    calibration,
    roc_area,
)
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config

_LETTERS = (
    "The probability of a letter is exp(-loss), renormalised over the question's letters; the recorded loss is the "
    "mean over the letter's tokens, so that these are the model's own probabilities where each letter is one token"
)
_TEXTS = (
    "Scores made to sum to 1, not the model's own probabilities: exp(-loss), renormalised over the question's options, "
    "where the recorded loss is the mean negative log-likelihood per token of an option's text; therefore there is no "
    "calibration error, Brier score or reliability diagram"
)


def task_calibration(
    task: TaskFile,
    documents: Documents,
    replies: Replies,
) -> Mapping[str, Calibration]:
    """Return the calibration of recorded likelihoods by filter name, the same for each.

    Left out and counted are questions without a target, and replies that are texts, have another number of losses than
    the question has options, or a loss that is not finite: a failed pass.

    Args:
        task: The task.
        documents: All its documents.
        replies: Replies by document id. If all are texts, there is no calibration.
    """
    likelihoods = _likelihoods(task, documents, replies)
    if likelihoods is None:
        return {}
    letters = str(task_config(task.name).get("doc_to_choice")).rpartition(".")[2] == "letters"
    measures = calibration(
        likelihoods.probabilities,
        likelihoods.targets,
        likelihoods.clusters,
        _LETTERS if letters else _TEXTS,
        len(answered_documents(documents, replies)) - len(likelihoods.targets),
        letters,
    )
    measures = replace(measures, classes=class_areas(task, documents, replies))
    return dict.fromkeys(task.rows, measures)


class _Likelihoods(NamedTuple):
    """Readable samples: lists of shape (samples,)."""

    ids: list[str]
    options: list[tuple[str, ...]]
    probabilities: list[list[float]]  # (samples, options)
    targets: list[int]
    clusters: list[str]

    def of_class(self, index: int) -> tuple[list[float], list[float], list[str]]:
        """Return the probability of a class, whether it is the target, and the cluster of each sample.

        Equal probabilities may differ after 12 digits, by the order of a sum.
        """
        shares = [round(of_sample[index], 12) for of_sample in self.probabilities]
        return shares, [float(target == index) for target in self.targets], self.clusters


def _likelihoods(task: TaskFile, documents: Documents, replies: Replies) -> _Likelihoods | None:
    """Return the likelihoods of readable samples, possibly of none.

    A sample is readable if it has a target, and a finite loss for each of its options.

    Returns:
        The likelihoods, or None if the task compares none or all replies are texts.
    """
    answered = list(map(Sample, answered_documents(documents, replies)))
    if not task.compares_likelihoods:
        return None
    if all(replies[sample.doc_id].losses is None for sample in answered):
        return None
    readable = _Likelihoods([], [], [], [], [])
    for sample, cluster in zip(
        answered, task.family.independent_clusters(answered), strict=True
    ):
        losses = replies[sample.doc_id].losses or ()
        target = sample.target
        if target is None or len(losses) != len(sample.options):
            continue
        if not all(map(math.isfinite, losses)):
            continue
        readable.ids.append(sample.doc_id)
        readable.options.append(sample.options)
        readable.probabilities.append(_probabilities(losses))
        readable.targets.append(target)
        readable.clusters.append(cluster)
    return readable


def _probabilities(losses: Sequence[float]) -> list[float]:
    """Return exp(-loss) of each option, in nats, divided by their sum."""
    weights = [math.exp(min(losses) - loss) for loss in losses]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def class_areas(
    task: TaskFile, documents: Documents, replies: Replies
) -> tuple[ClassArea, ...]:
    """Return the AUROC of each class against all others.

    There are none for replies that are texts, unless all questions have the same options, or with targets of one class.
    """
    likelihoods = _likelihoods(task, documents, replies)
    if likelihoods is None or len(set(likelihoods.options)) != 1:
        return ()
    if len(set(likelihoods.targets)) < 2:  # samples of one class have no AUROC
        return ()
    areas = []
    for index, name in enumerate(likelihoods.options[0]):
        shares, positive, clusters = likelihoods.of_class(index)
        area = roc_area(shares, positive, clusters)
        areas.append(
            ClassArea(name, int(sum(positive)), Measure(area.value, area.low, area.high))
        )
    return tuple(areas)


def area_by_sample(
    task: TaskFile,
    documents: Documents,
    replies: Replies,
    of_class: str,
) -> dict[str, tuple[Hashable, float]]:
    """Return the cluster and value of each sample, whose mean is the AUROC of a class, by document id.

    Args:
        task: The task.
        documents: All its documents.
        replies: Replies by document id. If all are texts, there are no values.
        of_class: Text of the option that is the class, which all questions have.
    """
    likelihoods = _likelihoods(task, documents, replies)
    if likelihoods is None or not likelihoods.options:
        return {}
    index = likelihoods.options[0].index(of_class)
    values = area_values(*likelihoods.of_class(index))
    return dict(
        zip(likelihoods.ids, zip(likelihoods.clusters, values, strict=False), strict=False)
    )
