"""Which of the chosen tasks can run: groups and tags opened, datasets looked up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from medtasks.errors import MedTasksError
from medtasks.harness.task_files import TaskFile, task_files
from medtasks.harness.variant_documents import check_possible
from medtasks.harness.variants import tagged_tasks, variant_task


@dataclass(frozen=True)
class Selection:
    """Chosen tasks.

    Attributes:
        ready: Names to give to the harness. A group or tag whose members are all ready keeps its own name; names that
            are not ours stay as they are, the harness knows what they mean.
        missing: Why a task cannot run, by task name.
    """

    ready: tuple[str, ...]
    missing: dict[str, str]


def select(names: Sequence[str]) -> Selection:
    """Look up the datasets of the chosen tasks.

    Args:
        names: Tasks, groups and tags as given to the harness's ``--tasks``; sanity variants and their tags, too.
    """
    ready: dict[str, None] = {}
    missing: dict[str, str] = {}
    for name in names:
        members = list({task.name: task for task in _members(name)}.values())
        lacking = {task.name: cause for task in members if (cause := _cause(task))}
        missing |= lacking
        if not lacking:
            ready[name] = None
        else:
            ready |= dict.fromkeys(task.name for task in members if task.name not in lacking)
    return Selection(tuple(ready), missing)


def tasks_of(name: str) -> list[str]:
    """Return the names of the tasks behind a task, group or tag; none for a name that is not ours."""
    return list(dict.fromkeys(task.name for task in _members(name)))


def _members(name: str, above: tuple[str, ...] = ()) -> Iterator[TaskFile]:
    known = task_files()
    if name not in known:
        variant = variant_task(name)
        yield from [variant] if variant else tagged_tasks(name)
        yield from (task for task in known.values() if name in task.tags)
    elif known[name].kind == "group":
        inside = [list(_members(one, (*above, name))) for one in known[name].members if one not in above]
        # A user's group with tasks of the harness is the harness's to open, or those would be forgotten.
        yield from (task for tasks in inside for task in tasks if all(inside))
    else:
        yield known[name]


def _cause(task: TaskFile) -> str | None:
    try:
        check_possible(task)
    except MedTasksError as error:
        return str(error)
    return None
