"""Problems with a run that its arguments and task files show before it begins, among them traps of the harness."""

import contextlib
import importlib.util
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from string import Template
from typing import Any

from medtasks.data.document_store import open_documents
from medtasks.data.looks import Look
from medtasks.data.privacy import LOG_TEXT_VARIABLE, is_private
from medtasks.data.samples import Document
from medtasks.data.schema import SPLIT
from medtasks.data.shards import Shard, cut_places
from medtasks.data.variants import ROTATED, can_be_rotated
from medtasks.errors import MedTasksError, ModelRefused, listed, near_match
from medtasks.lmms.remote_models import (
    check_model,
    class_path_of,
    credentialed,
    model_names,
    planned_destinations,
)
from medtasks.model_adapters.any_model import check_path
from medtasks.runs.harness_options import ADAPTER, HarnessOptions, read_options, seeds
from medtasks.runs.run_manifest import Notice, refuse, warn
from medtasks.tasks.task_files import (
    INCLUDE,
    few_shot_problems,
    included_option,
    including,
    tags_of,
    task_config,
    task_file,
    task_files,
    tasks_of,
    variants_of,
)
from medtasks.tasks.task_index import DottedName, TaskIndex, harness_folder, index_tasks, mapping_in

_OURS = "medtasks."
_OFF = ("", "0", "false", "none")
_PREPARED = "medtasks.data.path_of."


class PlannedRun:
    """A run before it starts, with its tasks looked up: names of ours and others, the user's files, and datasets."""

    def __init__(
        self, names: Sequence[str], options: HarnessOptions, shard: Shard | Look | None
    ) -> None:
        self.options = options
        self.shard = shard
        self.ours = list(dict.fromkeys(task for name in names for task in tasks_of(name)))
        self.foreign = [name for name in names if not tasks_of(name)]
        # Contents of the user's task files, by task: --include_path, named files, own datasets.
        self.configs = {
            name: task_config(name) for name in self.ours if not task_file(name).is_shipped
        }
        self.datasets: dict[str, str] = {}
        for path in filter(Path.is_file, map(Path, self.foreign)):
            self.configs |= {
                task: dict(config) for task, config in index_tasks([path]).configs.items()
            }
        for task, config in self.configs.items():
            place = config.get("dataset_path")
            if isinstance(place, DottedName) and place.startswith(_PREPARED):
                self.datasets[task] = place.removeprefix(_PREPARED)
        self.datasets |= {
            name: dataset for name in self.ours if (dataset := task_file(name).guarded_as)
        }

    def count(self) -> int:
        """Return the number of tasks that the harness will run, including members of its own groups and tags."""
        names = [name for name in self.foreign if not Path(name).is_file()]
        pieces = [max(re.split(r"[*?\[\]]+", name), key=len) for name in names]
        folder = harness_folder() if names else None
        index = index_tasks([folder], pieces if all(pieces) else ()) if folder else TaskIndex()
        return len(
            {*self.ours, *self.configs}.union(*(index.tasks_of(name) or [name] for name in names))
        )


def check(
    tasks: Sequence[str], arguments: Sequence[str], shard: Shard | Look | None = None
) -> list[Notice]:
    """Return the problems of a run of tasks, ours or not, before it starts; nothing is printed, changed or downloaded.

    The harness's other arguments may have any spelling that it accepts; a ``--config`` file is read.
    """
    # Names come last, so that a suggested spelling is the last thing on the screen.
    rules = (
        _options,
        _rows,
        _private_data,
        _task_files,
        _unmerged_tasks,
        _unknown_tasks,
        _unknown_model,
    )
    try:
        options = read_options(arguments)
        seeds(options)
        with including(options.folders()):
            run = PlannedRun(tasks, options, shard)
            return [notice for rule in rules for notice in rule(run)]
    except MedTasksError as error:
        return [refuse(str(error))]


