"""Replies that are judged, labelled and compared as texts: reports, and answers to MedHEval's open questions.

Sources, all in ``code/evaluation`` of https://github.com/Aofei-Chang/MedHEval at 7f7d980: ``report_eval/run_chair.py``
(labels), ``open_ended_evaluation/generation_metrics.py`` and ``report_eval/run_all_metrics.py`` (text metrics),
``open_ended_evaluation/knowledge_hallucination_score.py`` (judge).

Before labels and text metrics the reference calls ``strip("Assistant:")``, which was meant to remove a label and
removes all characters of it from both ends: "Atelectasis" becomes "elec" and "stable" becomes "ble".
"""

import re

from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.registry import Kind, extractor
from medtasks.extract.reply_text import without_thoughts

NO_REPORT = "No report generated."  # what the reference labels in place of a report of fewer than ten characters

_SHORTEST_REPORT = 10
_LABEL = re.compile(r"\A\s*assistant\s*:", re.IGNORECASE)


@extractor("report_text", kind=Kind.REPORT, summary="the reply as it stands, for metrics of report texts")
def report_text(reply: str | None, sample: Sample) -> Answer:
    """Return the reply as a report.

    An empty reply and one of white space are scored as the empty text. MultiMedEval at d9ac283 crashes on it; v0.1.0
    scored the words "Invalid Response" instead, which share words with no report but are a text to BERTScore and
    CheXbert. A sample that the model adapter could not run has no text to score. Half of a surrogate pair, which no
    tokenizer takes, becomes the replacement character.

    Example:
        >>> report_text("No effusion.", Sample({})).value
        'No effusion.'
        >>> report_text(None, Sample({})).reason
        <Reason.EMPTY: 'empty'>
    """
    text = (reply or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if failure_cause(text) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    return Answer.ok(text) if text.strip() else Answer.invalid(Reason.EMPTY)


@extractor(
    "medheval_open_reference",
    kind=Kind.FREE_TEXT,
    summary="MedHEval, open answers at 7f7d980: characters of 'Assistant:' cut from both ends, short reports replaced",
)
def medheval_open_reference(reply: str | None, sample: Sample) -> Answer:
    """Read a reply as the released code does: whole for the judge, stripped of characters for all else.

    For labels, a reply of which nothing is left is taken unstripped, and what is then shorter than ten characters is
    replaced by "No report generated.".

    Example:
        >>> medheval_open_reference("Assistant: no effusion.", Sample({})).facts["compared"]
        ' no effusion.'
        >>> medheval_open_reference("Atelectasis", Sample({})).facts
        {'judged': 'Atelectasis', 'labelled': 'No report generated.', 'compared': 'elec'}
    """
    text = _own(reply)
    stripped = text.strip("Assistant:")  # noqa: B005 - this is the published behaviour
    labelled = stripped or text
    return _answer(
        _reason(reply, text),
        judged=text.strip(),  # as strict has it for most replies, so that one verdict serves both
        labelled=labelled if len(labelled) >= _SHORTEST_REPORT else NO_REPORT,
        compared=stripped,
    )


@extractor(
    "medheval_open_strict",
    kind=Kind.FREE_TEXT,
    summary="MedHEval, open answers without reasoning and without a leading 'Assistant:'",
)
def medheval_open_strict(reply: str | None, sample: Sample) -> Answer:
    """Read a reply without reasoning and without a leading "Assistant:", the same text for every metric.

    Example:
        >>> medheval_open_strict("<think>A shadow?</think>Assistant: Atelectasis, stable", Sample({})).value
        'Atelectasis, stable'
    """
    text = _own(reply)
    said = without_thoughts(text)
    own = "" if said is None else _LABEL.sub("", said).strip()
    reason = Reason.TRUNCATED if said is None else _reason(reply, own)
    return _answer(reason, judged=own, labelled=own, compared=own)


def _answer(reason: Reason, *, judged: str, labelled: str, compared: str) -> Answer:
    """Return what a judge reads, what the labeler of chest findings reads, and what text metrics compare.

    No judge is asked about a reply that is none, whose text is empty.
    """
    texts = {"judged": judged, "labelled": labelled, "compared": compared}
    return Answer(judged if reason is Reason.OK else None, reason, texts)


def _own(reply: str | None) -> str:
    return "" if reply is None or failure_cause(reply) is not None else reply


def _reason(reply: str | None, text: str) -> Reason:
    if text.strip():
        return Reason.OK
    return Reason.EMPTY if failure_cause(reply) is None else Reason.ADAPTER_FAILED
