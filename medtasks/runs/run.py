"""A run on disk, finished or not: results files, samples files, manifests and repeats, and its place on a command line.

Damaged files are skipped, and a note names each of them.
"""

import contextlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from medtasks.errors import MedTasksError, RepliesError, unknown_name, warn_once
from medtasks.runs.harness_options import SERVER, HarnessOptions, asked_options, model_label
from medtasks.runs.looks import LookRecord
from medtasks.runs.result_files import (
    REPEATS,
    RESULTS,
    SAMPLES,
    ResultsFile,
    read_results,
    repeat_folder,
    repeat_folders,
    repeat_number,
    results_files,
    results_next_to,
    results_path,
    samples_in_place,
    stamp_of,
    task_of,
)
from medtasks.runs.run_manifest import PrimaryOutcome, RunManifest, read_manifests
from medtasks.tasks.task_files import tasks_of
from medtasks.tasks.task_index import Config, mapping_in, mappings_in, names_in

RUN_AGAIN = "run it again with --log_samples"
NO_SAMPLES = f"The run logged no samples, so that there are no single replies, no reasons and no groups; {RUN_AGAIN}."
NO_RESULTS = (
    "The run left samples without results, as it was stopped or failed before it wrote them."
)
Calls = dict[str, list[tuple[RunManifest, list[Path]]]]
"""Manifest and results files of each call, by model."""
_SEEDS = ("seed", "model_args seed", "gen_kwargs", "output_path")  # differ between repeats


class SeveralModels(MedTasksError):
    """A folder holds runs of several ``models``, and none was chosen."""

    def __init__(self, sentence: str, models: Sequence[str]) -> None:
        super().__init__(sentence)
        self.models = models


@dataclass(frozen=True)
class TaskRun:
    """Record of one task or group of a run."""

    name: str
    # by <metric>,<filter>; empty where only samples are left
    scores: Mapping[str, Any] = field(default_factory=dict)
    config: Config = field(default_factory=dict)  # the task's configuration as recorded
    # direction by metric, as recorded
    higher_is_better: Mapping[str, bool | None] = field(default_factory=dict)
    documents: int = 0  # number of samples in the dataset; 0 if not recorded
    asked: int = 0  # number of samples that were asked; 0 if not recorded
    is_part: bool = False  # whether --limit or --offset left samples out, as far as recorded
    results: Path | None = None  # its results file; None where only samples are left
    samples: Path | None = None  # its samples file, or None
    version: str = ""  # version of the task; empty if not recorded
    members: tuple[str, ...] = ()  # names of the members of a group

    @classmethod
    def of(
        cls,
        results: ResultsFile,
        name: str,
        row: Config,
    ) -> "TaskRun":
        """Return the record of a task.

        Args:
            results: Results file.
            name: Name of the task or group.
            row: Its values in that file, by ``<metric>,<filter>``.
        """
        samples = results.samples(name)
        counts = mapping_in(results.content, "n-samples", name)
        config = mapping_in(results.content, "config")
        total = _count(counts.get("original"))
        offset = _count(config.get("offset"))
        asked_rows = max(0, min(_count(counts.get("effective")), total - offset))
        is_part = config.get("limit") not in (None, -1) or bool(config.get("offset"))
        if asked_rows:
            is_part = asked_rows < total
        return cls(
            name=name,
            scores=row,
            config=results.config(name),
            higher_is_better=mapping_in(results.content, "higher_is_better", name),
            documents=total,
            asked=asked_rows,
            is_part=is_part,
            results=results.path,
            samples=samples if samples_in_place(samples) else None,
            version=str(results.of_task("versions", name) or ""),
            members=tuple(names_in(results.of_task("group_subtasks", name))),
        )

    @property
    def metadata(self) -> Config:
        """The task's metadata as recorded, empty if there are none."""
        return mapping_in(self.config, "metadata")

    @property
    def rules(self) -> dict[str, str]:
        """Extractor by filter, as recorded, empty if none."""
        rules = {}
        for pipeline in mappings_in(self.config, "filter_list"):
            for step in mappings_in(pipeline, "filter"):
                if "rule" in step:
                    rules[str(pipeline.get("name"))] = str(step["rule"])
        return rules

    @property
    def lacks(self) -> str:
        """Sentence on missing samples or results, empty if nothing is missing."""
        if self.samples is None:
            return "" if self.members else NO_SAMPLES
        return "" if self.scores else NO_RESULTS

    @property
    def data(self) -> Config:
        """Provenance of its data as recorded, see :func:`medtasks.data.dataset_lookup.provenance`, empty if none."""
        return mapping_in(self.metadata, "data")


