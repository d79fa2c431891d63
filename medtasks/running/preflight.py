"""What goes wrong with a run before it begins: known traps of the harness, found in its arguments and task files."""

import contextlib
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from string import Template
from typing import Any

from medtasks.data.privacy import LOG_TEXT_VARIABLE, is_private
from medtasks.data.shards import Shard
from medtasks.errors import MedTasksError, ModelRefused, listed, near_match
from medtasks.lmms.remote_models import check_model, class_path_of, credentialed, planned_destinations
from medtasks.running.guarded_run import GuardedRun
from medtasks.running.row_limits import cut_rows, row_limit, row_offset, row_shard
from medtasks.runs.harness_options import read_options, seeds
from medtasks.runs.run_manifest import Notice, refuse, warn
from medtasks.tasks.task_files import (
    INCLUDE,
    TAG_ENDING,
    including,
    task_config,
    task_file,
    task_files,
    tasks_of,
    variants_of,
)
from medtasks.tasks.task_index import TaskIndex, harness_folder, index_tasks, mapping_in

_PLUGINS = "LMMS_EVAL_PLUGINS"
_OURS = "medtasks."
_NO = ("", "0", "false", "none")


def check(tasks: Sequence[str], arguments: Sequence[str], shard: Shard | None = None) -> list[Notice]:
    """Return what a user has to know before tasks are run; nothing is printed, changed or downloaded.

    The names are those for ``--tasks``, ours or not; the harness's other arguments come in every spelling it takes, and
    a ``--config`` file among them is read.
    """
    try:
        options = read_options(arguments)
        seeds(options)
        with including(options.folders()):
            return list(_notices(GuardedRun(tasks, options, shard)))
    except MedTasksError as error:
        return [refuse(str(error))]


def _notices(run: GuardedRun) -> Iterator[Notice]:
    rules = (
        _config_file,
        row_limit,
        row_offset,
        row_shard,
        _not_merged,
        _leaking_options,
        _remote_model,
        cut_rows,
        _until,
    )
    others = (_few_shot, _system_instruction, _stale_caches)
    names = (_unknown_tasks, _unknown_model)  # last, so that the other spelling is the last that is read
    for rule in (*rules, *others, *names):
        yield from rule(run)


def _config_file(run: GuardedRun) -> Iterator[Notice]:
    if run.options.evaluations > 1:
        yield refuse(
            f"--config asks for {run.options.evaluations} evaluations, and a manifest describes one; put each into "
            f"a file of its own and run them one by one"
        )
    ours = sorted(name for name in run.options.environment if name.startswith("MEDTASKS_"))
    if ours:
        yield refuse(
            f"--config sets {listed(ours)} under 'env', too late for what medtasks looks up before the harness starts; "
            f"set it in the environment of this command"
        )


def _until(run: GuardedRun) -> Iterator[Notice]:
    if "until" in run.options.pairs("gen_kwargs"):
        return
    model = run.options.text("model") or "hf"
    cut = [task for task, config in run.configs.items() if is_cut_at_blank_lines(config, model)]
    if cut:
        yield warn(
            f"replies of {listed(cut)} end at the first blank line, the harness's default, which leaves one paragraph "
            f"of a report; write 'until: []' under generation_kwargs in the task's file"
        )


def is_cut_at_blank_lines(config: Mapping[str, Any], model: str) -> bool:
    """Return whether the harness ends this task's replies at the first blank line, because its file sets no ``until``.

    A task may have settings for one model alone. Tasks with hooks of others are as their authors want them.
    """
    if not str(config.get("process_results", _OURS)).startswith(_OURS):
        return False
    if "class" in config or "generate_until" not in str(config.get("output_type", "generate_until")):
        return False
    if config.get("fewshot_delimiter", "\n\n") != "\n\n":
        return False
    by_model = mapping_in(config, "model_specific_generation_kwargs")
    own = mapping_in(by_model, model if model in by_model else "default")
    return "until" not in {**mapping_in(config, "generation_kwargs"), **own}


def _few_shot(run: GuardedRun) -> Iterator[Notice]:
    examples = run.options.number("num_fewshot")
    if not examples or examples < 0:
        return
    configs = {**{task: task_config(task) for task in run.ours}, **run.configs}
    ignoring = [task for task, config in configs.items() if config.get("num_fewshot") == 0]
    if ignoring:
        twins = [twin for task in ignoring if (twin := f"{task}_5shot") in task_files()]
        instead = f"choose {listed(twins)} instead" if twins else "leave it out"
        yield refuse(f"--num_fewshot has no effect on {listed(ignoring)}, whose files set it to 0; {instead}")
    if failing := [t for t, config in configs.items() if t not in ignoring and not config.get("fewshot_config")]:
        yield refuse(
            f"--num_fewshot makes {listed(failing)} fail (no attribute 'sampler'), because the task's file has no "
            f"fewshot_config; leave it out"
        )


def _system_instruction(run: GuardedRun) -> Iterator[Notice]:
    if run.options.text("system_instruction") and run.published:
        yield warn(
            f"--system_instruction goes in front of every prompt of {listed(run.published)}, but not with chat models, "
            f"which ignore it; leave it out to compare with published scores"
        )


# ---- names, looked up before anything starts: the harness takes half a minute to refuse one ----


