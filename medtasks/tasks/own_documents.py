"""Documents that the harness loads itself, for tasks in a user's own folder: read here as it reads them there.

``columns`` in the metadata of a task's file say which of the file's columns hooks find under a name of theirs; columns
that follow from others need not be written (docs/own_tasks.md has both). Images in the table become files. In a task's
configuration hooks are functions, or their dotted names.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from medtasks.data.document_store import is_file_name, with_image_files, without_progress_bars
from medtasks.data.privacy import is_private
from medtasks.data.samples import letter
from medtasks.errors import MedTasksError, several, warn_once
from medtasks.families.family import Column
from medtasks.families.family_registry import families, family_of
from medtasks.tasks.answer_columns import listed_options, read_column
from medtasks.tasks.own_options import LETTERED_PROMPTS, checked_options
from medtasks.tasks.published_names import hook_name
from medtasks.tasks.question_files import HARNESS_ALONE, OF_HARNESS, asked_rows, local_tables, split_of
from medtasks.tasks.task_file import names_in_templates
from medtasks.tasks.task_index import COLUMNS, SETTINGS, mapping_in, names_in, resolved

Columns = Mapping[str, Sequence[Any]]

_IMAGES = ("image_file", "image_files")
_FREE_NAMES = {"question", "dataset", "kind", "choices"}  # of families' columns, those by which none is recognised
_LONGEST = 24  # characters of a value in a message
_LETTERED = {"question": Column.TEXT, "options": Column.OPTIONS}
_PROMPTS: Mapping[str, Mapping[str, Column]] = {
    **dict.fromkeys(LETTERED_PROMPTS, _LETTERED),
    "medtasks.prompts.template.closed_prompt": {"question": Column.TEXT},
    "medtasks.prompts.template.letters": {"options": Column.OPTIONS},
    "medtasks.prompts.template.option_texts": {"options": Column.OPTIONS},
}
_IMAGE_HOOK = "medtasks.prompts.images.images"
_FIELDS = _LETTERED | dict.fromkeys(("context", "details", "indication", "hint"), Column.ANYTHING)


def own_documents(task: str, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the documents of a task that were not prepared by us, in order; errors: :func:`completed`."""
    rows: list[dict[str, Any]] = completed(own_table(task, config), config, apart=True).to_list()
    return rows


def completed(table: Any, config: Mapping[str, Any], *, apart: bool = False) -> Any:
    """Check a user's own documents, a table of the ``datasets`` library, and add the columns that follow from others.

    ``apart`` leaves out columns by which other families of tasks are recognised, and those that hold images or sound.
    Raises MedTasksError where a column is missing, or a row holds something else than the task's hooks need.
    """
    location = location_of(config)
    table = asked_rows(table, config)
    places = getattr(table, "places", ())
    table, renamed = _under_our_names(table, config, location)
    names = [*dict.fromkeys([*table.column_names, *renamed])]
    needed_kinds = {name: kind for _, columns in needed_columns(config, names) for name, kind in columns.items()}
    used = {*needed_kinds, "doc_id", "pair_id", "position", "dataset", "options", *_IMAGES}
    unchanged = [name for name in table.column_names if name in used - {*renamed}]
    columns = table.select_columns(unchanged).to_dict() if unchanged else {}
    columns |= renamed
    for name, values in _answers_as_needed(config, columns, needed_kinds).items():
        columns[name] = renamed[name] = values
    check(config, columns, names, location, places)
    _refuse_volumes(config, columns, location)
    renamed |= checked_options(config, columns, location, places)
    added = renamed | following(config.get("process_results"), columns, names, len(table))
    of_families = {name for family in families().values() for name in family.columns} - _FREE_NAMES
    left_out = {*added, *(of_families - {*needed_kinds} if apart else ())}
    if hidden := left_out.intersection(names_in(mapping_in(config, "metadata").get("breakdown"))) - {*added}:
        raise MedTasksError(
            f"'breakdown' in the task's metadata names '{min(hidden)}', a column by which other families are known; "
            f"give it another name in {location}"
        )
    table = table.remove_columns([name for name in table.column_names if name in left_out])
    for name, values in added.items():
        table = table.add_column(name, values)
    return without_media(table) if apart else table