def _count(value: Any) -> int:
    """Return a recorded count, or 0 for anything else, such as the fraction that ``--limit 0.5`` leaves."""
    is_count = isinstance(value, int | float) and math.isfinite(value) and value >= 1
    return int(value) if is_count else 0


@dataclass(frozen=True)
class RecordedRun:
    """The runs of one model in a folder."""

    folder: Path
    model: str  # model and its arguments as given to the harness, secrets replaced; empty if not recorded
    # tasks and groups with scores, and tasks with samples only, in the order of --tasks
    tasks: Mapping[str, TaskRun]
    results: tuple[ResultsFile, ...] = ()  # oldest first
    # Oldest first, without calls of which no results count
    manifests: tuple[RunManifest, ...] = ()
    notes: tuple[str, ...] = ()  # damaged and superseded files, one sentence each

    @property
    def primary(self) -> PrimaryOutcome | None:
        """Primary outcome that the newest call states. None if it states none, or there is no manifest."""
        return self.manifests[-1].stated_primary if self.manifests else None

    @property
    def look(self) -> LookRecord | None:
        """Newest look of a comparison that may stop early. None for another run, or if there is no manifest."""
        return self.manifests[-1].look if self.manifests else None

    @property
    def created_at(self) -> str:
        """Time of the newest results, ISO 8601 or as recorded, empty if not recorded."""
        if self.results:
            newest = self.results[-1]
            if newest.created_at:
                return newest.created_at.astimezone(UTC).isoformat()
            return str(newest.content.get("date") or "")
        return self.manifests[-1].started if self.manifests else ""


def open_run(folder: Path, model: str | None = None) -> RecordedRun:
    """Read the results files, samples files and manifests in a folder and below it.

    The newest results of a task count, but no later part of its samples (``--limit``) in place of all of them; a note
    names the others.

    Args:
        folder: Folder that was named with ``--output_path``, or a folder in it.
        model: Name of one of several models, or a part of its name and arguments; None: there is only one.

    Raises:
        MedTasksError: There is no such folder, it holds no run, or it holds repeats, or several models fit ``model``.
        SeveralModels: The folder holds runs of several models and none was chosen.
        UnknownName: No run is of that model.
    """
    notes: list[str] = []
    results, manifests, samples = _read_files(folder, notes)
    by_path = {file.path: file.model for file in results}
    calls = _calls_by_model(manifests, by_path)
    models = sorted({*calls, *by_path.values()} or {""})
    chosen = _choose_model(folder, models, model)
    of_model = [file for file in results if file.model == chosen]
    tasks = _tasks(samples, of_model, by_path, models, chosen, notes)
    counted = {task.results for task in tasks.values()}
    superseded = by_path.keys() - counted
    manifests = []
    for manifest, files in calls.get(chosen, []):
        if not files or {*files} - superseded:
            manifests.append(manifest)
    results = [file for file in of_model if file.path in counted] or of_model
    return RecordedRun(
        folder=folder,
        model=chosen,
        tasks=_sort_by_request(tasks, results, manifests),
        results=tuple(results),
        manifests=tuple(manifests),
        notes=tuple(notes),
    )


