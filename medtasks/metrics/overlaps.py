"""Words of texts, and overlaps of two texts: as sets of tokens or letters, and as n-grams.

Sources: MultiMedEval (Royer et al.), ``VQA.evaluate`` in ``multimedeval/task_families.py`` of
https://github.com/corentin-ryr/MultiMedEval at d9ac283. A question is *closed* when its cleaned target is "yes" or
"no", whatever the dataset says; all others are *open*, also "left or right?". Chen et al., "GMAI-MMBench", 2024,
equations 2 and 3, for several right options: precision is ``ACC_mcls`` and recall ``Recall_mcls``. The paper does not
say how cases are averaged; here it is their mean. Listing every option has a recall of 1.
"""

import importlib
import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from medtasks.errors import MedTasksError

TOKENISER = "sentences end after . ! ? before white space; words by NLTKWordTokenizer"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class TokenOverlap:
    """Agreement of two sets of tokens; every value is between 0 and 1, and 0 for a set without tokens."""

    precision: float  # share of the reply's tokens that the target has
    recall: float  # share of the target's tokens that the reply has
    f1: float  # harmonic mean, with 1e-8 added to its denominator: two equal sets score 0.999999995


def token_overlap(reply: Set[object], target: Set[object], shared: Set[object] | None = None) -> TokenOverlap:
    """Compare the tokens of a reply with those of the target; ``shared`` are by default all that both have."""
    common = len(reply & target if shared is None else shared)
    precision = common / len(reply) if reply else 0.0
    recall = common / len(target) if target else 0.0
    return TokenOverlap(precision, recall, 2 * (precision * recall) / (precision + recall + 1e-8))


def overlap_f1(first: Set[object], second: Set[object]) -> float:
    """Return the F1 of two sets: 2 |A and B| / (|A| + |B|); 0 if both are empty."""
    size = len(first) + len(second)
    return 2 * len(first & second) / size if size else 0.0


def is_closed(cleaned_target: str) -> bool:
    """Return whether a question is closed, by its target in lower case with single blanks and no punctuation."""
    return cleaned_target in ("yes", "no")


def closed_correct(reply: Set[str], cleaned_target: str) -> bool:
    """Return whether a reply to a closed question is right for the reference: the target is among its tokens.

    For "no", "not" is right, too. A reply with both "yes" and "no" is right whatever the target.
    """
    accepted = {"no", "not"} if cleaned_target == "no" else {cleaned_target}
    return len(reply & accepted) / len(accepted) >= 0.4  # the paper says 0.5; the share can only be 0, 0.5 or 1


def open_correct(recall: float) -> bool:
    """Return whether a reply to an open question is right: it has at least three quarters of the target's tokens."""
    return recall >= 0.75


def from_report_extra(module: str, needed_by: str) -> Any:
    """Import a module of ``medtasks[report]``, or raise a MedTasksError with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MedTasksError(f"{needed_by} needs {package}; install it with: pip install 'medtasks[report]'") from error


def word_tokens(text: str) -> list[str]:
    """Return the words and marks of a text, with case, without NLTK's data.

    ``nltk.word_tokenize`` finds sentences with a trained model that must be downloaded. Here a sentence ends after
    ``.``, ``!`` or ``?`` before white space: ``Dr. Smith`` is ``Dr . Smith``. The rules for words are NLTK's own.
    """
    return [word for sentence in _SENTENCE_END.split(text) for word in _sentence_words(sentence)]


@lru_cache(maxsize=1 << 16)
def _sentence_words(sentence: str) -> tuple[str, ...]:
    tokenizer = from_report_extra("nltk.tokenize.destructive", "splitting words").NLTKWordTokenizer()
    return tuple(tokenizer.tokenize(sentence))


@lru_cache(maxsize=1)
def porter_stemmer() -> Any:
    """Return NLTK's Porter stemmer with its extensions, for ROUGE and METEOR; ``stem`` is cached."""
    stemmer = from_report_extra("nltk.stem.porter", "Porter's stemmer").PorterStemmer()
    stemmer.stem = lru_cache(maxsize=1 << 17)(stemmer.stem)
    return stemmer


class NgramOverlap(NamedTuple):
    """Numbers of n-grams of one order: common ones, at most as often as in either text, and those of each text."""

    matches: int
    reference: int
    hypothesis: int


def overlaps(reference: Sequence[str], hypothesis: Sequence[str], orders: int) -> tuple[NgramOverlap, ...]:
    """Count the n-grams of orders 1 to ``orders`` in two texts, shape (orders,)."""
    counts = []
    for order in range(1, orders + 1):
        expected, present = (
            Counter[Any](tokens)
            if order == 1
            else Counter(zip(*(tokens[start:] for start in range(order)), strict=False))
            for tokens in (reference, hypothesis)
        )
        matches = sum(min(count, present[gram]) for gram, count in expected.items() if gram in present)
        lengths = [max(0, len(tokens) - order + 1) for tokens in (reference, hypothesis)]
        counts.append(NgramOverlap(matches, *lengths))
    return tuple(counts)
