"""Open replies as others' code compares them: MultiMedEval's visual questions, reports, MedHEval's open answers."""

import re

from medtasks.data.samples import Sample
from medtasks.extract.careful.open_text import invalid_open_answer, open_answer
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.failure import failure_cause
from medtasks.extract.published.multimedeval import clean_head
from medtasks.extract.reading.reply_text import answered_text, without_thoughts
from medtasks.metrics.ngram_metrics import CLOSED, OPEN_RECALL, token_overlap


@extractor(
    "multimedeval_vqa_head",
    AnswerKind.OPEN,
    "MultiMedEval at d9ac283: words shared with the target",
)
def multimedeval_vqa_head(reply: str | None, sample: Sample) -> Answer:
    """Score as ``VQA.evaluate`` of MultiMedEval at d9ac283.

    A reply without words is ``empty`` and scores 0.
    """
    # Replies are not stripped: outer blanks decide whether some marks join or part words.
    target = clean_head(sample.document["answer"].strip())
    closed = target in CLOSED
    if failure_cause(reply) is not None:
        return invalid_open_answer(Reason.ADAPTER_FAILED, closed=closed)
    cleaned = clean_head(reply or "")
    tokens = set(cleaned.split())
    if not tokens:
        return invalid_open_answer(Reason.EMPTY, closed=closed)
    overlap = token_overlap(tokens, set(target.split()))
    # For "no", "not" is right, too; a reply with both "yes" and "no" is right whatever the target.
    accepted = {"no", "not"} if target == "no" else {target}
    correct = bool(tokens & accepted) if closed else overlap.recall >= OPEN_RECALL
    return open_answer(cleaned, target, overlap, closed=closed, correct=correct)


# ---- reports, and answers to MedHEval's open questions: judged, labelled and compared as texts ----
#
# Sources, all in ``code/evaluation`` of https://github.com/Aofei-Chang/MedHEval at 7f7d980: ``run_chair.py`` and
# ``run_all_metrics.py`` in ``report_eval``, ``generation_metrics.py`` and ``knowledge_hallucination_score.py`` in
# ``open_ended_evaluation``. Before labels and text metrics the reference calls ``strip("Assistant:")``, which removes
# all these characters, not the word, from both ends: "Atelectasis" becomes "elec" and "stable" becomes "ble".

NO_REPORT = "No report generated."  # what the reference labels in place of a report of fewer than ten characters
_ASSISTANT = re.compile(r"\A\s*assistant\s*:", re.IGNORECASE)


@extractor(
    "report_text", AnswerKind.REPORT, "the reply as it stands, for metrics of report texts"
)
def report_text(reply: str | None, sample: Sample) -> Answer:
    """Return the reply as a report. None is an empty reply.

    Half of a surrogate pair, which no tokenizer takes, becomes a replacement character.
    """
    text = (reply or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if failure_cause(text) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    return Answer.ok(text) if text.strip() else Answer.invalid(Reason.EMPTY)


@extractor(
    "medheval_open_reference",
    AnswerKind.FREE_TEXT,
    "MedHEval, open answers at 7f7d980, cut at both ends",
)
def medheval_open_reference(reply: str | None, sample: Sample) -> Answer:
    """Read a reply as released: whole for the judge, stripped of characters for all else. None is an empty reply."""
    text = answered_text(reply)
    whole = "" if isinstance(text, Reason) else text
    stripped = whole.strip("Assistant:")  # noqa: B005 - this is the published behaviour
    labelled = stripped or whole
    if len(labelled) < 10:
        labelled = NO_REPORT
    # The judge's text is most often the same as in strict, so that one verdict serves both.
    return _texts(text, whole.strip(), labelled, stripped)


@extractor(
    "medheval_open_strict", AnswerKind.FREE_TEXT, "MedHEval, open answers without reasoning"
)
def medheval_open_strict(reply: str | None, sample: Sample) -> Answer:
    """Read a reply without reasoning and without a leading "Assistant:", the same text for every metric."""
    text = answered_text(reply)
    if not isinstance(text, Reason):
        answer = without_thoughts(text)
        text = Reason.TRUNCATED if answer is None else _ASSISTANT.sub("", answer).strip()
    content = "" if isinstance(text, Reason) else text
    return _texts(text, content, content, content)


def _texts(
    text: str | Reason,
    judged: str,
    labelled: str,
    compared: str,
) -> Answer:
    """Return an answer whose value is the judged text, with the texts as facts.

    Args:
        text: Text of the reply, which may be blank, or the reason why it has no text. Both make the answer invalid.
        judged: Text for the judge.
        labelled: Text for the labeler.
        compared: Text for the text metrics.
    """
    facts = {"judged": judged, "labelled": labelled, "compared": compared}
    if isinstance(text, Reason):
        return Answer.invalid(text, **facts)
    if not text.strip():
        return Answer.invalid(Reason.EMPTY, **facts)
    return Answer.ok(judged, **facts)
