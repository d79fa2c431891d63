"""Finding a source's files, in a folder or still in the published archive, and reading their tables row by row.

Everything here raises SourceError: for a file that is missing or exists twice, and for a damaged or encrypted archive.
A source is a folder or a zip archive. Patterns are locations of a file, likeliest first: ``"US/test.jsonl"``, or
``"*.zip!*/US/test.jsonl"`` for a member of an archive. ``*`` is any text, in a member's name slashes included. Where
nothing matches, a location in a folder may differ from its pattern in capitals and punctuation.

Tables (Parquet, CSV, JSON) are read a few rows at a time: images lie in them, and some are larger than the memory they
are read in. A damaged table, one that lacks a column, and a value of another type than asked for are a SourceError that
names file and row.
"""

import contextlib
import csv
import fnmatch
import functools
import gzip
import io
import json
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

from medtasks.data.named_files import MOST_TEXT, check_size, limited_lines, read_named, read_stream
from medtasks.data.safe_parsing import parse_json
from medtasks.errors import SourceError

_MOST_UNPACKED = 200  # times the size of an archive; text is packed to a tenth, a file of zeros to a thousandth
_PUNCTUATION = re.compile(r"[\s_-]")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\b")
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError)
# A name from a table may be empty, that of a folder, or no name that a file can have.
_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError)


@dataclass(frozen=True)
class SourceFile:
    """A file of a source."""

    path: Path  # the file, or the archive that holds it
    member: str | None = None  # its name in the archive; None for a file of its own

    @property
    def name(self) -> str:
        """Its name in messages: ``test.jsonl``, or ``mednli.zip/mli_test_v1.jsonl``."""
        return self.path.name if self.member is None else f"{self.path.name}/{Path(self.member).name}"

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open for reading; that an archive is damaged may also show while reading."""
        if self.member is None:
            with self.path.open("rb") as stream:
                yield stream
        else:
            with unpacking(self.path), open_archive(self.path) as archive, archive.open(self.member) as stream:
                yield stream


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open a zip archive; SourceError if it would fill the disk."""
    archive = zipfile.ZipFile(path)
    size = sum(member.file_size for member in archive.infolist())
    if size > _MOST_UNPACKED * path.stat().st_size:
        raise SourceError(
            f"{path} would fill {size / 1e6:,.0f} MB, which no real one of its size does; download it again"
        )
    return archive


@contextlib.contextmanager
def unpacking(archive: Path) -> Iterator[None]:
    """Raise SourceError for Python's errors on a damaged or encrypted archive."""
    try:
        yield
    except _BROKEN as error:
        raise SourceError(f"{archive} cannot be unpacked ({error}); download it again") from error


@contextlib.contextmanager
def file_reader(
    folders: Sequence[Path], archives: Iterable[Path], below: Sequence[str]
) -> Iterator[Callable[[str], bytes]]:
    """Yield a function that reads a file by name, from folders or archives (after a prefix of ``below``).

    The function raises FileNotFoundError or UnusableFile.
    """
    with contextlib.ExitStack() as stack:
        opened: dict[Path, zipfile.ZipFile] = {}
        for path in archives:
            with unpacking(path):
                opened[path] = stack.enter_context(open_archive(path))

        def read(name: str) -> bytes:
            for folder in folders:
                with contextlib.suppress(*_NO_FILE):
                    return read_named(folder / name, folder)
            for path, archive in opened.items():
                for prefix in below:
                    with contextlib.suppress(KeyError), unpacking(path), archive.open(prefix + name) as stream:
                        return read_stream(stream)
            raise FileNotFoundError(name)

        yield read


def unpacked_or_archived(
    source: Path, folders: Sequence[str], archive: str, below: Sequence[str]
) -> contextlib.AbstractContextManager[Callable[[str], bytes]]:
    """Return a reader of files by name, in one of the ``folders`` of a source or below a prefix in their archive."""
    unpacked = [source / folder for folder in folders if (source / folder).is_dir()]
    archives = [source / archive] if (source / archive).is_file() else []
    if not unpacked and not archives:
        raise not_found(source, f"{archive} and no folder {folders[0]}")
    return file_reader(unpacked, archives, below)


def find_file(source: Path, patterns: Sequence[str]) -> SourceFile | None:
    """Return the file that the first matching pattern names, or None."""
    files = _matching(source, patterns)
    if len(files) > 1:
        names = " and ".join(str(file.member or file.path.relative_to(source)) for file in files[:2])
        raise SourceError(f"{source} holds both {names}; keep the one that shall be used")
    return files[0] if files else None