def _not_merged(run: GuardedRun) -> Iterator[Notice]:
    tasks = [*_foreign_names(run), *(name for name in run.ours if task_file(name).only_harness)] if run.shard else []
    if foreign := [name for name in tasks if "*" not in name]:
        yield warn(
            f"'medtasks merge' cannot join shards of {listed(foreign)}, which 'medtasks score' does not score either; "
            f"run such tasks without --shard"
        )


def _unknown_tasks(run: GuardedRun) -> Iterator[Notice]:
    foreign = _foreign_names(run)
    if not foreign:
        return
    index = _harness_index()
    known = {*our_names(), *index.configs, *index.members}
    for name in foreign:
        if name not in known and not any(fnmatchcase(one, name) for one in known):
            where = "neither here ('medtasks tasks' lists ours) nor in lmms-eval"
            folder = "" if run.options.folders() else f"; a task from a folder of your own needs {INCLUDE} FOLDER"
            yield refuse(f"there is no task '{name}', {where}{_hint(name, known)}{folder}")


def _foreign_names(run: GuardedRun) -> list[str]:
    return [name for name in run.names if not tasks_of(name) and not os.path.exists(name)]


def _unknown_model(run: GuardedRun) -> Iterator[Notice]:
    name = run.options.text("model")
    known = [name]
    with contextlib.suppress(Exception):  # a model's plug-in can fail in any way, which the harness reports
        from lmms_eval.models import MODEL_REGISTRY_V2  # in a tenth of a second

        known = MODEL_REGISTRY_V2.list_model_names()
    if not name:
        yield refuse("no model is named, and the harness's default, 'hf', does not exist; give --model NAME")
    elif name not in known:
        where = "neither here nor in lmms-eval ('lmms-eval models' lists all)"
        yield refuse(f"there is no model '{name}', {where}{_hint(name, known)}")


def our_names() -> Iterator[str]:
    """Yield every name of ours that ``--tasks`` takes: tasks, groups, tags, variants."""
    for name, task in task_files().items():
        yield from (name, *task.tags, *(made.name for made in variants_of(task, thinking=True)))
        if task.variants:
            yield name + TAG_ENDING


def _harness_index() -> TaskIndex:
    """Return the tasks of the harness itself and of plug-ins named in ``LMMS_EVAL_PLUGINS``, as it lists them."""
    folders = [folder] if (folder := harness_folder()) else []
    for plugin in filter(None, os.environ.get(_PLUGINS, "").split(",")):
        with contextlib.suppress(ImportError, ValueError):  # which the harness reports
            found = importlib.util.find_spec(f"{plugin}.tasks")
            folders += [Path(root) for root in (found and found.submodule_search_locations) or ()]
    return index_tasks(folders)


def _hint(name: str, known: Iterable[str]) -> str:
    return near_match(name, known) or "; no other name is like it"


# ---- text of patients' records ----


def _leaking_options(run: GuardedRun) -> Iterator[Notice]:
    """Refuse options that print, cache or upload text of credentialed datasets.

    The harness's samples file is safe: there our hooks overwrite the text (:mod:`medtasks.runs.logged_samples`).
    """
    private = sorted({dataset for dataset in run.datasets.values() if is_private(dataset)})
    for option, does in _leaks(run) if private else ():
        yield refuse(
            f"{option} {does}, and text of credentialed data ({listed(private)}) must not leave what this package "
            f"controls; leave the option out, or allow it by name with {LOG_TEXT_VARIABLE}={','.join(private)}"
        )


def _remote_model(run: GuardedRun) -> Iterator[Notice]:
    private = credentialed(run.datasets.values())
    if not private:
        return
    environment = dict(os.environ)
    for name, value in run.options.environment.items():  # the harness replaces variables in the file's values, too
        environment[name] = Template(value).safe_substitute(environment)
    path = class_path_of(run.options.text("model"), force_simple=run.options.flag("force_simple"))
    goes_to = planned_destinations(path, run.options.model_arguments(), environment) if path else []
    try:
        check_model(path, goes_to, private, environment)
    except ModelRefused as error:
        yield refuse(str(error))


def _stale_caches(run: GuardedRun) -> Iterator[Notice]:
    """Warn of the harness's caches, which do not see that an image or a dataset has changed."""
    if run.options.text("use_cache"):
        yield warn(
            "--use_cache finds a reply by the text of its request, so after a change of images it gives an old one, "
            "and it keeps failed replies; leave it out (our models keep a journal that tells images apart), or use a "
            "new folder for each dataset"
        )
    if run.options.text("cache_requests") in ("true", "True"):
        yield warn(
            "--cache_requests true finds prompts by the name of the task, so after a change of data it gives "
            "the old ones; leave it out, or give --cache_requests refresh"
        )


def _leaks(run: GuardedRun) -> Iterator[tuple[str, str]]:
    options = run.options
    if options.text("use_cache"):
        yield "--use_cache", "writes replies into a database"
    if options.text("cache_requests").lower() not in (*_NO, "delete"):
        yield "--cache_requests", "writes documents and prompts into a folder of the harness's installation"
    if options.flag("write_out"):
        yield "--write_out", "prints prompts and keys"
    if options.flag("wandb_log_samples"):
        yield "--wandb_log_samples", "uploads samples to Weights & Biases"
    if options.flag("swanlab_log_samples"):
        yield "--swanlab_log_samples", "uploads samples to SwanLab"
    if options.pairs("hf_hub_log_args").get("push_samples_to_hub", "").strip().lower() not in _NO:
        yield "--hf_hub_log_args push_samples_to_hub", "uploads the results folder with its samples to the Hub"
