"""Finding the prompts of a batch that begin alike: with one image and several questions, or with the same examples."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .batching import Encoded
from .feature_cache import content_key

Spans = Sequence[tuple[int, int]]
"""Per image of a prompt, in order, the columns that depend on it: from the first to behind the last one."""

LEAST_LENGTH = 16
"""Tokens from which a common beginning is worth a pass of its own."""
_LEAST_PART = 4
"""A beginning has to be this part (one in ...) of the longest prompt at least, because the rests are a pass too."""


@dataclass(frozen=True)
class Family:
    """Prompts with a common beginning.

    Attributes:
        members: Places of the prompts, at least two.
        length: Tokens of the beginning; every member goes on by at least one token.
        images: How many images, from the first, have all their columns in the beginning; the others have none there.
    """

    members: tuple[int, ...]
    length: int
    images: int


def find_families(prompts: Sequence[Encoded], spans_of: Callable[[Encoded], Spans | None]) -> list[Family]:
    """Choose the families that spare most tokens; what is left over has no partner.

    Args:
        prompts: The prompts of a batch.
        spans_of: ``MedicalAdapter.image_spans``.

    Example:
        >>> lungs, heart = Encoded([7] * 30 + [1, 2], None), Encoded([7] * 30 + [5], None)
        >>> find_families([lungs, Encoded([3, 4], None), heart], lambda prompt: [])
        [Family(members=(0, 2), length=30, images=0)]
    """
    if len(prompts) < 2:
        return []
    spans = {place: found for place, prompt in enumerate(prompts) if (found := _checked(prompt, spans_of)) is not None}
    words = {place: _words(prompts[place], found) for place, found in spans.items()}
    # In this order a prompt's neighbours are those that begin like it longest.
    order = sorted(words, key=words.__getitem__)
    common = [_common(words[a], words[b], [*spans[a], *spans[b]]) for a, b in itertools.pairwise(order)]
    families = []
    for start, end in _best_runs(common, [len(words[place]) for place in order]):
        length = min(common[start : end - 1])
        images = sum(stop <= length for _, stop in spans[order[start]])
        families.append(Family(tuple(sorted(order[start:end])), length, images))
    return families


def _checked(prompt: Encoded, spans_of: Callable[[Encoded], Spans | None]) -> Spans | None:
    """Return the spans where there is one per image, in order and apart from each other; otherwise ``None``."""
    spans = spans_of(prompt)
    images = 0 if prompt.pixels is None else len(prompt.pixels)
    if spans is None or len(spans) != images:
        return None
    borders = [0, *itertools.chain.from_iterable(spans), len(prompt.ids)]
    return spans if borders == sorted(borders) else None


def _words(prompt: Encoded, spans: Spans) -> list[tuple[int, str]]:
    """Return the ids, each image's first one with the image's digest, so that other images are other words."""
    marks: dict[int, str] = {}
    for number, (start, _) in enumerate(spans):
        assert prompt.pixels is not None
        marks[start] = marks.get(start, "") + content_key(prompt.pixels[number : number + 1])
    return [(token, marks.get(column, "")) for column, token in enumerate(prompt.ids)]


def _common(ours: Sequence[tuple[int, str]], theirs: Sequence[tuple[int, str]], spans: Spans) -> int:
    """Return how long two prompts are equal, leaving each at least one token, and no image cut in two."""
    most = min(len(ours), len(theirs)) - 1
    length = next((place for place in range(most) if ours[place] != theirs[place]), most)
    for start, stop in spans:
        if start < length < stop:
            length = start
    return length


def _best_runs(common: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Part sorted prompts into runs that share a beginning, so that most tokens are spared.

    Args:
        common: Per pair of neighbours the length of their common beginning.
        lengths: Per prompt its length.

    Returns:
        Start and end of each run of two or more.
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
