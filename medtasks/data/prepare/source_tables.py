"""Reading the tables of a source row by row, and of benchmarks whose splits are tables.

Tables (Parquet, CSV, JSON) are read a few rows at a time: images lie in them, and some are larger than the memory they
are read in. A damaged table, one that lacks a column, and a value of another type than asked for are a SourceError that
names file and row.
"""

import contextlib
import csv
import gzip
import io
import json
import os
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.named_files import (
    MOST_TEXT,
    check_size,
    limited_lines,
    read_named,
    read_stream,
)
from medtasks.data.prepare.physionet import PhysioNet
from medtasks.data.prepare.source_files import OpenedFiles, SourceFile, required_shards
from medtasks.data.prepare.source_recipe import (
    PublishedRow,
    PublishedRows,
    SourceRecipe,
    images_row,
)
from medtasks.data.safe_parsing import parse_json
from medtasks.data.schema import Columns, NewDocument
from medtasks.errors import SourceError

_BATCH = 64  # rows
_BUFFER = 1 << 20  # bytes
DEMONSTRATIONS = 5
_KINDS = {
    type(None): "empty",
    str: "a text",
    list: "a list",
    dict: "an object",
    bool: "a truth value",
}
ReadValues = Callable[[], Mapping[str, Any]]
Records = Iterator[tuple[str, ReadValues]]
"""Location of each row of a table, for messages, and a reader of its columns."""

# Rows whose images are stored at once: decoding them is most of the work.
_WORKERS = min(4, os.cpu_count() or 1)
_AHEAD = 3 * _WORKERS  # rows read ahead of them
# Bytes of a file. Larger ones are decoded one at a time: each thread keeps the memory that it needed once.
_LARGE = 1 << 19


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
        """Return a text.

        Example:
            >>> row = SourceRow("test.csv row 1", 0, {"question": "Which side?", "answer": 1})
            >>> row.text("question")
            'Which side?'
            >>> row.text("answer")
            Traceback (most recent call last):
            medtasks.errors.SourceError: test.csv row 1: answer is a number and not a text
        """
        value = self.values[column]
        if not isinstance(value, str):
            raise self.error(f"{column} is {kind_of(value)} and not a text")
        return value

    def one_of(self, column: str, allowed: Collection[str], complaint: str) -> str:
        """Return a text of a set.

        Args:
            column: With the text.
            allowed: The set.
            complaint: Begin of the error for any other text. The ``allowed`` ones follow.
        """
        value = self.text(column)
        if value not in allowed:
            raise self.error(f"{complaint} {', '.join(allowed)}")
        return value

    def optional_text(self, column: str) -> str | None:
        """Return a text, or None where the column is missing or null.

        Example:
            >>> SourceRow("test.csv row 1", 0, {"hint": None}).optional_text("hint") is None
            True
        """
        return None if self.values.get(column) is None else self.text(column)

    def texts(self, column: str) -> list[str]:
        """Return a list of texts.

        Example:
            >>> SourceRow("test.csv row 1", 0, {"options": ["CT", "MRI"]}).texts("options")
            ['CT', 'MRI']
        """
        value = self.values[column]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(f"{column} is {kind_of(value)} and not a list of texts")
        return value

    def inner(self, column: str, required: Iterable[str] = ()) -> "SourceRow":
        """Return the object in a column as a row of its own.

        Args:
            column: With the object.
            required: Columns that it must have.
        """
        value = self.values[column]
        if not isinstance(value, dict):
            raise self.error(f"{column} is {kind_of(value)} and not an object")
        check_columns(f"{self.place}: {column}", required, value)
        return SourceRow(self.place, self.index, value)

    def image_bytes(self, column: str) -> bytes | None:
        """Return the image file in a column as the Hub stores it, or None.

        Example:
            >>> SourceRow("test.csv row 1", 0, {"image": {"bytes": b"...", "path": None}}).image_bytes("image")
            b'...'
        """
        value = self.values.get(column)
        if value is None:
            return None
        data = value.get("bytes") if isinstance(value, dict) else value
        if data is not None and not isinstance(data, bytes):
            raise self.error(f"{column} holds no image file")
        return data or b""

    def name(self, column: str) -> str:
        """Return a text, or a whole number as one.

        Example:
            >>> SourceRow("test.csv row 1", 0, {"id": 7}).name("id")
            '7'
        """
        if isinstance(self.values[column], str):
            return self.text(column)
        return str(self.integer(column))

    def integer(self, column: str) -> int:
        """Return a whole number.

        Example:
            >>> SourceRow("test.csv row 1", 0, {"label": 3}).integer("label")
            3
        """
        value = self.values[column]
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(f"{column} is {kind_of(value)} and not a whole number")
        return value