def required_file(source: Path, patterns: Sequence[str], what: str | None = None) -> SourceFile:
    """Return the file that the first matching pattern names; messages call it ``what``, by default that pattern."""
    if file := find_file(source, patterns):
        return file
    raise not_found(source, what or patterns[0])


def physionet_file(source: Path, project: str, version: str, names: Sequence[str]) -> SourceFile:
    """Find a file of a PhysioNet project, whether the user names the project's folder or one it was downloaded into."""
    below = f"{project}/{version}"
    folders = ("", f"{version}/", f"{below}/", f"files/{below}/", f"physionet.org/files/{below}/", "*/")
    return required_file(source, [folder + name for folder in folders for name in names])


def required_shards(source: Path, patterns: Sequence[str], what: str | None = None) -> list[SourceFile]:
    """Return the files that the first matching pattern names, by name; an error where some or all are missing.

    Messages call them ``what``, by default the first pattern.
    """
    files = _matching(source, patterns)
    if not files:
        raise not_found(source, what or patterns[0])
    files.sort(key=lambda file: file.name)
    marks = [mark for file in files if (mark := _SHARD.search(file.name))]
    total, numbers = int(marks[0][2]) if marks else 0, sorted(int(mark[1]) for mark in marks)
    if marks and (len(files) != total or numbers != list(range(total))):
        missing = sorted(set(range(total)) - set(numbers))
        fault = f"part {missing[0]:05d} of {total:05d} is missing" if missing else "its parts belong to several copies"
        raise SourceError(f"{files[0].path.parent} holds {', '.join(file.name for file in files)}: {fault}")
    return files


def not_found(source: Path, what: str, fix: str = "name the folder that holds it") -> SourceError:
    """Build the error for a source that lacks a file."""
    exists = source.is_dir() or zipfile.is_zipfile(source)
    return SourceError(f"{source}{'' if exists else ' is no folder and no zip archive and'} holds no {what}; {fix}")


def _matching(source: Path, patterns: Sequence[str]) -> list[SourceFile]:
    for outer, _, inner in (pattern.partition("!") for pattern in patterns):
        paths = sorted(source.glob(outer)) if source.is_dir() else []
        files = [] if inner else [SourceFile(path) for path in paths if path.is_file()]
        archives = [source] if not source.is_dir() and zipfile.is_zipfile(source) else paths
        for archive in archives if inner else ():
            with unpacking(archive), open_archive(archive) as opened:
                members = sorted(fnmatch.filter(opened.namelist(), inner))
            # Files that a Mac adds to an archive have the names of the real ones.
            files += [SourceFile(archive, name) for name in members if not name.startswith("__MACOSX/")]
        if files:
            return files
    plain_patterns = [pattern for pattern in patterns if "*" not in pattern]
    variants = (_variants(source, pattern) for pattern in plain_patterns)
    return next(filter(None, variants), [])


def _variants(source: Path, location: str) -> list[SourceFile]:
    """Return the files whose location differs from a published one in capitals and punctuation only."""
    paths = [source]
    for part in location.split("/"):
        entries = chain.from_iterable(sorted(path.iterdir()) for path in paths if path.is_dir())
        paths = [entry for entry in entries if _letters(entry.name) == _letters(part)]
    return [SourceFile(path) for path in paths if path.is_file()]


def _letters(name: str) -> str:
    return _PUNCTUATION.sub("", name.casefold())


_BATCH = 64  # rows
_BUFFER = 1 << 20  # bytes
DEMONSTRATIONS = 5
_KINDS = {type(None): "empty", str: "a text", list: "a list", dict: "an object", bool: "a truth value"}

