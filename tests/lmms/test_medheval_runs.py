"""Whole runs of MedHEval's closed tasks on its sets in miniature."""

import json
import math

import pytest

from medtasks.families.counts import COUNTS

from .. import medheval_sources as sources
from .whole_runs import answering, evaluate, values

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("_prepared")]

LIKELIHOOD = [f"{name}_ll" for name in sources.CLOSED]
TASKS = [*sources.CLOSED, *LIKELIHOOD]
LIMITS = {"gen_kwargs": "max_new_tokens=4"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """All six sets in miniature, prepared once."""
    return sources.prepared_home(tmp_path_factory.mktemp("medheval"))


@pytest.fixture
def _prepared(home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(home))


@pytest.fixture
def knowing():
    """A model that answers with the right bare letter, or yes and no, and prefers the right option."""

    def say(doc):
        if doc["kind"] == "binary":
            return {"A": "Yes", "B": "No", None: "Yes"}[doc["answer"]]
        return doc["answer"] or "A"

    return answering(say, lambda doc, index: 0.5 if doc["answer"] == "ABCDEF"[index] else 2.0)


def test_a_real_model_runs_every_closed_task():
    results = evaluate(TASKS, **LIMITS)
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


def test_a_model_that_knows_the_key(knowing):
    results = evaluate(TASKS, knowing, log_samples=True)
    for task in TASKS:
        found = values(results, task)
        assert found["accuracy", "strict"] == 1.0
        assert found["accuracy_stderr", "strict"] == 0.0
        assert found["always_yes", "strict"] < 1
        written = json.dumps(results["samples"][task], default=str)
        questions = [record["question"] for record in sources.RECORDS[task.removesuffix("_ll")]]
        is_public = task.startswith("medheval_visual_mm")
        assert [question for question in questions if question in written] == (questions if is_public else [])
        assert is_public or "10000001" not in written
    # As letters, half of the right options are not understood by the released rule.
    assert values(results, "medheval_visual_mm")["accuracy", "reference"] < 1
