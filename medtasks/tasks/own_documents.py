"""Documents that the harness loads itself, for tasks in a user's own folder: read here as it reads them there.

``columns`` in the metadata of a task's file say which of the file's columns hooks find under a name of theirs; columns
that follow from others need not be written (docs/own_tasks.md has both). Images in the table become files. In a task's
configuration hooks are functions, or their dotted names. Values are never in a message if the data are credentialed.
"""

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import Access
from medtasks.data.dataset_lookup import is_known
from medtasks.data.document_store import is_file_name, with_image_files, without_progress_bars
from medtasks.data.privacy import access_of, is_private
from medtasks.data.samples import REPLY_LANGUAGE, Document
from medtasks.data.schema import NewDocument
from medtasks.errors import MedTasksError, one_line, several, warn_once
from medtasks.extract.reading.languages import known_language
from medtasks.families.columns import Column
from medtasks.home import dataset_holding, owner_only
from medtasks.prompts.images import image_path
from medtasks.tasks.answer_columns import is_blank, listed_options, read_column
from medtasks.tasks.hook_names import families, family_of, hook_name
from medtasks.tasks.own_options import LETTERED_PROMPTS, checked_options
from medtasks.tasks.question_files import (
    asked_rows,
    datasets_of_files,
    library_arguments,
    local_tables,
    split_of,
)
from medtasks.tasks.task_file import names_in_templates
from medtasks.tasks.task_index import (
    COLUMNS,
    SETTINGS,
    Config,
    mapping_in,
    names_in,
    resolve_names,
)

Columns = Mapping[str, Sequence[Any]]
NewColumns = dict[str, list[Any]]
ColumnKinds = Mapping[str, Column]  # what columns have to hold
Names = Sequence[str]  # names of all columns

_IMAGES = ("image_file", "image_files")
_IDS = ("patient_id", "pair_id", "doc_id")
# Columns of families that also occur elsewhere, so that no family is recognised by them.
_FREE_NAMES = {"question", "dataset", "kind", "choices"}
_LONGEST = 24  # characters of a value in a message
_LETTERED = {"question": Column.TEXT, "options": Column.OPTIONS}
_PROMPTS: Mapping[str, ColumnKinds] = {
    **dict.fromkeys(LETTERED_PROMPTS, _LETTERED),
    "medtasks.prompts.template.closed_prompt": {"question": Column.TEXT},
    "medtasks.prompts.template.letters": {"options": Column.OPTIONS},
    "medtasks.prompts.template.option_texts": {"options": Column.OPTIONS},
}
_WITH_TEMPLATES = ("medtasks.prompts.template.", "medtasks.prompts.judged.")
_IMAGE_HOOK = "medtasks.prompts.images.images"
_FIELDS = _LETTERED | dict.fromkeys(
    ("context", "details", "indication", "hint"), Column.ANYTHING
)


def own_documents(task: str, config: Config) -> list[NewDocument]:
    """Return the documents of a task that were not prepared by us, in order.

    Args:
        task: Name of the task, for messages.
        config: Configuration of the task.

    Raises:
        MedTasksError: The documents cannot be loaded or used, see :func:`complete_documents`.
    """
    return rows_of(complete_documents(own_table(task, config), config, apart=True))


def columns_of(table: Any) -> NewColumns:
    """Return the columns of a table of the ``datasets`` library, which below 5 leaves mixed ones as JSON."""
    import datasets

    columns: NewColumns = table.to_dict()
    for name, feature in table.features.items():
        if isinstance(feature, datasets.Json):
            columns[name] = list(table[name])
    return columns


