"""Questions and options inside the prompts of another kit, and the frame that the kit puts around them."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from medtasks.data.samples import letter
from medtasks.runs.foreign.compared_texts import are_words, comparable
from medtasks.runs.foreign.sample_index import SampleIndex, Texts

_MARK = re.compile(r"\W*(?:(?:(?:option|choice|answer|选项)\s?)?(?P<mark>[a-z]|\d{1,2})\W+)?\W*")
_FIRST_LETTER = re.compile(r"\ba\W+$")
_OTHER_ORDER, _OTHER_OPTIONS = "other order", "other options"
_LONGEST_MARK = 24  # characters between two options
_SHARE_OF_FRAME = 20  # one in so many rows has a frame, at least


@dataclass(frozen=True)
class PromptMatch:
    """Question, and options if it has any, that a prompt shows.

    Attributes:
        texts: Texts of the samples that the prompt may ask.
        frame: Digest of the text around question and options, by number of options.
    """

    texts: Texts
    frame: int


def matches_in(
    prompt: str, index: SampleIndex, row_options: tuple[str, ...] | None = None
) -> tuple[list[PromptMatch], bool]:
    """Find the samples' texts in a prompt; a question that contains another one replaces it.

    Args:
        prompt: The whole prompt.
        index: The samples.
        row_options: Options that the row has in a place of their own, which decide; None: those in the prompt do.

    Returns:
        The matches, and whether the row shows a sample's question with its options in another order.
    """
    text = comparable(prompt)
    matches: list[PromptMatch] = []
    is_reordered = False
    for start, question in index.finder.find(text):
        end = start + len(question)
        if row_options is not None:
            is_reordered |= index.shows_another_order(question, row_options)
        for texts in index.with_texts(question, row_options):
            shown = index.options_of[question][texts[1]]
            span = options_in(text, end, shown)
            if span is None and row_options is None and (why := _lack_of_options(text, end, shown)):
                is_reordered |= why == _OTHER_ORDER
                continue
            first, last = span or (end, end)
            frame = hash((len(shown) if span else 0, text[:start], text[end:first], text[last:]))
            matches.append(PromptMatch(texts, frame))
    longest = [match for match in matches if not any(_contains(other, match) for other in matches)]
    return longest, is_reordered and not matches


def _lack_of_options(text: str, start: int, options: Sequence[str]) -> str:
    """Return why a prompt does not ask with some options that do not follow in order; empty if it may."""
    if are_words(options):
        span = options_in(text, start, options[::-1])
        is_listed = span is not None and _FIRST_LETTER.search(text, start, span[0]) is not None
        return _OTHER_ORDER if is_listed else ""
    return _OTHER_ORDER if all(option in text[start:] for option in options) else _OTHER_OPTIONS


def _contains(longer: PromptMatch, match: PromptMatch) -> bool:
    return longer.texts[0] != match.texts[0] and match.texts[0] in longer.texts[0]


def options_in(text: str, start: int, options: Sequence[str]) -> tuple[int, int] | None:
    """Return begin and end of options that follow each other, with no more than a letter or number between them."""
    if not options or options[-1] not in text[start:]:
        return None
    first = text.find(options[0], start)
    while first >= 0:
        end = first + len(options[0])
        for place, option in enumerate(options[1:], start=1):
            end = _end_of_option(text, end, option, (None, letter(place).casefold(), str(place + 1)))
            if end < 0:
                break
        else:
            return first, end
        first = text.find(options[0], first + 1)
    return None


def _end_of_option(text: str, start: int, option: str, marks: Sequence[str | None]) -> int:
    """Return the end of an option that follows ``start`` after one of its marks; -1 if it does not."""
    end = -1
    last = start + _LONGEST_MARK + len(option)
    place = text.find(option, start, last)
    while place >= 0:
        gap = _MARK.fullmatch(text, start, place)
        if gap and gap["mark"] in marks:
            end = place + len(option)
        place = text.find(option, place + 1, last)
    return end


def within_frame(by_row: Sequence[list[PromptMatch]]) -> list[list[PromptMatch]]:
    """Keep the matches in the frames that a kit puts around its questions.

    Another question may contain one of ours; what is left of it around ours is no frame. Where most frames occur once,
    as with a context before each question, all matches are kept.
    """
    counts = Counter(match.frame for matches in by_row for match in matches)
    rows = sum(bool(matches) for matches in by_row)
    frames = {frame for frame, count in counts.items() if count > 1 and count * _SHARE_OF_FRAME >= rows}
    kept = [[match for match in matches if match.frame in frames] for matches in by_row]
    return kept if 2 * sum(map(bool, kept)) >= rows else list(by_row)
