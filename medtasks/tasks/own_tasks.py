"""Tasks of the user's own, without code: from a folder of questions, or from a part of a prepared dataset.

A folder's task is derived from that of a published dataset, so that it asks and scores as that does. Of a part only
the documents are copied; the images stay with the whole dataset. The tasks are those of the whole dataset, under the
part's name.

Own tasks that a user writes in YAML are in ``own_documents``. Each file is complete: one that included ours would make
every task of the harness unlistable once this package moves.
"""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.dataset_lookup import (
    own_dataset_info,
    own_datasets,
    own_task_file,
    prepared_folder,
)
from medtasks.data.dataset_manifest import FILE_NAME, Manifest
from medtasks.data.drawing import DrawRequest
from medtasks.data.prepare.prepare_dataset import publish_part
from medtasks.data.prepare.source_recipe import Options, prepare_recipe
from medtasks.data.selecting import Criteria, criteria_line
from medtasks.data.sources.multimedeval.question_sets import QA, VQA, OwnQuestions
from medtasks.errors import MedTasksError, SourceError, unknown_name
from medtasks.home import dataset_folder, make_folder, written_whole
from medtasks.tasks.prompt_settings import prompt_settings
from medtasks.tasks.task_files import (
    check_task_name,
    tagged_tasks,
    task_config,
    task_files,
    variant_of,
)
from medtasks.tasks.task_index import (
    SETTINGS,
    Config,
    DottedName,
    NewConfig,
    dump_task_file,
    harness_folder,
    index_tasks,
)

TAG = "multimedeval_own"
_PREFIX = "multimedeval_"
_COMMAND = "medtasks data prepare --from-folder"
_MARK = "# Written by '{}', which overwrites changes.\n"
_PART_COMMAND = "medtasks data select"
_MODELS = {QA: "multimedeval_medqa", VQA: "multimedeval_vqa_rad"}
_PROMPTS = {QA: "multimedeval_own_qa", VQA: "multimedeval_own_vqa"}


def prepare_own(
    folder: Path,
    name: str | None = None,
    access: Access = Access.CREDENTIALED,
    *,
    allow_incomplete: bool = False,
    again: bool = False,
) -> Manifest:
    """Prepare a user's folder with a ``dataset.json`` as a dataset and write its task file.

    A dataset that was prepared from the same folder is replaced, with its access level.

    Args:
        folder: The user's folder.
        name: Name from which :func:`own_name` makes that of dataset and task; by default the folder's.
        access: Access level of the data.
        allow_incomplete: Whether samples with missing images are left out instead of an error.
        again: Whether ``name`` is a dataset prepared before, which may have moved to ``folder``.

    Raises:
        SourceError: The folder is not of that format or has unusable samples.
        MedTasksError: The name is taken or has no letter or digit, or nothing can be written.
    """
    questions = OwnQuestions(folder)
    location = str(folder.resolve())
    chosen = own_name(name or folder.resolve().name)
    if chosen == TAG:
        raise MedTasksError(
            f"there is a task or dataset '{TAG}' already; choose another name with --name"
        )
    refuse_taken(chosen, chosen, _COMMAND, "--name")
    source = None
    if not again and (dataset_folder(chosen) / FILE_NAME).is_file():
        with contextlib.suppress(SourceError):  # a damaged one is not worth keeping
            source = Manifest.read(dataset_folder(chosen)).source
    if source not in (None, location):
        raise MedTasksError(
            f"'{chosen}' is prepared from {source} already; choose another name with --name, or replace it: "
            f"medtasks data prepare {chosen} --source {folder}"
        )
    info = own_dataset_info(chosen, f"{questions.kind}, from {location}", location, access)
    manifest = prepare_recipe(
        info, questions.own_recipe(), Options(folder, allow_incomplete=allow_incomplete)
    )
    write_task_file(chosen, _config_like_published(questions, chosen), _COMMAND)
    return manifest


