r"""MedEvalKit's rules for questions with options and for MMMU, exactly as published, MMMU-Pro's, and a careful one.

Called by the registry for rows that reproduce published numbers. Faults of the originals must stay.

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
from collections.abc import Callable, Collection, Iterable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from medtasks.data.samples import Sample, first_letters, letter
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


def box_content(text: str) -> str:
    r"""Return the content of the last ``\boxed{...}``, stripped, or :data:`NO_BOX` if none closes.

    Example:
        >>> box_content(r"\boxed{A} or \boxed{ B }"), box_content("B")
        ('B', 'None')
    """
    start = text.rfind(_BOX)
    if start < 0:
        return NO_BOX
    depth = 0
    for position in range(start + len(_BOX) - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + len(_BOX) : position].strip()
    return NO_BOX


def tag_content(
    text: str | None,
    tag: str,
    *,
    required: bool = False,
) -> str:
    """Return all contents of a tag, joined by a blank and stripped.

    Args:
        text: Text of a reply.
        tag: Name of the tag.
        required: Whether a text without contents is read as empty, else as it is.

    Example:
        >>> tag_content("<answer>B</answer>", "answer"), tag_content("B", "answer", required=True)
        ('B', '')
    """
    whole = text or ""
    return " ".join(tag_contents(whole, tag)).strip() or ("" if required else whole)


def tag_contents(text: str, tag: str) -> list[str]:
    """Return the content of each pair of a tag, not stripped. Case matters.

    Example:
        >>> tag_contents("<answer>A</answer> or <answer>B</answer>", "answer")
        ['A', 'B']
    """
    *pieces, _ = text.split(f"</{tag}>")
    parts = (piece.partition(f"<{tag}>") for piece in pieces)
    return [content for _, begins, content in parts if begins]


def declared_answer(reply: str | None) -> str:
    r"""Return the content of ``<answer>``, and within it that of ``\boxed{}``, else the reply. None is an empty one.

    Example:
        >>> declared_answer(r"<answer>It is \boxed{B}</answer>")
        'B'
    """
    text = tag_content(reply, "answer")
    content = box_content(text)
    return text if content == NO_BOX else content


def parsed_reply(reply: str) -> str:
    """Return the answer that a reply declares, in lower case and not stripped.

    Example:
        >>> parsed_reply("The answer is B. scar")
        ' b. scar'
    """
    text = reply.lower()
    text = box_content(text) if "boxed" in text else tag_content(text, "answer")
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
    reply: str,
    sample: Sample,
    *,
    tags: bool,
    release: bool,
    fixed: bool,
) -> Answer:
    """Return the option that MedEvalKit takes a reply for.

    Args:
        reply: Text of the reply.
        sample: The sample, with its options and gold.
        tags: Whether contents of ``<answer>`` come first, as in OmniMedVQA, MedXpertQA and the sets without images.
        release: Whether to read as the first release does.
        fixed: Whether to compare with the column ``answer``.

    Returns:
        An answer with the facts ``fallback``, whether similarity alone decided; ``target``, if MedEvalKit compares
        with another one than the column ``answer``; and ``stops``, if it raises on such a row. For a sample without
        options it is ``empty`` or ``no_match``, without facts.
    """
    lines = tuple(map(str.lower, option_lines(sample)))
    if not lines:
        return Answer.invalid(_reason_for_none(reply))
    answer = tag_content(reply, "answer") if tags else reply
    key, text = read_reply(answer, len(lines), release=release)
    gold = _gold_to_compare(sample, fixed=fixed)
    # Compared are a letter or a text in lower case.
    name = None if gold is None else gold.strip().lower()
    option, is_right, fallback = _match_option(key, text, lines, name)
    facts: dict[str, object] = {"fallback": fallback}
    if gold != sample.document.get("answer"):
        if is_right:
            facts["target"] = option
        else:
            facts["target"] = name.upper() if name in _letters(len(lines)) else NO_LETTER
    stops = [cause for flag, cause in _STOPS.items() if flag in _flags(sample)]
    if stops and not fixed:
        facts["stops"] = stops[0]
    return Answer.ok(option, **facts)


def _reason_for_none(reply: str) -> Reason:
    """Return why a reply names no option: ``empty`` if it is blank, else ``no_match``."""
    return Reason.NO_MATCH if reply.strip() else Reason.EMPTY


def _flags(sample: Sample) -> Collection[str]:
    """Return the flags of a sample's published row, none without the column."""
    return sample.document.get("flags") or ()


def _match_option(
    key: str,
    text: str,
    lines: tuple[str, ...],
    gold: str | None,
) -> tuple[str, bool, bool]:
    """Return the letter that a reply is taken for, and whether it is right and whether only similarity decided.

    Args:
        key: Text that is compared exactly, see :func:`read_reply`.
        text: Text that is compared by similarity.
        lines: Lines of the options in lower case.
        gold: Letter or text of the target in lower case; None without a target, so that no reply is right.
    """
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