def rows_of(table: Any) -> list[NewDocument]:
    """Return the rows of a table of the ``datasets`` library, with the values of :func:`columns_of`."""
    columns = columns_of(table)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def complete_documents(table: Any, config: Config, *, apart: bool = False) -> Any:
    """Check a user's own documents, a table of the ``datasets`` library, and add the columns that follow from others.

    Args:
        table: All documents of the task's split.
        config: The task's configuration.
        apart: Whether to leave out columns with images or sound, and those by which other families of tasks are
            recognised: for commands, not for the harness.

    Raises:
        MedTasksError: A column is missing, or a row holds something else than the task's hooks need.
    """
    location = location_of(config)
    table = asked_rows(table, config)
    count = len(table)
    places = getattr(table, "places", ())
    if not places:
        places = [f"{location}, row {row}" for row in range(1, count + 1)]
    table, added = _under_our_names(table, config, places)
    names = [*dict.fromkeys([*table.column_names, *added])]
    needed_kinds: dict[str, Column] = {}
    for _, required in needed_columns(config, names):
        needed_kinds |= required
    used = {*needed_kinds, "doc_id", "pair_id", "position", "dataset", "options", *_IMAGES}
    columns = _columns_of(table, used - {*added}) | added
    datasets = _datasets_of_rows(config, columns, count)
    columns |= datasets
    answers = _answers_as_needed(config, columns, needed_kinds)
    columns |= answers
    added |= datasets | answers
    check(config, columns, names, location, places)
    _warn_of_unknown_datasets(config, columns)
    added |= checked_options(config, columns, location, places)
    added |= following(config.get("process_results"), columns, names, count)
    language = mapping_in(config, "metadata").get("language")
    if language is not None:
        language = known_language(language, f" of '{config.get('task')}':")
        added[REPLY_LANGUAGE] = [language] * count
    left_out = {*added}
    if apart:
        left_out |= _columns_of_others(config, {*needed_kinds, *added})
    table = table.remove_columns([name for name in table.column_names if name in left_out])
    for name, values in added.items():
        table = table.add_column(name, values)
    return without_media(table) if apart else table


def _columns_of(table: Any, names: Collection[str]) -> NewColumns:
    """Return the columns of a table of the ``datasets`` library that have one of the names."""
    present = [name for name in table.column_names if name in names]
    return columns_of(table.select_columns(present)) if present else {}


def _columns_of_others(config: Config, needed: Collection[str]) -> set[str]:
    """Return the names of columns by which other families are recognised, without the needed ones.

    Raises:
        MedTasksError: ``breakdown`` names one of them.
    """
    names = set[str]()
    for family in families().values():
        names.update(family.columns)
    names -= {*_FREE_NAMES, *needed}
    if hidden := names.intersection(names_in(mapping_in(config, "metadata").get("breakdown"))):
        raise MedTasksError(
            f"'breakdown' in the task's metadata names '{min(hidden)}', a column by which other families are known; "
            f"give it another name in {location_of(config)}"
        )
    return names


def _warn_of_unknown_datasets(config: Config, columns: Columns) -> None:
    """Warn of datasets of the column ``dataset`` that count as credentialed only because they are unknown."""
    for name in {*map(str, columns.get("dataset", ()))}:
        if is_private(name) and not is_known(name):
            warn_once(
                f"'{config.get('task')}': the column 'dataset' names '{name}', which medtasks does not know, so that "
                "its texts are withheld as credentialed; if they may be shown, give the column another name in the file"
            )


def _datasets_of_rows(config: Config, columns: Columns, count: int) -> NewColumns:
    """Return the column ``dataset`` with the credentialed dataset in which the file or images of a row really lie."""
    files = datasets_of_files(config)
    written = list(columns.get("dataset") or [None] * count)
    names: list[Any] = []
    for row, name in enumerate(written):
        cells = [columns[image][row] for image in _IMAGES if image in columns]
        images = _image_paths(config, {"dataset": name}, cells)
        candidates = filter(None, (name, *files, *map(dataset_holding, images)))
        private = (each for each in candidates if access_of(str(each)) is Access.CREDENTIALED)
        names.append(next(private, name))
    return {} if names == written else {"dataset": names}


