"""Locations of runs and recorded replies, as given on the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from medtasks.errors import MedTasksError, RepliesError, warn_once
from medtasks.runs.result_files import holds_run, repeat_folders, results_next_to, task_of
from medtasks.runs.run import Run, TaskRun, read_repeats, read_run, run_of_file
from medtasks.tasks.task_files import task_files, variant_of


@dataclass(frozen=True)
class Source:
    """Location of a run, or of recorded replies."""

    path: Path  # folder of a run, a samples file, or a file or folder of recorded replies to one task
    model: str | None = None  # the model to take from a folder with runs of several

    @cached_property
    def run(self) -> Run:
        """The run, read once; damage is logged. Raises MedTasksError if there is no run."""
        if self.path.is_dir():
            run = read_run(self.path, self.model)
        elif not self.path.is_file():
            raise RepliesError(f"there is no {self.path}; give the folder that was named with --output_path")
        elif not task_of(self.path):
            raise RepliesError(f"{self.path} does not say which task it answers; name the task before the runs")
        else:
            run = run_of_file(self.path)
        for note in run.notes:
            warn_once(note)
        return run

    @cached_property
    def repeats(self) -> list["Source"]:
        """The repeats of the newest call with results or samples, or the run itself; read once.

        Raises MedTasksError if no repeat can be read.
        """
        if not (self.path.is_dir() and repeat_folders(self.path)):
            return [self]
        runs = read_repeats(self.path, self.model).runs
        repeats = [Source(folder, self.model) for folder, run in runs.items() if run.tasks]
        if not repeats:
            raise RepliesError(f"{self.path} holds repeats of a run, and none of them has results")
        return repeats


def replies_of_repeats(task: str, source: Source) -> list[Path]:
    """Return the samples file of a task in each repeat that has one, like :func:`replies_to`.

    Raises RepliesError if none has.
    """
    having = [each for each in source.repeats if each is source or each.run.tasks.get(task, TaskRun(task)).samples]
    return [replies_to(task, each) for each in having or source.repeats]


def samples_by_task(source: Source) -> dict[str, Path]:
    """Return the samples files of a run by task, and log missing parts.

    Raises MedTasksError if it is no run, or of an unknown task.
    """
    for name, task in source.run.tasks.items():
        if task.lacks:
            warn_once(f"{source.path}, {name}: {task.lacks}")
    return {name: task.samples for name, task in source.run.tasks.items() if task.samples is not None}


def model_of(source: Source) -> str:
    """Return the model of a run; empty where none is recorded, as for a file of replies."""
    try:
        return source.repeats[0].run.model
    except MedTasksError:
        return ""


def replies_to(task: str, source: Source) -> Path:
    """Return the samples file of a task in a run's folder; any other path is that of replies itself.

    Raises RepliesError if the run has no samples of the task.
    """
    if not (source.path.is_dir() and holds_run(source.path)):
        return source.path
    tasks = source.run.tasks
    if task not in tasks:
        raise RepliesError(f"{source.path} holds no samples of '{task}'; it has {', '.join(tasks) or 'none at all'}")
    if (samples := tasks[task].samples) is None:
        raise RepliesError(f"{source.path}, {task}: {tasks[task].lacks}")
    if tasks[task].lacks:
        warn_once(f"{source.path}, {task}: {tasks[task].lacks}")
    return samples


def check_is_ours(task: str) -> None:
    """Raise RepliesError for a task that is neither ours nor a variant of one of ours."""
    if not (task in task_files() or variant_of(task)):
        raise RepliesError("is no task of medtasks, so that its samples cannot be scored one by one")


def nothing_in_common(causes: Mapping[str, str]) -> RepliesError:
    """Build the error for runs without a comparable task, from the cause by task."""
    by_task = "; ".join(f"{task}: {cause}" for task, cause in causes.items())
    return RepliesError(
        f"no task could be compared ({by_task})"
        if by_task
        else "the runs have no task with a samples file in common; run the harness with --log_samples, or name the "
        "task of recorded replies before the runs"
    )


def check_fingerprints(paths: Sequence[Path], task: str, fingerprint: str) -> None:
    """Check that runs, files of replies or folders of them, were made on the prepared dataset.

    The results file next to a samples file holds the fingerprint of the data; replies without one are matched by
    document id alone. Raises RepliesError if a results file has another fingerprint.
    """
    for samples in [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]:
        results = results_next_to(samples, warn_once)
        recorded = results.fingerprint(task) if results else None
        if recorded not in (None, fingerprint):
            raise RepliesError(
                f"{samples} was made on data with fingerprint {recorded}, but the prepared dataset has {fingerprint}; "
                f"point MEDTASKS_HOME to the data of that run"
            )