def _config_like_published(questions: OwnQuestions, name: str) -> NewConfig:
    """Return the configuration of the task of a user's folder, after those of published datasets."""
    names = own_keys(name, name, TAG)
    config = {**names, **task_config(_MODELS[questions.kind]), **names}
    config[SETTINGS] = prompt_settings(_PROMPTS[questions.kind])
    metadata = task_config(_MODELS[VQA])["metadata"]
    description = f"Own {questions.kind} questions, {questions.modality or 'no modality given'}"
    config["metadata"] = own_metadata(metadata, name, description=description, prompt="head")
    if questions.kind == QA:
        function = DottedName("medtasks.hooks.filters.ReadWith")
        reference = {"function": function, "rule": "multimedeval_option_head"}
        robust = {"function": function, "rule": "robust_choice"}
        config["filter_list"] = [
            {"name": "reference", "filter": [reference]},
            {"name": "robust", "filter": [robust]},
        ]
    return config


def own_name(text: str) -> str:
    """Return the name of the dataset and task a folder's name gives.

    Raises:
        MedTasksError: The name has no letter or digit.

    Example:
        >>> own_name("Chest X-rays (2024)")
        'multimedeval_chest_x_rays_2024'
    """
    slug = re.sub(r"[^a-z0-9]+", "_", text.lower().removeprefix(_PREFIX)).strip("_")
    if not slug:
        raise MedTasksError(
            f"'{text}' gives no task name; choose one of letters and digits with --name"
        )
    return _PREFIX + slug


def whole_dataset(name: str) -> str:
    """Return the prepared dataset a user means.

    Raises:
        MedTasksError: The dataset is not prepared, or a part itself.
    """
    dataset = "gmai_mmbench_val" if name == "gmai_mmbench" else name
    prepared_folder(dataset)
    whole = Manifest.read(dataset_folder(dataset)).selected_from
    if whole is not None:
        raise MedTasksError(f"'{name}' is itself a part of '{whole}'; choose from that one")
    return dataset


def select_as(
    dataset: str,
    criteria: Criteria,
    name: str,
    request: DrawRequest | None = None,
) -> tuple[Manifest, list[str], list[str]]:
    """Make a dataset of the matching documents of a prepared dataset, and its tasks and groups.

    Args:
        dataset: The whole dataset.
        criteria: Values of columns that documents must have.
        name: Name of the part and of its first task. Groups of the whole dataset's tasks get one of the part's.
        request: How documents are drawn at random instead, None for all that match.

    Raises:
        UnknownName: There is no such column.
        MedTasksError: The name is taken or invalid, no document matches, or nothing can be written.
    """
    check_task_name(name)
    names = tasks_of_part(dataset, name)
    shipped = task_files()
    groups = groups_of_part(dataset, name, names)
    for new in (*names.values(), *groups.values()):
        refuse_taken(new, name, _PART_COMMAND, "--as")
    if name in own_datasets():
        with contextlib.suppress(SourceError):  # a damaged one may be replaced
            if Manifest.read(dataset_folder(name)).selected_from is None:
                raise MedTasksError(
                    f"there is a task or dataset '{name}' already; choose another name with --as"
                )
    manifest = publish_part(dataset, criteria, name, request)
    part = str(manifest.draw or f"only {criteria_line(manifest.selection)}")
    for task, new in names.items():
        description = f"{shipped[task].description}; {part}"
        write_task_file(new, task_copy(task, new, name, description), _PART_COMMAND)
    for group, new in groups.items():
        description = f"{shipped[group].description}; {part}"
        write_task_file(new, group_copy(group, new, names, description), _PART_COMMAND)
    return manifest, list(names.values()), list(groups.values())


def tasks_of_part(dataset: str, name: str) -> dict[str, str]:
    """Return the names that tasks of a part called ``name`` have, by the names of the whole dataset's tasks.

    Raises:
        UnknownName: No task asks about the dataset.
    """
    names = {}
    tasks = task_files().values()
    for task in tasks:
        if task.dataset == dataset and task.name.startswith(dataset):
            names[task.name] = name + task.name.removeprefix(dataset)
    if not names:
        datasets = {task.dataset for task in tasks if task.dataset}
        raise unknown_name("dataset with tasks", dataset, datasets)
    return names


def groups_of_part(dataset: str, name: str, tasks: Mapping[str, str]) -> dict[str, str]:
    """Return the names that groups of a part have, by the names of published groups of the whole dataset's tasks.

    Args:
        dataset: The whole dataset.
        name: Name of the part.
        tasks: Names of the part's tasks by those of the tasks that they are like; a group has no others.
    """
    names = {}
    for group in task_files().values():
        if group.kind != "group" or not group.is_shipped or not group.name.startswith(dataset):
            continue
        if tasks.keys() >= set(group.members):
            names[group.name] = name + group.name.removeprefix(dataset)
    return names


