"""A run on disk, finished or not: results files, samples files, manifests and repeats; and its place on a command line.

Damaged files are skipped, and a note names each of them.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from medtasks.errors import MedTasksError, RepliesError, unknown_name, warn_once
from medtasks.runs import result_files
from medtasks.runs.harness_options import SERVER, HarnessOptions, model_label, what_is_asked
from medtasks.runs.result_files import REPEATS, RESULTS, ResultsFile
from medtasks.runs.run_manifest import RunManifest, read_manifests
from medtasks.tasks.task_files import task_files, variant_of
from medtasks.tasks.task_index import mapping_in

RUN_AGAIN = "run it again with --log_samples"
NO_SAMPLES = f"The run logged no samples, so that there are no single replies, no reasons and no groups; {RUN_AGAIN}."
NO_RESULTS = "The run left samples without results, as it was stopped or failed before it wrote them."
_SEEDS = ("seed", "model_args seed", "gen_kwargs", "output_path")  # differ between repeats


@dataclass(frozen=True)
class TaskRun:
    """Record of one task or group of a run."""

    name: str
    scores: Mapping[str, Any] = field(default_factory=dict)  # by <metric>,<filter>; empty where only samples are left
    config: Mapping[str, Any] = field(default_factory=dict)  # the task's configuration as recorded
    higher_is_better: Mapping[str, bool | None] = field(default_factory=dict)  # direction by metric, as recorded
    documents: int = 0  # number of samples in the dataset; 0 if not recorded
    asked: int = 0  # number of samples that were asked; 0 if not recorded
    samples: Path | None = None  # its samples file; None if there is none
    version: str = ""  # version of the task; empty if not recorded
    members: tuple[str, ...] = ()  # names of the members of a group

    @classmethod
    def of(cls, results: ResultsFile, name: str, row: Mapping[str, Any]) -> "TaskRun":
        """Return the record of a task with values ``row`` in a results file."""
        samples, (done, total) = results.samples(name), results.asked(name)
        return cls(
            name=name,
            scores=row,
            config=results.config(name),
            higher_is_better=mapping_in(mapping_in(results.content, "higher_is_better"), name),
            documents=total,
            asked=done,
            samples=samples if samples.is_file() else None,
            version=str(results.of_task("versions", name) or ""),
            members=tuple(results.of_task("group_subtasks", name) or ()),
        )

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The task's metadata as recorded; empty if there are none."""
        return mapping_in(self.config, "metadata")

    @property
    def rules(self) -> dict[str, str]:
        """Extractor by filter, as recorded; empty if none."""
        return {
            str(pipeline.get("name")): str(step["rule"])
            for pipeline in self.config.get("filter_list") or ()
            for step in pipeline.get("filter") or ()
            if "rule" in step
        }

    @property
    def lacks(self) -> str:
        """Sentence on missing samples or results; empty if nothing is missing."""
        if self.samples is None:
            return "" if self.members else NO_SAMPLES
        return "" if self.scores else NO_RESULTS

    @property
    def data(self) -> Mapping[str, Any]:
        """Provenance of its data as recorded, see :func:`medtasks.data.dataset_lookup.provenance`; empty if none."""
        return mapping_in(self.metadata, "data")


@dataclass(frozen=True)
class Run:
    """The runs of one model in a folder."""

    folder: Path
    model: str  # model and its arguments as given to the harness, secrets replaced; empty if not recorded
    tasks: Mapping[str, TaskRun]  # tasks and groups with scores, and tasks with samples only, by name in order
    results: tuple[ResultsFile, ...] = ()  # oldest first
    manifests: tuple[RunManifest, ...] = ()  # oldest first
    notes: tuple[str, ...] = ()  # damaged and superseded files, one sentence each

    @property
    def made(self) -> str:
        """Time of the newest results, ISO 8601 or as recorded; empty if not recorded."""
        if self.results:
            made = self.results[-1].made
            return made.astimezone(UTC).isoformat() if made else str(self.results[-1].content.get("date") or "")
        return self.manifests[-1].started if self.manifests else ""

    @property
    def published_as(self) -> Mapping[str, str]:
        """The model's name in tables of published results, if its recipe gives one."""
        recipe = self.manifests[-1].recipe if self.manifests else None
        return recipe.published_as if recipe else {}


