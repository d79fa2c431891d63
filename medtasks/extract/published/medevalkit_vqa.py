r"""MedEvalKit's rules for short answers to visual questions, closed and open, a careful one, and those for reports.

Called by the registry for rows that reproduce published numbers, whose faults must stay, and for the careful one.

A question is closed by its column ``answer_type`` (SLAKE, Rad-ReStruct), else if its answer is "yes" or "no".

Source: ``cal_metrics`` in ``VQA_RAD.py``, ``PATH_VQA.py`` and ``SLAKE.py`` below ``utils`` of
https://github.com/alibaba-damo-academy/MedEvalKit at 9b12e3b and, for the release, at 1de51eb; ``Radrestruct.py``
there, and ``cal_report_metrics.py`` for reports, which have no other facts than ``text`` and ``stops``.

Facts of the answers: ``closed``; ``correct``, for an open question the same text; ``measures``, those of
:mod:`medtasks.metrics.medevalkit_texts` for an open question, else None; ``stops``, the error with which the published
code gives no number for the whole dataset, else None; ``judged`` and ``gold``, reply and answer as shown to a judge.
"""

import re
from collections.abc import Mapping
from typing import Any

from medtasks.data.samples import Sample
from medtasks.extract.careful.open_text import DENIED, open_reply, stated_words, target_words
from medtasks.extract.careful.yes_no import gold_verdict, yes_no
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.failure import failure_cause
from medtasks.extract.published.medevalkit_choice import (
    NO_BOX,
    box_content,
    declared_answer,
    kit_answer,
    parsed_reply,
    tag_content,
)
from medtasks.extract.published.open_replies import report_text
from medtasks.extract.reading.reply_text import SENTENCES, given_text, without_thoughts
from medtasks.metrics.medevalkit_texts import MEASURES, compare_answer, rouge_stop

# The measure that HEAD reports under each of these names.
_PERMUTED = {"precision": "f1", "recall": "precision", "f1": "recall"}


def is_closed_question(document: Mapping[str, Any]) -> bool:
    """Return whether a question is closed.

    Example:
        >>> is_closed_question({"answer": "Yes"}), is_closed_question({"answer": "left", "answer_type": "CLOSED"})
        (True, True)
    """
    answer_type = document.get("answer_type")
    if answer_type is None:
        return str(document["answer"]).strip().lower() in ("yes", "no")
    return str(answer_type).strip().upper() not in ("OPEN", "MULTI_CHOICE", "FIXED_CHOICE")


def _answer(text: str, sample: Sample, **facts: Any) -> Answer:
    """Return an answer with a text. An empty one is invalid and never right."""
    facts = {
        "closed": is_closed_question(sample.document),
        "measures": None,
        "stops": None,
        **facts,
    }
    if not text.replace(".", " ").strip():
        return Answer.invalid(Reason.EMPTY, **facts | {"correct": False})
    return Answer.ok(text, **facts)


def _invalid_answer(
    reason: Reason,
    sample: Sample,
    *,
    closed: bool = False,
) -> Answer:
    """Return an answer without a text, which is not right and shares nothing with the target.

    Args:
        reason: Why there is no text.
        sample: The sample.
        closed: Whether the question counts as closed even if :func:`is_closed_question` does not say so.
    """
    closed = closed or is_closed_question(sample.document)
    measures = None if closed else dict.fromkeys(MEASURES, 0.0)
    return Answer.invalid(
        reason, closed=closed, correct=False, measures=measures, stops=None, judged="", gold=""
    )


# ---- as published ----


def _read_vqa(
    reply: str | None,
    sample: Sample,
    *,
    slake: bool,
    head: bool,
) -> Answer:
    """Read a reply as MedEvalKit does.

    Box or tag, lower case, stripped, the text after the last lead such as "answer:". A closed question is right if
    exactly one of the substrings "yes" and "no" occurs and is the answer, so "It is normal." says no; in SLAKE if the
    reply without dots is the answer.

    Args:
        reply: The raw reply.
        sample: The sample.
        slake: Whether to compare as for SLAKE.
        head: Whether to keep the errors of 9b12e3b, else measures have their right names.
    """
    if failure_cause(reply) is not None:
        return _invalid_answer(Reason.ADAPTER_FAILED, sample)
    text = _box_or_tag(reply)
    gold = str(sample.document["answer"])
    if not slake:
        text = text.lower().strip()
        gold = gold.lower().strip()
    parsed = parsed_reply(text)
    facts: dict[str, Any] = {"judged": text, "gold": gold}
    if is_closed_question(sample.document):
        if slake and gold not in ("yes", "no"):  # in SLAKE's file they begin with capitals
            facts["correct"] = _one_line(parsed) == gold.lower()
        else:
            facts["correct"] = _is_one_verdict(parsed, gold)
        return _answer(parsed, sample, **facts)
    facts["correct"] = parsed == gold.lower()
    scores = compare_answer(parsed, gold)
    measures = scores.measures
    if head:
        facts["stops"] = scores.stops
        measures = {name: measures[_PERMUTED.get(name, name)] for name in MEASURES}
    return _answer(parsed, sample, measures=measures, **facts)


