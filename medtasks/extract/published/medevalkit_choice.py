r"""MedEvalKit's rules for questions with options and for MMMU, exactly as published; MMMU-Pro's; a careful one.

With options every reply becomes one. An unreadable one becomes the option whose line is most similar by difflib; one
similar to none, such as an empty one, becomes A.

Source: ``judge_multi_choice``, ``find_most_similar_index``, ``extract`` and ``parse_response`` in ``utils/utils.py`` of
https://github.com/alibaba-damo-academy/MedEvalKit at 9b12e3b, ``extract_boxed_content`` of mathruler 0.1.0, and the
first release, 1de51eb, which looks for a box and a tag before it looks for a paragraph that is a letter.

For MMMU it runs the parser of MMMU's authors after ``<answer>`` or a box. If this finds no option, the reference draws
one at random, depending on the replies to all earlier questions. An extractor only gives the number of options to draw
from, the fact ``draws``. At 9b12e3b open replies are not parsed: each of their characters is compared with the whole
gold. The target of an open question, and the value of its right answer, is :data:`NO_LETTER`.

Source: ``utils/MMMU/eval_utils.py`` and ``eval_val.py`` of MedEvalKit at 9b12e3b; ``mmmu/utils/eval_utils.py`` and, at
f7446ce, ``mmmu-pro/evaluate.py`` of https://github.com/MMMU-Benchmark/MMMU.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from medtasks.data.samples import Sample, letter
from medtasks.extract.careful.robust_choice import robust_choice
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.reply_text import answered_text, own_words

# ---- MedEvalKit's way to cut an answer out of a reply, with its faults: reasoning is never cut off ----

NO_BOX = "None"  # content of a box that is missing
_BOX = r"\boxed{"
# The answer follows the last of each, searched for in turn in the text that the one before left.
_LEADS = (
    "**answer**:",
    "**answer**",
    "*answer*:",
    "**answer:**",
    "answer is",
    "answer:",
    "答案:",
    "final answer",
)


def boxed(text: str) -> str:
    r"""Return the content of the last ``\boxed{...}``, stripped, or :data:`NO_BOX` if none closes."""
    start = text.rfind(_BOX)
    if start < 0:
        return NO_BOX
    depth = 0
    for position in range(start + len(_BOX) - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + len(_BOX) : position].strip()
    return NO_BOX


def tagged(text: str | None, tag: str, *, required: bool = False) -> str:
    """Return all contents of a tag, joined by a blank and stripped; if empty the whole text, unless ``required``."""
    whole = text or ""
    return " ".join(tag_contents(whole, tag)).strip() or ("" if required else whole)


def tag_contents(text: str, tag: str) -> list[str]:
    """Return the content of each pair of a tag, not stripped; case matters."""
    *pieces, _ = text.split(f"</{tag}>")
    parts = (piece.partition(f"<{tag}>") for piece in pieces)
    return [content for _, begins, content in parts if begins]


def declared_answer(reply: str | None) -> str:
    r"""Return the content of ``<answer>``, and within it that of ``\boxed{}``, else the reply."""
    text = tagged(reply, "answer")
    content = boxed(text)
    return text if content == NO_BOX else content


def parsed_reply(reply: str) -> str:
    """Return the answer that a reply declares, in lower case and not stripped."""
    text = reply.lower()
    text = boxed(text) if "boxed" in text else tagged(text, "answer")
    for lead in _LEADS:
        text = text.rpartition(lead)[2]
    return text


# ---- options ----

NO_LETTER = "text"
"""The target if the gold is a text that is no option, unless the reply is read as that text."""
_STOPS = {  # flags of a published row at which MedEvalKit raises
    "no_modality_type": "its published row has no modality_type (KeyError)",
    "no_context": "its prompt names a variable that is not defined (NameError)",
}


def kit_answer(
    reply: str | None, sample: Sample, *, tags: bool, release: bool, fixed: bool
) -> Answer:
    """Return the option that MedEvalKit takes a reply for.

    ``tags``: contents of ``<answer>`` come first, as in OmniMedVQA, MedXpertQA and the sets without images;
    ``release``: as the first release does; ``fixed``: compared with the column ``answer``. Facts: ``fallback``, whether
    similarity alone decided; ``target``, if MedEvalKit compares with another one than the column ``answer``; ``stops``,
    if it raises on such a row.
    """
    lines = tuple(map(str.lower, option_lines(sample)))
    answered = reply or ""
    if not lines:
        return Answer.invalid(Reason.NO_MATCH if answered.strip() else Reason.EMPTY)
    if tags:
        answered = tagged(answered, "answer")
    key, text = read_reply(answered, len(lines), release=release)
    gold = _compared_gold(sample, fixed=fixed)
    name = (
        None if gold is None else gold.strip().lower()
    )  # compared are a letter or a text in lower case
    option, right, fallback = _matched_option(key, text, lines, name)
    facts: dict[str, object] = {"fallback": fallback}
    if gold != sample.document.get("answer"):
        missed = name.upper() if name in _letters(len(lines)) else NO_LETTER
        facts["target"] = option if right else missed
    if not fixed:
        facts |= _stop_of(sample)
    return Answer.ok(option, **facts)


def _matched_option(
    key: str, text: str, lines: tuple[str, ...], gold: str | None
) -> tuple[str, bool, bool]:
    """Return the letter that a reply is taken for, and whether it is right and whether only similarity decided."""
    letters = _letters(len(lines))
    fallback = False
    if key in letters:
        index = letters.index(key)
        right = gold in (key, lines[index])
    elif key in lines:
        index = lines.index(key)
        right = key == gold or (gold in letters and lines[letters.index(gold)] == key)
    else:
        index = most_similar(lines, text) or 0
        right = gold in (key, letters[index], lines[index])
        fallback = key != gold
    if right and gold in letters:  # of lines that are the same, the right one is taken
        index = letters.index(gold)
    return letters[index].upper(), right, fallback


def _compared_gold(sample: Sample, *, fixed: bool) -> str | None:
    """Return MedEvalKit's target: a letter, that of the last option equal to a text, or such a text.

    The gold of a row of OmniMedVQA may be the text of several options: then one that looks like a letter is a text.
    ``fixed``: the column ``answer`` in place of it.
    """
    answer, published, flags = (sample.document.get(name) for name in ("answer", "gold", "flags"))
    if (
        fixed
        or published is None
        or (answer == str(published).strip() and "repeated_gold" not in (flags or ()))
    ):
        return answer
    equal = [index for index, option in enumerate(sample.options) if option == published]
    return letter(equal[-1]) if equal and answer is not None else str(published)


def _stop_of(sample: Sample) -> dict[str, str]:
    flags = sample.document.get("flags") or ()
    return next(({"stops": why} for flag, why in _STOPS.items() if flag in flags), {})


def option_lines(sample: Sample) -> Sequence[str]:
    """Return the options as MedEvalKit compares them, by default as ``A. text``; shape (options,)."""
    written: Sequence[str] | None = sample.document.get("option_lines")
    return (
        [f"{letter(index)}. {text}" for index, text in enumerate(sample.options)]
        if written is None
        else written
    )


@lru_cache(maxsize=32)
def _letters(number: int) -> tuple[str, ...]:
    return tuple(letter(index).lower() for index in range(number))


def read_reply(reply: str, options: int, *, release: bool = False) -> tuple[str, str]:
    """Return the key of a reply, maybe a letter or an option's line, and the text to compare by similarity."""
    answer, letters = reply.lower(), _letters(options)
    if not (release and ("boxed" in answer or "<answer>" in answer)):
        first, *_, last = ["", *answer.split("\n\n")][1:] * 2
        if first in letters:
            answer = first
        elif last.split(".")[0] in letters:
            answer = last.split(".")[0]
    text = parsed_reply(answer).strip().lower().replace("\n", "")
    return text.split(".")[0].split(":")[-1], text


