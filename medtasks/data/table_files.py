"""Tables that people keep: CSV, Excel workbooks and JSON, with every cell as it is written.

No type is guessed: a cell of CSV or of a workbook is a text, and an empty one is None. The first row with any text has
the names of the columns. What a file holds is told by its content first, then by its name.
"""

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from medtasks.data.safe_parsing import parse_json
from medtasks.errors import SourceError, several

TABLE_ENDINGS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".xlsx": "excel",
    ".xlsm": "excel",
}
"""Formats by the ending of a file's name."""
PARQUET_MARK = b"PAR1"
_OTHER_FILES = {
    b"\xd0\xcf\x11\xe0": "a workbook of an old Excel, or one with a password; save it as .xlsx without one",
    b"<": "a web page; download the file itself, or save the table as .xlsx or CSV",
    b"version https://git-lfs": "only the pointer to a file; fetch it with 'git lfs pull'",
}
_PACKED = {b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress, b"\xfd7zXZ": lzma.decompress}
_MARKED = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_SEPARATORS = ",;\t|"  # of equally likely ones the first
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?\n')  # with which Excel marks a CSV file
_FOREIGN_WORD = re.compile(r"[^\x00-\x7f]{4}")  # no word of a western European language in Windows-1252
_SIMPLE_FORMAT = re.compile(r"(0+)(?:\.(0+))?(%?)")  # of a number in a workbook, such as 000 or 0.00


@dataclass(frozen=True)
class TableRow:
    """One row."""

    place: str  # file and row, or line, as a person counts them
    values: dict[str, Any]


@dataclass(frozen=True)
class TableFile:
    """Rows of a file, and how it was read where that is not plain."""

    rows: list[TableRow]
    notes: list[str]


@dataclass(frozen=True)
class ReadingOptions:
    """Choices of a user; what is empty is recognised."""

    encoding: str = ""
    sep: str = ""
    sheet_name: str = ""
    field: str = ""  # of a JSON object that holds the list of rows


def read_table(path: Path, kind: str = "csv", options: ReadingOptions | None = None) -> TableFile:
    """Read a table.

    Args:
        path: The file, which may be packed (gzip, bzip2, xz or zip).
        kind: ``csv`` or ``json``, for a file whose name and content do not tell.
        options: Choices of a user.

    Raises:
        SourceError: The file cannot be read, or rows are no rows of a table: up to ten of them are named.
    """
    chosen = options or ReadingOptions()
    try:
        return _read(str(path), path.name, path.read_bytes(), kind, chosen)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, zipfile.BadZipFile, RuntimeError) as error:
        raise SourceError(f"{path} cannot be unpacked ({error}); save or download it again") from error
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _read(location: str, name: str, data: bytes, kind: str, options: ReadingOptions) -> TableFile:
    for mark, unpack in _PACKED.items():
        if data.startswith(mark):
            return _read(location, name.rpartition(".")[0], unpack(data), kind, options)
    for mark, description in _OTHER_FILES.items():
        if data.lstrip().startswith(mark):
            raise SourceError(f"{location} is {description}")
    if data.startswith(b"PK\x03\x04"):
        return _zipped(location, data, kind, options)
    kind = TABLE_ENDINGS.get(Path(name.lower()).suffix, kind)
    text, notes = _decoded(location, data, options.encoding)
    if not text.strip():
        raise SourceError(f"{location} is empty")
    if kind == "json":
        return TableFile(_json_rows(location, text, options.field), notes)
    if kind == "excel":
        notes.append("it is CSV and no workbook")
    if match := _SEPARATOR_LINE.match(text):
        text = text[match.end() :]
    separator = options.sep or (match[1] if match else _separator(text))
    usual = "\t" if name.lower().endswith(".tsv") else ","
    if separator not in (options.sep, usual):
        notes.append("columns are separated by " + {"\t": "tabs"}.get(separator, f"'{separator}'"))
    return TableFile(_rows(location, list(_csv_cells(location, text, separator))), notes)


