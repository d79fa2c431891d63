"""ROUGE-1, ROUGE-2 and ROUGE-L of reports by the package rouge-score.

Words are runs of ``a-z0-9`` of the text in lower case, so letters outside ASCII part words. With the stemmer, words of
more than three characters are reduced to their stem. Source: Lin, "ROUGE: a package for automatic evaluation of
summaries", 2004; https://github.com/google-research/google-research/tree/master/rouge.
"""

from functools import lru_cache
from typing import Any

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import ReportMetric, pair_metric
from medtasks.metrics.word_overlaps import porter_stemmer

ROUGE_TYPES = {"1": "rouge1", "2": "rouge2", "l": "rougeL"}  # of the package, by the ending of our keys


class _Words:
    """The package's words; a word's stem is computed once, which takes most of the package's time otherwise."""

    def __init__(self, stemmed: bool) -> None:
        self._stemmer = porter_stemmer() if stemmed else None

    def tokenize(self, text: str) -> list[str]:
        from rouge_score.tokenize import tokenize

        words: list[str] = tokenize(text, self._stemmer)
        return words


@lru_cache(maxsize=2)
def _scorer(stemmed: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([*ROUGE_TYPES.values()], tokenizer=_Words(stemmed))


def rouge_scores(reference: str, hypothesis: str, *, stemmed: bool) -> dict[str, Any]:
    """Return ROUGE of one pair by the package's name: ``rouge1``, ``rouge2`` and ``rougeL`` (longest subsequence).

    Each is the package's ``Score(precision, recall, fmeasure)``, from 0, also where a text has no words, to 1. Words
    are compared as they are, as by MultiMedEval and torchmetrics, or by their Porter stem, as by RadEval and MedHEval;
    means differ by some thousandths.

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

    MedHEval's code hands prediction and target over in the wrong order, which F1 does not notice.
    """
    return _metric("stemmed_", stemmed=True)


def _metric(prefix: str, *, stemmed: bool) -> ReportMetric:
    def score(reference: str, hypothesis: str) -> list[float]:
        scores = rouge_scores(reference, hypothesis, stemmed=stemmed)
        return [float(scores[kind].fmeasure) for kind in ROUGE_TYPES.values()]  # where a text is empty, 0 is an int

    settings = {"words": "runs of a-z0-9 in lower case", "stemmer": "Porter" if stemmed else "none", "value": "F1"}
    return pair_metric([f"{prefix}rouge_{ending}" for ending in ROUGE_TYPES], score, settings)
