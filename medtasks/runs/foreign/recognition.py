"""Reader of result files of other evaluation kits, which are recognised by their content."""

import itertools
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from medtasks.errors import RepliesError, SourceError, join_names, unknown_name
from medtasks.runs.asked_questions import ASKED
from medtasks.runs.foreign.batch_outputs import BATCH
from medtasks.runs.foreign.evalscope_lines import EVALSCOPE
from medtasks.runs.foreign.file_content import CELL_LIMIT, FileContent, read_content
from medtasks.runs.foreign.foreign_rows import ForeignFile, KitReader
from medtasks.runs.foreign.harness_samples import HARNESS, PROMPTS, REPLIES
from medtasks.runs.foreign.inspect_logs import INSPECT
from medtasks.runs.foreign.medevalkit_results import MEDEVALKIT
from medtasks.runs.foreign.named_columns import Columns, has_reply, table_reader
from medtasks.runs.foreign.row_values import JsonObject, as_mapping
from medtasks.runs.foreign.vlmevalkit_tables import VLMEVALKIT
from medtasks.runs.logged_samples import SCORE
from medtasks.runs.question_manifest import MANIFEST, manifest_of_replies
from medtasks.runs.result_files import results_next_to, task_of
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
_LINES = (".jsonl", ".ndjson")
_ENDINGS = (*_LINES, ".json", ".xlsx", ".tsv", ".csv", ".eval")


def read_foreign(
    paths: Sequence[Path],
    format: str | None = None,
    columns: Columns | None = None,
) -> ForeignFile | None:
    """Read the replies that another kit, or a user's own loop, wrote.

    Args:
        paths: Files of one run, or a folder.
        format: Name of the kit, one of ``FORMATS``; recognised by default.
        columns: Columns of a table by the names in ``named_columns.FIELDS``, and ``sheet`` for the sheet of a workbook.

    Returns:
        The rows, or None for files of our own forms, and for a folder without a file of a kit.

    Raises:
        RepliesError: A file cannot be read, or its form cannot be told.
        UnknownName: There is no such format.
    """
    if format is not None and format not in FORMATS:
        raise unknown_name("format of replies", format, FORMATS)
    try:
        return _read_files(paths, format, dict(columns or {}))
    except (SourceError, zipfile.BadZipFile) as error:
        raise RepliesError(f"cannot read replies: {error}") from error
    except OSError as error:
        path = error.filename or paths[0]
        raise RepliesError(
            f"cannot read replies from {path}: {error.strerror or error}"
        ) from error


def _read_files(
    paths: Sequence[Path],
    format: str | None,
    columns: dict[str, str],
) -> ForeignFile | None:
    """Read files as :func:`read_foreign` does, without errors of the file system in words.

    Args:
        paths: Files of one run, or a folder.
        format: Name of the kit; None: the content decides.
        columns: Columns that the user named, empty without any.

    Returns:
        The rows, None for files of our own forms, and for a folder without a file of a kit.

    Raises:
        RepliesError: Some files are ours and others are not, or one cannot be read.
    """
    sheet_name = columns.pop("sheet", "")
    is_chosen = format is not None or bool(columns)
    header = {**columns}
    header.pop("options", None)
    by_path = {}
    for path in paths:
        contents = []
        for file in _files_in(path):
            content = read_content(file, sheet_name, header.values())
            if not is_chosen and _is_ours(content):
                break  # all files of this path are taken for ours
            contents.append(content)
        else:
            by_path[path] = contents
    all_contents = list(itertools.chain(*by_path.values()))
    reader = _reader(all_contents, format, columns)
    is_partly_ours = len(by_path) < len(paths)
    if reader is None:
        has_folder = not all(map(Path.is_file, paths))
        if is_partly_ours or has_folder or all(map(_has_id_alone, all_contents)):
            return None
        reader = FORMATS["table"]
    elif is_partly_ours:
        raise RepliesError(
            f"some files are in our own form, and others of {reader.name}; name those of one run"
        )
    return _rows(by_path, reader, has_id="id" in columns)


def _rows(
    by_path: Mapping[Path, Sequence[FileContent]],
    reader: KitReader,
    *,
    has_id: bool,
) -> ForeignFile | None:
    """Return the rows of the files that a user named, and of those in folders that are the reader's.

    Args:
        by_path: Contents of each named file, and of the files in each named folder.
        reader: Reader of all of them.
        has_id: Whether the user named the column of ids.

    Returns:
        The rows with their numbers, None if no folder has a file of the reader.

    Raises:
        RepliesError: A named file is not of the reader, or cannot be read.
    """
    selected = _select(by_path, reader)
    if not selected:
        return None
    replies = reader.read(selected)
    is_table = any(content.form == "table" for content in selected)
    rows = []
    for number, row in enumerate(replies.rows):
        is_cut_cell = is_table and len(row.reply or "") == CELL_LIMIT
        rows.append(replace(row, number=number, is_cut=row.is_cut or is_cut_cell))
    return replace(replies, rows=tuple(rows), is_id_named=replies.is_id_named or has_id)


