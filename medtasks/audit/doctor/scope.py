"""What the chosen tasks need: datasets, metrics, a judge, a labeler."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from medtasks.audit.doctor.check_results import State
from medtasks.data.catalogue import CATALOGUE
from medtasks.data.own_datasets import own_datasets
from medtasks.families.family import Asks, needs_labeler
from medtasks.metrics.report_metrics import REPORT_METRICS, MetricInfo
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_file, task_files, tasks_of


@dataclass(frozen=True)
class Scope:
    """What is looked at."""

    names: tuple[str, ...]  # tasks, groups and tags as the user gave them; empty for everything
    tasks: tuple[TaskFile, ...]  # the tasks of ours behind them; without names, all of ours
    foreign: tuple[str, ...] = ()  # those of names that are not ours

    @property
    def chosen(self) -> bool:
        """Whether the user named tasks, so that what these lack is no mere note."""
        return bool(self.names)

    @property
    def state(self) -> State:
        """How bad it is that something is lacking that not every task needs."""
        return State.WARNING if self.chosen else State.NOTE

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        """Datasets of the chosen tasks; without names, the catalogue and the user's own."""
        if not self.chosen:
            return (*CATALOGUE, *own_datasets())
        return tuple(dict.fromkeys(task.dataset for task in self.tasks if task.dataset))

    @cached_property
    def metrics(self) -> tuple[MetricInfo, ...]:
        """Metrics of reports that the tasks compute; metrics of the user's own are not imported."""
        owners = {key: info for info in REPORT_METRICS.values() for key in info.keys}
        lists = (task.metric_list for task in self.tasks)
        entries = [entry for one in lists if one is not None and one.is_ours for entry in one.resolve()]
        found = (owners[entry["metric"]] for entry in entries if entry["metric"] in owners)
        return tuple({info.name: info for info in found}.values())

    @cached_property
    def needs_labeler(self) -> bool:
        """Whether a task has a labeler of chest findings read its replies."""
        return any(
            any(map(needs_labeler, task.rows.values())) or (task.has_family and task.family.labels_texts)
            for task in self.tasks
        )


def scope_of(names: Sequence[str]) -> Scope:
    """Find the tasks behind names of tasks, groups and tags; behind none, all of ours."""
    if not names:
        return Scope((), tuple(task for task in task_files().values() if task.kind == "task"))
    members = dict.fromkeys(task for name in names for task in tasks_of(name))
    foreign = tuple(name for name in names if not tasks_of(name))
    return Scope(tuple(names), tuple(task_file(task) for task in members), foreign)


def asked_by(task: TaskFile) -> Asks:
    """Return whether a task needs a judge; a group, which scores nothing itself, asks nobody."""
    return task.family.asks if task.has_family else Asks.NOBODY