def _read_files(
    folder: Path,
    notes: list[str],
) -> tuple[list[ResultsFile], list[RunManifest], list[Path]]:
    """Read the results files and manifests in a folder, oldest first, find the samples files, and note damage.

    Raises MedTasksError if there are none of them, or no folder, or if it holds repeats.
    """
    if folder.is_file():
        raise MedTasksError(
            f"{folder} is a file and names no task; score it as replies: medtasks.score(TASK, FILE)"
        )
    if not folder.is_dir():
        raise MedTasksError(
            f"there is no folder {folder}; give the one that was named with --output_path"
        )
    repeats = repeat_folders(folder)
    if repeats:  # together they would pass for one run
        raise MedTasksError(
            f"{folder} holds {len(repeats)} repeats of a run; give one of them, such as {repeats[0]} ('medtasks "
            f"report' and 'medtasks compare' take them all)"
        )
    results = []
    for path in results_files(folder):
        file = read_results(path, notes.append)
        if file is not None:
            results.append(file)
    results.sort(key=lambda file: file.order)
    manifests = read_manifests(folder, notes.append)
    listed = sorted(folder.rglob(f"*{SAMPLES}*.jsonl"))
    samples = [path for path in listed if samples_in_place(path, notes.append)]
    if results or manifests or samples:
        return results, manifests, samples
    damaged = f" that can be read ({' '.join(notes).rstrip('.')})" if notes else ""
    raise MedTasksError(
        f"{folder} holds no results of a run{damaged}; give the folder that was named with --output_path"
    )


def _choose_model(
    folder: Path,
    models: Sequence[str],
    model: str | None,
) -> str:
    """Return the only one of the models, or the one that a user chose.

    Args:
        folder: Folder of the runs, for messages.
        models: All models of the folder.
        model: Name of the chosen one, or else a part of its name and arguments; None: the user chose none.

    Raises:
        SeveralModels: There are several, and none was chosen.
        UnknownName: None has the name or the part.
        MedTasksError: Several have it.
    """
    fitting = [label for label in models if model in (None, label, label.split(" ")[0])]
    fitting = fitting or [label for label in models if str(model) in label]
    if not fitting:
        raise unknown_name("model", str(model), models)
    if len(fitting) == 1:
        return fitting[0]
    fits = "'; '".join(fitting)
    if model is None:
        raise SeveralModels(
            f"{folder} holds runs of several models: '{fits}'; choose one with --model", fitting
        )
    raise MedTasksError(
        f"--model '{model}' fits several runs in {folder}: '{fits}'; give more of its arguments"
    )


def _calls_by_model(
    manifests: Sequence[RunManifest],
    models: Mapping[Path, str],
) -> Calls:
    """Return the manifest and the results files of each call, by the model that these files name, if they do.

    Args:
        manifests: Manifests of a folder.
        models: Model of each results file in the folder.
    """
    calls: Calls = {}
    for manifest in manifests:
        label = model_label(manifest.model.name, manifest.model.arguments)
        folder = manifest.path.parent if manifest.path else Path()
        files = [folder / task.results for task in manifest.tasks.values() if task.results]
        named = [models[path] for path in files if path in models]
        # A run that ended before its results has no served name; the only matching one of the folder counts.
        unnamed = re.sub(f"^{SERVER}", f" ({SERVER})", label)
        alike = {name for name in models.values() if name.endswith(unnamed)}
        if named:
            label = named[0]
        elif len(alike) == 1:
            label = alike.pop()
        calls.setdefault(label, []).append((manifest, files))
    return calls


def _sort_by_request(
    tasks: Mapping[str, TaskRun],
    results: Sequence[ResultsFile],
    manifests: Sequence[RunManifest],
) -> dict[str, TaskRun]:
    """Sort tasks as the newest call named them. The others come last, by name."""
    calls: list[Iterable[str]] = [manifest.tasks for manifest in reversed(manifests)]
    for file in reversed(results):  # in which everything but the command line is sorted by name
        names_asked = str(file.arguments.get("tasks") or "").split(",")
        calls += [tasks_of(name) or [name] for name in names_asked]
    calls.append(sorted(tasks))
    names = dict.fromkeys(chain.from_iterable(calls))
    return {name: tasks[name] for name in names if name in tasks}


