"""BERTScore of texts, and the report metrics that are one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.bertscore.scores import BASELINES, BertScores, Idf, TokenMatches, bert_scores
from medtasks.metrics.neural.encoder_files import present, weights_digest
from medtasks.metrics.report_scores import ReportMetric, ReportScores, check_lengths, mean_scores
from medtasks.metrics.text_cache import TextCache, text_key
from medtasks.metrics.weights import weights_path

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
    """BERTScore with one layer, counted from 1, of one encoder, an entry of :data:`medtasks.metrics.weights.WEIGHTS`.

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
        :class:`medtasks.metrics.report_scores.ReportMetric` does, and a ValueError if there is no such ``idf``.
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
            from medtasks.metrics.neural.bertscore.encoder import ContextualEncoder, match_pairs

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
