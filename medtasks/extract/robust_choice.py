"""What a careful reader accepts as the answer to a question with lettered options.

The rule reads from strong evidence to weak and stops at the first step that finds something:

1. the whole reply is letters, or one option's text;
2. a declared answer ("the answer is (B)", "final answer: b", "I would choose B");
3. a leading letter with punctuation ("B) effusion", ``("A": ...``), or a letter alone on its line;
4. a refusal ("cannot be determined");
5. a named or bracketed letter ("option B", "(B)"), then a bare capital at the end of a phrase ("So it is B.");
6. the text of exactly one option, not negated.

Reasoning blocks, markup, a repeated option list and everything after an invented next question are not read. Two
different letters on one step, or a letter whose own words are another option's text, are ambiguous. The article of
"A normal brain" is never a letter: a bare ``A`` must end its phrase.

Declared texts ("the answer is warfarin") count like letters, and a letter declared with another option's text is
ambiguous. Replies often discuss one option after the other: lines on one option each ("A.
Aspirin: no") are no leading letters but verdicts, of which a single "correct" decides. A sentence that is one
option's text, or calls it the best, comes before refusals, so that "none of the above" can be an option. Texts denied
from behind ("warfarin is contraindicated") do not count.
"""

import re
from collections.abc import Sequence

from medtasks.data.samples import Sample
from medtasks.data.samples import letter as letter_of
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor import Kind, extractor
from medtasks.extract.option_letters import (
    bare_letters,
    declared_letters,
    leading_letters,
    named_letters,
    names_alternatives,
    only_letters,
    without_denials,
    without_echo,
    without_names,
)
from medtasks.extract.option_statements import affirmed_options, chosen_options, declared_options, discussion
from medtasks.extract.option_text import equal_option, leading_option
from medtasks.extract.reply_text import own_words, refuses

_QUESTION = re.compile(r"\s*\bWhat is the correct answer\?\s*", re.IGNORECASE)
_FINAL = re.compile(r"\bfinal\s+(?:answer|choice|option)", re.IGNORECASE)
_LABELLED = re.compile(r"[\s\"'(\[]*([a-z])[)\]\"']*\s*[:.)]\s*(.+)", re.IGNORECASE | re.DOTALL)


@extractor(
    "robust_choice", kind=Kind.CHOICE, version=2, summary="letters, option texts and refusals as a careful reader would"
)
def robust_choice(reply: str | None, sample: Sample) -> Answer:
    """Read the chosen option from a free-text reply.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        sample: Its options are looked at; at most 26. None at all stand for A and B with unknown texts.

    Returns:
        An option's letter, or no value with the reason why.

    Example:
        >>> sample = Sample({"options": ["Aortic arch", "Kidneys"]})
        >>> robust_choice("**(b)**", sample).value
        'B'
        >>> robust_choice("A normal brain", sample).reason.value
        'no_match'
        >>> robust_choice("The image shows an aortic arch.", sample).value
        'A'
    """
    text = own_words(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    options = sample.options or ("", "")
    letters = [letter_of(index) for index in range(len(options))]
    text = without_echo(text, letters, options)
    if not text:
        return Answer.invalid(Reason.AMBIGUOUS)
    # A letter names its option even where another option's text is that letter.
    return _read(text, letters, ["" if option.strip().upper() in letters else option for option in options])


def _read(text: str, letters: Sequence[str], options: Sequence[str]) -> Answer:
    before, *after = _QUESTION.split(text)
    if after:  # what a base model says before it repeats the question is its answer, what follows is invented
        claims = without_denials(before, letters)
        first = only_letters(before, letters) or declared_letters(claims, letters) or leading_letters(claims, letters)
        text = before if first else "\n".join(after)
    only, whole, labelled = only_letters(text, letters), equal_option(text, options), _labelled(text, letters, options)
    if labelled or (whole is not None and len(only) != 1):
        return _settle(labelled or {letters[whole or 0]}, text, letters, options)
    claims = without_names(without_denials(text, letters), letters)
    declared = declared_letters(claims, letters) | {letters[index] for index in declared_options(text, options)}
    if declared and not _FINAL.search(text):
        declared |= only_letters(text.split("\n")[0], letters)
    if only or declared:
        return _settle(only or declared, text, letters, options)
    return _read_discussion(text, claims, letters, options)


def _labelled(text: str, letters: Sequence[str], options: Sequence[str]) -> set[str]:
    """Return the letters of "a: text": its own, and that of the option whose text it is."""
    label = _LABELLED.fullmatch(text)
    index = equal_option(label[2], options) if label else None
    return {label[1].upper(), letters[index]} if label and index is not None else set()


def _read_discussion(text: str, claims: str, letters: Sequence[str], options: Sequence[str]) -> Answer:
    talk = discussion(claims, letters, options)
    rest = talk.rest if talk else claims
    found = leading_letters(rest, letters) | (talk.correct if talk else set())
    if found:
        return _settle(found, text, letters, options)
    chosen = chosen_options(text, options)
    if not chosen and refuses(text):
        return Answer.invalid(Reason.REFUSED)
    found = {letters[index] for index in chosen}
    if not found and not names_alternatives(rest, letters):
        found = named_letters(rest, letters) or bare_letters(rest, letters)
        talked = affirmed_options(text, options) or leading_option(text, options)
        found = found or ({letters[index] for index in talked} if not talk else set())
        if not found and not talk:
            return Answer.invalid(Reason.NO_MATCH)
    return _settle(found, text, letters, options) if found else Answer.invalid(Reason.AMBIGUOUS)


def _settle(found: set[str], text: str, letters: Sequence[str], options: Sequence[str]) -> Answer:
    """Accept a single letter unless the words after it are another option's text."""
    if len(found) > 1:
        return Answer.invalid(Reason.AMBIGUOUS)
    letter = next(iter(found))
    rest = re.sub(rf"^\W*{letter}\W+", "", text, count=1, flags=re.IGNORECASE)
    other = equal_option(rest.split("\n")[0], options)
    if rest != text and other is not None and letters[other] != letter:
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.ok(letter)
