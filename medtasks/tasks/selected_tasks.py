"""Making a part of a prepared dataset a dataset and tasks of its own, which every command of the harness finds.

Only the documents are copied; the images stay with the whole dataset. The tasks are those of the whole dataset, under
the part's name.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

from medtasks.data.home import dataset_folder
from medtasks.data.manifest import Manifest, measured, read_facts
from medtasks.data.own_datasets import own_datasets
from medtasks.data.path_of import prepared_folder
from medtasks.data.schema import SPLIT, image_digests, image_key
from medtasks.data.selecting import Criteria, choose, described
from medtasks.data.store import load_documents, open_documents, publish_documents, work_folder
from medtasks.errors import MedTasksError, SourceError, unknown_name
from medtasks.harness.task_file import TaskFile
from medtasks.harness.task_files import task_config, task_files
from medtasks.tasks.task_writing import own_keys, own_metadata, refuse_taken, write_task_file

_MARK = "# Written by 'medtasks data select', which overwrites changes.\n"
_USUAL_SPLIT = {"gmai_mmbench": "gmai_mmbench_val"}


def whole_dataset(name: str) -> str:
    """Return the prepared dataset a user means.

    Raises:
        UnknownName: There is no such dataset.
        DatasetNotPrepared: It has not been prepared under ``MEDTASKS_HOME``.
        MedTasksError: It is a part itself.
    """
    dataset = _USUAL_SPLIT.get(name, name)
    prepared_folder(dataset)
    own = Manifest.read(dataset_folder(dataset)).selected_from
    if own is not None:
        raise MedTasksError(f"'{name}' is itself a part of '{own}'; choose from that one")
    return dataset


def select_as(dataset: str, criteria: Criteria, name: str) -> tuple[Manifest, list[str]]:
    """Make the documents of a prepared dataset that fit a dataset of their own, and return it with its tasks' names.

    Args:
        dataset: The whole.
        criteria: Wanted values by column, see :func:`medtasks.data.selecting.choose`.
        name: Name of the part and of its first task.

    Raises:
        UnknownName: There is no such column.
        MedTasksError: The name is taken or none, no document fits, or nothing can be written.
    """
    if not name.isidentifier() or name != name.lower():
        raise MedTasksError(f"'{name}' cannot be a task's name; take small letters, digits and underscores")
    models = [task for task in task_files().values() if task.kind == "task" and task.dataset == dataset]
    names = {task.name: name + task.name.removeprefix(dataset) for task in models if task.name.startswith(dataset)}
    if not names:
        raise unknown_name("dataset with tasks", dataset, {one.dataset or "" for one in task_files().values()} - {""})
    for new in names.values():
        refuse_taken(new, _MARK, "--as")
    _refuse_other_data(name)
    documents = choose(load_documents(dataset), criteria)
    manifest = _publish(dataset, criteria, name, documents)
    for task in models:
        if task.name in names:
            write_task_file(names[task.name], _config(task, names[task.name], name, manifest), _MARK)
    return manifest, list(names.values())


def _refuse_other_data(name: str) -> None:
    """Refuse the name of a user's own dataset that is not a part; a damaged one may be replaced."""
    if name not in own_datasets():
        return
    try:
        part = Manifest.read(dataset_folder(name)).selected_from is not None
    except SourceError:
        part = True
    if not part:
        raise MedTasksError(f"there is a task or dataset '{name}' already; choose another name with --as")


def _publish(dataset: str, criteria: Criteria, name: str, documents: Sequence[Mapping[str, Any]]) -> Manifest:
    folder = prepared_folder(dataset)
    whole = Manifest.read(folder)
    files = sorted({file for document in documents for file in image_digests(document)})
    shown = tqdm(files, desc="Fingerprint of the images", unit="image", leave=False, disable=None)
    facts = {image_key(file): read_facts(folder / file, whole.decoding) for file in shown}
    manifest = whole.model_copy(
        update={
            "name": name,
            **measured(documents, facts),
            "selected_from": dataset,
            "selection": {column: tuple(values) for column, values in criteria.items() if values},
        }
    )
    with work_folder(name) as work:
        publish_documents(work, manifest, {SPLIT: documents}, open_documents(dataset)[SPLIT].features)
    return manifest


def _config(task: TaskFile, new: str, dataset: str, manifest: Manifest) -> dict[str, Any]:
    config = task_config(task.name)
    description = f"{config['metadata']['description']}; only {described(manifest.selection)}"
    metadata = own_metadata(config["metadata"], dataset, description=description)
    return {**config, **own_keys(new, dataset, []), "metadata": metadata}
