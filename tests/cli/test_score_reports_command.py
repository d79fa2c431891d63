"""``medtasks score`` on reports: raw numbers, further metrics, several files, and metrics that fail."""

import json

import pytest

from medtasks.errors import WeightsMissing
from medtasks.families import text_metrics
from medtasks.metrics.metric import mean
from medtasks.metrics.report_metrics import ReportScores, metric_info
from medtasks.runs.logged_samples import replies_folder

from .. import tiny_multimedeval
from .conftest import rows_of

TASK = "multimedeval_mimic_cxr_report"
MISSING = {"chexbert": "the weights of CheXbert are missing; fetch them with 'medtasks weights fetch chexbert'"}


@pytest.fixture(autouse=True)
def prepared(monkeypatch):
    """Four reports, and metrics that give the length of the reply in words, shifted far out of 0..1."""
    tiny_multimedeval.prepare("mimic_cxr_report")
    broken: dict[str, str] = {}

    def report_metric(name):
        def metric(*, references, hypotheses):
            if name in broken:
                raise WeightsMissing(broken[name])
            lengths = [float(len(hypothesis.split())) for hypothesis in hypotheses]
            samples = {key: [-10 * length for length in lengths] for key in metric_info(name).keys}
            return ReportScores(samples, {key: mean(values) for key, values in samples.items()}, {"made": "up"})

        return metric

    monkeypatch.setattr(text_metrics, "report_metric", report_metric)
    return broken


@pytest.fixture
def ranks(write):
    replies = [{"doc_id": row, "reply": reply} for row, reply in enumerate(("one", "", "two words", "and three words"))]
    return [write(*replies[rank::2], name=f"rank{rank}.jsonl") for rank in range(2)]


def test_raw_numbers(medtasks, ranks, tmp_path):
    ran = medtasks("score", TASK, *ranks, "--json", tmp_path / "scores.json")
    assert (ran.code, ran.err) == (0, "")
    shown = rows_of(ran.out)
    assert "4 of 4 questions answered" in ran.out
    assert "score ± standard error" in ran.out
    assert shown["bleu_1"][0].startswith("−15 ± ")
    assert shown["invalid_rate"][0].startswith("25.0% ± ")
    assert (shown["replies: ok"][0], shown["replies: empty"][0]) == ("3", "1")
    summary = json.loads((tmp_path / "scores.json").read_text())["rules"]["reference"]
    assert summary["rule"] == "report_text v1"
    assert summary["metrics"]["radcliq_v1_multimedeval"] == -15
    assert summary["settings"]["radcliq_v1_multimedeval"] == {"made": "up"}
    assert "failures" not in summary
    assert not replies_folder(TASK).parent.exists()  # scoring saves no replies


def test_a_folder_and_further_metrics(medtasks, ranks, tmp_path):
    ran = medtasks("score", TASK, tmp_path, "--metric", "radcliq_v1", "--metric", "f1_chexbert", "--metric", "bleu")
    assert ran.code == 0
    shown = rows_of(ran.out)
    assert shown["radcliq_v1"][0].startswith("−15")
    assert shown["bleu_2"][0].startswith("−15")
    assert {key for key in metric_info("f1_chexbert").keys if key.startswith("chexbert_5_")} <= shown.keys()
    usual = set(rows_of(medtasks("score", TASK, *ranks).out))
    ran = medtasks("score", TASK, *ranks, "--metric", "chexbert_5_micro_f1", "--metric", "bleu_1")
    assert (ran.code, ran.err) == (0, "")
    assert set(rows_of(ran.out)) - usual == {"chexbert_5_micro_f1"}  # as the table names it


def test_a_failing_metric_leaves_the_others_and_exit_code_1(medtasks, ranks, tmp_path, prepared):
    prepared.update(MISSING)
    ran = medtasks("score", TASK, *ranks, "--metric", "f1_chexbert", "--json", tmp_path / "scores.json")
    assert ran.code == 1
    shown = rows_of(ran.out)
    assert shown["chexbert_similarity"][0] == "n/a"
    assert shown["bleu_1"][0].startswith("−15")
    fetch = "medtasks weights fetch chexbert bert-base-uncased"
    assert ran.err.strip() == f"medtasks: chexbert could not be computed: weights are missing; run: {fetch}"
    summary = json.loads((tmp_path / "scores.json").read_text(), parse_constant=pytest.fail)["rules"]["reference"]
    assert summary["failures"] == MISSING
    assert summary["metrics"]["chexbert_similarity"] is None


def test_unknown_metrics_and_other_tasks(medtasks, fails, ranks, write):
    fails(["score", TASK, *ranks, "--metric", "radcliq_v2"], "unknown metric 'radcliq_v2'; did you mean 'radcliq_v")
    tiny_multimedeval.prepare("mednli")
    command = ["score", "multimedeval_mednli", write({"doc_id": 0, "reply": "A"}), "--metric", "bleu"]
    fails(command, "'multimedeval_mednli' compares no reports", "leave out")
    assert medtasks(*command[:-1], "accuracy").code == 0  # one of its own
