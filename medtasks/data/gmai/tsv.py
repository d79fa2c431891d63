"""Reading a TSV of several gigabytes row by row, as pandas writes it: fields with tabs, quotes or new lines are quoted.

The csv module looks at every character, and most of these files is base64 in fields of megabytes. So a line without a
quotation mark is only cut at its tabs.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from medtasks.errors import SourceError

_BUFFER = 1 << 20  # bytes
_FIELD = re.compile(rb'(?:"((?:[^"]|"")*+)"|((?!")[^\t]*))(\t|\Z)')  # quoted or plain


@dataclass(frozen=True)
class TsvRow:
    """One row."""

    number: int  # row, counted from 1 without the header
    values: Mapping[str, bytes]  # by column; empty ones are left out, so that ``None`` and ``NA`` stay words
    end: int  # bytes of the file up to the end of the row
    fault: str = ""  # what is wrong with the row as a whole, or nothing


class TsvFile:
    """A TSV file that is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._md5 = hashlib.md5(usedforsecurity=False)

    @property
    def md5(self) -> str:
        """MD5 of the bytes read so far; of the whole file after the last row."""
        return self._md5.hexdigest()

    def rows(self) -> Iterator[TsvRow]:
        """Read rows in order; one with another number of fields than the header has a fault and no values."""
        with self.path.open("rb", buffering=_BUFFER) as stream:
            records = self._records(stream)
            header = next(records, b"")
            columns = _columns(self.path, header)
            end = len(header)
            for number, record in enumerate(records, 1):
                end += len(record)
                yield _row(number, record, columns, end)

    def _records(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Yield records with their line ends; one goes on over a line end while a quotation is open."""
        for first in stream:
            record = first
            self._md5.update(first)
            while record.count(b'"') % 2:
                more = stream.readline()
                if not more:
                    break
                self._md5.update(more)
                record += more
            yield record


def _columns(path: Path, header: bytes) -> list[str]:
    """Return normalised column names: lower case, but for the capitals that name options."""
    try:
        names = [name.decode("utf-8-sig").strip() for name in _fields(header) or []]
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is no UTF-8 text; is it the benchmark's TSV file?") from error
    columns = [name if re.fullmatch("[A-Z]", name) else name.lower() for name in names]
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if not header.strip() or twice:
        what = f"names the column '{twice[0]}' twice" if twice else "has no header"
        raise SourceError(f"{path} {what}; is it the benchmark's TSV file?")
    return columns


def _row(number: int, record: bytes, columns: list[str], end: int) -> TsvRow:
    fields = _fields(record)
    if fields is None or len(fields) != len(columns):
        what = "an open quotation" if fields is None else f"{len(fields)} of {len(columns)} fields"
        cut = " and no line end, the file seems to be cut there" if not record.endswith(b"\n") else ""
        return TsvRow(number, {}, end, f"it has {what}{cut}")
    return TsvRow(number, {column: field for column, field in zip(columns, fields, strict=True) if field}, end)


def _fields(record: bytes) -> list[bytes] | None:
    """Cut a record at its tabs; None where a quotation is left open or does not end at a tab."""
    record = record.removesuffix(b"\n").removesuffix(b"\r")
    if b'"' not in record:
        return record.split(b"\t")
    fields, position = [], 0
    while field := _FIELD.match(record, position):
        quoted, plain, tab = field.groups()
        fields.append(plain if quoted is None else quoted.replace(b'""', b'"'))
        if not tab:
            return fields
        position = field.end()
    return None
