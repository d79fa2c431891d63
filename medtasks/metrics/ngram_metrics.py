"""Words of texts, their overlaps, and BLEU and ROUGE in published variants, which differ in words and smoothing.

==================  ==========================================================================================
``bleu1``           MultiMedEval, BLEU-1 of a reply and an option, in single precision
``bleu``            MultiMedEval: words between white space, case kept, no smoothing, mean over reports
``corpus_bleu``     sacrebleu with its defaults: 13a tokens, case kept, exponential smoothing, one value
``radcliq_bleu``    CXR-Report-Metric, BLEU-2 as RadCliQ takes it: lower case, smoothed, mean over reports
``medheval_bleu``   MedHEval: NLTK's words, case kept, smoothed by method 4, mean over pairs
``rouge``           rouge-score, as MultiMedEval and torchmetrics: F1 of runs of ``a-z0-9`` in lower case
``rouge_stemmed``   the same of Porter stems of words of more than three characters, as RadEval and MedHEval
==================  ==========================================================================================

All are between 0 and 1, and 0 when either text has no words. Sources: Papineni et al., "BLEU: a method for automatic
evaluation of machine translation", ACL 2002; Chen and Cherry, "A systematic comparison of smoothing techniques for
sentence-level BLEU", WMT 2014; Lin, "ROUGE: a package for automatic evaluation of summaries", 2004.

Overlaps of answers: MultiMedEval (Royer et al.), ``VQA.evaluate`` in ``multimedeval/task_families.py`` of
https://github.com/corentin-ryr/MultiMedEval at d9ac283. A question is *closed* when its cleaned target is "yes" or
"no", whatever the dataset says; all others are *open*, also "left or right?". Chen et al., "GMAI-MMBench", 2024,
equations 2 and 3, for several right options: precision is ``ACC_mcls`` and recall ``Recall_mcls``. The paper does not
say how cases are averaged; here it is their mean. Listing every option has a recall of 1.
"""

import importlib
import math
import re
import struct
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from medtasks.errors import MedTasksError
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import (
    ReportScores,
    Texts,
    mean_scores,
    score_keys,
    scores_of_rows,
)
from medtasks.stats.bootstrap import Floats, Integers
from medtasks.stats.exchange import SummedCounts

TOKENISER = "sentences end after . ! ? before white space; words by NLTKWordTokenizer"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_ORDERS = (1, 2, 4)
# targets of closed questions, in lower case with single blanks and no punctuation
CLOSED = ("yes", "no")
OPEN_RECALL = 0.75  # least share of the target's tokens in a right reply to an open question
WITHOUT_WORDS = "texts without words"
_ROUGE_WORD = re.compile("[a-z0-9]")
# of rouge-score, by the ending of our keys
_ROUGE_TYPES = {"1": "rouge1", "2": "rouge2", "l": "rougeL"}


@dataclass(frozen=True, slots=True)
class TokenOverlap:
    """Agreement of two sets of tokens. Every value is between 0 and 1, and 0 for a set without tokens."""

    precision: float  # share of the reply's tokens that the target has
    recall: float  # share of the target's tokens that the reply has
    f1: float  # harmonic mean, with 1e-8 added to its denominator: two equal sets score 0.999999995


def token_overlap(
    reply: Set[object],
    target: Set[object],
    shared: Set[object] | None = None,
) -> TokenOverlap:
    """Compare the tokens of a reply with those of the target.

    precision = shared / reply, recall = shared / target, f1 = 2 * precision * recall / (precision + recall + 1e-8).

    Args:
        reply: Distinct tokens of the reply.
        target: Distinct tokens of the target.
        shared: Tokens that count as common. If None, all that both have.

    Example:
        >>> token_overlap({"left", "lung"}, {"the", "left", "lung", "base"}).recall
        0.5
    """
    common = len(reply & target if shared is None else shared)
    precision = common / len(reply) if reply else 0.0
    recall = common / len(target) if target else 0.0
    return TokenOverlap(
        precision, recall, 2 * (precision * recall) / (precision + recall + 1e-8)
    )


def overlap_f1(first: Set[object], second: Set[object]) -> float:
    """Return the F1 of two sets, 2 |A and B| / (|A| + |B|), or 0 if both are empty.

    Example:
        >>> overlap_f1({1, 2}, {2, 3, 4, 5})
        0.3333333333333333
    """
    size = len(first) + len(second)
    return 2 * len(first & second) / size if size else 0.0