def _answers_as_needed(
    config: Mapping[str, Any], columns: Columns, needed_kinds: Mapping[str, Column]
) -> dict[str, list[Any]]:
    """Return the columns that are written in another form than hooks need."""
    changed: dict[str, list[Any]] = {}
    for name in [name for name in needed_kinds if name in columns]:
        options = columns.get("options") or [()] * len(columns[name])
        values, note = read_column(name, needed_kinds[name], columns[name], options)
        if values != columns[name]:
            changed[name] = values
        if note:
            warn_once(f"'{config.get('task')}': {note}", "INFO")
    return changed


def own_table(task: str, config: Mapping[str, Any]) -> Any:
    """Return the table of the ``datasets`` library that the harness asks; MedTasksError where it cannot be loaded."""
    import datasets

    split, location = split_of(config), location_of(config)
    arguments = dict(config.get("dataset_kwargs") or {})
    try:
        with without_progress_bars():
            path = resolved(config.get("dataset_path"))
            if path is None or any(name in arguments for name in HARNESS_ALONE):
                raise MedTasksError(
                    f"only the harness can load the documents of '{task}', so they are not checked here"
                )
            if arguments.get("load_from_disk"):
                tables = datasets.load_from_disk(path)
            elif (tables := own_tables(config)) is None:
                passed_on = {name: value for name, value in arguments.items() if name not in OF_HARNESS}
                tables = datasets.load_dataset(path, config.get("dataset_name"), **passed_on)
            table = tables[split]
            table = resolved(config["process_docs"])(table) if config.get("process_docs") else table
    except MedTasksError:
        raise
    except Exception as error:
        root = error.__cause__ or error
        message = [*str(root).strip().splitlines(), "no reason given"][0]
        cause = f"there is no split '{split}'" if isinstance(error, KeyError) else f"{type(root).__name__}: {message}"
        raise MedTasksError(f"the documents of '{task}' ({location}) cannot be loaded: {cause}") from error
    if not len(table):
        raise MedTasksError(f"the documents of '{task}' ({location}) are none: the file is empty")
    return table


def own_tables(config: Mapping[str, Any]) -> Any:
    """Return the splits of a task's own documents on this machine; None for those elsewhere, which the library loads.

    Columns that hooks of ours read or show stay as they are written.
    """
    mapping = mapping_in(mapping_in(config, "metadata"), COLUMNS)
    shown_columns = names_in_templates(mapping_in(config, SETTINGS)).union(*map(names_in, mapping.values()))

    def texts(names: Sequence[str]) -> set[str]:
        return shown_columns.union(*(columns for _, columns in needed_columns(config, names)))

    return local_tables(config, texts)


def without_media(table: Any) -> Any:
    """Return a table without columns of images and sound, so that they are never decoded."""
    import datasets

    media = (datasets.Image, datasets.Audio)
    held = {name: getattr(feature, "feature", feature) for name, feature in table.features.items()}
    return table.remove_columns([name for name, feature in held.items() if isinstance(feature, media)])


def location_of(config: Mapping[str, Any]) -> str:
    """Return the location of documents for messages: their files, or the dataset's name."""
    files = mapping_in(config, "dataset_kwargs").get("data_files")
    if isinstance(files, Mapping):
        files = files.get(split_of(config), files)
    if isinstance(files, list):
        return ", ".join(map(str, files))
    return str(files or config.get("dataset_path"))


# ---- columns under other names and in other shapes ----