def _image_paths(config: Config, document: Document, cells: Sequence[Any]) -> Iterator[Path]:
    """Yield the paths of images, for the settings of each model family. A cell is the name of an image, or a list."""
    settings = mapping_in(config, SETTINGS)
    for family, cell in itertools.product((settings, *settings.values()), cells):
        if not isinstance(family, Mapping):
            family = {}
        for image in cell if isinstance(cell, list) else [cell]:
            # The checks report what is no path.
            with contextlib.suppress(MedTasksError, ValueError):
                yield image_path(str(image), document, family)


def _answers_as_needed(
    config: Config,
    columns: Columns,
    needed_kinds: ColumnKinds,
) -> NewColumns:
    """Return the columns that are written in another form than hooks need."""
    changed: NewColumns = {}
    for name, kind in needed_kinds.items():
        if name not in columns:
            continue
        options = columns.get("options") or [()] * len(columns[name])
        values, note = read_column(name, kind, columns[name], options)
        if values != columns[name]:
            changed[name] = values
        if note:
            warn_once(f"'{config.get('task')}': {note}", "INFO")
    return changed


@owner_only()
def own_table(task: str, config: Config) -> Any:
    """Return the table of the ``datasets`` library that the harness asks.

    Args:
        task: Name of the task, for messages.
        config: Configuration of the task.

    Raises:
        MedTasksError: The table cannot be loaded, or is empty.
    """
    split = split_of(config)
    location = location_of(config)
    try:
        with without_progress_bars():
            table = _all_tables(task, config)[split]
            if config.get("process_docs"):
                table = resolve_names(config["process_docs"])(table)
    except MedTasksError:
        raise
    except Exception as error:
        cause = one_line(error.__cause__ or error)
        if isinstance(error, KeyError):
            cause = f"there is no split '{split}'"
        raise MedTasksError(
            f"the documents of '{task}' ({location}) cannot be loaded: {cause}"
        ) from error
    if not len(table):
        raise MedTasksError(
            f"the documents of '{task}' ({location}) are none: the file is empty"
        )
    return table


def _all_tables(task: str, config: Config) -> Any:
    """Return the tables of a task's documents by split, see :func:`own_table`.

    Raises:
        MedTasksError: Only the harness can load them. The library raises errors of its own.
    """
    import datasets

    path = resolve_names(config.get("dataset_path"))
    if path is None:
        raise MedTasksError(
            f"only the harness can load the documents of '{task}', so they are not checked here"
        )
    if mapping_in(config, "dataset_kwargs").get("load_from_disk"):
        return datasets.load_from_disk(path)
    tables = own_tables(config)
    if tables is not None:
        return tables
    return datasets.load_dataset(path, config.get("dataset_name"), **library_arguments(config))


def own_tables(config: Config) -> Any:
    """Return the splits of a task's own documents on this machine, or None for those that the library loads.

    Columns that hooks of ours read or show stay as they are written.
    """
    mapping = mapping_in(config, "metadata", COLUMNS)
    shown_columns = names_in_templates(mapping_in(config, SETTINGS))
    shown_columns = shown_columns.union(*map(names_in, mapping.values()))

    def texts(names: Names) -> set[str]:
        return shown_columns.union(*(columns for _, columns in needed_columns(config, names)))

    return local_tables(config, texts)


def without_media(table: Any) -> Any:
    """Return a table without columns of images and sound, so that they are never decoded."""
    import datasets

    media = []
    for name, feature in table.features.items():
        inner = getattr(feature, "feature", feature)  # that of a list's entries
        if isinstance(inner, datasets.Image | datasets.Audio):
            media.append(name)
    return table.remove_columns(media)


def location_of(config: Config) -> str:
    """Return the location of documents for messages: their files, or the dataset's name.

    Example:
        >>> location_of({"dataset_path": "csv", "dataset_kwargs": {"data_files": ["a.csv", "b.csv"]}})
        'a.csv, b.csv'
    """
    files = mapping_in(config, "dataset_kwargs").get("data_files")
    if isinstance(files, Mapping):
        files = files.get(split_of(config), files)
    return ", ".join(names_in(files or config.get("dataset_path")))


