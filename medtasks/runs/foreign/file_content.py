"""Content of one file of another kit: its records, one after the other, and the first of them to recognise it by.

Nothing in a file is run, and no path or address in it is followed. Records are read one by one where a form allows it,
because prompts may hold images.
"""

import contextlib
import io
import itertools
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from medtasks.data.named_files import (
    MOST_TEXT,
    MOST_WHOLE,
    check_archive,
    check_kind,
    check_size,
    limited_lines,
    read_file,
    read_stream,
)
from medtasks.data.safe_parsing import exact_decoder
from medtasks.data.table_files import TableRow, read_table, utf_16_of
from medtasks.errors import RepliesError

CELL_LIMIT = 32_767  # letters in a cell of a workbook; programs cut longer texts
_HEAD = 20  # records by which a file is recognised
_BEGINNING = 4096  # bytes
_ZIP = b"PK\x03\x04"
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_NO_TEXT = re.compile(r"[\udc80-\udcff]")
_BLANK = re.compile(r"[ \t\r\n]*")


_SAMPLE = re.compile(r"samples/.+\.json")
_LINES = (".jsonl", ".ndjson")
_ZSTD = 93  # compression method of a member of a ZIP archive
_MEMBER_HEADER = 30  # bytes of the fixed part of a member's own header


@dataclass(frozen=True)
class FileContent:
    """Records of a file.

    Attributes:
        path: The file.
        form: ``table`` (CSV, workbook), ``lines`` (JSON Lines), ``list`` or ``object`` (JSON), ``log`` (archive of
            samples).
        head: The first records that can be read.
        records: Return all records with their places; RepliesError at the first that cannot be read.
        notes: Sentences on how it was read.
    """

    path: Path
    form: str
    head: tuple[Mapping[str, Any], ...]
    records: Callable[[], Iterator[TableRow]]
    notes: tuple[str, ...] = ()

    @property
    def keys(self) -> Collection[str]:
        """Keys of its first record."""
        return self.head[0].keys() if self.head else ()

    @property
    def described_keys(self) -> str:
        """Its columns, for messages. Keys of a single object may be ids and are not shown."""
        return "one object" if self.form == "object" else ", ".join(self.keys) or "nothing"


