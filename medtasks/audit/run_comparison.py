"""Comparing whole runs: every task that two of them answered, corrected for all tests together."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from medtasks.audit.comparing import ComparedRuns, check_fingerprints, compare_runs
from medtasks.audit.report.contents import ComparedScore, RunComparison
from medtasks.audit.report.reading.run_folder import read_run
from medtasks.errors import MedTasksError, RepliesError
from medtasks.harness.documents import task_documents, task_provenance
from medtasks.harness.replies import read_replies
from medtasks.harness.task_file import TaskFile
from medtasks.harness.task_files import lost_folders, task_file, task_files, variant_of
from medtasks.stats.paired import holm

_SAMPLES = "_samples_"
_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Source:
    """Where a run's replies are."""

    path: Path  # folder of the run, a samples file, or a file or folder of recorded replies to one task
    model: str | None = None  # of a folder with runs of several models, this one


@dataclass(frozen=True)
class ComparedTask:
    """One task of several runs."""

    found: ComparedRuns
    documents: int  # how many documents the task has
    data: Mapping[str, Any]  # provenance of the prepared dataset


def compare_task(task: TaskFile, runs: Mapping[str, Source], metrics: Sequence[str] = ()) -> ComparedTask:
    """Compare runs of one task, by default in its main metrics.

    RepliesError: the task is a group, replies cannot be read, or were made on other data. DatasetNotPrepared: its
    dataset is not there. UnknownName: the task has no such metric.
    """
    if task.only_harness:
        raise RepliesError(f"'{task.name}' {task.only_harness}")
    documents = task_documents(task)
    data = task_provenance(task, documents)
    files = {name: _replies_to(task.name, source) for name, source in runs.items()}
    check_fingerprints(list(files.values()), task.name, data["fingerprint"])
    replies = {name: read_replies(file, documents) for name, file in files.items()}
    return ComparedTask(compare_runs(task, documents, replies, metrics), len(documents), data)


def compare_all(
    runs: Mapping[str, Source], metrics: Sequence[str] = ()
) -> tuple[dict[str, ComparedTask], dict[str, str]]:
    """Compare all tasks of ours that at least two runs answered, as one family of tests; sanity variants are left out.

    Returned are comparisons by task, and why a task of at least two runs was not compared. MedTasksError: a folder
    holds no run. RepliesError: no task is in two of the runs, or none could be compared.
    """
    files = {name: _samples_by_task(source) for name, source in runs.items()}
    compared: dict[str, ComparedTask] = {}
    causes: dict[str, str] = {}
    for task in sorted({task for found in files.values() for task in found}):
        having = {name: Source(found[task]) for name, found in files.items() if task in found}
        if len(having) < 2 or variant_of(task):
            continue
        try:
            if task not in task_files():
                raise RepliesError("is no task of medtasks, so that its samples cannot be scored one by one")
            compared[task] = compare_task(task_file(task), having, metrics)
        except MedTasksError as error:
            causes[task] = str(error)
    if not compared:
        whys = "; ".join(f"{task}: {cause}" for task, cause in causes.items())
        raise RepliesError(
            f"no task could be compared ({whys}){f'; {lost_folders()}' if lost_folders() else ''}"
            if whys
            else "the runs have no task with a samples file in common; run the harness with --log_samples, or name "
            "the task of recorded replies: medtasks compare TASK RUN RUN"
        )
    return corrected_together(compared), causes


def compare_with(run: Source, others: Sequence[Path], task: str | None = None) -> tuple[RunComparison, ...]:
    """Compare one run with others; p-values are corrected for the tests against all of them.

    Runs are folders, or of the only ``task`` to compare files of recorded replies. Errors are those of
    :func:`compare_task` and :func:`compare_all`.
    """
    found: dict[tuple[Path, str], ComparedTask] = {}
    notes: dict[Path, tuple[str, ...]] = {}
    for other in dict.fromkeys(others):
        runs = {"this run": run, str(other): Source(other)}
        if task is None:
            tasks, causes = compare_all(runs)
            notes[other] = tuple(f"{name}: {cause}" for name, cause in causes.items())
        else:
            tasks, notes[other] = {task: compare_task(task_file(task), runs)}, ()
        found |= {(other, name): one for name, one in tasks.items()}
    corrected = corrected_together(found)
    comparisons = []
    for other in notes:
        tasks = {name: one for (path, name), one in corrected.items() if path == other}
        scores = tuple(score for name, one in tasks.items() for score in _scores(name, one.found))
        said = tuple(note for name, one in tasks.items() for note in _notes(name, one))
        comparisons.append(RunComparison(_model_of(other), str(other), scores, notes[other] + said))
    return tuple(comparisons)


def corrected_together(compared: Mapping[_Key, ComparedTask]) -> dict[_Key, ComparedTask]:
    """Return comparisons with p-values corrected (Holm) for the tests of all of them."""
    p_values = iter(holm([test.result.p for one in compared.values() for test in one.found.comparisons]))
    corrected = {}
    for key, task in compared.items():
        tests = [replace(test, holm=next(p_values)) for test in task.found.comparisons]
        corrected[key] = replace(task, found=replace(task.found, comparisons=tests))
    return corrected


def _samples_by_task(source: Source) -> dict[str, Path]:
    if source.path.is_dir():
        recorded = read_run(source.path, source.model).tasks
        return {name: task.samples for name, task in recorded.items() if task.samples is not None}
    _, named, task = source.path.stem.partition(_SAMPLES)
    if not source.path.is_file():
        raise RepliesError(f"there is no {source.path}; give the folder that was named with --output_path")
    if not named:
        raise RepliesError(
            f"{source.path} does not say which task it answers; name the task first: medtasks compare TASK RUN RUN"
        )
    return {task: source.path}


def _replies_to(task: str, source: Source) -> Path:
    """Return the samples file of a task in a run's folder; anything else is a file or folder of replies itself."""
    if not source.path.is_dir() or not any(source.path.rglob("*_results.json")):
        return source.path
    found = _samples_by_task(source)
    if task not in found:
        raise RepliesError(
            f"{source.path} holds no samples of '{task}'; it has {', '.join(found) or 'none at all'}, run the harness "
            f"with --log_samples"
        )
    return found[task]


def _model_of(path: Path) -> str:
    try:
        return read_run(path).model or path.name
    except MedTasksError:
        return path.name


def _scores(task: str, found: ComparedRuns) -> list[ComparedScore]:
    scores = []
    for test in found.comparisons:
        result = {name: value for name, value in asdict(test.result).items() if name != "mcnemar"}
        scores.append(ComparedScore(task, test.rule, test.metric, p_holm=test.holm, **result))
    return scores


def _notes(task: str, one: ComparedTask) -> list[str]:
    (overlap,) = one.found.overlaps.values()
    notes = []
    if overlap.only_first or overlap.only_second:
        notes.append(
            f"{task}: only the {overlap.both} questions that both runs answered are compared; {overlap.only_first} "
            f"were answered in this run only, {overlap.only_second} in the other only."
        )
    return notes + [f"{task}: {metric} ({rule}) {why}." for (rule, metric), why in one.found.skipped.items()]
