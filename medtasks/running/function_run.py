"""A run in this process that asks a function in place of a model, for :func:`medtasks.evaluate`."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loguru import logger

from medtasks.errors import MedTasksError, listed
from medtasks.model_adapters.any_model import answering_with
from medtasks.net.journal import RUN_VARIABLE
from medtasks.running.harness_run import run_tasks_here, wanted_tasks
from medtasks.running.preflight import check
from medtasks.running.recording import RunRecording, first_manifest
from medtasks.runs.harness_options import ADAPTER, model_label, write_argument
from medtasks.runs.run_manifest import Severity, TaskOutcome, continued_run
from medtasks.runs.sample_counts import DEFAULT_LIMIT, FailureLimit
from medtasks.tasks.documents import select
from medtasks.tasks.task_files import task_file, task_files, tasks_of


@dataclass(frozen=True)
class AskedFunction:
    """A function that answers questions, and how it is asked."""

    function: Callable[..., Any]
    batch_size: int = 1  # questions in one call
    model: str = ""  # what it asks, for the names of results
    journal: Path | None = None  # folder for replies as they come

    @property
    def model_arguments(self) -> str:
        """The ``--model_args`` that stand for it in results and manifest."""
        named = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        arguments = {"class": f"{named.__module__}:{named.__qualname__}"}
        if self.model:
            arguments["model"] = self.model
        if self.journal is not None:
            arguments["journal"] = str(self.journal)
        return ",".join(f"{key}={write_argument(value)}" for key, value in arguments.items())

    @property
    def label(self) -> str:
        """The identity of the model in a folder of runs."""
        return model_label(ADAPTER, self.model_arguments)


def run_function(
    names: Sequence[str], asked: AskedFunction, output: Path, limit: int | None = None, folders: Sequence[Path] = ()
) -> None:
    """Ask a function the questions of tasks, and leave results, replies and manifest in a folder, as ``medtasks run``.

    Args:
        names: Tasks, groups and tags.
        asked: The function.
        output: Folder for results.
        limit: Ask only the first rows of each task.
        folders: Folders with task files of the user, which are included already.

    Raises:
        MedTasksError: A task cannot run, or not with a function; the run is refused; no task has results, or no sample
            a reply. Of several tasks, one that fails is a warning, as are samples without a reply.
    """
    selection = select(names)
    if selection.missing:
        raise MedTasksError("; ".join(f"{name}: {cause}" for name, cause in selection.missing.items()))
    _refuse_likelihoods(names)
    arguments = ["--model", ADAPTER, "--model_args", asked.model_arguments, "--batch_size", str(asked.batch_size)]
    if limit is not None:
        arguments += ["--limit", str(limit)]
    arguments.append("--log_samples")
    with answering_with(asked.function):
        notices = check(names, arguments)
        if refused := [notice.sentence for notice in notices if notice.kind is Severity.REFUSE]:
            raise MedTasksError("; and ".join(refused))
        for notice in notices:
            logger.warning(notice.sentence)
        command = [f"medtasks.evaluate({list(names)}, {asked.label}, output={str(output)!r})"]
        manifest = first_manifest(command, arguments, names, selection, notices)
        manifest = manifest.model_copy(update={"run": continued_run(output, manifest) or manifest.run})
        recording = RunRecording(output, manifest, arguments, FailureLimit.parse(DEFAULT_LIMIT), logger.warning)
        os.environ[RUN_VARIABLE] = manifest.run
        try:
            with recording.until_its_end():
                run_tasks_here(names, arguments, output, folders, recording.note)
        finally:
            del os.environ[RUN_VARIABLE]
    _report_losses(recording)


def _refuse_likelihoods(names: Sequence[str]) -> None:
    """Raise MedTasksError for tasks that compare likelihoods, with tasks on the same data that read replies."""
    tasks = [task_file(name) for name in wanted_tasks(names) if tasks_of(name)]
    compared = [task for task in tasks if task.compares_likelihoods]
    if not compared:
        return
    datasets = {task.dataset for task in compared} - {None}
    others = [task for task in task_files().values() if task.dataset in datasets and not task.compares_likelihoods]
    instead = dict.fromkeys(next((task.name for task in others if task.dataset == name), "") for name in datasets)
    choice = f"choose {listed([*filter(None, instead)])}" if others else "choose a task that reads replies"
    raise MedTasksError(
        f"{listed([task.name for task in compared])} compares likelihoods of options, and a function gives "
        f"texts alone; {choice}, or run it with --model hf_vlm or vlm_server"
    )


def _report_losses(recording: RunRecording) -> None:
    """Warn of tasks without results and samples without replies. Raises MedTasksError where nothing is left."""
    records = recording.manifest.tasks
    problems = [f"{name}: {record.reason}" for name, record in records.items() if record.reason]
    if lost := recording.losses_over_limit():
        problems.append(lost)
    if not problems:
        return
    sentence = "; ".join(dict.fromkeys(problems))
    done = [record for record in records.values() if record.outcome is TaskOutcome.DONE]
    if not any(record.counts is None or record.counts.scored for record in done):
        raise MedTasksError(f"there is nothing to score: {sentence}")
    logger.warning(f"In no score: {sentence}")