def read_content(
    path: Path,
    sheet_name: str = "",
    header: Collection[str] = (),
) -> FileContent:
    """Read the beginning of a file.

    Args:
        path: The file.
        sheet_name: Sheet of a workbook; empty for the first visible one.
        header: Columns that the row of names in a table must have.

    Raises:
        RepliesError: The file is a pickle, or a workbook next to one, or not valid JSON, or a log without samples.
        SourceError: The file begins neither like JSON nor like a log, and is no table.
        OSError: The file cannot be read.
    """
    check_kind(path)
    with path.open("rb") as stream:
        beginning = stream.read(_BEGINNING)
    if _PICKLE.match(beginning) or path.suffix.lower() in (".pkl", ".pickle"):
        raise RepliesError(
            f"{path} is a pickle, which can run code when it is opened, and is never read; write a table in its place, "
            "with VLMEvalKit by PRED_FORMAT=tsv"
        )
    if beginning.startswith(_ZIP) and (members := _sample_members(path)):
        return _with_head(path, "log", lambda: _members(path, members))
    if beginning.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n")[:1] in (b"{", b"["):
        return _json(path, beginning)
    # VLMEvalKit leaves a pickle next to a workbook that it stopped writing.
    for twin in (path.with_suffix(".pkl"), path.resolve().with_suffix(".pkl")):
        if path.suffix.lower() == ".xlsx" and twin.exists():
            raise RepliesError(
                f"next to {path} lies {twin.name}: VLMEvalKit writes it where it fails to write the workbook, whose "
                "last replies are blank then; let it write the table again by PRED_FORMAT=tsv, or move the pickle away "
                "if the workbook is known to be complete"
            )
    table = read_table(path, has_formulas=False, sheet_name=sheet_name, header=header)
    content = _with_head(path, "table", lambda: iter(table.rows))
    return replace(content, notes=tuple(f"{path}: {note}" for note in table.notes))


def _json(path: Path, beginning: bytes) -> FileContent:
    """Read the beginning of a file of JSON: a list, lines, a table by columns, or one object.

    Args:
        path: The file.
        beginning: Its first bytes.

    Raises:
        RepliesError: The file is not text in UTF-8 or UTF-16, or not valid JSON.
    """
    encoding = utf_16_of(beginning) or "utf-8-sig"
    first_line = beginning.decode(encoding, "ignore").lstrip().partition("\n")[0].rstrip()
    if first_line.startswith("["):
        text = _decode(read_file(path, MOST_WHOLE // 2), encoding, path)
        return _with_head(path, "list", lambda: _entries(path, text))
    is_named_so = path.suffix.lower() in _LINES
    if is_named_so or first_line != "{":
        readable = itertools.islice(_lines(path, encoding, only_readable=True), _HEAD)
        head = tuple(row.values for row in readable)
        if is_named_so or len(head) > 1:
            return FileContent(path, "lines", head, lambda: _lines(path, encoding))
    content = _object(_decode(read_file(path, MOST_TEXT), encoding, path), str(path))
    rows = _rows_of_columns(content, path)
    if rows:
        return _with_head(path, "list", lambda: iter(rows))
    return _with_head(path, "object", lambda: iter([TableRow(str(path), content)]))


def _rows_of_columns(content: Mapping[str, Any], path: Path) -> list[TableRow]:
    """Return the rows of a table that is written by columns, as pandas does, or none for another object."""
    names: Any = content.get("columns")
    rows: Any = content.get("data")
    try:
        if not isinstance(names, list):
            names = list(content)
            columns = []
            for column in content.values():
                columns.append(list(column.values()) if isinstance(column, dict) else column)
            if len(columns) < 2 or not all(isinstance(column, list) for column in columns):
                return []
            rows = zip(*columns, strict=True)
        table = []
        for number, cells in enumerate(rows, start=1):
            table.append(
                TableRow(f"{path}, entry {number}", dict(zip(names, cells, strict=True)))
            )
        return table
    except (TypeError, ValueError):  # rows or columns of several lengths
        return []


def _with_head(
    path: Path,
    form: str,
    records: Callable[[], Iterator[TableRow]],
) -> FileContent:
    """Return the content of a file with its first records, those in front of the first that is no object."""
    head = []
    with contextlib.suppress(_NoObject):
        for row in itertools.islice(records(), _HEAD):
            head.append(row.values)
    return FileContent(path, form, tuple(head), records)


class _NoObject(RepliesError):
    """An entry is a text, a number or a list, as in no file of a kit, of which the head of a file has none."""


def _lines(
    path: Path,
    encoding: str,
    *,
    only_readable: bool = False,
) -> Iterator[TableRow]:
    """Yield the objects in lines, without damaged ones or with RepliesError for them."""
    damages = (RepliesError,) if only_readable else ()
    # Replies may hold other line separators. Bytes that are no text become halves of surrogate pairs.
    with path.open(encoding=encoding, errors="surrogateescape", newline="\n") as stream:
        for number, line in enumerate(limited_lines(stream, str(path)), start=1):
            location = f"{path} line {number}"
            with contextlib.suppress(*damages):
                if _NO_TEXT.search(line):
                    raise RepliesError(
                        f"{location} is not text in UTF-8; save the file as UTF-8"
                    )
                if line.strip():
                    yield TableRow(location, _object(line, location))


def _entries(path: Path, text: str) -> Iterator[TableRow]:
    """Yield the entries of a JSON list, one after the other.

    Raises:
        RepliesError: An entry is no object, or the list is not valid JSON, has no end, or has text after it.
    """
    decoder = exact_decoder()
    position = _skip_blank(text, text.index("[") + 1)
    for number in itertools.count(1):
        if text[position : position + 1] == "]":
            if _skip_blank(text, position + 1) < len(text):
                raise RepliesError(
                    f"{path} goes on after the end of its list; save one list in a file"
                )
            return
        location = f"{path}, entry {number}"
        content, position = _parse(decoder.raw_decode, location, text, position)
        yield TableRow(location, _check_object(content, location))
        position = _skip_blank(text, position)
        if text[position : position + 1] not in (",", "]"):
            raise RepliesError(
                f"{location} is followed by no comma or end of the list: the file is cut or damaged"
            )
        position = _skip_blank(text, position + (text[position] == ","))


def _decode(data: bytes, encoding: str, location: object) -> str:
    """Decode text, or raise RepliesError with its location for bytes that are no text."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise RepliesError(
            f"{location} is not text in UTF-8 (byte {error.start + 1}); save it as UTF-8"
        ) from error


def _skip_blank(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position


def _object(text: str, location: str) -> dict[str, Any]:
    """Return a JSON object. ``NaN`` is a float in it, which no text of a row may be."""
    return _check_object(_parse(exact_decoder().decode, location, text), location)


def _parse(
    parse: Callable[..., Any],
    location: str,
    *arguments: Any,
) -> Any:
    """Return ``parse(*arguments)``, or raise RepliesError with the location for what is not valid JSON."""
    try:
        return parse(*arguments)
    except RecursionError:
        raise RepliesError(f"{location} is not valid JSON (it is nested too deeply)") from None
    except ValueError as error:
        raise RepliesError(f"{location} is not valid JSON ({error})") from error


def _check_object(content: Any, location: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise _NoObject(f"{location} is no JSON object like {{...}}")
    return content


def _sample_members(path: Path) -> list[zipfile.ZipInfo]:
    """List the samples in a log of inspect_ai, none for another archive.

    Raises:
        RepliesError: The archive is a log in which no sample was saved.
    """
    with zipfile.ZipFile(path) as archive:
        members = [each for each in archive.infolist() if _SAMPLE.fullmatch(each.filename)]
        if members:
            check_archive(archive, path.stat().st_size)
        elif "_journal/start.json" in archive.namelist():
            raise RepliesError(
                f"{path} is a log of inspect_ai without any sample: no reply was saved in it"
            )
    return members


def _members(
    path: Path,
    members: Sequence[zipfile.ZipInfo],
) -> Iterator[TableRow]:
    """Yield the samples of a log, or raise RepliesError for one that is damaged or no JSON object."""
    with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        for number, member in enumerate(members, start=1):
            location = f"{path}, sample {number}"  # its name has the id
            check_size(member.file_size, MOST_TEXT, location)
            try:
                data = _content_of(archive, stream, member)
            except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
                raise RepliesError(
                    f"{location} cannot be unpacked ({error}); copy the log again"
                ) from error
            yield TableRow(location, _object(_decode(data, "utf-8-sig", location), location))


def _content_of(
    archive: zipfile.ZipFile,
    stream: IO[bytes],
    member: zipfile.ZipInfo,
) -> bytes:
    """Return the content of a member, which may be packed by Zstandard as Python before 3.14 cannot read.

    Raises:
        RepliesError: The member is packed by Zstandard, and the package zstandard is not installed.
        zipfile.BadZipFile: The member is damaged.
    """
    try:
        return archive.read(member)
    except NotImplementedError:
        if member.compress_type != _ZSTD:
            raise
    try:
        import zstandard
    except ImportError:
        raise RepliesError(
            f"{stream.name} is packed by Zstandard; run 'pip install zstandard', or write it as JSON by 'inspect log "
            f"dump {stream.name} > log.json'"
        ) from None
    stream.seek(member.header_offset)
    header = stream.read(_MEMBER_HEADER)
    # lengths of its name and of extra fields
    stream.seek(sum(struct.unpack("<HH", header[-4:])), os.SEEK_CUR)
    packed = io.BytesIO(stream.read(member.compress_size))
    try:
        data = read_stream(zstandard.ZstdDecompressor().stream_reader(packed), MOST_TEXT)
    except zstandard.ZstdError as error:
        raise zipfile.BadZipFile(str(error)) from error
    if zlib.crc32(data) != member.CRC:
        raise zipfile.BadZipFile("its checksum is another one")
    return data
