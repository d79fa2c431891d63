"""Documents of a task, prepared, a user's own, or those of variants, with their provenance and privacy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import Access
from medtasks.data.dataset_lookup import prepared_folder, provenance
from medtasks.data.dataset_manifest import text_fingerprint
from medtasks.data.document_store import load_documents, open_documents
from medtasks.data.privacy import access_of, is_private
from medtasks.data.samples import Sample
from medtasks.data.schema import SPLIT
from medtasks.data.variants import BLANK, BLIND, NEW_COLUMNS, SWAPPED, blank, blind, rotated, swapped, swapped_images
from medtasks.errors import MedTasksError
from medtasks.home import dataset_holding
from medtasks.prompts.images import images
from medtasks.tasks.own_documents import completed, location_of, own_documents
from medtasks.tasks.task_check import check_task
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import members_of, task_config, task_file, variant_of
from medtasks.tasks.task_index import SETTINGS, mapping_in, resolved
from medtasks.tasks.task_variants import MESSAGES_OF, TEXT_OF, THINKING, thinking_messages, thinking_text

Document = Mapping[str, Any]
WITHHELD = "withheld"
OPENING = "medtasks.hooks.images.images"
_DIGITS = 12
_OF_IMAGES = ("dataset", "patient_id", "pair_id", "position", "image_id", "image_file", "image_files", "image_sha256")
_LISTS = ("image_files", "image_sha256")


def task_documents(task: TaskFile) -> list[dict[str, Any]]:
    """Return the documents of a task or a sanity variant, in order; each has a ``doc_id``.

    Raises DatasetNotPrepared or SourceError for a missing or damaged dataset, and MedTasksError for a group, own
    documents that cannot be used, and images that cannot be swapped.
    """
    return _changed(task, _base_documents(task))


def check_possible(task: TaskFile) -> None:
    """Check before a run that a task of the user's own is sound, and that the documents of a task or variant exist.

    Errors: :func:`~medtasks.tasks.task_check.task_problems` and :func:`task_documents`.
    """
    if not task.is_shipped:
        check_task(task)
    if task.dataset is None:
        if task.variant == SWAPPED:
            swapped_images(_base_documents(task))
        return
    table = open_documents(task.dataset)[SPLIT]
    if task.variant == SWAPPED:
        swapped_images(table.select_columns([name for name in _OF_IMAGES if name in table.column_names]).to_list())


def check_loadable(name: str, path: object) -> None:
    """Check that the documents of a task exist before the harness loads them from a path.

    Raises DatasetNotPrepared for a path of a dataset of ours that is not prepared, and MedTasksError for a variant
    whose images cannot be swapped. The harness would hide either.
    """
    if isinstance(path, str) and (dataset := dataset_holding(Path(path))):
        prepared_folder(dataset)
    if (variant := variant_of(name)) and variant[1] == SWAPPED:
        check_possible(task_file(name))


def changed_table(task: TaskFile, table: Any, config: Mapping[str, Any]) -> Any:
    """Return the rows of a sanity variant, as a table of the ``datasets`` library.

    The given table is that of its task, of a user's own as the harness has loaded it; in the configuration of its task,
    dotted names are resolved.
    """
    import datasets

    if task.dataset is None:
        process = config.get("process_docs")
        table = completed(process(table) if process else table, config, apart=True)
    rows = _changed(task, table.to_list())
    lists = datasets.List(datasets.Value("string"))
    features = {
        name: lists
        if name in _LISTS and isinstance(value, list)
        else table.features[name]
        if name in table.features
        else datasets.Value(NEW_COLUMNS[name])
        for name, value in rows[0].items()
    }
    return datasets.Dataset.from_list(rows, features=datasets.Features(features))


def variant_hook(name: str) -> Callable[[Any], Any]:
    """Return the hook that the harness's file for a variant names: its ``process_docs``, under the variant's name.

    After ``text_of_`` and ``messages_of_``, the hook for the prompt of a thinking variant. Raises AttributeError for an
    unknown variant.
    """
    prefix = next((prefix for prefix in (TEXT_OF, MESSAGES_OF) if name.startswith(prefix)), "")
    names = variant_of(name.removeprefix(prefix))
    if names is None:
        raise AttributeError(name)
    task, base = task_file(name.removeprefix(prefix)), task_config(names[0])
    if prefix == TEXT_OF:
        return thinking_text(resolved(base["doc_to_text"]), names[1], task.family)
    if prefix == MESSAGES_OF:
        return thinking_messages(resolved(base["doc_to_messages"]), names[1], task.family)
    config = resolved({key: value for key, value in base.items() if key != "dataset_path"})

    def changed(table: Any) -> Any:
        return changed_table(task, table, config)

    changed.__name__ = changed.__qualname__ = name  # as a task's configuration prints it
    return changed


def _changed(task: TaskFile, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if task.variant is None or task.variant in THINKING:
        return documents
    changes = {BLIND: blind, BLANK: blank, SWAPPED: swapped}
    if task.variant in changes:
        return changes[task.variant](documents)
    family = task_file(str(task.base)).family
    return rotated(documents, family.independent_clusters([Sample(document) for document in documents]))


def _base_documents(task: TaskFile) -> list[dict[str, Any]]:
    if task.kind == "group":
        raise MedTasksError(f"'{task.name}' is a group; take its member tasks one by one")
    if task.dataset is not None:
        return load_documents(task.dataset)
    base = task.base or task.name
    return own_documents(base, task_config(base))


@dataclass(frozen=True)
class Selection:
    """Chosen tasks."""

    # Names to give to the harness. A group or tag whose members are all ready keeps its own name; names that are not
    # ours stay as they are, for the harness to interpret.
    ready: tuple[str, ...]
    missing: dict[str, str]  # why a task cannot run, by task name


def select(names: Sequence[str]) -> Selection:
    """Look up the datasets of tasks, groups and tags as given to ``--tasks``; sanity variants and their tags, too."""
    ready: dict[str, None] = {}
    missing: dict[str, str] = {}
    for name in names:
        members, lacking = members_of(name), {}
        for task in members:
            try:
                check_possible(task)
            except MedTasksError as error:
                lacking[task.name] = str(error)
        missing |= lacking
        ready |= dict.fromkeys([task.name for task in members if task.name not in lacking] if lacking else [name])
    return Selection(tuple(ready), missing)


# ---- provenance and privacy ----


def task_provenance(task: TaskFile, documents: Sequence[Document]) -> dict[str, Any]:
    """Return the provenance of a task's data; of a user's own the location, and a fingerprint of their text alone."""
    if task.dataset is not None:
        return provenance(task.dataset)
    private = is_private_task(task, documents)
    return {
        "fingerprint": text_fingerprint(documents)[:_DIGITS],
        "source": WITHHELD if private else location_of(task_config(task.base or task.name)),
        "prepared": False,
        "sample": False,
        "complete": True,
        "rows": len(documents),
    }


def is_private_task(task: TaskFile, documents: Sequence[Document] = ()) -> bool:
    """Return whether text of a task must stay out of logs."""
    return bool(private_datasets(task, documents))


def private_datasets(task: TaskFile, documents: Sequence[Document] = ()) -> list[str]:
    """Return the names of a task's dataset and of its documents' by which its text must stay out of logs."""
    return sorted(filter(is_private, _names(task, documents)))


def access_of_task(task: TaskFile, documents: Sequence[Document] = ()) -> str:
    """Return the strictest access level of a task's documents; empty if they name no dataset."""
    levels = {access_of(name) for name in _names(task, documents)}
    return str(max(levels, key=list(Access).index, default=""))


def unreadable_images(task: TaskFile, documents: Sequence[Document]) -> Iterator[str]:
    """Open the images of a user's own documents, and yield one sentence for each document whose images fail."""
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
    settings = mapping_in(task_config(task.name), SETTINGS)
    return mapping_in(settings, "default") if "default" in settings else settings


def _names(task: TaskFile, documents: Sequence[Document]) -> set[str]:
    names = {str(document["dataset"]) for document in documents if document.get("dataset") is not None}
    return names | ({task.guarded_as} if task.guarded_as is not None else set())
