"""Tables that people keep: CSV, Excel workbooks and JSON, with every cell as it is written.

No type is guessed: a cell of CSV or of a workbook is a text, and an empty one is None. The first row with any text has
the names of the columns. A file is recognised by its content first, then by its name.
"""

import bz2
import codecs
import csv
import gzip
import itertools
import lzma
import re
import sys
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from medtasks.data.named_files import (
    MOST_MEMORY,
    check_archive,
    check_size,
    read_file,
    read_stream,
    unpacked_size,
)
from medtasks.data.safe_parsing import parse_json
from medtasks.errors import SourceError, join_names, several

TABLE_KINDS = {
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "excel": "csv",
    "xlsx": "csv",
}
"""How a file is read by the ending of its name, or by a word for its kind; workbooks are known by their content."""
_OTHER_FILES = {
    b"\xd0\xcf\x11\xe0": "a workbook of an old Excel, or one with a password; save it as .xlsx without one",
    b"<": "a web page; download the file itself, or save the table as .xlsx or CSV",
    b"version https://git-lfs": "only the pointer to a file; fetch it with 'git lfs pull'",
}
_PACKED: Mapping[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
_ZIP = b"PK\x03\x04"  # also a workbook
# A member of an archive that a Mac adds, or a folder
_NO_TABLE = re.compile(r"(?s)__MACOSX/|.*/\Z")
_UNPACKING = (
    EOFError,
    RuntimeError,
    zlib.error,
    lzma.LZMAError,
    gzip.BadGzipFile,
    zipfile.BadZipFile,
)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BLANK = b"\xef\xbb\xbf\xff\xfe\0 \r\n\t"  # bytes of a text without any letter
_SEPARATORS = ",;\t|"  # of equally likely ones the first
_SEPARATOR_LINE = re.compile(r"\Asep=.\r?\n")  # which Excel reads and does not show
# No word of a western European language in Windows-1252, or a byte that is no letter in it.
_FOREIGN_WORD = re.compile(r"[^\x00-\x7f]{4}|\ufffd")
# Memory of a row, and of a value, in bytes, by what is in front of it.
_COSTS = {"\n": 600, "\r": 600, **dict.fromkeys(f"{_SEPARATORS}[{{", 100)}
_LETTER_COST = 6
# A letter of a workbook's text, such as _x000D_.
_ESCAPED = re.compile(r"_x((?![Dd][89A-Fa-f])[0-9A-Fa-f]{4})_")
# Of a number in a workbook, such as 000, 0.00 or 0%.
_SIMPLE_FORMAT = re.compile(r"(0+)(\.0+)?(%?)")

TextCells = Sequence[str | None]


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
    is_typed: bool = False  # whether values have types of their own, as in JSON


def read_table(path: Path, kind: str = "csv", **options: Any) -> TableFile:
    """Read a table.

    Args:
        path: The file, which may be packed (gzip, bzip2, xz), or a ZIP archive of tables that follow each other.
        kind: One of ``TABLE_KINDS``, for a file whose name and content do not tell.
        **options: Choices of a user, else recognised: ``encoding``, ``sep`` or ``delimiter`` of CSV, ``sheet_name`` of
            a workbook, and the ``field`` of a JSON object that holds the list of rows. Choices of a caller:
            ``has_formulas=False`` takes a formula for the text that a program wrote, and ``header`` names columns: the
            first row that has them all holds the names.

    Raises:
        SourceError: The file cannot be read, or rows are no rows of a table: up to ten of them are named.
    """
    try:
        return _table_in(str(path), read_file(path), kind, options)
    except _UNPACKING as error:
        raise SourceError(
            f"{path} cannot be unpacked ({error}); save or download it again"
        ) from error
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _table_in(location: str, data: bytes, kind: str, options: Mapping[str, Any]) -> TableFile:
    """Read a table from the content of a file.

    Args:
        location: Path of the file, or that of its archive and its name in it.
        data: Its content, which may be packed.
        kind: How to read a file that does not tell, one of ``TABLE_KINDS``.
        options: See :func:`read_table`, whose errors are raised, too.
    """
    for mark, unpack in _PACKED.items():
        if data.startswith(mark):
            data = read_stream(unpack(BytesIO(data)))
    if data.startswith(_ZIP):
        return _table_in_archive(location, data, kind, options)
    text, notes = _decode(location, data, options.get("encoding", ""))
    cost = sum(text.count(mark) * cost for mark, cost in _COSTS.items())
    check_size(_LETTER_COST * len(text) + cost, MOST_MEMORY)
    for ending in Path(location).suffixes:
        kind = TABLE_KINDS.get(ending[1:].lower(), kind)
    if kind == "json":
        return TableFile(
            _json_rows(location, text, options.get("field", "")), notes, is_typed=True
        )
    text = _SEPARATOR_LINE.sub("", text)
    separator = options.get("sep") or options.get("delimiter")
    if not separator:
        # The one that splits the first line into the most cells.
        line = text.lstrip("\r\n").splitlines()[0]
        separator = max(
            _SEPARATORS, key=lambda mark: len(next(csv.reader([line], delimiter=mark)))
        )
    if separator not in (",", *options.values()):
        notes.append(
            "columns are separated by " + {"\t": "tabs"}.get(separator, f"'{separator}'")
        )
    cells = _csv_cells(location, text, separator)
    return TableFile(_rows(location, cells, options.get("header", ())), notes)


def _table_in_archive(
    location: str,
    data: bytes,
    kind: str,
    options: Mapping[str, Any],
) -> TableFile:
    """Read a workbook, or the tables in an archive one after the other.

    Raises:
        SourceError: It is a workbook of another program, or as of :func:`read_table`.
        UnusableFile: It is too large when unpacked.
    """
    with zipfile.ZipFile(BytesIO(data)) as archive:
        check_size(unpacked_size(archive))
        check_archive(archive, len(data))
        names = list(itertools.filterfalse(_NO_TABLE.match, archive.namelist()))
        if "xl/workbook.xml" in names:
            return _workbook(location, data, options)
        if "mimetype" in names or "xl/workbook.bin" in names:
            raise SourceError(f"{location} is a workbook of another program; save it as .xlsx")
        rows = []
        notes = []
        is_typed = True
        for name in names:
            table = _table_in(f"{location}/{name}", archive.read(name), kind, options)
            rows += table.rows
            notes += table.notes
            is_typed &= table.is_typed
    return TableFile(rows, notes, is_typed)


def utf_16_of(data: bytes) -> str:
    """Return the name of the UTF-16 in which a text seems to be written, empty for any other encoding.

    Example:
        >>> utf_16_of("a,b".encode("utf-16-le")), utf_16_of(b"a,b")
        ('utf-16-le', '')
    """
    if data.startswith(_UTF_16):
        return "utf-16"
    if b"\0" not in data[:2]:
        return ""
    return "utf-16-be" if data.startswith(b"\0") else "utf-16-le"


def _decode(location: str, data: bytes, encoding: str) -> tuple[str, list[str]]:
    """Return the text of a file, with a note on its encoding unless that is UTF-8 or was chosen.

    Args:
        location: Of the file, for messages.
        data: Its content.
        encoding: The user's choice, empty without one.

    Raises:
        SourceError: It is empty, no text, or in another encoding, or the encoding does not exist.
    """
    for mark, description in _OTHER_FILES.items():
        if data.startswith(mark):
            raise SourceError(f"{location} is {description}")
    if not data.strip(_BLANK):
        raise SourceError(f"{location} is empty")
    recognised = encoding or utf_16_of(data)
    try:
        text = data.decode(recognised or "utf-8-sig")
    except LookupError as error:
        raise SourceError(
            f"no encoding is called '{encoding}'; take utf-8, cp1252 or utf-16 for {location}"
        ) from error
    except UnicodeDecodeError as error:
        text = data.decode("cp1252", errors="replace")
        if recognised or _FOREIGN_WORD.search(text):
            raise SourceError(
                f"{location} is not text in {recognised or 'UTF-8'} (byte {error.start + 1}); save it as UTF-8, or "
                f"name its encoding: dataset_kwargs: {{encoding: ...}}"
            ) from error
        return text, ["its encoding is taken for Windows-1252 (western European)"]
    return text, ["its encoding is UTF-16"] if recognised != encoding else []


def _csv_cells(location: str, text: str, separator: str) -> Iterator[TextCells]:
    """Yield the cells of each row, None for a blank one.

    Raises:
        SourceError: A quotation mark is never closed, or as ``csv`` says.
    """
    number = 1
    before = csv.field_size_limit(sys.maxsize)
    try:
        for cells in csv.reader(StringIO(text, newline=""), delimiter=separator, strict=True):
            yield [cell if cell.strip() else None for cell in cells]
            number += 1
    except csv.Error as error:
        fault = (
            "a quotation mark is never closed" if "unexpected end" in str(error) else str(error)
        )
        raise SourceError(
            f"{location}, row {number}: {fault}; double the quotation marks within a cell"
        ) from error
    finally:
        csv.field_size_limit(before)


def _workbook(location: str, data: bytes, options: Mapping[str, Any]) -> TableFile:
    """Read a sheet of a workbook.

    Raises:
        SourceError: The workbook is damaged, has no such sheet, or holds errors or formulas that were never computed.
    """
    from openpyxl import load_workbook  # takes a third of a second

    has_formulas = options.get("has_formulas", True)
    with _report_damage(location):
        written = load_workbook(BytesIO(data), read_only=not has_formulas)
        computed = load_workbook(BytesIO(data), data_only=True) if has_formulas else written
    title, notes = _choose_sheet(location, computed, options.get("sheet_name"))
    with _report_damage(location):  # a sheet without formulas is read here
        if not has_formulas:
            computed[title].reset_dimensions()  # some programs write wrong ones
        cells = list(computed[title])
    if has_formulas:
        faults = list(_cell_faults(location, zip(written[title], cells, strict=True)))
        if faults:
            raise SourceError(several(faults))
    formatted = list(filter(_is_shown_otherwise, itertools.chain(*cells)))
    if formatted:
        first = formatted[0]
        text = f"{first.coordinate} is read as '{_shown_text(first)}', without its format '{first.number_format}'"
        notes.append(f"{text} (so {len(formatted)} cells)")
    texts = [[_shown_text(cell) for cell in row] for row in cells]
    return TableFile(_rows(location, texts, options.get("header", ())), notes)


def _choose_sheet(location: str, workbook: Any, name: str | None) -> tuple[str, list[str]]:
    """Return the title of the sheet to read, and a note if others are not.

    Args:
        location: Of the workbook, for messages.
        workbook: Of ``openpyxl``.
        name: The user's choice; None takes the first visible sheet, or the first one if all are hidden.

    Raises:
        SourceError: There is no sheet of this name.
    """
    titles = [sheet.title for sheet in workbook.worksheets if sheet.sheet_state == "visible"]
    title = name or (titles or workbook.sheetnames)[0]
    if title not in workbook.sheetnames:
        raise SourceError(
            f"{location} has no sheet '{title}'; it has {', '.join(workbook.sheetnames)}"
        )
    if name or len(titles) == 1:
        return title, []
    return title, [f"of its {len(titles)} sheets, '{title}' is read"]


@contextmanager
def _report_damage(location: str) -> Iterator[None]:
    """Raise SourceError for any error of ``openpyxl`` within the block."""
    try:
        yield
    except Exception as error:
        raise SourceError(
            f"{location} is a damaged workbook ({type(error).__name__}); save it again"
        ) from error


def _is_shown_otherwise(cell: Any) -> bool:
    """Return whether a cell's format makes a person see another text than is read."""
    if isinstance(cell.value, str | bool | None) or cell.number_format in ("General", "@"):
        return False
    return not _SIMPLE_FORMAT.fullmatch(cell.number_format)


def _cell_faults(location: str, rows: Iterable[tuple[Any, Any]]) -> Iterator[str]:
    """Yield errors in cells, and formulas without a value, of rows as written and as computed."""
    for row in rows:
        for written, computed in zip(*row, strict=True):
            if computed.data_type == "e" or (
                written.data_type == "f" and computed.value is None
            ):
                fault = computed.value or "a formula that was never computed"
                yield f"{location}, row {written.row}: {written.coordinate} holds {fault}"


def _shown_text(cell: Any) -> str | None:
    """Return the text that a cell shows, where its format is a simple one, or None for an empty cell."""
    value = getattr(cell.value, "text", cell.value)  # of a formula for several cells
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        simple = _SIMPLE_FORMAT.fullmatch(cell.number_format)
        if simple:
            zeros, decimals, percent = simple.groups(default="")
            scaled = value * 100 if percent else value
            return f"{scaled:0{len(zeros + decimals)}.{len(decimals or '.') - 1}f}{percent}"
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        return str(value)
    if isinstance(value, str):
        text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), value)
    else:
        text = "" if value is None else str(value).removesuffix(" 00:00:00")  # of a day
    return text if text.strip() else None


