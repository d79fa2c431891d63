"""Documents that the harness loads itself, for tasks in a user's own folder: read here as it reads them there.

Published files rarely have the names and shapes that hooks need. ``metadata: {columns: {answer: answer_label,
image_files: images}}`` in a task's file says which of the file's columns hooks find under a name of theirs; a list of
columns gives a list of what they hold, empty ones at its end left out.

==================================  ==================================================================================
a file's                            becomes
==================================  ==================================================================================
options as a mapping from letters   a list of texts in the order of the letters
options as JSON text                the list, or the mapping, that it says
images in the table itself          files, see :mod:`medtasks.data.document_store`
==================================  ==================================================================================

Columns that follow from others need not be written:

==============  ======================================================================================================
column          where it is missing
==============  ======================================================================================================
``doc_id``      the row's number, counted from 0; of pairs ``<pair_id>/<position>``
``image_id``    the image's file, so that questions on one file are one cluster of errors
``categories``  of pairs: none
``kind`` ...    of yes/no questions: ``answer`` is yes or no then, and becomes ``kind``, ``choices``, ``options``,
                ``gold`` and the letter in ``answer``, see ``CLOSED_QUESTION`` in :mod:`medtasks.data.schema`
==============  ======================================================================================================

In a task's configuration hooks are functions, or their dotted names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.data.document_store import with_image_files, without_progress_bars
from medtasks.data.privacy import is_private
from medtasks.data.safe_parsing import parse_json
from medtasks.data.samples import letter
from medtasks.errors import MedTasksError
from medtasks.families.family import Column
from medtasks.families.family_registry import families, family_of
from medtasks.home import dataset_holding
from medtasks.tasks.published_names import hook_place
from medtasks.tasks.task_file import names_in_templates
from medtasks.tasks.task_files import task_files
from medtasks.tasks.task_index import COLUMNS, SETTINGS, mapping_in, resolved, with_image_roots

_OF_THE_HARNESS = ("From_YouTube", "video", "builder_script")
_IMAGES = ("image_file", "image_files")
_OPTIONS = "options"
_ENCODED = ("binary", "large_binary", "PIL.Image.Image")  # what a column of images says it holds
_NOT_PASSED_ON = ("local_files_only", "create_link", "force_download", "force_unzip", "load_from_disk")


def complete_documents(task: Any) -> None:
    """Check the documents of one of the harness's tasks if its hooks are ours, and add the columns that follow.

    Documents that were prepared by us have all columns and are left as they are, as are those that are read in streams.
    Raises MedTasksError that names file, column and who needs it where one is missing or holds something else.
    """
    config = vars(task.config)
    if not any(is_our_hook(config.get(key)) for key in ("process_results", "doc_to_text", "doc_to_visual")):
        return
    _find_image_root(task)
    split, same = split_of(config), task.dataset_no_image is task.dataset
    table = None if is_prepared(config.get("dataset_path")) else task.dataset.get(split)
    if hasattr(table, "select_columns") and hasattr(table, "__len__"):
        task.dataset[split] = completed(table, config)
        if not same:
            task.dataset_no_image[split] = _without_media(task.dataset[split])


def _find_image_root(task: Any) -> None:
    """Look for a relative ``image_root`` beside the task's file, as the harness does for ``data_files``."""
    known = task_files().get(str(task.config.task))
    for holder in (task.config, task):  # the task has its model's settings already
        settings = getattr(holder, SETTINGS, None)
        if known is not None and settings is not None:
            setattr(holder, SETTINGS, with_image_roots({SETTINGS: settings}, known.path.parent)[SETTINGS])


