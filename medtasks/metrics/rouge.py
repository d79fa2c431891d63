"""ROUGE-1, ROUGE-2 and ROUGE-L of reports by the package rouge-score.

Words are runs of ``a-z0-9`` of the text in lower case, so letters outside ASCII separate words. With the stemmer, words
of more than three characters are reduced to their stem. Source: Lin, "ROUGE: a package for automatic evaluation of
summaries", 2004; https://github.com/google-research/google-research/tree/master/rouge.
"""

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.overlaps import porter_stemmer
from medtasks.metrics.report_metrics import ReportMetric, pair_metric

ROUGE_TYPES = {"1": "rouge1", "2": "rouge2", "l": "rougeL"}  # of the package, by the ending of our keys


@lru_cache(maxsize=2)
def _scorer(stemmed: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    # The package's words, with cached stems, which take most of its time.
    stemmer = porter_stemmer() if stemmed else None
    words = SimpleNamespace(tokenize=lambda text: tokenize(text, stemmer))
    return RougeScorer([*ROUGE_TYPES.values()], tokenizer=words)


def rouge_scores(reference: str, hypothesis: str, *, stemmed: bool) -> dict[str, Any]:
    """Return ROUGE of one pair by the package's name: ``rouge1``, ``rouge2`` and ``rougeL`` (longest subsequence).

    Each is the package's ``Score(precision, recall, fmeasure)``, 0 (also for a text without words) to 1. Words are
    compared as they are, as in MultiMedEval and torchmetrics, or by Porter stem, as in RadEval and MedHEval; means
    differ by some thousandths.

    Example:
        >>> rouge_scores("No pleural effusion.", "No effusions.", stemmed=False)["rouge1"]
        Score(precision=0.5, recall=0.3333333333333333, fmeasure=0.4)
    """
    scores: dict[str, Any] = _scorer(stemmed).score(reference, hypothesis)
    return scores


def rouge(_: ModelSettings) -> ReportMetric:
    """Return the metric with keys ``rouge_1``, ``rouge_2``, ``rouge_l``: mean F1 without stemmer, as MultiMedEval."""
    return _metric("", stemmed=False)


def rouge_stemmed(_: ModelSettings) -> ReportMetric:
    """Return the metric with keys ``stemmed_rouge_1``, ``_2`` and ``_l``: mean F1 of Porter stems, as MedHEval.

    MedHEval's code swaps prediction and target, which does not change F1.
    """
    return _metric("stemmed_", stemmed=True)


def _metric(prefix: str, *, stemmed: bool) -> ReportMetric:
    def score(reference: str, hypothesis: str) -> list[float]:
        scores = rouge_scores(reference, hypothesis, stemmed=stemmed)
        return [float(scores[kind].fmeasure) for kind in ROUGE_TYPES.values()]  # of an empty text, 0 is an int

    settings = {"words": "runs of a-z0-9 in lower case", "stemmer": "Porter" if stemmed else "none", "value": "F1"}
    return pair_metric([f"{prefix}rouge_{ending}" for ending in ROUGE_TYPES], score, settings)
