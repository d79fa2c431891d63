"""Words of a text as NLTK parts them, without NLTK's data and at a fraction of its time.

``nltk.word_tokenize`` finds sentences with a trained model that must be downloaded, then parts each into words by
rules. Here a sentence ends after ``.``, ``!`` or ``?`` before white space, and the rules are NLTK's own. The two differ
where the model does not take a full stop for an end, as in ``Dr. Smith``, which is ``Dr . Smith`` here.
"""

import re
from collections.abc import Callable
from functools import lru_cache

from medtasks.errors import MedTasksError

TOKENISER = "sentences end after . ! ? before white space; words by NLTKWordTokenizer"

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
# Sentences for which a few of NLTK's two dozen substitutions are enough: ASCII without quotation marks; hyphens, stops
# and apostrophes only inside words; commas and colons only before a digit or white space.
_PLAIN = re.compile(
    r"(?:[A-Za-z0-9_/ \t\n;@#$%&()\[\]{}<>*]++|(?<=[A-Za-z0-9_])[-.'](?=[A-Za-z0-9_])|[:,](?=[0-9 \t\n]|\Z))*+[.!?]?"
)
_PARTED = re.compile(r"[;@#$%&()\[\]{}<>*]|[:,](?![0-9])")
_CLITICS = (
    re.compile(r"(?<=[^'\s])('[sSmMdD])(?=\s)"),
    re.compile(r"(?<=[^'\s])('(?:ll|LL|re|RE|ve|VE)|n't|N'T)(?=\s)"),
)
_CONTRACTED = ("cannot", "gimme", "gonna", "gotta", "lemme", "wanna", "d'ye", "more'n")


def word_tokens(text: str) -> list[str]:
    """Return the words and marks of a text, with case.

    Raises:
        MedTasksError: NLTK is not installed.

    Example:
        >>> word_tokens("No effusion, no mass. Heart isn't enlarged (2.5 cm).")
        ['No', 'effusion', ',', 'no', 'mass', '.', 'Heart', 'is', "n't", 'enlarged', '(', '2.5', 'cm', ')', '.']
    """
    by_rules = _nltk_rules()
    words: list[str] = []
    for sentence in _SENTENCE_END.split(text):
        words += _plain_words(sentence) if _is_plain(sentence) else by_rules(sentence)
    return words


def _is_plain(sentence: str) -> bool:
    lowered = sentence.lower()
    return _PLAIN.fullmatch(sentence) is not None and not any(word in lowered for word in _CONTRACTED)


def _plain_words(sentence: str) -> list[str]:
    mark = sentence[-1:] if sentence.endswith((".", "!", "?")) else ""
    parted = _PARTED.sub(r" \g<0> ", sentence.removesuffix(mark)) + f" {mark} "
    if "'" in parted:
        for clitic in _CLITICS:
            parted = clitic.sub(r" \1", parted)
    return parted.split()


@lru_cache(maxsize=1)
def _nltk_rules() -> Callable[[str], tuple[str, ...]]:
    """Return NLTK's rules for one sentence, with a memory, because reports repeat sentences."""
    try:
        from nltk.tokenize.destructive import NLTKWordTokenizer
    except ImportError as error:
        raise MedTasksError("parting words needs nltk; bring it with: pip install 'medtasks[report]'") from error
    tokenize = NLTKWordTokenizer().tokenize
    return lru_cache(maxsize=1 << 14)(lambda sentence: tuple(tokenize(sentence)))
