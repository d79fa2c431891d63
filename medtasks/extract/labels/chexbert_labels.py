"""Findings of a chest X-ray, read from the reply by a labeler: MultiMedEval's rule for MIMIC-CXR.

Source: ``MIMIC_CXR_ImageClassification.getPredictedAnswer`` in ``multimedeval/imageClassification.py`` of v0.1.0 of
https://github.com/corentin-ryr/MultiMedEval; at d9ac283 it cannot run.
"""

from collections.abc import Sequence

from medtasks.data.samples import Sample
from medtasks.errors import LabelerError, warn_once
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.labels.labeler import Labels, chosen_findings, label_texts
from medtasks.extract.reading.reply_text import given_text
from medtasks.extract.registry import Kind, extractor
from medtasks.metrics.chest_findings import Finding

NAME = "chexbert_labels"


@extractor(
    NAME,
    kind=Kind.LABELS,
    summary="MultiMedEval, MIMIC-CXR: conditions that CheXbert, or the labeler in MEDTASKS_LABELER, calls positive",
)
def chexbert_labels(reply: str | None, sample: Sample) -> Answer:
    """Read the conditions that the labeler calls positive. Uncertain counts as absent.

    The sample's options are names of :data:`medtasks.metrics.chest_findings.CONDITIONS`. An empty reply, which the
    reference labels and scores, is invalid. Without a labeler, or if it fails, the reply is ``judge_failed``, with the
    cause logged once per process.
    """
    return from_labels(reply, label_replies([reply])[0], sample.options)


def label_replies(replies: Sequence[str | None]) -> list[Labels | None]:
    """Label raw replies, shape (replies,), all in one call, which is faster than one by one.

    A reply that is invalid, or that the labeler fails to read, has None; the cause is logged once.
    """
    texts = [given_text(reply) for reply in replies]
    valid = {position: text for position, text in enumerate(texts) if not isinstance(text, Reason)}
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


def from_labels(reply: str | None, labels: Labels | None, names: Sequence[str]) -> Answer:
    """Read which conditions, of ``names``, are present, from the result of :func:`label_replies` for a raw reply."""
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
    warn_once(
        f"A reply got no labels: {cause}. Such samples are judge_failed and left out of the metrics; further ones of "
        f"this kind are not reported."
    )
