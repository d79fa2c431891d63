"""What stands around the harness's evaluation of our tasks: checks before the first request, a word on failures after.

The harness has no hooks for either, so its ``evaluate`` is wrapped. A run without any task of ours is left as it is.
"""

import atexit
import contextlib
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from medtasks.answers.failure import failure_cause
from medtasks.harness.result_table import order_table
from medtasks.harness.sample_counts import counts_of

_MARK = "_medtasks_guarded"
MODULE = "lmms_eval.evaluator"


def guard_evaluation(module: ModuleType) -> None:
    """Wrap ``evaluate`` of :data:`MODULE`, once.

    Raises:
        AttributeError: This version of the harness has no such function.
        TypeError: It takes other arguments.
    """
    evaluate = module.evaluate
    if getattr(evaluate, _MARK, False):
        return
    signature = inspect.signature(evaluate)
    missing = {"lm", "task_dict"} - signature.parameters.keys()
    if missing:
        raise TypeError(f"lmms_eval.evaluator.evaluate lacks {' and '.join(sorted(missing))}")

    @functools.wraps(evaluate)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        tasks = dict(_ours(call.arguments["task_dict"]))
        if not tasks:
            return evaluate(*args, **kwargs)
        with _checked(call.arguments["lm"], tasks):
            results = evaluate(*args, **kwargs)
        if results is not None:  # only the first of several processes has them
            _say_last(results.get("results") or {}, tasks)
        return results

    setattr(guarded, _MARK, True)
    vars(module)["evaluate"] = guarded
    _keep_failures_out_of(module)
    with contextlib.suppress(AttributeError):  # its order is not worth a warning
        order_table(module)


@contextlib.contextmanager
def _checked(lm: Any, tasks: Mapping[str, Any]) -> Iterator[None]:
    """Refuse what must not run before the first request is built, and mark the model's failures within the block."""
    from medtasks.harness.few_shot import refuse_examples
    from medtasks.harness.kept_replies import KeptReplies
    from medtasks.harness.models import watched
    from medtasks.harness.remote_models import refuse_remote_model

    refuse_examples(tasks)
    refuse_remote_model(lm, {name: dataset for name, task in tasks.items() if (dataset := _dataset(task))})
    with watched(lm, tasks, KeptReplies.from_environment(tasks)):
        yield


def _ours(task_dict: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the tasks that are scored by our hooks, those in groups included."""
    for name, task in task_dict.items():
        found = task[1] if isinstance(task, tuple) else task
        if isinstance(found, Mapping):
            yield from _ours(found)
        elif str(getattr(_hook(found), "__module__", "")).startswith("medtasks."):
            yield str(name), found


def _hook(task: Any) -> Any:
    return getattr(getattr(task, "config", None), "process_results", None)


def _dataset(task: Any) -> str | None:
    """Return the dataset that a task's documents name, else its file; None where they were not prepared here."""
    documents = task.eval_docs_no_media
    named = documents[0].get("dataset") if len(documents) else None
    return str(found) if (found := named or (task.config.metadata or {}).get("dataset")) else None


def _say_last(results: Mapping[str, Mapping[str, Any]], tasks: Iterable[str]) -> None:
    """Print which tasks lost samples when the process ends: behind the harness's tables, where it is read."""
    found = {name: counts for name in tasks if name in results and (counts := counts_of(results[name]))}
    lost = [f"{name}: {counts}" for name, counts in found.items() if counts.lost]
    if lost:
        sentence = f"medtasks: samples without a reply or a verdict are in no score. {'; '.join(lost)}."
        atexit.register(_print, sentence)


def _print(sentence: str) -> None:
    with contextlib.suppress(ValueError):  # somebody has closed the stream
        print(sentence, file=sys.stderr, flush=True)  # noqa: T201


def _keep_failures_out_of(module: ModuleType) -> None:
    """Have the harness's ``--use_cache`` ask again for what failed, instead of keeping the mark as a reply."""
    cache = getattr(module, "ResponseCache", None)
    is_valid = getattr(cache, "_is_valid_response", None)
    if cache is None or is_valid is None:
        return

    def is_valid_reply(response: Any, request_type: str) -> bool:
        text = getattr(response, "text", response)
        failed = isinstance(text, str) and failure_cause(text) is not None
        return not failed and bool(is_valid(response, request_type))

    cache._is_valid_response = staticmethod(is_valid_reply)
