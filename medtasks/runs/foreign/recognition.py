"""Reader of result files of other evaluation kits, which are recognised by their content."""

import itertools
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from medtasks.errors import RepliesError, SourceError, listed, unknown_name
from medtasks.runs.asked_questions import ASKED
from medtasks.runs.foreign.batch_outputs import BATCH
from medtasks.runs.foreign.evalscope_lines import EVALSCOPE
from medtasks.runs.foreign.file_content import CELL_LIMIT, FileContent, read_content
from medtasks.runs.foreign.foreign_rows import ForeignFile
from medtasks.runs.foreign.harness_samples import HARNESS, PROMPTS, REPLIES
from medtasks.runs.foreign.inspect_logs import INSPECT
from medtasks.runs.foreign.kit_reader import KitReader
from medtasks.runs.foreign.medevalkit_results import MEDEVALKIT
from medtasks.runs.foreign.named_columns import has_reply, table_reader
from medtasks.runs.foreign.vlmevalkit_tables import VLMEVALKIT
from medtasks.runs.logged_samples import SCORE
from medtasks.runs.question_manifest import MANIFEST, manifest_of_replies
from medtasks.runs.result_files import task_of
from medtasks.tasks.task_files import task_files, variant_of

_KITS = (MEDEVALKIT, VLMEVALKIT, EVALSCOPE, HARNESS, INSPECT, BATCH)
FORMATS: Mapping[str, KitReader] = {
    "medevalkit": MEDEVALKIT,
    "vlmevalkit": VLMEVALKIT,
    "evalscope": EVALSCOPE,
    "lm-eval": HARNESS,
    "lmms-eval": HARNESS,
    "inspect_ai": INSPECT,
    "batch": BATCH,
    "table": table_reader({}),
}
"""Readers by the names that a user can give."""
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
    is_chosen = format is not None or bool(columns)
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
    if ours and reader is not None and ours != list(paths):
        raise RepliesError(f"{ours[0]} is in our own form, and others are of {reader.name}; name files of one run")
    if reader is None and not ours and all(map(Path.is_file, paths)) and not all(map(_has_id_alone, contents)):
        reader = FORMATS["table"]
    return None if ours or reader is None else _rows(by_path, reader, columns)


def _rows(
    by_path: Mapping[Path, Sequence[FileContent]], reader: KitReader, columns: Mapping[str, str]
) -> ForeignFile | None:
    """Return the rows of the files that a user named, and of those in folders that are the reader's."""
    selected: list[FileContent] = []
    for path, contents in by_path.items():
        written = list(filter(reader.recognise, contents))
        if path.is_file() and not written:
            keys = listed([*contents[0].keys]) or "none"
            raise RepliesError(f"{path} is no file of {reader.name}; its first keys are {keys}")
        selected += reader.select(written) if path.is_dir() and written else written
    if not selected:
        return None
    replies = reader.read(selected)
    is_table = any(content.form == "table" for content in selected)
    rows = [replace(row, number=number) for number, row in enumerate(replies.rows)]
    if is_table:
        rows = [replace(row, is_cut=len(row.reply or "") == CELL_LIMIT) for row in rows]
    return replace(replies, rows=tuple(rows), is_id_named=replies.is_id_named or "id" in columns)


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
    return content.form == "lines" and bool({"doc_id", "id"} & {*content.keys}) and not has_reply(content)


def _is_our_record(record: Mapping[str, Any]) -> bool:
    if not record.keys() & {"doc_id", "id"}:
        return False
    score = record.get(SCORE)
    doc = record.get("doc")
    if "reply" in record or ASKED in record:
        return True
    if record.keys() & {*REPLIES} and not record.keys() & PROMPTS:
        return True  # a file of the harness that says nothing of its questions
    if isinstance(doc, dict) and {"doc_id", "dataset"} <= doc.keys():
        return True
    return isinstance(score, dict) and bool({"schema_version", "sample", ASKED} & score.keys())


def _reader(contents: Sequence[FileContent], format: str | None, columns: Mapping[str, str]) -> KitReader | None:
    """Return the reader that a user named, or the only one that recognises a file; None without one."""
    if format is not None and format not in FORMATS:
        raise unknown_name("format of replies", format, FORMATS)
    kits = [kit for kit in _KITS if any(map(kit.recognise, contents))]
    if columns:
        kits = [kit for kit in kits if columns == {"id": kit.id_column}]
    if format not in (None, "table"):
        return FORMATS[format or ""]
    if (columns and not kits) or format:
        return table_reader(columns)
    if len(kits) > 1:
        names = listed([kit.name for kit in kits])
        raise RepliesError(f"there are files of several kits: {names}; name those of one run")
    return kits[0] if kits else None
