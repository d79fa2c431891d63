"""METEOR of reports by NLTK.

Words are matched as they are, then by Porter stem, then by WordNet's synonyms; the score is a mean of precision and
recall that leans on recall, less a penalty for matches that stand in another order. Source: Lavie and Agarwal, "METEOR:
an automatic metric for MT evaluation with high levels of correlation with human judgments", 2007, as
``nltk.translate.meteor_score`` computes it: what the second step leaves goes to the third as stems, so that synonyms
are found only for words that are their own stem; and each word takes the last match that is free, not the one that
leaves fewest crossings.

METEOR 1.5 (Java, with paraphrases and other weights) is another metric.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import ReportMetric, ReportScores, check_lengths, pair_metric
from medtasks.metrics.word_overlaps import TOKENISER, from_report_extra, porter_stemmer, word_tokens
from medtasks.metrics.wordnet import load_wordnet

_FORMULA = {"alpha": 0.9, "beta": 3.0, "gamma": 0.5}  # weight of recall, power of the fragmentation, largest penalty
_NO_SYNONYMS = SimpleNamespace(synsets=lambda word: ())


def meteor_score(reference_tokens: Sequence[str], hypothesis_tokens: Sequence[str], wordnet: Any = None) -> float:
    """Return METEOR of one pair of texts as words, which are compared in lower case.

    ``wordnet`` is a reader of NLTK's or has its ``synsets``; without it words are matched as they are and by stem only.
    Scores are 0 to 1, and 0 without a match; identical texts of n words score ``1 - 0.5 / n**3``.

    Example:
        >>> meteor_score("no pleural effusion".split(), "no pleural effusions".split())
        0.9814814814814815
    """
    score = from_report_extra("nltk.translate.meteor_score", "METEOR").single_meteor_score
    known = wordnet or _NO_SYNONYMS
    return float(score(reference_tokens, hypothesis_tokens, stemmer=porter_stemmer(), wordnet=known, **_FORMULA))


def meteor(_: ModelSettings) -> ReportMetric:
    """Return the metric with key ``meteor``: the mean of :func:`meteor_score` with WordNet.

    Scoring raises :class:`~medtasks.errors.WeightsMissing` where WordNet is not on this machine.
    """
    return _metric("meteor", load_wordnet)


def meteor_without_synonyms(_: ModelSettings) -> ReportMetric:
    """Return the metric with key ``meteor_without_synonyms``, which needs no data."""
    return _metric("meteor_without_synonyms", lambda: None)


def _metric(key: str, load: Callable[[], Any]) -> ReportMetric:
    def score_pairs(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        check_lengths(references, hypotheses)
        wordnet = load()

        def score(reference: str, hypothesis: str) -> tuple[float]:
            return (meteor_score(word_tokens(reference), word_tokens(hypothesis), wordnet),)

        settings = {
            "words": TOKENISER,
            "formula": ", ".join(("NLTK", *(f"{name} {value:g}" for name, value in _FORMULA.items()))),
            "stemmer": "Porter",
            "synonyms": f"WordNet {wordnet.get_version() or 'of unknown version'}" if wordnet else "none",
        }
        return pair_metric((key,), score, settings)(references=references, hypotheses=hypotheses)

    return score_pairs
