"""The labeler that reads chest findings from a text: CheXbert, or one that the user names.

``MEDTASKS_LABELER=module:factory`` names a callable without arguments that returns a :class:`Labeler`. The factory
is called once per process, when the first reply is read. Without it the labeler is CheXbert
(:mod:`medtasks.metrics.neural.chexbert`), if its weights are on this machine.

``chexbert_labels`` is MultiMedEval's rule for MIMIC-CXR: ``MIMIC_CXR_ImageClassification.getPredictedAnswer`` in
``multimedeval/imageClassification.py`` of v0.1.0 of https://github.com/corentin-ryr/MultiMedEval; at d9ac283 it cannot
run.

Called by the families for labels and reports. A message must never quote a text, which may be about a patient.
"""

import functools
import importlib
import os
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, cast

from medtasks.data.samples import Sample
from medtasks.errors import LabelerError, MedTasksError, WeightsMissing, warn_once
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.reply_text import given_text
from medtasks.metrics.chest_findings import CONDITIONS, Finding
from medtasks.metrics.model_settings import ModelSettings

NAME = "chexbert_labels"
VARIABLE = "MEDTASKS_LABELER"

Labels = Mapping[str, Finding | None]
"""Findings of one text by condition; None for a value that is no :class:`Finding`."""

_building = threading.Lock()

Labeler = Callable[[Sequence[str]], Sequence[Mapping[str, Finding]]]
"""Returns for each text, passed unchanged, a :class:`Finding` per name of :data:`CONDITIONS`."""


def labeler() -> Labeler:
    """Return the labeler that the environment names, else CheXbert.

    Raises:
        LabelerError: It cannot be built, or the environment names none and CheXbert's weights are not on this machine.
    """
    name = os.environ.get(VARIABLE, "").strip()
    if not name:
        from medtasks.metrics.neural.metric_checkpoints import find_chexbert

        try:
            settings = ModelSettings.from_environment()
            find_chexbert(settings)
        except WeightsMissing as error:
            raise LabelerError(
                "reading findings as CheXbert does takes a labeler, and none is configured; run 'medtasks weights "
                f"fetch chexbert bert-base-uncased', or set {VARIABLE}=module:factory to a callable that returns one "
                f"({error})"
            ) from error
        except MedTasksError as error:
            raise LabelerError(str(error)) from error
        return _chexbert(settings)
    with _building:
        user_labeler = _build_labeler(name)
    if isinstance(user_labeler, LabelerError):
        raise LabelerError(str(user_labeler))
    return user_labeler


def label_texts(texts: Sequence[str]) -> list[Labels | LabelerError]:
    """Label texts, all in one call.

    A labeler that fails gets the texts once more, one by one, so that an error costs its text alone. No message quotes
    a text, nor an error that might.

    Returns:
        The labels of each text, or why it has none, shape (texts,).

    Raises:
        LabelerError: There is no labeler, or a cause that all texts share, such as damaged weights.
    """
    if not texts:
        return []
    read = labeler()
    try:
        results: list[Any] = list(read(texts))
    except MedTasksError as error:  # ours, without a text in it, and the same for every text
        raise LabelerError(str(error)) from error
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        mistake = f"the labeler raised {_origin(error)}"
    else:
        mistake = _mistake(results, len(texts))
    if not mistake:
        return list(map(_as_findings, results))
    if len(texts) == 1:
        return [LabelerError(mistake)]
    labels: list[Labels | LabelerError] = []
    for text in texts:
        labels += label_texts([text])
    return labels


def _mistake(results: Sequence[Any], count: int) -> str:
    """Describe the mistake in a labeler's results as a whole. Empty if they are valid."""
    if len(results) == count and all(isinstance(result, Mapping) for result in results):
        return ""
    kinds = ", ".join(dict.fromkeys(type(result).__name__ for result in results))
    texts = "1 text" if count == 1 else f"{count} texts"
    return f"the labeler gave {len(results)} results ({kinds}) for {texts}; it must give one mapping each"


def _as_findings(result: Mapping[Any, Any]) -> Labels:
    """Return the findings of a labeler's result, None for a value that is no finding. Names without a value go."""
    labels: dict[str, Finding | None] = {}
    for name, value in result.items():
        if value is None:
            continue
        try:
            labels[str(name)] = Finding(value)
        except Exception:  # noqa: BLE001 - a tensor raises its own kind when it is compared
            labels[str(name)] = None
    return labels


