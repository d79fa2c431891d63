"""``label_of.<task>`` is the name under which a task appears in the harness's table, for ``task_alias: !function``.

It is the task's own name, with a warning behind it when the data are drawn samples or incomplete.
"""

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.manifest import Manifest
from medtasks.data.own_datasets import own_datasets
from medtasks.data.path_of import known, prepared_folder
from medtasks.errors import MedTasksError


def label(task: str, dataset: str) -> str:
    """Return ``task``, followed by ``[SAMPLE DATA]`` or ``[INCOMPLETE DATA]`` where that is so."""
    try:
        manifest = Manifest.read(prepared_folder(dataset))
    except MedTasksError:
        return task
    if manifest.sample:
        return f"{task} [SAMPLE DATA]"
    return task if manifest.complete else f"{task} [INCOMPLETE DATA]"


def __getattr__(name: str) -> str:
    owners = [dataset for dataset in (*CATALOGUE, *own_datasets()) if f"{name}_".startswith(f"{dataset}_")]
    if owners:
        return label(name, max(owners, key=len))
    if known(name):  # a task of the user's own whose dataset is gone
        return name
    raise AttributeError(f"module {__name__!r}: no dataset name is the beginning of task name {name!r}")
