r"""MedEvalKit's rule for MMMU, the parser of MMMU's authors after ``<answer>`` or a box; and MMMU-Pro's own rule.

If the parser finds no option, the reference draws one at random, depending on the replies to all earlier questions. An
extractor only gives the number of options to draw from, the fact ``draws``. At 9b12e3b open replies are not parsed:
each of their characters is compared with the whole gold. The target of an open question, and the value of its right
answer, is :data:`~medtasks.extract.published.medevalkit_choice.NO_LETTER`.

Source: ``utils/MMMU/eval_utils.py`` and ``eval_val.py`` of https://github.com/alibaba-damo-academy/MedEvalKit at
9b12e3b; ``mmmu/utils/eval_utils.py`` and, at f7446ce, ``mmmu-pro/evaluate.py`` of
https://github.com/MMMU-Benchmark/MMMU.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from medtasks.data.samples import Sample, letter
from medtasks.extract.careful.robust_choice import robust_kit_choice
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.published.medevalkit_choice import NO_LETTER, boxed, declared_answer, tagged
from medtasks.extract.reading.reply_text import answered_text, own_words

OTHER = "other"  # value of an answer to an open question that is not the gold

Prediction = str | float

_LEADS = ("could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ")
# With thousands, in scientific notation, and others. A number begins with its first digit.
_NUMBERS = (
    re.compile(r"-?\b\d{1,3}(?:,\d{3})+\b"),
    re.compile(r"(?:-|(?<!\d))\d+(?:\.\d+)?[eE][+-]?\d+"),
    re.compile(r"(?:-|(?<!\d)|(?=\.))(?:\d+\.\d+|\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d])"),
)


def is_open(sample: Sample) -> bool:
    """Return whether a question's type is open."""
    return bool(sample.document.get("question_type") == "open")


@extractor("medevalkit_mmmu", AnswerKind.CHOICE, "MedEvalKit for MMMU; open answers never right", answered_text)
def medevalkit_mmmu(reply: str, sample: Sample) -> Answer:
    """Read a reply as MedEvalKit does."""
    return _read(reply, sample, list)


@extractor("medevalkit_mmmu_fixed", AnswerKind.CHOICE, "MedEvalKit for MMMU, open answers by authors", answered_text)
def medevalkit_mmmu_fixed(reply: str, sample: Sample) -> Answer:
    """Read an option as MedEvalKit does, and an open answer as MMMU's authors do."""
    return _read(reply, sample, open_answers)


def _read(reply: str, sample: Sample, candidates: Callable[[str], Iterable[Prediction]]) -> Answer:
    text = declared_answer(reply)
    if is_open(sample):
        return _compared(candidates(text), sample, fallback=False)
    return _option_or_draw(parsed_option(text, sample.options), reply, sample)


@extractor("robust_mmmu", AnswerKind.CHOICE, "options read with care, open answers as MMMU's authors", version=3)
def robust_mmmu(reply: str | None, sample: Sample) -> Answer:
    """Read an option as :func:`~.robust_choice.robust_kit_choice`, an open answer from the model's own words."""
    if not is_open(sample):
        return robust_kit_choice(reply, sample)
    text = own_words(reply)
    return Answer.invalid(text, target=NO_LETTER) if isinstance(text, Reason) else _compared(open_answers(text), sample)


@extractor("mmmu_pro", AnswerKind.CHOICE, "MMMU-Pro's authors at f7446ce; else a seeded draw", answered_text)
def mmmu_pro(reply: str, sample: Sample) -> Answer:
    """Read a reply as MMMU-Pro's authors do."""
    _, declares, declared = reply.rpartition("Answer:")
    named = [name for name in _letters(sample.options) if declares and name in declared]
    forms = (("({})", "({})"), ("{} ", " {} "), ("{}.", " {} "))  # of several letters with a dot, the first is taken
    option = named[0] if len(named) == 1 else _last_option(reply, sample.options, forms)
    return _option_or_draw(option, reply, sample)


def _option_or_draw(option: str | None, reply: str, sample: Sample) -> Answer:
    if option is not None:
        return Answer.ok(option, fallback=False)
    draws = {"draws": len(sample.options)} if sample.options else {}
    return Answer.invalid(Reason.NO_MATCH if reply.strip() else Reason.EMPTY, fallback=True, **draws)


def _compared(answers: Iterable[Prediction], sample: Sample, **facts: bool) -> Answer:
    gold = sample.document.get("gold")
    right = gold is not None and is_open_right(gold, answers)
    return Answer.ok(NO_LETTER if right else OTHER, target=NO_LETTER, **facts)


def parsed_option(response: str, options: Sequence[str]) -> str | None:
    """Return the letter that the authors' parser finds, as MedEvalKit runs it; None if it would draw one."""
    is_boxed = r"\boxed" in response and "<answer>" not in response
    text = boxed(response) if is_boxed else tagged(response, "answer")
    return _last_option(text.strip(), options, (("({})", "({})"), (" {} ", " {} ")))


def _last_option(text: str, options: Sequence[str], forms: Sequence[tuple[str, str]]) -> str | None:
    """Return the last letter in the first form (to find it, and its last position) that occurs, else the last text."""
    for mark in ",.!?;:'":
        text = text.strip(mark)
    text, letters = f" {text} ", _letters(options)
    for form, position in forms:
        if named := [name for name in letters if form.format(name) in text]:
            return max(named, key=lambda name: text.rfind(position.format(name)))
    if len(text.split()) > 5:
        positions = [text.lower().rfind(option.lower()) for option in options]
        if max(positions, default=-1) >= 0:
            return letters[positions.index(max(positions))]
    return None


def _letters(options: Sequence[str]) -> list[str]:
    return [letter(index) for index in range(len(options))]


def open_answers(response: str) -> list[Prediction]:
    """Return the candidates for an open question's answer: texts in lower case, and numbers rounded to two decimals."""
    text = response.strip().strip(".").lower()
    *parts, last = text.split("\n")
    keys = [*(_key(part, _LEADS) for part in parts), _key(last, (*_LEADS, "="))]
    texts = [key for key in keys if key and key not in tuple(":,.!?;'")] or [text]
    numbers = [number for key in texts for pattern in _NUMBERS for number in pattern.findall(key)]
    return list(dict.fromkeys(answer for candidate in (*texts, *numbers) for answer in _normalised(candidate)))


def _key(part: str, leads: Sequence[str]) -> str:
    """Return the shortest text after the last of a lead-in, or an empty text."""
    shortest = ""
    for lead in leads:
        if lead in part:
            tail = part.rpartition(lead)[2].strip()
            shortest = tail if not shortest or len(tail) < len(shortest) else shortest
    return shortest


def _normalised(text: str) -> list[Prediction]:
    plain = text.strip()
    try:
        return [round(float(plain.replace(",", "")), 2)]
    except ValueError:
        plain = plain.lower()
    return [f" {plain}", f"{plain} "] if len(plain) == 1 else [plain]


def is_open_right(gold: str, answers: Iterable[Prediction]) -> bool:
    """Return whether an answer holds the gold's text, or is its number."""
    forms = _normalised(gold)
    texts = [form for form in forms if isinstance(form, str)]
    return any(
        any(text in answer for text in texts) if isinstance(answer, str) else answer in forms for answer in answers
    )