SourceRows = Iterator[SourceRow]


class SourceTable:
    """One split of a dataset. Columns are read of the requested rows only.

    Args:
        records: Yields the location of each row, in order, and a reader of its columns.
    """

    def __init__(self, records: Callable[[], Records]) -> None:
        self._records = records

    def count(self) -> int:
        """Return the number of rows, without reading them if the format allows it."""
        return sum(1 for _ in self._records())

    def rows(self, positions: Set[int] | None = None) -> SourceRows:
        """Read rows in order.

        Args:
            positions: Of the rows to read, from 0, or None for all.
        """
        for index, (location, values) in enumerate(self._records()):
            if positions is None or index in positions:
                yield SourceRow(location, index, values())

    def spread(self, count: int = DEMONSTRATIONS) -> SourceRows:
        """Read the rows MultiMedEval shows as solved examples, evenly spread, first row first.

        Args:
            count: Number of them.
        """
        total = self.count()
        return self.rows({int(position / count * total) for position in range(count)})


@dataclass(frozen=True)
class ParquetTable(SourceTable):
    """Parquet files, none in an archive, one after the other."""

    files: Sequence[SourceFile]  # in order
    columns: Sequence[str]  # that every file has
    optional: Sequence[str] = ()  # that some have

    def count(self) -> int:
        """Return the number of rows of all files, by their metadata."""
        return sum(self._open(file).metadata.num_rows for file in self.files)

    def rows(self, positions: Set[int] | None = None) -> SourceRows:
        """Read rows in order. Row groups without any of the requested rows are skipped.

        Args:
            positions: Of the rows to read, from 0 over all files, or None for all.

        Raises:
            SourceError: A file is damaged, or lacks a column.
        """
        from pyarrow import ArrowException

        end = 0
        for file in self.files:
            opened = self._open(file)
            first = end
            optional = [name for name in self.optional if name in opened.schema_arrow.names]
            columns = [*self.columns, *optional]
            for group in range(opened.num_row_groups):
                index = end
                end += opened.metadata.row_group(group).num_rows
                if positions is not None and positions.isdisjoint(range(index, end)):
                    continue
                try:
                    for batch in opened.iter_batches(
                        _BATCH, row_groups=[group], columns=columns, use_threads=False
                    ):
                        for offset in range(batch.num_rows):
                            if positions is None or index in positions:
                                location = f"{file.name} row {index - first + 1}"
                                yield SourceRow(
                                    location, index, batch.slice(offset, 1).to_pylist()[0]
                                )
                            index += 1
                except (
                    ArrowException,
                    OSError,
                    ValueError,
                ) as error:  # also of texts that are none
                    raise SourceError(
                        f"{file.path} is damaged in row group {group + 1}; download it again"
                    ) from error

    def _open(self, file: SourceFile) -> Any:
        """Open a file and check its columns.

        Raises:
            SourceError: It is no whole Parquet file, or lacks a column.
            OSError: It cannot be read.
        """
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        try:
            # Pages come through a buffer: read whole, one column of images would be a gigabyte.
            opened = ParquetFile(file.path, buffer_size=_BUFFER)
        except (ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # about the file and not its content
            raise SourceError(
                f"{file.path} is no whole parquet file; download it again"
            ) from error
        check_columns(file.name, self.columns, opened.schema_arrow.names)
        return opened


def csv_table(
    file: SourceFile,
    columns: Collection[str],
    belongs: Callable[[Mapping[str, str]], bool] = lambda values: True,
    *,
    missing: str | None = "",
    tabs: bool = False,
) -> SourceTable:
    """Return rows of a CSV file. A line of more than ``MOST_TEXT`` is an error.

    The file is opened when rows are read. Then it is a SourceError if it is no UTF-8 text or no table, lacks a
    column, or cannot be unpacked.

    Args:
        file: Packed if its name ends with ``.gz``.
        columns: That it must have.
        belongs: Tells by its values whether a row is one of the table. By default all are.
        missing: Value of the columns that a short row lacks. With None, asking for the text of one is an error.
        tabs: Whether tabs are between its columns. It may have fields of megabytes, and no open quotation at its end.
    """
    dialect = csv.excel_tab if tabs else csv.excel

    # The file is open, and the limit of ``csv`` on fields raised, only while rows are read.
    def csv_records() -> Records:
        name = file.name
        number = 0
        try:
            with file.open() as opened, contextlib.ExitStack() as stack:
                stream: Any = opened
                if name.endswith(".gz"):
                    stream = stack.enter_context(gzip.open(stream))
                text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
                if tabs:
                    stack.callback(csv.field_size_limit, csv.field_size_limit(MOST_TEXT))
                reader = csv.DictReader(
                    limited_lines(text, name), restval=missing, dialect=dialect, strict=tabs
                )
                check_columns(name, columns, reader.fieldnames or ())
                for number, values in enumerate(reader, 1):
                    if belongs(values):
                        yield f"{name} row {number}", values.copy
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{name} is no UTF-8 text after row {number}; download it again"
            ) from error
        except csv.Error as error:
            raise SourceError(
                f"{name} is no table after row {number} ({error}); download it again"
            ) from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise SourceError(
                f"{name} cannot be unpacked ({error}); download it again"
            ) from error

    return SourceTable(csv_records)


