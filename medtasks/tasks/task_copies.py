"""Task files on data of the user's own that ask and score as other tasks do.

Each stands alone: one that included ours would make every task of the harness unlistable once this package moves. It
is called after its dataset, and its first line names the command that may write it again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_lookup import own_task_file
from medtasks.errors import MedTasksError
from medtasks.home import written_whole
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import tagged_tasks, task_config, task_files, variant_of
from medtasks.tasks.task_index import DottedName, dumped, harness_folder, index_tasks


def task_copy(model: str, name: str, dataset: str, description: str) -> dict[str, Any]:
    """Return what the file of a task says that is another one on a dataset of the user's own."""
    config = task_config(model)
    metadata = own_metadata(config["metadata"], dataset, description=description)
    return {**config, **own_keys(name, dataset, []), "metadata": metadata}


def group_copy(model: str, name: str, members: Sequence[str], description: str) -> dict[str, Any]:
    """Return what the file of a group says that aggregates its members as another one does."""
    config = task_config(model)
    metadata = {**config["metadata"], "description": description}
    return {**config, "group": name, "task": list(members), "metadata": metadata}


def own_keys(task: str, dataset: str, tags: object) -> dict[str, Any]:
    """Return what a task file says of its name and its data, which are prepared."""
    return {
        "task": task,
        "task_alias": DottedName(f"medtasks.data.label_of.{task}"),
        "tag": tags,
        "dataset_path": DottedName(f"medtasks.data.path_of.{dataset}"),
    }


def own_metadata(metadata: Mapping[str, Any], dataset: str, **about: Any) -> dict[str, Any]:
    """Return a task's metadata for a copy of it on other data, which has no few-shot twin, or one with its own file."""
    data = {"dataset": dataset, "data": DottedName(f"medtasks.data.provenance_of.{dataset}")}
    return {**{name: value for name, value in metadata.items() if name != "few_shot"}, **about, **data}


def refuse_taken(name: str, dataset: str, command: str, option: str) -> None:
    """Refuse a name that the harness, this package or a file of the user's has already; ``option`` gives another.

    A file on the same dataset that the command has written may be overwritten.
    """
    path = own_task_file(name)
    known = task_files()
    tags = {tag for task in known.values() if task.path != path for tag in task.tags}
    taken = name in CATALOGUE or name in tags or variant_of(name) or tagged_tasks(name)
    harness = harness_folder()
    theirs = harness is not None and name in index_tasks([harness], [name])
    if taken or theirs or (name in known and known[name].path != path):
        raise MedTasksError(f"there is a task or dataset '{name}' already; choose another name with {option}")
    if path.exists() and not path.read_text(encoding="utf-8").startswith(_mark(command)):
        raise MedTasksError(f"{path} was not written by this command; move it away, or choose another {option}")
    if name in known and (others := _datasets(known[name], known) - {dataset}):
        raise MedTasksError(
            f"there is a task '{name}' on your dataset '{min(others)}' already; choose another name with {option}"
        )


def _datasets(task: TaskFile, known: Mapping[str, TaskFile]) -> set[str]:
    members = [task, *(known[member] for member in task.members if member in known)]
    return {member.dataset for member in members if member.dataset is not None}


def write_task_file(name: str, config: Mapping[str, Any], command: str) -> None:
    """Write a task file that stands alone; its first line says that ``command`` wrote it."""
    path, text = own_task_file(name), dumped(config)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with written_whole(path) as partial:
            partial.touch(0o600)
            partial.write_text(_mark(command) + text, encoding="utf-8")
    except OSError as error:
        raise MedTasksError(
            f"cannot write the task file {path}: {error.strerror or error}; the dataset is prepared, make room and run "
            f"the same command again"
        ) from error


def _mark(command: str) -> str:
    return f"# Written by '{command}', which overwrites changes.\n"
