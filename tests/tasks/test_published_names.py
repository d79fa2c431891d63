"""The dotted names that task files use: all of them resolve, also through Python's own imports."""

import importlib
import pickle

import pytest

from medtasks.families.family_registry import HOOKS, NAMED, family_of
from medtasks.hooks import published
from medtasks.tasks.task_files import task_config, task_files
from medtasks.tasks.task_index import DottedName, resolved

from ..tables import each_row


def dotted_names(value):
    if isinstance(value, DottedName):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from dotted_names(one)


def test_every_name_of_every_task_resolves():
    used = {name for task in task_files() for name in dotted_names(dict(task_config(task)))}
    assert len(used) > 40
    for name in used:
        assert name.startswith("medtasks.")
        module, _, attribute = name.rpartition(".")
        value = getattr(importlib.import_module(module), attribute)
        if name.startswith(HOOKS):
            assert value == name.resolve()
            assert callable(value) or isinstance(value, list)


@each_row("hook", [f"{HOOKS}{name}" for name in NAMED])
def test_a_hook_its_metric_list_and_single_aggregations(hook):
    name, _, attribute = hook.rpartition(".")
    module = importlib.import_module(name)
    process = getattr(module, attribute)
    assert (process.__module__, process.__name__) == (name, attribute)
    if attribute == "process_likelihoods":
        metrics = module.LIKELIHOOD_METRIC_LIST
    elif name.endswith(".reports"):
        metrics = module.REPORT_METRICS if attribute == "process_results" else module.MULTIMEDEVAL_METRICS
    else:
        metrics = module.METRIC_LIST
    own = {metric.name for metric in family_of(hook).metrics}
    assert {entry["metric"].removesuffix("_stderr") for entry in metrics} == own
    assert resolved(metrics) is not None
    if not name.endswith(".reports"):
        assert all(getattr(module, entry["metric"]).__name__ == entry["metric"] for entry in metrics)


def test_scoring_by_published_names():
    choice = importlib.import_module("medtasks.hooks.choice")
    doc = {"options": ["x", "y"], "answer": "B", "image_id": None}
    samples = [choice.process_results({"doc_id": reply, **doc}, [reply]) for reply in ("B", "(a)")]
    scores = pickle.loads(pickle.dumps([sample["accuracy"] for sample in samples]))  # as from another rank
    assert (choice.accuracy(scores), choice.accuracy_stderr(scores), choice.invalid_rate(scores)) == (0.5, 0.5, 0.0)
    for entry in choice.METRIC_LIST:
        assert entry["aggregation"](scores) == getattr(choice, entry["metric"])(scores)


@each_row("name", ["choice.no_such", "pairs.accuracy", "nobody.METRIC_LIST", "reports.METRIC_LISTS"])
def test_a_name_that_nobody_published(name):
    with pytest.raises(AttributeError, match=r"there is no medtasks\.hooks"):
        published(f"{HOOKS}{name}")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("medtasks.hooks.nobody")