def _column_names(location: str, cells: TextCells) -> list[str]:
    """Return the name of each column. One without a name is called by its number, from 1.

    Args:
        location: Of the table, for messages.
        cells: The row with the names.

    Raises:
        SourceError: Two columns have one name.
    """
    names = [(cell or f"column {number}").strip() for number, cell in enumerate(cells, start=1)]
    if len({*names}) < len(names):
        raise SourceError(
            f"{location} has several columns called '{max(names, key=names.count)}'; give each its own name"
        )
    return names


def _rows(
    location: str,
    table: Iterator[TextCells] | Sequence[TextCells],
    header: Collection[str],
) -> list[TableRow]:
    """Return the rows under the names in the first one, or the first with all of ``header``.

    Rows without any text are left out. A cell that is empty or missing is None.

    Args:
        location: Of the table, for messages.
        table: Cells of each row.
        header: Names of columns; empty takes the first row with any text.

    Raises:
        SourceError: There are no rows, two columns have one name, or rows have more cells than names.
    """
    with_text = [(number, cells) for number, cells in enumerate(table, start=1) if any(cells)]
    with_text = with_text[_header_row(with_text, header) :]
    if not with_text:
        raise SourceError(f"{location} is empty")
    if len(with_text) == 1:
        raise SourceError(f"{location} is empty: it has names of columns and no row")
    (_, first), *others = with_text
    names = _column_names(location, first)
    rows = []
    faults = []
    for number, cells in others:
        row_place = f"{location}, row {number}"
        if any(cells[len(names) :]):
            faults.append(
                f"{row_place} has {len(cells)} cells, the first row {len(names)}: quote cells with separators"
            )
        values = dict.fromkeys(names) | dict(zip(names, cells, strict=False))
        rows.append(TableRow(row_place, values))
    if faults:
        raise SourceError(several(faults))
    return rows


