"""Entry point of the harness's model discovery, which also makes our tasks visible.

The harness has no entry point for tasks, so the callable that it loads for models wraps the builder of the task index.
Everything here is light: the index is touched only once others have imported it.
"""

import contextlib
import fnmatch
import importlib.abc
import importlib.machinery
import inspect
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from medtasks.errors import MedTasksError
from medtasks.lmms import AUTOLOAD_VARIABLE, AnyFunction, or_warn, replace_attribute, wrap_once

_TASKS_MODULE = "lmms_eval.tasks"
_DEFAULT_MODEL = "hf"  # of the harness's command line, which has no model of this name
# Parts of a task's configuration.
_WITH_SECRETS = {"dataset_kwargs", "generation_kwargs", "lmms_eval_specific_kwargs"}
# Parts of it that may be hooks of ours.
_HOOKS = ("process_results", "doc_to_text", "doc_to_visual")
# Group of other packages' entry points: name for --model, and path of a class or function.
_ENTRY_POINTS = "medtasks.adapters"
_MODELS = {
    "adapter": "medtasks.model_adapters.any_model.Adapter",
    "hf_vlm": "medtasks.model_adapters.hf_vlm.HfVlm",
    "llava_med": "medtasks.model_adapters.llava_med.LlavaMed",
    "med_flamingo": "medtasks.model_adapters.med_flamingo.MedFlamingo",
    "medtasks_tiny": "medtasks.model_adapters.tiny.MedTasksTiny",
    "radfm": "medtasks.model_adapters.radfm.RadFM",
    "vlm_server": "medtasks.model_adapters.vlm_server.VlmServer",
}


def model_manifests() -> list[Any]:
    """Return the manifests of our model adapters and put our tasks on the harness's search path.

    Never raises: one broken plug-in would hide all others from the harness. ``MEDTASKS_AUTOLOAD=0`` turns both off.
    """
    if os.environ.get(AUTOLOAD_VARIABLE, "1") == "0":
        return []
    manifests = []
    with or_warn():
        if (module := sys.modules.get(_TASKS_MODULE)) is not None:
            extend_task_search(module)
        elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
            sys.meta_path.insert(0, _AfterImport())
        from lmms_eval.models.registry_v2 import ModelManifest

        manifests += [
            ModelManifest(model_id=name, simple_class_path=path)
            for name, path in _MODELS.items()
        ]
        if adapters := installed_adapters():
            from medtasks.model_adapters.any_model import harness_name

            for name, path in adapters.items():
                manifests.append(
                    ModelManifest(model_id=name, simple_class_path=harness_name(path))
                )
    return manifests


def installed_adapters() -> dict[str, str]:
    """Return the paths of classes and functions that installed packages offer as models, by name.

    A name that a model of ours or of the harness has is left out with a warning: it would be another model for others.
    """
    points = sorted(entry_points(group=_ENTRY_POINTS))
    if not points:
        return {}
    from lmms_eval.models import (
        AVAILABLE_CHAT_TEMPLATE_MODELS,
        AVAILABLE_SIMPLE_MODELS,
        MODEL_ALIASES,
    )

    taken = {*_MODELS, *AVAILABLE_SIMPLE_MODELS, *AVAILABLE_CHAT_TEMPLATE_MODELS}
    taken.update(*MODEL_ALIASES.values())
    adapters = {}
    for point in points:
        if point.name in taken:
            warnings.warn(
                f"the adapter '{point.name}' ({point.value}) of an installed package is left out, because another "
                f"model has this name; rename its entry point, or uninstall one of the packages",
                stacklevel=2,
            )
        else:
            adapters[point.name] = point.value
            taken.add(point.name)
    return adapters


class _AfterImport(importlib.abc.MetaPathFinder):
    """Makes our tasks visible right after the first import of the harness's, so that we need not import them."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the harness's tasks with a loader that adds ours, None for any other module."""
        if fullname != _TASKS_MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_then_extend(module: ModuleType) -> None:
            execute(module)
            extend_task_search(module)

        spec.loader.exec_module = execute_then_extend  # type: ignore[method-assign]  # of this one loader
        return spec


