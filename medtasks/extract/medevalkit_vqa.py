r"""Short answers to visual questions, closed and open, as MedEvalKit reads them and as a careful reader would.

A question is closed where its column ``answer_type`` says so (SLAKE), else where its answer is "yes" or "no".

Source: ``cal_metrics`` in ``VQA_RAD.py``, ``PATH_VQA.py`` and ``SLAKE.py`` below ``utils`` of
https://github.com/alibaba-damo-academy/MedEvalKit at 9b12e3b and, for the release, at 1de51eb.

Facts of the answers: ``closed``; ``correct``, whether the rule takes the reply for right, which of an open question
means the same text; ``measures``, those of :mod:`medtasks.metrics.medevalkit_texts` for an open question, else None;
``stops``, why the published code gives no number for the whole dataset, None where it goes on; ``judged`` and ``gold``,
what a judge is shown of the reply and of the answer.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.medevalkit_text import boxed, parsed_reply, tagged
from medtasks.extract.open_text import DENIED, open_reply, stated_words
from medtasks.extract.option_names import normalised
from medtasks.extract.registry import Kind, extractor
from medtasks.extract.reply_text import SENTENCES, given_text, own_words, without_thoughts
from medtasks.extract.yes_no import yes_no
from medtasks.metrics.medevalkit_texts import MEASURES, compared

_NO_BOX = boxed("")
_NOTHING = dict.fromkeys(MEASURES, 0.0)
# What HEAD calls precision, recall and F1, and what it is.
_PERMUTED = {"precision": "f1", "recall": "precision", "f1": "recall"}


def is_closed_question(document: Mapping[str, Any]) -> bool:
    """Return whether a question is closed.

    Example:
        >>> is_closed_question({"answer": " No "}), is_closed_question({"answer": "No", "answer_type": "OPEN"})
        (True, False)
    """
    said = document.get("answer_type")
    if said is None:
        return str(document["answer"]).strip().lower() in ("yes", "no")
    return str(said).strip().upper() != "OPEN"


def _answer(text: str, sample: Sample, facts: Mapping[str, Any], correct: bool) -> Answer:
    """Return an answer with a text, or the one that is empty and never right."""
    if not text.replace(".", " ").strip():
        return _without(Reason.EMPTY, sample, facts)
    return Answer.ok(text, closed=is_closed_question(sample.document), correct=correct, **facts)


def _without(reason: Reason, sample: Sample, facts: Mapping[str, Any] | None = None) -> Answer:
    closed = is_closed_question(sample.document)
    unsaid = {"measures": None if closed else _NOTHING, "stops": None, "judged": "", "gold": ""}
    return Answer.invalid(reason, closed=closed, correct=False, **(unsaid if facts is None else facts))


# ---- as published ----


def _prepared(reply: str) -> str:
    box = boxed(reply)
    if box != _NO_BOX:
        return box
    return tagged(reply, "answer") if "<answer>" in reply else reply


def _judgement(parsed: str, gold: str) -> bool:
    said = _joined(parsed)
    return ("yes" in said) != ("no" in said) and gold.lower() in said


def _joined(parsed: str) -> str:
    return parsed.replace("\n", "").replace(".", "")


def _read(reply: str | None, sample: Sample, *, slake: bool, head: bool) -> Answer:
    """Read a reply as at HEAD; without ``head`` what raises goes on, and measures stand under their right names."""
    if failure_cause(reply) is not None:
        return _without(Reason.ADAPTER_FAILED, sample)
    said, gold = _prepared(reply or ""), str(sample.document["answer"])
    if not slake:
        said, gold = said.lower().strip(), gold.lower().strip()
    parsed = parsed_reply(said)
    facts: dict[str, Any] = {"measures": None, "stops": None, "judged": said, "gold": gold}
    if is_closed_question(sample.document):
        by_word = not slake or gold in ("yes", "no")  # in SLAKE's file they begin with capitals
        correct = _judgement(parsed, gold) if by_word else _joined(parsed) == gold.lower()
        return _answer(parsed, sample, facts, correct)
    found = compared(parsed, gold)
    measures = {name: found.measures[_PERMUTED.get(name, name) if head else name] for name in MEASURES}
    facts |= {"measures": measures, "stops": found.stops if head else None}
    return _answer(parsed, sample, facts, parsed == gold.lower())


@extractor("medevalkit_vqa", kind=Kind.KIT_QUESTION, summary="MedEvalKit at 9b12e3b, VQA-RAD: yes and no by substring")
def medevalkit_vqa(reply: str | None, sample: Sample) -> Answer:
    """Score as MedEvalKit does for VQA-RAD.

    Box or tag, lower case, stripped, what stands behind the last lead such as "answer:". A closed question is right
    where exactly one of the substrings "yes" and "no" occurs and is the answer; so "It is normal." says no.

    Example:
        >>> medevalkit_vqa("It is abnormal.", Sample({"answer": "No"})).facts["correct"]
        True
        >>> medevalkit_vqa("Answer: ct", Sample({"answer": "CT"})).facts["correct"]
        False
    """
    return _read(reply, sample, slake=False, head=True)


@extractor(
    "medevalkit_path_vqa", kind=Kind.KIT_QUESTION, summary="the same for PathVQA, where a judge voids closed answers"
)
def medevalkit_path_vqa(reply: str | None, sample: Sample) -> Answer:
    """Score as MedEvalKit does for PathVQA: as for VQA-RAD, but where a judge reads, closed answers count as wrong."""
    return medevalkit_vqa(reply, sample)


@extractor("medevalkit_vqa_fixed", kind=Kind.KIT_QUESTION, summary="the same with its arithmetic and crashes mended")
def medevalkit_vqa_fixed(reply: str | None, sample: Sample) -> Answer:
    """Read as MedEvalKit does for VQA-RAD and PathVQA, and go on where it raises."""
    return _read(reply, sample, slake=False, head=False)


@extractor(
    "medevalkit_slake", kind=Kind.KIT_QUESTION, summary="MedEvalKit at 9b12e3b, SLAKE: closed answers by equality"
)
def medevalkit_slake(reply: str | None, sample: Sample) -> Answer:
    """Score as MedEvalKit does for SLAKE, where a closed question is right if the reply without dots is the answer.

    Example:
        >>> sample = Sample({"answer": "Yes", "answer_type": "CLOSED"})
        >>> medevalkit_slake("Yes.", sample).facts["correct"], medevalkit_slake("Answer: Yes", sample).facts["correct"]
        (True, False)
    """
    return _read(reply, sample, slake=True, head=True)


@extractor("medevalkit_slake_fixed", kind=Kind.KIT_QUESTION, summary="the same with its arithmetic and crashes mended")
def medevalkit_slake_fixed(reply: str | None, sample: Sample) -> Answer:
    """Read as MedEvalKit does for SLAKE, and go on where it raises."""
    return _read(reply, sample, slake=True, head=False)


@extractor(
    "medevalkit_vqa_release", kind=Kind.KIT_QUESTION, summary="MedEvalKit's release 1de51eb: up to the first full stop"
)
def medevalkit_vqa_release(reply: str | None, sample: Sample) -> Answer:
    """Score as MedEvalKit's first release does for VQA-RAD and PathVQA, where a judge reads every open answer.

    Tag, then box, lower case, stripped, and all from the first full stop on cut off. It has no measures of texts.

    Example:
        >>> medevalkit_vqa_release("Yes. It is.", Sample({"answer": "yes"})).facts["correct"]
        True
    """
    if failure_cause(reply) is not None:
        return _without(Reason.ADAPTER_FAILED, sample)
    said = tagged(reply, "answer")
    box = boxed(said)
    said = (said if box == _NO_BOX else box).lower().strip().split(".")[0]
    gold = str(sample.document["answer"]).lower().strip()
    facts = {"measures": None, "stops": None, "judged": said, "gold": gold}
    return _answer(said, sample, facts, said == gold)


# ---- as a careful reader would ----

_VERDICTS = {
    **dict.fromkeys(
        ("yes", "是", "是的", "对", "对的", "正确", "有", "有的", "包含", "存在", "会", "能", "可以"), "yes"
    ),
    **dict.fromkeys(("no", "否", "不", "不是", "不是的", "不对", "不正确", "错误", "没有", "没", "无"), "no"),
    **dict.fromkeys(("不包含", "不存在", "不会", "不能", "不可以"), "no"),
}
# Only where the question asks for health: "normal" means no to "is it abnormal?".
_HEALTH = {"正常": "yes", "健康": "yes", "不正常": "no", "不健康": "no", "异常": "no"}
_ASKS_FOR_HEALTH = re.compile("(?<!不)(?:正常|健康)")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_STATEMENT = re.compile(r".*?(?P<no>不包含|不存在|没有|不是)?(?(no)|(?:包含|存在|有|是))(?P<what>.+)")
_UNABLE = re.compile("无法|不能(?:确定|判断|回答)|不知道|不确定|不清楚|抱歉|对不起")
_LEAD = re.compile(r"\banswer(?:\s+is\b|\s*[:=])(?:\s*[:=])?|答案(?:应该)?(?:[是为]|\s*:)", re.IGNORECASE)


@extractor(
    "robust_kit_vqa", kind=Kind.KIT_QUESTION, version=2, summary="clear yes or no in two languages; else the same words"
)
def robust_kit_vqa(reply: str | None, sample: Sample) -> Answer:
    r"""Score as a careful reader would: what is in a ``\boxed{}``, else the reply without its thoughts.

    A closed question whose answer is yes or no, in English or Chinese, is right when the reply clearly says it in
    either language; one that says both or neither is invalid. Any other question is right when the reply, or what it
    declares as its answer, has the same words in the same order (:func:`~medtasks.extract.open_text.stated_words`: no
    case, punctuation, articles and plurals, number words as digits; denied words are other words). Measures compare
    these words. Refusals are invalid.

    Example:
        >>> sample = Sample({"answer": "不是", "answer_type": "CLOSED", "question": "这是肺吗?"})
        >>> [robust_kit_vqa(reply, sample).facts["correct"] for reply in ("No.", "不是。", "是的", "答案：不是")]
        [True, True, False, True]
        >>> robust_kit_vqa("The answer is the Left Lung.", Sample({"answer": "left lung"})).facts["correct"]
        True
    """
    gold = str(sample.document["answer"]).strip()
    said = _own_part(reply)
    if isinstance(said, Reason):
        return _without(said, sample)
    wanted = _polarity(normalised(gold), sample.question) if is_closed_question(sample.document) else None
    if wanted is not None:
        found = _verdict(said, sample.question)
        if found.value is None:
            return _without(found.reason, sample)
        facts = {"measures": None, "stops": None, "judged": said, "gold": gold}
        return _answer(found.value, sample, facts, found.value == wanted)
    return _same_words(said, gold, sample)


def _own_part(reply: str | None) -> str | Reason:
    """Return what a reply has in its box, else all of it but its thoughts; a reason where there is nothing."""
    given = given_text(reply)
    said = given if isinstance(given, Reason) else without_thoughts(given)
    if said is None or isinstance(said, Reason):
        return Reason.TRUNCATED if said is None else said
    box = boxed(said)
    is_there = box != _NO_BOX or rf"\boxed{{{_NO_BOX}}}" in said  # SLAKE has "None" for an answer
    return box if box and is_there else said


def _same_words(said: str, gold: str, sample: Sample) -> Answer:
    text, reason = open_reply(said)
    if text is None or (_HAN.search(text) and _UNABLE.search(text)):
        return _without(Reason.REFUSED if text is not None else reason, sample)
    wanted = _gold_words(gold)
    words = stated_words(_declared(text), {word.removeprefix(DENIED) for word in wanted})
    correct = words == list(wanted) if wanted else text.casefold() == gold.casefold()
    measures = None if is_closed_question(sample.document) else compared(" ".join(words), " ".join(wanted)).measures
    facts = {"measures": measures, "stops": None, "judged": text, "gold": gold}
    return _answer(" ".join(words) or text, sample, facts, correct)


@lru_cache(maxsize=4096)
def _gold_words(gold: str) -> tuple[str, ...]:
    return tuple(stated_words(gold))


def _declared(text: str) -> str:
    """Return the first sentence behind the last lead such as "the answer is", else the whole text."""
    leads = list(_LEAD.finditer(text))
    behind = text[leads[-1].end() :].strip() if leads else ""
    return SENTENCES.split(behind)[0] if re.search(r"\w", behind) else text


def _polarity(word: str, question: str) -> str | None:
    return _VERDICTS.get(word) or (_HEALTH.get(word) if _ASKS_FOR_HEALTH.search(question) else None)


def _verdict(said: str, question: str) -> Answer:
    """Return the yes or no of a reply in either language."""
    text = own_words(said)
    if isinstance(text, Reason) or not _HAN.search(text):
        return yes_no(said, question)
    clauses = [clause for clause in re.split(r"[\W_]+", _declared(text).casefold()) if clause]
    found = {verdict for clause in clauses if (verdict := _polarity(clause, question))}
    if not found and _UNABLE.search(text):
        return Answer.invalid(Reason.REFUSED)
    stated = _STATEMENT.fullmatch(clauses[0]) if len(clauses) == 1 and not found else None
    # "The organ is the liver" means no where another one is asked about: only what the question names is read.
    if stated and stated["what"] in question:
        found.add("no" if stated["no"] else "yes")
    return Answer.only(found)