def own_documents(task: str, config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the documents of a task that were not prepared by us, in order, without images that a column holds.

    They have the columns that follow from others, see :mod:`medtasks.tasks.own_documents`. The configuration is what
    the task's file says, with unresolved dotted names. Raises MedTasksError as the next two.
    """
    rows: list[dict[str, Any]] = completed(own_table(task, config), config, apart=True).to_list()
    return rows


def completed(table: Any, config: Mapping[str, Any], *, apart: bool = False) -> Any:
    """Check a user's own documents, a table of the ``datasets`` library, and add the columns that follow from others.

    ``apart`` leaves out columns by which other families of tasks are known, so that nothing takes it for one of these,
    and those that hold images or sound. Raises MedTasksError where a column is missing, or a row holds something else
    than the task's hooks need.
    """
    table, given = under_our_names(table, config, place_of(config))
    known = [*dict.fromkeys([*table.column_names, *given])]
    needed = looked_at(config, known)
    columns = table.select_columns([name for name in needed if name not in given]).to_dict() | given
    check(config, columns, known, place_of(config))
    further = given | following(config.get("process_results"), columns, known, len(table))
    left_out = {*further, *(other_families(config, known) if apart else ())}
    table = table.remove_columns([name for name in table.column_names if name in left_out])
    for name, values in further.items():
        table = table.add_column(name, values)
    return _without_media(table) if apart else table


def own_table(task: str, config: Mapping[str, Any]) -> Any:
    """Return the table of the ``datasets`` library that the harness asks; MedTasksError where it cannot be loaded."""
    split = split_of(config)
    try:
        with without_progress_bars():
            table = _loaded(task, config)[split]
            table = resolved(config["process_docs"])(table) if config.get("process_docs") else table
    except MedTasksError:
        raise
    except Exception as error:
        root = error.__cause__ or error
        said = str(root).strip().splitlines()[:1] or ["no reason given"]
        cause = f"there is no split '{split}'" if isinstance(error, KeyError) else f"{type(root).__name__}: {said[0]}"
        raise MedTasksError(f"the documents of '{task}' ({place_of(config)}) cannot be loaded: {cause}") from error
    if not len(table):
        raise MedTasksError(f"the documents of '{task}' ({place_of(config)}) are none: the file is empty")
    return table


def _without_media(table: Any) -> Any:
    """Return a table without columns of images and sound, which nobody wants to decode."""
    import datasets

    media = (datasets.Image, datasets.Audio)
    return table.remove_columns(
        [name for name, one in table.features.items() if isinstance(getattr(one, "feature", one), media)]
    )


def split_of(config: Mapping[str, Any]) -> str:
    """Return the split that the harness asks."""
    return str(config.get("test_split") or config.get("validation_split") or "test")


def place_of(config: Mapping[str, Any]) -> str:
    """Return where documents come from, for messages: their files, or the dataset's name."""
    files = mapping_in(config, "dataset_kwargs").get("data_files")
    if isinstance(files, Mapping):
        files = files.get(split_of(config), files)
    if isinstance(files, list):
        return ", ".join(map(str, files))
    return str(files or config.get("dataset_path"))


def is_prepared(path: object) -> bool:
    """Return whether a task's ``dataset_path``, resolved, is the folder of a prepared dataset."""
    return isinstance(path, str) and dataset_holding(Path(path)) is not None


def _loaded(task: str, config: Mapping[str, Any]) -> Any:
    import datasets

    given = dict(config.get("dataset_kwargs") or {})
    path = resolved(config.get("dataset_path"))
    if path is None or any(name in given for name in _OF_THE_HARNESS):
        raise MedTasksError(f"only the harness can load the documents of '{task}', so that they are not looked at here")
    if given.get("load_from_disk"):
        return datasets.load_from_disk(path)
    kept = {name: value for name, value in given.items() if name not in _NOT_PASSED_ON}
    return datasets.load_dataset(path, config.get("dataset_name"), **kept)


def under_our_names(table: Any, config: Mapping[str, Any], where: str) -> tuple[Any, dict[str, list[Any]]]:
    """Return a table of the ``datasets`` library with files for images, and by name the columns it has otherwise.

    These have the names and shapes that hooks need, each of shape (documents,); whether they hold what they should is
    not checked. ``where`` the table is from stands in messages. Raises MedTasksError where the task's ``columns`` name
    none of the table, SourceError where an image is missing.
    """
    sources = dict(_sources(config, table.column_names, where))
    for name in _IMAGES:
        holders = sources.pop(name, [name] if name in table.column_names else [])
        if any(_holds_images(table.features[one]) for one in holders):
            table = with_image_files(table, name, holders, where)
        elif holders != [name] and holders:
            sources[name] = holders
    found = {name: _values(table, holders) for name, holders in sources.items()}
    if _OPTIONS in found or _OPTIONS in table.column_names:
        options = found.get(_OPTIONS) or table.select_columns([_OPTIONS]).to_dict()[_OPTIONS]
        if not all(isinstance(one, list) for one in options):
            found[_OPTIONS] = list(map(_listed, options))
    return table, found


def _sources(config: Mapping[str, Any], known: Sequence[str], where: str) -> Iterator[tuple[str, list[str]]]:
    given = mapping_in(config, "metadata").get(COLUMNS) or {}
    if not isinstance(given, Mapping):
        raise MedTasksError(
            f"'columns' in the metadata of a task is {given!r}; it must say by our names of columns which of {where} "
            f"to take, such as {{answer: answer_label}}"
        )
    for name, holders in given.items():
        named = holders if isinstance(holders, list) else [holders]
        for one in named:
            if one not in known:
                raise MedTasksError(
                    f"{where} has no column '{one}', which 'columns' in the task's metadata names for '{name}'; it has "
                    f"{', '.join(known)}"
                )
        yield name, named


def _holds_images(feature: Any) -> bool:
    inner = getattr(feature, "feature", feature)
    return "bytes" in (inner if isinstance(inner, Mapping) else ()) or getattr(inner, "dtype", "") in _ENCODED


def _values(table: Any, holders: Sequence[str]) -> list[Any]:
    columns = table.select_columns(holders).to_dict()
    if len(holders) == 1:
        return list(columns[holders[0]])
    return [_without_empty_end(row) for row in zip(*(columns[one] for one in holders), strict=True)]


def _without_empty_end(values: Sequence[Any]) -> list[Any]:
    kept = list(values)
    while kept and kept[-1] is None:
        kept.pop()
    return kept


def _listed(options: Any) -> Any:
    """Return options as a list of texts; whatever they are where they are nothing of the kind, for the message."""
    said = options
    if isinstance(options, str):
        try:
            said = parse_json(options)
        except ValueError:
            return options
    if isinstance(said, Mapping):
        names = _without_empty_end([said[name] for name in sorted(said)])
        lettered = sorted(said)[: len(names)] == [letter(place) for place in range(len(names))]
        said = names if lettered else None
    return said if isinstance(said, list) and all(isinstance(one, str) for one in said) else options


Columns = Mapping[str, Sequence[Any]]

_LETTERED = {"question": Column.TEXT, "options": Column.OPTIONS}
_PROMPTS: Mapping[str, Mapping[str, Column]] = {
    "medtasks.prompts.lettered.prompt": _LETTERED,
    "medtasks.prompts.judged.paired_prompt": _LETTERED,
    "medtasks.prompts.lettered.closed_prompt": {"question": Column.TEXT},
    "medtasks.prompts.lettered.letters": {"options": Column.OPTIONS},
    "medtasks.prompts.lettered.option_texts": {"options": Column.OPTIONS},
}
_WITH_TEMPLATE = ("medtasks.prompts.template.", "medtasks.prompts.judged.", "medtasks.prompts.volumes.")
_IMAGE_HOOK = "medtasks.prompts.images.images"
_FIELDS = {"question": Column.TEXT, "options": Column.OPTIONS} | dict.fromkeys(
    ("context", "details", "indication", "hint"), Column.ANYTHING
)
_SHOWN = 24  # characters


def needed_columns(config: Mapping[str, Any], known: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Column]]]:
    """Yield who needs which columns, by a task's configuration and the columns that there are."""
    family = family_of(hook_name(config.get("process_results")))
    if family is not None:
        columns = family.short if family.short is not None and "kind" not in known else family.columns
        yield f"the family '{family.name}'", columns
    who = f"the prompt of the family '{family.name}'" if family else ""
    for key in ("doc_to_text", "doc_to_messages", "doc_to_choice"):
        hook = hook_name(config.get(key))
        if hook in _PROMPTS:
            yield who or hook, _PROMPTS[hook]
        elif hook.startswith(_WITH_TEMPLATE):
            fields = names_in_templates(mapping_in(config, SETTINGS))
            yield who or hook, {name: kind for name, kind in _FIELDS.items() if name in fields}
    if hook_name(config.get("doc_to_visual")) == _IMAGE_HOOK:
        several = {"image_files": Column.TEXTS}
        yield who or _IMAGE_HOOK, several if "image_files" in known else {"image_file": Column.TEXT}


