"""Columns of a user's own file under the names and in the shape that hooks need, as published files rarely have them.

``metadata: {columns: {answer: answer_label, image_files: images}}`` in a task's file says which of the file's columns
hooks find under a name of theirs; a list of columns gives a list of what they hold, empty ones at its end left out.

==================================  ==================================================================================
a file's                            becomes
==================================  ==================================================================================
options as a mapping from letters   a list of texts in the order of the letters
options as JSON text                the list, or the mapping, that it says
images in the table itself          files, see :mod:`medtasks.data.embedded_images`
==================================  ==================================================================================
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from medtasks.data.embedded_images import with_image_files
from medtasks.data.safe_parsing import parse_json
from medtasks.data.samples import letter
from medtasks.errors import MedTasksError
from medtasks.tasks.task_index import COLUMNS, mapping_in

_IMAGES = ("image_file", "image_files")
_OPTIONS = "options"
_ENCODED = ("binary", "large_binary", "PIL.Image.Image")  # what a column of images says it holds


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
