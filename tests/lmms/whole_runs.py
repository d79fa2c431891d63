"""Whole runs of the harness, in this process or in two, and models that say what a test wants."""

import functools
import gc
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from medtasks.home import own_tasks_folder
from medtasks.lmms.remote_models import TRUSTED
from medtasks.tasks.task_files import tagged_tasks, task_config, task_file, variant_of
from medtasks.tasks.task_index import resolve_names, tasks_folder

from ..processes import LEAVE, on_two_processes

TINY = {"model_args": "journal=false,weights=random", "batch_size": 32, "device": "cpu"}

EVALUATE = (
    """
import json, os, sys
import torch
torch.set_num_threads(1)
import lmms_eval.models
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager
from medtasks.home import own_tasks_folder
from medtasks.tasks.task_index import tasks_folder
manager = TaskManager(include_path=[str(tasks_folder()), str(own_tasks_folder())], include_defaults=False)
runs = []
for tasks, options, variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    results = simple_evaluate(model="medtasks_tiny", tasks=tasks, task_manager=manager, **options)
    rows = {} if results is None else results["results"]
    runs.append({task: {key: repr(value) for key, value in row.items()} for task, row in rows.items()})
if results is not None:
    json.dump(runs, open(sys.argv[2], "w"))
"""
    + LEAVE
)


@functools.cache
def harness() -> Any:
    """Import the harness, which collects garbage after each run: what is there by now is left out of that."""
    import lmms_eval.models  # noqa: F401  # the command line imports it first, too
    from lmms_eval import evaluator

    gc.collect()
    gc.freeze()
    return evaluator


@functools.cache
def every_task() -> Any:
    """Return the harness's task index with its own tasks and our variants, which takes seconds to read."""
    harness()
    from lmms_eval.tasks import TaskManager

    return TaskManager()


def evaluate(
    tasks: Sequence[str],
    model: Any = "medtasks_tiny",
    *,
    include: Path | None = None,
    model_name: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Run tasks in this process: ours and those of the user's datasets, or with all of the harness's those of a folder.

    A model that is given as an object gets the prompts of the model of some name.
    """
    evaluator = harness()
    from lmms_eval.tasks import TaskManager

    paths = [str(include)] if include else [str(tasks_folder()), str(own_tasks_folder())]
    if include is None and any(variant_of(name) or tagged_tasks(name) for name in tasks):
        manager = every_task()
    else:
        manager = TaskManager(
            include_path=paths, include_defaults=include is not None, model_name=model_name
        )
    named = TINY if isinstance(model, str) else {}
    with pytest.MonkeyPatch.context() as patch:
        if (
            not isinstance(model, str) and TRUSTED not in os.environ
        ):  # unknown models get no credentialed data
            patch.setenv(TRUSTED, f"class:{type(model).__module__}.{type(model).__qualname__}")
        # Looked up now that the manager is built, with which ours wraps it.
        return dict(
            evaluator.simple_evaluate(
                model=model, tasks=list(tasks), task_manager=manager, **{**named, **options}
            )
        )


@functools.cache
def _tiny() -> Any:
    from medtasks.model_adapters.tiny import MedTasksTiny

    return MedTasksTiny(device="cpu", journal=False)


def answer_questions(folder: Path, max_new_tokens: int) -> None:
    """Answer the questions in a folder with the tiny model, as a loop of a user's own does."""
    from medtasks.model_adapters.base.batching import read_settings

    model = _tiny()
    replies = []
    for line in map(json.loads, (folder / "questions.jsonl").read_text().splitlines()):
        settings = read_settings({**line["generation"], "max_new_tokens": max_new_tokens}, 1)
        prompt = model.encode(
            line["text"], [Image.open(folder / name) for name in line["images"]]
        )
        (reply,) = model.generate_batch([prompt], settings, 0)
        replies.append(json.dumps({"doc_id": line["doc_id"], "reply": str(reply)}) + "\n")
    (folder / "replies.jsonl").write_text("".join(replies))


Run = tuple[Sequence[str], Mapping[str, Any], Mapping[str, str]]
"""Tasks, options and environment variables."""


def on_two(folder: Path, *runs: Run) -> list[dict[str, dict[str, str]]]:
    """Return the results of runs of the tiny model on two processes, each value as ``repr`` gives it."""
    out = folder / "two.json"
    jobs = [(list(tasks), {**TINY, **options}, variables) for tasks, options, variables in runs]
    on_two_processes(EVALUATE, folder, json.dumps(jobs), str(out))
    values: list[dict[str, dict[str, str]]] = json.loads(out.read_text())
    return values


def values(results: Mapping[str, Any], task: str) -> dict[tuple[str, str], float]:
    """Return every metric in every row of a task; the harness's own extra columns are left out."""
    names = [entry["metric"] for entry in resolve_names(task_config(task)["metric_list"])]
    rows = task_file(task).rows
    assert {key.partition(",")[2] for key in results["results"][task] if "," in key} == set(
        rows
    )
    return {
        (name, row): results["results"][task][f"{name},{row}"] for name in names for row in rows
    }


def answering(
    say: Callable[[Any], str], loss: Callable[[Any, int], float] | None = None
) -> Any:
    """Return a model that replies to documents, and remembers a request's arguments by task; options have a loss."""
    from lmms_eval.api.model import lmms

    class Answering(lmms):  # type: ignore[misc]  # the harness has no types
        arguments: dict[str, Any]
        marks_replies = True  # a reply may be a failure of ours

        def generate_until(self, requests: Any) -> list[str]:
            self.arguments = {request.args[4]: request.args for request in requests}
            return [say(self.document(*request.args)) for request in requests]

        def loglikelihood(self, requests: Any) -> list[tuple[float, bool]]:
            assert loss is not None
            return [
                (loss(self.document(*request.args), request.idx), False) for request in requests
            ]

        def document(self, *args: Any) -> Any:
            return self.task_dict[args[4]][args[5]][args[3]]

        def generate_until_multi_round(self, requests: Any) -> Any:
            raise NotImplementedError

    return Answering()