@lru_cache(maxsize=2**17)  # several rows read the same replies
def most_similar(lines: tuple[str, ...], text: str) -> int | None:
    """Return the index of the first of the lines most similar to a text by difflib; None if none is at all."""
    matcher = SequenceMatcher(None)
    matcher.set_seq2(text)
    best, highest = None, 0.0
    for index, line in enumerate(lines):
        matcher.set_seq1(line)
        if (
            matcher.quick_ratio() > highest and (ratio := matcher.ratio()) > highest
        ):  # a bound is quicker than a ratio
            best, highest = index, ratio
    return best


for _ending, _release, _fixed, _source in (
    ("", False, False, "MedEvalKit at 9b12e3b"),
    ("_release", True, False, "MedEvalKit's first release"),
    ("_fixed", False, True, "MedEvalKit's reading, compared with the mapped answer"),
):
    for _name, _tags, _summary in (
        ("medevalkit_choice", False, "a letter or an option's line, else the most similar option"),
        ("medevalkit_tagged_choice", True, "the same, contents of <answer> first"),
    ):
        _settings = {"tags": _tags, "release": _release, "fixed": _fixed}
        extractor(
            _name + _ending, AnswerKind.CHOICE, f"{_source}: {_summary}", answered_text, **_settings
        )(kit_answer)


# ---- MMMU ----

OTHER = "other"  # value of an answer to an open question that is not the gold

Prediction = str | float

_OPEN_LEADS = ("could be ", "so ", "is ", "thus ", "therefore ", "final ", "answer ", "result ")
# With thousands, in scientific notation, and others. A number begins with its first digit.
_NUMBERS = (
    re.compile(r"-?\b\d{1,3}(?:,\d{3})+\b"),
    re.compile(r"(?:-|(?<!\d))\d+(?:\.\d+)?[eE][+-]?\d+"),
    re.compile(r"(?:-|(?<!\d)|(?=\.))(?:\d+\.\d+|\.\d+|\d+\b)(?![eE][+-]?\d+)(?![,\d])"),
)


