"""Running the harness so that a failing task does not affect the others, and repeats with other seeds.

The harness's own repeats (``--num_samples``) ask with one seed and are kept as one sample, so each of our repeats is a
run of its own in the folder ``repeat_<number>``.

A run is a process of :mod:`medtasks.lmms.harness_process`. There lmms-eval loads :mod:`medtasks.lmms.plugin`, by which
it finds our adapters, and which puts the guards of :mod:`medtasks.lmms.evaluation` around its evaluation. It calls the
adapters' ``loglikelihood`` and ``generate_until``.
"""

import contextlib
import itertools
import os
import shlex
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

import psutil

from medtasks.data.privacy import PHYSIONET_VARIABLES
from medtasks.errors import MedTasksError, join_names, one_line
from medtasks.home import file_state
from medtasks.lmms.harness_process import ERROR_VARIABLE, evaluate_here
from medtasks.lmms.remote_models import class_path_of
from medtasks.model_adapters.any_model import takes_our_arguments
from medtasks.runs.harness_options import HarnessOptions, read_options, seeds
from medtasks.runs.redaction import redact
from medtasks.runs.replies import read_lines
from medtasks.runs.result_files import NOTICES, read_results, results_files
from medtasks.runs.run_manifest import (
    HarnessProcess,
    Notice,
    RunProcess,
    is_running,
    process_of,
    refuse,
    send,
    warn,
)
from medtasks.tasks.task_files import task_config, task_file, tasks_of
from medtasks.tasks.task_index import Config, mapping_in

_PATIENCE = 10
_STEP = 0.05
_UTC = ("--timezone", "UTC")
FileStates = dict[Path, tuple[int, ...]]
"""States of files as :func:`~medtasks.home.file_state` returns them, by path."""
Watch = Callable[["HarnessOutcome"], None]
"""Receives the outcome so far whenever it has changed."""
# Modules of the harness's models that send a seed with each request.
_SEED_PER_REQUEST = ("lmms_eval.models.chat.openai", "lmms_eval.models.simple.vllm")


@dataclass
class HarnessOutcome:
    """Outcome of the tasks so far.

    Attributes:
        done: Tasks whose results are on disk.
        failed: Tasks that ran, alone if there are several, and left no results.
        results: Results files in the order they were written.
        files: Results file of each task.
        rows: Values of each task by ``<metric>,<filter>``.
        reasons: Why results or samples of a task are missing.
        asked: Number of rows of each task that were asked.
        notices: Other problems.
        processes: Processes of the harness, including a running one.
    """

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    results: list[Path] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    processes: list[HarnessProcess] = field(default_factory=list)

    def add_failures(self, tasks: Sequence[str], reason: str) -> None:
        """Add the tasks among these that are not done to the failed ones."""
        failed = [task for task in tasks if task not in self.done]
        self.failed += failed
        self.reasons |= dict.fromkeys(failed, reason)