def _under_our_names(table: Any, config: Mapping[str, Any], location: str) -> tuple[Any, dict[str, list[Any]]]:
    """Return a table of the ``datasets`` library with files for images, and by our name its columns with other names.

    The columns have the names and shapes that hooks need, each of shape (documents,); their values are not checked.
    Raises MedTasksError where the task's ``columns`` name none of the table, SourceError where an image is missing.
    """
    mapping = mapping_in(config, "metadata").get(COLUMNS) or {}
    if not isinstance(mapping, Mapping):
        raise MedTasksError(
            f"'columns' in the metadata of a task is {mapping!r}; it must say by our names of columns which of "
            f"{location} to take, such as {{answer: answer_label}}"
        )
    sources = {name: source if isinstance(source, list) else [source] for name, source in mapping.items()}
    for name, holder in ((name, holder) for name, holders in sources.items() for holder in holders):
        if holder not in table.column_names:
            raise MedTasksError(
                f"{location} has no column '{holder}', which 'columns' in the task's metadata names for '{name}'; "
                f"it has {', '.join(table.column_names)}"
            )

    for name in _IMAGES:
        holders = sources.pop(name, [name] if name in table.column_names else [])
        if any(_holds_images(table, holder) for holder in holders):
            root = default_settings(config).get("image_root")
            table = with_image_files(table, name, holders, location, root)
        elif holders != [name] and holders:
            sources[name] = holders
    columns: dict[str, list[Any]] = {}
    for name, holders in sources.items():
        values = table.select_columns(holders).to_dict()
        rows = zip(*(values[holder] for holder in holders), strict=True)
        columns[name] = list(values[holders[0]]) if len(holders) == 1 else list(map(_without_empty_end, rows))
    if "options" in columns or "options" in table.column_names:
        options = columns.get("options") or table.select_columns(["options"]).to_dict()["options"]
        if (as_lists := list(map(listed_options, options))) != options:
            columns["options"] = as_lists
    return table, columns


def _holds_images(table: Any, column: str) -> bool:
    """Return whether a column holds more than paths of files: images, or texts that are none."""
    inner = table.features[column]
    inner = getattr(inner, "feature", inner)
    if getattr(inner, "dtype", "") in ("binary", "large_binary", "PIL.Image.Image"):
        return True
    if isinstance(inner, Mapping) and "bytes" in inner:
        return True
    cells = table.select_columns([column]).to_dict()[column]
    texts = itertools.chain.from_iterable(cell if isinstance(cell, list) else [cell] for cell in cells)
    return any(isinstance(text, str) and not is_file_name(text) for text in texts)


def default_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration's settings of prompts and images for the harness's default model family."""
    settings = mapping_in(config, SETTINGS)
    return mapping_in(settings, "default") if "default" in settings else settings


def _without_empty_end(values: Sequence[Any]) -> list[Any]:
    filled = [number for number, value in enumerate(values, start=1) if value is not None]
    return list(values[: max(filled, default=0)])


# ---- checks ----


def _refuse_volumes(config: Mapping[str, Any], columns: Columns, location: str) -> None:
    """Raise MedTasksError for a task that shows volumes, which only those of a prepared dataset can."""
    if "dataset" in columns:
        return
    files = [*columns.get("image_file", ()), *itertools.chain(*filter(None, columns.get("image_files", ())))]
    is_volume_hook = hook_name(config.get("doc_to_visual")).startswith("medtasks.prompts.volumes.")
    if is_volume_hook or any(str(file).lower().endswith((".nii", ".nii.gz")) for file in files):
        raise MedTasksError(
            f"{location} shows volumes, and volumes are not shown to a model by own tasks yet; save their slices as "
            f"images and list these in 'image_files', with hooks.images"
        )


def needed_columns(config: Mapping[str, Any], names: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Column]]]:
    """Yield who needs which columns, by a task's configuration and the names of its columns."""
    family = family_of(hook_name(config.get("process_results")))
    if family is not None:
        columns = family.short if family.short is not None and "kind" not in names else family.columns
        yield f"the family '{family.name}'", columns
    who = f"the prompt of the family '{family.name}'" if family else ""
    for key in ("doc_to_text", "doc_to_messages", "doc_to_choice"):
        hook = hook_name(config.get(key))
        if hook in _PROMPTS:
            yield who or hook, _PROMPTS[hook]
        elif hook.startswith(tuple(f"medtasks.prompts.{module}." for module in ("template", "judged", "volumes"))):
            fields = names_in_templates(mapping_in(config, SETTINGS))
            yield who or hook, {name: kind for name, kind in _FIELDS.items() if name in fields}
    if hook_name(config.get("doc_to_visual")) == _IMAGE_HOOK:
        in_list = {"image_files": Column.TEXTS}
        yield who or _IMAGE_HOOK, in_list if "image_files" in names else {"image_file": Column.TEXT}


