"""Calibration of a run's likelihoods: from recorded losses to probabilities, keys and units.

The loss that is recorded of an option is its mean negative log-likelihood per token, as the harness's multiple choice
has it. The probability of an option is ``exp(-loss)`` divided by the sum over the question's options. For options that
are letters of one token each, these are the model's own probabilities of the letters, given that it answers with one
of them. For options that are texts they are the scores that the answer is chosen by, made to sum to 1: the geometric
mean of a text's token probabilities is no probability of the text.

All rules choose the option with the smallest loss and differ in ties alone: the first, the last, or none. Here a tie
counts as a random choice among the tied options (:mod:`medtasks.stats.calibration`), so that all rules share one
calibration.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from medtasks.audit.baselines.blind_replies import key_of
from medtasks.harness.replies import RecordedReply
from medtasks.harness.task_files import TaskFile, task_config
from medtasks.hooks.units import unit_of
from medtasks.stats.calibration import Calibration, calibration
from medtasks.stats.connected_components import connected_components

_LETTERS = (
    "The probability of a letter is exp(-loss), renormalised over the question's letters; the recorded loss is the "
    "mean over the letter's tokens, so that these are the model's own probabilities where each letter is one token"
)
_TEXTS = (
    "Scores made to sum to 1, not the model's own probabilities: exp(-loss), renormalised over the question's options, "
    "where the recorded loss is the mean negative log-likelihood per token of an option's text"
)


def task_calibration(
    task: TaskFile, documents: Sequence[Mapping[str, Any]], replies: Mapping[str, RecordedReply]
) -> Mapping[str, Calibration]:
    """Return the calibration of recorded likelihoods.

    Args:
        task: A task, no group.
        documents: Its documents; those without a reply are not looked at.
        replies: Replies by document id. Left out and counted are questions without a key, and replies that are texts,
            have another number of losses than the question has options, or a loss that is not finite: a failed pass.

    Returns:
        By filter name, the same for each; empty for a task that does not compare likelihoods, and where all replies are
        texts.
    """
    answered = [document for document in documents if document["doc_id"] in replies]
    texts = all(replies[document["doc_id"]].losses is None for document in answered)
    if task.output_type != "multiple_choice" or texts:
        return {}
    units = _units(answered)
    probabilities, keys, used = [], [], []
    for document, unit in zip(answered, units, strict=True):
        losses, key = replies[document["doc_id"]].losses or (), key_of(document)
        if key is None or len(losses) != len(document["options"]) or not all(map(math.isfinite, losses)):
            continue
        probabilities.append(_softmax(losses))
        keys.append(key)
        used.append(unit)
    found = calibration(probabilities, keys, used, _note(task), len(answered) - len(used))
    return dict.fromkeys(task.rules, found)


def _softmax(losses: Sequence[float]) -> list[float]:
    least = min(losses)
    weights = [math.exp(least - loss) for loss in losses]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def _units(documents: Sequence[Mapping[str, Any]]) -> Sequence[Hashable]:
    """Return what is independent: of paired questions all pairs that shared pictures connect."""
    if "pair_id" in documents[0]:
        return connected_components([[("pair", one["pair_id"]), ("image", one["image_id"])] for one in documents])
    return [unit_of(document) for document in documents]


def _note(task: TaskFile) -> str:
    choices = str(task_config(task.name).get("doc_to_choice"))
    return _LETTERS if choices.rpartition(".")[2] == "letters" else _TEXTS
