"""METEOR of reports in NLTK's formula.

Words are matched as they are, then by Porter stem, then by WordNet's synonyms; the score is a mean of precision and
recall that leans on recall, less a penalty for matches that stand in another order. Source: Lavie and Agarwal, "METEOR:
an automatic metric for MT evaluation with high levels of correlation with human judgments", 2007, as
``nltk.translate.meteor_score`` 3.10 computes it, whose numbers these are to the last bit. Two of its ways are kept:
what the second step leaves goes to the third as stems, so that synonyms are found only for words that are their own
stem; and each word takes the last match that is free, not the one that leaves fewest crossings.

METEOR 1.5 (Java, with paraphrases and other weights) is another metric.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_scores import ReportMetric, ReportScores, check_lengths, pair_metric
from medtasks.metrics.wordnet import WordNet, load_wordnet
from medtasks.metrics.words import TOKENISER, porter_stemmer, word_tokens

_ALPHA = 0.9  # weight of recall
_BETA = 3.0  # power of the fragmentation
_GAMMA = 0.5  # largest penalty

Synonyms = Callable[[str], frozenset[str]]
_Words = list[tuple[int, str]]  # words with their places in the text, in their order
_Match = tuple[int, int]  # place in the hypothesis, place in the reference


def meteor_score(
    reference_tokens: Sequence[str], hypothesis_tokens: Sequence[str], synonyms: Synonyms | None = None
) -> float:
    """Return METEOR of one pair of texts as words, which are compared in lower case.

    ``synonyms`` returns those of a word; without it words are matched as they are and by stem only. Scores are 0 to 1,
    and 0 without a match; identical texts of n words score ``1 - 0.5 / n**3``.

    Example:
        >>> meteor_score("no pleural effusion".split(), "no pleural effusions".split())
        0.9814814814814815
    """
    matches = _alignment(reference_tokens, hypothesis_tokens, synonyms)
    if not matches:
        return 0.0
    precision, recall = len(matches) / len(hypothesis_tokens), len(matches) / len(reference_tokens)
    mean = (precision * recall) / (_ALPHA * precision + (1 - _ALPHA) * recall)
    chunks = 1 + sum(later != (place + 1, other + 1) for (place, other), later in pairwise(matches))
    penalty: float = _GAMMA * (chunks / len(matches)) ** _BETA
    return (1 - penalty) * mean


def _alignment(reference: Sequence[str], hypothesis: Sequence[str], synonyms: Synonyms | None) -> list[_Match]:
    expected, said = ([(place, word.lower()) for place, word in enumerate(words)] for words in (reference, hypothesis))
    matches, expected, said = _matched(expected, said, lambda word, places: places.get(word))
    stem = porter_stemmer()
    expected, said = ([(place, stem(word)) for place, word in words] for words in (expected, said))
    by_stem, expected, said = _matched(expected, said, lambda word, places: places.get(word))
    matches += by_stem
    if synonyms is not None:
        matches += _matched(expected, said, lambda word, places: _latest(synonyms(word), places))[0]
    return sorted(matches)


def _matched(
    reference: _Words, hypothesis: _Words, find: Callable[[str, Mapping[str, list[int]]], list[int] | None]
) -> tuple[list[_Match], _Words, _Words]:
    """Match words from the end; return the matches and what is left of reference and hypothesis."""
    places = defaultdict(list)
    for place, word in reference:
        places[word].append(place)
    matches, left = [], []
    for place, word in reversed(hypothesis):
        free = find(word, places)
        if free:
            matches.append((place, free.pop()))
        else:
            left.append((place, word))
    taken = {place for _, place in matches}
    return matches, [(place, word) for place, word in reference if place not in taken], left[::-1]


def _latest(words: frozenset[str], places: Mapping[str, list[int]]) -> list[int] | None:
    return max(
        (places[word] for word in words.intersection(places) if places[word]), key=lambda free: free[-1], default=None
    )


def meteor(_: ModelSettings) -> ReportMetric:
    """Return the metric with key ``meteor``: the mean of :func:`meteor_score` with WordNet.

    Scoring raises :class:`~medtasks.errors.WeightsMissing` where WordNet is not on this machine.
    """
    return _metric("meteor", load_wordnet)


def meteor_without_synonyms(_: ModelSettings) -> ReportMetric:
    """Return the metric with key ``meteor_without_synonyms``, which needs no data."""
    return _metric("meteor_without_synonyms", lambda: None)


def _metric(key: str, load: Callable[[], WordNet | None]) -> ReportMetric:
    def score_pairs(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        check_lengths(references, hypotheses)
        wordnet = load()
        synonyms = wordnet.synonyms if wordnet else None

        def score(reference: str, hypothesis: str) -> tuple[float]:
            return (meteor_score(word_tokens(reference), word_tokens(hypothesis), synonyms),)

        settings = {
            "words": TOKENISER,
            "formula": f"NLTK, alpha {_ALPHA:g}, beta {_BETA:g}, gamma {_GAMMA:g}",
            "stemmer": "Porter",
            "synonyms": f"WordNet {wordnet.version}" if wordnet else "none",
        }
        return pair_metric((key,), score, settings)(references=references, hypotheses=hypotheses)

    return score_pairs