def _header_row(rows: Sequence[tuple[int, TextCells]], header: Collection[str]) -> int:
    """Return the position of the first row with all names in ``header``, or 0 without one."""
    for position, (_, cells) in enumerate(rows):
        if {*header} <= {cell.strip() for cell in cells if cell}:
            return position
    return 0


def _json_rows(location: str, text: str, field: str) -> list[TableRow]:
    """Return the objects of a JSON file: one a line, or a list, which may be a ``field`` of an object.

    Raises:
        SourceError: Entries are no JSON objects, of which up to ten are named, or as of :func:`_json_entries`.
    """
    rows = []
    faults = []
    for entry_place, entry in _json_entries(location, text, field):
        try:
            content = parse_json(entry) if isinstance(entry, str) else entry
            rows.append(TableRow(entry_place, {**content}))
        except ValueError as error:
            faults.append(f"{entry_place} is no JSON: {error}")
        except TypeError:
            faults.append(f"{entry_place} is no JSON object like {{...}}")
    if faults:
        raise SourceError(several(faults))
    return rows


def _json_entries(location: str, text: str, field: str) -> list[tuple[str, Any]]:
    """Return the location and the content of each entry of a JSON file.

    The content is a text if the first line of the file is a whole object: then each line is one. Otherwise it is a
    value of the list in the file, or in the ``field`` of its object, where that is not empty.

    Raises:
        SourceError: It is no JSON, or there is no such list, or it is empty.
    """
    first = text.strip().partition("\n")[0].strip()
    if not field and first[0] + first[-1] == "{}":
        lines = enumerate(text.split("\n"), 1)
        return [(f"{location}, line {number}", line) for number, line in lines if line.strip()]
    try:
        content = parse_json(text)
    except ValueError as error:
        raise SourceError(f"{location} is no JSON: {error}") from error
    if isinstance(content, dict) and field not in content:
        raise SourceError(
            f"{location} is one JSON object with {join_names([*content])}; name the one that holds the list of "
            f"questions: dataset_kwargs: {{field: ...}}"
        )
    rows = content[field] if isinstance(content, dict) else content
    if rows == []:
        raise SourceError(f"{location} is empty")
    if not isinstance(rows, list):
        raise SourceError(f"{location} holds no list of questions")
    return [(f"{location}, entry {number}", row) for number, row in enumerate(rows, 1)]
