"""CheXbert as metrics of report texts: how alike its vectors are, and F1 of its labels."""

from collections.abc import Sequence

import numpy as np

from medtasks.metrics.chexbert.encoder import Chexbert, Reading
from medtasks.metrics.chexbert.label_scores import Uncertain, label_scores
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.pair_scores import check_lengths
from medtasks.metrics.report_scores import ReportScores, mean

SIMILARITY = "chexbert_similarity"
POSITIVE_PREFIX, NEGATIVE_PREFIX = "chexbert", "chexbert_certain"


class ChexbertSimilarity:
    """Cosine of the two [CLS] vectors, as CXR-Report-Metric and MultiMedEval compute it; between -1 and 1.

    An empty report has a vector, too: that of a text without words.

    Args:
        settings: How CheXbert is run.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self._read = Chexbert(settings)

    def __call__(self, *, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        """Score pairs of texts; see :class:`medtasks.metrics.report_scores.ReportMetric`."""
        pairs = _read_pairs(self._read, references, hypotheses)
        cosines = [_cosine(reference, hypothesis) for reference, hypothesis in pairs]
        return ReportScores({SIMILARITY: cosines}, {SIMILARITY: mean(cosines)}, _settings(self._read))


class F1Chexbert:
    """F1 of the labels of hypotheses against those of references.

    Args:
        settings: How CheXbert is run.
        uncertain: What an uncertain finding counts as, on both sides: ``"positive"`` as in F1CheXbert, ``"negative"``
            as in MultiMedEval's classification and part of the literature.
        prefix: Beginning of the keys, see :func:`medtasks.metrics.chexbert.label_scores.label_scores`.
    """

    def __init__(
        self, settings: ModelSettings, uncertain: Uncertain = "positive", prefix: str = POSITIVE_PREFIX
    ) -> None:
        self._read = Chexbert(settings)
        self._uncertain: Uncertain = uncertain
        self._prefix = prefix

    def __call__(self, *, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        """Score pairs of texts; see :class:`medtasks.metrics.report_scores.ReportMetric`."""
        pairs = _read_pairs(self._read, references, hypotheses)
        gold, predicted = ([pair[side].classes for pair in pairs] for side in (0, 1))
        scores = label_scores(gold, predicted, uncertain=self._uncertain, prefix=self._prefix)
        return ReportScores(scores.samples, scores.totals, {**scores.settings, **_settings(self._read)})


def chexbert_similarity(settings: ModelSettings) -> ChexbertSimilarity:
    """Return the cosine of CheXbert's vectors."""
    return ChexbertSimilarity(settings)


def f1_chexbert(settings: ModelSettings) -> F1Chexbert:
    """Return F1 of CheXbert's labels with uncertain as positive, as F1CheXbert counts."""
    return F1Chexbert(settings)


def f1_chexbert_certain(settings: ModelSettings) -> F1Chexbert:
    """Return F1 of CheXbert's labels with uncertain as negative."""
    return F1Chexbert(settings, "negative", NEGATIVE_PREFIX)


def _read_pairs(read: Chexbert, references: Sequence[str], hypotheses: Sequence[str]) -> list[tuple[Reading, Reading]]:
    check_lengths(references, hypotheses)
    readings = read([*references, *hypotheses]) if references else []
    return list(zip(readings[: len(references)], readings[len(references) :], strict=True))


def _cosine(one: Reading, other: Reading) -> float:
    first, second = (reading.vector.astype(np.float64) for reading in (one, other))
    cosine = float(first @ second) / max(float(np.linalg.norm(first) * np.linalg.norm(second)), 1e-12)
    return min(1.0, max(-1.0, cosine))


def _settings(read: Chexbert) -> dict[str, str]:
    return {"model": "chexbert", "dtype": read.settings.dtype}
