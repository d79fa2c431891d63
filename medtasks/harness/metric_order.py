"""The order of metrics in tables: a task's list begins with its main metric."""

from collections.abc import Iterable, Sequence

from medtasks.errors import MedTasksError
from medtasks.harness.task_files import TaskFile, task_file


def main_first(task: str, metrics: Iterable[str]) -> list[str]:
    """Return metrics in the order of a task's own list; what is not in it comes behind, in its own order.

    Args:
        task: Name of a task; of a group the first member's list counts, of a task that is not ours there is none.
        metrics: Names, without ``_stderr``.
    """
    known = {name: place for place, name in enumerate(_listed(task))}
    return sorted(dict.fromkeys(metrics), key=lambda name: known.get(name, len(known)))


def _listed(name: str) -> Sequence[str]:
    try:
        task = _first(task_file(name))
    except MedTasksError:
        return ()
    return () if task.metric_list is None else [str(one["metric"]) for one in task.metric_list.resolve()]


def _first(task: TaskFile) -> TaskFile:
    return _first(task_file(task.members[0])) if task.members else task
