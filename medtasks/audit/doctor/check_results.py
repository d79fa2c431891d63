"""What the doctor says, and how a check that fails leaves the others alone."""

import enum
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partialmethod
from pathlib import Path

from medtasks.errors import MedTasksError

Check = Callable[[], Iterable["Finding"]]


class State(enum.StrEnum):
    """How bad it is: a problem stops a run or makes it wrong, a warning costs a part of it, a note costs nothing."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    area: str  # one of AREAS
    name: str
    state: State
    found: str  # one sentence
    fix: str = ""  # one command or sentence that mends it; empty where nothing is to be mended


class Area(str):
    """A part of what is looked at; makes findings that belong to it."""

    def _finding(self, state: State, name: str, found: str, fix: str = "") -> Finding:
        return Finding(self, name, state, found, fix)

    ok = partialmethod(_finding, State.OK)
    note = partialmethod(_finding, State.NOTE)
    warning = partialmethod(_finding, State.WARNING)
    problem = partialmethod(_finding, State.PROBLEM)


HARNESS, TASKS, PACKAGES = Area("harness"), Area("tasks"), Area("packages")
TORCH, MACHINE, CREDENTIALS, DATASETS = Area("torch"), Area("machine"), Area("credentials"), Area("datasets")
WEIGHTS, JUDGE, MODEL = Area("weights"), Area("judge"), Area("model")
AREAS = (HARNESS, TASKS, PACKAGES, TORCH, MACHINE, CREDENTIALS, DATASETS, WEIGHTS, JUDGE, MODEL)  # as shown


def findings_of(area: str, name: str, check: Check) -> list[Finding]:
    """Return the findings of a check; where it failed, those before the failure and one that says so.

    Messages that are not our own may quote a record or a key, so that only their place is told.
    """
    found: list[Finding] = []
    try:
        for finding in check():
            found.append(finding)  # one by one: what came before a failure is kept
    except MedTasksError as error:
        found.append(of_error(area, name, State.PROBLEM, error))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one check must not cost the others
        fix = "look at the named place; everything else was checked"
        found.append(Finding(area, name, State.PROBLEM, f"this could not be checked ({_place(error)})", fix))
    return found


def of_error(area: str, name: str, state: State, error: MedTasksError, fix: str = "") -> Finding:
    """Return one of our errors, whose messages name behind a semicolon what mends it, else ``fix``, as a finding."""
    found, _, own_fix = str(error).rstrip(".").partition("; ")
    return Finding(area, name, state, found, own_fix or fix)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return f"{type(error).__name__}{where}"