def hook_name(hook: object) -> str:
    """Return the dotted name of a hook that is a function, or is named by a text: of prompts where their code is."""
    if isinstance(hook, str):
        return hook_place(hook)
    return f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', '')}"


def is_our_hook(hook: object) -> bool:
    """Return whether a hook, a function or its dotted name, is one of this package."""
    return hook_name(hook).startswith("medtasks.")


def check(config: Mapping[str, Any], columns: Columns, known: Sequence[str], where: str) -> None:
    """Check that documents hold what the hooks of their task need; MedTasksError names the first that does not.

    ``columns`` has values by column, each of shape (documents,), at least the needed ones that are there; ``known`` the
    names of all; ``where`` the documents' file, for the message.
    """
    for who, needed in needed_columns(config, known):
        for name in needed:
            if name not in known:
                raise MedTasksError(
                    f"{where} has no column '{name}', which {who} needs (it needs {', '.join(needed)}); add it to "
                    f"{', '.join(known)}, or say which of these it is: metadata: {{columns: {{{name}: ...}}}}"
                )
        for name, kind in needed.items():
            _check_rows(columns, name, kind, who, where)
    family = family_of(hook_name(config.get("process_results")))
    keys = ("pair_id", "position") if family is not None and family.paired else ("doc_id",)
    if set(keys) <= set(known):
        _check_unique(columns, keys, where)