def chosen_findings(labels: Labels | LabelerError, names: Sequence[str]) -> tuple[Finding, ...]:
    """Return findings of conditions.

    Args:
        labels: One result of :func:`label_texts`.
        names: Names of the conditions, in order.

    Raises:
        LabelerError: The text has no labels, or none for a condition.
    """
    if isinstance(labels, LabelerError):
        raise labels
    findings = []
    for name in names:
        if name not in labels:
            raise LabelerError(
                f"the labeler has no value for '{name}'; it must name every condition of a task"
            )
        finding = labels[name]
        if finding is None:
            raise LabelerError(
                f"the labeler's value for '{name}' is none of 0 blank, 1 positive, 2 negative, 3 uncertain"
            )
        findings.append(Finding(finding))  # a plain number if it went through JSON
    return tuple(findings)


@functools.cache
def _chexbert(settings: ModelSettings) -> Labeler:
    """Return CheXbert as a labeler, loaded once per settings.

    The labeler raises LabelerError for any error that is none of ours, so that texts are not tried one by one.
    """
    from medtasks.metrics.neural.chexbert import Chexbert

    chexbert = Chexbert(settings)

    def label(texts: Sequence[str]) -> list[dict[str, Finding]]:
        """Return the findings of texts, shape (texts,)."""
        try:
            readings = chexbert(texts)
        except MedTasksError:
            raise
        except Exception as error:  # such as the driver's; loading the network for every single text would not help
            raise LabelerError(f"CheXbert raised {_origin(error)}") from error
        findings = (map(Finding, reading.classes) for reading in readings)
        return [dict(zip(CONDITIONS, of_text, strict=True)) for of_text in findings]

    return label


@functools.cache
def _build_labeler(name: str) -> Labeler | LabelerError:
    """Return the labeler that a user names, or why it cannot be built.

    A failure is cached as well: loading weights in vain would otherwise be repeated for every reply.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        return LabelerError(f"{VARIABLE}={name} is not of the form module:factory")
    try:
        factory: Callable[[], Any] = getattr(importlib.import_module(module), attribute)
        user_labeler = factory()
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        return LabelerError(
            f"the labeler {VARIABLE}={name} cannot be built: {type(error).__name__}: {error}"
        )
    if not callable(user_labeler):
        kind = type(user_labeler).__name__
        return LabelerError(
            f"{VARIABLE}={name} returned a {kind}, which cannot be called with texts"
        )
    return cast(Labeler, user_labeler)


def _origin(error: Exception) -> str:
    """Name the type of an error and the line that raised it, without its message, which may quote the text."""
    # not its message, which may quote the text
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {PurePath(frame.filename).name}, line {frame.lineno} ({frame.name})"


@extractor(
    NAME,
    AnswerKind.LABELS,
    "MultiMedEval, MIMIC-CXR: conditions that the labeler calls positive",
)
def chexbert_labels(reply: str | None, sample: Sample) -> Answer:
    """Read the conditions that the labeler calls positive. Uncertain counts as absent.

    The sample's options are names of :data:`medtasks.metrics.chest_findings.CONDITIONS`. An empty reply, which the
    reference labels and scores, is invalid. Without a labeler, or if it fails, the reply is ``judge_failed``, with the
    cause logged once per process.
    """
    return from_labels(reply, label_replies([reply])[0], sample.options)


def label_replies(replies: Sequence[str | None]) -> list[Labels | None]:
    """Label raw replies, all in one call.

    Returns:
        The labels of each reply, shape (replies,), None for one without labels. The cause is logged once.
    """
    valid = {}
    for position, text in enumerate(map(given_text, replies)):
        if not isinstance(text, Reason):
            valid[position] = text
    of_replies: list[Labels | None] = [None] * len(replies)
    try:
        results = label_texts([*valid.values()])
    except LabelerError as error:
        _report_once(str(error))
        return of_replies
    for position, labels in zip(valid, results, strict=True):
        if isinstance(labels, LabelerError):
            _report_once(str(labels))
        else:
            of_replies[position] = labels
    return of_replies


def from_labels(
    reply: str | None,
    labels: Labels | None,
    names: Sequence[str],
) -> Answer:
    """Read which conditions are present.

    Args:
        reply: The raw reply. None is empty.
        labels: The reply's result of :func:`label_replies`. With None the answer is ``judge_failed``.
        names: Names of the conditions, in order.
    """
    text = given_text(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    if labels is None:
        return Answer.invalid(Reason.JUDGE_FAILED)
    try:
        findings = chosen_findings(labels, names)
    except LabelerError as error:
        _report_once(str(error))
        return Answer.invalid(Reason.JUDGE_FAILED)
    return Answer.ok(tuple(int(finding is Finding.POSITIVE) for finding in findings))


def _report_once(cause: str) -> None:
    """Warn of a reply without labels, once per process and cause."""
    warn_once(
        f"A reply got no labels: {cause}. Such samples are judge_failed and left out of the metrics; further ones of "
        f"this kind are not reported."
    )
