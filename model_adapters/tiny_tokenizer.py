"""A tokenizer of single characters, so that the replies of a random model can be read."""

from collections.abc import Sequence
from typing import Final

PAD_ID: Final = 0
UNKNOWN_ID: Final = 1
BEGIN_ID: Final = 2
END_ID: Final = 3
IMAGE_ID: Final = 4
SPECIAL_TOKENS: Final = 5

CHARACTERS: Final = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
VOCABULARY_SIZE: Final = SPECIAL_TOKENS + len(CHARACTERS)
_IDS: Final = {character: SPECIAL_TOKENS + place for place, character in enumerate(CHARACTERS)}


def text_to_ids(text: str) -> list[int]:
    """Return one id per character; what is not printable ASCII or a new line becomes the unknown token.

    Example:
        >>> ids_to_text(text_to_ids("A: no"))
        'A: no'
    """
    return [_IDS.get(character, UNKNOWN_ID) for character in text]


def ids_to_text(ids: Sequence[int]) -> str:
    """Return the characters of ``ids``, special tokens left out."""
    return "".join(CHARACTERS[token - SPECIAL_TOKENS] for token in ids if token >= SPECIAL_TOKENS)
