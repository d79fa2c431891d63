"""BERTScore of texts, and the report metrics that are one."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from loguru import logger
from numpy.typing import NDArray

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings, TextCache, text_key
from medtasks.metrics.neural.text_encoders import present, weights_digest
from medtasks.metrics.report_metrics import ReportMetric, ReportScores, check_lengths, mean_scores
from medtasks.metrics.weight_files import weights_path

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


_VERSION = 1  # of how the numbers in the cache are computed

RADCLIQ_ENCODER, RADCLIQ_LAYER = "distilroberta-base", 5
MEDHEVAL_ENCODER, MEDHEVAL_LAYER = "roberta-large", 17  # what bert-score 0.3.13 takes for lang="en"

_VOCABULARIES = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"))
_TEXT_FILES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt"),
)


def encoder_digest(folder: Path) -> str:
    """Return a fingerprint of all files of an encoder that its vectors depend on.

    The folder is as the Hugging Face Hub has it: ``config.json``, vocabulary, and weights as safetensors or ``.bin``.
    """
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    # Without its vocabulary transformers builds a tokenizer that knows no word, and says nothing.
    vocabulary = any(all((folder / name).is_file() for name in names) for names in _VOCABULARIES)
    if not (weights and vocabulary and (folder / "config.json").is_file()):
        raise WeightsMissing(
            f"{folder} lacks part of an encoder: config.json, a vocabulary (vocab.json and merges.txt, vocab.txt or "
            "tokenizer.json) and model.safetensors must be there"
        )
    return " ".join(f"{file.name}={weights_digest([file])}" for file in present(folder, _TEXT_FILES) + weights)


class BertScore:
    """BERTScore with one layer, counted from 1, of one encoder, named as in ``medtasks weights``.

    The encoder is loaded when a pair comes that the cache does not know, and let go after the call. Its weights are a
    folder as the Hugging Face Hub has it.
    """

    def __init__(self, encoder: str, layer: int, settings: ModelSettings) -> None:
        self.encoder = encoder
        self.layer = layer
        self.dtype = settings.dtype
        self._settings = settings

    def score(self, *, references: Sequence[str], hypotheses: Sequence[str], idf: Idf | str = Idf.NONE) -> BertScores:
        """Score pairs of texts, not rescaled; an empty text, or one of white space, scores 0.

        Token weights are counted over texts of this call, so give the whole set at once. Raises what every
        :class:`medtasks.metrics.report_metrics.ReportMetric` does, and a ValueError if there is no such ``idf``.
        """
        return bert_scores(self.matches(references, hypotheses), Idf(idf))

    def matches(self, references: Sequence[str], hypotheses: Sequence[str]) -> list[TokenMatches]:
        """Return how well the tokens of each pair match, shape (pairs,): all that scores are made of."""
        check_lengths(references, hypotheses)
        if not references:
            return []
        folder = weights_path(self.encoder, self._settings.weights_for(self.encoder))
        model = f"bertscore {_VERSION}, layer {self.layer}, {self.dtype}, {encoder_digest(folder)}"

        def match(new: Sequence[tuple[str, str]]) -> Iterator[tuple[int, TokenMatches]]:
            from medtasks.metrics.neural.bertscore_encoder import ContextualEncoder, match_pairs

            return match_pairs(ContextualEncoder(folder, self.layer, self._settings), new, self._settings)

        pairs = list(zip(map(str.strip, references), map(str.strip, hypotheses), strict=True))
        keys = {pair: text_key(*pair) for pair in pairs}
        known = TextCache(self._settings.cache, model).complete(
            keys, match, encode=TokenMatches.to_bytes, decode=TokenMatches.from_bytes
        )
        return [known[pair] for pair in pairs]


def _metric(
    scorer: BertScore, idf: Idf, values: Callable[[BertScores], Mapping[str, Sequence[float]]], **stated: str
) -> ReportMetric:
    """Return BERTScore as a report metric; ``values`` picks its values from the scores, by key."""

    def score(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        scores = scorer.score(references=references, hypotheses=hypotheses, idf=idf)
        model = {"encoder": scorer.encoder, "layer": str(scorer.layer), "idf": str(idf)}
        return mean_scores(values(scores), {**model, **stated, "dtype": scorer.dtype})

    return score


def bertscore(settings: ModelSettings) -> ReportMetric:
    """Return the BERTScore that RadCliQ takes: F1 of distilroberta-base, layer 5, no idf, raw and rescaled."""
    return _f1(settings, Idf.NONE, "bertscore_f1")


def bertscore_multimedeval(settings: ModelSettings) -> ReportMetric:
    """Return MultiMedEval's BERTScore: the same with idf over the hypotheses; it reports the raw one."""
    return _f1(settings, Idf.HYPOTHESES, "idf_bertscore_f1")


def _f1(settings: ModelSettings, idf: Idf, key: str) -> ReportMetric:
    baseline = BASELINES[RADCLIQ_ENCODER, RADCLIQ_LAYER]
    return _metric(
        BertScore(RADCLIQ_ENCODER, RADCLIQ_LAYER, settings),
        idf,
        lambda raw: {key: raw.f1, f"rescaled_{key}": raw.rescaled(baseline).f1},
        baseline_f1=str(baseline.f1),
    )


def medheval_bertscore(settings: ModelSettings) -> ReportMetric:
    """Return MedHEval's BERTScore: precision, recall and F1 of roberta-large, layer 17, neither rescaled nor weighted.

    Source: ``code/evaluation/open_ended_evaluation/generation_metrics.py`` of https://github.com/Aofei-Chang/MedHEval
    at 7f7d980, which prints them times 100.
    """
    prefix = "roberta_large"
    return _metric(
        BertScore(MEDHEVAL_ENCODER, MEDHEVAL_LAYER, settings),
        Idf.NONE,
        lambda raw: {f"{prefix}_precision": raw.precision, f"{prefix}_recall": raw.recall, f"{prefix}_f1": raw.f1},
        rescaled="no",
    )
