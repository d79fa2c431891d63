"""Findings of the doctor, and what it looks at; a check that fails leaves the others alone."""

import enum
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partialmethod
from pathlib import Path

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.own_datasets import own_datasets
from medtasks.errors import MedTasksError
from medtasks.families.family import Asks, needs_labeler
from medtasks.metrics.report_metrics import REPORT_METRICS, MetricInfo
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_file, task_files, tasks_of

Check = Callable[[], Iterable["CheckResult"]]


class State(enum.StrEnum):
    """How bad it is: a problem stops a run or makes it wrong, a warning costs a part of it, a note costs nothing."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class CheckResult:
    """One thing that was looked at."""

    area: str  # one of AREAS
    name: str
    state: State
    found: str  # one sentence
    fix: str = ""  # one command or sentence that mends it; empty where nothing is to be mended


class Area(str):
    """A part of what is looked at; makes findings that belong to it."""

    def _finding(self, state: State, name: str, found: str, fix: str = "") -> CheckResult:
        return CheckResult(self, name, state, found, fix)

    ok = partialmethod(_finding, State.OK)
    note = partialmethod(_finding, State.NOTE)
    warning = partialmethod(_finding, State.WARNING)
    problem = partialmethod(_finding, State.PROBLEM)


HARNESS, TASKS, PACKAGES = Area("harness"), Area("tasks"), Area("packages")
TORCH, MACHINE, CREDENTIALS, DATASETS = Area("torch"), Area("machine"), Area("credentials"), Area("datasets")
WEIGHTS, JUDGE, MODEL = Area("weights"), Area("judge"), Area("model")
AREAS = (HARNESS, TASKS, PACKAGES, TORCH, MACHINE, CREDENTIALS, DATASETS, WEIGHTS, JUDGE, MODEL)  # as shown


def findings_of(area: str, name: str, check: Check) -> list[CheckResult]:
    """Return the findings of a check; where it failed, those before the failure and one that says so.

    Messages that are not our own may quote a record or a key, so that only their place is told.
    """
    found: list[CheckResult] = []
    try:
        for finding in check():
            found.append(finding)  # one by one: what came before a failure is kept
    except MedTasksError as error:
        found.append(of_error(area, name, State.PROBLEM, error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one check must not cost the others
        last = next(iter(traceback.extract_tb(error.__traceback__)[-1:]), None)
        where = f" at {Path(last.filename).name}:{last.lineno} in {last.name}" if last else ""
        sentence = f"this could not be checked ({type(error).__name__}{where})"
        fix = "look at the named place; everything else was checked"
        found.append(CheckResult(area, name, State.PROBLEM, sentence, fix))
    return found


def of_error(area: str, name: str, state: State, error: MedTasksError, fix: str = "") -> CheckResult:
    """Return one of our errors, whose messages name behind a semicolon what mends it, else ``fix``, as a finding."""
    found, _, own_fix = str(error).rstrip(".").partition("; ")
    return CheckResult(area, name, state, found, own_fix or fix)


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