def extend_task_search(module: ModuleType) -> None:
    """Wrap the index builder: our folder comes after the harness's and the user's, and only with the defaults.

    Loading of documents is wrapped, too, so that a user's own are checked for the columns that our hooks need before
    the harness builds a prompt of the first one: a missing column would be a ``KeyError`` of some hook. It never
    raises: what does not fit this version of the harness becomes a warning.

    Args:
        module: ``lmms_eval.tasks``.
    """
    with or_warn():
        manager = module.TaskManager
        signature = inspect.signature(manager.initialize_tasks)
        missing = {"include_path", "include_defaults"} - signature.parameters.keys()
        if missing:
            raise TypeError(
                f"TaskManager.initialize_tasks lacks {' and '.join(sorted(missing))}"
            )
        if not wrap_once(manager, "match_tasks", _match_without_variants):
            return
        wrap_once(manager, "initialize_tasks", _index_ours)
        with or_warn(
            "check the documents of your own tasks with",
            "a missing column will be a KeyError; use lmms-eval 0.7.3",
        ):
            if hasattr(module, "ConfigurableTask"):
                wrap_once(module.ConfigurableTask, "download", download_and_check)


def _index_ours(build: AnyFunction, *args: Any, **kwargs: Any) -> Any:
    """Index our tasks, few-shot twins and variants too, after those of the harness and of the user's folders."""
    from medtasks.home import own_tasks_folders
    from medtasks.runs.redaction import redact_log
    from medtasks.tasks.task_files import installed_tasks
    from medtasks.tasks.task_index import tasks_folder

    _guard_evaluation()
    redact_log()
    call = inspect.signature(build).bind(*args, **kwargs)
    call.apply_defaults()
    with_defaults = call.arguments["include_defaults"]
    chosen = call.arguments["include_path"]
    folders = [chosen] if isinstance(chosen, str) else list(chosen or [])
    failure: Exception | None = None
    if with_defaults:
        try:
            ours = [tasks_folder(), *own_tasks_folders(), *installed_tasks()]
            call.arguments["include_path"] = [*folders, *map(str, ours)]
            index = build(*call.args, **call.kwargs)
        except Exception as error:  # noqa: BLE001
            failure = error
            index = build(*args, **kwargs)  # the user's own error is raised here, as without us
    else:  # the files alone count, twins included
        index = build(*args, **kwargs)
        folders = []
    if failure is not None:
        with or_warn():
            raise failure
    elif isinstance(index, dict):
        variants = "the variants of its tasks (_blind, _rotated, _nota, _think and others)"
        with or_warn(f"add {variants} to", "all other tasks are there"):
            from medtasks.tasks.task_files import include, index_entries

            include([Path(folder) for folder in folders if os.path.isdir(folder)])
            index.update(index_entries(index, sanity=with_defaults))
    return index


