"""Whole runs of MultiMedEval's tasks on its datasets in miniature."""

import math
from typing import Any

import pytest

from medtasks.families.counts import COUNTS
from medtasks.harness.task_files import task_config, task_file, task_files
from medtasks.harness.task_index import resolved
from medtasks.metrics.report_metrics import REPORT_METRICS
from medtasks.prompts.template import target

from .. import tiny_multimedeval

pytestmark = pytest.mark.slow

EVERYTHING = [name for name, task in task_files().items() if name.startswith("multimedeval_") and task.kind == "task"]
LABELER = ("multimedeval_mimic_cxr_classification", "reference")
WEIGHED = {key for info in REPORT_METRICS.values() if info.weights or info.wordnet for key in info.keys}


@pytest.fixture(scope="module")
def evaluate():
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager

    def run(tasks, model, **options: Any) -> dict[str, Any]:
        named = {"model_args": "journal=false", "batch_size": 8, "device": "cpu"} if isinstance(model, str) else {}
        return simple_evaluate(model=model, tasks=list(tasks), task_manager=TaskManager(), **named, **options)

    return run


@pytest.fixture
def home(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    monkeypatch.delenv("MEDTASKS_LABELER", raising=False)


def answer(doc):
    """The key in the words of a model that follows the prompt."""
    if doc["dataset"].endswith("mnist"):
        return f"{doc['label'] + 1}: {target(doc)}"
    if doc["dataset"] in ("multimedeval_medqa", "multimedeval_medmcqa", "multimedeval_mmlu"):
        position = "ABCDE".index(doc["answer"])
        return f"{doc['answer'].lower() if 'mcqa' in doc['dataset'] else doc['answer']}: {doc['options'][position]}"
    return doc["options"]["ABC".index(doc["answer"])] if "answer" in doc and "options" in doc else target(doc)


@pytest.fixture(scope="module")
def knowing():
    """Two models that know the key: one that gets text and images, one that gets a conversation."""
    from lmms_eval.api.model import lmms

    class Knowing(lmms):
        def __init__(self, chat: bool) -> None:
            super().__init__()
            self.is_simple = not chat
            self.shown: dict[str, list[Any]] = {}

        def generate_until(self, requests):
            return [self._chat(*r.args) if not self.is_simple else self._simple(*r.args) for r in requests]

        def _simple(self, text, settings, to_visual, doc_id, task, split):
            doc = self.task_dict[task][split][doc_id]
            self.shown[task] = [text, *to_visual(doc)]
            assert settings["max_new_tokens"] == (1000 if "report" in doc else 200)
            return answer(doc)

        def _chat(self, text, to_messages, settings, doc_id, task, split):
            doc = self.task_dict[task][split][doc_id]
            self.shown[task] = to_messages(doc)
            return answer(doc)

        def loglikelihood(self, requests):
            raise NotImplementedError

        def generate_until_multi_round(self, requests):
            raise NotImplementedError

    return Knowing


def values(results, task):
    """Every metric under every rule; the harness's own extra columns are left out."""
    names = [entry["metric"] for entry in resolved(task_config(task)["metric_list"])]
    rows = task_file(task).rows
    assert {key.partition(",")[2] for key in results["results"][task] if "," in key} == set(rows)
    return {(name, row): results["results"][task][f"{name},{row}"] for name in names for row in rows}


def counted(metric, unlabelled):
    """How many samples one of the counts says: none failed, and without a labeler none was read."""
    of_all = "unjudged_samples" if unlabelled else "scored_samples"
    return tiny_multimedeval.TEST_ROWS if metric == of_all else 0


def test_a_real_model_runs_every_task(evaluate, home):
    results = evaluate(EVERYTHING, "medtasks_tiny", gen_kwargs="max_new_tokens=4")
    assert set(results["results"]) == set(EVERYTHING)
    for task in EVERYTHING:
        found = values(results, task)
        assert results["n-samples"][task]["effective"] == tiny_multimedeval.TEST_ROWS
        assert results["results"][task]["alias"] == f"{task} [SAMPLE DATA]"
        # The numbers of demonstrations, which the harness shows beside the scores.
        assert results["n-shot"][task] == (5 if task.endswith("_5shot") else 0)
        for (metric, row), value in found.items():
            unlabelled = (task.removesuffix("_5shot"), row) == LABELER
            if metric in COUNTS:
                assert value == counted(metric, unlabelled), (task, metric, row)
            elif unlabelled and not metric.startswith("judge_failed_rate"):
                assert math.isnan(value), (task, metric, row)
            elif metric.removesuffix("_stderr") not in WEIGHED:
                assert 0 <= value <= 1, (task, metric, row)
        if task.startswith(LABELER[0]):
            assert found["judge_failed_rate", "reference"] == 1
            assert found["judge_failed_rate", "robust"] == 0
    data = results["configs"]["multimedeval_medqa"]["metadata"]["data"]
    assert data["name"] == "multimedeval_medqa"


@pytest.mark.parametrize("chat", [False, True], ids=["simple", "chat"])
def test_a_model_that_knows_the_key(evaluate, knowing, home, chat):
    model = knowing(chat)
    results = evaluate(EVERYTHING, model)
    for task in EVERYTHING:
        for (metric, row), value in values(results, task).items():
            unlabelled = (task.removesuffix("_5shot"), row) == LABELER
            if metric in COUNTS:
                assert value == counted(metric, unlabelled), (task, metric, row)
                continue
            if metric.endswith("_stderr") or metric in WEIGHED or unlabelled:
                continue
            wanted = float(not metric.endswith("_rate"))
            if metric in ("macro_auroc", "macro_f1") and value != wanted:  # a class or label without an image counts 0
                assert 0 < value < 1, (task, metric, row)
            else:
                assert value == pytest.approx(wanted, abs=1e-6), (task, metric, row)
    shown = model.shown["multimedeval_diff_vqa_5shot"]
    if chat:
        assert [turn["role"] for turn in shown] == ["user", "assistant"] * 5 + ["user"]
        assert sum(part["type"] == "image" for turn in shown for part in turn["content"]) == 12
    else:
        assert [image.width for image in shown[1:]] == [18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 16, 17]


def test_group_shows_its_tasks_and_no_average(evaluate, knowing, home):
    from lmms_eval.utils import make_table

    results = evaluate(["multimedeval"], knowing(False), limit=1)
    members = set(task_file("multimedeval").members)
    assert set(results["results"]) == members | {"multimedeval"}
    assert results["group_subtasks"]["multimedeval"]
    assert "groups" not in results
    assert {key for key in results["results"]["multimedeval"] if "," in key} == set()
    table = make_table(results)
    assert all(f" - {name} [SAMPLE DATA]" in table for name in members)


def test_num_fewshot_option_is_ignored(evaluate, knowing, home):
    model = knowing(False)
    results = evaluate(["multimedeval_vqa_rad"], model, num_fewshot=3)
    assert len(model.shown["multimedeval_vqa_rad"]) == 2
    assert results["n-shot"]["multimedeval_vqa_rad"] == 0
