"""Columns that question types need: what each holds in words, and how its values are checked and read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from medtasks.data.samples import first_letters

Check = Callable[[Any, Any], bool]  # of a value or an entry, and the options of its sample


@dataclass(frozen=True, eq=False)
class Column:
    """Content of a column, the same in every row.

    A question type may have a column of its own:

        LENGTH = Column("a length in mm", lambda value, _: isinstance(value, float), read=to_number)
    """

    words: str  # after "needs" in a message
    # Of a list: whether there are enough entries.
    is_valid: Check = lambda _value, _options: True
    is_entry: Check | None = None  # of each entry, where the column holds lists
    # From the forms in which people write it; others as they are.
    read: Callable[[Any], Any] | None = None

    TEXT: ClassVar["Column"]
    TEXTS: ClassVar["Column"]
    OPTIONS: ClassVar["Column"]
    LETTER: ClassVar["Column"]
    LETTERS: ClassVar["Column"]
    LABEL: ClassVar["Column"]
    LABELS: ClassVar["Column"]
    LETTER_OR_NOTHING: ClassVar["Column"]
    POSITION: ClassVar["Column"]
    YES_NO: ClassVar["Column"]
    ID: ClassVar["Column"]
    ANYTHING: ClassVar["Column"]

    def holds(self, value: Any, options: Any) -> bool:
        """Return whether a value is what the column needs, for a sample with these options.

        Example:
            >>> Column.LABELS.holds([1, 0], ["cyst", "scar"]), Column.LETTER.holds("C", ["cyst", "scar"])
            (True, False)
        """
        if self.is_entry is not None:
            if not isinstance(value, list):
                return False
            if not all(self.is_entry(entry, options) for entry in value):
                return False
        return self.is_valid(value, options)


Columns = Mapping[str, Column]
"""Columns by name."""


def _is_text(value: Any, _options: Any) -> bool:
    return isinstance(value, str)


def _is_letter(value: Any, options: Any) -> bool:
    return value in first_letters(len(options or ()))


def _is_number(
    value: Any,
    least: int,
    most: int,
) -> bool:
    return type(value) is int and least <= value <= most


Column.TEXT = Column("a text", _is_text)
Column.TEXTS = Column("a list of texts", is_entry=_is_text)
Column.OPTIONS = Column(
    "a list of at least two texts (in one cell as JSON, or a column for each)",
    lambda value, _: len(value) > 1,
    lambda entry, _: isinstance(entry, str) and bool(entry.strip()),
)
Column.LETTER = Column("the letter of one of the options", _is_letter)
Column.LETTERS = Column(
    "a list of letters of the options", lambda value, _: len(value) > 0, _is_letter
)
Column.LABEL = Column(
    "the number of one of the options, counted from 0",
    lambda value, options: _is_number(value, 0, len(options or ()) - 1),
)
Column.LABELS = Column(
    "a list with 0 or 1 for each of the options",
    lambda value, options: len(value) == len(options or ()),
    lambda entry, _: _is_number(entry, 0, 1),
)
Column.LETTER_OR_NOTHING = Column(
    "the letter of one of the options, or nothing",
    lambda value, options: value is None or _is_letter(value, options),
)
Column.POSITION = Column("1 or 2", lambda value, _: _is_number(value, 1, 2))
Column.YES_NO = Column(
    "yes or no",
    lambda value, _: isinstance(value, str) and value.strip().casefold() in ("yes", "no"),
)
Column.ID = Column("a text or a number", lambda value, _: value is not None)
Column.ANYTHING = Column("anything")