def _gold_to_compare(sample: Sample, *, fixed: bool) -> str | None:
    """Return MedEvalKit's target: a letter, that of the last option equal to a text, or such a text.

    None if the sample has no target. The gold of a row of OmniMedVQA may be the text of several options: then one that
    looks like a letter is a text.

    Args:
        sample: The sample.
        fixed: Whether to return the column ``answer`` in place of it.
    """
    answer: str | None = sample.document.get("answer")
    published = sample.document.get("gold")
    if fixed or published is None:
        return answer
    if answer == str(published).strip() and "repeated_gold" not in _flags(sample):
        return answer
    equal = [index for index, option in enumerate(sample.options) if option == published]
    return letter(equal[-1]) if equal and answer is not None else str(published)


def option_lines(sample: Sample) -> Sequence[str]:
    """Return the options as MedEvalKit compares them, by default as ``A. text``, shape (options,).

    Example:
        >>> option_lines(Sample({"options": ["cyst", "scar"]}))
        ['A. cyst', 'B. scar']
    """
    lines: Sequence[str] | None = sample.document.get("option_lines")
    if lines is not None:
        return lines
    return [f"{letter(index)}. {text}" for index, text in enumerate(sample.options)]


@lru_cache(maxsize=32)
def _letters(number: int) -> tuple[str, ...]:
    """Return the letters of as many options, in lower case."""
    return tuple(map(str.lower, first_letters(number)))


def read_reply(
    reply: str,
    options: int,
    *,
    release: bool = False,
) -> tuple[str, str]:
    r"""Return the key of a reply, and the text to compare by similarity.

    Args:
        reply: Text of the reply.
        options: Number of options.
        release: Whether a box or ``<answer>`` goes before a first or last paragraph that is a letter, as in the first
            release.

    Returns:
        The key, which is compared exactly with letters and lines of options, and may be neither of them: the text
        before the first ``.`` and after the last ``:`` in that. Then the whole answer, for similarity. Both in lower
        case.

    Example:
        >>> read_reply("It is seen.\n\nB. scar", 2)
        ('b', 'b')
    """
    answer = reply.lower()
    if not (release and ("boxed" in answer or "<answer>" in answer)):
        letters = _letters(options)
        paragraphs = answer.split("\n\n")
        last = paragraphs[-1].split(".")[0]
        if paragraphs[0] in letters:
            answer = paragraphs[0]
        elif last in letters:
            answer = last
    text = parsed_reply(answer).strip().lower().replace("\n", "")
    return text.split(".")[0].split(":")[-1], text


@lru_cache(maxsize=2**17)  # several rows read the same replies
def most_similar(lines: tuple[str, ...], text: str) -> int | None:
    """Return the index of the first of the lines most similar to a text by difflib, None if none is at all.

    Example:
        >>> most_similar(("a. cyst", "b. scar"), "a scar"), most_similar(("a. cyst",), "")
        (1, None)
    """
    matcher = SequenceMatcher(None)
    matcher.set_seq2(text)
    best = None
    highest = 0.0
    for index, line in enumerate(lines):
        matcher.set_seq1(line)
        if matcher.quick_ratio() <= highest:  # a bound is quicker than a ratio
            continue
        ratio = matcher.ratio()
        if ratio > highest:
            best = index
            highest = ratio
    return best


for _ending, _release, _fixed, _source in (
    ("", False, False, "MedEvalKit at 9b12e3b"),
    ("_release", True, False, "MedEvalKit's first release"),
    ("_fixed", False, True, "MedEvalKit's reading, compared with the mapped answer"),
):
    for _name, _tags, _summary in (
        (
            "medevalkit_choice",
            False,
            "a letter or an option's line, else the most similar option",
        ),
        ("medevalkit_tagged_choice", True, "the same, contents of <answer> first"),
    ):
        extractor(
            _name + _ending,
            AnswerKind.CHOICE,
            f"{_source}: {_summary}",
            answered_text,
            tags=_tags,
            release=_release,
            fixed=_fixed,
        )(kit_answer)


# ---- MMMU ----