def task_copy(model: str, name: str, dataset: str, description: str) -> NewConfig:
    """Return the configuration of a task like another one on a dataset of the user's own.

    Args:
        model: Name of the other task.
        name: Name of the new task.
        dataset: Dataset of the new task.
        description: Description of the new task.
    """
    config = task_config(model)
    metadata = own_metadata(config["metadata"], dataset, description=description)
    return {**config, **own_keys(name, dataset, []), "metadata": metadata}


def group_copy(model: str, name: str, tasks: Mapping[str, str], description: str) -> NewConfig:
    """Return the configuration of a group like another one.

    Args:
        model: Name of the other group.
        name: Name of the new group.
        tasks: Names of its members, by those of the other group's members.
        description: Description of the new group.
    """
    config = task_config(model)
    members = [tasks[member] for member in config["task"]]
    metadata = {**config["metadata"], "description": description}
    return {**config, "group": name, "task": members, "metadata": metadata}


def own_keys(task: str, dataset: str, tags: object) -> NewConfig:
    """Return the keys of a task file for its name and its data, which are prepared.

    Example:
        >>> own_keys("mine", "mine", [])["dataset_path"]
        'medtasks.data.path_of.mine'
    """
    return {
        "task": task,
        "task_alias": DottedName(f"medtasks.data.label_of.{task}"),
        "tag": tags,
        "dataset_path": DottedName(f"medtasks.data.path_of.{dataset}"),
    }


def own_metadata(metadata: Config, dataset: str, **about: Any) -> NewConfig:
    """Return the metadata for a copy of a task on other data. The copy has no few-shot twin, unless a file defines one.

    Args:
        metadata: Metadata of the task.
        dataset: Dataset of the copy.
        about: Values by key that replace those of the task.
    """
    copied = {**metadata, **about, "dataset": dataset}
    copied["data"] = DottedName(f"medtasks.data.provenance_of.{dataset}")
    copied.pop("few_shot", None)
    return copied


def refuse_taken(name: str, dataset: str, command: str, option: str) -> None:
    """Refuse a name that the harness, this package or a file of the user's has already.

    A file on the same dataset that the command has written may be overwritten.

    Args:
        name: Name of a new task or group.
        dataset: Dataset of the new task or group.
        command: The command that writes its file.
        option: The command's option that gives another name.

    Raises:
        MedTasksError: The name is taken.
    """
    path = own_task_file(name)
    tasks = task_files()
    if _is_taken(name, path):
        raise MedTasksError(
            f"there is a task or dataset '{name}' already; choose another name with {option}"
        )
    if path.exists() and not path.read_text(encoding="utf-8").startswith(_MARK.format(command)):
        raise MedTasksError(
            f"{path} was not written by this command; move it away, or choose another {option}"
        )
    if name not in tasks:
        return
    members = (name, *tasks[name].members)
    others = {tasks[member].dataset or dataset for member in members if member in tasks} - {
        dataset
    }
    if others:
        raise MedTasksError(
            f"there is a task '{name}' on your dataset '{min(others)}' already; choose another name with {option}"
        )


def _is_taken(name: str, path: Path) -> bool:
    """Return whether a name is taken by a dataset, a tag, a variant, or a task in another file than ``path``."""
    for task in task_files().values():
        if task.path != path and name in (task.name, *task.tags):
            return True
    if name in CATALOGUE or variant_of(name) or tagged_tasks(name):
        return True
    return name in index_tasks(filter(None, [harness_folder()]), [name])


def write_task_file(name: str, config: Config, command: str) -> None:
    """Write a complete task file, whose first line says that ``command`` wrote it.

    Raises:
        MedTasksError: The file cannot be written.
    """
    path = own_task_file(name)
    text = dump_task_file(config)
    try:
        make_folder(path.parent, 0o700)
        with written_whole(path) as partial:
            partial.touch(0o600)
            partial.write_text(_MARK.format(command) + text, encoding="utf-8")
    except OSError as error:
        raise MedTasksError(
            f"cannot write the task file {path}: {error.strerror or error}; the dataset is prepared, make room and run "
            f"the same command again"
        ) from error
