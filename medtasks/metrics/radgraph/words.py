"""A report as the words that RadGraph labels.

Source: ``preprocess_reports`` and ``DyGIEReader`` of the ``radgraph`` package, version 0.1.18, whose two models split
differently. Both give words without white space in them, so the words joined with spaces stand for the report.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

import regex  # type: ignore[import-untyped]

ModelType = Literal["radgraph", "radgraph-xl"]

_SEPARATORS = re.compile(r"([/,:.!?()])")
# NLTK's wordpunct_tokenize, which matches with this engine from 3.10 on. Before, with Python's own, the ² of cm² and
# the ½ of 2½ were one word with what they follow, and combining accents words of their own.
_RUNS = regex.compile(r"\w+|[^\w\s]+")
# The package looks for these as written, backslash and letters, such as a careless export leaves them in a text.
_WRITTEN_ESCAPES = (("\\n", " "), ("\\f", " "), ("\\u2122", " "), ('\\"', "``"))
_PARTED_RUNS = ((").", ") ."), ("%.", "% ."), (".'", ". '"), ("%,", "% ,"), ("%)", "% )"))
_READ_AS = {"/.": ".", "/?": "?"}


def split_v1(text: str) -> list[str]:
    """Split at white space and around each of ``/ , : . ! ? ( )``.

    Example:
        >>> split_v1("T-tube (3.5cm):  low.")
        ['T-tube', '(', '3', '.', '5cm', ')', ':', 'low', '.']
    """
    return _SEPARATORS.sub(r" \1 ", text).split()


def split_xl(text: str) -> list[str]:
    """Split into runs of letters and digits and runs of other characters, with some runs parted further.

    Example:
        >>> split_xl("T-tube (95%). Low...")
        ['T', '-', 'tube', '(', '95', '%', ')', '.', 'Low', '...']
    """
    for written, meant in _WRITTEN_ESCAPES:
        text = text.replace(written, meant)
    joined = " ".join(_RUNS.findall(" ".join(text.split())))
    for run, parts in _PARTED_RUNS:
        joined = joined.replace(run, parts)
    return joined.split()


SPLIT: Mapping[ModelType, Callable[[str], list[str]]] = MappingProxyType(
    {"radgraph": split_v1, "radgraph-xl": split_xl}
)


def as_read(word: str) -> str:
    """Return what the encoder reads in place of a word; annotations keep the word itself."""
    return _READ_AS.get(word, word)
