"""``medtasks run`` whose harness runs in this process, which has imported it already."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from medtasks.cli.main import app

from .lmms.whole_runs import harness
from .processes import HarnessHere

TINY = ("--model", "medtasks_tiny", "--device", "cpu")


_indexed: dict[str, Any] = {}


@contextmanager
def harness_indexed_once() -> Iterator[pytest.MonkeyPatch]:
    """Let the harness read its own thousands of task files once in this process, and those of others each time."""
    harness()
    from lmms_eval import tasks

    read, own = tasks.TaskManager._get_task_and_group, f"{Path(tasks.__file__).parent}/"

    def indexed(manager: Any, folder: str) -> dict[str, Any]:
        if folder != own or own not in _indexed:
            _indexed[folder] = read(manager, folder)
        return dict(_indexed[folder])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks.TaskManager, "_get_task_and_group", indexed)
        yield patch


@contextmanager
def in_this_process() -> Iterator[pytest.MonkeyPatch]:
    """Let ``medtasks run`` start the harness so."""
    with harness_indexed_once() as patch:
        patch.setattr(subprocess, "Popen", HarnessHere)
        yield patch


def medtasks(*arguments: object) -> None:
    """Run a command of ours; what it raises goes on."""
    with harness_indexed_once():
        app(list(map(str, arguments)), prog_name="medtasks", standalone_mode=False)


def record(home: Path, output: Path, tasks: str, *options: object) -> None:
    """Leave a run of the tiny model in a folder; the data folder is that of a machine of its own."""
    with in_this_process() as patch:
        patch.setenv("MEDTASKS_HOME", str(home))
        medtasks("run", "--tasks", tasks, "--output_path", output, *TINY, *options)
