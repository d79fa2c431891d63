"""``medtasks run`` whose harness runs in this process, which has imported it already."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from medtasks.cli.main import app

from .processes import HarnessHere, harness_indexed_once

TINY = ("--model", "medtasks_tiny", "--device", "cpu")


@contextmanager
def in_this_process() -> Iterator[pytest.MonkeyPatch]:
    """Let ``medtasks run`` start the harness so."""
    with harness_indexed_once() as patch:
        patch.setattr(subprocess, "Popen", HarnessHere)
        patch.setattr("lmms_eval.__main__.make_table", lambda *_: "")  # no test reads it
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
