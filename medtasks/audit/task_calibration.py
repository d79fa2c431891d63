"""Calibration of a run's likelihoods: from recorded losses to probabilities, targets and units.

The geometric mean of a longer text's token probabilities is no probability of the text: of these there is no
calibration error, only how well the scores tell right answers from wrong ones. All rules choose the option with the
smallest loss and differ in ties alone. Here a tie counts as a random choice among the tied options, so that all rules
share one calibration.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from medtasks.audit.scoring import Documents, Replies
from medtasks.data.samples import Sample
from medtasks.stats.calibration import Calibration, ClassArea, Measure, calibration, roc_area
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


def task_calibration(task: TaskFile, documents: Documents, replies: Replies) -> Mapping[str, Calibration]:
    """Return the calibration of recorded likelihoods by filter name, the same for each; empty where replies are texts.

    Left out and counted are questions without a target, and replies that are texts, have another number of losses than
    the question has options, or a loss that is not finite: a failed pass.
    """
    if (likelihoods := _likelihoods(task, documents, replies)) is None:
        return {}
    letters = str(task_config(task.name).get("doc_to_choice")).rpartition(".")[2] == "letters"
    note = _LETTERS if letters else _TEXTS
    left_out = sum(document["doc_id"] in replies for document in documents) - len(likelihoods)
    probabilities, targets = [sample.probabilities for sample in likelihoods], [sample.target for sample in likelihoods]
    measures = calibration(probabilities, targets, [sample.cluster for sample in likelihoods], note, left_out, letters)
    return dict.fromkeys(task.rows, replace(measures, classes=class_areas(task, documents, replies)))


class _Likelihoods(NamedTuple):
    """Readable likelihoods of one sample with a target."""

    options: tuple[str, ...]
    probabilities: list[float]
    target: int
    cluster: str


def _likelihoods(task: TaskFile, documents: Documents, replies: Replies) -> list[_Likelihoods] | None:
    """Return the likelihoods that can be read; None where there are none at all."""
    answered = [Sample(document) for document in documents if document["doc_id"] in replies]
    if not task.compares_likelihoods or all(replies[sample.doc_id].losses is None for sample in answered):
        return None
    likelihoods = []
    for sample, cluster in zip(answered, task.family.independent_clusters(answered), strict=True):
        losses, target = replies[sample.doc_id].losses or (), sample.target
        if target is not None and len(losses) == len(sample.options) and all(map(math.isfinite, losses)):
            weights = [math.exp(min(losses) - loss) for loss in losses]
            total = math.fsum(weights)
            shares = [weight / total for weight in weights]
            likelihoods.append(_Likelihoods(tuple(sample.options), shares, target, cluster))
    return likelihoods


def class_areas(task: TaskFile, documents: Documents, replies: Replies) -> tuple[ClassArea, ...]:
    """Return the AUROC of each class against all others; none unless all questions have the same options."""
    likelihoods = _likelihoods(task, documents, replies) or []
    if len({sample.options for sample in likelihoods}) != 1 or len({sample.target for sample in likelihoods}) < 2:
        return ()
    areas = []
    for number, name in enumerate(likelihoods[0].options):
        positive = [float(sample.target == number) for sample in likelihoods]
        # Equal probabilities may differ after 12 digits, by the order of a sum.
        scores = [round(sample.probabilities[number], 12) for sample in likelihoods]
        area = roc_area(scores, positive, [sample.cluster for sample in likelihoods])
        areas.append(ClassArea(name, int(sum(positive)), Measure(area.value, area.low, area.high)))
    return tuple(areas)
