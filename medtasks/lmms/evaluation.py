"""The harness's evaluation of our tasks: checks before the first request, a sentence on failures after it.

The harness has no hooks for either, so its ``evaluate`` is wrapped. A run without any task of ours is left as it is,
but for the journal that a user asks for, and a shard, which asks a part of the rows.
"""

import contextlib
import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from types import ModuleType
from typing import Any

from medtasks.data.privacy import is_private
from medtasks.data.shards import Shard
from medtasks.errors import listed
from medtasks.home import dataset_holding
from medtasks.lmms.harness_process import end_after, say
from medtasks.lmms.shard_requests import asking_only, mark, mark_tables, refuse_other_parts
from medtasks.lmms.wrapped_functions import AnyFunction, wrap_once
from medtasks.runs.logged_samples import SCORED_TASK, without_scoring
from medtasks.runs.result_files import SERVED_MODEL
from medtasks.runs.sample_counts import counts_of
from medtasks.tasks.own_documents import is_our_hook
from medtasks.tasks.task_files import main_metrics_first

_UNDER_AGENT = "TORCHELASTIC_RUN_ID"  # set by torchrun, and by accelerate where it starts several processes


def guard_evaluation(module: ModuleType) -> None:
    """Wrap ``evaluate`` of the harness's evaluator, or of lm-eval's, once.

    Raises AttributeError or TypeError where this version of the harness has no such function.
    """
    missing = {"lm", "task_dict"} - inspect.signature(module.evaluate).parameters.keys()
    if missing:
        raise TypeError(f"{module.__name__}.evaluate lacks {' and '.join(sorted(missing))}")
    wrap_once(module, "evaluate", _guarded)


def _guarded(evaluate: AnyFunction) -> AnyFunction:
    signature = inspect.signature(evaluate)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        lm, tasks = call.arguments["lm"], dict(_tasks(call.arguments["task_dict"]))
        _withhold_without_scoring(tasks.values())
        ours = {
            name: task for name, task in tasks.items() if is_our_hook(getattr(task.config, "process_results", None))
        }
        shard = Shard.from_environment()
        refuse_other_parts(shard, evaluate, call.arguments)
        datasets = _datasets(tasks, ours)
        from medtasks.lmms.private_calls import private_calls
        from medtasks.lmms.remote_models import refuse_remote_model
        from medtasks.lmms.server_journal import journaled

        refuse_remote_model(lm, datasets)
        if hasattr(lm, "quote_errors"):
            lm.quote_errors(allowed=not any(map(is_private, datasets)))
        try:
            with private_calls(lm, datasets), journaled(lm), asking_only(shard, tasks) as rows, _watching(lm, ours):
                results = evaluate(*args, **kwargs)
        except Exception as error:
            if _UNDER_AGENT not in os.environ:
                raise
            # The harness would end with 0, which torchrun takes for success: the other processes would wait in vain.
            end_after(error, debug=call.arguments.get("verbosity") == "DEBUG")
        if ours:  # but for shards, which share images, so that their counts would not add up
            _record_images(results, ours if shard is None else {})
        if results is not None:  # only the first of several processes has them
            if shard is not None:
                mark(results, shard, rows)
            if facts := getattr(lm, "facts", None):  # of a served model of ours: what its server says of itself
                results[SERVED_MODEL] = dict(facts)
            if remark := getattr(lm, "remark", ""):  # of a model of ours, on what its scores are worth
                mark_tables(results, remark)
            if ours:
                _say_what_was_lost(results.get("results") or {}, ours)
                put_main_metrics_first(results)
        return results

    return guarded


def _withhold_without_scoring(tasks: Iterable[Any]) -> None:
    """Give tasks of which only replies are collected (``--predict_only``) a hook that keeps patients' text out of logs.

    The harness has dropped theirs for its metric ``bypass``.
    """
    for task in tasks:
        if [entry.get("metric") for entry in getattr(task.config, "metric_list", None) or ()] == ["bypass"]:
            task.config.process_results = without_scoring


@contextlib.contextmanager
def _watching(lm: Any, ours: Mapping[str, Any]) -> Iterator[None]:
    """Mark failed replies to our tasks, and name the task whose replies are scored."""
    if not ours:
        yield
        return
    from medtasks.lmms.earlier_replies import KeptReplies
    from medtasks.lmms.model_failures import replaced, watched

    def naming(name: str, score: AnyFunction) -> AnyFunction:
        def process_results(*args: Any, **kwargs: Any) -> Any:
            before = SCORED_TASK.set(name)
            try:
                return score(*args, **kwargs)
            finally:
                SCORED_TASK.reset(before)

        return process_results

    with contextlib.ExitStack() as stack:
        for name, task in ours.items():
            if hasattr(task, "process_results"):
                stack.enter_context(replaced(task, "process_results", naming(name, task.process_results)))
        stack.enter_context(watched(lm, ours, KeptReplies.from_environment(ours)))
        yield


