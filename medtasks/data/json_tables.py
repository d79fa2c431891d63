"""Rows of JSON files: an object per line, a list of objects, or objects that are in memory already.

Errors are those of :mod:`medtasks.data.tables`.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from medtasks.data.safe_parsing import parse_json
from medtasks.data.source_files import SourceFile
from medtasks.data.tables import ReadValues, SourceRow, Table, check_columns, kind_of
from medtasks.errors import SourceError


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
    """Return the questions of a JSON text, the content of the file ``name``, that is a list of objects."""
    values = _json(name, data)
    if not isinstance(values, list):
        raise SourceError(f"{name} is not a list of questions")
    return records_table(((f"{name} row {number}", value) for number, value in enumerate(values, 1)), columns)


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
