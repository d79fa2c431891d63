"""Columns of documents that a user wrote: whether they hold what hooks need, and those that follow from others.

Nobody has to write what follows:

==============  ======================================================================================================
column          where it is missing
==============  ======================================================================================================
``doc_id``      the row's number, counted from 0; of pairs ``<pair_id>/<position>``
``image_id``    the image's file, so that questions on one file are one unit of errors
``categories``  of pairs: none
``kind`` ...    of yes/no questions: ``answer`` is yes or no then, and becomes ``kind``, ``choices``, ``options``,
                ``gold`` and the letter in ``answer``, see ``CLOSED_QUESTION`` in :mod:`medtasks.data.schema`
==============  ======================================================================================================

In a task's configuration hooks are functions, or their dotted names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from medtasks.data.privacy import is_private
from medtasks.data.samples import letter
from medtasks.errors import MedTasksError
from medtasks.families.family import Column
from medtasks.families.family_registry import families, family_of
from medtasks.tasks.published_names import place_of
from medtasks.tasks.task_file import names_in_templates
from medtasks.tasks.task_index import SETTINGS, mapping_in

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
_IMAGES = "medtasks.prompts.images.images"
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
    if hook_name(config.get("doc_to_visual")) == _IMAGES:
        several = {"image_files": Column.TEXTS}
        yield who or _IMAGES, several if "image_files" in known else {"image_file": Column.TEXT}


def hook_name(hook: object) -> str:
    """Return the dotted name of a hook that is a function, or is named by a text: of prompts where their code is."""
    if isinstance(hook, str):
        return place_of(hook)
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
