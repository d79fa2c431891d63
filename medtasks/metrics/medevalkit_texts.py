"""MedEvalKit's comparison of answers and of reports with their targets: BLEU, ROUGE and others, exactly as published.

Sources: ``judge_open_end_vqa``, ``bleu``, ``rouge`` and ``calculate_f1`` in ``utils/utils.py`` and, for reports,
``utils/Metrics_Compute/cal_report_metrics.py`` of https://github.com/alibaba-damo-academy/MedEvalKit at 9b12e3b;
``sentence_bleu`` and ``single_meteor_score`` of nltk 3.9.1; and the package ``rouge`` 1.0.1
(https://github.com/pltrdy/rouge), which is not ``rouge-score``.
The published code raises for some texts, and then scores nothing at all; here they have measures, too, and
:func:`rouge_stop` or the comparison has the reason.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, product

from medtasks.metrics.meteor import load_wordnet, meteor_score, wordnet_version
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.ngram_metrics import (
    bleu_from_counts,
    overlap_f1,
    overlaps,
    report_words,
    token_overlap,
)
from medtasks.metrics.report_metrics import (
    ReportScores,
    Texts,
    mean_scores,
    score_keys,
    scores_of_rows,
)

MEASURES = (
    "bleu_1",
    "bleu_2",
    "bleu_3",
    "bleu_4",
    "rouge_1",
    "rouge_2",
    "rouge_l",
    "precision",
    "recall",
    "f1",
)

# Steps back through a table of ROUGE-L, each a recursive call in the package, of which Python allows about 1,000.
# An answer of one sentence with 990 words passed, one with 1,000 did not.
_MOST_STEPS = 990
_TOO_LONG = "a sentence is too long for the recursion of ROUGE-L"
_LEFT, _UP, _BOTH = range(3)
_WORDS = "between single blanks, full stops separate, lower case"


@dataclass(frozen=True)
class TextComparison:
    """Comparison of two texts."""

    # 0 to 1 by the names of ``MEASURES``; all 0 if one of the texts has no words
    measures: Mapping[str, float]
    # why the published code raises, without a word of the texts; None if it does not
    stops: str | None


def compare_answer(reply: str, gold: str) -> TextComparison:
    """Compare an answer with its gold, without case.

    - ``bleu_1`` to ``bleu_4``: words between single blanks, also empty ones, and before full stops; not smoothed, an
      order without a match counting as 2.2e-308, so that a perfect answer of one word has a ``bleu_2`` of 1.5e-154.
    - ``rouge_1``, ``rouge_2``: F of the *sets* of n-grams, 0.999999995 for equal ones. ``rouge_l``: F of the set of
      words on a longest common subsequence of any sentence of the gold with any of the answer.
    - ``precision``, ``recall``, ``f1``: of the sets of words between white space.

    Example:
        >>> compare_answer("Left lung", "the left lung").measures["recall"]
        0.6666666666666666
    """
    reply = reply.lower()
    gold = gold.lower()
    words = set(reply.split())
    gold_words = set(gold.split())
    for metric, of_reply, of_gold in (
        ("ROUGE", reply.strip("."), gold.strip(".")),
        ("F1", words, gold_words),
    ):
        if not of_reply or not of_gold:
            side = "gold" if of_reply else "reply"
            no_measures = dict.fromkeys(MEASURES, 0.0)
            return TextComparison(no_measures, f"the {side} has no words for {metric}")
    rouge, steps = _rouge(reply, gold)
    shared = token_overlap(words, gold_words)
    # Empty words between blanks count, too, but not in reports.
    reply_words = reply.replace(".", " .").split(" ")
    bleu = _bleu(reply_words, gold.replace(".", " .").split(" "))
    values = (*bleu, *rouge, shared.precision, shared.recall, overlap_f1(words, gold_words))
    stops = _TOO_LONG if steps > _MOST_STEPS else None
    return TextComparison(dict(zip(MEASURES, values, strict=True)), stops)


def medevalkit_lexical(_: ModelSettings, references: Texts, hypotheses: Texts) -> ReportScores:
    """Score BLEU-1 to BLEU-4 and ROUGE of reports. An empty hypothesis scores 0, as the published means count it.

    Args:
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.

    Returns:
        ``medevalkit_bleu_<1 to 4>`` and ``medevalkit_rouge_<1, 2 or l>`` by pair, and their means.
    """
    names = MEASURES[:7]
    rows = []
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        rouge, _steps = _rouge(hypothesis.lower(), reference.lower())
        rows.append(_bleu(report_words(hypothesis), report_words(reference)) + rouge)
    settings = {"words": _WORDS, "BLEU": "not smoothed", "ROUGE": "F1 of sets of n-grams"}
    return scores_of_rows(score_keys("medevalkit", *names), rows, settings)


def medevalkit_meteor(_: ModelSettings, references: Texts, hypotheses: Texts) -> ReportScores:
    """Score METEOR of reports with WordNet, on the words of their BLEU. An empty hypothesis scores 0.

    Args:
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.

    Returns:
        ``medevalkit_meteor`` by pair, and its mean, 0 to 1.
    """
    wordnet = load_wordnet()
    values = []
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        words = report_words(reference)
        values.append(meteor_score(words, report_words(hypothesis), wordnet))
    settings = {"words": _WORDS, "stemmer": "Porter", "synonyms": wordnet_version(wordnet)}
    return mean_scores({"medevalkit_meteor": values}, settings)


def rouge_stop(reply: str, gold: str) -> str | None:
    """Return why the published ROUGE raises for a reply, or None where it does not.

    No word of the texts is in the reason.

    Example:
        >>> rouge_stop("...", "no effusion")
        'the reply has no words for ROUGE'
    """
    if not reply.strip("."):
        return "the reply has no words for ROUGE"
    if len(reply.split()) + len(gold.split()) <= _MOST_STEPS:  # there are at most as many steps
        return None
    _, steps = _rouge(reply.lower(), gold.lower())
    return _TOO_LONG if steps > _MOST_STEPS else None


def _bleu(words: Sequence[str], gold_words: Sequence[str]) -> list[float]:
    """Return BLEU-1 to BLEU-4 of the words of two texts, 0 if no word matches."""
    counts = overlaps(gold_words, words, 4)
    least = [
        sys.float_info.min * max(1, count.hypothesis) for count in counts if not count.matches
    ]
    return [bleu_from_counts(counts[:order], least) for order in range(1, 5)]


def _rouge(reply: str, gold: str) -> tuple[list[float], int]:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L of texts in lower case, and the most steps back of any two sentences.

    All are 0 if a text has nothing but full stops.
    """
    if not reply.strip(".") or not gold.strip("."):
        return [0.0] * 3, 0
    sentences = _sentences(reply)
    gold_sentences = _sentences(gold)
    words = list(chain.from_iterable(sentences))
    gold_words = list(chain.from_iterable(gold_sentences))
    common = set()
    longest = 0
    for gold_sentence, sentence in product(gold_sentences, sentences):
        subsequence, steps = _common_subsequence(gold_sentence, sentence)
        common |= subsequence
        longest = max(longest, steps)
    overlaps_by_kind = (
        token_overlap(set(words), set(gold_words)),
        token_overlap(set(pairwise(words)), set(pairwise(gold_words))),
        token_overlap(set(words), set(gold_words), common),
    )
    return [overlap.f1 for overlap in overlaps_by_kind], longest


