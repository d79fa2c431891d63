"""What a reply says of the options in words: texts it declares, praises or denies, and verdicts option by option."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from medtasks.extract.negation import Stance, clauses, stance
from medtasks.extract.option_text import equal_option, normalised, options_named

_NOUN = r"(?:answer|choice|option|response|selection|diagnosis)"
_LINK = r"[\"']?\s*(?:(?:is|was|would be|should be|must be|will be)\b|:|=|->|→)\s*(?:therefore|thus|most likely)?[:\s]*"
_LEADS = tuple(re.compile(rf"\b{tier}{_NOUN}{_LINK}", re.IGNORECASE) for tier in (r"final\s+", ""))
_LABEL = re.compile(r"[\s\"'(\[]*(?:option\s+)?[a-z][)\]\"']*\s*(?:[:.)=\-–,]|\s(?=\())\s*", re.IGNORECASE)
_ARTICLE = re.compile(r"[\s\"'(\[]*(?:(?:an?|the|to)\s+)?", re.IGNORECASE)
_PRAISE = (
    r"[)\"']*\s+(?:is|are|would be|seems)\s+(?:the\s+)?(?:most\s+|single\s+)?(?:correct|right|best|likely|appropriate|"
    r"answer|(?:drug|treatment|test|method)\s+of\s+choice)\b"
)
_CORRECT = re.compile(
    r"\b(?:correct|true|yes|right (?:answer|option|choice)|best (?:answer|option|choice))\b", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CONCLUSION = re.compile(
    r"\n\s*(?:\n|(?:so|thus|therefore|hence|overall|in conclusion|the\b[^\n]{0,20} answer)\b)", re.IGNORECASE
)
_NEAR = 400  # characters from a lead-in in which the option's text begins and ends


def declared_options(text: str, options: Sequence[str]) -> set[int]:
    """Return the options whose text is declared: "the answer is warfarin", "Answer: (b) Heparin".

    Example:
        >>> declared_options("Aspirin is weak, so the answer is heparin.", ["Aspirin", "Heparin"])
        {1}
    """
    for lead in _LEADS:
        found: set[int] = set()
        for match in lead.finditer(text):
            near = text[match.end() : match.end() + _NEAR]
            label = _LABEL.match(near)
            found |= _beginning(near, options) or (_beginning(near[label.end() :], options) if label else set())
        if found:
            return found
    return set()


def _beginning(near: str, options: Sequence[str]) -> set[int]:
    """Return the option with the longest text that ``near`` begins with, or that its first words begin."""
    article = _ARTICLE.match(near)
    said = {f"{normalised(near)} ", f"{normalised(near[article.end() if article else 0 :])} "}
    plain = [normalised(option) for option in options]
    held = [index for index, own in enumerate(plain) if own and any(words.startswith(f"{own} ") for words in said)]
    if held:
        longest = max(len(plain[index]) for index in held)
        return {index for index in held if len(plain[index]) == longest}
    first = normalised(re.split(r"[.,;:\n]", near.strip())[0])
    begun = {index for index, own in enumerate(plain) if " " in first and own.startswith(f"{first} ")}
    return begun if len(begun) == 1 else set()


def chosen_options(text: str, options: Sequence[str]) -> set[int]:
    """Return the options that are a sentence of the reply or are called the best: "Warfarin. It ...", "B is correct".

    Example:
        >>> chosen_options("Warfarin. Heparin acts faster.", ["Aspirin", "Warfarin"])
        {1}
    """
    sentences = [equal_option(sentence, options) for sentence in _SENTENCE.split(text)]
    found = {index for index in sentences if index is not None}
    parts = clauses(text)
    for index, option in enumerate(options):
        praised = re.compile(rf"\b{_pattern(option)}{_PRAISE}", re.IGNORECASE)
        held = (stance(clause, *match.span()) for clause in parts for match in praised.finditer(clause))
        if normalised(option) and Stance.AFFIRMED in held:
            found.add(index)
    return found


def affirmed_options(text: str, options: Sequence[str]) -> set[int]:
    """Return the options named in a text and not denied before or behind: "Warfarin is contraindicated".

    Example:
        >>> affirmed_options("Aspirin is contraindicated; give heparin.", ["Aspirin", "Heparin"])
        {1}
    """
    named = options_named(text, options)
    parts = clauses(text)
    denied = set()
    for index in named:
        pattern = re.compile(rf"\b{_pattern(options[index])}\b", re.IGNORECASE)
        held = [stance(clause, *match.span()) for clause in parts for match in pattern.finditer(clause)]
        if held and set(held) == {Stance.DENIED}:
            denied.add(index)
    return named - denied


def _pattern(option: str) -> str:
    return r"[\W_]+".join(map(re.escape, normalised(option).split(" ")))


@dataclass(frozen=True)
class Discussion:
    """A reply's lines on one option each.

    Attributes:
        correct: Letters of the options that their line calls correct.
        rest: The reply without these lines.
    """

    correct: set[str]
    rest: str


def discussion(text: str, letters: Sequence[str], options: Sequence[str]) -> Discussion | None:
    r"""Return the lines of a reply that go through the options in order, if it has such lines.

    A reply that begins with one option and then goes through them all has answered before.

    Example:
        >>> discussion("A. Aspirin: wrong\nB. Heparin: correct\nSo B.", "AB", ["Aspirin", "Heparin"])
        Discussion(correct={'B'}, rest='So B.')
    """
    label = re.compile(
        rf"^[ \t]*(?:[-•*]\s*)?(?:option\s+)?[(\[\"']*([{letters[0]}-{letters[-1]}])[)\]\"']*\s*[.:)–-][ \t]*\S",
        re.IGNORECASE | re.MULTILINE,
    )
    lines = [match for match in label.finditer(text) if match[1].isascii()]
    order = [match[1].upper() for match in lines]
    if len(set(order)) < 2:
        return None
    answered = lines[0].start() == 0 and (order[0] in order[1:] or order[0] > order[1])
    starts = [match.start() for match in lines]
    conclusion = _CONCLUSION.search(text, starts[-1])
    ends = [*starts[1:], conclusion.start() if conclusion else len(text)]
    items = list(zip(order, starts, ends, strict=True))[answered:]
    own = {letter: re.compile(_pattern(option), re.IGNORECASE) for letter, option in zip(letters, options, strict=True)}
    correct = {letter for letter, start, end in items if _is_praised(own[letter].sub(" ", text[start:end], count=1))}
    return Discussion(correct, f"{text[: items[0][1]]}\n{text[items[-1][2] :]}".strip())


def _is_praised(item: str) -> bool:
    held = {stance(clause, *match.span()) for clause in clauses(item) for match in _CORRECT.finditer(clause)}
    return held == {Stance.AFFIRMED}