def _check_rows(columns: Columns, name: str, kind: Column, who: str, where: str) -> None:
    options, datasets = columns.get("options"), columns.get("dataset")
    for row, value in enumerate(columns[name]):
        if not _HOLDS[kind](value, options[row] if options is not None else ()):
            dataset = None if datasets is None else datasets[row]
            shown = "something else" if dataset is not None and is_private(str(dataset)) else _shown(value)
            raise MedTasksError(f"{where}, row {row + 1}: '{name}' is {shown}, and {who} needs {kind.value}")


def _check_unique(columns: Columns, keys: Sequence[str], where: str) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    for row, key in enumerate(zip(*(columns[name] for name in keys), strict=True)):
        first = seen.setdefault(key, row)
        if first != row:
            raise MedTasksError(
                f"{where}: rows {first + 1} and {row + 1} have the same {' and '.join(keys)}, so that replies cannot "
                f"be told apart"
            )


def _shown(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, list):
        return f"a list of {len(value)}" + (f" ({value!r})" if len(repr(value)) <= _SHOWN else "")
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _texts(value: Any, _: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_letter(value: Any, options: Any) -> bool:
    return isinstance(value, str) and value in [letter(place) for place in range(len(options or ()))]


def _is_number(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


_HOLDS: Mapping[Column, Callable[[Any, Any], bool]] = {
    Column.ANYTHING: lambda value, _: True,
    Column.ID: lambda value, _: value is not None,
    Column.TEXT: lambda value, _: isinstance(value, str),
    Column.TEXTS: _texts,
    Column.OPTIONS: lambda value, _: _texts(value, _) and len(value) > 1,
    Column.LETTER: _is_letter,
    Column.LETTER_OR_NOTHING: lambda value, options: value is None or _is_letter(value, options),
    Column.LETTERS: lambda value, options: (
        isinstance(value, list) and bool(value) and all(_is_letter(one, options) for one in value)
    ),
    Column.LABEL: lambda value, options: _is_number(value, 0, len(options or ()) - 1),
    Column.LABELS: lambda value, options: (
        isinstance(value, list) and len(value) == len(options or ()) and all(_is_number(one, 0, 1) for one in value)
    ),
    Column.POSITION: lambda value, _: _is_number(value, 1, 2),
    Column.YES_NO: lambda value, _: isinstance(value, str) and value.strip().casefold() in ("yes", "no"),
}


def looked_at(config: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """Return the columns that :func:`check` and :func:`following` look at, of those that there are."""
    needed = [name for _, columns in needed_columns(config, known) for name in columns]
    wanted = {*needed, "doc_id", "pair_id", "position", "dataset", "options", "image_file", "image_files"}
    return [name for name in known if name in wanted]


def other_families(config: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """Return the columns by which families are known and that this task's hooks do not need."""
    needed = {name for _, columns in needed_columns(config, known) for name in columns}
    telling = {name for family in families().values() for name in family.columns}
    return [name for name in known if name in telling - {"question", "dataset"} and name not in needed]


def following(process_results: object, columns: Columns, known: Sequence[str], count: int) -> dict[str, list[Any]]:
    """Return the columns that follow from others, see the table above: new ones, and those that replace others.

    ``columns`` has values by column, each of shape (documents,): those of :func:`looked_at`; ``known`` the names of
    all.
    """
    family = family_of(hook_name(process_results))
    paired = family is not None and family.paired
    found: dict[str, list[Any]] = {}
    if "doc_id" in known:
        if not all(isinstance(doc_id, str) for doc_id in columns["doc_id"]):
            found["doc_id"] = list(map(str, columns["doc_id"]))
    elif paired:
        found["doc_id"] = [f"{pair}/{at}" for pair, at in zip(columns["pair_id"], columns["position"], strict=True)]
    else:
        found["doc_id"] = list(map(str, range(count)))
    if "image_id" not in known and "image_files" in known:
        found["image_id"] = [" ".join(files) or None for files in columns["image_files"]]
    elif "image_id" not in known and "image_file" in known:
        found["image_id"] = list(columns["image_file"])
    if paired and "categories" not in known:
        found["categories"] = [[] for _ in range(count)]
    return found | (_closed(columns, known, count) if family is not None and family.short is not None else {})


def _closed(columns: Columns, known: Sequence[str], count: int) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [None] * count for name in ("source", "hallucination") if name not in known}
    if "kind" in known:
        return found
    yes = [answer.strip().casefold() == "yes" for answer in columns["answer"]]
    return found | {
        "kind": ["binary"] * count,
        "choices": [""] * count,
        "options": [["Yes", "No"] for _ in range(count)],
        "gold": ["Yes" if one else "No" for one in yes],
        "answer": ["A" if one else "B" for one in yes],
    }