def _match_without_variants(
    match: AnyFunction,
    manager: Any,
    task_list: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Leave out variants that a pattern such as ``medi*`` matches only because it matches everything about a task.

    All names stay if they cannot be told apart.
    """
    names = match(manager, task_list, *args, **kwargs)
    patterns = [task_list] if isinstance(task_list, str) else task_list
    with contextlib.suppress(Exception):  # a pattern is not worth a failed run
        from medtasks.tasks.task_files import VARIANT_OF

        chosen = []
        for name in names:
            base = manager.task_index[name].get(VARIANT_OF)
            any_variant = f"{base}_\0"
            matching = [pattern for pattern in patterns if fnmatch.fnmatch(name, pattern)]
            is_vague = all(fnmatch.fnmatch(any_variant, pattern) for pattern in matching)
            if base is None or not is_vague:
                chosen.append(name)
        return chosen
    return names


def download_and_check(
    download: AnyFunction,
    task: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Check that a task's documents exist, let the harness load them, check them, and add the columns that follow.

    The harness would hide a dataset of ours that is not prepared, and a variant that its data do not allow.
    Prepared documents, those that are read in streams and those of others' hooks are left as they are.

    Raises:
        MedTasksError: A column is missing or holds something else.
    """
    _guard_evaluation()  # again, for an index made before the evaluator is imported
    import datasets

    from medtasks.data.dataset_lookup import prepared_folder
    from medtasks.data.variants import NOT_OF_ALL
    from medtasks.home import dataset_holding
    from medtasks.lmms.prompt_family import choose_blocks
    from medtasks.tasks.documents import check_possible
    from medtasks.tasks.own_documents import is_our_hook, own_tables
    from medtasks.tasks.question_files import private_copies
    from medtasks.tasks.task_files import task_config, task_file, task_files, variant_of

    choose_blocks(task)
    config = vars(task.config)
    name = str(task.config.task)
    path = config.get("dataset_path")
    dataset = dataset_holding(Path(path)) if isinstance(path, str) else None
    if dataset:
        prepared_folder(dataset)
    base, variant = variant_of(name) or (name, "")
    if variant in NOT_OF_ALL:
        check_possible(task_file(name))
    if not any(is_our_hook(config.get(key)) for key in _HOOKS):
        with private_copies(config):
            return download(task, *args, **kwargs)
    # A user's own files, and a relative ``image_root``, are looked for next to the task's file.
    file = task_files().get(base)
    tables = own_tables(task_config(file.name) if file else config)
    load = (lambda *_, **__: tables) if tables else datasets.load_dataset
    with private_copies(config), replace_attribute(datasets, "load_dataset", load):
        result = download(task, *args, **kwargs)
    if file:
        _set_image_roots(task, file.path.parent)
    if not dataset:
        _complete(task)
    return result


def _set_image_roots(task: Any, folder: Path) -> None:
    """Make a relative ``image_root`` in the settings of a harness's task one below the folder of the task's file."""
    from medtasks.tasks.task_index import SETTINGS, with_image_roots

    for holder in (task.config, task):  # the task has its model's settings already
        settings = getattr(holder, SETTINGS, None)
        if settings is not None:
            setattr(holder, SETTINGS, with_image_roots({SETTINGS: settings}, folder)[SETTINGS])


def _complete(task: Any) -> None:
    """Check a user's own documents, and add the columns that follow, unless they are read in a stream."""
    import datasets

    from medtasks.tasks.own_documents import complete_documents, without_media
    from medtasks.tasks.question_files import split_of

    config = vars(task.config)
    split = split_of(config)
    table = task.dataset.get(split)
    if isinstance(table, datasets.Dataset):
        task.dataset[split] = complete_documents(table, config)
        if task.dataset_no_image is not task.dataset:
            task.dataset_no_image[split] = without_media(task.dataset[split])


def _guard_evaluation() -> None:
    """Wrap the evaluation of our tasks.

    By now the evaluator, if there is one, has been imported completely.
    """
    module = sys.modules.get("lmms_eval.evaluator")
    if module is None:
        return
    with or_warn(
        "watch over",
        "replies that failed may be scored, and credentialed data may be sent to any model; use lmms-eval 0.7.3",
    ):
        from medtasks.lmms.evaluation import guard_evaluation

        guard_evaluation(module)
        wrap_once(module, "simple_evaluate", _check_and_redact)


def _check_and_redact(evaluate: AnyFunction, *args: Any, **kwargs: Any) -> Any:
    """Look for the judges of our tasks before the harness loads the model, which may take minutes.

    The results and the arguments, which the harness prints next to the scores, are redacted. Raises JudgeNotConfigured,
    or JudgeRefused where a judge may not see the data, and MedTasksError if no model is named.
    """
    from medtasks.lmms.prompt_family import asked_as_family
    from medtasks.runs.redaction import redacted_values
    from medtasks.tasks.documents import check_judge

    call = inspect.signature(evaluate).bind(*args, **kwargs)
    tasks = _members(call.arguments)
    for task in tasks:
        check_judge(task)
    try:
        with asked_as_family(call.arguments):
            results = evaluate(*call.args, **call.kwargs)
    except ValueError as error:
        if tasks and str(error).startswith(f"Model '{_DEFAULT_MODEL}' not found"):
            raise MedTasksError(
                "lmms_eval needs a model: name one with --model, such as --model medtasks_tiny to try an installation"
            ) from None
        raise
    if isinstance(results, dict):
        results["config"] = redacted_values(results.get("config"))
        for config in results.get("configs", {}).values():
            for name in _WITH_SECRETS & config.keys():
                config[name] = redacted_values(config[name])
        arguments = call.arguments.get("cli_args")
        for name in ("model_args", "gen_kwargs"):
            if hasattr(arguments, name):
                setattr(arguments, name, redacted_values(getattr(arguments, name)))
    return results


def _members(arguments: dict[str, Any]) -> list[Any]:
    """Return the tasks of ours that a call asks for, as far as their names and files can be read.

    The harness reports those that cannot. Where it took a name for that of a folder, ``arguments`` get the name.
    """
    tasks: list[Any] = []
    with contextlib.suppress(Exception):
        from medtasks.tasks.task_files import members_of

        named = getattr(arguments.get("cli_args"), "tasks", None)
        if isinstance(named, str) and os.path.isdir(named) and members_of(named):
            # The harness took the name for that of a folder of task files, which is here, too.
            arguments["tasks"] = [named]
        for name in arguments["tasks"]:
            tasks += members_of(name)
    return tasks
