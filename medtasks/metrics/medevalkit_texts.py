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
from itertools import pairwise, product

from medtasks.metrics.meteor import load_wordnet, meteor_score
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.ngram_metrics import bleu_from_counts, overlap_f1, overlaps, token_overlap
from medtasks.metrics.report_metrics import ReportScores, mean_scores

MEASURES = (
    *(f"bleu_{order}" for order in range(1, 5)),
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

    measures: Mapping[
        str, float
    ]  # 0 to 1 by the names of ``MEASURES``; all 0 if one of the texts has no words
    stops: str | None  # why the published code raises, without a word of the texts


def compare_answer(reply: str, gold: str) -> TextComparison:
    """Compare an answer with its gold, without case.

    - ``bleu_1`` to ``bleu_4``: words between single blanks, also empty ones, and before full stops; not smoothed, an
      order without a match counting as 2.2e-308, so that a perfect answer of one word has a ``bleu_2`` of 1.5e-154.
    - ``rouge_1``, ``rouge_2``: F of the *sets* of n-grams, 0.999999995 for equal ones. ``rouge_l``: F of the set of
      words on a longest common subsequence of any sentence of the gold with any of the answer.
    - ``precision``, ``recall``, ``f1``: of the sets of words between white space.
    """
    reply, gold = reply.lower(), gold.lower()
    words, gold_words = set(reply.split()), set(gold.split())
    for metric, texts in (
        ("ROUGE", (reply.strip("."), gold.strip("."))),
        ("F1", (words, gold_words)),
    ):
        if not all(texts):
            return TextComparison(
                dict.fromkeys(MEASURES, 0.0),
                f"the {'gold' if texts[0] else 'reply'} has no words for {metric}",
            )
    rouge, steps = _rouge(reply, gold)
    shared = token_overlap(words, gold_words)
    # Empty words between blanks count, too, but not in reports.
    bleu = _bleu(*(text.replace(".", " .").split(" ") for text in (reply, gold)))
    values = (*bleu, *rouge, shared.precision, shared.recall, overlap_f1(words, gold_words))
    return TextComparison(
        dict(zip(MEASURES, values, strict=True)), _TOO_LONG if steps > _MOST_STEPS else None
    )


def medevalkit_lexical(
    _: ModelSettings, references: Sequence[str], hypotheses: Sequence[str]
) -> ReportScores:
    """Score BLEU-1 to BLEU-4 and ROUGE of reports; an empty hypothesis scores 0, as the published means count it."""
    names = [*(f"bleu_{order}" for order in range(1, 5)), *(f"rouge_{kind}" for kind in "12l")]
    rows = [
        (
            *_bleu(report_words(hypothesis), report_words(reference)),
            *_rouge(hypothesis.lower(), reference.lower())[0],
        )
        if hypothesis
        else [0.0] * len(names)
        for reference, hypothesis in zip(references, hypotheses, strict=True)
    ]
    samples = {f"medevalkit_{name}": [row[at] for row in rows] for at, name in enumerate(names)}
    return mean_scores(
        samples, {"words": _WORDS, "BLEU": "not smoothed", "ROUGE": "F1 of sets of n-grams"}
    )


def medevalkit_meteor(
    _: ModelSettings, references: Sequence[str], hypotheses: Sequence[str]
) -> ReportScores:
    """Score METEOR of reports with WordNet, on the words of their BLEU; an empty hypothesis scores 0."""
    wordnet = load_wordnet()
    values = [
        meteor_score(report_words(reference), report_words(hypothesis), wordnet)
        if hypothesis
        else 0.0
        for reference, hypothesis in zip(references, hypotheses, strict=True)
    ]
    version = f"WordNet {wordnet.get_version() or 'of unknown version'}"
    return mean_scores(
        {"medevalkit_meteor": values}, {"words": _WORDS, "stemmer": "Porter", "synonyms": version}
    )


def rouge_stop(reply: str, gold: str) -> str | None:
    """Return why the published ROUGE raises for a reply, without a word of it; None where it does not."""
    if not reply.strip("."):
        return "the reply has no words for ROUGE"
    if len(reply.split()) + len(gold.split()) <= _MOST_STEPS:  # there are at most as many steps
        return None
    _, steps = _rouge(reply.lower(), gold.lower())
    return _TOO_LONG if steps > _MOST_STEPS else None


def report_words(text: str) -> list[str]:
    """Return the words of a report in lower case; a line break is part of a word."""
    return [word for word in text.lower().replace(".", " .").split(" ") if word]


def _bleu(words: Sequence[str], gold_words: Sequence[str]) -> list[float]:
    """Return BLEU-1 to BLEU-4 of the words of two texts."""
    counts = overlaps(gold_words, words, 4)
    least = [sys.float_info.min * max(1, count.hypothesis) for count in counts if not count.matches]
    return [bleu_from_counts(counts[:order], least) for order in range(1, 5)]


def _rouge(reply: str, gold: str) -> tuple[list[float], int]:
    """Return ROUGE-1, ROUGE-2 and ROUGE-L of texts in lower case, and the most steps back of any two sentences."""
    if not reply.strip(".") or not gold.strip("."):
        return [0.0] * 3, 0
    # A sentence between full stops that is blank has the empty word.
    sentences, gold_sentences = (
        [" ".join(piece.split()).split(" ") for piece in text.split(".") if piece]
        for text in (reply, gold)
    )
    spoken, expected = (
        [word for sentence in side for word in sentence] for side in (sentences, gold_sentences)
    )
    common: set[str] = set()
    longest = 0
    for gold_sentence, sentence in product(gold_sentences, sentences):
        subsequence, steps = _common_subsequence(gold_sentence, sentence)
        common |= subsequence
        longest = max(longest, steps)
    overlap = (
        token_overlap(set(spoken), set(expected)),
        token_overlap(set(pairwise(spoken)), set(pairwise(expected))),
        token_overlap(set(spoken), set(expected), common),
    )
    return [shares.f1 for shares in overlap], longest


def _common_subsequence(target: Sequence[str], reply: Sequence[str]) -> tuple[set[str], int]:
    """Return the words of the longest common subsequence that the package finds, and its steps back.

    Of several it is the one found by shortening ``reply`` first, which matters for the set of words.
    """
    if not set(target) & set(reply):
        return set(), len(reply)
    above = [0] * (len(reply) + 1)
    turns = []
    for target_word in target:
        row, turn = [0], bytearray(len(reply))
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
    words: set[str] = set()
    steps, line, column = 0, len(turns), len(reply)
    while line and column:
        step = turns[line - 1][column - 1]
        if step == _BOTH:
            words.add(target[line - 1])
        line -= step != _LEFT
        column -= step != _UP
        steps += 1
    return words, steps