def hub_table(
    source: Path,
    split: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    folder: str = "data",
) -> SourceTable:
    """Return a split from the Hub's parquet files.

    Args:
        source: Folder of the user.
        split: Begin of the files' names.
        columns: That every file has.
        optional: That some have.
        folder: Of the files in the source, where they are not next to one another in the source itself.
    """
    files = required_shards(source, [f"{folder}/{split}-*.parquet", f"{split}-*.parquet"])
    return ParquetTable(files, columns, optional)


def check_columns(location: str, required: Iterable[str], present: Iterable[str]) -> None:
    """Refuse a table that lacks a column.

    Args:
        location: Of the table, for messages.
        required: Columns that it must have.
        present: Columns that it has.

    Raises:
        SourceError: It names the missing and the present ones.
    """
    columns = set(present)
    missing = [column for column in required if column not in columns]
    if missing:
        raise SourceError(
            f"{location} lacks {', '.join(map(repr, missing))}; "
            f"it has {', '.join(sorted(map(str, columns))) or 'nothing'}"
        )


def kind_of(value: Any) -> str:
    """Describe the type of a value for messages: its content may be a patient's.

    Example:
        >>> kind_of("Anna"), kind_of(True), kind_of(3), kind_of(None)
        ('a text', 'a truth value', 'a number', 'empty')
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    return _KINDS.get(type(value), f"of type {type(value).__name__}")


def json_lines(file: SourceFile, columns: Sequence[str]) -> SourceTable:
    """Return the rows of a file of JSON objects, one per line. Empty lines are no rows.

    Args:
        file: In UTF-8.
        columns: That every object must have.
    """

    # Objects are parsed when the values of their row are asked for, not when rows are counted.
    def json_line_records() -> Records:
        with file.open() as stream:
            for number, line in enumerate(limited_lines(stream, file.name), 1):
                if line.strip():
                    # Empty lines count, so that an editor finds the row.
                    location = f"{file.name} row {number}"
                    yield location, partial(_object, location, line.strip(), columns)

    return SourceTable(json_line_records)


def records_table(records: Iterable[tuple[str, Any]], columns: Sequence[str]) -> SourceTable:
    """Return rows that are in memory.

    Args:
        records: Location for messages and object of each row.
        columns: That every object must have.

    Example:
        >>> table = records_table([("a.json row 1", {"id": "x"})], ["id"])
        >>> [row.text("id") for row in table.rows()]
        ['x']
    """
    rows = [
        (location, partial(_object, location, value, columns)) for location, value in records
    ]
    return SourceTable(lambda: iter(rows))


def read_json(file: SourceFile) -> Any:
    """Return the content of a JSON file.

    Raises:
        SourceError: It is no JSON, or holds half a surrogate pair.
    """
    with file.open() as stream:
        return _json(file.name, read_stream(stream))


def listed_records(name: str, data: bytes, columns: Sequence[str]) -> SourceTable:
    """Return the questions of a JSON text that is a list of objects.

    Args:
        name: Of the file.
        data: Its content.
        columns: That every object must have.

    Raises:
        SourceError: It is no JSON or no list. Later, when rows are read: an entry is no object, or lacks a column.
    """
    values = _json(name, data)
    if not isinstance(values, list):
        raise SourceError(f"{name} is not a list of questions")
    return numbered_table(f"{name} row", values, columns)


def numbered_table(label: str, values: Iterable[Any], columns: Sequence[str]) -> SourceTable:
    """Return rows that are in memory, which messages call by a label and their numbers.

    Args:
        label: Such as ``"dataset.json sample"``.
        values: Object of each row.
        columns: That every object must have.
    """
    records = ((f"{label} {number}", value) for number, value in enumerate(values, 1))
    return records_table(records, columns)


def _json(location: str, data: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        SourceError: It is no JSON, or holds half a surrogate pair.
        UnusableFile: It is longer than ``MOST_TEXT``.
    """
    check_size(len(data), MOST_TEXT, location)
    try:
        content = parse_json(data)
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise SourceError(
            f"{location}: it holds half a surrogate pair, which is no text"
        ) from None
    except ValueError as error:
        raise SourceError(f"{location} is no JSON ({error})") from error
    return content


