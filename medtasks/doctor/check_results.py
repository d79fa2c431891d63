"""Results and scope of the doctor's checks, none of which stops the others where it fails."""

import enum
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partialmethod
from pathlib import Path

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_lookup import own_datasets
from medtasks.errors import MedTasksError, split_fix
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_file, task_files, tasks_of

Check = Callable[[], Iterable["CheckResult"]]


class State(enum.StrEnum):
    """Severity: a problem stops a run or makes it wrong, a warning costs a part of the run, a note costs nothing."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class CheckResult:
    """Result of one check."""

    area: str  # one of AREAS
    name: str
    state: State
    found: str  # one sentence
    fix: str = ""  # one command or sentence; empty if nothing is to be fixed


Findings = Iterator[CheckResult]


class Area(str):
    """Area of checks. Its ``ok``, ``note``, ``warning`` and ``problem`` make results of that state."""

    def _finding(
        self,
        state: State,
        name: str,
        sentence: str,
        fix: str = "",
    ) -> CheckResult:
        """Return a result of this area. Without a ``fix`` nothing is to be fixed."""
        return CheckResult(self, name, state, sentence, fix)

    def result_of_error(
        self,
        name: str,
        error: MedTasksError,
        fix: str = "",
        state: State = State.PROBLEM,
    ) -> CheckResult:
        """Return an error of medtasks as a result of this area.

        Args:
            name: Name of the result.
            error: The error, whose message may have a fix after a semicolon.
            fix: The fix, if the message has none.
            state: Severity of the result.
        """
        sentence, own_fix = split_fix(str(error))
        return CheckResult(self, name, state, sentence, own_fix or fix)

    ok = partialmethod(_finding, State.OK)
    note = partialmethod(_finding, State.NOTE)
    warning = partialmethod(_finding, State.WARNING)
    problem = partialmethod(_finding, State.PROBLEM)


HARNESS = Area("harness")
TASKS = Area("tasks")
CREDENTIALS = Area("credentials")
DATASETS = Area("datasets")
WEIGHTS = Area("weights")
JUDGE = Area("judge")
MODEL = Area("model")
AREAS = (HARNESS, TASKS, CREDENTIALS, DATASETS, WEIGHTS, JUDGE, MODEL)  # as shown


def findings_of(area: Area, name: str, check: Check) -> list[CheckResult]:
    """Return the results of a check.

    Args:
        area: Area of the failure, if the check fails.
        name: Name of the failure, if the check fails.
        check: The check, which yields results.

    Returns:
        The results, and at the end its failure. Messages of errors that are not ours may quote a record, so only their
        type and location are reported.
    """
    findings: list[CheckResult] = []
    try:
        for finding in check():
            findings.append(finding)  # one by one, to keep those before a failure
    except MedTasksError as error:
        findings.append(area.result_of_error(name, error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one check must not cost the others
        cause = type(error).__name__
        for frame in traceback.extract_tb(error.__traceback__)[-1:]:
            cause += f" at {Path(frame.filename).name}:{frame.lineno} in {frame.name}"
        failure = area.problem(
            name,
            f"this could not be checked ({cause})",
            "look at the named location; everything else was checked",
        )
        findings.append(failure)
    return findings


@dataclass(frozen=True)
class Scope:
    """Tasks and data to check."""

    names: tuple[str, ...]  # tasks, groups and tags as the user gave them; empty for everything
    tasks: tuple[TaskFile, ...]  # our tasks of these names; without names, all
    foreign: tuple[str, ...] = ()  # names that are not ours

    @property
    def has_names(self) -> bool:
        """Whether the user named tasks, so that anything they lack is more than a note."""
        return bool(self.names)

    @property
    def state(self) -> State:
        """Severity of a lack that not every task has."""
        return State.WARNING if self.has_names else State.NOTE

    @cached_property
    def datasets(self) -> tuple[str, ...]:
        """Datasets of the chosen tasks, or without names the catalogue and the user's own."""
        if not self.has_names:
            return (*CATALOGUE, *own_datasets())
        return tuple(dict.fromkeys(task.dataset for task in self.tasks if task.dataset))


def scope_of(names: Sequence[str]) -> Scope:
    """Return the scope of a check.

    Args:
        names: Tasks, groups and tags; empty for all our tasks.
    """
    if not names:
        return Scope((), tuple(task for task in task_files().values() if task.kind == "task"))
    members: dict[str, None] = {}
    foreign = []
    for name in names:
        tasks = tasks_of(name)
        members |= dict.fromkeys(tasks)
        if not tasks:
            foreign.append(name)
    return Scope(tuple(names), tuple(map(task_file, members)), tuple(foreign))
