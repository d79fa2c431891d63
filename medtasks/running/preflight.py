"""Problems with a run that its arguments and task files show before it begins, among them traps of the harness.

:func:`check` is called by ``medtasks run`` and :func:`medtasks.evaluate`. Nothing is printed, changed or downloaded.
"""

import contextlib
import importlib.util
import itertools
import math
import os
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from string import Template
from typing import Any

from medtasks.data.document_store import open_documents
from medtasks.data.looks import Look
from medtasks.data.privacy import LOG_TEXT_VARIABLE, is_private
from medtasks.data.schema import SPLIT
from medtasks.data.shards import Shard, cut_places
from medtasks.data.variants import ROTATED, can_be_rotated
from medtasks.errors import MedTasksError, ModelRefused, join_names, near_match
from medtasks.lmms.remote_models import (
    check_model,
    class_path_of,
    credentialed_datasets,
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
from medtasks.tasks.task_index import (
    Config,
    DottedName,
    TaskIndex,
    harness_folder,
    index_tasks,
    mapping_in,
)

Notices = Iterator[Notice]
"""Problems that a check finds, each when it is asked for."""
_OURS = "medtasks."
_OFF = ("", "0", "false", "none")
_PREPARED = "medtasks.data.path_of."
# Units of rows: their name, what becomes of cut ones, and a row of one.
_PAIRS = ("pairs", "are then in no score of pairs", "each image of a pair")
_ROTATIONS = (
    "questions",
    "have then no worst case and no flips",
    "each rotation of a question",
)


class PlannedRun:
    """A run before it starts, with its tasks looked up.

    Args:
        names: Names given to ``--tasks``.
        options: The harness's options.
        shard: The part of the rows that is asked, None for all.

    Attributes:
        ours: Tasks of this package and the user's own.
        foreign: Names that only the harness knows, or files.
        configs: Contents of the user's task files, by task: of ``--include_path``, named files, own datasets.
        datasets: Dataset of each task whose dataset is known.
    """

    def __init__(
        self,
        names: Sequence[str],
        options: HarnessOptions,
        shard: Shard | Look | None,
    ) -> None:
        self.options = options
        self.shard = shard
        self.ours = list(dict.fromkeys(itertools.chain(*map(tasks_of, names))))
        self.foreign = list(itertools.filterfalse(tasks_of, names))
        files = {name: task_file(name) for name in self.ours}
        self.configs: dict[str, Config] = {
            name: task_config(name) for name, file in files.items() if not file.is_shipped
        }
        for path in filter(Path.is_file, map(Path, self.foreign)):
            self.configs |= index_tasks([path]).configs
        self.datasets: dict[str, str] = {}
        for name, config in self.configs.items():
            path_name = config.get("dataset_path")
            if isinstance(path_name, DottedName) and path_name.startswith(_PREPARED):
                self.datasets[name] = path_name.removeprefix(_PREPARED)
        for name, file in files.items():
            if file.guarded_as:
                self.datasets[name] = file.guarded_as

    @property
    def harness_names(self) -> list[str]:
        """Names that only the harness knows, without files."""
        return list(itertools.filterfalse(os.path.exists, self.foreign))

    def count(self) -> int:
        """Return the number of tasks that the harness will run, including members of its own groups and tags."""
        names = list(itertools.filterfalse(os.path.isfile, self.foreign))
        pieces = [max(re.split(r"[*?\[\]]+", name), key=len) for name in names]
        folder = harness_folder() if names else None
        index = index_tasks([folder], pieces if all(pieces) else ()) if folder else TaskIndex()
        tasks = {*self.ours, *self.configs}
        for name in names:
            tasks.update(index.tasks_of(name) or [name])
        return len(tasks)


def check(
    tasks: Sequence[str],
    arguments: Sequence[str],
    shard: Shard | Look | None = None,
) -> list[Notice]:
    """Return the problems of a run of tasks, ours or not, before it starts.

    Args:
        tasks: Names as given to ``--tasks``.
        arguments: The harness's other arguments, in any spelling that it accepts. A ``--config`` file is read.
        shard: The part of the rows that is asked, None for all.
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
            return list(itertools.chain(*(rule(run) for rule in rules)))
    except MedTasksError as error:
        return [refuse(str(error))]


def _options(run: PlannedRun) -> Notices:
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
            f"--config sets {join_names(ours)} under 'env', too late for what medtasks looks up before the harness "
            f"starts; set it in the environment of this command"
        )
    # With a published prompt
    published = list(itertools.filterfalse(included_option, run.ours))
    if options.text("system_instruction") and published:
        yield warn(
            f"--system_instruction goes in front of every prompt of {join_names(published)}, but not with chat models, "
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


def _task_files(run: PlannedRun) -> Notices:
    """Check settings of task files that end replies early, or contradict ``--num_fewshot``."""
    model = run.options.text("model") or "hf"
    cut = [task for task, config in run.configs.items() if _ends_at_blank_line(config, model)]
    if cut and "until" not in run.options.pairs("gen_kwargs"):
        yield warn(
            f"replies of {join_names(cut)} end at the first blank line, the harness's default, which leaves one "
            f"paragraph of a report; write 'until: []' under generation_kwargs in the task's file"
        )
    if (run.options.number("num_fewshot") or 0) <= 0:
        return
    configs: dict[str, Config] = {task: task_config(task) for task in run.ours}
    yield from map(refuse, few_shot_problems(configs | run.configs))


def _ends_at_blank_line(config: Config, model: str) -> bool:
    """Return whether the harness's default ends the replies to a task that we score at the first blank line."""
    is_scored_here = str(config.get("process_results", _OURS)).startswith(_OURS)
    if not is_scored_here or "class" in config:
        return False
    if "generate_until" not in str(config.get("output_type", "generate_until")):
        return False
    by_model = mapping_in(config, "model_specific_generation_kwargs")
    of_model = mapping_in(by_model, model if model in by_model else "default")
    if "until" in mapping_in(config, "generation_kwargs") or "until" in of_model:
        return False
    return bool(config.get("fewshot_delimiter", "\n\n") == "\n\n")


def _unmerged_tasks(run: PlannedRun) -> Notices:
    """Warn of tasks whose shards cannot be joined."""
    names = run.harness_names
    names += [name for name in run.ours if task_file(name).only_harness]
    unmerged = [name for name in names if "*" not in name]
    if run.shard and unmerged:
        yield warn(
            f"'medtasks merge' cannot join shards of {join_names(unmerged)}, which 'medtasks score' does not score "
            f"either; run such tasks without --shard"
        )


def _unknown_tasks(run: PlannedRun) -> Notices:
    """Look up tasks: the harness takes half a minute to refuse a name."""
    names = run.harness_names
    tasks = _task_names() if names else set()
    for name in names:
        if name not in tasks and not any(fnmatchcase(task, name) for task in tasks):
            hint = near_match(name, tasks) or "; no other name is like it"
            if not run.options.folders():
                hint += f"; a task from a folder of your own needs {INCLUDE} FOLDER"
            where = "neither here ('medtasks tasks' lists ours) nor in lmms-eval"
            yield refuse(f"there is no task '{name}', {where}{hint}")


def _task_names() -> set[str]:
    """Return the names of all tasks, groups and tags of the harness, its plug-ins and ours."""
    folders = [folder] if (folder := harness_folder()) else []
    for plugin in filter(None, os.environ.get("LMMS_EVAL_PLUGINS", "").split(",")):
        with contextlib.suppress(ImportError, ValueError):  # the harness reports these
            spec = importlib.util.find_spec(f"{plugin}.tasks")
            folders += map(Path, (spec and spec.submodule_search_locations) or ())
    index = index_tasks(folders)
    names = {*index.configs, *index.members}
    for name, task in task_files().items():
        variants = [variant.name for variant in variants_of(task, thinking=True)]
        names.update([name, *task.tags, *tags_of(task), *variants])
    return names


def _unknown_model(run: PlannedRun) -> Notices:
    """Look up the model, whose name the harness is as slow to refuse."""
    name = run.options.text("model")
    models = [name]
    # A model's plug-in can fail in any way, which the harness reports.
    with contextlib.suppress(Exception):
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


def _private_data(run: PlannedRun) -> Notices:
    """Refuse to print, cache, upload or send text of credentialed datasets.

    The harness's samples file is safe: our hooks overwrite its text (:mod:`medtasks.runs.logged_samples`).
    """
    options = run.options
    private = sorted(set(filter(is_private, run.datasets.values())))
    for leak in _leaks(options) if private else ():
        yield refuse(
            f"{leak}, and text of credentialed data ({join_names(private)}) must not leave what this "
            f"package controls; leave the option out, or allow it by name with "
            f"{LOG_TEXT_VARIABLE}={','.join(private)}"
        )
    guarded = credentialed_datasets(run.datasets.values())
    if not guarded:
        return
    environment = dict(os.environ)
    # The harness replaces variables in the file's values, too.
    for name, value in options.environment.items():
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


def _leaks(options: HarnessOptions) -> Iterator[str]:
    """Yield each option that is set and lets text of samples out, with its effect."""
    if options.text("use_cache"):
        yield "--use_cache writes replies into a database"
    if options.text("cache_requests").lower() not in (*_OFF, "delete"):
        yield (
            "--cache_requests writes documents and prompts into a folder of the harness's "
            "installation"
        )
    if options.flag("write_out"):
        yield "--write_out prints prompts and targets"
    if options.flag("wandb_log_samples"):
        yield "--wandb_log_samples uploads samples to Weights & Biases"
    if options.flag("swanlab_log_samples"):
        yield "--swanlab_log_samples uploads samples to SwanLab"
    push = options.pairs("hf_hub_log_args").get("push_samples_to_hub", "")
    if push.strip().lower() not in _OFF:
        yield (
            "--hf_hub_log_args push_samples_to_hub uploads the results folder with its samples to "
            "the Hub"
        )


# ---- rows: ``--limit`` and ``--offset`` count them, and an image pair is two; a shard chooses them itself ----


def _rows(run: PlannedRun) -> Notices:
    """Check the choice of rows, and warn of pairs and rotated questions that are cut."""
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
    if run.shard is not None:
        yield from _choosing_options(run, offset, limit)
    if offset >= 0 and not is_empty:
        yield from _cut_notices(run, offset, limit)


def _choosing_options(run: PlannedRun, offset: float, limit: float | None) -> Notices:
    """Refuse options that choose rows next to a shard. A ``limit`` of None is not given, an ``offset`` of 0 neither."""
    options = [] if limit is None else ["--limit"]
    if offset:
        options.append("--offset")
    if run.options.text("cache_requests"):
        options.append("--cache_requests")
    if options:
        shard = "--looks" if isinstance(run.shard, Look) else f"--shard {run.shard}"
        yield refuse(
            f"{shard} chooses the rows of every task itself; leave out {join_names(options)}"
        )


def _limit_notices(run: PlannedRun, limit: float) -> Notices:
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


def _cut_notices(run: PlannedRun, offset: float, limit: float | None) -> Notices:
    """Warn of image pairs and rotated questions of which only a part is asked.

    Args:
        run: The run.
        offset: Number of rows that are skipped.
        limit: Number of rows of each task, or their share if it is below 1; None for all.
    """
    names = list(filter(run.options.text, ("offset", "limit")))
    setting = " ".join(f"--{name} {run.options.text(name)}" for name in names)
    for task, (kind, loss, part), units in _units_by_task(run) if names else ():
        start = int(offset)
        if 0 < len(units) <= start:
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
                f"data, {part} is one; give {' or '.join(better)}"
            )


