"""What a sanity variant's file for the harness names: ``medtasks.harness.process_docs.<task>``.

By the variant's name, what its ``process_docs`` does; behind ``path_of_``, the ``dataset_path`` of a variant whose
images cannot always be had.
"""

from collections.abc import Callable
from typing import Any

from medtasks.data.prepared import RefusedPath
from medtasks.errors import MedTasksError
from medtasks.harness.documents import changed_table, check_possible
from medtasks.harness.task_files import task_config, task_file, variant_of
from medtasks.harness.task_index import resolved

_PATH = "path_of_"


def __getattr__(name: str) -> Callable[[Any], Any] | str | RefusedPath:
    variant = name.removeprefix(_PATH)
    found = None if name.startswith("__") else variant_of(variant)
    if found is None:
        raise AttributeError(name)
    return _dataset_path(variant) if name != variant else _changed(variant, found[0])


def _changed(name: str, base: str) -> Callable[[Any], Any]:
    task = task_file(name)
    config = resolved({key: value for key, value in task_config(base).items() if key != "dataset_path"})

    def changed(table: Any) -> Any:
        return changed_table(task, table, config)

    changed.__name__ = changed.__qualname__ = name  # what shows a task's configuration
    return changed


def _dataset_path(name: str) -> str | RefusedPath:
    """Return the path of a variant's dataset; asking for it says why the variant is impossible.

    The harness would hide what ``process_docs`` raises.
    """
    path = str(resolved(task_config(name)["dataset_path"]))
    try:
        check_possible(task_file(name))
    except MedTasksError as error:
        return RefusedPath(path, error)
    return path
