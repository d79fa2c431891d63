"""How the harness asks a shard: all of its tasks, ours or not, build the requests of their rows in it and no others.

The harness's own ``--offset`` and ``--limit`` are one value for all tasks. Its loop over documents passes over those
without a request, so that rows keep their numbers, on every rank.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

from medtasks.data.shards import SHARD_VARIABLE, Shard, clusters_of
from medtasks.errors import MedTasksError, listed
from medtasks.home import dataset_holding
from medtasks.lmms.harness_process import say
from medtasks.tasks.own_documents import is_our_hook

_PADDING = "__padding_only__"  # by which the harness and adapters know a request whose reply nobody wants
_NO_ROW = -1


@contextlib.contextmanager
def asking_only(shard: Shard | None, tasks: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Let the harness's tasks ask only the rows of a shard within the block; yield how many of each task these are.

    Without a shard nothing changes, and there is nothing to yield.
    """
    chosen = {} if shard is None else {name: frozenset(shard.rows(_clusters(task))) for name, task in tasks.items()}
    for name, rows in chosen.items():
        tasks[name].build_all_requests = partial(_build, tasks[name], tasks[name].build_all_requests, rows)
    try:
        yield {name: len(rows) for name, rows in chosen.items()}
    finally:
        for name in chosen:
            del tasks[name].build_all_requests


def refuse_other_parts(shard: Shard | None, evaluate: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Refuse what chooses rows, too, where the harness is told so without ``medtasks run``, which refuses it earlier.

    MedTasksError also where the evaluation is lm-eval's, which has no place for shards.
    """
    if shard is None:
        return
    if not evaluate.__module__.startswith("lmms_eval."):
        raise MedTasksError(f"{SHARD_VARIABLE}={shard} is for runs of lmms_eval; unset it for lm_eval")
    if arguments.get("limit") not in (None, -1) or arguments.get("offset") or arguments.get("cache_requests"):
        raise MedTasksError(
            f"{SHARD_VARIABLE}={shard} chooses the rows, so that --limit, --offset and --cache_requests have to go"
        )


def mark_tables(results: Mapping[str, Any], text: str) -> None:
    """Put a remark behind the names in the harness's tables."""
    for row in (row for column in ("results", "groups") for row in results.get(column, {}).values() if "alias" in row):
        row["alias"] = f"{row['alias']} [{text}]"


def mark(results: MutableMapping[str, Any], shard: Shard, rows: Mapping[str, int]) -> None:
    """Say in the harness's results that they are a shard's: in the names of its tables, and the rows asked by task."""
    mark_tables(results, f"SHARD {shard}")
    for task, count in rows.items():
        results["n-samples"][task]["effective"] = count
    empty = [task for task, count in rows.items() if not count]
    none = f", and there is none of {listed(empty)}" if empty else ""
    say(
        f"this is shard {shard}: its scores are of {sum(rows.values())} rows alone{none}; join all {shard.count} with: "
        f"medtasks merge OUT SHARD..."
    )


def _clusters(task: Any) -> list[int]:
    """Return what must stay together in a task of ours or on our data; of others nobody knows."""
    documents, path = task.eval_docs_no_media, getattr(task.config, "dataset_path", None)
    on_our_data = isinstance(path, str) and dataset_holding(Path(path)) is not None
    if on_our_data or is_our_hook(getattr(task.config, "process_results", None)):
        return clusters_of(documents)
    return list(range(len(documents)))


def _build(task: Any, build_all: Callable[..., None], rows: Collection[int], **options: Any) -> None:
    """Build the requests of this rank's rows in the shard; a rank without any pads, as in the harness.

    A task without any on all ranks has no requests: the harness's own function would raise.
    """
    task._instances = []
    if not rows:
        return
    build_all(**options)
    mine = [one for one in task._instances if one.doc_id in rows and not (one.metadata or {}).get(_PADDING)]
    if not mine:
        first = task._instances[0].doc_id
        mine = [one for one in task._instances if one.doc_id == first]
        for one in mine:
            one.metadata, one.doc_id = {**(one.metadata or {}), _PADDING: True}, _NO_ROW
    task._instances = mine