def is_our_hook(hook: object) -> bool:
    """Return whether a hook, a function or its dotted name, is one of this package."""
    return hook_name(hook).startswith("medtasks.")


def check(
    config: Mapping[str, Any],
    columns: Columns,
    names: Sequence[str],
    location: str,
    places: Sequence[str] = (),
) -> None:
    """Check that documents hold the values that hooks of their task need.

    Args:
        config: The task's configuration.
        columns: The needed columns, each of shape (documents,).
        names: Names of all columns.
        location: Where the documents are from, for messages.
        places: Place of each document there, of shape (documents,); empty where that is unknown.

    Raises:
        MedTasksError: Columns are missing, or rows hold something else; up to ten are named.
    """
    family = family_of(hook_name(config.get("process_results")))
    if family is not None and family.short is not None and "kind" in names and not {*family.columns} <= {*names}:
        raise MedTasksError(
            f"{location} has a column 'kind', which the family '{family.name}' uses itself; give yours another name"
        )
    missing = _missing_columns(config, names)
    if missing:
        raise MedTasksError(f"{location} has no column {several(missing)}")

    def place_of(row: int) -> str:
        return places[row] if places else f"{location}, row {row + 1}"

    faults = list(_wrong_values(config, columns, names, place_of))
    keys = ("pair_id", "position") if family is not None and family.paired else ("doc_id",)
    if {*keys} <= {*names}:
        for first, row in _repeated_rows([columns[name] for name in keys]):
            rows = f"{place_of(first)} and {place_of(row)}" if places else f"{location}: rows {first + 1} and {row + 1}"
            faults.append(f"{rows} have the same {' and '.join(keys)}, so that replies cannot be told apart")
    if faults:
        raise MedTasksError(several(faults))


def _repeated_rows(keys: Sequence[Sequence[Any]]) -> Iterator[tuple[int, int]]:
    """Yield each row whose values in the columns are those of an earlier one, after that."""
    first_rows: dict[tuple[Any, ...], int] = {}
    for row, key in enumerate(zip(*keys, strict=True)):
        if first_rows.setdefault(key, row) != row:
            yield first_rows[key], row


def _wrong_values(
    config: Mapping[str, Any], columns: Columns, names: Sequence[str], place_of: Callable[[int], str]
) -> Iterator[str]:
    """Yield each value that is not what hooks need. What they need is said of a column's first one."""
    checked: set[tuple[str, Column]] = set()
    for who, required in needed_columns(config, names):
        for name, kind in [column for column in required.items() if column not in checked]:
            need = f", and {who} needs {kind.value}"
            for row, value in enumerate(columns[name]):
                if not _HOLDS[kind](value, columns["options"][row] if "options" in columns else ()):
                    private = "dataset" in columns and is_private(str(columns["dataset"][row]))
                    description = "something else" if private else _described(name, value)
                    yield f"{place_of(row)}: '{name}' is {description}{need}"
                    need = ""
        checked |= required.items()


