"""Running the harness so that one task's failure costs that task alone."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

from medtasks.errors import MedTasksError
from medtasks.lmms.harness_process import ERROR_VARIABLE
from medtasks.runs.harness_options import read_options
from medtasks.runs.process import RunProcess, descendants, is_running, send
from medtasks.runs.replies import read_lines
from medtasks.runs.result_files import read_results, results_files
from medtasks.runs.run_manifest import HarnessProcess
from medtasks.tasks.task_files import tasks_of
from medtasks.tasks.task_index import mapping_in

_HARNESS = "medtasks.lmms.harness_process"
_ZONE = ["--timezone", "UTC"]  # for the names of its files, as in ours; its default is that of Singapore
_PATIENCE = 10
_STEP = 0.05
_BY_SIGNAL = 128


@dataclass
class Outcome:
    """What became of the tasks."""

    done: list[str] = field(default_factory=list)  # those whose results are on disk
    # those that ran, on their own where there are several, and left no results
    failed: list[str] = field(default_factory=list)
    results: list[Path] = field(default_factory=list)  # in the order they were written
    files: dict[str, Path] = field(default_factory=dict)  # the results file, by task
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)  # values by ``<metric>,<filter>``, by task
    reasons: dict[str, str] = field(default_factory=dict)  # why a task has no results, or not all of its samples
    asked: dict[str, int] = field(default_factory=dict)  # how many rows of its data were asked, by task
    processes: list[HarnessProcess] = field(default_factory=list)  # of the harness, the one that runs included


def run_tasks(
    names: Sequence[str],
    arguments: Sequence[str],
    output: Path,
    launcher: Sequence[str] = (),
    watch: Callable[[Outcome], None] = lambda outcome: None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run tasks in one process of the harness, and those that left no results once more, each on its own.

    The harness writes results only after the last task and may exit with code 0 after an error, so what it has done is
    read from its results files. In the second round a model with a journal answers from it; there is none after files
    that could not be written. What is behind a name that is not ours only the harness knows: it counts as done when its
    run left results.

    Args:
        names: Tasks, groups and tags.
        arguments: Further arguments of the harness.
        output: Folder for results.
        launcher: Command in front of ``-m`` and the harness's module, for several processes; empty for this Python.
        watch: Called with the outcome so far when a process of the harness begins and when it has ended, also by
            Ctrl-C or a signal, which then goes on to the caller.
        variables: Environment variables of the harness, besides those of this process.
    """
    outcome = Outcome()
    wanted = wanted_tasks(names)
    zone = [] if read_options(arguments).text("timezone") else _ZONE
    command = [*(launcher or [sys.executable]), "-m", _HARNESS, *arguments, *zone]
    _run(names, command, output, outcome, watch, variables)
    if len(wanted) > 1:
        for task in [task for task in wanted if task not in (*outcome.done, *outcome.failed)]:
            _run([task], command, output, outcome, watch, variables)
    return outcome


def wanted_tasks(names: Sequence[str]) -> list[str]:
    """Return the tasks behind names in their order; a name that is not ours stands for itself."""
    return list(dict.fromkeys(task for name in names for task in tasks_of(name) or [name]))


@contextlib.contextmanager
def stopping_by_signal() -> Iterator[None]:
    """Let a request to end (SIGTERM, or SIGHUP where it is not ignored) raise ``SystemExit`` with 128 + its number."""

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(_BY_SIGNAL + number)

    usual = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in usual:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in usual:
            signal.signal(number, signal.SIG_DFL)


