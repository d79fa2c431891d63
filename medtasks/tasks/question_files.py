"""Question files on this machine, read as they are now, for the harness and for commands without it.

``datasets.load_dataset`` guesses types, takes brackets in a path for a pattern, and keeps what it has read by the name
of a folder; :func:`local_tables` replaces it. Tables of texts are read by :mod:`medtasks.data.table_files`, other
files, such as parquet, by the library under a key of their state. Datasets on the Hub are left to the library alone.
"""

import contextlib
import glob
import hashlib
import importlib.util
import inspect
import itertools
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.data.document_store import without_progress_bars
from medtasks.data.table_files import TABLE_KINDS, TableRow, read_table
from medtasks.errors import MedTasksError, SourceError, near_match, warn_once
from medtasks.home import dataset_holding, file_state, owner_only
from medtasks.tasks.task_index import (
    LOCAL_LOADERS,
    ROWS,
    Config,
    NewConfig,
    mapping_in,
    names_in,
    resolve_names,
)

# Arguments of a task's data that the harness does not pass on to the library.
_OF_HARNESS = (
    "local_files_only",
    "create_link",
    "force_download",
    "force_unzip",
    "load_from_disk",
)
_OF_LIBRARY = ("csv", "json", "parquet", "text", "arrow")
_OPTIONS = ("sep", "delimiter", "encoding", "sheet_name", "field")  # arguments of read_table
_NEEDLESS = ("keep_default_na", "na_filter", "dtype")  # ways to have texts read as texts
# A number as it is written; 007 and twenty digits are a name.
_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d+)?")
# What is before the path of a file, as in zip://member::file:///folder/archive.zip.
_PROTOCOLS = re.compile(r".*(::|://)")

Files = Mapping[str, Sequence[Path]]  # files by split


def split_of(config: Config) -> str:
    """Return the split that the harness asks.

    Example:
        >>> split_of({"validation_split": "dev"})
        'dev'
    """
    return str(config.get("test_split") or config.get("validation_split") or "test")


def library_arguments(config: Config) -> NewConfig:
    """Return the arguments of a task's data that the harness passes on to the library.

    Example:
        >>> library_arguments({"dataset_kwargs": {"sep": ";", "force_download": True}})
        {'sep': ';'}
    """
    arguments = mapping_in(config, "dataset_kwargs")
    return {name: value for name, value in arguments.items() if name not in _OF_HARNESS}


def is_local(config: Config) -> bool:
    """Return whether a task's questions are on this machine, and no dataset on the Hub.

    Example:
        >>> is_local({"dataset_path": "csv"}), is_local({"dataset_path": "owner/name"})
        (True, False)
    """
    path = str(config.get("dataset_path"))
    if path in LOCAL_LOADERS or os.path.exists(path):
        return True
    return (
        path.isidentifier()
        and importlib.util.find_spec(f"datasets.packaged_modules.{path}") is not None
    )


def private_copies(config: Config) -> contextlib.AbstractContextManager[None]:
    """Keep the library's copies of questions on this machine for their owner within the block."""
    return owner_only() if is_local(config) else contextlib.nullcontext()


def datasets_of_files(config: Config) -> set[str]:
    """Return the prepared datasets in which the files of a task's questions really lie, however they are named."""
    import datasets

    path = str(resolve_names(config.get("dataset_path")))
    files = [Path(path)]
    if is_local(config) and not dataset_holding(files[0]):
        with contextlib.suppress(Exception):  # loading them raises the same
            files += itertools.chain(*(_named_files(config, path)[1] or {}).values())
        with contextlib.suppress(Exception):
            options = library_arguments(config)
            builder = datasets.load_dataset_builder(path, config.get("dataset_name"), **options)
            names = itertools.chain(*builder.config.data_files.values())
            files += [Path(_PROTOCOLS.sub("", name)) for name in names]
    return set(filter(None, map(dataset_holding, files)))


