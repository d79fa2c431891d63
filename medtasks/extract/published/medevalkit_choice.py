r"""MedEvalKit's rule for questions with options, and its way to cut out an answer, exactly as published.

Every reply becomes one option. An unreadable one becomes the option whose line is most similar by difflib; one similar
to none, such as an empty one, becomes A.

Source: ``judge_multi_choice``, ``find_most_similar_index``, ``extract`` and ``parse_response`` in ``utils/utils.py`` of
https://github.com/alibaba-damo-academy/MedEvalKit at 9b12e3b, ``extract_boxed_content`` of mathruler 0.1.0, and the
first release, 1de51eb, which looks for a box and a tag before it looks for a paragraph that is a letter.
"""

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.reply_text import answered_text

# ---- MedEvalKit's way to cut an answer out of a reply, with its faults: reasoning is never cut off ----

NO_BOX = "None"  # content of a box that is missing
_BOX = r"\boxed{"
# The answer follows the last of each, searched for in turn in the text that the one before left.
_LEADS = ("**answer**:", "**answer**", "*answer*:", "**answer:**", "answer is", "answer:", "答案:", "final answer")


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


def kit_answer(reply: str | None, sample: Sample, *, tags: bool, release: bool, fixed: bool) -> Answer:
    """Return the option that MedEvalKit takes a reply for.

    ``tags``: contents of ``<answer>`` come first, as in OmniMedVQA and MedXpertQA; ``release``: as the first release
    does; ``fixed``: compared with the column ``answer``. Facts: ``fallback``, whether similarity alone decided;
    ``target``, if MedEvalKit compares with another one than the column ``answer``; ``stops``, if it raises after all
    inference.
    """
    lines = tuple(line.lower() for line in option_lines(sample))
    if not lines:
        return Answer.invalid(Reason.NO_MATCH if (reply or "").strip() else Reason.EMPTY)
    key, text = read_reply(tagged(reply, "answer") if tags else reply or "", len(lines), release=release)
    answer = sample.document.get("answer")
    gold = answer if fixed else _gold(sample)
    chosen, fallback, right = _compared(key, text, lines, None if gold is None else gold.strip().lower())
    facts: dict[str, object] = {"fallback": fallback}
    if not fixed and gold != answer:
        name = (gold or "").strip().lower()
        facts["target"] = name.upper() if name in _letters(len(lines)) else chosen if right else NO_LETTER
    # MedEvalKit needs the column in every row, and some of OmniMedVQA lack it.
    if tags and not fixed and "no_modality_type" in (sample.document.get("flags") or ()):
        facts["stops"] = "its published row has no modality_type (KeyError)"
    return Answer.ok(chosen, **facts)


def _gold(sample: Sample) -> str | None:
    """Return MedEvalKit's target: a letter, that of the last option equal to a text, or such a text."""
    document = sample.document
    gold, answer = document.get("gold"), document.get("answer")
    if gold is None or answer is None:
        return answer if gold is None else str(gold)
    # The gold of a row of OmniMedVQA may be the text of several options: then one that looks like a letter is a text.
    if gold.strip() == answer and "repeated_gold" not in (document.get("flags") or ()):
        return str(answer)
    equal = [index for index, option in enumerate(sample.options) if option == gold]
    return letter(equal[-1]) if equal else str(gold)


def _compared(key: str, text: str, lines: tuple[str, ...], gold: str | None) -> tuple[str, bool, bool]:
    """Return the letter of the chosen option, whether only similarity found it, and whether the reply counts as right.

    ``gold`` is a letter or a text, stripped and in lower case. Of lines that are the same, the right one is taken.
    """
    letters, fallback = _letters(len(lines)), False
    if key in letters:
        chosen = letters.index(key)
        right = gold in (key, lines[chosen])
    elif key in lines:
        chosen = lines.index(key)
        right = key == gold or (gold is not None and gold in letters and lines[letters.index(gold)] == key)
    else:
        fallback, chosen = key != gold, most_similar(lines, text) or 0
        right = key == gold or gold in (letters[chosen], lines[chosen])
    return (gold if gold is not None and right and gold in letters else letters[chosen]).upper(), fallback, right


def option_lines(sample: Sample) -> Sequence[str]:
    """Return the options as MedEvalKit compares them, by default as ``A. text``; shape (options,)."""
    written: Sequence[str] | None = sample.document.get("option_lines")
    return [f"{letter(index)}. {text}" for index, text in enumerate(sample.options)] if written is None else written


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
    characters = Counter(text)
    best, highest = 0, 0.0
    shared = [sum(min(number, characters[each]) for each, number in _counted(line).items()) for line in lines]
    bounds = [  # of difflib's ratio, computed as difflib does
        2.0 * number / (len(line) + len(text)) if line or text else 1.0
        for number, line in zip(shared, lines, strict=True)
    ]
    for index in sorted(range(len(lines)), key=lambda index: (-bounds[index], index)):
        if bounds[index] < highest or bounds[index] == 0.0:
            break
        if bounds[index] == highest and index > best:
            continue
        matcher.set_seq1(lines[index])
        ratio = matcher.ratio()
        if ratio > highest or (ratio == highest > 0.0 and index < best):
            best, highest = index, ratio
    return best if highest > 0.0 else None


_counted = lru_cache(maxsize=4096)(Counter[str])


def _register(name: str, summary: str, *, tags: bool, release: bool, fixed: bool) -> None:
    @extractor(name, AnswerKind.CHOICE, summary, answered_text)
    def read(reply: str, sample: Sample) -> Answer:
        return kit_answer(reply, sample, tags=tags, release=release, fixed=fixed)


for _ending, _release, _fixed, _source in (
    ("", False, False, "MedEvalKit at 9b12e3b"),
    ("_release", True, False, "MedEvalKit's first release"),
    ("_fixed", False, True, "MedEvalKit's reading, compared with the mapped answer"),
):
    for _name, _tags, _summary in (
        ("medevalkit_choice", False, "a letter or an option's line, else the most similar option"),
        ("medevalkit_tagged_choice", True, "the same, contents of <answer> first"),
    ):
        _register(f"{_name}{_ending}", f"{_source}: {_summary}", tags=_tags, release=_release, fixed=_fixed)