def _box_or_tag(reply: str | None) -> str:
    """Return the content of the last box, else that of ``<answer>``, else the reply, empty for None."""
    box = box_content(reply or "")
    return tag_content(reply, "answer") if box == NO_BOX else box


def _one_line(parsed: str) -> str:
    """Return a reply on one line and without full stops."""
    return parsed.replace("\n", "").replace(".", "")


def _is_one_verdict(parsed: str, gold: str) -> bool:
    """Return whether a reply has the gold, and exactly one of "yes" and "no", by substring."""
    text = _one_line(parsed)
    return ("yes" in text) != ("no" in text) and gold.lower() in text


# The rule for PathVQA is the same as for VQA-RAD, but with a judge its closed answers count as wrong.
for _name, _slake, _head, _summary in (
    ("medevalkit_vqa", False, True, "MedEvalKit at 9b12e3b, VQA-RAD: yes and no by substring"),
    (
        "medevalkit_path_vqa",
        False,
        True,
        "the same for PathVQA, where a judge voids closed answers",
    ),
    ("medevalkit_vqa_fixed", False, False, "the same with its arithmetic and crashes fixed"),
    (
        "medevalkit_slake",
        True,
        True,
        "MedEvalKit at 9b12e3b, SLAKE: closed answers by equality",
    ),
    ("medevalkit_slake_fixed", True, False, "the same with its arithmetic and crashes fixed"),
):
    extractor(_name, AnswerKind.KIT_QUESTION, _summary, slake=_slake, head=_head)(_read_vqa)


@extractor(
    "medevalkit_vqa_release",
    AnswerKind.KIT_QUESTION,
    "MedEvalKit's release 1de51eb: up to the first full stop",
)
def medevalkit_vqa_release(reply: str | None, sample: Sample) -> Answer:
    """Score as the first release, where a judge reads all open answers: tag, then box, up to the first full stop."""
    if failure_cause(reply) is not None:
        return _invalid_answer(Reason.ADAPTER_FAILED, sample)
    text = declared_answer(reply).lower().strip().split(".")[0]
    gold = str(sample.document["answer"]).lower().strip()
    return _answer(text, sample, judged=text, gold=gold, correct=text == gold)


@extractor(
    "medevalkit_radrestruct_fixed",
    AnswerKind.KIT_QUESTION,
    "the same, also for a set of one kind of questions",
)
@extractor(
    "medevalkit_radrestruct",
    AnswerKind.KIT_QUESTION,
    "MedEvalKit at 9b12e3b, Rad-ReStruct, as it is meant",
)
def medevalkit_radrestruct(reply: str | None, sample: Sample) -> Answer:
    """Read yes or no by substring where the options are not shown, else an option, by similarity if need be.

    At 9b12e3b no set can be asked: all questions of an image become its last one, and the next step raises. The further
    fact ``fallback`` is whether similarity alone decided, so that even an empty reply is the first option.
    """
    if failure_cause(reply) is not None:
        return _invalid_answer(Reason.ADAPTER_FAILED, sample)
    gold = str(sample.document["answer"])
    text = _box_or_tag(reply).lower().strip()
    facts: dict[str, Any] = {"judged": text, "gold": gold}
    if is_closed_question(sample.document):
        facts["correct"] = _is_one_verdict(parsed_reply(text), gold)
        return _answer(text, sample, **facts)
    columns = {
        "options": sample.options,
        "option_lines": sample.options,
        "gold": gold,
        "answer": None,
    }
    answer = kit_answer(text, Sample(columns), tags=False, release=False, fixed=False)
    facts = {"closed": False, "measures": None, "stops": None, **facts}
    facts["correct"] = answer.value is not None and answer.value == answer.facts["target"]
    facts["fallback"] = answer.facts.get("fallback")
    return Answer(answer.value, answer.reason, facts)


# ---- reports ----


