"""Pairs of texts through an encoder: every text once, vectors of few texts in memory at a time."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from medtasks.metrics.bertscore.matching import SPECIAL_TOKENS, TokenMatches
from medtasks.metrics.encoder_batches import encoding, length_batches, run_batches

if TYPE_CHECKING:
    from torch import Tensor

    from medtasks.metrics.bertscore.encoder import ContextualEncoder

_WINDOW = 1 << 17  # tokens; their vectors take 400 MB at a width of 768

Pair = tuple[int, int]


def match_pairs(
    encoder: "ContextualEncoder", pairs: Sequence[tuple[str, str]], *, batch_size: int, progress: bool
) -> Iterator[tuple[int, TokenMatches]]:
    """Match the tokens of pairs of texts.

    Args:
        encoder: Turns texts into vectors.
        pairs: ``(reference, hypothesis)``.
        batch_size: Texts per pass.
        progress: Whether to show a progress bar.

    Yields:
        ``(position, matches)`` as pairs get done, in no particular order.
    """
    texts = list(dict.fromkeys(chain.from_iterable(pairs)))
    places = {text: place for place, text in enumerate(texts)}
    ids = encoder.token_ids(texts)
    placed = [(places[reference], places[hypothesis]) for reference, hypothesis in pairs]
    full = []
    for position, (reference, hypothesis) in enumerate(placed):
        if min(len(ids[reference]), len(ids[hypothesis])) > SPECIAL_TOKENS:
            full.append(position)
        else:
            yield position, _unmatched(ids[reference], ids[hypothesis])
    waiting = _PairsInWaiting(placed, full)
    batches = _batches(placed, full, [len(text) for text in ids], batch_size)
    encoded = run_batches(
        batches,
        lambda batch: encoder.vectors([ids[place] for place in batch]),
        description="BERTScore",
        progress=progress,
    )
    for place, vectors in encoded:
        for position, reference_vectors, hypothesis_vectors in waiting.arrived(place, vectors):
            reference, hypothesis = placed[position]
            yield position, _matched(ids[reference], ids[hypothesis], reference_vectors, hypothesis_vectors)


def _batches(placed: Sequence[Pair], full: Sequence[int], lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Order texts so that both of a pair come soon after each other and a batch needs little padding."""
    order = sorted(full, key=lambda position: -max(lengths[place] for place in placed[position]))
    batches: list[list[int]] = []
    window: list[int] = []
    seen: set[int] = set()
    tokens = 0
    for position in order:
        for place in placed[position]:
            if place not in seen:
                seen.add(place)
                window.append(place)
                tokens += lengths[place]
        if tokens >= _WINDOW:
            batches += _in_window(window, lengths, batch_size)
            window, tokens = [], 0
    return batches + _in_window(window, lengths, batch_size)


def _in_window(window: Sequence[int], lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    batches = length_batches([lengths[place] for place in window], batch_size)
    return [[window[index] for index in batch] for batch in batches]


class _PairsInWaiting:
    """Holds the vectors of a text until the last pair it belongs to is done."""

    def __init__(self, placed: Sequence[Pair], full: Sequence[int]) -> None:
        self._placed = placed
        self._vectors: dict[int, Tensor] = {}
        self._pairs: dict[int, set[int]] = {}
        for position in full:
            for place in placed[position]:
                self._pairs.setdefault(place, set()).add(position)

    def arrived(self, place: int, vectors: "Tensor") -> Iterator[tuple[int, "Tensor", "Tensor"]]:
        """Take in one text; yield the pairs that are complete now."""
        self._vectors[place] = vectors
        for position in sorted(self._pairs[place]):
            reference, hypothesis = self._placed[position]
            if reference in self._vectors and hypothesis in self._vectors:
                yield position, self._vectors[reference], self._vectors[hypothesis]
                for done in {reference, hypothesis}:
                    self._pairs[done].remove(position)
                    if not self._pairs[done]:
                        del self._vectors[done]


def _matched(
    reference: Sequence[int], hypothesis: Sequence[int], reference_vectors: "Tensor", hypothesis_vectors: "Tensor"
) -> TokenMatches:
    with encoding(reference_vectors.device, "float32"):
        cosines = (reference_vectors @ hypothesis_vectors.T).cpu()
    return TokenMatches(
        np.array(reference, dtype=np.int32),
        np.array(hypothesis, dtype=np.int32),
        cosines.amax(dim=1).numpy(),
        cosines.amax(dim=0).numpy(),
    )


def _unmatched(reference: Sequence[int], hypothesis: Sequence[int]) -> TokenMatches:
    return TokenMatches(
        np.array(reference, dtype=np.int32),
        np.array(hypothesis, dtype=np.int32),
        np.zeros(len(reference), dtype=np.float32),
        np.zeros(len(hypothesis), dtype=np.float32),
    )
