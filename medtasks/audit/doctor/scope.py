"""What the chosen tasks need: datasets, metrics, a judge, a labeler."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.own_datasets import own_datasets
from medtasks.extract import chexbert_labels
from medtasks.harness.selection import tasks_of
from medtasks.harness.task_files import TaskFile, task_config, task_file, task_files
from medtasks.hooks import label_hallucination
from medtasks.metrics.report_metrics import REPORT_METRICS, MetricInfo

_ASK_A_JUDGE = ("medtasks.hooks.free_form.", "medtasks.hooks.judged_choice.")
_ASK_A_JUDGE_IF_THERE = "medtasks.hooks.optional_judge."


class JudgeNeed(enum.Enum):
    """Whether a task runs without an LLM judge."""

    NONE = enum.auto()
    OPTIONAL = enum.auto()
    REQUIRED = enum.auto()


@dataclass(frozen=True)
class Scope:
    """What is looked at.

    Attributes:
        names: Tasks, groups and tags as the user gave them; empty for everything.
        tasks: The tasks of ours behind them; without names, all of ours.
        foreign: Those of ``names`` that are not ours.
    """

    names: tuple[str, ...]
    tasks: tuple[TaskFile, ...]
    foreign: tuple[str, ...] = ()

    @property
    def chosen(self) -> bool:
        """Whether the user named tasks, so that what these lack is no mere note."""
        return bool(self.names)

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        """Datasets of the chosen tasks; without names, the catalogue and the user's own."""
        if not self.chosen:
            return (*CATALOGUE, *own_datasets())
        return tuple(dict.fromkeys(task.dataset for task in self.tasks if task.dataset))

    @cached_property
    def metrics(self) -> tuple[MetricInfo, ...]:
        """Metrics of reports that the tasks compute."""
        owners = {key: info for info in REPORT_METRICS.values() for key in info.keys}
        names = dict.fromkeys(name for task in self.tasks for name in _metric_names(task))
        return tuple({owners[name].name: owners[name] for name in names if name in owners}.values())

    @cached_property
    def needs_labeler(self) -> bool:
        """Whether a task has a labeler of chest findings read its replies."""
        return any(
            chexbert_labels.NAME in task.rules.values() or set(label_hallucination.NAMES) & set(_metric_names(task))
            for task in self.tasks
        )


def scope_of(names: Sequence[str]) -> Scope:
    """Find the tasks behind names of tasks, groups and tags; behind none, all of ours."""
    if not names:
        return Scope((), tuple(task for task in task_files().values() if task.kind == "task"))
    members = dict.fromkeys(task for name in names for task in tasks_of(name))
    foreign = tuple(name for name in names if not tasks_of(name))
    return Scope(tuple(names), tuple(task_file(task) for task in members), foreign)


def judge_need(task: TaskFile) -> JudgeNeed:
    """Return whether a task needs a judge: the hook that writes its prompt looks for one before the model runs."""
    hook = str(task_config(task.name).get("doc_to_text", ""))
    if hook.startswith(_ASK_A_JUDGE):
        return JudgeNeed.REQUIRED
    return JudgeNeed.OPTIONAL if hook.startswith(_ASK_A_JUDGE_IF_THERE) else JudgeNeed.NONE


def _metric_names(task: TaskFile) -> list[str]:
    if task.metric_list is None or not task.metric_list.is_ours:  # nothing of the user's is imported here
        return []
    return [entry["metric"] for entry in task.metric_list.resolve()]
