"""BLEU of reports, in the flavours that published numbers come in.

They differ in words, smoothing and averaging, and none can be computed from another:

==================  ==========================================================================================
``sentence_bleu``   MultiMedEval: words between white space, case kept, no smoothing, mean over reports
``corpus_bleu``     sacrebleu with its defaults: 13a tokens, case kept, exponential smoothing, one value
``radcliq_bleu``    CXR-Report-Metric, BLEU-2 as RadCliQ takes it: lower case, smoothed, mean over reports
==================  ==========================================================================================

:func:`nltk_method4_bleu` is MedHEval's. All are between 0 and 1, and 0 when either text has no words. Source: Papineni
et al., "BLEU: a method for automatic evaluation of machine translation", ACL 2002; Chen and Cherry, "A systematic
comparison of smoothing techniques for sentence-level BLEU", WMT 2014.
"""

import math
from collections.abc import Sequence

from medtasks.errors import MedTasksError
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.ngram_counts import Overlap, overlaps
from medtasks.metrics.pair_scores import PairMetric, check_lengths
from medtasks.metrics.report_scores import ReportMetric, ReportScores

_EPSILON = 0.1  # count of smoothing method 1
_METHOD4_SCALE = 5
_ORDERS = (1, 2, 4)


def unsmoothed_bleu(counts: Sequence[Overlap]) -> float:
    """Return BLEU with equal weights and without smoothing.

    Source: ``torchmetrics.text.BLEUScore`` 1.9, which computes in single precision; this is its value in double
    precision, less than 1e-6 away.

    Args:
        counts: N-grams of orders 1, 2, ..., shape (orders,), of one pair of texts or summed over a corpus.

    Returns:
        0 to 1; 0 when an order has no match, as in a hypothesis of fewer words than the order.

    Example:
        >>> unsmoothed_bleu(overlaps("no acute effusion".split(), "no acute mass".split(), 2))
        0.5773502691896257
    """
    if not all(count.matches for count in counts):
        return 0.0
    mean = math.fsum(math.log(count.matches / count.hypothesis) for count in counts) / len(counts)
    return _brevity_penalty(counts[0]) * math.exp(mean)


def smoothed_bleu(counts: Sequence[Overlap], substitutes: Sequence[float]) -> float:
    """Return BLEU with equal weights, where orders without a match count as if they had some.

    Source: ``nltk.translate.bleu_score`` 3.10.

    Args:
        counts: N-grams of orders 1, 2, ..., shape (orders,).
        substitutes: Matches of the first order without any, of the second one, ..., shape (orders,); an order with 0 is
            left out of the mean.

    Returns:
        0 to 1; 0 when no word matches.
    """
    if not counts[0].matches:
        return 0.0
    left = iter(substitutes)
    precisions = ((count.matches or next(left)) / max(1, count.hypothesis) for count in counts)
    weight = 1 / len(counts)
    logarithms = [weight * math.log(precision) for precision in precisions if precision]
    return _brevity_penalty(counts[0]) * math.exp(math.fsum(logarithms))


def _brevity_penalty(words: Overlap) -> float:
    return 1.0 if words.hypothesis > words.reference else math.exp(1 - words.reference / words.hypothesis)


def radcliq_bleu_2(reference: str, hypothesis: str) -> float:
    """Return BLEU-2 of one pair as CXR-Report-Metric computes it for RadCliQ.

    Source: rajpurkarlab/CXR-Report-Metric at 9c9ecad. Texts in lower case, every full stop a word of its own, words
    between single blanks (a line break is part of a word); smoothing method 1 of Chen and Cherry: an order without
    match counts as 0.1 matches.

    Example:
        >>> radcliq_bleu_2("No acute effusion.", "Stable effusion.")
        0.41368954504257255
    """
    counts = overlaps(_radcliq_words(reference), _radcliq_words(hypothesis), 2)
    return smoothed_bleu(counts, [_EPSILON] * 2)


def _radcliq_words(text: str) -> list[str]:
    return [word for word in text.lower().replace(".", " .").split(" ") if word]


def nltk_method4_bleu(reference_tokens: Sequence[str], hypothesis_tokens: Sequence[str]) -> float:
    """Return BLEU-4 with smoothing method 4 as NLTK has it, which is how MedHEval scores reports.

    The first order without match counts as ``ln(words) / 10`` matches, the next as half of that, and so on. A
    hypothesis of one word is not smoothed: the orders it is too short for are left out.

    Args:
        reference_tokens: Words; MedHEval takes :func:`medtasks.metrics.word_tokens.word_tokens`, case kept.
        hypothesis_tokens: Words.

    Example:
        >>> nltk_method4_bleu(["no", "effusion"], ["no", "effusion"])
        0.2213885886251307
    """
    words = len(hypothesis_tokens)
    first = math.log(words) / (2 * _METHOD4_SCALE) if words > 1 else 0.0
    counts = overlaps(reference_tokens, hypothesis_tokens, 4)
    return smoothed_bleu(counts, [first / 2**halved for halved in range(4)])


def _sentence_bleus(reference: str, hypothesis: str) -> tuple[float, ...]:
    counts = overlaps(reference.split(), hypothesis.split(), max(_ORDERS))
    return tuple(unsmoothed_bleu(counts[:order]) for order in _ORDERS)


def sentence_bleu(_: ModelSettings) -> ReportMetric:
    """Return the metric with keys ``bleu_1``, ``bleu_2`` and ``bleu_4``: means of :func:`unsmoothed_bleu` of the pairs.

    Source: ``ReportComparison`` in ``multimedeval/task_families.py`` of https://github.com/corentin-ryr/MultiMedEval at
    d9ac283.
    """
    settings = {"words": "between white space, case kept", "smoothing": "none", "average": "mean over reports"}
    return PairMetric(tuple(f"bleu_{order}" for order in _ORDERS), _sentence_bleus, settings)


def radcliq_bleu(_: ModelSettings) -> ReportMetric:
    """Return the metric with key ``radcliq_bleu_2``: the mean of :func:`radcliq_bleu_2` of the pairs."""
    settings = {
        "words": "between single blanks, full stops parted, lower case",
        "smoothing": "method 1",
        "average": "mean over reports",
    }
    return PairMetric(("radcliq_bleu_2",), lambda *pair: (radcliq_bleu_2(*pair),), settings)


def corpus_bleu(_: ModelSettings) -> ReportMetric:
    """Return the metric with key ``corpus_bleu``: BLEU-4 of the corpus by sacrebleu, divided by 100, so 0 to 1.

    There is no value per pair, and the total is 0 when no hypothesis has four words. ``settings`` holds sacrebleu's
    signature.

    Raises:
        MedTasksError: At scoring, when sacrebleu is not installed.
    """
    return _corpus_bleu


def _corpus_bleu(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
    check_lengths(references, hypotheses)
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MedTasksError("corpus BLEU needs sacrebleu; bring it with: pip install 'medtasks[report]'") from error
    # It takes a corpus where most lines end in " ." for tokenised, and warns; force changes nothing else.
    scorer = BLEU(force=True)
    total = scorer.corpus_score(hypotheses, [references]).score / 100 if references else math.nan
    signature = {"sacrebleu": str(scorer.get_signature())} if references else {}
    return ReportScores({}, {"corpus_bleu": total}, signature)
