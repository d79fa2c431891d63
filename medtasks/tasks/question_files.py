"""Question files on this machine, read as they are now, for the harness and for commands without it.

``datasets.load_dataset`` guesses types, takes brackets in a path for a pattern, and keeps what it has read by the name
of a folder; :func:`local_tables` stands in for it. Tables of texts are read by :mod:`medtasks.data.table_files`, other
files, such as parquet, by the library under a key of their state. Datasets on the Hub are left to the library alone.
"""

import functools
import glob
import hashlib
import inspect
import os
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.data.document_store import without_progress_bars
from medtasks.data.table_files import PARQUET_MARK, TABLE_ENDINGS, ReadingOptions, TableRow, read_table
from medtasks.errors import MedTasksError, SourceError, near_match, warn_once
from medtasks.tasks.task_index import LOCAL_LOADERS, ROWS, mapping_in, resolved

_KINDS = {"csv": "csv", "tsv": "csv", "excel": "excel", "xlsx": "excel", "json": "json", "jsonl": "json"}
_LIBRARY_KINDS = frozenset({"csv", "json", "parquet", "text", "pandas", "arrow"})  # which take a folder, too
_NEEDLESS = ("keep_default_na", "na_filter", "dtype")  # ways to have texts read as texts
_OPTIONS = {"sep": "sep", "delimiter": "sep", "encoding": "encoding", "sheet_name": "sheet_name", "field": "field"}
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d+)?")  # as a number is written; 007 and twenty digits are a name

HARNESS_ALONE = ("From_YouTube", "video", "builder_script")
"""Arguments of a task's data with which only the harness can load them."""
OF_HARNESS = ("local_files_only", "create_link", "force_download", "force_unzip", "load_from_disk")
"""Arguments of a task's data that the harness does not pass on to the library."""

Files = Mapping[str, Sequence[Path]]  # by split


def split_of(config: Mapping[str, Any]) -> str:
    """Return the split that the harness asks."""
    return str(config.get("test_split") or config.get("validation_split") or "test")


def local_tables(config: Mapping[str, Any], texts: Callable[[Sequence[str]], Collection[str]]) -> Any:
    """Return the splits of a task's questions on this machine, as ``datasets.load_dataset`` does; None for others.

    Args:
        config: The task's configuration.
        texts: Function from the names of a table's columns to those that stay texts, where all values are numbers.

    Raises:
        MedTasksError: A file is missing, is no table, or holds rows that are none.
    """
    import datasets

    path, arguments = _source(config)
    if path is None:
        return None
    files = local_files(config, path, arguments)
    if files is None and not os.path.isdir(path):
        return None
    rows = table_rows(config, path, files, arguments)
    if rows is not None:
        return datasets.DatasetDict({split: _table(of_split, texts) for split, of_split in rows.items()})
    location = path if files is None else ", ".join(str(file) for of_split in files.values() for file in of_split)
    if files is None:
        path = _without_brackets(path)
        members = [file for file in Path(path).rglob("*") if file.is_file()]
    else:
        members = [file for of_split in files.values() for file in of_split]
        path = path if path in LOCAL_LOADERS and path not in _KINDS else "parquet"
        arguments["data_files"] = {split: [glob.escape(str(f)) for f in of_split] for split, of_split in files.items()}
    state = [(str(file), *_state(file)) for file in sorted(members)]
    digest = hashlib.sha256(repr(state).encode()).hexdigest()[:16]
    cache = Path(arguments.pop("cache_dir", None) or datasets.config.HF_DATASETS_CACHE, f"medtasks-{digest}")
    try:
        return datasets.load_dataset(path, config.get("dataset_name"), cache_dir=str(cache), **arguments)
    except Exception as error:
        damaged = [file for file in members if file.suffix == ".parquet" and not _is_whole_parquet(file)]
        fault = f"holds {damaged[0].name}, no whole parquet file" if damaged else f"is damaged ({type(error).__name__})"
        raise SourceError(f"{location} {fault}; save or download it again") from error


