"""BLEU in its published variants, which differ in words, smoothing and averaging.

==================  ==========================================================================================
``bleu1``           MultiMedEval, BLEU-1 of a reply and an option, in single precision
``bleu``            MultiMedEval: words between white space, case kept, no smoothing, mean over reports
``corpus_bleu``     sacrebleu with its defaults: 13a tokens, case kept, exponential smoothing, one value
``radcliq_bleu``    CXR-Report-Metric, BLEU-2 as RadCliQ takes it: lower case, smoothed, mean over reports
``medheval_bleu``   MedHEval: NLTK's words, case kept, smoothed by method 4, mean over pairs
==================  ==========================================================================================

All are between 0 and 1, and 0 when either text has no words. Source: Papineni et al., "BLEU: a method for automatic
evaluation of machine translation", ACL 2002; Chen and Cherry, "A systematic comparison of smoothing techniques for
sentence-level BLEU", WMT 2014.
"""

import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.overlaps import TOKENISER, NgramOverlap, from_report_extra, overlaps, word_tokens
from medtasks.metrics.report_metrics import ReportMetric, ReportScores, check_lengths, pair_metric

_EPSILON = 0.1  # count of smoothing method 1
_METHOD4_SCALE = 5
_ORDERS = (1, 2, 4)


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


@lru_cache(maxsize=1 << 16)
def bleu1_from_counts(matches: int, length: int, reference_length: int) -> float:
    """Return BLEU-1 from counts of words, equal to torchmetrics' without torch.

    Source: ``torchmetrics.text.BLEUScore(n_gram=1)`` 1.9 with its defaults (words between blanks, no smoothing, case
    kept), in single precision: one word against a reference of more than a hundred scores exactly 0, which decides
    whether an answer is valid.

    It is ``matches / length``, times ``exp(1 - reference_length / length)`` unless the reply is longer than the
    reference, each step rounded to single precision; 0 without a match. A word matches at most as often as the
    reference has it.

    Example:
        >>> bleu1_from_counts(1, 1, 3)
        0.1353352814912796
    """
    if matches == 0:
        return 0.0
    # Through the logarithm, as for n-grams of several lengths: 3 of 10 words score 0.29999998.
    precision = _single(math.exp(_single(math.log(_single(matches / length)))))
    if length > reference_length:
        return precision
    penalty = _single(math.exp(_single(1 - _single(reference_length / length))))
    return _single(penalty * precision)


@dataclass(frozen=True)
class References:
    """Counted words of reference texts, for comparison with many replies."""

    lengths: tuple[int, ...]  # words of each reference
    occurrences: Mapping[str, Sequence[tuple[int, int]]]  # of each word: (position of a reference, count)

    @classmethod
    def of(cls, texts: Sequence[str]) -> "References":
        """Count the words of reference texts."""
        occurrences: dict[str, list[tuple[int, int]]] = {}
        for position, text in enumerate(texts):
            for word, count in Counter(text.split()).items():
                occurrences.setdefault(word, []).append((position, count))
        return cls(tuple(len(text.split()) for text in texts), occurrences)

    def scores(self, reply: str) -> list[float]:
        """Return the BLEU-1 of one reply against each reference, shape (references,)."""
        words = reply.split()
        matches = [0] * len(self.lengths)
        for word, count in Counter(words).items():
            for position, limit in self.occurrences.get(word, ()):
                matches[position] += min(count, limit)
        return [
            bleu1_from_counts(count, len(words), length) if count else 0.0
            for count, length in zip(matches, self.lengths, strict=True)
        ]


def bleu1(reply: str, reference: str) -> float:
    """Return the BLEU-1 of a reply against one reference; both are cleaned texts, compared word by word, with case."""
    return References.of([reference]).scores(reply)[0]


def unsmoothed_bleu(counts: Sequence[NgramOverlap]) -> float:
    """Return BLEU with equal weights and without smoothing.

    Source: ``torchmetrics.text.BLEUScore`` 1.9, here in double precision, less than 1e-6 away. ``counts`` are n-grams
    of orders 1, 2, ..., shape (orders,), of one pair of texts or a corpus. The value is 0 to 1; 0 when an order has no
    match, as in a hypothesis of fewer words than the order.

    Example:
        >>> unsmoothed_bleu(overlaps("no acute effusion".split(), "no acute mass".split(), 2))
        0.5773502691896257
    """
    return smoothed_bleu(counts, ()) if all(count.matches for count in counts) else 0.0