OTHER = "other"  # value of an answer to an open question that is not the gold
# A letter as it is found, and as its last position is found. Of several letters with a dot, the first is taken.
_FORMS = (("({})", "({})"), (" {} ", " {} "))
_PRO_FORMS = (("({})", "({})"), ("{} ", " {} "), ("{}.", " {} "))

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
    """Return the candidates for an open question's answer: texts in lower case, and numbers rounded to two decimals.

    Example:
        >>> open_answers("So the answer is 3.14159 cm")
        ['3.14159 cm', 3.14]
    """
    text = response.strip().strip(".").lower()
    *parts, last = text.split("\n")
    texts = [_after_lead(part, _OPEN_LEADS) for part in parts]
    texts.append(_after_lead(last, (*_OPEN_LEADS, "=")))
    texts = [key for key in texts if key not in ("", *":,.!?;'")] or [text]
    candidates = list(texts)
    for key in texts:
        for pattern in _NUMBERS:
            candidates += pattern.findall(key)
    answers: dict[Prediction, None] = {}
    for candidate in candidates:
        answers |= dict.fromkeys(_predictions(candidate))
    return list(answers)


def _after_lead(line: str, leads: Sequence[str]) -> str:
    """Return the shortest text after the last of a lead-in, empty without one."""
    shortest = ""
    for lead in leads:
        if lead in line:
            tail = line.rpartition(lead)[2].strip()
            if not shortest or len(tail) < len(shortest):
                shortest = tail
    return shortest


def _predictions(text: str) -> list[Prediction]:
    """Return the forms in which the authors compare a text: a number, or a text in lower case."""
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
    reply: str,
    sample: Sample,
    *,
    candidates: Callable[[str], Iterable[Prediction]],
) -> Answer:
    """Read an option as MedEvalKit does, and an open answer by its candidates.

    Args:
        reply: Text of the reply.
        sample: The sample.
        candidates: Function that lists the candidates in a text: MMMU's authors', or its characters.
    """
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
    """Read an option as :func:`~.robust_choice.robust_choice`, an open answer from the model's own words.

    A reply of None is empty.
    """
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
    _, lead, declared = reply.rpartition("Answer:")
    named = []
    if lead:
        named = [name for name in first_letters(len(sample.options)) if name in declared]
    option = named[0] if len(named) == 1 else _last_option(reply, sample.options, _PRO_FORMS)
    return _option_or_draw(option, reply, sample)


def _option_or_draw(
    option: str | None,
    reply: str,
    sample: Sample,
) -> Answer:
    """Return the answer for an option, or one without a value that tells of how many options one is drawn."""
    if option is not None:
        return Answer.ok(option, fallback=False)
    reason = _reason_for_none(reply)
    if not sample.options:
        return Answer.invalid(reason, fallback=True)
    return Answer.invalid(reason, fallback=True, draws=len(sample.options))


def _open_answer(answers: Iterable[Prediction], sample: Sample, **facts: bool) -> Answer:
    """Return the answer to an open question: whether a candidate is right, never without a gold."""
    gold = sample.document.get("gold")
    right = gold is not None and is_open_right(gold, answers)
    return Answer.ok(NO_LETTER if right else OTHER, target=NO_LETTER, **facts)


def parsed_option(response: str, options: Sequence[str]) -> str | None:
    """Return the letter that the authors' parser finds, as MedEvalKit runs it, None if it would draw one.

    Example:
        >>> parsed_option("Not (A) but (B)", ["cyst", "scar"])
        'B'
    """
    is_boxed = r"\boxed" in response and "<answer>" not in response
    text = box_content(response) if is_boxed else tag_content(response, "answer")
    return _last_option(text.strip(), options, _FORMS)


def _last_option(
    text: str,
    options: Sequence[str],
    forms: Sequence[tuple[str, str]],
) -> str | None:
    """Return the letter that occurs last in the first form that any letter has.

    Without such a letter, and in a reply of more than five words, it is that of the option whose text occurs last, and
    else None.

    Args:
        text: Text of the reply.
        options: Options of the question.
        forms: Format strings of a letter: one to find it, and one for its last position. Of letters without a
            position the first is taken.
    """
    for mark in ",.!?;:'":
        text = text.strip(mark)
    text = f" {text} "
    letters = first_letters(len(options))
    for form, position in forms:
        named = [name for name in letters if form.format(name) in text]
        if named:
            return max(named, key=lambda name: text.rfind(position.format(name)))
    if len(text.split()) > 5:
        positions = [text.lower().rfind(option.lower()) for option in options]
        if max(positions, default=-1) >= 0:
            return letters[positions.index(max(positions))]
    return None


def is_open_right(gold: str, answers: Iterable[Prediction]) -> bool:
    """Return whether an answer holds the gold's text, or is its number.

    Args:
        gold: The published answer.
        answers: Candidates, as :func:`open_answers` returns them.

    Example:
        >>> is_open_right("3.14", open_answers("The answer is 3.14159"))
        True
    """
    forms = _predictions(gold)
    texts = [form for form in forms if isinstance(form, str)]
    for answer in answers:
        if isinstance(answer, str):
            if any(text in answer for text in texts):
                return True
        elif answer in forms:
            return True
    return False
