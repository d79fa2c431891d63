"""Replies that are judged, labelled and compared as texts: reports, and answers to MedHEval's open questions.

Sources, all in ``code/evaluation`` of https://github.com/Aofei-Chang/MedHEval at 7f7d980: ``report_eval/run_chair.py``
(labels), ``open_ended_evaluation/generation_metrics.py`` and ``report_eval/run_all_metrics.py`` (text metrics),
``open_ended_evaluation/knowledge_hallucination_score.py`` (judge).

Before labels and text metrics the reference calls ``strip("Assistant:")``, which removes all these characters, not the
word, from both ends: "Atelectasis" becomes "elec" and "stable" becomes "ble".
"""

import re

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.failure import failure_cause
from medtasks.extract.reading.reply_text import answered_text, without_thoughts

NO_REPORT = "No report generated."  # what the reference labels in place of a report of fewer than ten characters
_LABEL = re.compile(r"\A\s*assistant\s*:", re.IGNORECASE)


@extractor("report_text", AnswerKind.REPORT, "the reply as it stands, for metrics of report texts")
def report_text(reply: str | None, sample: Sample) -> Answer:
    """Return the reply as a report.

    A blank reply is scored as the empty text; MultiMedEval at d9ac283 crashes on it, and v0.1.0 scored the words
    "Invalid Response" instead. Half of a surrogate pair, which no tokenizer takes, becomes the replacement character.
    """
    text = (reply or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if failure_cause(text) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    return Answer.ok(text) if text.strip() else Answer.invalid(Reason.EMPTY)


@extractor("medheval_open_reference", AnswerKind.FREE_TEXT, "MedHEval, open answers at 7f7d980, cut at both ends")
def medheval_open_reference(reply: str | None, sample: Sample) -> Answer:
    """Read a reply as the released code does: whole for the judge, stripped of characters for all else.

    For labels, a reply that would become empty is not stripped, and a text of fewer than ten characters is replaced.
    """
    text = answered_text(reply)
    whole = "" if isinstance(text, Reason) else text
    stripped = whole.strip("Assistant:")  # noqa: B005 - this is the published behaviour
    labelled = stripped or whole
    labelled = labelled if len(labelled) >= 10 else NO_REPORT
    # The judge's text is most often the same as in strict, so that one verdict serves both.
    return _answer(text, whole.strip(), labelled, stripped)


@extractor("medheval_open_strict", AnswerKind.FREE_TEXT, "MedHEval, open answers without reasoning")
def medheval_open_strict(reply: str | None, sample: Sample) -> Answer:
    """Read a reply without reasoning and without a leading "Assistant:", the same text for every metric."""
    text = answered_text(reply)
    if not isinstance(text, Reason):
        answer = without_thoughts(text)
        text = Reason.TRUNCATED if answer is None else _LABEL.sub("", answer).strip()
    content = "" if isinstance(text, Reason) else text
    return _answer(text, content, content, content)


def _answer(text: str | Reason, judged: str, labelled: str, compared: str) -> Answer:
    facts = {"judged": judged, "labelled": labelled, "compared": compared}
    if isinstance(text, Reason) or not text.strip():
        return Answer.invalid(text if isinstance(text, Reason) else Reason.EMPTY, **facts)
    return Answer.ok(judged, **facts)
