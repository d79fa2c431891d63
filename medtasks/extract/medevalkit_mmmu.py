r"""How MedEvalKit reads a reply to a question of MMMU: the parser of MMMU's authors after ``<answer>`` or a box.

MMMU-Pro's authors have a parser of their own, whose first step is the text after the last ``Answer:``.

Where the parser finds no option, the reference draws one at random. What is drawn depends on the replies to all earlier
questions, so that an extractor only says from how many options to draw: the fact ``draws``.

An open question has no letters: the target is :data:`~medtasks.extract.medevalkit_choice.NO_LETTER`, and so is the
value of a right answer; that of a wrong one is :data:`OTHER`. At 9b12e3b open replies are not parsed, so that each of
their characters is compared with the whole gold.

Source: ``utils/MMMU/eval_utils.py`` and ``eval_val.py`` of https://github.com/alibaba-damo-academy/MedEvalKit at
9b12e3b; ``mmmu/utils/eval_utils.py`` and, at f7446ce, ``mmmu-pro/evaluate.py`` of
https://github.com/MMMU-Benchmark/MMMU.
"""

import re
from collections.abc import Iterable, Sequence

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.medevalkit_choice import NO_LETTER
from medtasks.extract.medevalkit_text import boxed, tagged
from medtasks.extract.registry import Kind, extractor
from medtasks.extract.reply_text import given_text, own_words
from medtasks.extract.robust_choice import robust_kit_choice

OTHER = "other"
"""The value of an answer to an open question that is not the gold."""
OPEN = "open"
"""The question type of open questions."""

Prediction = str | float

_NO_BOX = "None"
_ENDS = ",.!?;:'"
_FEWEST_WORDS = 6  # of a reply in which options' texts are looked for
_LEADS = ("could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ")
_TRIVIAL = frozenset(":,.!?;'")
# With thousands, in scientific notation, and others. A number begins with its first digit.
_NUMBERS = (
    re.compile(r"-?\b\d{1,3}(?:,\d{3})+\b"),
    re.compile(r"(?:-|(?<!\d))\d+(?:\.\d+)?[eE][+-]?\d+"),
    re.compile(r"(?:-|(?<!\d)|(?=\.))(?:\d+\.\d+|\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d])"),
)


def is_open(sample: Sample) -> bool:
    """Return whether a question has no options by its type."""
    return bool(sample.document.get("question_type") == OPEN)


@extractor("medevalkit_mmmu", kind=Kind.CHOICE, summary="MedEvalKit at 9b12e3b for MMMU; open answers are never right")
def medevalkit_mmmu(reply: str | None, sample: Sample) -> Answer:
    """Read a reply as MedEvalKit does.

    Example:
        >>> medevalkit_mmmu("I see both (A) and (B)", Sample({"options": ["liver", "spleen"]})).value
        'B'
        >>> medevalkit_mmmu("liver", Sample({"options": ["liver", "spleen"]})).facts["draws"]
        2
    """
    return _read(reply, sample, parses=False)


@extractor("medevalkit_mmmu_fixed", kind=Kind.CHOICE, summary="MedEvalKit for MMMU, open answers read by the authors")
def medevalkit_mmmu_fixed(reply: str | None, sample: Sample) -> Answer:
    """Read a reply as MedEvalKit does, and that to an open question as MMMU's authors do."""
    return _read(reply, sample, parses=True)


@extractor("robust_mmmu", kind=Kind.CHOICE, version=3, summary="options read with care, open answers as MMMU's authors")
def robust_mmmu(reply: str | None, sample: Sample) -> Answer:
    """Read an option by :func:`~medtasks.extract.robust_choice.robust_kit_choice`, an open answer from own words."""
    if not is_open(sample):
        return robust_kit_choice(reply, sample)
    text = own_words(reply)
    return Answer.invalid(text, target=NO_LETTER) if isinstance(text, Reason) else _compared(open_answers(text), sample)


def _read(reply: str | None, sample: Sample, *, parses: bool) -> Answer:
    given = given_text(reply)
    if given is Reason.ADAPTER_FAILED:
        return Answer.invalid(given)
    text = declared_answer(reply or "")
    if is_open(sample):
        return _compared(open_answers(text) if parses else list(text), sample, fallback=False)
    return _option_or_draw(parsed_option(text, sample.options), given, sample)