ReadValues = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class SourceRow:
    """One row."""

    place: str  # file and row, counted from 1, for messages
    index: int  # position in the table, from 0
    values: Mapping[str, Any]

    def error(self, what: str) -> SourceError:
        """Build an error about this row. ``what`` must not quote the row: it may be a patient's."""
        return SourceError(f"{self.place}: {what}")

    def text(self, column: str) -> str:
        """Return a text."""
        value = self.values[column]
        if not isinstance(value, str):
            raise self.error(f"{column} is {kind_of(value)} and not a text")
        return value

    def one_of(self, column: str, allowed: Collection[str], complaint: str) -> str:
        """Return one of the ``allowed`` texts; any other is an error with the ``complaint`` and a list of these."""
        value = self.text(column)
        if value not in allowed:
            raise self.error(f"{complaint} {', '.join(allowed)}")
        return value

    def optional_text(self, column: str) -> str | None:
        """Return a text, or None where the column is missing or null."""
        return None if self.values.get(column) is None else self.text(column)

    def texts(self, column: str) -> list[str]:
        """Return a list of texts."""
        value = self.values[column]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(f"{column} is {kind_of(value)} and not a list of texts")
        return value

    def encoded(self, column: str) -> bytes | None:
        """Return the image file in a column as the Hub stores it, or None."""
        value = self.values.get(column)
        data = value.get("bytes") if isinstance(value, dict) else value
        if data is not None and not isinstance(data, bytes):
            raise self.error(f"{column} holds no image file")
        return data if value is None else data or b""

    def name(self, column: str) -> str:
        """Return a text, or a whole number as one."""
        return self.text(column) if isinstance(self.values[column], str) else str(self.integer(column))

    def integer(self, column: str) -> int:
        """Return a whole number."""
        value = self.values[column]
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(f"{column} is {kind_of(value)} and not a whole number")
        return value


class SourceTable:
    """One split of a dataset, from ``records``: the location of each row, in order, and a reader of its columns.

    Columns are read of the requested rows only.
    """

    def __init__(self, records: Callable[[], Iterator[tuple[str, ReadValues]]]) -> None:
        self._records = records

    def count(self) -> int:
        """Return the number of rows, without reading them if the format allows it."""
        return sum(1 for _ in self._records())

    def rows(self, positions: Set[int] | None = None) -> Iterator[SourceRow]:
        """Read rows in order: those at ``positions``, by default all."""
        for index, (location, values) in enumerate(self._records()):
            if positions is None or index in positions:
                yield SourceRow(location, index, values())

    def spread(self, count: int = DEMONSTRATIONS) -> Iterator[SourceRow]:
        """Read the rows MultiMedEval shows as solved examples: ``count`` of them, evenly spread, first row first."""
        total = self.count()
        return self.rows({int(position / count * total) for position in range(count)})


