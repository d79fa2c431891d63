"""Questions and options inside the prompts of another kit, and the frame that the kit puts around them."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from medtasks.data.samples import letter
from medtasks.runs.foreign.compared_texts import (
    Options,
    are_words,
    comparable,
    with_equal_numbers,
)
from medtasks.runs.foreign.sample_index import SampleIndex, Texts

_MARK = re.compile(
    r"\W*(?:(?:(?:option|choice|answer|选项)\s?)?(?P<mark>[a-z]|\d{1,2})\W+)?\W*"
)
_LETTERS = re.compile(r"(?<!\w)a(?:\W{1,3}[b-z](?!\w))+")  # of all options, as in "A,B,C,D"
_FIRST_LETTER = re.compile(r"(?<!\w)a\W{1,4}$")
_LONGEST_MARK = 24  # characters between two options
_MOST_LISTS = 2000  # in one prompt
_SHARE_OF_FRAME = 20  # one in so many rows with as many options has a frame, at least


@dataclass(frozen=True)
class PromptMatch:
    """Question, and options if it has any, that a prompt shows.

    Attributes:
        texts: Texts of the samples that the prompt may ask.
        frame: Digest of the text around question and options.
        listed: Number of options in the prompt.
    """

    texts: Texts
    frame: int
    listed: int


@dataclass(frozen=True)
class ListedOptions:
    """Options that follow each other in a prompt, with no more than a letter or a number between them."""

    options: Options  # as shown
    start: int
    end: int
    # whether their order means something: a letter before the first, or no yes and no
    is_lettered: bool = False


def matches_in(
    prompt: str,
    index: SampleIndex,
    row_options: Options | None = None,
) -> tuple[list[PromptMatch], bool]:
    """Find the samples' texts in a prompt. A question that contains another one replaces it.

    Args:
        prompt: The whole prompt.
        index: The samples.
        row_options: Options that the row has in a place of their own, which decide; None: those in the prompt do.

    Returns:
        The matches, and whether the row shows a sample's question with its options in another order.
    """
    text = comparable(prompt)
    questions = index.questions.find(text)
    first = min((start + len(question) for start, question in questions), default=len(text))
    lists = list(islice(_lists_in(text, first, index), _MOST_LISTS))
    matches = []
    is_reordered = False
    for start, question in questions:
        end = start + len(question)
        after = [listed for listed in lists if listed.start >= end]
        asked_options, is_other_order = _asked_options(question, after, index, row_options)
        is_reordered |= is_other_order
        for options in asked_options:
            with_options = (
                each for each in after if index.shown[question].get(each.options) == options
            )
            listed = next(with_options, ListedOptions((), end, end))
            around = (text[:start], text[end : listed.start], text[listed.end :])
            frame = hash(tuple(_LETTERS.sub("", part) for part in around))
            matches.append(PromptMatch((question, options), frame, len(listed.options)))
    return _longest(matches), is_reordered and not matches


def _asked_options(
    question: str,
    after: Sequence[ListedOptions],
    index: SampleIndex,
    row_options: Options | None,
) -> tuple[Iterable[Options | None], bool]:
    """Return the options of samples that are asked with a question, and whether some are in another order.

    Args:
        question: The question.
        after: Lists of options after it in the prompt.
        index: The samples.
        row_options: Options that the row has in a place of their own, None without any.

    Returns:
        The options of samples, in the order of the prompt, where None stands for any options of the question; and
        whether a sample has options of the row or the prompt in another order.
    """
    if row_options is not None:
        own_options = [options for _, options in index.with_texts(question, row_options)]
        return own_options, index.has_in_any_order(question, row_options)
    known_options = index.shown[question]
    listed_options: dict[Options, None] = {}
    is_other_order = False
    for listed in after:
        if listed.options in known_options:
            listed_options[known_options[listed.options]] = None
        if listed.is_lettered and not is_other_order:
            order = with_equal_numbers(listed.options)
            is_other_order = index.has_in_any_order(question, order)
    if listed_options or is_other_order:
        return listed_options, is_other_order
    return index.worded.get(question, ()), False


def _longest(matches: Sequence[PromptMatch]) -> list[PromptMatch]:
    """Leave out matches whose question is part of another one's."""
    questions = {match.texts[0] for match in matches}
    parts = set()
    for part in questions:
        if sum(part in question for question in questions) > 1:
            parts.add(part)
    return [match for match in matches if match.texts[0] not in parts]


def _lists_in(
    text: str,
    first: int,
    index: SampleIndex,
) -> Iterator[ListedOptions]:
    """Yield the lists of known options in a text from its character ``first`` on, and the parts of each."""
    if first >= len(text):
        return
    options = [place for place in index.options.find(text) if place[0] >= first]
    for start, option in options:
        letter_before = _FIRST_LETTER.search(text, max(0, start - _LONGEST_MARK), start)
        is_lettered = letter_before is not None or not are_words([option])
        lists = [ListedOptions((option,), start, start + len(option), is_lettered)]
        while lists:
            listed = lists.pop()
            yield listed
            if len(listed.options) < index.most_options:
                lists += _longer_lists(listed, text, options)


def _longer_lists(
    listed: ListedOptions,
    text: str,
    options: Sequence[tuple[int, str]],
) -> Iterator[ListedOptions]:
    """Yield a list of options with each one that follows it under the next mark."""
    count = len(listed.options)
    marks = (None, letter(count).casefold(), str(count + 1))
    nearest = bisect_left(options, (listed.end, ""))
    too_far = bisect_left(options, (listed.end + _LONGEST_MARK + 1, ""))
    for start, option in options[nearest:too_far]:
        mark = _MARK.fullmatch(text, listed.end, start)
        if mark and mark["mark"] in marks:
            longer = (*listed.options, option)
            yield ListedOptions(longer, listed.start, start + len(option), listed.is_lettered)


def within_frame(by_row: Sequence[list[PromptMatch]]) -> list[list[PromptMatch]]:
    """Keep the matches in the frames that a kit puts around its questions.

    Another question may contain one of ours; what is left of it around ours is no frame. Where most frames occur once,
    as with a context before each question, all matches are kept.

    Args:
        by_row: Matches of each row.
    """
    every = list(chain.from_iterable(by_row))
    counts = Counter(match.frame for match in every)
    like_it = Counter(match.listed for match in every)
    matches_kept = []
    for matches in by_row:
        of_row = []
        for match in matches:
            count = counts[match.frame]
            if count > 1 and count * _SHARE_OF_FRAME >= like_it[match.listed]:
                of_row.append(match)
        matches_kept.append(of_row)
    if 2 * sum(map(bool, matches_kept)) < sum(map(bool, by_row)):
        return list(by_row)
    return matches_kept