def _options(run: PlannedRun) -> Iterator[Notice]:
    """Check ``--config``, ``--system_instruction`` and the harness's caches, which miss changed images and datasets."""
    options = run.options
    if options.evaluations > 1:
        yield refuse(
            f"--config asks for {options.evaluations} evaluations, and a manifest describes one; put each into a file "
            f"of its own and run them one by one"
        )
    ours = sorted(name for name in options.environment if name.startswith("MEDTASKS_"))
    if ours:
        yield refuse(
            f"--config sets {listed(ours)} under 'env', too late for what medtasks looks up before the harness starts; "
            f"set it in the environment of this command"
        )
    published = [name for name in run.ours if not included_option(name)]  # with a published prompt
    if options.text("system_instruction") and published:
        yield warn(
            f"--system_instruction goes in front of every prompt of {listed(published)}, but not with chat models, "
            f"which ignore it; leave it out to compare with published scores"
        )
    if options.text("use_cache"):
        yield warn(
            "--use_cache finds a reply by the text of its request, so after a change of images it gives an old one, "
            "and it keeps failed replies; leave it out (our models keep a journal that tells images apart), or use a "
            "new folder for each dataset"
        )
    if options.text("cache_requests") in ("true", "True"):
        yield warn(
            "--cache_requests true finds prompts by the name of the task, so after a change of data it gives "
            "the old ones; leave it out, or give --cache_requests refresh"
        )


def _task_files(run: PlannedRun) -> Iterator[Notice]:
    """Check settings of task files that end replies early, or contradict ``--num_fewshot``."""
    model = run.options.text("model") or "hf"
    cut = []
    for task, config in run.configs.items():
        by_model = mapping_in(config, "model_specific_generation_kwargs")
        of_model = mapping_in(by_model, model if model in by_model else "default")
        if (
            str(config.get("process_results", _OURS)).startswith(_OURS)
            and "class" not in config
            and "generate_until" in str(config.get("output_type", "generate_until"))
            and config.get("fewshot_delimiter", "\n\n") == "\n\n"
            and "until" not in {**mapping_in(config, "generation_kwargs"), **of_model}
        ):
            cut.append(task)
    if cut and "until" not in run.options.pairs("gen_kwargs"):
        yield warn(
            f"replies of {listed(cut)} end at the first blank line, the harness's default, which leaves one paragraph "
            f"of a report; write 'until: []' under generation_kwargs in the task's file"
        )
    if (run.options.number("num_fewshot") or 0) <= 0:
        return
    configs = {**{task: task_config(task) for task in run.ours}, **run.configs}
    for problem in few_shot_problems(configs):
        yield refuse(problem)


def _unmerged_tasks(run: PlannedRun) -> Iterator[Notice]:
    """Warn of tasks whose shards cannot be joined."""
    names = [name for name in run.foreign if not os.path.exists(name)]
    names += [name for name in run.ours if task_file(name).only_harness]
    unmerged = [name for name in names if "*" not in name]
    if run.shard and unmerged:
        yield warn(
            f"'medtasks merge' cannot join shards of {listed(unmerged)}, which 'medtasks score' does not score either; "
            f"run such tasks without --shard"
        )


def _unknown_tasks(run: PlannedRun) -> Iterator[Notice]:
    """Look up tasks: the harness takes half a minute to refuse a name."""
    names = [name for name in run.foreign if not os.path.exists(name)]
    tasks = _task_names() if names else set()
    folder_hint = (
        ""
        if run.options.folders()
        else f"; a task from a folder of your own needs {INCLUDE} FOLDER"
    )
    for name in names:
        if name not in tasks and not any(fnmatchcase(task, name) for task in tasks):
            hint = near_match(name, tasks) or "; no other name is like it"
            where = "neither here ('medtasks tasks' lists ours) nor in lmms-eval"
            yield refuse(f"there is no task '{name}', {where}{hint}{folder_hint}")


def _task_names() -> set[str]:
    """Return the names of all tasks, groups and tags of the harness, its plug-ins and ours."""
    folders = [folder] if (folder := harness_folder()) else []
    for plugin in filter(None, os.environ.get("LMMS_EVAL_PLUGINS", "").split(",")):
        with contextlib.suppress(ImportError, ValueError):  # the harness reports these
            spec = importlib.util.find_spec(f"{plugin}.tasks")
            folders += [Path(root) for root in (spec and spec.submodule_search_locations) or ()]
    index = index_tasks(folders)
    names = {*index.configs, *index.members}
    for name, task in task_files().items():
        names |= {
            name,
            *task.tags,
            *tags_of(task),
            *(made.name for made in variants_of(task, thinking=True)),
        }
    return names


