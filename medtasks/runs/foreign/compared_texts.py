"""Forms of texts, options and image names in which rows of a file are compared with samples."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from medtasks.data.option_texts import without_marks
from medtasks.runs.asked_questions import number_of

Options = tuple[str, ...]
"""Options in comparable form."""
_IMAGE_MARK = re.compile(r"<image(?:[ _]?\d+)?>", re.IGNORECASE)
# as in MedXpertQA's questions
_REPEATED_OPTIONS = re.compile(r"\n\s*answer choices:.*", re.IGNORECASE | re.DOTALL)
_IMAGE_ENDING = re.compile(
    r"\.(?:png|jpe?g|gif|bmp|tiff?|webp|dcm|nii(?:\.gz)?)$", re.IGNORECASE
)
# Texts that table readers take for an empty cell.
_BLANK = frozenset(("", "none", "na", "n/a", "#na", "#n/a", "nan", "-nan", "null", "<na>"))
_WORDS = frozenset(("yes", "no", "maybe"))


def comparable(text: str) -> str:
    """Return a text without differences of case, white space, Unicode composition and marks of images.

    Example:
        >>> comparable("<image 1> Where  does it end? "), comparable("10²")
        ('where does it end?', '10²')
    """
    plain = unicodedata.normalize("NFC", _IMAGE_MARK.sub(" ", text)).casefold()
    return " ".join(unicodedata.normalize("NFC", plain).split())


def comparable_question(text: str) -> str:
    r"""Return a question in comparable form, without the options that some benchmarks repeat in it.

    Example:
        >>> comparable_question("Which  lobe?\nAnswer Choices: (A) upper (B) lower")
        'which lobe?'
    """
    return comparable(_REPEATED_OPTIONS.sub("", text))


def shown_options(options: Iterable[str]) -> Options:
    """Return options in comparable form without their letters, as a prompt shows them.

    Example:
        >>> shown_options(["A. Left", "B. Right"])
        ('left', 'right')
    """
    texts = list(options)
    return tuple(map(comparable, without_marks(texts) or texts))


def with_equal_numbers(options: Iterable[str]) -> Options:
    """Return shown options with numbers in one form: ``5.0`` like ``5``.

    Example:
        >>> with_equal_numbers(["5.0", "5 cm"])
        ('5.', '5 cm')
    """
    return tuple(number_of(text) or text for text in options)


def comparable_options(options: Iterable[str]) -> Options:
    """Return options in the form in which lists of them are compared.

    Example:
        >>> comparable_options(["(A) 5.0", "(B) Mass"])
        ('5.', 'mass')
    """
    return with_equal_numbers(shown_options(options))


def with_blanks(options: Sequence[str]) -> Options:
    """Return comparable options as a table has them whose reader takes texts such as ``None`` for empty cells.

    Example:
        >>> with_blanks(["mass", "none", "nodule", "n/a"])
        ('mass', '', 'nodule')
    """
    texts = ["" if text in _BLANK else text for text in options]
    while texts and not texts[-1]:
        texts.pop()
    return tuple(texts)


def are_words(options: Sequence[str]) -> bool:
    """Return whether options are answers in words, yes or no, that a prompt need not list.

    Example:
        >>> are_words(("yes", "no")), are_words(("yes", "left"))
        (True, False)
    """
    return _WORDS.issuperset(options)


def image_name(file: str) -> str:
    """Return the last part of an image's path, without the ending of its format.

    Example:
        >>> image_name("images/Chest 1.PNG")
        'chest 1'
    """
    name = file.replace("\\", "/").rpartition("/")[2]
    return _IMAGE_ENDING.sub("", name).casefold()
