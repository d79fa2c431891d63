"""Stems of English words: singular, in American spelling, without possessives."""

import re
import unicodedata
from functools import lru_cache

from medtasks.extract.reading.negation import Mention

_WORD = re.compile(r"[^\W_]+(?:['’]s\b)?")
_ARTICLES = frozenset({"a", "an", "the"})
_ENDINGS = {
    "oses": "osis",
    "nevi": "nevus",
    "isation": "ization",
    "tumour": "tumor",
    "leucocyte": "leukocyte",
}
_SINGULAR_ENDINGS = ("ss", "is", "us", "ses")
_LONG = 3  # letters; shorter words have no plural


def words(text: str) -> list[Mention[str]]:
    """Return the stems of a text's words, without articles."""
    mentions = [Mention(stem(match[0]), *match.span()) for match in _WORD.finditer(text)]
    return [word for word in mentions if word.what not in _ARTICLES]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Return a word in lower case, singular, and in American spelling.

    Example:
        >>> stem("Oedemas"), stem("tumour"), stem("diagnosis")
        ('edema', 'tumor', 'diagnosis')
    """
    plain = unicodedata.normalize("NFKC", word).casefold()
    plain = plain.replace("’", "'").removesuffix("'s")
    plain = re.sub("[ao]e", "e", plain)
    if len(plain) > _LONG and not plain.endswith(_SINGULAR_ENDINGS):
        plain = plain.removesuffix("s")
    for ending, usual in _ENDINGS.items():
        if plain.endswith(ending):
            return plain.removesuffix(ending) + usual
    return plain
