"""A run on disk, finished or not: its results files, samples files, manifests and repeats.

Damaged files are skipped, and a note names each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from itertools import pairwise
from pathlib import Path
from typing import Any

from medtasks.errors import MedTasksError, unknown_name
from medtasks.runs.harness_options import SERVER, HarnessOptions, model_label, what_is_asked
from medtasks.runs.result_files import (
    REPEATS,
    ResultsFile,
    read_results,
    repeat_folder,
    repeat_folders,
    repeat_number,
    results_files,
    results_next_to,
    samples_files,
    stamp_of,
    task_of,
)
from medtasks.runs.run_manifest import RunManifest, read_manifests
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

    Args:
        folder: The ``--output_path`` of a run.
        model: Among runs of several models, the one with this name, or with this in its name and arguments.

    Raises:
        MedTasksError: There is no such folder, or it holds no run, repeats, or runs of several models and none was
            chosen.
        UnknownName: No run is of that model.
    """
    if not folder.is_dir():
        raise MedTasksError(f"there is no folder {folder}; give the one that was named with --output_path")
    if repeated := repeat_folders(folder):  # together they would pass for one run, whose newest results count
        raise MedTasksError(
            f"{folder} holds {len(repeated)} repeats of a run; give one of them, such as {repeated[0]} ('medtasks "
            f"report' and 'medtasks compare' take them all)"
        )
    notes: list[str] = []
    readable = (read_results(path, notes.append) for path in results_files(folder))
    results = sorted((file for file in readable if file is not None), key=lambda file: file.order)
    manifests = read_manifests(folder, notes.append)
    samples = samples_files(folder)
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
    tasks = _newest(results, notes)
    tasks |= _unscored(owners, results, tasks, chosen, notes)
    return Run(
        folder=folder,
        model=chosen,
        tasks=dict(sorted(tasks.items())),
        results=tuple(results),
        manifests=tuple(manifest for manifest, label in zip(manifests, labels, strict=True) if label == chosen),
        notes=tuple(notes),
    )


def run_of_file(samples: Path) -> Run:
    """Return the run of a single samples file, as the results file next to it records it."""
    notes: list[str] = []
    results, task = results_next_to(samples, notes.append), task_of(samples)
    if results is None:
        return Run(samples, "", {task: TaskRun(task, samples=samples)}, notes=tuple(notes))
    record = TaskRun.of(results, task, results.rows().get(task, {}))
    return Run(samples, results.model, {task: record}, (results,), notes=tuple(notes))


def _model_of(manifest: RunManifest, results: Sequence[ResultsFile]) -> str:
    """Return the model of a manifest as its own results files name it, else as the manifest does.

    A run that ended before its results has no served name; the only matching one of the folder counts.
    """
    by_path = {file.path: file.model for file in results}
    folder = manifest.path.parent if manifest.path else Path()
    written = (folder / record.results for record in manifest.tasks.values() if record.results)
    label = model_label(manifest.model.name, manifest.model.arguments)
    unnamed = label.replace(SERVER, f" ({SERVER})", 1) if label.startswith(SERVER) else label
    alike = {model for model in by_path.values() if model.endswith(unnamed)}
    return next((by_path[path] for path in written if path in by_path), alike.pop() if len(alike) == 1 else label)


def _chosen(models: Sequence[str], name: str | None, folder: Path) -> str:
    fitting = [label for label in models if name in (None, label, label.split(" ")[0])]
    fitting = fitting or [label for label in models if name is None or name in label]
    labels = "; ".join(f"'{label}'" for label in fitting)
    if name is not None and not fitting:
        raise unknown_name("model", name, models)
    if len(fitting) > 1 and name is None:
        raise MedTasksError(f"{folder} holds runs of several models: {labels}; choose one with --model")
    if len(fitting) > 1:
        raise MedTasksError(f"--model '{name}' fits several runs in {folder}: {labels}; give more of its arguments")
    return fitting[0]


def _owner(samples: Path, results: Sequence[ResultsFile], models: set[str]) -> str | None:
    """Return the model that wrote a samples file; None if that is unknown."""
    same_folder = [file for file in results if file.path.parent == samples.parent]
    same_process = [file for file in same_folder if file.stamp == stamp_of(samples)]
    labels = ({file.model for file in same_process}, {file.model for file in same_folder}, models)
    return next((next(iter(candidates)) for candidates in labels if len(candidates) == 1), None)


def _newest(results: Sequence[ResultsFile], notes: list[str]) -> dict[str, TaskRun]:
    tasks: dict[str, TaskRun] = {}
    older: dict[Path, list[str]] = {}
    of_task: dict[str, Path] = {}
    for file in results:
        for name, row in file.rows().items():
            if name in tasks:
                older.setdefault(of_task[name], []).append(name)
            tasks[name], of_task[name] = TaskRun.of(file, name, row), file.path
    notes += [f"{path} holds older results of {', '.join(names)}, which are left out." for path, names in older.items()]
    return tasks


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
    for path, owner in sorted(owners.items(), key=lambda item: (stamp_of(item[0]), item[0])):
        task = task_of(path)
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
    folders = repeat_folders(output)
    runs: dict[Path, Run] = {}
    for folder in folders:
        try:
            runs[folder] = read_run(folder, model)
        except MedTasksError:
            continue
    newest = {folder: run.manifests[-1] for folder, run in runs.items() if run.manifests}
    counted, expected = folders, 0
    if newest:
        last = max(newest.values(), key=lambda manifest: manifest.started)
        values = [int(value) for option, value in pairwise(last.command) if option == REPEATS]
        number = values[-1] if values else None
        alike = [folder for folder, manifest in newest.items() if _same_in_repeats(manifest) == _same_in_repeats(last)]
        counted = [folder for folder in alike if number is None or repeat_number(folder) <= number]
        expected = number or 0
    requested = dict.fromkeys([*folders, *(repeat_folder(output, number) for number in range(1, expected + 1))])
    return RepeatedRun({folder: runs[folder] for folder in counted if folder in runs}, list(requested))


def _same_in_repeats(manifest: RunManifest) -> dict[str, str]:
    """Return the options that all repeats of a call share: everything but seeds."""
    options = HarnessOptions(manifest.options)
    shared = {name: value for name, value in what_is_asked(options).items() if name not in _SEEDS}
    return {**shared, **options.pairs("gen_kwargs"), "gen_kwargs": "", "seed": ""}
