"""From matched tokens to precision, recall and F1: with or without inverse document frequencies, raw or rescaled.

Source: Zhang et al., "BERTScore: Evaluating Text Generation with BERT" (ICLR 2020), sections 3 and 4; where the paper
is silent, version 0.3.13 of the ``bert-score`` package, from which the baselines are, too.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from loguru import logger
from numpy.typing import NDArray

SPECIAL_TOKENS = 2  # [CLS] in front and [SEP] behind; a text with no token between them is empty


@dataclass(frozen=True, eq=False)
class TokenMatches:
    """What is kept of one pair of texts. Every way of weighting tokens starts from it, so an encoder sees a pair once.

    Ids are those of tokens with [CLS] first and [SEP] last; best is the largest cosine of each token with any token of
    the other text, [CLS] and [SEP] included, zeros where one side is empty.
    """

    reference_ids: NDArray[np.int32]  # shape (m,)
    hypothesis_ids: NDArray[np.int32]  # shape (n,)
    reference_best: NDArray[np.float32]  # shape (m,)
    hypothesis_best: NDArray[np.float32]  # shape (n,)

    @property
    def empty(self) -> bool:
        """Whether one side has no token of its own."""
        return min(len(self.reference_ids), len(self.hypothesis_ids)) <= SPECIAL_TOKENS

    def to_bytes(self) -> bytes:
        """Return the pair in the form a cache keeps."""
        length = np.array([len(self.reference_ids)], dtype="<i4")
        ids = np.concatenate([length, self.reference_ids, self.hypothesis_ids]).astype("<i4")
        best = np.concatenate([self.reference_best, self.hypothesis_best]).astype("<f4")
        return ids.tobytes() + best.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "TokenMatches":
        """Read what :meth:`to_bytes` wrote."""
        numbers = (len(data) - 4) // 8
        ids = np.frombuffer(data, dtype="<i4", count=numbers + 1)
        best = np.frombuffer(data, dtype="<f4", offset=4 * (numbers + 1))
        length = int(ids[0])
        return cls(ids[1 : length + 1], ids[length + 1 :], best[:length], best[length:])


class Baseline(NamedTuple):
    """What unrelated sentences score under one encoder and layer, below 1; each score is rescaled with its own."""

    precision: float
    recall: float
    f1: float


BASELINES: Mapping[tuple[str, int], Baseline] = MappingProxyType(
    {
        ("distilroberta-base", 5): Baseline(0.84732, 0.84759504, 0.8473319),
        ("roberta-large", 17): Baseline(0.83150584, 0.8314941, 0.83122575),
    }
)
"""By encoder and layer; source: ``rescale_baseline/en/<encoder>.tsv`` of the package."""


def rescale(score: float, baseline: float) -> float:
    """Return the score on a scale where 0 is the baseline and 1 stays 1; lower scores become negative."""
    return (score - baseline) / (1.0 - baseline)


class Idf(StrEnum):
    """Which texts of the call the weights of tokens are counted over."""

    NONE = "none"
    REFERENCES = "references"
    HYPOTHESES = "hypotheses"


class BertScores(NamedTuple):
    """Scores of pairs, each shape (pairs,).

    Precision and recall are weighted means of the best cosine of each token of hypothesis and reference, F1 is their
    harmonic mean; 0 where they have none.
    """

    precision: tuple[float, ...]
    recall: tuple[float, ...]
    f1: tuple[float, ...]

    def rescaled(self, baseline: Baseline) -> "BertScores":
        """Return the same scores rescaled; an empty text, 0 before, becomes negative."""
        both = zip(self, baseline, strict=True)
        return BertScores(*(tuple(rescale(score, zero) for score in scores) for scores, zero in both))


_Weigh = Callable[[NDArray[np.int32]], NDArray[np.float64]]


def bert_scores(matches: Sequence[TokenMatches], idf: Idf = Idf.NONE) -> BertScores:
    """Score pairs.

    Without idf every token weighs 1, [CLS] and [SEP] weigh 0. With idf a token weighs ``log((N + 1) / (d + 1))`` for N
    texts of which d hold it. They are counted over all pairs given here, so that a call must hold the whole set.
    [CLS] and [SEP] are in every text and weigh 0 by that.

    A pair with an empty side has precision, recall and F1 of 0. A side whose tokens all weigh 0 has NaN, and the pair
    an F1 of 0, as ``bert-score`` has it; that happens to a single text, or where all texts are the same.
    """
    weigh = _even_weights if idf is Idf.NONE else _inverse_document_frequencies(matches, idf)
    scores = [_pair_score(pair, weigh) for pair in matches]
    undefined = sum(math.isnan(precision) or math.isnan(recall) for precision, recall, _ in scores)
    if undefined:
        logger.warning(
            "BERTScore with idf over the {}: in {} of {} pairs all tokens of a text are in all {} of the call, weigh "
            "nothing, and F1 is 0; score more, and more varied, texts at once.",
            *(idf, undefined, len(matches), idf),
        )
    precision, recall, f1 = zip(*scores, strict=True) if scores else ((), (), ())
    return BertScores(precision, recall, f1)


def _even_weights(ids: NDArray[np.int32]) -> NDArray[np.float64]:
    special = (ids == ids[0]) | (ids == ids[-1])  # a text may hold "</s>" itself
    return np.where(special, 0.0, 1.0)


def _inverse_document_frequencies(matches: Sequence[TokenMatches], idf: Idf) -> _Weigh:
    reference = idf is Idf.REFERENCES
    texts = [np.unique(pair.reference_ids if reference else pair.hypothesis_ids) for pair in matches]
    size = 1 + max((int(max(pair.reference_ids.max(), pair.hypothesis_ids.max())) for pair in matches), default=0)
    counts = np.bincount(np.concatenate(texts), minlength=size) if texts else np.zeros(size)
    weights: NDArray[np.float64] = np.log((len(texts) + 1) / (counts + 1))
    return lambda ids: weights[ids]


def _pair_score(pair: TokenMatches, weigh: _Weigh) -> tuple[float, float, float]:
    if pair.empty:
        return 0.0, 0.0, 0.0
    precision = _weighted_mean(pair.hypothesis_best, weigh(pair.hypothesis_ids))
    recall = _weighted_mean(pair.reference_best, weigh(pair.reference_ids))
    both = precision + recall
    f1 = 2 * precision * recall / both if both != 0 else math.nan
    return precision, recall, 0.0 if math.isnan(f1) else f1


def _weighted_mean(values: NDArray[np.float32], weights: NDArray[np.float64]) -> float:
    total = float(weights.sum())
    return float(values.astype(np.float64) @ weights) / total if total > 0 else math.nan