def read_run(folder: Path, model: str | None = None) -> Run:
    """Read the results files, samples files and manifests in a folder and below it.

    The newest results of a task count, and a note names the others.

    ``model`` is the name of one of several models, or a part of its name and arguments. Raises MedTasksError if there
    is no such folder, or it holds no run, repeats, or runs of several models and none was chosen; UnknownName if no run
    is of that model.
    """
    if not folder.is_dir():
        raise MedTasksError(f"there is no folder {folder}; give the one that was named with --output_path")
    # Together repeats would pass for one run, whose newest results count.
    if repeated := result_files.repeat_folders(folder):
        raise MedTasksError(
            f"{folder} holds {len(repeated)} repeats of a run; give one of them, such as {repeated[0]} ('medtasks "
            f"report' and 'medtasks compare' take them all)"
        )
    notes: list[str] = []
    readable = (result_files.read_results(path, notes.append) for path in result_files.results_files(folder))
    results = sorted((file for file in readable if file is not None), key=lambda file: file.order)
    manifests = read_manifests(folder, notes.append)
    samples = result_files.samples_files(folder)
    if not (results or manifests or samples):
        damaged = f" that can be read ({' '.join(notes).rstrip('.')})" if notes else ""
        raise MedTasksError(
            f"{folder} holds no results of a run{damaged}; give the folder that was named with --output_path"
        )
    labels = [_model_of(manifest, results) for manifest in manifests]
    models = {*(file.model for file in results), *labels} or {""}
    chosen = _chosen(sorted(models), model, folder)
    owners = {path: _owner(path, results, models) for path in samples}
    results = [file for file in results if file.model == chosen]
    tasks: dict[str, TaskRun] = {}
    written_to: dict[str, Path] = {}
    older: dict[Path, list[str]] = {}
    for file in results:
        for name, row in file.rows().items():
            if name in tasks:
                older.setdefault(written_to[name], []).append(name)
            tasks[name], written_to[name] = TaskRun.of(file, name, row), file.path
    notes += [f"{path} holds older results of {', '.join(names)}, which are left out." for path, names in older.items()]
    tasks |= _unscored(owners, results, tasks, chosen, notes)
    return Run(
        folder=folder,
        model=chosen,
        tasks=dict(sorted(tasks.items())),
        results=tuple(results),
        manifests=tuple(manifest for manifest, label in zip(manifests, labels, strict=True) if label == chosen),
        notes=tuple(notes),
    )


def _model_of(manifest: RunManifest, results: Sequence[ResultsFile]) -> str:
    """Return the model of a manifest as its own results files name it, else as the manifest does."""
    by_path = {file.path: file.model for file in results}
    folder = manifest.path.parent if manifest.path else Path()
    written = (folder / record.results for record in manifest.tasks.values() if record.results)
    label = model_label(manifest.model.name, manifest.model.arguments)
    unnamed = label.replace(SERVER, f" ({SERVER})", 1) if label.startswith(SERVER) else label
    # A run that ended before its results has no served name; the only matching one of the folder counts.
    alike = {model for model in by_path.values() if model.endswith(unnamed)}
    return next((by_path[path] for path in written if path in by_path), alike.pop() if len(alike) == 1 else label)


def _chosen(models: Sequence[str], name: str | None, folder: Path) -> str:
    fitting = [label for label in models if name in (None, label, label.split(" ")[0])]
    fitting = fitting or [label for label in models if name is None or name in label]
    if name is not None and not fitting:
        raise unknown_name("model", name, models)
    if len(fitting) > 1:
        labels = "; ".join(f"'{label}'" for label in fitting)
        if name is None:
            raise MedTasksError(f"{folder} holds runs of several models: {labels}; choose one with --model")
        raise MedTasksError(f"--model '{name}' fits several runs in {folder}: {labels}; give more of its arguments")
    return fitting[0]


def _owner(samples: Path, results: Sequence[ResultsFile], models: set[str]) -> str | None:
    """Return the model that wrote a samples file; None if that is unknown."""
    same_folder = [file for file in results if file.path.parent == samples.parent]
    same_process = [file for file in same_folder if file.path.name == f"{result_files.stamp_of(samples)}{RESULTS}"]
    labels = ({file.model for file in same_process}, {file.model for file in same_folder}, models)
    return next((next(iter(candidates)) for candidates in labels if len(candidates) == 1), None)


def _unscored(
    owners: Mapping[Path, str | None],
    results: Sequence[ResultsFile],
    tasks: Mapping[str, TaskRun],
    model: str,
    notes: list[str],
) -> dict[str, TaskRun]:
    """Return the tasks with samples but without results; the newest by name count."""
    scored = {file.samples(name) for file in results for name in file.rows()}
    unscored: dict[str, TaskRun] = {}
    for path, owner in sorted(owners.items(), key=lambda item: (result_files.stamp_of(item[0]), item[0])):
        task = result_files.task_of(path)
        if path in scored or owner not in (model, None):
            continue
        if owner is None:
            notes.append(f"{path} has no results next to it that say which model it is of, and is left out.")
        elif task in tasks:
            notes.append(f"{path} has no results next to it and is left out; the results of {task} are of another run.")
        else:
            unscored[task] = TaskRun(task, samples=path)
    return unscored