def _object(location: str, value: Any, columns: Sequence[str]) -> Mapping[str, Any]:
    """Return an object with all columns, from its JSON text or as it is.

    Raises:
        SourceError: It is no JSON, no object, or lacks a column.
    """
    value = _json(location, value) if isinstance(value, bytes) else value
    if not isinstance(value, dict):
        raise SourceError(
            f"{location} is {kind_of(value)} and not an object with {', '.join(columns)}"
        )
    check_columns(location, columns, value)
    return value


def by_name(files: Iterable[Path]) -> OpenedFiles:
    """Return a function that reads one of these files by its name alone, within a block.

    Args:
        files: Of distinct names; of equal ones the last counts.
    """
    paths = {path.name: path for path in files}
    return contextlib.nullcontext(lambda name: read_named(paths[name]))


class UnusableRow(Exception):
    """A row gives no document.

    Args:
        cause: Why, without a final stop.
        outside: See :class:`PublishedRow`.
    """

    def __init__(self, cause: str, *, outside: bool = False) -> None:
        super().__init__(cause)
        self.outside = outside


class TableReader:
    """Reading of a benchmark whose splits are tables. Every benchmark has a class of its own.

    Example:
        >>> from medtasks.data.schema import CHOICE, choice_document
        >>> class Yours(TableReader):
        ...     columns = CHOICE
        ...     required = ("id", "question", "answer", "file")
        ...     image_name = "file"
        ...     def document(self, row, split):
        ...         options = ["Yes", "No"]
        ...         right = options.index(row.one_of("answer", options, "answer is none of"))
        ...         return choice_document(row.text("id"), row.text("question"), options, right)
        >>> recipe = Yours().recipe("the Hub's parquet files data/test-*.parquet", ("test",))
    """

    columns: Columns  # of its documents
    required: Sequence[str] = ()  # columns of the table; also those that not every copy has
    optional: Sequence[str] = ()
    hub_folder = "data"  # of the Hub's parquet files
    # Columns of the table with an image file in each, or none, in the order shown.
    embedded: Sequence[str] = ()
    image_name = ""  # column with the name of an image file

    def table(self, source: Path, split: str) -> SourceTable:
        """Find a split in a source, by default in the Hub's parquet files.

        Args:
            source: Folder of the user.
            split: As it is published.
        """
        return hub_table(source, split, self.required, self.optional, self.hub_folder)

    def document(self, row: SourceRow, split: str) -> NewDocument:
        """Return the document of a row of a split.

        Args:
            row: Of the table.
            split: As it is published.

        Returns:
            A document without ``dataset`` and image files, see :func:`~medtasks.data.schema.new_document`.

        Raises:
            UnusableRow: It gives none.
            SourceError: The table is not as it was published.
        """
        raise NotImplementedError

    def names_of_images(self, row: SourceRow) -> Sequence[str]:
        """Return the names of a row's images, in the order shown.

        Args:
            row: Of the table.
        """
        return [row.text(self.image_name)] if self.image_name else ()

    def files(self, source: Path) -> OpenedFiles:
        """Open the image files of a source.

        Args:
            source: Folder of the user.

        Returns:
            A context manager that gives a function from a name of :meth:`names_of_images` to the file's bytes.
        """
        return by_name(())

    def volume(self, source: Path, name: str) -> Path | None:
        """Return the path of an image that is a volume, which is not copied, or None for another."""
        return None

    def rows(
        self,
        rows: SourceRows,
        split: str,
        source: Path,
        images: ImageStore,
    ) -> PublishedRows:
        """Read rows of a split in order. Their images are stored in several threads, a few rows ahead.

        Args:
            rows: Of the split's table.
            split: As it is published.
            source: Folder of the user, with the image files.
            images: Where they go.
        """
        waiting: deque[Future[PublishedRow]] = deque()
        add_volume = cache(images.add_volume)
        with (
            self.files(source) as read,
            ThreadPoolExecutor(1) as alone,
            ThreadPoolExecutor(_WORKERS) as workers,
        ):

            def store(data: bytes) -> StoredImage:
                if len(data) > _LARGE:
                    return alone.submit(images.add_bytes, data).result()
                return images.add_bytes(data)

            def store_named(name: str) -> StoredImage:
                path = self.volume(source, name)
                if path is None:
                    return store(read(name))
                return add_volume(path, source)

            def published_row(row: SourceRow) -> PublishedRow:
                """Return the row of the source, with the cause in place of a document if it gives none."""
                try:
                    document = self.document(row, split)
                except UnusableRow as error:
                    return PublishedRow(row.place, cause=str(error), outside=error.outside)
                adding = [
                    (name, partial(store_named, name)) for name in self.names_of_images(row)
                ]
                for column in self.embedded:
                    data = row.image_bytes(column)
                    if data is not None:
                        name = column if len(self.embedded) > 1 else ""
                        adding.append((name, partial(store, data)))
                return images_row(row.place, adding, document)

            for row in rows:
                waiting.append(workers.submit(published_row, row))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def recipe(
        self,
        layout: str,
        splits: Sequence[str] = ("test", "train"),
        hub_files: Sequence[str] = (),
    ) -> SourceRecipe:
        """Return the recipe of the benchmark.

        Args:
            layout: Files that a user gives, in words.
            splits: The one to evaluate and, if there is one, that of the few-shot examples.
            hub_files: Patterns of the files on the Hub, where they can be downloaded.
        """

        def test_rows(source: Path, images: ImageStore) -> Iterable[PublishedRow]:
            rows = self.table(source, splits[0]).rows()
            return self.rows(rows, splits[0], source, images)

        def examples(source: Path, images: ImageStore) -> Iterable[PublishedRow]:
            rows = self.table(source, splits[1]).spread()
            return self.rows(rows, splits[1], source, images)

        demonstrations = examples if splits[1:] else None
        return SourceRecipe(self.columns, test_rows, layout, demonstrations, hub_files)

    def physionet_recipe(
        self, layout: str, project: str, tables: Sequence[str]
    ) -> SourceRecipe:
        """Return the recipe of a benchmark on PhysioNet.

        Args:
            layout: Files that a user gives, in words.
            project: Name and version, such as ``"mednli/1.0.0"``.
            tables: Files to download. The images that their rows name follow.
        """

        def fetch(physionet: PhysioNet, folder: Path) -> Path:
            """Download the tables, and then the images that their rows name."""
            physionet.fetch(project, tables, folder)
            tested = self.table(folder, "test").rows()
            rows = chain(tested, self.table(folder, "train").spread())
            names = chain.from_iterable(map(self.names_of_images, rows))
            physionet.fetch(project, names, folder)
            return folder

        return replace(self.recipe(layout), login_download=fetch)
