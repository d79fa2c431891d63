"""Options of a user's own documents: their number, their order, equal ones, and letters or numbers of their own.

Called by :mod:`medtasks.tasks.own_documents` for documents that are otherwise as their family needs them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.data.option_texts import without_marks
from medtasks.data.samples import MOST_LETTERS
from medtasks.data.variants import VARIANTS
from medtasks.errors import MedTasksError, warn_once
from medtasks.families.columns import Column
from medtasks.tasks.hook_names import family_of, hook_name
from medtasks.tasks.task_file import names_in_templates
from medtasks.tasks.task_index import SETTINGS, Config, mapping_in

LETTERED_PROMPTS = (
    "medtasks.prompts.template.lettered_prompt",
    "medtasks.prompts.judged.paired_prompt",
)
_BY_LETTER = {Column.LETTER, Column.LETTERS, Column.LETTER_OR_NOTHING}
_BY_PLACE = {Column.LABEL, Column.LABELS}
_MARKS = {"letter", "lower", "number"}  # in the template of an option


def checked_options(
    config: Config,
    columns: Mapping[str, Sequence[Any]],
    location: str,
    places: Sequence[str],
) -> dict[str, list[Any]]:
    """Check the options of documents that are otherwise as their family needs them, and remove marks such as "A.".

    Args:
        config: The task's configuration.
        columns: Values by column, shape (documents,) each.
        location: Name of the file, for warnings.
        places: Location of each document in the file, shape (documents,).

    Returns:
        The column ``options`` if it changes, else nothing. Options of a variant are left as they are, since those of
        its base were checked.

    Raises:
        MedTasksError: There are more options than letters, or classes that are not the same in every row.
    """
    family = family_of(config.get("process_results"))
    if family is None or mapping_in(config, "metadata").get("variant") in VARIANTS:
        return {}
    kinds = {*family.columns.values()}
    if kinds.isdisjoint(_BY_LETTER | _BY_PLACE):
        return {}
    options = columns["options"]
    bare = _without_marks(config, options, location)
    _check(bare or options, places, are_classes=kinds.isdisjoint(_BY_LETTER))
    return {"options": bare} if bare else {}


def _without_marks(config: Config, options: Sequence[Any], location: str) -> list[Any]:
    """Remove marks from options if the prompt writes its own, as in "A: A. left".

    Args:
        config: The task's configuration, with its prompt.
        options: The options of each question, shape (documents,).
        location: Name of the file, for warnings.

    Returns:
        The options of each question, or an empty list if none change.
    """
    bare = list(map(without_marks, options))
    if not any(bare):
        return []
    sentence = f"{location}: options of {sum(map(bool, bare))} of {len(bare)} questions begin with letters or numbers"
    prompt = hook_name(config.get("doc_to_text"))
    shown_marks = _MARKS & names_in_templates(mapping_in(config, SETTINGS), "option")
    if prompt in LETTERED_PROMPTS or (shown_marks and prompt.startswith("medtasks.prompts.")):
        warn_once(f"{sentence}, which are removed, as the prompt writes its own", "INFO")
        return [changed or texts for texts, changed in zip(options, bare, strict=True)]
    warn_once(
        f"{sentence}, so that not every rule reads a reply with the text alone; remove them, and let the prompt write "
        'them with option: "{{ letter }}. {{ text }}"'
    )
    return []


def _check(options: Sequence[Any], places: Sequence[str], *, are_classes: bool) -> None:
    """Refuse options that no reply could be scored against, and warn of equal ones.

    Args:
        options: At least one row of texts each.
        places: Locations of the rows, for messages.
        are_classes: Whether answers are places in options that are the same in every row, and not letters.

    Raises:
        MedTasksError: There are more options than letters, or classes are equal or not the same in every row.
    """
    first = _plain(options[0])
    unclear = []
    for location, texts in zip(places, options, strict=True):
        if are_classes and _plain(texts) != first:
            raise MedTasksError(
                f"{location}: 'options' are others than in the first row, or in another order, and classes are counted "
                "by their places; write the same in the same order in every row, and change the right ones with them"
            )
        if not are_classes and len(texts) > MOST_LETTERS:
            raise MedTasksError(
                f"{location}: it has {len(texts)} options; 2 to {MOST_LETTERS} are possible"
            )
        if fault := _fault_of(texts):
            if are_classes:
                raise MedTasksError(f"{location}: {fault}; give each class a name of its own")
            unclear.append(f"{location}: {fault}")
    if unclear:
        warn_once(
            f"{unclear[0]} (so in {len(unclear)} of {len(options)} questions): a reply with such a text is not read, "
            "and of equal options only one letter is right"
        )


def _fault_of(options: Sequence[str]) -> str:
    """Describe the first option that is equal to an earlier one. The text is empty if no two are equal."""
    texts = _plain(options)
    for index, text in enumerate(texts):
        if texts.index(text) < index:
            return f"options {texts.index(text) + 1} and {index + 1} are equal"
    return ""


def _plain(options: Sequence[str]) -> list[str]:
    return [" ".join(text.split()).casefold() for text in options]