def _source(config: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the path of a task's questions and the arguments of the library; None where only the harness loads."""
    path = resolved(config.get("dataset_path"))
    arguments = dict(mapping_in(config, "dataset_kwargs"))
    if not isinstance(path, str) or arguments.get("load_from_disk") or any(name in arguments for name in HARNESS_ALONE):
        return None, arguments
    return path, {name: value for name, value in arguments.items() if name not in OF_HARNESS}


def local_files(config: Mapping[str, Any], path: str, arguments: Mapping[str, Any]) -> Files | None:
    """Return the files of a task's questions by split; None for a folder, and for what is not on this machine.

    Names are those of files first, and patterns where no file has the name.
    """
    names: Any = arguments.get("data_files")
    if path not in LOCAL_LOADERS:
        if names is not None and "/" not in path and (hint := near_match(path.lower(), LOCAL_LOADERS)):
            raise MedTasksError(f"the task '{config.get('task')}': no kind of file is called '{path}'{hint}")
        is_file = Path(path).suffix.lower() in (*TABLE_ENDINGS, ".parquet") or os.path.isfile(path)
        if not is_file or "://" in path or os.path.isdir(path):
            return None
        names = path
    elif names is None:
        if path in _LIBRARY_KINDS:
            return None
        raise MedTasksError(
            f"the task '{config.get('task')}' names no file; write dataset_path: FILE, or dataset_kwargs: "
            f"{{data_files: {{{split_of(config)}: FILE}}}}"
        )
    by_split = names if isinstance(names, Mapping) else {split_of(config): names}
    files: dict[str, list[Path]] = {}
    for split, of_split in by_split.items():
        files[split] = []
        for name in map(str, of_split if isinstance(of_split, list | tuple) else [of_split]):
            if "://" in name:
                return None
            matching = [name] if os.path.isfile(name) else sorted(glob.glob(name, recursive=True))
            if not matching:
                folder = Path(name).parent
                hint = near_match(Path(name).name, os.listdir(folder) if folder.is_dir() else ())
                raise SourceError(
                    f"the documents of '{config.get('task')}' ({name}) cannot be loaded: there is no such file, "
                    f"neither next to the task's file nor in the working folder{hint}"
                )
            files[split] += [Path(file) for file in matching if os.path.isfile(file)]
    return files


def table_rows(
    config: Mapping[str, Any], path: str, files: Files | None, arguments: Mapping[str, Any]
) -> dict[str, list[TableRow]] | None:
    """Read a task's tables of texts; None where its files are others. ``files`` is None for a folder."""
    import datasets

    kind = _KINDS.get(path, "" if path in LOCAL_LOADERS else "csv")
    if files is None:
        known = inspect.signature(datasets.load_dataset_builder).parameters
        passed_on = {name: value for name, value in arguments.items() if name in known}
        try:
            builder = datasets.load_dataset_builder(_without_brackets(path), config.get("dataset_name"), **passed_on)
        except Exception as error:
            raise SourceError(
                f"the folder {path} holds no questions as the Hub keeps them ({type(error).__name__}); name a file"
            ) from error
        kind = _KINDS.get(builder.name, "")
        files = {str(split): list(map(Path, named)) for split, named in builder.config.data_files.items()}
    every = [file for of_split in files.values() for file in of_split]
    kinds = {file: TABLE_ENDINGS.get(file.suffix.lower(), kind) for file in every if file.suffix != ".parquet"}
    if len(kinds) < len(every) or not all(kinds.values()) or any(_starts_as_parquet(file) for file in every):
        return None
    options = _reading_options(path, arguments)
    rows: dict[str, list[TableRow]] = {}
    for split, of_split in files.items():
        rows[split] = []
        for file in of_split:
            table = read_table(file, kinds[file], options)
            rows[split] += table.rows
            for note in table.notes:
                warn_once(f"{file}: {note}", "INFO")
    return rows


def places(config: Mapping[str, Any]) -> list[str]:
    """Return file and row of each sample, as a person counts them; none where that is unknown."""
    path, arguments = _source(config)
    if config.get("process_docs") or path is None:
        return []
    try:
        files = local_files(config, path, arguments)
        rows = table_rows(config, path, files, arguments) if files is not None or os.path.isdir(path) else None
    except MedTasksError:
        return []
    of_split = (rows or {}).get(split_of(config), [])
    conditions = _conditions(config)
    return [row.place for row in of_split if _is_asked(row.values, conditions)]


def _reading_options(path: str, arguments: Mapping[str, Any]) -> ReadingOptions:
    import datasets

    known = inspect.signature(datasets.load.load_dataset).parameters
    chosen: dict[str, str] = {}
    for name, value in arguments.items():
        if name in _OPTIONS:
            chosen[_OPTIONS[name]] = str(value or "")
        elif name not in known and name not in _NEEDLESS:
            hint = near_match(name, _OPTIONS) or f"; there are {', '.join(_OPTIONS)}"
            raise MedTasksError(f"dataset_kwargs: '{name}' is no option of a table such as {path}{hint}")
    return ReadingOptions(**chosen)


def _table(rows: Sequence[TableRow], texts: Callable[[Sequence[str]], Collection[str]]) -> Any:
    """Return rows as a table of the ``datasets`` library, with numbers where nothing needs the text."""
    import datasets

    names = [*dict.fromkeys(name for row in rows for name in row.values)]
    as_texts = texts(names)
    columns: dict[str, list[Any]] = {}
    for name in names:
        values = [row.values.get(name) for row in rows]
        columns[name] = values if name in as_texts else _numbers(values)
    return datasets.Dataset.from_dict(columns, on_mixed_types="use_json")


def _numbers(values: list[Any]) -> list[Any]:
    """Return a column of texts as numbers, if all are written as numbers and different texts stay different."""
    written = {value for value in values if value is not None} if all(isinstance(v, str | None) for v in values) else ()
    if not written or not all(map(_NUMBER.fullmatch, written)):
        return values
    numbers = {text: float(text) if any("." in each for each in written) else int(text) for text in written}
    if len(set(numbers.values())) < len(written):
        return values
    return [None if value is None else numbers[value] for value in values]


# ---- rows of one table that belong to a task ----


def asked_rows(table: Any, config: Mapping[str, Any]) -> Any:
    """Return a table of the ``datasets`` library with the rows that the task asks, by ``rows`` in its metadata."""
    conditions = _conditions(config)
    if not conditions:
        return table
    task = config.get("task")
    for name in conditions:
        if name not in table.column_names:
            hint = near_match(name, table.column_names) or f"; there are {', '.join(table.column_names)}"
            raise MedTasksError(f"'{ROWS}' in the metadata of '{task}' names no column '{name}'{hint}")
    chosen = [number for number, row in enumerate(table.select_columns([*conditions])) if _is_asked(row, conditions)]
    shown = " and ".join(f"{name}: {' or '.join(values)}" for name, values in conditions.items())
    if not chosen:
        raise MedTasksError(f"none of the {len(table)} rows for '{task}' has {shown}, as '{ROWS}' in its metadata asks")
    warn_once(f"'{task}' asks {len(chosen)} of {len(table)} rows, those with {shown}", "INFO")
    with without_progress_bars():
        return table.select(chosen).flatten_indices()


def _conditions(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the values that a row has to have by column; MedTasksError where they are written otherwise."""
    written = mapping_in(config, "metadata").get(ROWS) or {}
    conditions: dict[str, list[str]] = {}
    for name, values in written.items() if isinstance(written, Mapping) else [("", None)]:
        listed = values if isinstance(values, list) else [values]
        if any(not isinstance(value, str | int | float) or isinstance(value, bool) for value in listed):
            raise MedTasksError(
                f"'{ROWS}' in the metadata of a task is {written!r}; it must name the values of a column, in quotes, "
                f'such as {{type: "yes/no"}} or {{type: ["choice", "yes"]}}'
            )
        conditions[str(name)] = [str(value).strip() for value in listed]
    return conditions


def _is_asked(row: Mapping[str, Any], conditions: Mapping[str, Collection[str]]) -> bool:
    return all(
        str(row.get(name)).strip().casefold() in map(str.casefold, values) for name, values in conditions.items()
    )


# ---- files of the library ----


def _state(file: Path) -> tuple[int, ...]:
    """Return numbers that change with a file's content; the time of the last change cannot be set by hand."""
    state = file.stat()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


@functools.cache
def _without_brackets(folder: str) -> str:
    """Return a path to the same files that the library does not take for a pattern."""
    if glob.escape(os.path.abspath(folder)) == os.path.abspath(folder):
        return folder
    copy = Path(tempfile.mkdtemp(prefix="medtasks_"), "questions")
    for file in Path(folder).rglob("*"):
        if file.is_file():
            link = copy / file.relative_to(folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.absolute())
    return str(copy)


def _starts_as_parquet(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(PARQUET_MARK)) == PARQUET_MARK


def _is_whole_parquet(file: Path) -> bool:
    content_end = file.read_bytes()[-len(PARQUET_MARK) :]
    return _starts_as_parquet(file) and content_end == PARQUET_MARK