@owner_only()
def local_tables(config: Config, texts: Callable[[Sequence[str]], Collection[str]]) -> Any:
    """Return the splits of a task's questions on this machine as ``datasets.load_dataset`` does.

    Args:
        config: The task's configuration.
        texts: Function from the names of a table's columns to those that stay texts, where all values are numbers.

    Returns:
        None if the questions are not on this machine, or are a dataset that the library has saved.

    Raises:
        MedTasksError: A file is missing or no table, or holds rows that are none.
        SourceError: The path of a folder looks like a pattern.
    """
    import datasets

    path = resolve_names(config.get("dataset_path"))
    arguments = library_arguments(config)
    if not isinstance(path, str) or mapping_in(config, "dataset_kwargs").get("load_from_disk"):
        return None
    kind: str
    files: Files | None
    if os.path.isdir(path):  # as the Hub keeps datasets
        if glob.escape(os.path.abspath(path)) != os.path.abspath(path):
            raise SourceError(
                f"the library takes [, ? or * in {path} for a pattern; rename the folder, or name its files"
            )
        builder = datasets.load_dataset_builder(
            path, config.get("dataset_name"), data_files=arguments.get("data_files")
        )
        kind = builder.name
        names_by_split = builder.config.data_files.items()
        files = {str(split): list(map(Path, names)) for split, names in names_by_split}
    else:
        kind, files = _named_files(config, path)
    if files is None:
        return None
    members = [*itertools.chain(*files.values())]
    if kind not in TABLE_KINDS or any(file.suffix.lower() == ".parquet" for file in members):
        return _loaded_anew(config, path, kind, files)
    options = _reading_options(arguments)
    return datasets.DatasetDict(
        {name: _table(named, kind, options, texts) for name, named in files.items()}
    )


def _loaded_anew(
    config: Config,
    path: str,
    kind: str,
    files: Files,
) -> Any:
    """Return files as the library reads them, under a key of their state in its cache.

    Args:
        config: The task's configuration.
        path: The ``dataset_path`` of the task, a folder or a kind of file.
        kind: Kind of the files.
        files: The files by split.
    """
    import datasets

    settings = library_arguments(config)
    if not os.path.isdir(path):
        path = "parquet" if kind in TABLE_KINDS else kind
        settings["data_files"] = {
            name: [glob.escape(str(file)) for file in named] for name, named in files.items()
        }
    cache = os.environ.get("LMMS_EVAL_DATASETS_CACHE") or datasets.config.HF_DATASETS_CACHE
    state = hashlib.sha256()
    for file in itertools.chain(*files.values()):
        state.update(repr((str(file), *file_state(file))).encode())
    folder = f"medtasks-{state.hexdigest()[:16]}"
    settings["cache_dir"] = f"{settings.get('cache_dir', cache)}/{folder}"
    return datasets.load_dataset(path, config.get("dataset_name"), **settings)


def _named_files(config: Config, path: str) -> tuple[str, Files | None]:
    """Return kind and files of a task's questions. The files are None if they are not on this machine.

    Raises:
        MedTasksError: The files are pickles, the task names no file, or the kind is misspelt.
        SourceError: A file is missing.
    """
    names = mapping_in(config, "dataset_kwargs").get("data_files")
    task = config.get("task")
    if path == "pandas":
        raise MedTasksError(
            f"the task '{task}': pickles of pandas can run code and are not read; save them as parquet"
        )
    if path not in LOCAL_LOADERS:
        return "csv", _single_file(config, path, has_names=bool(names))
    if "://" in str(names) or (not names and path in _OF_LIBRARY):
        return path, None
    if not names:
        raise MedTasksError(f"the task '{task}' names no file; write dataset_path: FILE")
    by_split = names if isinstance(names, Mapping) else {split_of(config): names}
    return path, {split: _matching(task, *names_in(named)) for split, named in by_split.items()}


def _single_file(config: Config, path: str, *, has_names: bool) -> Files | None:
    """Return the file that a task names as its ``dataset_path``, or None if this can be a dataset on the Hub.

    Args:
        config: The task's configuration.
        path: The ``dataset_path`` of the task, which is no kind of file.
        has_names: Whether the task names its files elsewhere, so that the path can only be a misspelt kind.

    Raises:
        MedTasksError: The path is a misspelt kind of file.
        SourceError: There is no such file in a folder that exists.
    """
    task = config.get("task")
    hint = near_match(path.lower(), LOCAL_LOADERS) if has_names and "/" not in path else ""
    if hint:
        raise MedTasksError(f"the task '{task}': no kind of file is called '{path}'{hint}")
    is_file = os.path.isfile(path) or (Path(path).suffix and Path(path).parent.is_dir())
    return {split_of(config): _matching(task, path)} if is_file else None


