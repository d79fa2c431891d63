"""A run on disk: what its results files, samples files and manifests record, finished or not.

Damaged files are skipped, and a note names each of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

from medtasks.errors import MedTasksError, unknown_name
from medtasks.runs.harness_options import SERVER, model_label
from medtasks.runs.repeat_folders import repeat_folders
from medtasks.runs.result_files import (
    ResultsFile,
    read_results,
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


@dataclass(frozen=True)
class TaskRun:
    """Record of one task or group of a run."""

    name: str
    # values by <metric>,<filter> as in the results file; empty where only samples are left
    scores: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)  # the task's configuration as recorded
    higher_is_better: Mapping[str, bool | None] = field(default_factory=dict)  # direction by metric, as recorded
    documents: int = 0  # number of questions in the dataset; 0 if not recorded
    asked: int = 0  # number of questions that were asked; 0 if not recorded
    samples: Path | None = None  # its samples file; None if there is none
    version: str = ""  # version of the task; empty if not recorded
    members: tuple[str, ...] = ()  # names of the members of a group

    @classmethod
    def of(cls, results: ResultsFile, name: str, row: Mapping[str, Any]) -> "TaskRun":
        """Return the record of a task with values ``row`` in a results file."""
        samples, (asked, total) = results.samples(name), results.asked(name)
        return cls(
            name=name,
            scores=row,
            config=results.config(name),
            higher_is_better=mapping_in(mapping_in(results.content, "higher_is_better"), name),
            documents=total,
            asked=asked,
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
        """Name of the rule that each filter read with, as recorded; empty if none."""
        return {
            str(pipeline.get("name")): str(step["rule"])
            for pipeline in self.config.get("filter_list") or ()
            for step in pipeline.get("filter") or ()
            if "rule" in step
        }

    @property
    def lacks(self) -> str:
        """Sentence on samples or results that are not there; empty if both are."""
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
        """The model's name in tables of published results, where its recipe names it."""
        recipe = self.manifests[-1].recipe if self.manifests else None
        return recipe.published_as if recipe else {}


def read_run(folder: Path, model: str | None = None) -> Run:
    """Read the results files, samples files and manifests in a folder; the harness puts some into sub-folders.

    Of several results of a task the newest count, and a note names the others.

    Args:
        folder: The ``--output_path`` of a run.
        model: Of runs of several models, the one with this name, or with this in its name and arguments.

    Raises:
        MedTasksError: There is no such folder, it holds no run, repeats of one, or runs of several models and none was
            chosen.
        UnknownName: None is of that model.
    """
    if not folder.is_dir():
        raise MedTasksError(f"there is no folder {folder}; give the one that was named with --output_path")
    if repeated := repeat_folders(folder):  # all together they would pass for one run, whose newest results count
        raise MedTasksError(
            f"{folder} holds {len(repeated)} repeats of a run; give one of them, such as {repeated[0]} ('medtasks "
            f"report' and 'medtasks compare' take them all)"
        )
    notes: list[str] = []
    readable = (read_results(path, notes.append) for path in results_files(folder))
    results = sorted((one for one in readable if one is not None), key=lambda one: one.order)
    manifests = read_manifests(folder, notes.append)
    samples = samples_files(folder)
    if not (results or manifests or samples):
        damaged = f" that can be read ({' '.join(notes).rstrip('.')})" if notes else ""
        raise MedTasksError(
            f"{folder} holds no results of a run{damaged}; give the folder that was named with --output_path"
        )
    labels = [_model_of(manifest, results) for manifest in manifests]
    models = {*(one.model for one in results), *labels} or {""}
    chosen = _chosen(sorted(models), model, folder)
    owners = {path: _owner(path, results, models) for path in samples}
    results = [one for one in results if one.model == chosen]
    tasks = _newest(results, notes)
    tasks |= _unscored(owners, results, tasks, chosen, notes)
    return Run(
        folder=folder,
        model=chosen,
        tasks=dict(sorted(tasks.items())),
        results=tuple(results),
        manifests=tuple(one for one, label in zip(manifests, labels, strict=True) if label == chosen),
        notes=tuple(notes),
    )


def run_of_file(samples: Path) -> Run:
    """Return the run of a single samples file, as the results file next to it records it."""
    notes: list[str] = []
    results, task = results_next_to(samples, notes.append), task_of(samples)
    row = {} if results is None else results.rows().get(task, {})
    record = TaskRun(task, samples=samples) if results is None else TaskRun.of(results, task, row)
    files = () if results is None else (results,)
    return Run(samples, files[0].model if files else "", {task: record}, files, notes=tuple(notes))


def _model_of(manifest: RunManifest, results: Sequence[ResultsFile]) -> str:
    """Return the model of a manifest as its own results files call it, else as it does itself.

    A run that ended before its results does not say what its server calls the model; the only one of the folder counts.
    """
    by_path = {one.path: one.model for one in results}
    folder = manifest.path.parent if manifest.path else Path()
    written = (folder / record.results for record in manifest.tasks.values() if record.results)
    own = model_label(manifest.model.name, manifest.model.arguments)
    unnamed = own.replace(SERVER, f" ({SERVER})", 1) if own.startswith(SERVER) else own
    alike = {label for label in by_path.values() if label.endswith(unnamed)}
    return next((by_path[path] for path in written if path in by_path), alike.pop() if len(alike) == 1 else own)


def _chosen(models: Sequence[str], wanted: str | None, folder: Path) -> str:
    fitting = [label for label in models if wanted in (None, label, label.split(" ")[0])]
    fitting = fitting or [label for label in models if wanted is None or wanted in label]
    named = "; ".join(f"'{label}'" for label in fitting)
    if wanted is not None and not fitting:
        raise unknown_name("model", wanted, models)
    if len(fitting) > 1 and wanted is None:
        raise MedTasksError(f"{folder} holds runs of several models: {named}; choose one with --model")
    if len(fitting) > 1:
        raise MedTasksError(f"--model '{wanted}' fits several runs in {folder}: {named}; give more of its arguments")
    return fitting[0]


def _owner(samples: Path, results: Sequence[ResultsFile], models: set[str]) -> str | None:
    """Return the model that a samples file is of; None if nothing tells."""
    same_folder = [one for one in results if one.path.parent == samples.parent]
    same_process = [one for one in same_folder if one.stamp == stamp_of(samples)]
    labels = ({one.model for one in same_process}, {one.model for one in same_folder}, models)
    (label,) = next((known for known in labels if len(known) == 1), {None})
    return label


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
    """Return the tasks of which there are samples but no results; the newest by name count."""
    scored = {file.samples(name) for file in results for name in file.rows()}
    alone: dict[str, TaskRun] = {}
    for path, owner in sorted(owners.items(), key=lambda item: (stamp_of(item[0]), item[0])):
        task = task_of(path)
        if path in scored or owner not in (model, None):
            continue
        if owner is None:
            notes.append(f"{path} has no results beside it that say which model it is of, and is left out.")
        elif task in tasks:
            notes.append(f"{path} has no results beside it and is left out; the results of {task} are of another run.")
        else:
            alone[task] = TaskRun(task, samples=path)
    return alone