@extractor("mmmu_pro", kind=Kind.CHOICE, summary="MMMU-Pro's authors at f7446ce; an unread reply is drawn, seeded")
def mmmu_pro(reply: str | None, sample: Sample) -> Answer:
    r"""Read a reply as MMMU-Pro's authors do.

    Example:
        >>> mmmu_pro("A or B?\nAnswer: (B)", Sample({"options": ["liver", "spleen"]})).value
        'B'
        >>> mmmu_pro("B\n", Sample({"options": ["liver", "spleen"]})).facts["draws"]
        2
    """
    given = given_text(reply)
    if given is Reason.ADAPTER_FAILED:
        return Answer.invalid(given)
    text = reply or ""
    _, declares, declared = text.rpartition("Answer:")
    named = [name for name in _letters(sample.options) if declares and name in declared]
    forms = (("({})", "({})"), ("{} ", " {} "), ("{}.", " {} "))  # of several letters with a dot, the first is taken
    option = named[0] if len(named) == 1 else _last_option(text, sample.options, forms)
    return _option_or_draw(option, given, sample)


def _option_or_draw(option: str | None, given: str | Reason, sample: Sample) -> Answer:
    if option is not None:
        return Answer.ok(option, fallback=False)
    reason = given if isinstance(given, Reason) else Reason.NO_MATCH
    draws = {"draws": len(sample.options)} if sample.options else {}
    return Answer.invalid(reason, fallback=True, **draws)


def _compared(answers: Iterable[Prediction], sample: Sample, **facts: bool) -> Answer:
    gold = sample.document.get("gold")
    right = gold is not None and is_open_right(gold, answers)
    return Answer.ok(NO_LETTER if right else OTHER, target=NO_LETTER, **facts)


def declared_answer(reply: str) -> str:
    r"""Return what stands in ``<answer>``, and of that what stands in ``\boxed{}``, where there is such a thing."""
    text = tagged(reply, "answer") if "<answer>" in reply else reply
    content = boxed(text)
    return text if content == _NO_BOX else content


def parsed_option(response: str, options: Sequence[str]) -> str | None:
    r"""Return the option's letter that the authors' parser finds, as MedEvalKit runs it; None where it would draw one.

    Example:
        >>> parsed_option("Answer:B.", ["liver", "spleen"]), parsed_option("It is B.", ["liver", "spleen"])
        (None, 'B')
    """
    text = response
    if "<answer>" in text:
        text = tagged(text, "answer")
    elif r"\boxed" in text:
        text = boxed(text)
    return _last_option(text.strip(), options, (("({})", "({})"), (" {} ", " {} ")))


def _last_option(text: str, options: Sequence[str], forms: Sequence[tuple[str, str]]) -> str | None:
    """Return the last letter in the first form that occurs, else the option whose text comes last in a longer reply.

    A form is a pair: how a letter is found, and how its last place is.
    """
    for mark in _ENDS:
        text = text.strip(mark)
    text, letters = f" {text} ", _letters(options)
    for form, place in forms:
        if named := [name for name in letters if form.format(name) in text]:
            return max(named, key=lambda name: text.rfind(place.format(name)))
    if len(text.split()) >= _FEWEST_WORDS:
        places = [text.lower().rfind(option.lower()) for option in options]
        if max(places, default=-1) >= 0:
            return letters[places.index(max(places))]
    return None


def _letters(options: Sequence[str]) -> list[str]:
    return [letter(index) for index in range(len(options))]


def open_answers(response: str) -> list[Prediction]:
    """Return the texts, in lower case, and numbers, of two decimals, of which one may be an open question's answer.

    Example:
        >>> sorted(open_answers("The result is 12.14 mg"), key=str)
        [12.14, '12.14 mg']
    """
    text = response.strip().strip(".").lower()
    parts = text.split("\n")
    keys = [
        _key(part, _LEADS if part_number < len(parts) else (*_LEADS, "=")) for part_number, part in enumerate(parts, 1)
    ]
    found = [key for key in keys if key and key not in _TRIVIAL] or [text]
    numbers = [number for key in found for pattern in _NUMBERS for number in pattern.findall(key)]
    return list(dict.fromkeys(one for said in (*found, *numbers) for one in _normalised(said)))


def _key(part: str, leads: Sequence[str]) -> str:
    """Return the shortest text behind the last of a lead-in; empty if there is none."""
    shortest = ""
    for lead in leads:
        if lead in part:
            rest = part.rpartition(lead)[2].strip()
            shortest = rest if not shortest or len(rest) < len(shortest) else shortest
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
    known = _normalised(gold)
    texts = [one for one in known if isinstance(one, str)]
    return any(
        any(text in answer for text in texts) if isinstance(answer, str) else answer in known for answer in answers
    )
