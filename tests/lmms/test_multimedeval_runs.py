"""Whole runs of MultiMedEval's tasks on its datasets in miniature."""

from typing import Any

import pytest
from lmms_eval.utils import make_table

from medtasks.data.document_store import load_documents
from medtasks.extract.failure import failure_cause
from medtasks.families.counts import COUNTS
from medtasks.metrics.report_metrics import REPORT_METRICS
from medtasks.prompts.template import target
from medtasks.tasks.task_files import task_file, task_files

from .. import tiny_multimedeval
from ..model_adapters.radfm_toy import SIDE, adapter, write_toy
from .whole_runs import evaluate, values

pytestmark = pytest.mark.slow

EVERYTHING = [name for name, task in task_files().items() if name.startswith("multimedeval_") and task.kind == "task"]
REPORTS = "multimedeval_ct_rate_report"
LABELER = ("multimedeval_mimic_cxr_classification", "reference")
WEIGHED = {key for info in REPORT_METRICS.values() if info.weights or info.wordnet for key in info.keys}


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


def counted(metric, unlabelled):
    """How many samples one of the counts says: none failed, and without a labeler none was read."""
    of_all = "unjudged_samples" if unlabelled else "scored_samples"
    return tiny_multimedeval.TEST_ROWS if metric == of_all else 0


@pytest.mark.parametrize("chat", [False, True], ids=["simple", "chat"])
def test_a_model_that_knows_the_key(knowing, home, chat):
    model = knowing(chat)
    members = set(task_file("multimedeval").members)
    results = evaluate(["multimedeval", *sorted(set(EVERYTHING) - members)], model)
    assert set(results["results"]) == {"multimedeval", *EVERYTHING}
    assert {key for key in results["results"]["multimedeval"] if "," in key} == set()  # the group has no average
    assert results["group_subtasks"]["multimedeval"]
    table = make_table(results)
    assert all(f" - {name} [SAMPLE DATA]" in table for name in members)
    for task in EVERYTHING:
        # The numbers of demonstrations, which the harness shows next to the scores.
        assert results["n-shot"][task] == (5 if task.endswith("_5shot") else 0)
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


def test_num_fewshot_option_is_ignored(knowing, home):
    model = knowing(False)
    results = evaluate(["multimedeval_vqa_rad"], model, num_fewshot=3)
    assert len(model.shown["multimedeval_vqa_rad"]) == 2
    assert results["n-shot"]["multimedeval_vqa_rad"] == 0


def test_radfm_writes_reports_on_volumes(tmp_path, monkeypatch):
    """RadFM is given the volume itself, any other model slices."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    tiny_multimedeval.prepare("ct_rate_report")
    (tmp_path / "toy").mkdir()
    model = adapter(write_toy(tmp_path / "toy"), max_failed=0)
    shown = []

    def seen(text, images):
        prompt = type(model).encode(model, text, images)
        shown.append((text, images, prompt.pixels.shape))
        return prompt

    monkeypatch.setattr(model, "encode", seen)
    results = evaluate([REPORTS], model, model_name="radfm", gen_kwargs="max_new_tokens=6")
    assert results["n-samples"][REPORTS]["effective"] == tiny_multimedeval.TEST_ROWS
    assert results["results"][REPORTS]["invalid_rate,reference"] == 0
    replies = [sample["resps"][0][0] for sample in results["samples"][REPORTS]]
    assert not any(failure_cause(reply) for reply in replies)
    files = {file for doc in load_documents(REPORTS) for file in doc["image_files"]}
    for text, images, shape in shown:
        assert text == "Can you provide a radiology report for this set of CT scans? <image>"
        assert [image.removeprefix(f"{tmp_path}/home/datasets/{REPORTS}/") in files for image in images] == [True]
        assert shape == (1, 3, SIDE, SIDE, 4)  # six slices, brought to a depth that RadFM takes
