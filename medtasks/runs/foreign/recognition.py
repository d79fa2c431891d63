"""Reader of result files of other evaluation kits, which are recognised by their content."""

import itertools
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from medtasks.errors import RepliesError, SourceError, listed, unknown_name
from medtasks.runs.asked_questions import ASKED
from medtasks.runs.foreign import (
    batch_outputs,
    evalscope_lines,
    harness_samples,
    inspect_logs,
    medevalkit_results,
    named_columns,
    vlmevalkit_tables,
)
from medtasks.runs.foreign.file_content import CELL_LIMIT, FileContent, read_content
from medtasks.runs.foreign.foreign_rows import ForeignFile
from medtasks.runs.logged_samples import SCORE
from medtasks.runs.question_manifest import MANIFEST, manifest_of_replies


class KitReader(Protocol):
    """Shape of a module that reads the files of one kit."""

    @property
    def KIT(self) -> str:  # a constant of the module
        """Name of the kit, for messages."""

    @property
    def ID_COLUMN(self) -> str:
        """Column or key with the id of a question."""

    def recognise(self, content: FileContent) -> bool:
        """Return whether the kit wrote a file."""

    def select(self, contents: Sequence[FileContent]) -> list[FileContent]:
        """Return the files of a folder that hold the replies of one run; RepliesError for several runs."""

    def read(self, contents: Sequence[FileContent]) -> ForeignFile:
        """Return the rows of the files of one run; RepliesError for what cannot be read."""


FORMATS: Mapping[str, KitReader] = {
    "medevalkit": medevalkit_results,
    "vlmevalkit": vlmevalkit_tables,
    "evalscope": evalscope_lines,
    "lm-eval": harness_samples,
    "lmms-eval": harness_samples,
    "inspect_ai": inspect_logs,
    "batch": batch_outputs,
    "table": named_columns,
}
"""Readers by the names that a user can give."""
_KITS = tuple(reader for reader in dict.fromkeys(FORMATS.values()) if reader is not named_columns)
_ENDINGS = (".jsonl", ".ndjson", ".json", ".xlsx", ".tsv", ".csv", ".eval")


def read_foreign(
    paths: Sequence[Path], format: str | None = None, columns: Mapping[str, str] | None = None
) -> ForeignFile | None:
    """Read the replies that another kit, or a user's own loop, wrote.

    Args:
        paths: Files of one run, or a folder.
        format: Name of the kit, one of ``FORMATS``; recognised by default.
        columns: Columns of a table by the names in ``named_columns.FIELDS``, and ``sheet`` for the sheet of a workbook.

    Returns:
        The rows; None for files of our own forms, and for a folder without a file of a kit.

    Raises:
        RepliesError: A file cannot be read, or its form cannot be told.
    """
    try:
        return _read(paths, format, dict(columns or {}))
    except (SourceError, zipfile.BadZipFile) as error:
        raise RepliesError(f"cannot read replies: {error}") from error
    except OSError as error:
        path = error.filename or paths[0]
        raise RepliesError(f"cannot read replies from {path}: {error.strerror or error}") from error


def _read(paths: Sequence[Path], format: str | None, columns: dict[str, str]) -> ForeignFile | None:
    sheet_name = columns.pop("sheet", "")
    header = [name for field, name in columns.items() if field != "options"]
    contents: dict[Path, list[FileContent]] = {}
    for path in paths:
        contents[path] = []
        for file in _files_in(path):
            content = read_content(file, sheet_name, header)
            if format is None and not columns and _is_ours(content):
                return None
            contents[path].append(content)
    files = list(itertools.chain(*contents.values()))
    reader = _reader(files, format, columns)
    if reader is None and all(map(Path.is_file, paths)):
        reader = named_columns
    if reader is None:
        return None
    selected: list[FileContent] = []
    for path, in_path in contents.items():
        written = list(filter(reader.recognise, in_path))
        if path.is_dir():
            selected += reader.select(written) if written else []
        elif reader is not named_columns and not written:
            raise RepliesError(f"{path} is no file of {reader.KIT}; its first keys are {listed(list(in_path[0].keys))}")
        else:
            selected += in_path
    if not selected:
        return None
    is_table = reader is named_columns
    replies = named_columns.read(selected, columns) if is_table else reader.read(selected)
    is_id_named = replies.is_id_named or "id" in columns
    return replace(replies, is_id_named=is_id_named, notes=(*replies.notes, *_cut_cells(selected, replies)))


def _files_in(path: Path) -> list[Path]:
    """List a file, or the files of a folder that may be a kit's, those of JSON Lines first."""
    if not path.is_dir():
        return [path]
    manifest = manifest_of_replies(path)
    questions = {MANIFEST, *(manifest.files if manifest else ())}
    files: dict[Path, Path] = {}  # without links to others of them
    for file in sorted(path.rglob("*"), key=lambda file: (_rank(file), file)):
        if file.suffix.lower() in _ENDINGS and file.is_file() and file.name not in questions:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _rank(file: Path) -> bool:
    return file.suffix.lower() not in _ENDINGS[:2]


def _is_ours(content: FileContent) -> bool:
    """Return whether a file is in our own form, or holds samples of a task of ours."""
    return content.form in ("lines", "object") and any(map(_is_our_record, content.head))


def _is_our_record(record: Mapping[str, Any]) -> bool:
    if not record.keys() & {"doc_id", "id"}:
        return False
    score = record.get(SCORE)
    doc = record.get("doc")
    if "reply" in record or ASKED in record:
        return True
    if isinstance(doc, dict) and {"doc_id", "dataset"} <= doc.keys():
        return True
    return isinstance(score, dict) and bool({"schema_version", "sample", ASKED} & score.keys())


def _reader(contents: Sequence[FileContent], format: str | None, columns: Mapping[str, str]) -> KitReader | None:
    """Return the reader that a user named, or the only one that recognises a file; None without one."""
    if format is not None and format not in FORMATS:
        raise unknown_name("format of replies", format, FORMATS)
    if format is not None:
        return FORMATS[format]
    if columns.keys() - {"id"}:
        return named_columns
    kits = [kit for kit in _KITS if any(map(kit.recognise, contents))]
    if columns:
        kits = [kit for kit in kits if columns["id"] == kit.ID_COLUMN]
    if len(kits) > 1:
        names = listed([kit.KIT for kit in kits])
        raise RepliesError(f"there are files of several kits: {names}; name those of one run")
    return kits[0] if kits else None


def _cut_cells(contents: Sequence[FileContent], file: ForeignFile) -> list[str]:
    """Return a sentence on replies as long as a cell of a workbook may be; none without any."""
    cut = sum(row.reply is not None and len(row.reply) == CELL_LIMIT for row in file.rows)
    if not cut or not any(content.form == "table" for content in contents):
        return []
    return [f"{cut} replies have exactly {CELL_LIMIT:,} letters, where Excel cuts them: their ends are lost"]