# ---- columns under other names and in other shapes ----


def _under_our_names(
    table: Any,
    config: Config,
    places: Sequence[str],
) -> tuple[Any, NewColumns]:
    """Return a table of the ``datasets`` library with files for images, and by our name its columns with other names.

    The columns have the names and shapes that hooks need, each of shape (documents,); their values are not checked.

    Raises:
        MedTasksError: The task's ``columns`` name none of the table.
        SourceError: An image is missing.
    """
    sources = _sources(config, table.column_names)
    for name in _IMAGES:
        holders = sources.pop(name, [name] if name in table.column_names else [])
        if any(_holds_images(table, holder) for holder in holders):
            root = default_settings(config).get("image_root")
            table = with_image_files(table, name, holders, places, root)
        elif holders != [name] and holders:
            sources[name] = holders
    columns: NewColumns = {}
    for name, holders in sources.items():
        values = _columns_of(table, holders)
        columns[name] = values[holders[0]]
        if len(holders) > 1:  # several sources are one column of lists
            rows = zip(*map(values.__getitem__, holders), strict=True)
            columns[name] = list(map(_without_empty_end, rows))
    options = (_columns_of(table, ["options"]) | columns).get("options", [])
    as_lists = list(map(listed_options, options))
    if as_lists != options:
        columns["options"] = as_lists
    return table, columns


def _sources(config: Config, names: Names) -> dict[str, list[str]]:
    """Return the columns of a file to take for each of ours, by ``columns`` in the task's metadata.

    Args:
        config: The task's configuration.
        names: Names of the columns that the file has.

    Raises:
        MedTasksError: ``columns`` is no mapping, or names a column that the file has not.
    """
    mapping = mapping_in(config, "metadata").get(COLUMNS) or {}
    if not isinstance(mapping, Mapping):
        raise MedTasksError(
            f"'columns' in the metadata of a task is {mapping!r}; it must say by our names of columns which of "
            f"{location_of(config)} to take, such as {{answer: answer_label}}"
        )
    sources = {}
    for name, source in mapping.items():
        holders = source if isinstance(source, list) else [source]
        sources[name] = holders
        for holder in holders:
            if holder not in names:
                raise MedTasksError(
                    f"{location_of(config)} has no column '{holder}', which 'columns' in the task's metadata names for "
                    f"'{name}'; it has {', '.join(names)}"
                )
        plain = name.casefold().replace("_", "").removesuffix("id")
        if name not in _IDS and f"{plain}_id" in _IDS:
            warn_once(
                f"'{config.get('task')}': 'columns' name '{name}', which no hook knows; write {plain}_id"
            )
    return sources


def _holds_images(table: Any, column: str) -> bool:
    """Return whether a column holds more than paths of files: images, or texts that are none."""
    inner = table.features[column]
    inner = getattr(inner, "feature", inner)
    if getattr(inner, "dtype", "") in ("binary", "large_binary", "PIL.Image.Image"):
        return True
    if isinstance(inner, Mapping) and "bytes" in inner:
        return True
    for cell in _columns_of(table, [column])[column]:
        for text in cell if isinstance(cell, list) else [cell]:
            if isinstance(text, str) and not is_file_name(text):
                return True
    return False


def default_settings(config: Config) -> Config:
    """Return a configuration's settings of prompts and images for the harness's default model family."""
    settings = mapping_in(config, SETTINGS)
    return mapping_in(settings, "default") if "default" in settings else settings


def _without_empty_end(values: Sequence[Any]) -> list[Any]:
    """Return values without those that are None after the last other one."""
    filled = [number for number, value in enumerate(values, start=1) if value is not None]
    return list(values[: max(filled, default=0)])


# ---- checks ----


