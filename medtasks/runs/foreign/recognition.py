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
from medtasks.runs.result_files import task_of
from medtasks.tasks.task_files import task_files, variant_of


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
    is_chosen = format is not None or bool(columns)
    header = [name for field, name in columns.items() if field != "options"]
    by_path: dict[Path, list[FileContent]] = {}
    ours: list[Path] = []
    for path in paths:
        by_path[path] = []
        for file in _files_in(path):
            content = read_content(file, sheet_name, header)
            if not is_chosen and _is_ours(content):
                ours.append(path)
                break
            by_path[path].append(content)
    contents = list(itertools.chain(*by_path.values()))
    reader = _reader(contents, format, columns)
    if ours:
        if reader is not None and ours != list(paths):
            raise RepliesError(f"{ours[0]} is in our own form, and others are of {reader.KIT}; name files of one run")
        return None
    if reader is None and all(map(Path.is_file, paths)) and not all(map(_has_id_alone, contents)):
        reader = named_columns
    if reader is None:
        return None
    selected = _selected(by_path, reader)
    if not selected:
        return None
    replies = named_columns.read(selected, columns) if reader is named_columns else reader.read(selected)
    replies = replace(replies, is_id_named=replies.is_id_named or "id" in columns)
    return _with_cut_cells(replies) if any(content.form == "table" for content in selected) else replies


def _selected(by_path: Mapping[Path, Sequence[FileContent]], reader: KitReader) -> list[FileContent]:
    """Return the files that a user named, and those of a folder that are the reader's."""
    selected: list[FileContent] = []
    for path, contents in by_path.items():
        written = list(filter(reader.recognise, contents))
        if path.is_dir():
            selected += reader.select(written) if written else []
        elif written or reader is named_columns:
            selected += contents
        else:
            keys = listed([*contents[0].keys]) or "none"
            raise RepliesError(f"{path} is no file of {reader.KIT}; its first keys are {keys}")
    return selected


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
    if content.form not in ("lines", "object"):
        return False
    if not content.head or any(map(_is_our_record, content.head)):
        return True
    name = task_of(content.path)
    return name in task_files() or variant_of(name) is not None


def _has_id_alone(content: FileContent) -> bool:
    """Return whether lines have an id, as ours do, and no reply."""
    return content.form == "lines" and bool({"doc_id", "id"} & {*content.keys}) and not named_columns.recognise(content)


def _is_our_record(record: Mapping[str, Any]) -> bool:
    if not record.keys() & {"doc_id", "id"}:
        return False
    score = record.get(SCORE)
    doc = record.get("doc")
    if "reply" in record or ASKED in record:
        return True
    if record.keys() & {*harness_samples.REPLIES} and not record.keys() & harness_samples.PROMPTS:
        return True  # a file of the harness that says nothing of its questions
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


def _with_cut_cells(replies: ForeignFile) -> ForeignFile:
    """Return replies of a table, of which those as long as a cell may be are cut."""
    rows = tuple(replace(row, is_cut=len(row.reply or "") == CELL_LIMIT) for row in replies.rows)
    return replace(replies, rows=rows)
