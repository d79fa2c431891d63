"""Commands of ours and of the harness: in this process, or in one of their own."""

import contextlib
import gc
import importlib
import io
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from medtasks.errors import forget_warnings
from medtasks.prompts.images import OPENED
from medtasks.tasks import task_files, task_index

from .waiting import PATIENCE

_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")  # left by what ran in this process
_ALWAYS = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
# Modules and functions behind the commands, by console script or by module.
_COMMANDS = {
    "medtasks": ("medtasks.cli.main", "main"),
    "medtasks.cli.main": ("medtasks.cli.main", "main"),
    "medtasks.lmms.harness_process": ("medtasks.lmms.harness_process", "main"),
    "lmms_eval": ("lmms_eval.cli.dispatch", "main"),
    "lm_eval": ("lm_eval.__main__", "cli_evaluate"),
}


_indexed: dict[str, Any] = {}


@contextlib.contextmanager
def harness_indexed_once() -> Iterator[pytest.MonkeyPatch]:
    """Let the harness read its own thousands of task files, and ours, once in this process; others' each time."""
    from lmms_eval import tasks

    read, own = tasks.TaskManager._get_task_and_group, f"{Path(tasks.__file__).parent}/"
    write = task_files.index_entries

    def indexed(manager: Any, folder: str) -> dict[str, Any]:
        if folder != own or own not in _indexed:
            _indexed[folder] = read(manager, folder)
        return dict(_indexed[folder])

    def entries(index: dict[str, Any], *, sanity: bool = True) -> dict[str, Any]:
        if any(
            task_index.tasks_folder() not in task.path.parents
            for task in task_files.task_files().values()
        ):
            return write(index, sanity=sanity)
        key = json.dumps([sanity, *index])
        if key not in _indexed:
            _indexed[key] = write(index, sanity=sanity)
            gc.collect()
            gc.freeze()  # the harness collects garbage after each run, among all that is imported by now
        return dict(_indexed[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_files, "index_entries", entries)
        patch.setattr(tasks.TaskManager, "_get_task_and_group", indexed)
        yield patch


def run_here(
    command: Sequence[str], folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of ours or of the harness in this process, which has imported everything already.

    ``medtasks run`` runs the harness in this process, too. Working folder, variables, streams and the logger are as
    before afterwards. Commands of others, and those of several processes, are for :func:`run_fresh`.
    """
    out, err = io.StringIO(), io.StringIO()
    with (
        harness_indexed_once() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        _set_variables(patch, {**_ALWAYS, **variables})
        patch.setattr(
            "huggingface_hub.constants.HF_HUB_OFFLINE", True
        )  # was read from its variable before
        patch.chdir(folder)
        patch.setattr(subprocess, "Popen", HarnessHere)
        forget_warnings()
        OPENED.clear()
        task_files.include(())
        logger.remove()
        logger.add(err)
        try:
            code = _code_of(_function(command, patch))
        finally:
            task_files.include(())
            logger.remove()
            logger.add(sys.__stderr__ or sys.stderr)
    return subprocess.CompletedProcess(list(command), code, out.getvalue(), err.getvalue())


def _function(command: Sequence[str], patch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """Set ``sys.argv`` to those of a command, and return the function behind it."""
    name, *arguments = command[2:] if command[1:2] == ["-m"] else command
    module, function = _COMMANDS[Path(name).name]
    patch.setattr(sys, "argv", [name, *arguments])
    import lmms_eval.__main__ as harness  # the command line, which our process of the harness changes

    patch.setattr(harness, "cli_evaluate_single", harness.cli_evaluate_single)
    return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]


def _code_of(function: Callable[[], Any]) -> int:
    try:
        function()
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            return leaving.code or 0
        print(leaving.code, file=sys.stderr)  # noqa: T201  # as Python does
        return 1
    return 0


def _set_variables(patch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name in _OF_RANKS:
        patch.delenv(name, raising=False)
    for name, value in variables.items():
        patch.setenv(name, value)


_Popen = subprocess.Popen


class HarnessHere(_Popen[Any]):
    """Process of the harness that ``medtasks run`` starts: runs here, followed by a process with its exit code."""

    def __init__(self, command: Any, *args: Any, **options: Any) -> None:
        if isinstance(command, list) and command[1:3] == [
            "-m",
            "medtasks.lmms.harness_process",
        ]:
            with pytest.MonkeyPatch.context() as patch:
                _set_variables(patch, options.get("env") or {})
                code = _code_of(_function(command, patch))
            command = ["sh", "-c", f"exit {code}"]
        super().__init__(command, *args, **options)


def run_fresh(
    command: Sequence[str], folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python or a console script in a process of its own, with this process's environment but for variables."""
    environment = _environment(variables)
    line = [*_python(command)]
    return subprocess.run(
        line,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def _python(command: Sequence[str]) -> list[str]:
    return [sys.executable if command[0] == "python" else command[0], *command[1:]]


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_RANKS}
    path = [variables.get("PYTHONPATH"), inherited.get("PYTHONPATH")]
    return {
        **inherited,
        **_ALWAYS,
        **variables,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


_LIBRARIES = (
    "torch",
    "torchvision",
    "transformers",
    "datasets",
    "evaluate",
    "accelerate",
    "torch.distributed",
)
_START = """
import os, sys
os.chdir({folder!r})
os.environ.clear()
os.environ.update({variables!r})
sys.path[:0], sys.argv = {path!r}, {command!r}
output = os.open({log!r}, os.O_WRONLY | os.O_CREAT)
os.dup2(output, 1), os.dup2(output, 2)
"""


def start_forked(
    script: str, folder: Path, log: Path, *arguments: str, **variables: str
) -> BaseProcess:
    """Start a script in a process that has not imported the harness yet, but the libraries that take it seconds.

    Python's fork server imports them once for this process. The output goes to a file.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_LIBRARIES])
    path, file = (
        [variables["PYTHONPATH"]] if "PYTHONPATH" in variables else [],
        log.with_suffix(".py"),
    )
    start = {
        "variables": _environment(variables),
        "path": path,
        "command": [file.name, *arguments],
    }
    file.write_text(_START.format(folder=str(folder), log=str(log), **start) + script)
    process = context.Process(
        target=runpy.run_path, args=(str(file),), kwargs={"run_name": "__main__"}
    )
    process.start()
    return process


# A rank that ends while another still talks to it is aborted by the communication library now and then.
LEAVE = """
import torch
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def on_two_processes(script: str, folder: Path, *arguments: str, **variables: str) -> str:
    """Run a script in a folder on two processes, as the harness does on two devices; return what they print."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # not exported explicitly

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    places = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    places |= {"WORLD_SIZE": "2", "ACCELERATE_USE_CPU": "true", **variables}
    logs = [folder / f"rank_{rank}.txt" for rank in range(2)]
    ranks = [
        start_forked(
            script, folder, log, *arguments, RANK=str(rank), LOCAL_RANK=str(rank), **places
        )
        for rank, log in enumerate(logs)
    ]
    for rank in ranks:
        rank.join(PATIENCE)
    printed = "".join(log.read_text() for log in logs)
    assert [rank.exitcode for rank in ranks] == [0, 0], printed[-12000:]
    return printed