def _select(
    by_path: Mapping[Path, Sequence[FileContent]],
    reader: KitReader,
) -> list[FileContent]:
    """Return all named files and, of each named folder, the files that the reader selects.

    Args:
        by_path: Contents of each named file, and of the files in each named folder.
        reader: Reader that must recognise every named file.

    Raises:
        RepliesError: A named file is not of the reader, or its files in a folder are of several runs.
    """
    selected: list[FileContent] = []
    for path, contents in by_path.items():
        written = list(filter(reader.recognise, contents))
        if path.is_file() and not written:
            raise RepliesError(
                f"{path} is no file of {reader.name}; it has {contents[0].described_keys}"
            )
        selected += reader.select(written) if path.is_dir() else written
    return selected


def _files_in(path: Path) -> list[Path]:
    """List a file, or the files of a folder that may be a kit's, those of JSON Lines first."""
    if not path.is_dir():
        return [path]
    manifest = manifest_of_replies(path)
    questions = {MANIFEST, *(manifest.files if manifest else ())}
    files: dict[Path, Path] = {}  # without links to others of them
    for file in sorted(
        path.rglob("*"), key=lambda file: (file.suffix.lower() not in _LINES, file)
    ):
        if file.name in questions or file.suffix.lower() not in _ENDINGS:
            continue
        if file.is_file():
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _is_ours(content: FileContent) -> bool:
    """Return whether a file is in our own form, or holds samples of a task of ours."""
    if content.form not in ("lines", "object"):
        return False
    if not content.head or any(map(_is_our_record, content.head)):
        return True
    name = task_of(content.path)
    # else a file of the same name
    is_of_run = results_next_to(content.path, lambda sentence: None) is not None
    return is_of_run and (name in task_files() or variant_of(name) is not None)


def _has_id_alone(content: FileContent) -> bool:
    """Return whether lines have an id, as ours do, and no reply."""
    has_id = not {"doc_id", "id"}.isdisjoint(content.keys)
    return content.form == "lines" and has_id and not has_reply(content)


def _is_our_record(record: JsonObject) -> bool:
    """Return whether a line is in our short form, or of the harness, on a task of ours or without its prompt."""
    if not record.keys() & {"doc_id", "id"}:
        return False
    if "reply" in record or ASKED in record:
        return True
    if record.keys() & {*REPLIES} and not record.keys() & PROMPTS:
        return True  # a file of the harness that says nothing of its questions
    if {"doc_id", "dataset"} <= as_mapping(record.get("doc")).keys():
        return True
    return bool({"schema_version", "sample", ASKED} & as_mapping(record.get(SCORE)).keys())


def _chosen_reader(format: str, columns: Columns) -> KitReader:
    """Return the reader of a format, with the columns that the user named for a table.

    Raises:
        RepliesError: Other columns than the ids are named for a kit, which would not read them.
    """
    if format == "table":
        return table_reader(columns)
    kit = FORMATS[format]
    if columns and columns != {"id": kit.id_column}:
        raise RepliesError(
            f"files of {kit.name} have columns of their own, and none can be named for {join_names([*columns])}; "
            "name no columns, or choose the format 'table'"
        )
    return kit


def _reader(
    contents: Sequence[FileContent],
    format: str | None,
    columns: Columns,
) -> KitReader | None:
    """Return the reader that a user chose, or the only one that recognises a file.

    Args:
        contents: Contents of all files.
        format: Key of ``FORMATS``; None: the content decides.
        columns: Columns that the user named, without ``sheet``; empty without any. Without a format the files are read
            as a table, unless a kit recognises a file and only its column of ids is named.

    Returns:
        The reader, None if no columns are named and no kit recognises a file.

    Raises:
        RepliesError: The files are of several kits, or other columns than the ids are named next to a kit's format.
    """
    if format is not None:
        return _chosen_reader(format, columns)
    kits = [kit for kit in _KITS if any(map(kit.recognise, contents))]
    if columns:
        kits = [kit for kit in kits if columns == {"id": kit.id_column}] or [
            table_reader(columns)
        ]
    if len(kits) > 1:
        names = join_names([kit.name for kit in kits])
        raise RepliesError(f"there are files of several kits: {names}; name those of one run")
    return next(iter(kits), None)
