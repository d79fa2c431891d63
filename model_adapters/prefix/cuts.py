"""Where prompts are cut, so that a prefix that several of them share is read once: an image, examples, a text."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..base.batching import Encoded, common_length

Spans = Sequence[tuple[int, int]]
"""Per image of a prompt, in order, the columns that depend on it: from the first to behind the last one."""

LEAST_LENGTH = 16
"""Tokens from which a common prefix is worth a prefill of its own."""
OWN_LENGTH = 64
"""Tokens from which a prefix is worth a prefill whether or not others of the batch share it."""
_LEAST_PART = 4
"""A prefix has to be this part (one in ...) of the longest prompt at least, because the suffixes are a pass too."""

Words = tuple[tuple[int, str], ...]
"""Token ids, of which each image's first one carries the image's key."""


@dataclass(frozen=True)
class Family:
    """Prompts with a common prefix."""

    members: tuple[int, ...]  # places of the prompts, at least two
    length: int  # tokens of the prefix; every member goes on by at least one token, and no image is cut in two


@dataclass(frozen=True)
class Cuts:
    """Where one prompt is cut."""

    words: Words  # the prompt; its part before a cut names the prefix
    spans: Spans  # its images' columns
    places: tuple[int, ...]  # ends of its prefixes, each of which goes on from the one before; at least one

    @property
    def prefix(self) -> Words:
        """Name of the longest prefix."""
        return self.words[: self.places[-1]]

    def part(self, prompt: Encoded, start: int, stop: int | None = None) -> Encoded:
        """Return a prompt's tokens from ``start`` to before ``stop``, and the images whose columns lie there."""
        stop = len(prompt.ids) if stop is None else stop
        first, end = (sum(last <= place for _, last in self.spans) if place else 0 for place in (start, stop))
        return prompt.part(start, stop, slice(first, end))


def find_cuts(prompts: Sequence[Encoded], spans_of: Callable[[Encoded], Spans | None]) -> dict[int, Cuts]:
    """Cut the prompts of a batch; those that are better read whole are left out of the result, which goes by place.

    A prompt is cut behind its last image, because further questions may follow on that one, and before it if there are
    other images there, which are examples as a rule. Where neither is long enough, or prompts of the batch have much
    more in common, they are cut where their family's prefix ends. No cut depends on what has been kept from other
    batches: what is cut alike rounds alike.
    """
    words, spans = cuttable(prompts, spans_of)
    places = {place: own_places(spans[place], len(words[place])) for place in spans}
    for family in find_families(words, spans):
        for member in family.members:
            own = places[member][-1] if places[member] else 0
            if family.length >= own + (LEAST_LENGTH if own else 0):
                places[member] = (*places[member], family.length)
    return {place: Cuts(words[place], spans[place], cuts) for place, cuts in places.items() if cuts}


def cuttable(
    prompts: Sequence[Encoded], spans_of: Callable[[Encoded], Spans | None]
) -> tuple[dict[int, Words], dict[int, Spans]]:
    """Return words and spans of the prompts that have one span per image, in order and apart from each other."""
    words, spans = {}, {}
    for place, prompt in enumerate(prompts):
        own, keys = spans_of(prompt), prompt.image_keys
        if own is None or len(own) != len(keys):
            continue
        borders = [0, *itertools.chain.from_iterable(own), len(prompt.ids)]
        if borders == sorted(borders):
            words[place], spans[place] = _words(prompt, own, keys), own
    return words, spans


def own_places(spans: Spans, length: int) -> tuple[int, ...]:
    """Return where a prompt is cut that is looked at by itself.

    Example:
        >>> own_places([(1, 577)], 620), own_places([(1, 101), (120, 220), (240, 340)], 400)
        ((577,), (240, 340))
    """
    start, end = spans[-1] if spans else (0, 0)
    if len(spans) == 1 and start >= LEAST_LENGTH:
        return ()  # behind a text of its own, which no other question shares
    places = [start] if len(spans) > 1 and start >= OWN_LENGTH else []
    if end >= OWN_LENGTH and end - sum(places) >= LEAST_LENGTH:
        places.append(end)
    return tuple(places) if places and places[-1] < length <= places[-1] * _LEAST_PART else ()


def find_families(words: Mapping[int, Words], spans: Mapping[int, Spans]) -> list[Family]:
    """Choose the families that spare most tokens; what is left over has no partner.

    Example:
        >>> lungs, heart = ((7, ""),) * 30 + ((1, ""), (2, "")), ((7, ""),) * 30 + ((5, ""),)
        >>> find_families({0: lungs, 1: ((3, ""), (4, "")), 2: heart}, {0: [], 1: [], 2: []})
        [Family(members=(0, 2), length=30)]
    """
    # In this order a prompt's neighbours are those that begin like it longest.
    order = sorted(words, key=words.__getitem__)
    common = [_common(words[a], words[b], [*spans[a], *spans[b]]) for a, b in itertools.pairwise(order)]
    return [
        Family(tuple(sorted(order[start:end])), min(common[start : end - 1]))
        for start, end in _best_runs(common, [len(words[place]) for place in order])
    ]


def _words(prompt: Encoded, spans: Spans, keys: Sequence[str]) -> Words:
    marks: dict[int, str] = {}
    for (start, _), key in zip(spans, keys, strict=True):
        marks[start] = marks.get(start, "") + key
    return tuple((token, marks.get(column, "")) for column, token in enumerate(prompt.ids))


def _common(ours: Words, theirs: Words, spans: Spans) -> int:
    """Return how long two prompts are equal, leaving each at least one token, and no image cut in two."""
    length = common_length(ours[:-1], theirs[:-1])
    for start, stop in spans:
        if start < length < stop:
            length = start
    return length


def _best_runs(common: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Part sorted prompts into runs of two or more that share a prefix, so that most tokens are spared.

    Each pair of neighbours has the length of its common prefix in ``common``; a run is its start and end.
    """
    # Per number of prompts from the first: tokens spared among them at best, and where the last run then starts.
    best = [(0, 0)]
    for end in range(1, len(lengths) + 1):
        choice = (best[end - 1][0], end - 1)
        shared, longest = math.inf, lengths[end - 1]
        for start in range(end - 2, -1, -1):
            shared, longest = min(shared, common[start]), max(longest, lengths[start])
            if shared < LEAST_LENGTH:
                break
            if shared * _LEAST_PART >= longest:
                choice = max(choice, (best[start][0] + (end - start - 1) * int(shared), start))
        best.append(choice)
    runs, end = [], len(lengths)
    while end:
        start = best[end][1]
        if end - start > 1:
            runs.append((start, end))
        end = start
    return runs[::-1]