def from_report_extra(module: str, needed_by: str) -> Any:
    """Import a module of the extra ``medtasks[report]``.

    Args:
        module: Dotted name.
        needed_by: Start of the message if it is not installed.

    Raises:
        MedTasksError: The package is not installed. The message has the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MedTasksError(
            f"{needed_by} needs {package}; install it with: pip install 'medtasks[report]'"
        ) from error


def word_tokens(text: str) -> list[str]:
    """Return the words and marks of a text, with case, without NLTK's data.

    ``nltk.word_tokenize`` finds sentences with a trained model that must be downloaded. Here a sentence ends after
    ``.``, ``!`` or ``?`` before white space: ``Dr. Smith`` is ``Dr . Smith``. The rules for words are NLTK's own.
    """
    return list(chain.from_iterable(map(_sentence_words, _SENTENCE_END.split(text))))


@lru_cache(maxsize=1 << 16)
def _sentence_words(sentence: str) -> tuple[str, ...]:
    tokenizer = from_report_extra(
        "nltk.tokenize.destructive", "splitting words"
    ).NLTKWordTokenizer()
    return tuple(tokenizer.tokenize(sentence))


def report_words(text: str) -> list[str]:
    """Return the words of a report in lower case. A line break is part of a word.

    Example:
        >>> report_words("No  effusion.")
        ['no', 'effusion', '.']
    """
    return list(filter(None, text.lower().replace(".", " .").split(" ")))


@lru_cache(maxsize=1)
def porter_stemmer() -> Any:
    """Return NLTK's Porter stemmer with its extensions, for ROUGE and METEOR. Its ``stem`` is cached."""
    stemmer = from_report_extra("nltk.stem.porter", "Porter's stemmer").PorterStemmer()
    stemmer.stem = lru_cache(maxsize=1 << 17)(stemmer.stem)
    return stemmer


class NgramOverlap(NamedTuple):
    """Numbers of n-grams of one order: common ones, at most as often as in either text, and those of each text."""

    matches: int
    reference: int
    hypothesis: int


def overlaps(
    reference: Sequence[str],
    hypothesis: Sequence[str],
    orders: int,
) -> tuple[NgramOverlap, ...]:
    """Count the n-grams of two texts.

    Args:
        reference: Words of the reference.
        hypothesis: Words of the hypothesis.
        orders: Largest number of words in an n-gram.

    Returns:
        One overlap for each order 1 to ``orders``.

    Example:
        >>> overlaps(["no", "acute", "effusion"], ["no", "effusion"], 2)[0]
        NgramOverlap(matches=2, reference=3, hypothesis=2)
    """
    counts = []
    for order in range(1, orders + 1):
        expected = _count_ngrams(reference, order)
        present = _count_ngrams(hypothesis, order)
        matches = sum(
            min(count, present[gram]) for gram, count in expected.items() if gram in present
        )
        reference_size = max(0, len(reference) - order + 1)
        hypothesis_size = max(0, len(hypothesis) - order + 1)
        counts.append(NgramOverlap(matches, reference_size, hypothesis_size))
    return tuple(counts)


def _count_ngrams(tokens: Sequence[str], order: int) -> Counter[Any]:
    if order == 1:
        return Counter(tokens)
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))


