"""BERTScore as a report metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from medtasks.errors import MedTasksError
from medtasks.metrics.bertscore.baseline import BASELINES, Baseline
from medtasks.metrics.bertscore.encoder_files import encoder_digest
from medtasks.metrics.bertscore.matching import TokenMatches
from medtasks.metrics.bertscore.scores import BertScores, Idf, bert_scores
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.pair_scores import check_lengths
from medtasks.metrics.report_scores import ReportMetric, ReportScores, mean
from medtasks.metrics.text_cache import TextCache, text_key
from medtasks.metrics.weights import weights_path

_VERSION = 1  # of how the numbers in the cache are computed
_CPU_BATCH, _GPU_BATCH = 16, 128  # a CPU gains nothing from more, which need more padding
_KEEP_EVERY = 512  # pairs

RADCLIQ_ENCODER, RADCLIQ_LAYER = "distilroberta-base", 5


class BertScore:
    """BERTScore with one layer of one encoder.

    The encoder is loaded when a pair comes that the cache does not know, and let go after the call.

    Args:
        encoder: Entry of :data:`medtasks.metrics.weights.WEIGHTS`.
        layer: Layer whose output is used, counted from 1; ``bert-score`` takes 5 for ``distilroberta-base`` and 17 for
            ``roberta-large``.
        settings: How it is run; ``settings.weights_for(encoder)`` is a folder as the Hugging Face Hub has it.

    Example:
        >>> metric = BertScore("roberta-large", 17, ModelSettings())
        >>> scores = metric.score(references=["no effusion"], hypotheses=["no fluid"])  # doctest: +SKIP
    """

    def __init__(self, encoder: str, layer: int, settings: ModelSettings) -> None:
        self.encoder = encoder
        self.layer = layer
        self.dtype = settings.dtype
        self._settings = settings

    @property
    def baseline(self) -> Baseline:
        """Baseline published for this encoder and layer.

        Raises:
            MedTasksError: There is none; :func:`medtasks.metrics.bertscore.baseline.read_baseline` reads one.
        """
        try:
            return BASELINES[self.encoder, self.layer]
        except KeyError as error:
            raise MedTasksError(f"no BERTScore baseline is known for layer {self.layer} of {self.encoder}") from error

    def score(self, *, references: Sequence[str], hypotheses: Sequence[str], idf: Idf | str = Idf.NONE) -> BertScores:
        """Score pairs of texts, not rescaled; an empty text, or one of white space, scores 0.

        Args:
            references: What radiologists wrote, shape (pairs,).
            hypotheses: What a model wrote, shape (pairs,).
            idf: Texts of this call that token weights are counted over, so give the whole set at once.

        Raises:
            ValueError: The two differ in length, or there is no such ``idf``.
            WeightsMissing: The encoder is not on this machine or cannot be read.
        """
        return bert_scores(self.matches(references=references, hypotheses=hypotheses), Idf(idf))

    def matches(self, *, references: Sequence[str], hypotheses: Sequence[str]) -> list[TokenMatches]:
        """Return how well the tokens of each pair match, shape (pairs,): all that scores are made of.

        Raises:
            ValueError: The two differ in length.
            WeightsMissing: The encoder is not on this machine or cannot be read.
        """
        check_lengths(references, hypotheses)
        if not references:
            return []
        pairs = list(zip(map(str.strip, references), map(str.strip, hypotheses), strict=True))
        keys = {pair: text_key(*pair) for pair in pairs}
        folder = self._folder()
        cache = TextCache(self._settings.cache, self._fingerprint(folder))
        kept = cache.get(list(keys.values()))
        known = {pair: TokenMatches.from_bytes(kept[key]) for pair, key in keys.items() if key in kept}
        new = [pair for pair in keys if pair not in known]
        if new:
            known.update(self._matched(folder, new, keys, cache))
        return [known[pair] for pair in pairs]

    def _folder(self) -> Path:
        return weights_path(self.encoder, self._settings.weights_for(self.encoder))

    def _fingerprint(self, folder: Path) -> str:
        return f"bertscore {_VERSION}, layer {self.layer}, {self._settings.dtype}, {encoder_digest(folder)}"

    def _matched(
        self,
        folder: Path,
        pairs: Sequence[tuple[str, str]],
        keys: Mapping[tuple[str, str], bytes],
        cache: TextCache,
    ) -> dict[tuple[str, str], TokenMatches]:
        from medtasks.metrics.bertscore.encoded_pairs import match_pairs
        from medtasks.metrics.bertscore.encoder import ContextualEncoder

        settings = self._settings
        encoder = ContextualEncoder(folder, self.layer, settings)
        found: dict[tuple[str, str], TokenMatches] = {}
        fresh: dict[bytes, bytes] = {}
        batch_size = settings.batch_size or (_CPU_BATCH if encoder.device.type == "cpu" else _GPU_BATCH)
        try:
            for position, matches in match_pairs(encoder, pairs, batch_size=batch_size, progress=settings.progress):
                found[pairs[position]] = matches
                fresh[keys[pairs[position]]] = matches.to_bytes()
                if len(fresh) >= _KEEP_EVERY:
                    cache.put(fresh)
                    fresh = {}
        finally:
            cache.put(fresh)
        return found


@dataclass(frozen=True)
class BertScoreF1:
    """F1 of BERTScore, raw and rescaled, from one pass.

    Attributes:
        scorer: What matches tokens.
        idf: How tokens are weighted.
        raw_key: Key of F1 as it is, 0..1 for most encoders.
        rescaled_key: Key of F1 rescaled, negative for what is worse than unrelated sentences.
    """

    scorer: BertScore
    idf: Idf
    raw_key: str
    rescaled_key: str

    def __call__(self, *, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        """Score pairs of texts; see :meth:`BertScore.score` for what it raises."""
        baseline = self.scorer.baseline
        raw = self.scorer.score(references=references, hypotheses=hypotheses, idf=self.idf)
        samples = {self.raw_key: raw.f1, self.rescaled_key: raw.rescaled(baseline).f1}
        settings = {
            "encoder": self.scorer.encoder,
            "layer": str(self.scorer.layer),
            "idf": str(self.idf),
            "baseline_f1": str(baseline.f1),
            "dtype": self.scorer.dtype,
        }
        return ReportScores(samples, {key: mean(values) for key, values in samples.items()}, settings)


def bertscore(settings: ModelSettings) -> ReportMetric:
    """Return the BERTScore that RadCliQ takes: distilroberta-base, layer 5, no idf."""
    scorer = BertScore(RADCLIQ_ENCODER, RADCLIQ_LAYER, settings)
    return BertScoreF1(scorer, Idf.NONE, "bertscore_f1", "rescaled_bertscore_f1")


def bertscore_multimedeval(settings: ModelSettings) -> ReportMetric:
    """Return MultiMedEval's BERTScore: the same with idf over the hypotheses; it reports the raw one."""
    scorer = BertScore(RADCLIQ_ENCODER, RADCLIQ_LAYER, settings)
    return BertScoreF1(scorer, Idf.HYPOTHESES, "idf_bertscore_f1", "rescaled_idf_bertscore_f1")
