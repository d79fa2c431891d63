"""What ``process_docs`` of a sanity variant does, by the variant's name: ``medtasks.harness.process_docs.<task>``."""

from collections.abc import Callable
from typing import Any

from medtasks.data.variants import SWAPPED


def __getattr__(name: str) -> Callable[[Any], Any]:
    from medtasks.harness.documents import changed_table, check_possible
    from medtasks.harness.task_files import task_config, task_file, variant_of
    from medtasks.harness.task_index import resolved

    found = None if name.startswith("__") else variant_of(name)
    if found is None:
        raise AttributeError(name)
    task = task_file(name)
    if task.variant == SWAPPED:
        check_possible(task)  # here, because the harness would hide what process_docs raises
    config = resolved({key: value for key, value in task_config(found[0]).items() if key != "dataset_path"})
    return lambda table: changed_table(task, table, config)
