"""Whole runs of MedHEval's closed tasks on its sets in miniature."""

import json
import math
from typing import Any

import pytest

from medtasks.families.counts import COUNTS
from medtasks.harness.task_files import task_config, task_file
from medtasks.harness.task_index import resolved, tasks_folder

from .. import medheval_sources as sources
from ..model_adapters.test_two_processes import LEAVE, on_two_processes

pytestmark = pytest.mark.slow

LIKELIHOOD = [f"{name}_ll" for name in sources.CLOSED]
TASKS = [*sources.CLOSED, *LIKELIHOOD]
TINY = {"model_args": "journal=false", "batch_size": 8, "device": "cpu", "gen_kwargs": "max_new_tokens=4"}

EVALUATE = (
    """
import json, sys
import torch
torch.set_num_threads(1)
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager
from medtasks.harness.task_index import tasks_folder
tasks, options = map(json.loads, sys.argv[1:3])
manager = TaskManager(include_path=str(tasks_folder()), include_defaults=False)
results = simple_evaluate(model="medtasks_tiny", tasks=tasks, task_manager=manager, **options)
if results is not None:
    found = {task: {key: repr(value) for key, value in row.items()} for task, row in results["results"].items()}
    json.dump(found, open(sys.argv[3], "w"))
"""
    + LEAVE
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """All six sets in miniature, prepared once."""
    folder = tmp_path_factory.mktemp("medheval")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(folder / "home"))
        sources.prepare_all(folder)
    return folder / "home"


@pytest.fixture
def _prepared(home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(home))


@pytest.fixture(scope="module")
def evaluate():
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager

    def run(tasks, model, **options: Any) -> dict[str, Any]:
        manager = TaskManager(include_path=str(tasks_folder()), include_defaults=False)
        return simple_evaluate(model=model, tasks=list(tasks), task_manager=manager, **options)

    return run


@pytest.fixture(scope="module")
def knowing():
    """A model that answers with the right bare letter, or yes and no, and prefers the right option."""
    from lmms_eval.api.model import lmms

    class Knowing(lmms):
        def generate_until(self, requests):
            return [self._said(self.task_dict[r.args[4]][r.args[5]][r.args[3]]) for r in requests]

        def _said(self, doc):
            if doc["kind"] == "binary":
                return {"A": "Yes", "B": "No", None: "Yes"}[doc["answer"]]
            return doc["answer"] or "A"

        def loglikelihood(self, requests):
            docs = [self.task_dict[r.args[4]][r.args[5]][r.args[3]] for r in requests]
            return [
                (0.5 if doc["answer"] == "ABCDEF"[request.idx] else 2.0, False)
                for doc, request in zip(docs, requests, strict=True)
            ]

        def generate_until_multi_round(self, requests):
            raise NotImplementedError

    return Knowing


def values(results, task):
    names = [entry["metric"] for entry in resolved(task_config(task)["metric_list"])]
    return {(name, rule): results["results"][task][f"{name},{rule}"] for name in names for rule in task_file(task).rows}


@pytest.mark.usefixtures("_prepared")
def test_a_real_model_runs_every_closed_task(evaluate):
    results = evaluate(TASKS, "medtasks_tiny", **TINY)
    for task in TASKS:
        records = sources.RECORDS[task.removesuffix("_ll")]
        assert results["n-samples"][task]["effective"] == len(records)
        assert results["results"][task]["alias"] == task
        for (metric, rule), value in values(results, task).items():
            if metric in COUNTS:
                assert value == (len(records) if metric == "scored_samples" else 0), (task, metric, rule)
                continue
            undefined = math.isnan(value) and (metric.startswith("acc_") or metric.endswith("_stderr"))
            assert undefined or 0 <= value <= 1, (task, metric, rule)
    data = results["configs"]["medheval_visual_mm"]["metadata"]["data"]
    assert data["revision"].startswith("7f7d980 with another MM-VisHal.json")


@pytest.mark.usefixtures("_prepared")
def test_a_model_that_knows_the_key(evaluate, knowing):
    results = evaluate(TASKS, knowing())
    for task in TASKS:
        found = values(results, task)
        assert found["accuracy", "strict"] == 1.0
        assert found["accuracy_stderr", "strict"] == 0.0
        assert found["always_yes", "strict"] < 1
    # As letters, half of the right options are not understood by the released rule.
    assert values(results, "medheval_visual_mm")["accuracy", "reference"] < 1


@pytest.mark.usefixtures("_prepared")
def test_samples_of_credentialed_sets_hold_no_text(evaluate, knowing):
    results = evaluate(TASKS, knowing(), log_samples=True)
    for task in TASKS:
        written = json.dumps(results["samples"][task], default=str)
        questions = [record["question"] for record in sources.RECORDS[task.removesuffix("_ll")]]
        shown = [question for question in questions if question in written]
        assert shown == (questions if task.startswith("medheval_visual_mm") else [])
        if not task.startswith("medheval_visual_mm"):
            assert "10000001" not in written


@pytest.mark.usefixtures("_prepared")
def test_two_processes_score_like_one(evaluate, tmp_path):
    tasks, out = ["medheval_visual_mm", "medheval_visual_cxr_ll", "medheval_context"], tmp_path / "two.json"
    on_two_processes(EVALUATE, tmp_path, json.dumps(tasks), json.dumps(TINY), str(out))
    two = json.loads(out.read_text())
    one = evaluate(tasks, "medtasks_tiny", **TINY)["results"]
    assert set(one) == set(two) == set(tasks)
    for task in tasks:
        assert {key: repr(value) for key, value in one[task].items()} == two[task]
