"""Calibration of a run's likelihoods: from recorded losses to probabilities, targets and units.

The geometric mean of a longer text's token probabilities is no probability of the text: of these there is no
calibration error, only how well the scores tell right answers from wrong ones. All rules choose the option with the
smallest loss and differ in ties alone. Here a tie counts as a random choice among the tied options, so that all rules
share one calibration.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from medtasks.data.samples import Documents, Sample
from medtasks.families.family import Replies
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
    task: TaskFile, documents: Documents, replies: Replies
) -> Mapping[str, Calibration]:
    """Return the calibration of recorded likelihoods by filter name, the same for each; empty where replies are texts.

    Left out and counted are questions without a target, and replies that are texts, have another number of losses than
    the question has options, or a loss that is not finite: a failed pass.
    """
    if (likelihoods := _likelihoods(task, documents, replies)) is None:
        return {}
    _, _, probabilities, targets, clusters = likelihoods
    letters = str(task_config(task.name).get("doc_to_choice")).rpartition(".")[2] == "letters"
    left_out = sum(document["doc_id"] in replies for document in documents) - len(targets)
    measures = calibration(
        probabilities, targets, clusters, _LETTERS if letters else _TEXTS, left_out, letters
    )
    return dict.fromkeys(
        task.rows, replace(measures, classes=class_areas(task, documents, replies))
    )


def _likelihoods(
    task: TaskFile, documents: Documents, replies: Replies
) -> tuple[list[str], list[tuple[str, ...]], list[list[float]], list[int], list[str]] | None:
    """Return ids, options, probabilities, targets and clusters of readable samples; None if all are texts."""
    answered = [Sample(document) for document in documents if document["doc_id"] in replies]
    if not task.compares_likelihoods or all(
        replies[sample.doc_id].losses is None for sample in answered
    ):
        return None
    ids, options, probabilities, targets, clusters = [], [], [], [], []
    for sample, cluster in zip(answered, task.family.independent_clusters(answered), strict=True):
        losses, target = replies[sample.doc_id].losses or (), sample.target
        if (
            target is not None
            and len(losses) == len(sample.options)
            and all(map(math.isfinite, losses))
        ):
            weights = [math.exp(min(losses) - loss) for loss in losses]
            total = math.fsum(weights)
            ids.append(sample.doc_id)
            options.append(tuple(sample.options))
            probabilities.append([weight / total for weight in weights])
            targets.append(target)
            clusters.append(cluster)
    return ids, options, probabilities, targets, clusters


def class_areas(task: TaskFile, documents: Documents, replies: Replies) -> tuple[ClassArea, ...]:
    """Return the AUROC of each class against all others; none unless all questions have the same options."""
    _, options, probabilities, targets, clusters = _likelihoods(task, documents, replies) or (
        [],
        [],
        [],
        [],
        [],
    )
    if len(set(options)) != 1 or len(set(targets)) < 2:
        return ()
    areas = []
    for number, name in enumerate(options[0]):
        positive = [float(target == number) for target in targets]
        area = roc_area(_shares(probabilities, number), positive, clusters)
        areas.append(ClassArea(name, int(sum(positive)), Measure(area.value, area.low, area.high)))
    return tuple(areas)


def area_by_sample(
    task: TaskFile, documents: Documents, replies: Replies, of_class: str
) -> dict[str, tuple[Hashable, float]]:
    """Return the cluster and value of each sample; their mean is the AUROC of a class of all questions."""
    ids, options, probabilities, targets, clusters = _likelihoods(task, documents, replies) or (
        [],
        [],
        [],
        [],
        [],
    )
    if not options:
        return {}
    number = options[0].index(of_class)
    positive = [float(target == number) for target in targets]
    values = area_values(_shares(probabilities, number), positive, clusters)
    return dict(zip(ids, zip(clusters, values, strict=False), strict=False))


def _shares(probabilities: Sequence[Sequence[float]], number: int) -> list[float]:
    """Return the probabilities of a class; equal ones may differ after 12 digits, by the order of a sum."""
    return [round(of_sample[number], 12) for of_sample in probabilities]