class ParquetTable(SourceTable):
    """Parquet files, none in an archive, one after the other; every one has ``columns``, some the ``optional`` ones."""

    def __init__(self, files: Sequence[SourceFile], columns: Sequence[str], optional: Sequence[str] = ()) -> None:
        self._files, self._columns, self._optional = files, columns, optional

    def count(self) -> int:
        """Return the number of rows."""
        return sum(self._opened(file).metadata.num_rows for file in self._files)

    def rows(self, positions: Set[int] | None = None) -> Iterator[SourceRow]:
        """Read rows in order, see :meth:`SourceTable.rows`; row groups without any of them are skipped."""
        from pyarrow import ArrowException

        end = 0
        for file in self._files:
            opened, first = self._opened(file), end
            columns = [*self._columns, *(name for name in self._optional if name in opened.schema_arrow.names)]
            for group in range(opened.num_row_groups):
                index, end = end, end + opened.metadata.row_group(group).num_rows
                if positions is not None and positions.isdisjoint(range(index, end)):
                    continue
                try:
                    for batch in opened.iter_batches(_BATCH, row_groups=[group], columns=columns, use_threads=False):
                        for offset in range(batch.num_rows):
                            if positions is None or index in positions:
                                values = batch.slice(offset, 1).to_pylist()[0]
                                yield SourceRow(f"{file.name} row {index - first + 1}", index, values)
                            index += 1
                except (ArrowException, OSError, ValueError) as error:  # also of texts that are none
                    raise SourceError(f"{file.path} is damaged in row group {group + 1}; download it again") from error

    def _opened(self, file: SourceFile) -> Any:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        try:
            # Pages come through a buffer: read whole, one column of images would be a gigabyte.
            opened = ParquetFile(file.path, buffer_size=_BUFFER)
        except (ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # about the file and not its content
            raise SourceError(f"{file.path} is no whole parquet file; download it again") from error
        check_columns(file.name, self._columns, opened.schema_arrow.names)
        return opened


def csv_table(
    file: SourceFile,
    columns: Collection[str],
    belongs: Callable[[Mapping[str, str]], bool] = lambda values: True,
    *,
    missing: str | None = "",
    tabs: bool = False,
) -> SourceTable:
    """Return the rows of a CSV file (``.gz``: packed) for which ``belongs`` is true; every one has ``columns``.

    Values that a short row lacks are empty texts, or ``missing``: with None, asking for the text of one is an error.
    A file with ``tabs`` between its columns may have fields of megabytes, and no open quotation at its end. A line of
    more than ``MOST_TEXT`` is an error.
    """

    def records() -> Iterator[tuple[str, ReadValues]]:
        name, number = file.name, 0
        dialect = csv.excel_tab if tabs else csv.excel
        try:
            with contextlib.ExitStack() as stack:
                if tabs:
                    stack.callback(csv.field_size_limit, csv.field_size_limit(MOST_TEXT))
                stream: Any = stack.enter_context(file.open())
                if name.endswith(".gz"):
                    stream = stack.enter_context(gzip.open(stream))
                text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
                reader = csv.DictReader(limited_lines(text, name), restval=missing, dialect=dialect, strict=tabs)
                check_columns(name, columns, reader.fieldnames or ())
                for number, values in enumerate(reader, 1):
                    if belongs(values):
                        yield f"{name} row {number}", values.copy
        except UnicodeDecodeError as error:
            raise SourceError(f"{name} is no UTF-8 text after row {number}; download it again") from error
        except csv.Error as error:
            raise SourceError(f"{name} is no table after row {number} ({error}); download it again") from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise SourceError(f"{name} cannot be unpacked ({error}); download it again") from error

    return SourceTable(records)


def hub_table(
    source: Path, split: str, columns: Sequence[str], optional: Sequence[str] = (), folder: str = "data"
) -> SourceTable:
    """Return a split from the Hub's parquet files, in their ``folder`` or next to one another."""
    files = required_shards(source, [f"{folder}/{split}-*.parquet", f"{split}-*.parquet"])
    return ParquetTable(files, columns, optional)


def check_columns(location: str, required: Iterable[str], present: Iterable[str]) -> None:
    """Refuse a table that lacks a column; the message names the missing and the present ones."""
    columns = set(present)
    if missing := [column for column in required if column not in columns]:
        names = ", ".join(sorted(map(str, columns))) or "nothing"
        raise SourceError(f"{location} lacks {', '.join(map(repr, missing))}; it has {names}")


def kind_of(value: Any) -> str:
    """Describe the type of a value for messages: its content may be a patient's."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return "a number" if number else _KINDS.get(type(value), f"of type {type(value).__name__}")


def json_lines(file: SourceFile, columns: Sequence[str]) -> SourceTable:
    """Return the rows of a file of JSON objects, one per line; empty lines are no rows."""

    def records() -> Iterator[tuple[str, ReadValues]]:
        with file.open() as stream:
            for number, line in enumerate(limited_lines(stream, file.name), 1):
                if line.strip():
                    location = f"{file.name} row {number}"
                    yield location, functools.partial(_object, location, line.strip(), columns)

    return SourceTable(records)


def records_table(records: Iterable[tuple[str, Any]], columns: Sequence[str]) -> SourceTable:
    """Return rows that are in memory, each with its location for messages; every one must have ``columns``."""
    rows = [(location, functools.partial(_object, location, value, columns)) for location, value in records]
    return SourceTable(lambda: iter(rows))


def read_json(file: SourceFile) -> Any:
    """Return the content of a JSON file."""
    with file.open() as stream:
        return _json(file.name, read_stream(stream))


def listed_records(name: str, data: bytes, columns: Sequence[str]) -> SourceTable:
    """Return the questions of a JSON text, the content of the file ``name``, that is a list of objects."""
    values = _json(name, data)
    if not isinstance(values, list):
        raise SourceError(f"{name} is not a list of questions")
    return records_table(((f"{name} row {number}", value) for number, value in enumerate(values, 1)), columns)


def _json(location: str, data: bytes | str) -> Any:
    check_size(len(data), MOST_TEXT, location)
    try:
        content = parse_json(data)
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise SourceError(f"{location}: it holds half a surrogate pair, which is no text") from None
    except ValueError as error:
        raise SourceError(f"{location} is no JSON ({error})") from error
    return content


def _object(location: str, value: Any, columns: Sequence[str]) -> Mapping[str, Any]:
    value = _json(location, value) if isinstance(value, bytes) else value
    if not isinstance(value, dict):
        raise SourceError(f"{location} is {kind_of(value)} and not an object with {', '.join(columns)}")
    check_columns(location, columns, value)
    return value
