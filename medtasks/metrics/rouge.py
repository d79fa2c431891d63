"""ROUGE-1, ROUGE-2 and ROUGE-L of reports with the semantics of the package rouge-score 0.1.2.

Words are runs of ``a-z0-9`` of the text in lower case, so letters outside ASCII part words. With the stemmer, words of
more than three characters are reduced to their stem. Source: Lin, "ROUGE: a package for automatic evaluation of
summaries", 2004; https://github.com/google-research/google-research/tree/master/rouge.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_scores import ReportMetric, pair_metric
from medtasks.metrics.words import overlap, porter_stemmer

_WORD = re.compile("[a-z0-9]+")
_LONGEST_UNSTEMMED = 3


class Rouge(NamedTuple):
    """One ROUGE score of one pair; all 0 to 1, and 0 without anything in common."""

    precision: float
    recall: float
    f1: float

    @classmethod
    def of(cls, matches: int, reference: int, hypothesis: int) -> "Rouge":
        """Return the score of ``matches`` words or n-grams, of as many as there are in the two texts."""
        precision, recall = matches / max(1, hypothesis), matches / max(1, reference)
        return cls(precision, recall, 2 * precision * recall / (precision + recall) if matches else 0.0)


class RougeScores(NamedTuple):
    """The scores of words, of pairs of neighbouring words, and of the longest common subsequence, of one pair."""

    rouge_1: Rouge
    rouge_2: Rouge
    rouge_l: Rouge


def rouge_words(text: str, *, stemmed: bool) -> list[str]:
    """Return the words of a text as ROUGE counts them.

    Example:
        >>> rouge_words("No pleural effusions (2.5 cm).", stemmed=False)
        ['no', 'pleural', 'effusions', '2', '5', 'cm']
    """
    words: list[str] = _WORD.findall(text.lower())
    if not stemmed:
        return words
    stem = porter_stemmer()
    return [stem(word) if len(word) > _LONGEST_UNSTEMMED else word for word in words]


def longest_common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest sequence of tokens that both have in the same order, others between or not.

    One row of the usual table is one integer with a bit per token of ``first``: Hyyrö, "Bit-parallel LCS-length
    computation revisited", 2004.
    """
    places: dict[str, int] = {}
    for position, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << position
    every = (1 << len(first)) - 1
    row = every
    for token in second:
        hits = row & places.get(token, 0)
        if hits:
            row = (row + hits | row - hits) & every
    return len(first) - row.bit_count()


def rouge_scores(reference: str, hypothesis: str, *, stemmed: bool) -> RougeScores:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L of one pair.

    Words are compared as they are, as by MultiMedEval and torchmetrics, or by their Porter stem, as by RadEval and
    MedHEval; means differ by some thousandths.

    Example:
        >>> rouge_scores("No pleural effusion.", "No effusions.", stemmed=False).rouge_1
        Rouge(precision=0.5, recall=0.3333333333333333, f1=0.4)
    """
    wanted, said = rouge_words(reference, stemmed=stemmed), rouge_words(hypothesis, stemmed=stemmed)
    words, pairs = (overlap(wanted, said, order) for order in (1, 2))
    # Words that the other text lacks cannot be in a common sequence.
    common = longest_common_subsequence(wanted, said) if words.matches else 0
    return RougeScores(
        Rouge.of(words.matches, words.reference, words.hypothesis),
        Rouge.of(pairs.matches, pairs.reference, pairs.hypothesis),
        Rouge.of(common, len(wanted), len(said)),
    )


def rouge(_: ModelSettings) -> ReportMetric:
    """Return the metric with keys ``rouge_1``, ``rouge_2``, ``rouge_l``: mean F1 without stemmer, as MultiMedEval."""
    return _metric("", stemmed=False)


def rouge_stemmed(_: ModelSettings) -> ReportMetric:
    """Return the metric with keys ``stemmed_rouge_1``, ``_2`` and ``_l``: mean F1 of Porter stems, as MedHEval.

    MedHEval's code hands prediction and target over in the wrong order, which F1 does not notice.
    """
    return _metric("stemmed_", stemmed=True)


def _metric(prefix: str, *, stemmed: bool) -> ReportMetric:
    def score(reference: str, hypothesis: str) -> tuple[float, ...]:
        return tuple(score.f1 for score in rouge_scores(reference, hypothesis, stemmed=stemmed))

    keys = tuple(f"{prefix}rouge_{kind}" for kind in ("1", "2", "l"))
    settings = {"words": "runs of a-z0-9 in lower case", "stemmer": "Porter" if stemmed else "none", "value": "F1"}
    return pair_metric(keys, score, settings)