def smoothed_bleu(counts: Sequence[NgramOverlap], substitutes: Sequence[float]) -> float:
    """Return BLEU with equal weights and substitutes for orders without a match.

    ``counts`` are n-grams of orders 1, 2, ...; ``substitutes`` are the matches of the first order without any, of the
    second one, ..., both of shape (orders,). An order with a substitute of 0 is left out of the mean. 0 to 1; 0 when no
    word matches. Source: ``nltk.translate.bleu_score`` 3.10.
    """
    if not counts[0].matches:
        return 0.0
    unused = iter(substitutes)
    precisions = ((count.matches or next(unused)) / max(1, count.hypothesis) for count in counts)
    weight, words = 1 / len(counts), counts[0]
    logarithms = [weight * math.log(precision) for precision in precisions if precision]
    penalty = 1.0 if words.hypothesis > words.reference else math.exp(1 - words.reference / words.hypothesis)
    return penalty * math.exp(math.fsum(logarithms))


def radcliq_bleu_2(reference: str, hypothesis: str) -> float:
    """Return BLEU-2 of one pair as CXR-Report-Metric computes it for RadCliQ.

    Source: rajpurkarlab/CXR-Report-Metric at 9c9ecad. Texts in lower case, every full stop a word of its own, words
    between single blanks (a line break is part of a word); smoothing method 1 of Chen and Cherry: an order without
    match counts as 0.1 matches.
    """
    reference_words, words = (
        [word for word in text.lower().replace(".", " .").split(" ") if word] for text in (reference, hypothesis)
    )
    return smoothed_bleu(overlaps(reference_words, words, 2), [_EPSILON] * 2)


def nltk_method4_bleu(reference_tokens: Sequence[str], hypothesis_tokens: Sequence[str]) -> float:
    """Return BLEU-4 with NLTK's smoothing method 4, as in MedHEval.

    The first order without match counts as ``ln(words) / 10`` matches, the next as half of that, and so on. For a
    hypothesis of one word these orders are left out.
    """
    words = len(hypothesis_tokens)
    first = math.log(words) / (2 * _METHOD4_SCALE) if words > 1 else 0.0
    counts = overlaps(reference_tokens, hypothesis_tokens, 4)
    return smoothed_bleu(counts, [first / 2**halved for halved in range(4)])


def bleu(_: ModelSettings) -> ReportMetric:
    """Return the metric with keys ``bleu_1``, ``bleu_2`` and ``bleu_4``: means of :func:`unsmoothed_bleu`.

    Source: ``ReportComparison`` in ``multimedeval/task_families.py`` of https://github.com/corentin-ryr/MultiMedEval at
    d9ac283.
    """

    def score(reference: str, hypothesis: str) -> list[float]:
        counts = overlaps(reference.split(), hypothesis.split(), max(_ORDERS))
        return [unsmoothed_bleu(counts[:order]) for order in _ORDERS]

    settings = {"words": "between white space, case kept", "smoothing": "none", "average": "mean over reports"}
    return pair_metric(tuple(f"bleu_{order}" for order in _ORDERS), score, settings)


def radcliq_bleu(_: ModelSettings) -> ReportMetric:
    """Return the metric with key ``radcliq_bleu_2``: the mean of :func:`radcliq_bleu_2` of the pairs."""
    settings = {
        "words": "between single blanks, full stops separate, lower case",
        "smoothing": "method 1",
        "average": "mean over reports",
    }
    return pair_metric(("radcliq_bleu_2",), lambda *pair: (radcliq_bleu_2(*pair),), settings)


def corpus_bleu(_: ModelSettings) -> ReportMetric:
    """Return the metric with key ``corpus_bleu``: BLEU-4 of the corpus by sacrebleu, divided by 100, so 0 to 1.

    There is no value per pair, and the total is 0 when no hypothesis has four words. ``settings`` holds sacrebleu's
    signature. Scoring raises a MedTasksError when sacrebleu is not installed.
    """

    def score(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        check_lengths(references, hypotheses)
        # force only suppresses a warning about a corpus where most lines end in " .".
        scorer = from_report_extra("sacrebleu.metrics.bleu", "corpus BLEU").BLEU(force=True)
        total = scorer.corpus_score(hypotheses, [references]).score / 100 if references else math.nan
        signature = {"sacrebleu": str(scorer.get_signature())} if references else {}
        return ReportScores({}, {"corpus_bleu": total}, signature)

    return score


def medheval_bleu(_: ModelSettings) -> ReportMetric:
    """Return the metric with key ``method4_bleu``: the mean of :func:`nltk_method4_bleu` over NLTK's words."""

    def score(reference: str, hypothesis: str) -> tuple[float]:
        return (nltk_method4_bleu(word_tokens(reference), word_tokens(hypothesis)),)

    return pair_metric(("method4_bleu",), score, {"words": TOKENISER, "smoothing": "method 4", "case": "kept"})
