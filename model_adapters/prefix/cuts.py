"""Where prompts are cut, so that what several of them begin with is read once: an image, few-shot examples."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..base.batching import Encoded

Spans = Sequence[tuple[int, int]]
"""Per image of a prompt, in order, the columns that depend on it: from the first to after the last one."""

LEAST_LENGTH = 16
"""Tokens from which a further part of a prefix is worth a prefill of its own."""
OWN_LENGTH = 64
"""Tokens from which a prefix is worth a prefill."""
_LEAST_PART = 4
"""A prefix has to be this part (one in ...) of the prompt at least, because the suffix is a pass too."""

Words = tuple[tuple[int, str], ...]
"""Token ids, of which each image's first one carries the image's key."""


@dataclass(frozen=True)
class Cuts:
    """Where one prompt is cut."""

    words: Words  # the prompt; its part before a cut names the prefix
    spans: Spans  # its images' columns
    places: tuple[int, ...]  # ends of its prefixes, each of which goes on from the one before; at least one

    def part(self, prompt: Encoded, start: int, stop: int | None = None) -> Encoded:
        """Return a prompt's tokens from ``start`` to before ``stop``, and the images whose columns lie there."""
        stop = len(prompt.ids) if stop is None else stop
        first, end = (sum(last <= place for _, last in self.spans) if place else 0 for place in (start, stop))
        return prompt.part(start, stop, slice(first, end))


def find_cuts(prompts: Sequence[Encoded], spans_of: Callable[[Encoded], Spans | None]) -> dict[int, Cuts]:
    """Cut prompts; those that are better read whole are left out of the result, which goes by place.

    Each is cut by itself, whatever else is in its batch or was kept from others: what is cut alike rounds alike. A
    prompt is left out, too, if it has not one span per image, in order and apart from each other.
    """
    cuts = {}
    for place, prompt in enumerate(prompts):
        spans = spans_of(prompt)
        words = None if spans is None else words_of(prompt, spans)
        if spans is not None and words is not None and (places := cut_places(spans, len(words))):
            cuts[place] = Cuts(words, spans, places)
    return cuts


def words_of(prompt: Encoded, spans: Spans) -> Words | None:
    """Return the words of a prompt; None without one span per image, in order and apart from each other."""
    borders, keys = [0, *itertools.chain.from_iterable(spans), len(prompt.ids)], prompt.image_keys
    if len(spans) != len(keys) or borders != sorted(borders):
        return None
    marks: dict[int, str] = {}
    for (start, _), key in zip(spans, keys, strict=True):
        marks[start] = marks.get(start, "") + key
    return tuple((token, marks.get(column, "")) for column, token in enumerate(prompt.ids))


def cut_places(spans: Spans, length: int) -> tuple[int, ...]:
    """Return where a prompt is cut: after its last image, because further questions may follow on that one.

    With other images before the last one, which are examples as a rule, it is cut before the last one, too.

    Example:
        >>> cut_places([(1, 577)], 620), cut_places([(1, 101), (120, 220), (240, 340)], 400)
        ((577,), (240, 340))
    """
    start, end = spans[-1] if spans else (0, 0)
    if len(spans) == 1 and start >= LEAST_LENGTH:
        return ()  # after a text of its own, which no other question shares
    places = [start] if len(spans) > 1 and start >= OWN_LENGTH else []
    if end >= OWN_LENGTH and end - sum(places) >= LEAST_LENGTH:
        places.append(end)
    return tuple(places) if places and places[-1] < length <= places[-1] * _LEAST_PART else ()