def run_tasks(
    names: Sequence[str],
    arguments: Sequence[str],
    output: Path,
    launcher: Sequence[str] = (),
    watch: Watch = lambda outcome: None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> HarnessOutcome:
    """Run tasks in one process of the harness, then each one without results in a process of its own.

    The harness writes results only after the last task and may exit with code 0 after an error, so its results files
    decide. In the second round a model with a journal answers from it; there is none after files that could not be
    written. A name that is not ours counts as done when its run left results: only the harness knows its tasks.

    Args:
        names: Tasks, groups and tags.
        arguments: Further arguments of the harness.
        output: Folder for results.
        launcher: Command in front of ``-m`` and the harness's module, for several processes; empty for this Python.
        watch: Called with the outcome when a process of the harness begins and ends, also by Ctrl-C or a signal.
        variables: Additional environment variables of the harness.

    Raises:
        MedTasksError: The launcher cannot be started.
    """
    outcome = HarnessOutcome()
    tasks = wanted_tasks(names)
    # For the names of its files, as in ours; the harness's default is Singapore's.
    zone = [] if read_options(arguments).text("timezone") else _UTC
    python = launcher or [sys.executable]
    command = [*python, "-m", "medtasks.lmms.harness_process", *arguments, *zone]
    _run(names, command, output, outcome, watch, variables)
    if len(tasks) > 1:
        for task in [task for task in tasks if task not in (*outcome.done, *outcome.failed)]:
            _run([task], command, output, outcome, watch, variables)
    return outcome


def run_tasks_here(
    names: Sequence[str],
    arguments: Sequence[str],
    output: Path,
    watch: Watch,
) -> HarnessOutcome:
    """Run tasks in this process, each name in a call of its own, so that one that fails does not affect the others.

    Args:
        names: Tasks, groups and tags.
        arguments: Further arguments of the harness.
        output: Folder for results.
        watch: Called with the outcome after each name.
    """
    outcome = HarnessOutcome()
    for name in names:
        before = _results_files(output)
        reason = "it left no results"
        try:
            evaluate_here([*arguments, *_UTC, "--tasks", name], output.absolute())
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends this task alone
            reason = redact(str(error) if isinstance(error, MedTasksError) else one_line(error))
        _add_results([name], _new_files(output, before), outcome)
        outcome.add_failures(wanted_tasks([name]), reason)
        watch(outcome)
    return outcome


def wanted_tasks(names: Sequence[str]) -> list[str]:
    """Return the tasks that names expand to, in order. Names of others stay as they are.

    Example:
        >>> wanted_tasks(["mediconfusion", "mmlu", "mediconfusion"])
        ['mediconfusion', 'mmlu']
    """
    tasks: dict[str, None] = {}
    for name in names:
        tasks |= dict.fromkeys(tasks_of(name) or [name])
    return list(tasks)


@contextlib.contextmanager
def stopping_by_signal() -> Iterator[None]:
    """Turn SIGTERM, and SIGHUP unless ignored, into ``SystemExit`` with 128 + the signal's number."""

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signals = (signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _run(
    names: Sequence[str],
    command: Sequence[str],
    output: Path,
    outcome: HarnessOutcome,
    watch: Watch,
    variables: Mapping[str, str],
) -> None:
    """Run tasks in one process of the harness, and add what the process leaves to the outcome.

    Args:
        names: Tasks, groups and tags of this process.
        command: Command of the harness, without tasks and folder.
        output: Folder for results.
        outcome: Outcome so far, to which tasks, files and failures are added.
        watch: See :func:`run_tasks`.
        variables: Additional environment variables of the harness.

    Raises:
        MedTasksError: The command cannot be started.
    """
    before = _results_files(output)
    began = time.monotonic()
    running = HarnessProcess(tasks=tuple(names), started=datetime.now(UTC).isoformat())
    outcome.processes.append(running)
    watch(outcome)
    # The harness reads a folder name that is a number, such as a shard's, as that number, and loses the results.
    folder = str(output) if output.name != str(output) else os.path.join(os.curdir, output)
    arguments = [*command, "--tasks", ",".join(names), "--output_path", folder]
    with tempfile.TemporaryDirectory() as temporary:
        error = Path(temporary, "error")
        # Code of a checkpoint has no use for a login.
        no_login = dict.fromkeys(PHYSIONET_VARIABLES, "")
        environment = {**os.environ, **variables, **no_login, ERROR_VARIABLE: str(error)}
        try:
            process = subprocess.Popen(arguments, env=environment)
        except OSError as failure:
            raise MedTasksError(
                f"cannot start '{command[0]}' ({failure.strerror or failure}); correct --launcher, or leave it out"
            ) from failure
        try:
            # Wait without taking the exit code, which a Ctrl-C at that moment would lose.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            process.wait()
        except BaseException as interruption:
            _end(process, is_notified=isinstance(interruption, KeyboardInterrupt))
            raise
        finally:
            facts = {
                "seconds": round(time.monotonic() - began, 3),
                "exit_code": process.returncode,
            }
            outcome.processes[-1] = running.model_copy(update=facts)
            cut = _add_results(names, _new_files(output, before), outcome)
            watch(outcome)
        cause = error.read_text(encoding="utf-8") if error.is_file() else ""
    tasks = wanted_tasks(names)
    if cut and process.returncode == 0:
        reason = _unwritten(cut[0], "is cut off")
    elif len(tasks) == 1:
        reason = cause or _end_in_words(process.returncode)
    else:
        return
    outcome.add_failures(tasks, reason)
    watch(outcome)


def _end_in_words(code: int) -> str:
    """Describe by its exit code the end of a harness that left neither results nor an error."""
    if code >= 0:
        return f"the harness ended with exit code {code} and left no results; its error is in the log above"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    memory = ", as the system does when memory is short" if name == "SIGKILL" else ""
    return f"the harness was ended by {name}{memory} and left no results"


def _end(process: "subprocess.Popen[bytes]", *, is_notified: bool) -> None:
    """End a process and its descendants with growing force. A launcher may leave its own processes running.

    Ctrl-C in a terminal has notified all of them already; a second one gives them no more time.
    """
    children: list[RunProcess] = []
    with contextlib.suppress(psutil.Error):
        for descendant in psutil.Process(process.pid).children(recursive=True):
            children.append(process_of(descendant.pid))
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        if is_notified and _wait_for_end(process, children):
            return
        process.terminate()
        for child in children:
            send(child, signal.SIGTERM)
        if _wait_for_end(process, children):
            return
    process.kill()
    for child in children:
        send(child, signal.SIGKILL)
    process.wait()


def _wait_for_end(process: "subprocess.Popen[bytes]", children: Sequence[RunProcess]) -> bool:
    """Return whether a process and its children end in time."""
    deadline = time.monotonic() + _PATIENCE
    while process.poll() is None or any(map(is_running, children)):
        if time.monotonic() > deadline:
            return False
        time.sleep(_STEP)
    return True


def _add_results(
    names: Sequence[str], new: Sequence[Path], outcome: HarnessOutcome
) -> list[Path]:
    """Add the tasks of new results files. Return the files that are cut off.

    The harness goes on after a file that it could not write, so samples are counted here.
    """
    cut = []
    foreign = list(itertools.filterfalse(tasks_of, names))
    for path in new:
        results = read_results(path, lambda damage: None)
        if results is None:
            cut.append(path)
            continue
        offset = mapping_in(results.content, "config").get("offset") or 0
        for task, count in mapping_in(results.content, "n-samples").items():
            samples = results.samples(task)
            expected = min(count["effective"], count["original"] - offset)
            lines = read_lines(samples, note=lambda damage: None) if samples.is_file() else ()
            whole = len({line.row for line in lines})  # each has a line for every filter
            if whole < expected:
                outcome.reasons[task] = _unwritten(
                    samples, f"holds {whole} of {expected} samples"
                )
            outcome.asked[task] = count["effective"]
        outcome.results.append(path)
        outcome.notices += map(warn, results.content.get(NOTICES, ()))
        tasks = results.content["results"]
        outcome.files |= dict.fromkeys([*tasks, *foreign], path)
        outcome.rows |= tasks
    outcome.done = list(outcome.files)
    return cut


def _unwritten(path: Path, state: str) -> str:
    free = shutil.disk_usage(path.parent).free // 2**20
    return (
        f"{path.name} {state}, the rest could not be written ({free} MiB are free in {path.parent}); make room and "
        f"give the same command again"
    )


def _results_files(output: Path) -> FileStates:
    """Return the state of each results file, to recognise new ones."""
    states: FileStates = {}
    for path in results_files(output):
        with contextlib.suppress(OSError):
            states[path] = file_state(path)
    return states


def _new_files(output: Path, before: FileStates) -> list[Path]:
    """Return the results files that are new or changed since their states were taken."""
    return [path for path, state in _results_files(output).items() if before.get(path) != state]


# ---- repeats with other seeds ----


def repeat_seed(arguments: Sequence[str], number: int) -> int:
    """Return PyTorch's seed in a repeat, counted from 1: that of ``--seed`` in the first, then one more each time."""
    return (seeds(read_options(arguments))[2] or 0) + number - 1


def seed_arguments(arguments: Sequence[str], number: int) -> list[str]:
    """Return the arguments of the harness for a repeat.

    Seeds go up by one: those of Python, NumPy and PyTorch, ``seed`` in ``--model_args`` for our models, and ``seed`` in
    ``--gen_kwargs`` for the harness's models that send it to a server. Few-shot examples stay the same.

    Args:
        arguments: The user's arguments of the harness.
        number: Number of the repeat, from 1. The first has the original seeds.

    Raises:
        MedTasksError: The user's ``seed`` is no whole number.
    """
    options = read_options(arguments)
    added = number - 1
    *others, examples = seeds(options)
    raised = [str((seed or 0) + added) for seed in others]
    changed = [*arguments, "--seed", ",".join([*raised, str(examples)])]
    path = class_path_of(
        options.text("model"),
        options.model_arguments(),
        force_simple=options.flag("force_simple"),
    )
    default = 0
    if takes_our_arguments(path):
        option = "--model_args"
        values = options.written_model_arguments()
    elif path.rpartition(".")[0] in _SEED_PER_REQUEST:
        option = "--gen_kwargs"
        values = options.pairs("gen_kwargs")
        default = others[2] or 0
    else:
        return changed
    try:
        seed = int(values.get("seed", default)) + added
    except ValueError as error:
        raise MedTasksError(
            f"seed={values['seed']} is no whole number; give one, or leave it out"
        ) from error
    pairs = {**values, "seed": str(seed)}
    return [*changed, option, ",".join(map("=".join, pairs.items()))]


def repeat_notices(
    names: Sequence[str], options: HarnessOptions, repeats: int
) -> Iterator[Notice]:
    """Yield the problems of repeats before they begin.

    Args:
        names: Tasks, groups and tags.
        options: The harness's options.
        repeats: Number of repeats.
    """
    if (options.number("repeats") or 1) > 1:
        yield refuse(
            "--num_samples asks the harness for repeats, of which our tasks read the first alone; give --repeats "
            "N to 'medtasks run' in its place, on its command line"
        )
    if repeats < 2:
        return
    if options.text("use_cache"):
        yield refuse(
            "--use_cache may answer every repeat with the replies of the first; leave it out"
        )
    alike = []
    by_user = options.pairs("gen_kwargs")
    for task in filter(tasks_of, wanted_tasks(names)):
        settings = {**mapping_in(task_config(task), "generation_kwargs"), **by_user}
        if not _is_sampled(settings) or task_file(task).compares_likelihoods:
            alike.append(task)
    if alike:
        sampled = {**by_user, "temperature": "0.6", "do_sample": "true"}
        sampling = ",".join(map("=".join, sampled.items()))
        yield refuse(
            f"--repeats {repeats} would get the same answers {repeats} times from {join_names(alike)}, decoded at "
            f"temperature 0 or compared by likelihood; sample them with --gen_kwargs {shlex.quote(sampling)}, or leave "
            f"--repeats out"
        )


def _is_sampled(settings: Config) -> bool:
    """Return whether decoding settings draw tokens at random."""
    try:
        is_warm = float(settings.get("temperature", 0)) > 0
    except (TypeError, ValueError):
        return False
    return is_warm and str(settings.get("do_sample", True)).lower() not in (
        "false",
        "0",
        "none",
    )