def _unknown_model(run: PlannedRun) -> Iterator[Notice]:
    """Look up the model, whose name the harness is as slow to refuse."""
    name = run.options.text("model")
    models = [name]
    with contextlib.suppress(
        Exception
    ):  # a model's plug-in can fail in any way, which the harness reports
        models = model_names()
    if not name:
        yield refuse(
            "no model is named, and the harness's default, 'hf', does not exist; give --model NAME"
        )
    elif name not in models:
        hint = near_match(name, models) or "; no other name is like it"
        yield refuse(
            f"there is no model '{name}', neither here nor in lmms-eval ('lmms-eval models' lists all){hint}"
        )
    elif name == ADAPTER:
        check_path(str(run.options.model_arguments().get("class", "")))


def _private_data(run: PlannedRun) -> Iterator[Notice]:
    """Refuse to print, cache, upload or send text of credentialed datasets.

    The harness's samples file is safe: our hooks overwrite its text (:mod:`medtasks.runs.logged_samples`).
    """
    options = run.options
    leaks = {
        "--use_cache": (options.text("use_cache"), "writes replies into a database"),
        "--cache_requests": (
            options.text("cache_requests").lower() not in (*_OFF, "delete"),
            "writes documents and prompts into a folder of the harness's installation",
        ),
        "--write_out": (options.flag("write_out"), "prints prompts and targets"),
        "--wandb_log_samples": (
            options.flag("wandb_log_samples"),
            "uploads samples to Weights & Biases",
        ),
        "--swanlab_log_samples": (
            options.flag("swanlab_log_samples"),
            "uploads samples to SwanLab",
        ),
        "--hf_hub_log_args push_samples_to_hub": (
            options.pairs("hf_hub_log_args").get("push_samples_to_hub", "").strip().lower()
            not in _OFF,
            "uploads the results folder with its samples to the Hub",
        ),
    }
    private = sorted({dataset for dataset in run.datasets.values() if is_private(dataset)})
    for option, (is_set, effect) in leaks.items() if private else ():
        if is_set:
            yield refuse(
                f"{option} {effect}, and text of credentialed data ({listed(private)}) must not leave what this "
                f"package controls; leave the option out, or allow it by name with "
                f"{LOG_TEXT_VARIABLE}={','.join(private)}"
            )
    guarded = credentialed(run.datasets.values())
    if not guarded:
        return
    environment = dict(os.environ)
    for (
        name,
        value,
    ) in options.environment.items():  # the harness replaces variables in the file's values, too
        environment[name] = Template(value).safe_substitute(environment)
    model_arguments = options.model_arguments()
    path = class_path_of(
        options.text("model"), model_arguments, force_simple=options.flag("force_simple")
    )
    goes_to = planned_destinations(path, model_arguments, environment) if path else []
    try:
        check_model(path, goes_to, guarded, environment)
    except ModelRefused as error:
        yield refuse(str(error))


# ---- rows: ``--limit`` and ``--offset`` count them, and an image pair is two; a shard chooses them itself ----


def _rows(run: PlannedRun) -> Iterator[Notice]:
    """Check the choice of rows; warn of pairs and rotated questions that are cut."""
    limit = run.options.number("limit")
    limit = None if limit == -1 else limit
    offset = run.options.number("offset") or 0
    is_empty = limit is not None and not 0 < limit < math.inf
    if is_empty:
        yield refuse(
            f"--limit {limit:g} asks no row of the data at all; leave it out (or give -1) for all of them"
        )
    elif limit is not None:
        yield from _limit_notices(run, limit)
    if offset < 0:
        yield refuse(
            f"--offset {offset:g} lies before the first row; give the number of rows to skip"
        )
    choosing = {
        "--limit": limit is not None,
        "--offset": offset,
        "--cache_requests": run.options.text("cache_requests"),
    }
    if run.shard is not None and any(choosing.values()):
        names = listed([name for name, is_set in choosing.items() if is_set])
        option = "--looks" if isinstance(run.shard, Look) else f"--shard {run.shard}"
        yield refuse(f"{option} chooses the rows of every task itself; leave out {names}")
    if offset >= 0 and not is_empty:
        yield from _cut_notices(run, offset, limit)