def _sentences(text: str) -> list[list[str]]:
    """Return the words of each sentence between full stops. A blank sentence has the empty word."""
    sentences = [" ".join(piece.split()) for piece in text.split(".") if piece]
    return [sentence.split(" ") for sentence in sentences]


def _common_subsequence(
    target: Sequence[str],
    reply: Sequence[str],
) -> tuple[set[str], int]:
    """Return the words of the longest common subsequence that the package finds, and the number of its steps back.

    Of several such subsequences the package finds the one by shortening ``reply`` first, which matters for the set of
    words.
    """
    if not set(target) & set(reply):
        return set(), len(reply)
    above = [0] * (len(reply) + 1)
    turns = []  # the step back from each cell of the table, shape (target, reply)
    for target_word in target:
        row = [0]
        turn = bytearray(len(reply))
        for at, word in enumerate(reply):
            if word == target_word:
                row.append(above[at] + 1)
                turn[at] = _BOTH
            else:
                up = above[at + 1] > row[at]
                row.append(above[at + 1] if up else row[at])
                turn[at] = _UP if up else _LEFT
        above = row
        turns.append(turn)
    return _walk_back(target, turns)


def _walk_back(target: Sequence[str], turns: Sequence[bytearray]) -> tuple[set[str], int]:
    """Return the words at which the steps from the last cell of a table take both words, and the number of steps.

    Args:
        target: Words of the target.
        turns: The step back from each cell, shape (target, reply), neither of them empty.
    """
    words = set()
    steps = 0
    line = len(target)
    column = len(turns[0])
    while line and column:
        step = turns[line - 1][column - 1]
        if step == _BOTH:
            words.add(target[line - 1])
        line -= step != _LEFT
        column -= step != _UP
        steps += 1
    return words, steps