def _single(value: float) -> float:
    """Round a number to single precision."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


@lru_cache(maxsize=1 << 16)
def bleu1_from_counts(
    matches: int,
    length: int,
    reference_length: int,
) -> float:
    """Return BLEU-1 from counts of words.

    BLEU-1 = matches / length, times ``exp(1 - reference_length / length)`` for a reply that is not longer than the
    reference.

    Args:
        matches: Matched words of the reply. A word matches at most as often as the reference has it.
        length: Words of the reply.
        reference_length: Words of the reference.

    Source: ``torchmetrics.text.BLEUScore(n_gram=1)`` 1.9, each step in single precision: one word against a reference
    of more than a hundred scores exactly 0, which decides whether an answer is valid.
    """
    if matches == 0:
        return 0.0
    # Through the logarithm, as for n-grams of several lengths: 3 of 10 words score 0.29999998.
    precision = _single(math.exp(_single(math.log(_single(matches / length)))))
    if length > reference_length:
        return precision
    penalty = _single(math.exp(_single(1 - _single(reference_length / length))))
    return _single(penalty * precision)


class References:
    """Counted words of reference texts, for comparison with many replies.

    Example:
        >>> References(["left lung", "right lung"]).scores("left lung")
        [1.0, 0.5]
    """

    def __init__(self, texts: Texts) -> None:
        self._lengths = [len(text.split()) for text in texts]
        # Of each word: the position of a reference, and how often that has the word.
        self._occurrences: dict[str, list[tuple[int, int]]] = {}
        for position, text in enumerate(texts):
            for word, count in Counter(text.split()).items():
                self._occurrences.setdefault(word, []).append((position, count))

    def scores(self, reply: str) -> list[float]:
        """Return the BLEU-1 of one reply against each reference, shape (references,)."""
        words = reply.split()
        matches = [0] * len(self._lengths)
        for word, count in Counter(words).items():
            for position, limit in self._occurrences.get(word, ()):
                matches[position] += min(count, limit)
        return [
            bleu1_from_counts(count, len(words), length) if count else 0.0
            for count, length in zip(matches, self._lengths, strict=True)
        ]


def bleu_from_counts(
    counts: Sequence[NgramOverlap],
    substitutes: Sequence[float] | None = None,
) -> float:
    """Return BLEU with equal weights from the counts of :func:`overlaps`.

    BLEU = penalty * exp(mean over orders of log(matches / n-grams of the hypothesis)), where the penalty is
    ``exp(1 - reference words / hypothesis words)`` for a hypothesis that is not longer than its reference, else 1.

    Args:
        counts: Counts of n-grams of orders 1, 2, ...
        substitutes: Matches that count for the first order without any, for the second such order, and so on. An order
            with a substitute of 0 is left out of the mean. If None, BLEU is not smoothed, and 0 when an order has no
            match, as in ``torchmetrics.text.BLEUScore`` 1.9, less than 1e-6 away from its single precision.

    Returns:
        BLEU, 0 to 1, and 0 when no word matches. Source: ``nltk.translate.bleu_score`` 3.10.

    Example:
        >>> bleu_from_counts(overlaps(["no", "effusion"], ["no", "effusion"], 2))
        1.0
    """
    words = counts[0]
    if not words.matches:
        return 0.0
    if substitutes is None and not all(count.matches for count in counts):
        return 0.0
    unused = iter(substitutes or ())
    weight = 1 / len(counts)
    logarithms = []
    for count in counts:
        precision = (count.matches or next(unused)) / max(1, count.hypothesis)
        if precision:
            logarithms.append(weight * math.log(precision))
    penalty = math.exp(min(0.0, 1 - words.reference / words.hypothesis))
    return penalty * math.exp(math.fsum(logarithms))


def bleu(_: ModelSettings, references: Texts, hypotheses: Texts) -> ReportScores:
    """Score as ``ReportComparison`` in ``multimedeval/task_families.py`` of MultiMedEval at d9ac283.

    Args:
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.

    Returns:
        ``bleu_1``, ``bleu_2`` and ``bleu_4`` by pair, and their means, 0 to 1.
    """
    rows = []
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        counts = overlaps(reference.split(), hypothesis.split(), max(_ORDERS))
        rows.append([bleu_from_counts(counts[:order]) for order in _ORDERS])
    settings = {
        "words": "between white space, case kept",
        "smoothing": "none",
        "average": "mean over reports",
    }
    return scores_of_rows(score_keys("bleu", *map(str, _ORDERS)), rows, settings)


def radcliq_bleu(_: ModelSettings, references: Texts, hypotheses: Texts) -> ReportScores:
    """Score BLEU-2 as CXR-Report-Metric computes it for RadCliQ.

    Source: rajpurkarlab/CXR-Report-Metric at 9c9ecad. Texts in lower case, every full stop a word of its own, words
    between single blanks (a line break is part of a word); smoothing method 1 of Chen and Cherry: an order without
    match counts as 0.1 matches.

    Args:
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.

    Returns:
        ``radcliq_bleu_2`` by pair, and its mean, 0 to 1.
    """
    values = []
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        counts = overlaps(report_words(reference), report_words(hypothesis), 2)
        values.append(bleu_from_counts(counts, [0.1] * 2))
    settings = {
        "words": "between single blanks, full stops separate, lower case",
        "smoothing": "method 1",
        "average": "mean over reports",
    }
    return mean_scores({"radcliq_bleu_2": values}, settings)


def corpus_bleu(_: ModelSettings, references: Texts, hypotheses: Texts) -> ReportScores:
    """Score BLEU-4 of the corpus by sacrebleu, divided by 100. There is no value per pair.

    Args:
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.

    Returns:
        The total ``corpus_bleu``, 0 to 1, NaN without pairs.
    """
    # force only suppresses a warning about a corpus where most lines end in " .".
    scorer = from_report_extra("sacrebleu.metrics.bleu", "corpus BLEU").BLEU(force=True)
    if not references:
        return ReportScores({}, {"corpus_bleu": math.nan})
    total = scorer.corpus_score(hypotheses, [references]).score / 100
    # The package's own sufficient statistics: numbers of n-grams, and lengths.
    rows = scorer._extract_corpus_statistics(hypotheses, [references])
    statistics = np.array(rows, dtype=np.int64)

    def score(row: Integers) -> float:
        return float(scorer._compute_score_from_stats(row.tolist()).score / 100)

    def scores(cells: Integers) -> dict[str, Floats]:
        return {"corpus_bleu": np.apply_along_axis(score, -1, cells)}

    signature = {"sacrebleu": str(scorer.get_signature())}
    return ReportScores({}, {"corpus_bleu": total}, signature, SummedCounts(statistics, scores))


def medheval_bleu(_: ModelSettings, references: Texts, hypotheses: Texts) -> ReportScores:
    """Score BLEU-4 with NLTK's words and smoothing method 4, as MedHEval.

    The first order without match counts as ``ln(words) / 10`` matches, the next as half of that, and so on. For a
    hypothesis of one word these orders are left out.

    Args:
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.

    Returns:
        ``method4_bleu`` by pair, and its mean, 0 to 1.
    """
    values = []
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        words = word_tokens(hypothesis)
        first = math.log(len(words)) / 10 if len(words) > 1 else 0.0
        substitutes = [first, first / 2, first / 4, first / 8]
        values.append(bleu_from_counts(overlaps(word_tokens(reference), words, 4), substitutes))
    settings = {"words": TOKENISER, "smoothing": "method 4", "case": "kept"}
    return mean_scores({"method4_bleu": values}, settings)


@lru_cache(maxsize=2)
def _rouge_scorer(stemmed: bool) -> Any:
    """Return rouge-score's scorer, with or without Porter's stemmer."""
    from rouge_score.rouge_scorer import RougeScorer
    from rouge_score.tokenize import tokenize

    # The package's words, with cached stems, which take most of its time.
    stemmer = porter_stemmer() if stemmed else None
    words = SimpleNamespace(tokenize=lambda text: tokenize(text, stemmer))
    return RougeScorer([*_ROUGE_TYPES.values()], tokenizer=words)


def rouge_scores(
    reference: str,
    hypothesis: str,
    *,
    stemmed: bool,
) -> dict[str, Any]:
    """Return the scores of rouge-score for one pair.

    Args:
        reference: Text of the reference.
        hypothesis: Text of the model.
        stemmed: Whether words are compared by their Porter stem.

    Returns:
        ``Score(precision, recall, fmeasure)`` of ``rouge1``, ``rouge2`` and ``rougeL``.
    """
    scores: dict[str, Any] = _rouge_scorer(stemmed).score(reference, hypothesis)
    return scores


def rouge(
    _: ModelSettings,
    references: Texts,
    hypotheses: Texts,
    *,
    stemmed: bool = False,
) -> ReportScores:
    """Score ROUGE-1, ROUGE-2 and ROUGE-L, as MultiMedEval.

    F1 = 2 * precision * recall / (precision + recall) of n-grams, or of the longest common subsequence of words.

    Args:
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.
        stemmed: Whether words are compared by their Porter stem.

    Returns:
        ``rouge_1``, ``rouge_2`` and ``rouge_l`` by pair, and their means, 0 to 1.
    """
    prefix = "stemmed_rouge" if stemmed else "rouge"
    rows = []
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        scores = rouge_scores(reference, hypothesis, stemmed=stemmed)
        # Of an empty text, 0 is an int.
        rows.append([float(scores[kind].fmeasure) for kind in _ROUGE_TYPES.values()])
    settings = {
        "words": "runs of a-z0-9 in lower case",
        "stemmer": "Porter" if stemmed else "none",
        "value": "F1",
    }
    texts = [text for text in (*references, *hypotheses) if text.strip()]
    without = sum(not _ROUGE_WORD.search(text.lower()) for text in texts)
    if without:
        settings[WITHOUT_WORDS] = (
            f"{without} of {len(texts)} texts have no word of a-z0-9, so that they score 0"
        )
    return scores_of_rows(score_keys(prefix, *_ROUGE_TYPES), rows, settings)


# As MedHEval, whose code swaps prediction and target: F1 is the same.
rouge_stemmed = partial(rouge, stemmed=True)