def _datasets(tasks: Mapping[str, Any], ours: Mapping[str, Any]) -> set[str]:
    paths = [getattr(task.config, "dataset_path", None) for task in tasks.values()]
    datasets = {name for path in paths if isinstance(path, str) and (name := dataset_holding(Path(path)))}
    return datasets | {str(name) for task in ours.values() for name in _named(task) if name}


def _tasks(task_dict: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, task in task_dict.items():
        found = task[1] if isinstance(task, tuple) else task
        if isinstance(found, Mapping):
            yield from _tasks(found)
        elif getattr(found, "config", None) is not None:
            yield str(name), found


def _named(task: Any) -> set[Any]:
    """Return the datasets that the documents of a task of ours name, and the one in its file."""
    documents: Any = getattr(task, "eval_docs_no_media", ())
    if hasattr(documents, "unique"):  # of the datasets library, which need not read a row to tell
        named = set(documents.unique("dataset")) if "dataset" in documents.column_names else set()
    else:
        named = {document.get("dataset") for document in documents}
    return named | {(getattr(task.config, "metadata", None) or {}).get("dataset")}


def _say_what_was_lost(results: Mapping[str, Mapping[str, Any]], tasks: Iterable[str]) -> None:
    found = {name: counts for name in tasks if name in results and (counts := counts_of(results[name]))}
    lost = [f"{name}: {counts}" for name, counts in found.items() if counts.lost]
    if lost:
        say(f"samples without a reply or a verdict are in no score. {'; '.join(lost)}.")


def _record_images(results: Mapping[str, Any] | None, tasks: Mapping[str, Any]) -> None:
    """Count in the results of tasks without a prepared dataset what was done with images; warn of nearly flat ones."""
    from torch import distributed

    from medtasks.data.dataset_manifest import counted_conversions
    from medtasks.data.images.decoding import NEARLY_FLAT
    from medtasks.prompts.images import OPENED, image_keys

    opened = dict(OPENED)
    OPENED.clear()
    if distributed.is_initialized():
        parts: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(parts, opened)
        opened = {key: image for part in parts for key, image in part.items()}
    if results is None or not opened:
        return
    if flat := [image.name for image in opened.values() if NEARLY_FLAT in image.conversions]:
        say(f"{len(flat)} of {len(opened)} images are {NEARLY_FLAT} ({listed(flat)})")
    for name, task in tasks.items():
        config = results.get("configs", {}).get(name, {})
        metadata = config.get("metadata") or {}
        if "data" not in metadata and (keys := (shown := image_keys(task)) & opened.keys()):
            rules = sorted({decoding.rule for _, decoding in keys})
            counts = counted_conversions(opened[key].conversions for key in keys)
            if unopened := len(shown - keys):  # such as those of replies that an earlier run has
                counts["not opened in this run"] = unopened
            config["metadata"] = {**metadata, "data": {"image_rule": " and ".join(rules), "image_conversions": counts}}


def put_main_metrics_first(results: MutableMapping[str, Any]) -> None:
    """Let the keys of rows of a run's results sort by the place of their metric in the task's list, not by alphabet.

    The harness sorts the table that it prints. Only a key's order changes: what is written, and what finds a value, is
    the same text.
    """
    for column in ("results", "groups"):
        if column in results:
            results[column] = {task: _placed(task, row) for task, row in results[column].items()}


class _Key(str):
    __slots__ = ("place",)
    place: int

    def __lt__(self, other: str) -> bool:
        mine, theirs = self.place, getattr(other, "place", self.place)
        return mine < theirs if mine != theirs else str(self) < str(other)


def _placed(task: str, row: Mapping[str, Any]) -> dict[str, Any]:
    metrics = sorted({key.partition(",")[0] for key in row})
    places = {metric: place for place, metric in enumerate(main_metrics_first(task, metrics))}
    placed: dict[str, Any] = {}
    for name, value in row.items():
        key = _Key(name)
        key.place = places[name.partition(",")[0]]
        placed[key] = value
    return placed