def needed_columns(config: Config, names: Names) -> Iterator[tuple[str, ColumnKinds]]:
    """Yield who needs columns, for messages, and the needed columns, with what each has to hold.

    Args:
        config: The task's configuration.
        names: Names of its columns.
    """
    family = family_of(config.get("process_results"))
    who = ""
    if family is not None:
        short = family.short if "kind" not in names else None
        yield f"the family '{family.name}'", short or family.columns
        who = f"the prompt of the family '{family.name}'"
    for key in ("doc_to_text", "doc_to_messages", "doc_to_choice"):
        hook = hook_name(config.get(key))
        yield who or hook, _prompt_columns(hook, config)
    if hook_name(config.get("doc_to_visual")) == _IMAGE_HOOK:
        image = {"image_file": Column.TEXT}
        if "image_files" in names:
            image = {"image_files": Column.TEXTS}
        yield who or _IMAGE_HOOK, image


def _prompt_columns(hook: str, config: Config) -> ColumnKinds:
    """Return the columns that a hook of a prompt needs, none for a hook of the user's.

    Args:
        hook: Dotted name of the function.
        config: The task's configuration, whose templates name columns.
    """
    if hook in _PROMPTS or not hook.startswith(_WITH_TEMPLATES):
        return _PROMPTS.get(hook, {})
    fields = names_in_templates(mapping_in(config, SETTINGS))
    return {name: kind for name, kind in _FIELDS.items() if name in fields}


def is_our_hook(hook: object) -> bool:
    """Return whether a hook, a function or its dotted name, is one of this package.

    Example:
        >>> is_our_hook("medtasks.hooks.images.images"), is_our_hook(len)
        (True, False)
    """
    return hook_name(hook).startswith("medtasks.")


def check(
    config: Config,
    columns: Columns,
    names: Names,
    location: str,
    places: Sequence[str],
) -> None:
    """Check that documents hold the values that hooks of their task need.

    Args:
        config: The task's configuration.
        columns: The needed columns, each of shape (documents,).
        names: Names of all columns.
        location: File or dataset that the documents are from, for messages.
        places: Place of each document there, of shape (documents,).

    Raises:
        MedTasksError: Columns are missing, or rows hold something else; up to ten are named.
    """
    family = family_of(config.get("process_results"))
    keys: tuple[str, ...] = ("doc_id",)
    if family is not None:
        if family.paired:
            keys = ("pair_id", "position")
        if family.short is not None and "kind" in names and not {*family.columns} <= {*names}:
            raise MedTasksError(
                f"{location} has a column 'kind', which the family '{family.name}' uses itself; give yours another name"
            )
    _check_columns(config, names, location)
    faults = list(_wrong_values(config, columns, names, places))
    if {*keys} <= {*names}:
        faults += _repeated_keys({name: columns[name] for name in keys}, places)
    if faults:
        raise MedTasksError(several(faults))


