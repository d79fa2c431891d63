"""Rows of JSON files: an object per line, a list of objects, or objects that are in memory already.

Errors are those of :mod:`medtasks.data.tables`.
"""

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from medtasks.data.safe_parsing import parse_json
from medtasks.data.source_files import SourceFile
from medtasks.data.tables import ReadValues, SourceRow, Table, check_columns, kind_of
from medtasks.errors import SourceError

_BLANKS = re.compile(r"[ \t\n\r]*")


def json_lines(
    file: SourceFile, columns: Sequence[str], change: Callable[[SourceRow], Mapping[str, Any]] | None = None
) -> Table:
    """Return the rows of a file of JSON objects, one per line, after a ``change``; empty lines are no rows."""

    def values(place: str, line: bytes) -> Mapping[str, Any]:
        published = _object(place, _json(place, line), columns)
        return published if change is None else change(SourceRow(place, 0, published))

    def records() -> Iterator[tuple[str, ReadValues]]:
        with file.open() as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    place = f"{file.name} row {number}"
                    yield place, functools.partial(values, place, line.strip())

    return Table(records)


def records_table(records: Iterable[tuple[str, Any]], columns: Sequence[str]) -> Table:
    """Return rows that are in memory already, each with its place for messages; every one must have ``columns``."""
    known = [(place, functools.partial(_object, place, value, columns)) for place, value in records]
    return Table(lambda: iter(known))


def read_json(file: SourceFile) -> Any:
    """Return the content of a JSON file."""
    with file.open() as stream:
        return _json(file.name, stream.read())


def listed_records(file: SourceFile, columns: Sequence[str]) -> Table:
    """Return the questions of a JSON file that is a list of objects."""
    with file.open() as stream:
        return listed_in(file.name, stream.read(), columns)


def listed_in(name: str, data: bytes, columns: Sequence[str]) -> Table:
    """Return the questions of a JSON text, the content of the file ``name``, that is a list of objects.

    Objects are read one by one: a list of 60,000 takes 100 MB.
    """
    try:
        text = data.decode(json.detect_encoding(data), "surrogatepass")
    except UnicodeDecodeError as error:
        raise SourceError(f"{name} is no JSON ({error})") from error

    def records() -> Iterator[tuple[str, ReadValues]]:
        for number, value in enumerate(_listed(name, text), 1):
            place = f"{name} row {number}"
            yield place, functools.partial(_object, place, value, columns)

    return Table(records)


def _listed(name: str, text: str) -> Iterator[Any]:
    """Yield what stands in a JSON list."""
    place = _behind_blanks(text, 0)
    if not text.startswith("[", place):
        _json(name, text)
        raise SourceError(f"{name} is not a list of questions")
    decode, more = json.JSONDecoder().raw_decode, False
    place = _behind_blanks(text, place + 1)
    while more or not text.startswith("]", place):
        try:
            value, place = decode(text, place)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{name} is no JSON ({error})") from error
        yield value
        place = _behind_blanks(text, place)
        more = text.startswith(",", place)
        if more:
            place = _behind_blanks(text, place + 1)
        elif not text.startswith("]", place):
            raise SourceError(f"{name} is no JSON (a comma is missing: char {place})")
    if _behind_blanks(text, place + 1) != len(text):
        raise SourceError(f"{name} is no JSON (something stands behind the list)")


def _behind_blanks(text: str, place: int) -> int:
    found = _BLANKS.match(text, place)
    assert found is not None  # none at all will do
    return found.end()


def _json(place: str, data: bytes | str) -> Any:
    try:
        return parse_json(data)
    except ValueError as error:
        raise SourceError(f"{place} is no JSON ({error})") from error


def _object(place: str, value: Any, columns: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise SourceError(f"{place} is {kind_of(value)} and not an object with {', '.join(columns)}")
    check_columns(place, columns, value)
    return value