def _run(
    names: Sequence[str],
    command: Sequence[str],
    output: Path,
    outcome: Outcome,
    watch: Callable[[Outcome], None],
    variables: Mapping[str, str],
) -> None:
    before, began = _results_files(output), time.monotonic()
    running = HarnessProcess(tasks=tuple(names), started=datetime.now(UTC).isoformat())
    outcome.processes.append(running)
    watch(outcome)
    # Of a folder whose name is a number, such as a shard's, the harness would make that number, and lose the results.
    # A single task with the name of a folder here is taken for a folder of task files, but not if it is named twice.
    asked = [*names, *names] if len(names) == 1 and tasks_of(names[0]) and os.path.isdir(names[0]) else names
    place = str(output) if output.name != str(output) else os.path.join(os.curdir, output)
    with tempfile.TemporaryDirectory() as folder:
        error = Path(folder, "error")
        told = {**variables, ERROR_VARIABLE: str(error)}
        process = _start([*command, "--tasks", ",".join(asked), "--output_path", place], told)
        try:
            # Without taking the exit code, which Ctrl-C would lose if it came just then.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            process.wait()
        except BaseException as interruption:
            _end(process, told=isinstance(interruption, KeyboardInterrupt))
            raise
        finally:
            facts = {"seconds": round(time.monotonic() - began, 3), "exit_code": process.returncode}
            outcome.processes[-1] = running.model_copy(update=facts)
            new = [path for path, state in _results_files(output).items() if before.get(path) != state]
            cut = _add_results(names, new, outcome)
            watch(outcome)
        cause = error.read_text(encoding="utf-8") if error.is_file() else ""
    wanted = wanted_tasks(names)
    is_unwritten = bool(cut) and process.returncode == 0
    if is_unwritten or len(wanted) == 1:
        reason = _unwritten(cut[0], "is cut off") if is_unwritten else cause or _reason(process.returncode)
        failed = [task for task in wanted if task not in outcome.done]
        outcome.failed += failed
        outcome.reasons |= dict.fromkeys(failed, reason)
        watch(outcome)


def _start(command: Sequence[str], variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(command, env={**os.environ, **variables})
    except OSError as error:
        raise MedTasksError(
            f"cannot start '{command[0]}' ({error.strerror or error}); correct --launcher, or leave it out"
        ) from error


def _end(process: "subprocess.Popen[bytes]", *, told: bool) -> None:
    """End a process and what it has started with growing force; a launcher may leave its own processes behind.

    Ctrl-C in a terminal has told all of them already. A second one spares them no time.
    """
    below = descendants(process.pid)
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        if told and _have_ended(process, below):
            return
        process.terminate()
        for one in below:
            send(one, signal.SIGTERM)
        if _have_ended(process, below):
            return
    process.kill()
    for one in below:
        send(one, signal.SIGKILL)
    process.wait()


def _have_ended(process: "subprocess.Popen[bytes]", below: Sequence[RunProcess]) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while process.poll() is None or any(map(is_running, below)):
        if time.monotonic() > deadline:
            return False
        time.sleep(_STEP)
    return True


def _add_results(names: Sequence[str], new: Sequence[Path], outcome: Outcome) -> list[Path]:
    """Add the tasks of new results files; return the files that are cut off.

    The harness goes on after a file that it could not write, so samples are counted here.
    """
    cut = []
    foreign = [name for name in names if not tasks_of(name)]
    for path in new:
        results = read_results(path, lambda damage: None)
        if results is None:
            cut.append(path)
            continue
        offset = mapping_in(results.content, "config").get("offset") or 0
        for task, count in mapping_in(results.content, "n-samples").items():
            samples, wanted = results.samples(task), min(count["effective"], count["original"] - offset)
            if (kept := _count_samples(samples)) < wanted:
                outcome.reasons[task] = _unwritten(samples, f"holds {kept} of {wanted} samples")
            outcome.asked[task] = count["effective"]
        outcome.results.append(path)
        tasks = results.content["results"]
        outcome.files |= dict.fromkeys([*tasks, *foreign], path)
        outcome.rows |= tasks
    outcome.done = list(dict.fromkeys([*outcome.done, *outcome.files]))
    return cut


def _count_samples(path: Path) -> int:
    """Return the number of samples that a samples file holds whole; each has a line for every filter."""
    if not path.is_file():
        return 0
    return len({line.row for line in read_lines(path, note=lambda damage: None)})


def _unwritten(path: Path, state: str) -> str:
    free = shutil.disk_usage(path.parent).free // 2**20
    return (
        f"{path.name} {state}, the rest could not be written ({free} MiB are free in {path.parent}); make room and "
        f"give the same command again"
    )


def _reason(code: int) -> str:
    if code >= 0:
        return f"the harness ended with exit code {code} and left no results; its error is in the log above"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    memory = ", as the system does when memory is short" if name == "SIGKILL" else ""
    return f"the harness was ended by {name}{memory} and left no results"


def _results_files(output: Path) -> dict[Path, tuple[int, int]]:
    """Return time and size of each results file, to tell new ones from those of earlier runs."""
    states = {}
    for path in results_files(output):
        with contextlib.suppress(OSError):
            facts = path.stat()
            states[path] = (facts.st_mtime_ns, facts.st_size)
    return states