def _repeated_keys(keys: Columns, places: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each document that has the same values as an earlier one in all ``keys``."""
    first_rows: dict[tuple[Any, ...], int] = {}
    for row, key in enumerate(zip(*keys.values(), strict=True)):
        first = first_rows.setdefault(key, row)
        if first != row:
            rows = f"{places[first]} and {places[row]} have the same {' and '.join(keys)}"
            yield f"{rows}, so that replies cannot be told apart"


def _wrong_values(
    config: Config,
    columns: Columns,
    names: Names,
    places: Sequence[str],
) -> Iterator[str]:
    """Yield a sentence for each value that is not what hooks need. The first on a column says what they need."""
    checked = set[tuple[str, Column]]()
    for who, required in needed_columns(config, names):
        for name, kind in required.items():
            if (name, kind) in checked:
                continue
            need = f", and {who} needs {kind.words}"
            for row, value in enumerate(columns[name]):
                options = columns["options"][row] if "options" in columns else ()
                if kind.holds(value, options):
                    continue
                is_hidden = "dataset" in columns and is_private(str(columns["dataset"][row]))
                fault = "something else" if is_hidden else _describe(kind, value, options)
                yield f"{places[row]}: '{name}' is {fault}{need}"
                need = ""
        checked |= required.items()


def _check_columns(config: Config, names: Names, location: str) -> None:
    """Raise MedTasksError for needed columns that the documents lack, each with the first hook that needs it."""
    missing: dict[str, str] = {}
    for who, required in needed_columns(config, names):
        for name in required:
            if name not in names and name not in missing:
                needs = f"which {who} needs (it needs {', '.join(required)})"
                missing[name] = f"'{name}', {needs}"
    if missing:
        raise MedTasksError(
            f"{location} has no column {several([*missing.values()])}; add it to {', '.join(names)}, or say which of "
            f"these it is: metadata: {{columns: {{{next(iter(missing))}: ...}}}}"
        )


def _describe(kind: Column, value: Any, options: Any) -> str:
    """Describe a value of the wrong kind, and which entry of a list is wrong."""
    if is_blank(value):
        return "empty"
    text = repr(value)
    is_long = len(text) > _LONGEST
    if not isinstance(value, list):
        return f"{text[:_LONGEST]}..." if is_long else text
    description = f"a list of {len(value)}"
    if not is_long:
        description += f" ({text})"
    for number, entry in enumerate(value, start=1):
        if kind.is_entry is not None and not kind.is_entry(entry, options):
            noun = "option" if kind is Column.OPTIONS else "entry"
            return f"{description}, of which {noun} {number} is {_fault_of_entry(kind, entry)}"
    return description


def _fault_of_entry(kind: Column, entry: Any) -> str:
    """Describe an entry that a list of the kind cannot have, in words that follow "is"."""
    if is_blank(entry):
        return f"missing ({'null' if entry is None else 'empty'})"
    if kind in (Column.OPTIONS, Column.TEXTS):
        return f"{entry!r} and no text (put it in quotes)"
    return repr(entry)


def following(
    process_results: object,
    columns: Columns,
    names: Names,
    count: int,
) -> NewColumns:
    """Return the columns that follow from others, such as ids, each of shape (documents,).

    Args:
        process_results: The task's hook that scores.
        columns: The needed columns, each of shape (documents,).
        names: Names of all columns.
        count: Number of documents.
    """
    family = family_of(process_results)
    paired = family is not None and family.paired
    ids: Iterable[Any] = range(count)
    if "doc_id" in names:
        ids = columns["doc_id"]
    elif paired:
        members = zip(columns["pair_id"], columns["position"], strict=True)
        ids = [f"{pair}/{position}" for pair, position in members]
    doc_ids = list(map(str, ids))
    added: NewColumns = {}
    if doc_ids != columns.get("doc_id"):
        added["doc_id"] = doc_ids
    added |= _image_ids(columns, names)
    if paired and "categories" not in names:
        added["categories"] = [[]] * count
    if family is None or family.short is None:
        return added
    return added | _following_of_closed_questions(columns, names, count)


def _following_of_closed_questions(
    columns: Columns,
    names: Names,
    count: int,
) -> NewColumns:
    """Return the columns by which the family of closed questions scores questions with the answers yes and no.

    Those with a column ``kind`` are complete, but for a source and a type of hallucination, which None replaces.
    """
    added: NewColumns = {}
    for name in ("source", "hallucination"):
        if name not in names:
            added[name] = [None] * count
    if "kind" in names:
        return added
    is_yes = [answer.strip().casefold() == "yes" for answer in columns["answer"]]
    added["kind"] = ["binary"] * count
    added["choices"] = [""] * count
    added["options"] = [["Yes", "No"]] * count
    added["gold"] = ["Yes" if each else "No" for each in is_yes]
    added["answer"] = ["A" if each else "B" for each in is_yes]
    return added


def _image_ids(columns: Columns, names: Names) -> NewColumns:
    """Return the column ``image_id``. There is nothing to return if the documents have it, or have no images."""
    if "image_id" in names:
        return {}
    if "image_files" in names:
        return {"image_id": [" ".join(files) or None for files in columns["image_files"]]}
    if "image_file" in names:
        return {"image_id": list(columns["image_file"])}
    return {}
