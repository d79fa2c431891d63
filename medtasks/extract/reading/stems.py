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
_LONG = 3  # letters; shorter words have no plural


def words(text: str) -> list[Mention[str]]:
    """Return the stems of a text's words, without articles."""
    stems = (Mention(stem(match[0]), match.start(), match.end()) for match in _WORD.finditer(text))
    return [word for word in stems if word.what not in _ARTICLES]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Return a word in lower case, singular, and in American spelling."""
    plain = unicodedata.normalize("NFKC", word).casefold().replace("’", "'").removesuffix("'s")
    plain = re.sub("[ao]e", "e", plain)
    is_plural = (
        len(plain) > _LONG and plain.endswith("s") and not plain.endswith(("ss", "is", "us", "ses"))
    )
    plain = plain[:-1] if is_plural else plain
    ending = next(filter(plain.endswith, _ENDINGS), "")
    return plain.removesuffix(ending) + _ENDINGS.get(ending, "")
