"""Where recorded runs left their replies to a task, and on which data these were made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data.safe_parsing import parse_json
from medtasks.errors import MedTasksError, RepliesError
from medtasks.harness.running import RESULTS
from medtasks.harness.task_files import task_files, variant_of
from medtasks.harness.task_index import mapping_in
from medtasks.runs.run_folder import read_run, recorded_model

_SAMPLES = "_samples_"


@dataclass(frozen=True)
class Source:
    """Where a run's replies are."""

    path: Path  # folder of the run, a samples file, or a file or folder of recorded replies to one task
    model: str | None = None  # of a folder with runs of several models, this one


def samples_by_task(source: Source) -> dict[str, Path]:
    """Return the samples files of a run by task; MedTasksError: it holds none, or does not say which task it is of."""
    if source.path.is_dir():
        recorded = read_run(source.path, source.model).tasks
        return {name: task.samples for name, task in recorded.items() if task.samples is not None}
    _, named, task = source.path.stem.partition(_SAMPLES)
    if not source.path.is_file():
        raise RepliesError(f"there is no {source.path}; give the folder that was named with --output_path")
    if not named:
        raise RepliesError(f"{source.path} does not say which task it answers; name the task before the runs")
    return {task: source.path}


def model_of(source: Source) -> str:
    """Return the model of a run; empty where none is recorded, as of a file of replies."""
    if not source.path.is_dir():
        return recorded_model(results_beside(source.path))
    try:
        return read_run(source.path, source.model).model
    except MedTasksError:
        return ""


def replies_to(task: str, source: Source) -> Path:
    """Return the samples file of a task in a run's folder; anything else is a file or folder of replies itself.

    RepliesError: the run has no samples of the task.
    """
    if not any(any(source.path.rglob(f"*{kind}*")) for kind in (RESULTS, _SAMPLES)):  # of a file there are none
        return source.path
    found = samples_by_task(source)
    if task not in found:
        raise RepliesError(
            f"{source.path} holds no samples of '{task}'; it has {', '.join(found) or 'none at all'}, run the harness "
            f"with --log_samples"
        )
    return found[task]


def check_is_ours(task: str) -> None:
    """Raise RepliesError for a task that is not ours, or a variant of one of ours."""
    if not (task in task_files() or variant_of(task)):
        raise RepliesError("is no task of medtasks, so that its samples cannot be scored one by one")


def nothing_in_common(causes: Mapping[str, str]) -> RepliesError:
    """Return the error of runs of which no task can be looked at side by side, from why each one cannot."""
    whys = "; ".join(f"{task}: {cause}" for task, cause in causes.items())
    return RepliesError(
        f"no task could be compared ({whys})"
        if whys
        else "the runs have no task with a samples file in common; run the harness with --log_samples, or name the "
        "task of recorded replies before the runs"
    )


def check_fingerprints(paths: Sequence[Path], task: str, fingerprint: str) -> None:
    """Check that runs of the harness, files of replies or folders of them, were made on the prepared dataset.

    Its samples files carry no fingerprint of the data, but the results file beside them does. Recorded replies without
    one are matched by document id alone. RepliesError: a results file names another fingerprint.
    """
    for samples in [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]:
        recorded = recorded_fingerprint(results_beside(samples), task)
        if recorded not in (None, fingerprint):
            raise RepliesError(
                f"{samples} was made on data with fingerprint {recorded}, but the prepared dataset has {fingerprint}; "
                f"point MEDTASKS_HOME to the data of that run"
            )


def results_beside(samples: Path) -> Mapping[str, Any]:
    """Return what the results file of the harness beside a samples file holds; empty where none can be read."""
    stamp, of_harness, _ = samples.name.partition(_SAMPLES)
    try:
        found = parse_json(samples.with_name(f"{stamp}{RESULTS}").read_text(encoding="utf-8")) if of_harness else {}
    except (OSError, ValueError):  # deleted or cut off
        return {}
    return found if isinstance(found, dict) else {}


def recorded_fingerprint(results: Mapping[str, Any], task: str) -> str | None:
    """Return the fingerprint of a task's data in a results file; None for a task without our metadata."""
    data = mapping_in(mapping_in(mapping_in(mapping_in(results, "configs"), task), "metadata"), "data")
    return None if data.get("fingerprint") is None else str(data["fingerprint"])