def _matching(task: object, *names: str) -> list[Path]:
    """Return the files of these names, or else those that match one as a pattern, in which [ may mean itself.

    Raises:
        SourceError: No file has a name or matches it.
    """
    matches: list[Path] = []
    for name in names:
        paths = [name]
        if not os.path.isfile(name):
            paths = glob.glob(name) or glob.glob(name.replace("[", "[[]"))
        files = [Path(path) for path in sorted(paths) if os.path.isfile(path)]
        if not files:
            folder = Path(name).parent
            hint = near_match(Path(name).name, os.listdir(folder)) if folder.is_dir() else ""
            raise SourceError(
                f"the documents of '{task}' ({name}) cannot be loaded: there is no such file, neither next to the "
                f"task's file nor in the working folder{hint}"
            )
        matches += files
    return matches


def _reading_options(arguments: Config) -> dict[str, str]:
    """Return a user's choices for :func:`read_table`, among the arguments of the library.

    Raises:
        MedTasksError: An argument is neither one of the library nor one of :func:`read_table`.
    """
    import datasets

    ignored = {*inspect.signature(datasets.load_dataset).parameters, *_NEEDLESS}
    options = {name: str(value) for name, value in arguments.items() if name not in ignored}
    for name in options.keys() - _OPTIONS:
        raise MedTasksError(
            f"dataset_kwargs: '{name}' is no option of a table; there are {', '.join(_OPTIONS)}"
        )
    return options


def _table(
    files: Sequence[Path],
    kind: str,
    options: Mapping[str, str],
    texts: Callable[[Sequence[str]], Collection[str]],
) -> Any:
    """Return the rows of files as a table of the ``datasets`` library, with numbers where nothing needs the text.

    Its attribute ``places`` has the place of each row.
    """
    import datasets

    rows: list[TableRow] = []
    is_typed = False
    for file in files:
        table_file = read_table(file, TABLE_KINDS[kind], **options)
        rows += table_file.rows
        is_typed |= table_file.is_typed
        for note in table_file.notes:
            warn_once(f"{file}: {note}", "INFO")
    names = [*dict.fromkeys(itertools.chain.from_iterable(row.values for row in rows))]
    as_texts = names if is_typed else texts(names)
    columns = {}
    for name in names:
        cells = [row.values.get(name) for row in rows]
        columns[name] = cells if name in as_texts else _numbers(cells)
    table = datasets.Dataset.from_dict(columns, on_mixed_types="use_json")
    table.places = [row.place for row in rows]
    return table


def _numbers(values: list[Any]) -> list[Any]:
    """Return a column of texts as numbers, if all are written as numbers and different texts stay different."""
    written = {value for value in values if isinstance(value, str)}
    if not all(map(_NUMBER.fullmatch, written)):
        return values
    number_of = float if any("." in text for text in written) else int
    numbers = {text: number_of(text) for text in written}
    if len({*numbers.values()}) < len(written):
        return values
    return [numbers.get(value, value) for value in values]


def asked_rows(table: Any, config: Config) -> Any:
    """Return a table of the ``datasets`` library with the rows that the task asks, by ``rows`` in its metadata.

    Raises:
        MedTasksError: No row meets the conditions.
    """
    conditions = mapping_in(config, "metadata").get(ROWS)
    if not conditions:
        return table
    task = config.get("task")
    chosen: list[int] = []  # numbers of rows, from 0
    if isinstance(conditions, Mapping):
        chosen += range(len(table))
        for name, values in conditions.items():
            wanted = [value.strip().casefold() for value in names_in(values)]
            column = table[name] if name in table.column_names else [None] * len(table)
            chosen = [row for row in chosen if str(column[row]).strip().casefold() in wanted]
    if not chosen:
        raise MedTasksError(
            f"none of the {len(table)} rows for '{task}' has {conditions!r}, as '{ROWS}' in its metadata asks; write a "
            f'column and its values, such as {{type: "yes/no"}}, yes and no in quotes; there are the columns '
            f"{', '.join(table.column_names)}"
        )
    warn_once(
        f"'{task}' asks {len(chosen)} of {len(table)} rows, those with {conditions}", "INFO"
    )
    with without_progress_bars():
        selected = table.select(chosen).flatten_indices()
    selected.places = [table.places[row] for row in chosen] if hasattr(table, "places") else []
    return selected