def _missing_columns(config: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """List the columns that hooks need and the documents lack, each with the first that needs it."""
    missing: dict[str, str] = {}
    for who, required in needed_columns(config, names):
        for name in [name for name in required if name not in names]:
            missing.setdefault(name, f"'{name}', which {who} needs (it needs {', '.join(required)})")
    first = next(iter(missing), "")
    advice = f"add it to {', '.join(names)}, or say which of these it is: metadata: {{columns: {{{first}: ...}}}}"
    return [*missing.values(), advice] if missing else []


def _described(name: str, value: Any) -> str:
    """Describe a value of the wrong kind, and which entry of a list is wrong."""
    if _is_missing(value):
        return "empty"
    text = repr(value)
    if not isinstance(value, list):
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    description = f"a list of {len(value)}" + (f" ({text})" if len(text) <= _LONGEST else "")
    entry = "option" if name == "options" else "entry"
    for number, each in enumerate(value, start=1):
        if _is_missing(each):
            return f"{description}, of which {entry} {number} is missing ({'null' if each is None else 'empty'})"
        if name == "options" and not isinstance(each, str):
            return f"{description}, of which {entry} {number} is {each!r} and no text (put it in quotes)"
    return description


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _texts(value: Any, _: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_letter(value: Any, options: Any) -> bool:
    return isinstance(value, str) and value in [letter(index) for index in range(len(options or ()))]


def _is_number(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


_HOLDS: Mapping[Column, Callable[[Any, Any], bool]] = {
    Column.ANYTHING: lambda value, _: True,
    Column.ID: lambda value, _: value is not None,
    Column.TEXT: lambda value, _: isinstance(value, str),
    Column.TEXTS: _texts,
    Column.OPTIONS: lambda value, _: _texts(value, _) and len(value) > 1 and not any(map(_is_missing, value)),
    Column.LETTER: _is_letter,
    Column.LETTER_OR_NOTHING: lambda value, options: value is None or _is_letter(value, options),
    Column.LETTERS: lambda value, options: (
        isinstance(value, list) and bool(value) and all(_is_letter(name, options) for name in value)
    ),
    Column.LABEL: lambda value, options: _is_number(value, 0, len(options or ()) - 1),
    Column.LABELS: lambda value, options: (
        isinstance(value, list) and len(value) == len(options or ()) and all(_is_number(each, 0, 1) for each in value)
    ),
    Column.POSITION: lambda value, _: _is_number(value, 1, 2),
    Column.YES_NO: lambda value, _: isinstance(value, str) and value.strip().casefold() in ("yes", "no"),
}


def following(process_results: object, columns: Columns, names: Sequence[str], count: int) -> dict[str, list[Any]]:
    """Return the columns that follow from others, see above; arguments as for :func:`check`."""
    family = family_of(hook_name(process_results))
    paired = family is not None and family.paired
    added: dict[str, list[Any]] = {}
    if "doc_id" in names:
        if not all(isinstance(doc_id, str) for doc_id in columns["doc_id"]):
            added["doc_id"] = list(map(str, columns["doc_id"]))
    elif paired:
        added["doc_id"] = [f"{pair}/{at}" for pair, at in zip(columns["pair_id"], columns["position"], strict=True)]
    else:
        added["doc_id"] = list(map(str, range(count)))
    if "image_id" not in names and "image_files" in names:
        added["image_id"] = [" ".join(files) or None for files in columns["image_files"]]
    elif "image_id" not in names and "image_file" in names:
        added["image_id"] = list(columns["image_file"])
    if paired and "categories" not in names:
        added["categories"] = [[] for _ in range(count)]
    if family is None or family.short is None:
        return added
    added |= {name: [None] * count for name in ("source", "hallucination") if name not in names}
    if "kind" in names:
        return added
    yes = [answer.strip().casefold() == "yes" for answer in columns["answer"]]
    return added | {
        "kind": ["binary"] * count,
        "choices": [""] * count,
        "options": [["Yes", "No"] for _ in range(count)],
        "gold": ["Yes" if each else "No" for each in yes],
        "answer": ["A" if each else "B" for each in yes],
    }