def _units_by_task(run: PlannedRun) -> Iterator[tuple[str, tuple[str, str, str], list[Any]]]:
    """Yield each task with prepared data, words for its units, and the unit of each row, counted as the harness does.

    A unit is a pair, or a question that the task asks once for each rotation of its options.
    """
    for task, dataset in run.datasets.items():
        try:
            table = open_documents(dataset)[SPLIT]
        except MedTasksError:  # missing or damaged, which is reported elsewhere
            continue
        if tasks_of(task) == [task] and task_file(task).variant == ROTATED:
            units = []
            for question in filter(can_be_rotated, table.to_list()):
                units += [question["doc_id"]] * len(question["options"])
            yield task, _ROTATIONS, units
        else:
            has_pairs = "pair_id" in table.column_names
            yield task, _PAIRS, list(table["pair_id"] if has_pairs else range(len(table)))


def cut_units(
    units: Sequence[Any], offset: int, limit: int | None
) -> tuple[int, int, list[str]]:
    """Count the units that are cut when a part of the rows is asked.

    Args:
        units: Pair or question of each row, shape (rows,).
        offset: Number of rows that are skipped.
        limit: Number of rows that are asked, None for all that follow.

    Returns:
        The number of units with an asked row, that of these without all their rows, and the nearest settings that cut
        none.

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
    start = ends[bisect_right(ends, offset) - 1]
    if stop is None:
        following = ends[bisect_left(ends, offset)]
        return [f"--offset {end}" for end in (start, following) if end < len(units)]
    moved = "" if start == offset else f"--offset {start} "
    below = ends[: bisect_right(ends, stop)][-1:]
    above = ends[bisect_left(ends, stop) :][:1]
    nearest = [end for end in dict.fromkeys(below + above) if end > start]
    return [f"{moved}--limit {end - start}" for end in nearest]