def _tasks(
    samples: Sequence[Path],
    results: Sequence[ResultsFile],
    by_path: Mapping[Path, str],
    models: Sequence[str],
    model: str,
    notes: list[str],
) -> dict[str, TaskRun]:
    """Return a model's tasks with results, then those with samples only, the newest by name.

    Args:
        samples: All samples files of a folder.
        results: Results files of the model, oldest first.
        by_path: Model of each results file in the folder.
        models: All models of the folder.
        model: The model.
        notes: Gets a sentence for each file that is left out.
    """
    tasks = _scored_tasks(results, notes)
    scored: set[Path] = set()
    for file in results:
        scored.update(map(file.samples, file.rows()))
    unscored = {}
    for path in sorted(samples, key=lambda path: (stamp_of(path), path)):
        task = task_of(path)
        owner = _owner(path, by_path, models)
        if path in scored or owner not in (model, None):
            continue
        if owner is None:
            notes.append(
                f"{path} has no results next to it that say which model it is of, and is left out."
            )
        elif task in tasks:
            notes.append(
                f"{path} has no results next to it and is left out; the results of {task} are of another run."
            )
        else:
            unscored[task] = TaskRun(task, samples=path)
    return tasks | unscored


def _scored_tasks(
    results: Sequence[ResultsFile],
    notes: list[str],
) -> dict[str, TaskRun]:
    """Return the newest results of each task, but no part after the whole, and note what is left out."""
    tasks: dict[str, TaskRun] = {}
    older: dict[Path | None, list[str]] = {}
    parts: dict[Path, list[str]] = {}
    for file in results:
        for name, row in file.rows().items():
            recorded = TaskRun.of(file, name, row)
            before = tasks.get(name)
            if before and recorded.is_part and not before.is_part:
                parts.setdefault(file.path, []).append(name)
                continue
            if before:
                older.setdefault(before.results, []).append(name)
            tasks[name] = recorded
    for path, names in older.items():
        notes.append(f"{path} holds older results of {', '.join(names)}, which are left out.")
    for path, names in parts.items():
        notes.append(
            f"{path} holds later results of {', '.join(names)} on a part of the samples, which are left out."
        )
    return tasks


def _owner(
    samples: Path,
    by_path: Mapping[Path, str],
    models: Sequence[str],
) -> str | None:
    """Return the model of a samples file: that of its process, else the only one of its folder, else of all.

    Args:
        samples: The samples file.
        by_path: Model of each results file that was read.
        models: All models.

    Returns:
        The model, None if it could be of several.
    """
    of_process = by_path.get(results_path(samples))
    if of_process is not None:
        return of_process
    of_folder = {name for path, name in by_path.items() if path.parent == samples.parent}
    for candidates in (of_folder, {*models}):
        if len(candidates) == 1:
            return candidates.pop()
    return None


@dataclass(frozen=True)
class RepeatedRun:
    """Repeats in one folder."""

    runs: Mapping[Path, RecordedRun]  # readable repeats of the newest call
    asked: Sequence[Path]  # folders of all repeats: readable, missing, and of other calls


def read_repeats(output: Path, model: str | None = None) -> RepeatedRun:
    """Read the repeats of the newest call.

    An earlier call may have left others, or more of the same.

    Args:
        output: Folder that was named with ``--output_path``.
        model: See :func:`open_run`; None: repeats with runs of several models cannot be read.
    """
    folders = repeat_folders(output)
    runs = {}
    for folder in folders:
        with contextlib.suppress(MedTasksError):
            runs[folder] = open_run(folder, model)
    calls = {folder: run.manifests[-1] for folder, run in runs.items() if run.manifests}
    expected = 0
    if calls:
        newest = max(calls.values(), key=lambda manifest: manifest.started)
        numbers = [
            int(value) for value, option in pairwise(newest.command[::-1]) if option == REPEATS
        ]
        expected = numbers[0] if numbers else 0  # as the last --repeats says
        question = _without_seeds(newest)
        readable = runs
        runs = {}
        for folder, manifest in calls.items():
            is_of_call = _without_seeds(manifest) == question
            is_beyond = 0 < expected < repeat_number(folder)
            if is_of_call and not is_beyond:
                runs[folder] = readable[folder]
    numbered = [repeat_folder(output, number) for number in range(1, expected + 1)]
    return RepeatedRun(runs, list(dict.fromkeys([*folders, *numbered])))


