"""From matched tokens to precision, recall and F1, with or without inverse document frequencies.

Source: Zhang et al., "BERTScore: Evaluating Text Generation with BERT" (ICLR 2020), sections 3 and 4; where the paper
is silent, version 0.3.13 of the ``bert-score`` package.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from loguru import logger
from numpy.typing import NDArray

from medtasks.metrics.bertscore.baseline import Baseline, rescale
from medtasks.metrics.bertscore.matching import TokenMatches


class Idf(StrEnum):
    """Which texts of the call the weights of tokens are counted over."""

    NONE = "none"
    REFERENCES = "references"
    HYPOTHESES = "hypotheses"


@dataclass(frozen=True)
class BertScores:
    """Scores of pairs, each shape (pairs,).

    Attributes:
        precision: Weighted mean of the best cosine of each hypothesis token.
        recall: Weighted mean of the best cosine of each reference token.
        f1: Their harmonic mean; 0 where they have none.
    """

    precision: tuple[float, ...]
    recall: tuple[float, ...]
    f1: tuple[float, ...]

    def rescaled(self, baseline: Baseline) -> "BertScores":
        """Return the same scores rescaled; an empty text, 0 before, becomes negative."""
        return BertScores(
            tuple(rescale(score, baseline.precision) for score in self.precision),
            tuple(rescale(score, baseline.recall) for score in self.recall),
            tuple(rescale(score, baseline.f1) for score in self.f1),
        )


def bert_scores(matches: Sequence[TokenMatches], idf: Idf = Idf.NONE) -> BertScores:
    """Score pairs.

    Without idf every token weighs 1, [CLS] and [SEP] weigh 0. With idf a token weighs ``log((N + 1) / (d + 1))`` for N
    texts of which d hold it. They are counted over all pairs given here, so that a call must hold the whole set.
    [CLS] and [SEP] are in every text and weigh 0 by that.

    A pair with an empty side has precision, recall and F1 of 0. A side whose tokens all weigh 0 has NaN, and the pair
    an F1 of 0, as ``bert-score`` has it; that happens to a single text, or where all texts are the same.

    Args:
        matches: The pairs.
        idf: Texts to count token weights over.
    """
    weigh = _even_weights if idf is Idf.NONE else _InverseDocumentFrequency(matches, idf)
    scores = [_pair_score(pair, weigh(pair.reference_ids), weigh(pair.hypothesis_ids)) for pair in matches]
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


class _InverseDocumentFrequency:
    def __init__(self, matches: Sequence[TokenMatches], idf: Idf) -> None:
        reference = idf is Idf.REFERENCES
        texts = [np.unique(pair.reference_ids if reference else pair.hypothesis_ids) for pair in matches]
        size = 1 + max((int(max(pair.reference_ids.max(), pair.hypothesis_ids.max())) for pair in matches), default=0)
        counts = np.bincount(np.concatenate(texts), minlength=size) if texts else np.zeros(size)
        self._weights: NDArray[np.float64] = np.log((len(texts) + 1) / (counts + 1))

    def __call__(self, ids: NDArray[np.int32]) -> NDArray[np.float64]:
        weights: NDArray[np.float64] = self._weights[ids]
        return weights


def _pair_score(
    pair: TokenMatches, reference_weights: NDArray[np.float64], hypothesis_weights: NDArray[np.float64]
) -> tuple[float, float, float]:
    if pair.empty:
        return 0.0, 0.0, 0.0
    precision = _weighted_mean(pair.hypothesis_best, hypothesis_weights)
    recall = _weighted_mean(pair.reference_best, reference_weights)
    both = precision + recall
    f1 = 2 * precision * recall / both if both != 0 else math.nan
    return precision, recall, 0.0 if math.isnan(f1) else f1


def _weighted_mean(values: NDArray[np.float32], weights: NDArray[np.float64]) -> float:
    total = float(weights.sum())
    return float(values.astype(np.float64) @ weights) / total if total > 0 else math.nan