@dataclass(frozen=True)
class RepeatedRun:
    """Repeats in one folder."""

    runs: Mapping[Path, Run]  # readable repeats of the newest call
    asked: Sequence[Path]  # folders of all repeats: readable, missing, and of other calls


def read_repeats(output: Path, model: str | None = None) -> RepeatedRun:
    """Read the repeats of the newest call; an earlier one may have left others, or more of the same."""
    folders = result_files.repeat_folders(output)
    runs: dict[Path, Run] = {}
    for folder in folders:
        with contextlib.suppress(MedTasksError):
            runs[folder] = read_run(folder, model)
    newest = {folder: run.manifests[-1] for folder, run in runs.items() if run.manifests}
    counted, expected = folders, 0
    if newest:
        last = max(newest.values(), key=lambda manifest: manifest.started)
        expected = next((int(value) for value, option in pairwise(last.command[::-1]) if option == REPEATS), 0)
        alike = [folder for folder, manifest in newest.items() if _same_in_repeats(manifest) == _same_in_repeats(last)]
        counted = [folder for folder in alike if not expected or result_files.repeat_number(folder) <= expected]
    numbered = (result_files.repeat_folder(output, number) for number in range(1, expected + 1))
    requested = dict.fromkeys([*folders, *numbered])
    return RepeatedRun({folder: runs[folder] for folder in counted if folder in runs}, list(requested))


def _same_in_repeats(manifest: RunManifest) -> dict[str, str]:
    """Return everything but seeds."""
    options = HarnessOptions(manifest.options)
    shared = {name: value for name, value in what_is_asked(options).items() if name not in _SEEDS}
    return {**shared, **options.pairs("gen_kwargs"), "gen_kwargs": "", "seed": ""}


@dataclass(frozen=True)
class Source:
    """Location of a run, or of recorded replies."""

    path: Path  # folder of a run, a samples file, or a file or folder of recorded replies to one task
    model: str | None = None  # the model to take from a folder with runs of several

    @cached_property
    def run(self) -> Run:
        """The run, read once; damage is logged. Raises MedTasksError if there is none."""
        if self.path.is_dir():
            run = read_run(self.path, self.model)
        elif not self.path.is_file():
            raise RepliesError(f"there is no {self.path}; give the folder that was named with --output_path")
        elif not (task := result_files.task_of(self.path)):
            raise RepliesError(f"{self.path} does not say which task it answers; name the task before the runs")
        else:
            notes: list[str] = []
            results = result_files.results_next_to(self.path, notes.append)
            record = TaskRun(task, samples=self.path)
            if results is not None:
                record = TaskRun.of(results, task, results.rows().get(task, {}))
            model, files = (results.model, (results,)) if results else ("", ())
            run = Run(self.path, model, {task: record}, files, notes=tuple(notes))
        for note in run.notes:
            warn_once(note)
        return run

    @cached_property
    def repeats(self) -> list["Source"]:
        """The repeats of the newest call, or the run itself; read once. Raises MedTasksError if none can be read."""
        if not (self.path.is_dir() and result_files.repeat_folders(self.path)):
            return [self]
        runs = read_repeats(self.path, self.model).runs
        repeats = [Source(folder, self.model) for folder, run in runs.items() if run.tasks]
        if not repeats:
            raise RepliesError(f"{self.path} holds repeats of a run, and none of them has results")
        return repeats


def replies_of_repeats(task: str, source: Source) -> list[Path]:
    """Return the samples file of a task in each repeat that has one; RepliesError if none has."""
    with_samples = [run for run in source.repeats if run is source or run.run.tasks.get(task, TaskRun(task)).samples]
    return [replies_to(task, run) for run in with_samples or source.repeats]


def samples_by_task(source: Source) -> dict[str, Path]:
    """Return the samples files of a run by task, and log missing parts. Raises MedTasksError if it is no run."""
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
    if not (source.path.is_dir() and result_files.holds_run(source.path)):
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
    if by_task := "; ".join(f"{task}: {cause}" for task, cause in causes.items()):
        return RepliesError(f"no task could be compared ({by_task})")
    return RepliesError(
        "the runs have no task with a samples file in common; run the harness with --log_samples, or name the task of "
        "recorded replies before the runs"
    )


def check_fingerprints(paths: Sequence[Path], task: str, fingerprint: str) -> None:
    """Raise RepliesError if the results file next to a samples file, or one in a folder, is of other data."""
    for samples in [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]:
        results = result_files.results_next_to(samples, warn_once)
        recorded = results.fingerprint(task) if results else None
        if recorded not in (None, fingerprint):
            raise RepliesError(
                f"{samples} was made on data with fingerprint {recorded}, but the prepared dataset has {fingerprint}; "
                f"point MEDTASKS_HOME to the data of that run"
            )
