"""What is known of a task's documents beside them, whether they were prepared here or are a user's own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from medtasks.data.catalogue import Access
from medtasks.data.manifest import text_fingerprint
from medtasks.data.own_datasets import access_of
from medtasks.data.privacy import is_private
from medtasks.data.provenance_of import provenance
from medtasks.errors import MedTasksError
from medtasks.harness.own_documents import place_of
from medtasks.harness.task_file import TaskFile
from medtasks.harness.task_files import task_config
from medtasks.harness.task_index import SETTINGS
from medtasks.prompts.images import images

Document = Mapping[str, Any]

WITHHELD = "withheld"
OPENING = "medtasks.hooks.images.images"
_DIGITS = 12


def task_provenance(task: TaskFile, documents: Sequence[Document]) -> dict[str, Any]:
    """Return which data a task asks; of a user's own the place, and a fingerprint of their text alone.

    Args:
        task: A task, no group.
        documents: Its documents.

    Raises:
        DatasetNotPrepared: Its dataset has not been prepared under ``MEDTASKS_HOME``.
    """
    if task.dataset is not None:
        return provenance(task.dataset)
    place = WITHHELD if is_private_task(task, documents) else place_of(task_config(task.base or task.name))
    return {
        "fingerprint": text_fingerprint(documents)[:_DIGITS],
        "source": place,
        "prepared": False,
        "sample": False,
        "complete": True,
        "rows": len(documents),
    }


def is_private_task(task: TaskFile, documents: Sequence[Document] = ()) -> bool:
    """Return whether text of a task must stay out of logs: by its dataset's name, or by that of any document."""
    return bool(private_datasets(task, documents))


def private_datasets(task: TaskFile, documents: Sequence[Document] = ()) -> list[str]:
    """Return the names by which text of a task must stay out of logs."""
    return sorted(filter(is_private, _names(task, documents)))


def access_of_task(task: TaskFile, documents: Sequence[Document] = ()) -> str:
    """Return the strictest access level of a task's documents; empty where they name no dataset."""
    levels = {access_of(name) for name in _names(task, documents)}
    return str(max(levels, key=list(Access).index, default=""))


def unreadable_images(task: TaskFile, documents: Sequence[Document]) -> Iterator[str]:
    """Open the images of a user's own documents, and yield one sentence for each document that cannot show its own."""
    if task_config(task.name).get("doc_to_visual") != OPENING:
        return
    settings, seen = image_settings(task), set()
    for document in documents:
        files = tuple(document.get("image_files", (document.get("image_file"),)))
        if files not in seen:
            seen.add(files)
            try:
                images(document, settings)
            except MedTasksError as error:
                yield str(error)


def image_settings(task: TaskFile) -> Mapping[str, Any]:
    """Return the settings by which a task's images are found: those of the harness's default model family."""
    settings = task_config(task.name).get(SETTINGS)
    if not isinstance(settings, Mapping):
        return {}
    default = settings.get("default", settings)
    return default if isinstance(default, Mapping) else {}


def _names(task: TaskFile, documents: Sequence[Document]) -> set[str]:
    named = {str(one["dataset"]) for one in documents if one.get("dataset") is not None}
    return named | ({task.guarded_as} if task.guarded_as is not None else set())
