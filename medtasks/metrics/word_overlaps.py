"""What lexical metrics are made of: words as NLTK parts them, their stems, and n-grams that two texts share.

Where NLTK is not installed, words and stems raise what :func:`from_report_extra` does.
"""

import importlib
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from medtasks.errors import MedTasksError

TOKENISER = "sentences end after . ! ? before white space; words by NLTKWordTokenizer"

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def from_report_extra(module: str, needed_by: str) -> Any:
    """Import a module that ``medtasks[report]`` brings, or raise what says how to bring it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MedTasksError(f"{needed_by} needs {package}; bring it with: pip install 'medtasks[report]'") from error


def word_tokens(text: str) -> list[str]:
    """Return the words and marks of a text, with case, without NLTK's data.

    ``nltk.word_tokenize`` finds sentences with a trained model that must be downloaded, then parts each into words by
    rules. Here a sentence ends after ``.``, ``!`` or ``?`` before white space, and the rules are NLTK's own. The two
    differ where the model does not take a full stop for an end, as in ``Dr. Smith``, which is ``Dr . Smith`` here.

    Example:
        >>> word_tokens("No effusion, no mass. Heart isn't enlarged (2.5 cm).")
        ['No', 'effusion', ',', 'no', 'mass', '.', 'Heart', 'is', "n't", 'enlarged', '(', '2.5', 'cm', ')', '.']
    """
    return [word for sentence in _SENTENCE_END.split(text) for word in _sentence_words(sentence)]


@lru_cache(maxsize=1 << 16)
def _sentence_words(sentence: str) -> tuple[str, ...]:
    tokenizer = from_report_extra("nltk.tokenize.destructive", "parting words").NLTKWordTokenizer()
    return tuple(tokenizer.tokenize(sentence))


@lru_cache(maxsize=1)
def porter_stemmer() -> Any:
    """Return NLTK's Porter stemmer with its extensions, which ROUGE and METEOR use; ``stem`` has a memory for words."""
    stemmer = from_report_extra("nltk.stem.porter", "Porter's stemmer").PorterStemmer()
    stemmer.stem = lru_cache(maxsize=1 << 17)(stemmer.stem)
    return stemmer


class NgramOverlap(NamedTuple):
    """Numbers of n-grams of one order in two texts, and of those that both have, at most as often as in either."""

    matches: int
    reference: int
    hypothesis: int


def _ngrams(tokens: Sequence[str], order: int) -> Counter[Any]:
    if order == 1:
        return Counter(tokens)
    return Counter(zip(*(tokens[start:] for start in range(order)), strict=False))


def overlap(reference: Sequence[str], hypothesis: Sequence[str], order: int) -> NgramOverlap:
    """Count the n-grams of ``order`` words, 1 or more, in two texts."""
    wanted, said = _ngrams(reference, order), _ngrams(hypothesis, order)
    matches = sum(min(count, said[gram]) for gram, count in wanted.items() if gram in said)
    return NgramOverlap(matches, max(0, len(reference) - order + 1), max(0, len(hypothesis) - order + 1))


def overlaps(reference: Sequence[str], hypothesis: Sequence[str], orders: int) -> tuple[NgramOverlap, ...]:
    """Count the n-grams of orders 1 to ``orders`` in two texts, shape (orders,)."""
    return tuple(overlap(reference, hypothesis, order) for order in range(1, orders + 1))
