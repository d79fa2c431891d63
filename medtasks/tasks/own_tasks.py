"""Tasks of the user's own, without code: from a folder of questions, or from a part of a prepared dataset.

A task file stands alone: one that included ours would make every task of the harness unlistable once this package
moves. A folder's is put together from the task of a published dataset, so that it asks and scores as that does.

Of a part only the documents are copied; the images stay with the whole dataset. The tasks are those of the whole
dataset, under the part's name.
"""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.home import dataset_folder, written_whole
from medtasks.data.manifest import FILE_NAME, Manifest
from medtasks.data.multimedeval.folder import QA, VQA, OwnQuestions, read_folder
from medtasks.data.own_datasets import own_dataset_info, own_datasets
from medtasks.data.parts import publish_part
from medtasks.data.preparation import Options, prepare_recipe
from medtasks.data.prepared import own_task_file, prepared_folder
from medtasks.data.selecting import Criteria, described
from medtasks.errors import MedTasksError, SourceError, unknown_name
from medtasks.harness.prompt_settings import prompt_settings
from medtasks.harness.task_files import tagged_tasks, task_config, task_files, variant_of
from medtasks.harness.task_index import SETTINGS, DottedName, dumped, harness_folder

TAG = "multimedeval_own"
_PREFIX = "multimedeval_"
_MARK = "# Written by 'medtasks data prepare --from-folder', which overwrites changes.\n"
_PART_MARK = "# Written by 'medtasks data select', which overwrites changes.\n"
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
    _refuse_taken(chosen, _MARK, "--name")
    if not again:
        _refuse_another_folder(chosen, folder)
    info = own_dataset_info(chosen, folder.resolve(), access, questions.kind)
    manifest = prepare_recipe(info, questions.recipe, Options(folder, allow_incomplete=allow_incomplete))
    _write_task_file(chosen, _task_config(chosen, questions), _MARK)
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
    own = _own_keys(name, name, TAG)
    description = f"Own {questions.kind} questions, {questions.modality or 'no modality given'}"
    metadata = _own_metadata(with_images["metadata"], name, description=description, prompt="head")
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
    if not names:
        raise unknown_name("dataset with tasks", dataset, {one.dataset or "" for one in task_files().values()} - {""})
    for new in names.values():
        _refuse_taken(new, _PART_MARK, "--as")
    _refuse_other_data(name)
    manifest = publish_part(dataset, criteria, name)
    for task, new in names.items():
        _write_task_file(new, _part_config(task, new, name, manifest), _PART_MARK)
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


def _part_config(task: str, new: str, dataset: str, manifest: Manifest) -> dict[str, Any]:
    config = task_config(task)
    description = f"{config['metadata']['description']}; only {described(manifest.selection)}"
    metadata = _own_metadata(config["metadata"], dataset, description=description)
    return {**config, **_own_keys(new, dataset, []), "metadata": metadata}


def _refuse_taken(name: str, mark: str, option: str) -> None:
    """Refuse a name that the harness, this package or a file of the user's has already; ``option`` gives another.

    Files with the mark as their first line may be overwritten.
    """
    path = own_task_file(name)
    ours = {task.name: task.path for task in task_files().values()}
    tags = {tag for task in task_files().values() if task.path != path for tag in task.tags}
    taken = name in CATALOGUE or name in tags or variant_of(name) or tagged_tasks(name)
    if taken or ours.get(name, path) != path or _harness_knows(name):
        raise MedTasksError(f"there is a task or dataset '{name}' already; choose another name with {option}")
    if path.exists() and not path.read_text(encoding="utf-8").startswith(mark):
        raise MedTasksError(f"{path} was not written by this command; move it away, or choose another {option}")


def _own_keys(task: str, dataset: str, tags: object) -> dict[str, Any]:
    """Return what a task file says of its name and its data, which are prepared."""
    return {
        "task": task,
        "task_alias": DottedName(f"medtasks.data.label_of.{task}"),
        "tag": tags,
        "dataset_path": DottedName(f"medtasks.data.path_of.{dataset}"),
    }


def _own_metadata(metadata: Mapping[str, Any], dataset: str, **about: Any) -> dict[str, Any]:
    """Return a task's metadata for a copy of it on other data, which has no few-shot twin, or one with its own file."""
    data = {"dataset": dataset, "data": DottedName(f"medtasks.data.provenance_of.{dataset}")}
    return {**{name: value for name, value in metadata.items() if name != "few_shot"}, **about, **data}


def _write_task_file(name: str, config: Mapping[str, Any], mark: str) -> None:
    """Write a task file that stands alone; the mark is its first line."""
    path, text = own_task_file(name), dumped(config)
    try:
        with written_whole(path) as partial:
            partial.write_text(mark + text, encoding="utf-8")
    except OSError as error:
        raise MedTasksError(
            f"cannot write the task file {path}: {error.strerror or error}; the dataset is prepared, make room and run "
            f"the same command again"
        ) from error


def _harness_knows(name: str) -> bool:
    """Return whether a task file of the harness names it; importing the harness would take long."""
    root = harness_folder()
    entry = re.compile(rb"^\s*(?:-\s|(?:-\s*)?(?:task|group|tag)\s*:)[^#\n]*\b" + name.encode() + rb"\b", re.MULTILINE)
    return root is not None and any(entry.search(path.read_bytes()) for path in root.rglob("*.yaml"))