def is_open(sample: Sample) -> bool:
    """Return whether a question's type is open."""
    return bool(sample.document.get("question_type") == "open")


def open_answers(response: str) -> list[Prediction]:
    """Return the candidates for an open question's answer: texts in lower case, and numbers rounded to two decimals."""
    text = response.strip().strip(".").lower()
    parts, keys = text.split("\n"), []
    for number, part in enumerate(
        parts, 1
    ):  # the shortest text after the last of a lead-in, or an empty text
        shortest = ""
        for lead in (*_OPEN_LEADS, "=") if number == len(parts) else _OPEN_LEADS:
            if lead in part:
                tail = part.rpartition(lead)[2].strip()
                shortest = tail if not shortest or len(tail) < len(shortest) else shortest
        keys.append(shortest)
    texts = [key for key in keys if key and key not in tuple(":,.!?;'")] or [text]
    numbers = [number for key in texts for pattern in _NUMBERS for number in pattern.findall(key)]
    return list(
        dict.fromkeys(
            answer for candidate in (*texts, *numbers) for answer in _normalised(candidate)
        )
    )


def _normalised(text: str) -> list[Prediction]:
    plain = text.strip()
    try:
        return [round(float(plain.replace(",", "")), 2)]
    except ValueError:
        plain = plain.lower()
    return [f" {plain}", f"{plain} "] if len(plain) == 1 else [plain]


_AS_RUN = "MedEvalKit for MMMU; open answers never right"
_AUTHORS = "MedEvalKit for MMMU, open answers by authors"


@extractor(
    "medevalkit_mmmu_fixed", AnswerKind.CHOICE, _AUTHORS, answered_text, candidates=open_answers
)
@extractor("medevalkit_mmmu", AnswerKind.CHOICE, _AS_RUN, answered_text, candidates=list)
def mmmu_answer(
    reply: str, sample: Sample, *, candidates: Callable[[str], Iterable[Prediction]]
) -> Answer:
    """Read an option as MedEvalKit does, and an open answer by its candidates: MMMU's authors', or its characters."""
    text = declared_answer(reply)
    if is_open(sample):
        return _open_answer(candidates(text), sample, fallback=False)
    return _option_or_draw(parsed_option(text, sample.options), reply, sample)


@extractor(
    "robust_mmmu",
    AnswerKind.CHOICE,
    "options read with care, open answers as MMMU's authors",
    version=4,
)
def robust_mmmu(reply: str | None, sample: Sample) -> Answer:
    """Read an option as :func:`~.robust_choice.robust_choice`, an open answer from the model's own words."""
    if not is_open(sample):
        return robust_choice(reply, sample)
    text = own_words(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text, target=NO_LETTER)
    return _open_answer(open_answers(text), sample)


@extractor(
    "mmmu_pro",
    AnswerKind.CHOICE,
    "MMMU-Pro's authors at f7446ce; else a seeded draw",
    answered_text,
)
def mmmu_pro(reply: str, sample: Sample) -> Answer:
    """Read a reply as MMMU-Pro's authors do."""
    _, declares, declared = reply.rpartition("Answer:")
    named = [
        name for name in map(letter, range(len(sample.options))) if declares and name in declared
    ]
    forms = (
        ("({})", "({})"),
        ("{} ", " {} "),
        ("{}.", " {} "),
    )  # of several letters with a dot, the first is taken
    option = named[0] if len(named) == 1 else _last_option(reply, sample.options, forms)
    return _option_or_draw(option, reply, sample)


def _option_or_draw(option: str | None, reply: str, sample: Sample) -> Answer:
    if option is not None:
        return Answer.ok(option, fallback=False)
    draws = {"draws": len(sample.options)} if sample.options else {}
    return Answer.invalid(
        Reason.NO_MATCH if reply.strip() else Reason.EMPTY, fallback=True, **draws
    )


def _open_answer(answers: Iterable[Prediction], sample: Sample, **facts: bool) -> Answer:
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
    text, letters = f" {text} ", [letter(index) for index in range(len(options))]
    for form, position in forms:
        if named := [name for name in letters if form.format(name) in text]:
            return max(named, key=lambda name: text.rfind(position.format(name)))
    if len(text.split()) > 5:
        positions = [text.lower().rfind(option.lower()) for option in options]
        if max(positions, default=-1) >= 0:
            return letters[positions.index(max(positions))]
    return None


def is_open_right(gold: str, answers: Iterable[Prediction]) -> bool:
    """Return whether an answer holds the gold's text, or is its number."""
    forms = _normalised(gold)
    texts = [form for form in forms if isinstance(form, str)]
    return any(
        any(text in answer for text in texts) if isinstance(answer, str) else answer in forms
        for answer in answers
    )