def _without_seeds(manifest: RunManifest) -> dict[str, str]:
    """Return the arguments of a call, without seeds."""
    options = HarnessOptions(manifest.options)
    shared = {
        name: value for name, value in asked_options(options).items() if name not in _SEEDS
    }
    return shared | {**options.pairs("gen_kwargs"), "gen_kwargs": "", "seed": ""}


@dataclass(frozen=True)
class Source:
    """Location of a run, or of recorded replies."""

    # Folder of a run, a samples file, or a file or folder of recorded replies to one task.
    path: Path
    model: str | None = None  # the model to take from a folder with runs of several
    labels: Path | None = None  # people's labels of its replies (``medtasks judge sample``)

    @cached_property
    def run(self) -> RecordedRun:
        """The run, read once. Damage is logged. Raises MedTasksError if no results are found."""
        run = (
            open_run(self.path, self.model)
            if self.path.is_dir()
            else _run_of_samples(self.path)
        )
        for note in run.notes:
            warn_once(note)
        return run

    @cached_property
    def repeats(self) -> list["Source"]:
        """The repeats of the newest call, or the run itself if it has none, read once.

        Raises RepliesError if there are repeats and none of them has results.
        """
        if not (self.path.is_dir() and repeat_folders(self.path)):
            return [self]
        runs = read_repeats(self.path, self.model).runs
        repeats = [Source(folder, self.model) for folder, run in runs.items() if run.tasks]
        if not repeats:
            raise RepliesError(
                f"{self.path} holds repeats of a run, and none of them has results"
            )
        return repeats


def _run_of_samples(path: Path) -> RecordedRun:
    """Return the run of one samples file, with the results next to it if there are any.

    Raises:
        RepliesError: There is no such file, or its name has no task.
    """
    if not path.is_file():
        raise RepliesError(
            f"there is no {path}; give the folder that was named with --output_path"
        )
    task = task_of(path)
    if not task:
        raise RepliesError(
            f"{path} does not say which task it answers; name the task before the runs"
        )
    notes: list[str] = []
    results = results_next_to(path, notes.append)
    if results is None:
        record = TaskRun(task, samples=path)
        return RecordedRun(path, "", {task: record}, notes=tuple(notes))
    record = TaskRun.of(results, task, results.rows().get(task, {}))
    return RecordedRun(path, results.model, {task: record}, (results,), notes=tuple(notes))


def runs_in(folder: Path) -> list[Source]:
    """Return the runs in a folder of runs or of recorded replies, one per model."""
    try:
        open_run(folder)
    except SeveralModels as error:
        return [Source(folder, model) for model in error.models]
    except MedTasksError:
        pass  # repeats, or recorded replies, or damage that is reported where it is read
    return [Source(folder)]


def model_of(source: Source) -> str:
    """Return the model of a run, empty where none is recorded, as for a file of replies."""
    try:
        return source.repeats[0].run.model
    except MedTasksError:
        return ""


def replies_to(task: str, source: Source) -> Path:
    """Return the samples file of a task in a run's folder.

    Args:
        task: Name of the task.
        source: A run. Any other path is that of replies itself.

    Raises:
        RepliesError: The run has no samples of the task.
    """
    harness_names = (f"*{RESULTS}*", f"*{SAMPLES}*")
    folder = source.path
    if not (folder.is_dir() and any(chain(*map(folder.rglob, harness_names)))):
        return folder
    tasks = source.run.tasks
    if task not in tasks:
        raise RepliesError(
            f"{source.path} holds no samples of '{task}'; it has {', '.join(tasks) or 'none at all'}; "
            f"where another task asks the same questions, name its samples file"
        )
    record = tasks[task]
    if record.samples is None:
        raise RepliesError(f"{source.path}, {task}: {record.lacks}")
    if record.lacks:
        warn_once(f"{source.path}, {task}: {record.lacks}")
    return record.samples