def _zipped(location: str, data: bytes, kind: str, options: ReadingOptions) -> TableFile:
    """Read a workbook, or the tables in an archive one after the other."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [name for name in archive.namelist() if not name.startswith("__MACOSX/") and not name.endswith("/")]
        if "xl/workbook.xml" in names:
            return _workbook(location, data, options.sheet_name)
        if "content.xml" in names or "xl/workbook.bin" in names:
            raise SourceError(f"{location} is a workbook of another kind; save it as .xlsx")
        tables = [_read(f"{location}/{name}", name, archive.read(name), kind, options) for name in names]
    rows = [row for table in tables for row in table.rows]
    return TableFile(rows, [note for table in tables for note in table.notes])


def _decoded(location: str, data: bytes, encoding: str) -> tuple[str, list[str]]:
    """Return the text of a file, with a note on its encoding unless that is UTF-8 or was chosen."""
    marked = next((codec for mark, codec in _MARKED.items() if data.startswith(mark)), "")
    start = data[:1000]
    for codec, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if not marked and zeros.count(0) > len(start) / 4:
            marked = codec
    try:
        text = data.decode(encoding or marked or "utf-8")
        return text, ["its encoding is UTF-16"] if marked.startswith("utf-16") and not encoding else []
    except LookupError as error:
        raise SourceError(f"no encoding is called '{encoding}'; take utf-8, cp1252 or utf-16 for {location}") from error
    except UnicodeDecodeError as error:
        fault = error
    if not encoding and not marked:
        text = data.decode("cp1252", errors="replace")
        if "\ufffd" not in text and not _FOREIGN_WORD.search(text):
            return text, ["its encoding is taken for Windows-1252 (western European)"]
    raise SourceError(
        f"{location} is not text in {encoding or 'UTF-8'} (byte {fault.start + 1}); save it as UTF-8, or name its "
        f"encoding: dataset_kwargs: {{encoding: ...}}"
    )


def _separator(text: str) -> str:
    """Return the separator that splits the first line into the most cells."""
    line = text.lstrip("\r\n").splitlines()[0]
    return max(_SEPARATORS, key=lambda mark: len(next(csv.reader([line], delimiter=mark), [])))


def _csv_cells(location: str, text: str, separator: str) -> Iterator[tuple[int, list[str | None]]]:
    """Yield the cells of each row with its number, from 1; cells may hold line breaks."""
    number, before = 0, csv.field_size_limit(sys.maxsize)
    try:
        for number, cells in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True), 1):
            yield number, [cell if cell.strip() else None for cell in cells]
    except csv.Error as error:
        fault = "a quotation mark is never closed" if "unexpected end" in str(error) else str(error)
        raise SourceError(f"{location}, row {number + 1}: {fault}; double the quotation marks within a cell") from error
    finally:
        csv.field_size_limit(before)


def _workbook(location: str, data: bytes, sheet_name: str) -> TableFile:
    from openpyxl import load_workbook  # takes a third of a second

    try:
        book = load_workbook(io.BytesIO(data))
        sheets = {sheet.title: sheet for sheet in book.worksheets}
        computed = load_workbook(io.BytesIO(data), data_only=True)
    except Exception as error:
        raise SourceError(f"{location} is a damaged workbook ({type(error).__name__}); save it again") from error
    title = sheet_name or next(iter(sheets))
    if title not in sheets:
        raise SourceError(f"{location} has no sheet '{title}'; it has {', '.join(sheets)}")
    numbered: list[tuple[int, list[str | None]]] = []
    faults: list[str] = []
    for number, (cells, values) in enumerate(zip(sheets[title], computed[title], strict=True), start=1):
        for cell, value in zip(cells, values, strict=True):
            if cell.data_type == "f" and value.value is None:
                faults.append(
                    f"{location}, row {number}: the formula in {cell.coordinate} has no value, save it in Excel"
                )
            elif value.data_type == "e":
                faults.append(f"{location}, row {number}: {cell.coordinate} holds the error {value.value}")
        numbered.append((number, [_shown(cell) for cell in values]))
    if faults:
        raise SourceError(several(faults))
    notes = [] if len(sheets) == 1 or sheet_name else [f"of its {len(sheets)} sheets, '{title}' is read"]
    return TableFile(_rows(location, numbered), notes)


def _shown(cell: Any) -> str | None:
    """Return the text that a cell shows, where its format is a simple one."""
    value = cell.value
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime):
        return str(value).removesuffix(" 00:00:00")
    if not isinstance(value, int | float):
        return str(value)
    if match := _SIMPLE_FORMAT.fullmatch(cell.number_format):
        decimals = len(match[2] or "")
        width = len(match[1]) + decimals + bool(decimals)
        return f"{value * 100 if match[3] else value:0{width}.{decimals}f}{match[3]}"
    return str(int(value)) if value == int(value) else repr(value)


def _rows(location: str, numbered: Sequence[tuple[int, Sequence[str | None]]]) -> list[TableRow]:
    """Return the rows under the names in the first one; rows without any text are left out."""
    filled = [(number, cells) for number, cells in numbered if any(cells)]
    if len(filled) < 2:
        raise SourceError(f"{location} is empty" + (": it has names of columns and no row" if filled else ""))
    names = [(cell or f"column {number}").strip() for number, cell in enumerate(filled[0][1], start=1)]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise SourceError(f"{location} has several columns called '{repeated[0]}'; give each its own name")
    rows: list[TableRow] = []
    faults: list[str] = []
    for number, cells in filled[1:]:
        place = f"{location}, row {number}"
        if any(cells[len(names) :]):
            faults.append(f"{place} has {len(cells)} cells, the first row {len(names)}: quote cells with separators")
        present = [*cells[: len(names)], *[None] * (len(names) - len(cells))]
        rows.append(TableRow(place, dict(zip(names, present, strict=True))))
    if faults:
        raise SourceError(several(faults))
    return rows


def _json_rows(location: str, text: str, field: str) -> list[TableRow]:
    """Return the objects of a file: one per line, or a list in one JSON text, which may be a ``field`` of an object."""
    lines = [(f"{location}, line {number}", line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    is_whole = bool(field) or lines[0][1].lstrip().startswith("[")
    try:
        is_whole = is_whole or not isinstance(parse_json(lines[0][1]), dict)
    except ValueError:
        is_whole = not lines[0][1].rstrip().endswith("}")  # else a damaged line
    entries: list[tuple[str, Any]] = []
    faults: list[str] = []
    for place, part in [(location, text)] if is_whole else lines:
        try:
            entries.append((place, parse_json(part)))
        except ValueError as error:
            faults.append(f"{place} is no JSON: {error}")
    if is_whole and not faults:
        entries = [(f"{location}, entry {n}", entry) for n, entry in enumerate(_entries(location, text, field), 1)]
    faults += [f"{place} is no JSON object like {{...}}" for place, entry in entries if not isinstance(entry, dict)]
    if faults:
        raise SourceError(several(faults))
    return [TableRow(place, entry) for place, entry in entries]


def _entries(location: str, text: str, field: str) -> list[Any]:
    """Return the list in a JSON text, or the rows of an object that holds a list for each column."""
    content = parse_json(text)
    if field:
        if not isinstance(content, dict) or field not in content:
            raise SourceError(f"{location} has no field '{field}'")
        content = content[field]
    if isinstance(content, dict) and content:
        lengths = {len(value) if isinstance(value, list) else -1 for value in content.values()}
        if len(lengths) > 1 or lengths == {-1}:
            raise SourceError(
                f"{location} is one JSON object with {', '.join(content)}; name the one that holds the list of "
                f"questions: dataset_kwargs: {{field: ...}}"
            )
        if len(content) > 1:
            return [dict(zip(content, cells, strict=True)) for cells in zip(*content.values(), strict=True)]
        content = next(iter(content.values()))  # the only one
    if not isinstance(content, list) or not content:
        raise SourceError(f"{location} is empty" if not content else f"{location} holds no list of questions")
    return content