def _report(
    reply: str | None,
    sample: Sample,
    *,
    published: bool,
) -> Answer:
    """Return the reply as a report, which is invalid without any character but full stops and white space.

    Args:
        reply: The raw reply.
        sample: The sample, with its report.
        published: Whether to tell with which error the published code stops.
    """
    answer = report_text(reply, sample)
    if answer.reason is Reason.ADAPTER_FAILED:
        return answer
    text = answer.value or reply or ""
    stops = None
    # An empty reply is skipped and stops nothing, unless there is no other.
    if published and text:
        stops = rouge_stop(text, sample.document.get("report", ""))
    if not text.replace(".", " ").strip():
        return Answer.invalid(Reason.EMPTY, text=text, stops=stops)
    return Answer.ok(text, text=text, stops=stops)


for _name, _published, _summary in (
    (
        "medevalkit_report",
        True,
        "MedEvalKit at 9b12e3b, reports: the reply as it stands, and whether it raises",
    ),
    (
        "medevalkit_iu_xray_report",
        True,
        "the same for IU X-ray, which no public commit can load (NameError)",
    ),
    (
        "medevalkit_report_fixed",
        False,
        "the same; a reply without words is in no score and stops nothing",
    ),
):
    extractor(_name, AnswerKind.REPORT, _summary, published=_published)(_report)


# ---- with care ----

# Only where the question asks for health: "normal" means no to "is it abnormal?".
_HEALTH = {"正常": "yes", "健康": "yes", "不正常": "no", "不健康": "no", "异常": "no"}
_ASKS_FOR_HEALTH = re.compile("(?<!不)(?:正常|健康)")
_LEAD = re.compile(
    r"\banswer(?:\s+is\b|\s*[:=])(?:\s*[:=])?|答案(?:应该)?(?:[是为]|\s*:)", re.IGNORECASE
)


@extractor(
    "robust_kit_vqa",
    AnswerKind.KIT_QUESTION,
    "clear yes or no in any language; same words",
    version=3,
)
def robust_kit_vqa(reply: str | None, sample: Sample) -> Answer:
    r"""Score the content of a ``\boxed{}``, else the reply without its thoughts, with care.

    A closed question whose answer is yes or no, in any language, is right if the reply clearly says it in any;
    both or neither is invalid. Any other question is right if the reply, or its declared answer, has the same
    words in the same order (:func:`~medtasks.extract.careful.open_text.stated_words`). Measures compare these words.
    Refusals are invalid.
    """
    raw = given_text(reply)
    if isinstance(raw, Reason):
        return _invalid_answer(raw, sample)
    outside = without_thoughts(raw)
    if outside is None:
        return _invalid_answer(Reason.TRUNCATED, sample)
    text = _boxed_or_whole(outside)
    gold = str(sample.document["answer"]).strip()
    verdict = gold_verdict(gold)
    if verdict is None and _ASKS_FOR_HEALTH.search(sample.question):
        verdict = _HEALTH.get(gold)
    closed = is_closed_question(sample.document)
    if verdict is None or not (closed or "answer_type" not in sample.document):
        return _same_words(text, gold, sample, closed=closed)
    answer = yes_no(text, sample.question, sample.languages)
    if answer.value is None:
        return _invalid_answer(answer.reason, sample, closed=True)
    correct = answer.value == verdict
    return _answer(answer.value, sample, judged=text, gold=gold, correct=correct, closed=True)


def _boxed_or_whole(text: str) -> str:
    """Return the content of the last box, or the whole text without one or if it is empty."""
    box = box_content(text)
    is_box = box != NO_BOX or rf"\boxed{{{NO_BOX}}}" in text  # SLAKE has "None" for an answer
    return box if box and is_box else text


def _same_words(
    text: str,
    gold: str,
    sample: Sample,
    *,
    closed: bool,
) -> Answer:
    """Score a reply by its words, which are right if they are those of the gold in the same order."""
    stated, reason = open_reply(text)
    if stated is None:
        return _invalid_answer(reason, sample)
    targets = target_words(gold)
    of_interest = {word.removeprefix(DENIED) for word in targets}
    # The first sentence after the last lead such as "the answer is", else the whole text.
    leads = list(_LEAD.finditer(stated))
    answer = stated[leads[-1].end() :].strip() if leads else ""
    declared = SENTENCES.split(answer)[0] if re.search(r"\w", answer) else stated
    spoken = tuple(stated_words(declared, of_interest))
    correct = spoken == targets if targets else stated.casefold() == gold.casefold()
    words = " ".join(spoken)
    facts: dict[str, Any] = {"judged": stated, "gold": gold, "correct": correct}
    if not closed:
        facts["measures"] = compare_answer(words, " ".join(targets)).measures
    return _answer(words or stated, sample, **facts)