def _limit_notices(run: PlannedRun, limit: float) -> Iterator[Notice]:
    """Check a limit that is a share of the rows, or looks like one."""
    if limit >= 1:
        if "." in run.options.text("limit"):
            rows = f"{int(limit)} rows of each task, not a share"
            yield warn(f"--limit {limit} means {rows}; give a whole number, or one below 1")
    elif (count := run.count()) > 1:
        yield refuse(
            f"--limit {limit:g} is a share, and the harness applies the first task's number of rows to all {count} "
            f"tasks; run them one by one, or give a number of rows such as --limit 8"
        )


def _cut_notices(run: PlannedRun, offset: float, limit: float | None) -> Iterator[Notice]:
    """Warn of image pairs and rotated questions of which only a part is asked."""
    setting = " ".join(
        f"--{name} {run.options.text(name)}"
        for name in ("offset", "limit")
        if run.options.text(name)
    )
    for task, dataset in run.datasets.items() if setting else ():
        try:
            table = open_documents(dataset)[SPLIT]
        except MedTasksError:  # missing or damaged, which is reported elsewhere
            continue
        # The pair or question of each row, in the order of the prepared dataset; counted as the harness counts them.
        units: list[Any] = list(
            table["pair_id"] if "pair_id" in table.column_names else range(len(table))
        )
        kind, loss, parts = (
            "pairs",
            "are then in no score of pairs",
            "each image of a pair is one",
        )
        if tasks_of(task) == [task] and task_file(task).variant == ROTATED:
            units = _rotated_units(table.to_list())
            kind, loss = ("questions", "have then no worst case and no flips")
            parts = "each rotation of a question is one"
        start = int(offset)
        if units and start >= len(units):
            yield warn(
                f"--offset {start} skips all {len(units)} rows of {task}, which then fails; give a smaller one"
            )
            continue
        rows = None
        if limit is not None:
            rows = math.ceil(len(units) * limit) if limit < 1 else int(limit)
        count, cut, better = cut_units(units, start, rows)
        if cut:
            yield warn(
                f"{setting} cuts {cut} of {count} {kind} of {task}, which {loss}: it counts consecutive rows of the "
                f"data, {parts}; give {' or '.join(better)}"
            )


def _rotated_units(documents: Sequence[Document]) -> list[Any]:
    """Return the question of each row of a rotated dataset."""
    units = []
    for question in filter(can_be_rotated, documents):
        units += [question["doc_id"]] * len(question["options"])
    return units


def cut_units(units: Sequence[Any], offset: int, limit: int | None) -> tuple[int, int, list[str]]:
    """Count the units that are cut when ``limit`` rows from an offset on are asked, or all that follow.

    Returns the number of units with an asked row, that of these without all their rows, and the nearest settings that
    cut none.

    Example:
        >>> cut_units(["a", "a", "b", "b"], 0, 3)
        (2, 1, ['--limit 2', '--limit 4'])
    """
    stop = len(units) if limit is None else min(len(units), offset + limit)
    selected = Counter(units[offset:stop])
    whole = Counter(units)
    cut = sum(count < whole[unit] for unit, count in selected.items())
    better = _whole_settings(units, offset, None if limit is None else stop) if cut else []
    return len(selected), cut, better


def _whole_settings(units: Sequence[Any], offset: int, stop: int | None) -> list[str]:
    """Return the settings nearest to an offset and the end of the rows (None: the last) that cut no unit."""
    ends = cut_places(units)
    start = max(end for end in ends if end <= offset)
    if stop is None:
        following = min(end for end in ends if end >= offset)
        return [f"--offset {end}" for end in (start, following) if end < len(units)]
    below = [end for end in ends if start < end <= stop][-1:]
    above = [end for end in ends if end >= stop][:1]
    moved = "" if start == offset else f"--offset {start} "
    return [f"{moved}--limit {end - start}" for end in dict.fromkeys([*below, *above])]
