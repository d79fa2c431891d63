"""Tasks of the user's own, without code: from a folder of questions, or from a part of a prepared dataset.

A folder's task is put together from that of a published dataset, so that it asks and scores as that does.

Of a part only the documents are copied; the images stay with the whole dataset. The tasks are those of the whole
dataset, under the part's name.
"""

import contextlib
import re
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import Access
from medtasks.data.dataset_lookup import prepared_folder
from medtasks.data.dataset_manifest import FILE_NAME, Manifest
from medtasks.data.own_datasets import own_dataset_info, own_datasets
from medtasks.data.prepare.prepare_dataset import publish_part
from medtasks.data.prepare.source_recipe import Options, prepare_recipe
from medtasks.data.selecting import Criteria, described
from medtasks.data.sources.multimedeval.own_folder import QA, VQA, OwnQuestions, read_folder
from medtasks.errors import MedTasksError, SourceError, unknown_name
from medtasks.home import dataset_folder
from medtasks.tasks.prompt_settings import prompt_settings
from medtasks.tasks.task_copies import own_keys, own_metadata, refuse_taken, task_copy, write_task_file
from medtasks.tasks.task_files import task_config, task_files
from medtasks.tasks.task_index import SETTINGS, DottedName

TAG = "multimedeval_own"
_PREFIX = "multimedeval_"
_COMMAND = "medtasks data prepare --from-folder"
_PART_COMMAND = "medtasks data select"
_MODELS = {QA: "multimedeval_medqa", VQA: "multimedeval_vqa_rad"}
_PROMPTS = {QA: "multimedeval_own_qa", VQA: "multimedeval_own_vqa"}
_READ_WITH = "medtasks.hooks.filters.ReadWith"
_USUAL_SPLIT = {"gmai_mmbench": "gmai_mmbench_val"}


def prepare_own(
    folder: Path,
    name: str | None = None,
    access: Access = Access.CREDENTIALED,
    *,
    allow_incomplete: bool = False,
    again: bool = False,
) -> Manifest:
    """Prepare a user's folder with a ``dataset.json`` as a dataset and write its task file.

    Dataset and task are called ``name``, by default as the folder. As long as the user does not say otherwise, the data
    stay on this machine. With ``again``, ``name`` is a dataset prepared before, which may have moved to ``folder``. A
    SourceError says that the folder is not of that format or samples cannot be used, another MedTasksError that the
    name is taken or nothing can be written.
    """
    questions = read_folder(folder)
    chosen = own_name(name or folder.resolve().name)
    if chosen == TAG:
        raise MedTasksError(f"there is a task or dataset '{TAG}' already; choose another name with --name")
    refuse_taken(chosen, chosen, _COMMAND, "--name")
    if not again:
        _refuse_another_folder(chosen, folder)
    info = own_dataset_info(chosen, folder.resolve(), access, questions.kind)
    manifest = prepare_recipe(info, questions.recipe, Options(folder, allow_incomplete=allow_incomplete))
    write_task_file(chosen, _task_config(chosen, questions), _COMMAND)
    return manifest


def own_name(text: str) -> str:
    """Return the name of the dataset and task a folder's name gives; MedTasksError without a letter or digit.

    Example:
        >>> own_name("Chest X-rays (2024)")
        'multimedeval_chest_x_rays_2024'
    """
    slug = re.sub(r"[^a-z0-9]+", "_", text.lower().removeprefix(_PREFIX)).strip("_")
    if not slug:
        raise MedTasksError(f"'{text}' gives no task name; choose one of letters and digits with --name")
    return _PREFIX + slug


def _refuse_another_folder(name: str, folder: Path) -> None:
    prepared, source = dataset_folder(name), None
    if (prepared / FILE_NAME).is_file():
        with contextlib.suppress(SourceError):  # a damaged one is not worth keeping
            source = Manifest.read(prepared).source
    if source not in (None, str(folder.resolve())):
        raise MedTasksError(
            f"'{name}' is prepared from {source} already; choose another name with --name, or replace it: "
            f"medtasks data prepare {name} --source {folder}"
        )


def _task_config(name: str, questions: OwnQuestions) -> dict[str, Any]:
    config, with_images = task_config(_MODELS[questions.kind]), task_config(_MODELS[VQA])
    own = own_keys(name, name, TAG)
    description = f"Own {questions.kind} questions, {questions.modality or 'no modality given'}"
    metadata = own_metadata(with_images["metadata"], name, description=description, prompt="head")
    rules = [_filter("reference", "multimedeval_option_head"), _filter("robust", "robust_choice")]
    changed = {
        **own,
        SETTINGS: prompt_settings(_PROMPTS[questions.kind]),
        "filter_list": rules if questions.kind == QA else config["filter_list"],
        "metadata": metadata,
    }
    return {**own, **config, **changed}


def _filter(name: str, rule: str) -> dict[str, Any]:
    return {"name": name, "filter": [{"function": DottedName(_READ_WITH), "rule": rule}]}


def whole_dataset(name: str) -> str:
    """Return the prepared dataset a user means; a MedTasksError where there is none, or it is a part itself."""
    dataset = _USUAL_SPLIT.get(name, name)
    prepared_folder(dataset)
    own = Manifest.read(dataset_folder(dataset)).selected_from
    if own is not None:
        raise MedTasksError(f"'{name}' is itself a part of '{own}'; choose from that one")
    return dataset


def select_as(dataset: str, criteria: Criteria, name: str) -> tuple[Manifest, list[str]]:
    """Make the documents of a prepared dataset that fit a dataset of their own, and return it with its tasks' names.

    ``criteria`` are wanted values by column, see :func:`medtasks.data.selecting.choose`; ``name`` is that of the part
    and of its first task. UnknownName says that there is no such column, another MedTasksError that the name is taken
    or none, that no document fits, or that nothing can be written.
    """
    if not name.isidentifier() or name != name.lower():
        raise MedTasksError(f"'{name}' cannot be a task's name; take small letters, digits and underscores")
    names = tasks_of_part(dataset, name)
    known = task_files()
    if not names:
        raise unknown_name("dataset with tasks", dataset, {one.dataset or "" for one in known.values()} - {""})
    for new in names.values():
        refuse_taken(new, name, _PART_COMMAND, "--as")
    _refuse_other_data(name)
    manifest = publish_part(dataset, criteria, name)
    for task, new in names.items():
        description = f"{known[task].description}; only {described(manifest.selection)}"
        write_task_file(new, task_copy(task, new, name, description), _PART_COMMAND)
    return manifest, list(names.values())


def tasks_of_part(dataset: str, name: str) -> dict[str, str]:
    """Return the names that tasks of a part called ``name`` have, by those of the whole dataset's tasks."""
    models = [task for task in task_files().values() if task.kind == "task" and task.dataset == dataset]
    return {task.name: name + task.name.removeprefix(dataset) for task in models if task.name.startswith(dataset)}


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
