"""MIMIC-CXR classification from end to end, its replies labelled by CheXbert in miniature."""

import json

import pytest
from typer.testing import CliRunner

from medtasks.cli.main import app
from medtasks.metrics.neural import chexbert_network as network_module

from .. import tiny_chexbert, tiny_multimedeval
from ..extract.reading import findings_of
from .whole_runs import answering, evaluate

pytestmark = pytest.mark.slow

TASK = "multimedeval_mimic_cxr_classification"
REPLIES = ["There is edema.", "the heart is 12 cm", "no effusion, lungs clear", "small left effusion"]


@pytest.fixture
def loads(tmp_path, monkeypatch):
    """A data folder with the dataset and CheXbert, and how often CheXbert is loaded."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    monkeypatch.setenv("MEDTASKS_METRICS_DEVICE", "cpu")
    monkeypatch.delenv("MEDTASKS_LABELER", raising=False)
    monkeypatch.delenv("MEDTASKS_WEIGHTS", raising=False)
    tiny_multimedeval.prepare("mimic_cxr_classification")
    tiny_chexbert.write_fetched(tmp_path / "weights")
    found = []
    original = network_module.load_network
    monkeypatch.setattr(network_module, "load_network", lambda *files: found.append(files) or original(*files))
    return found


def run():
    return evaluate([TASK], answering(lambda doc: REPLIES[int(doc["doc_id"])]), log_samples=True)


def test_labels_are_chexberts_and_score_again_the_same(loads, tmp_path):
    results = run()
    assert len(loads) == 1  # for all replies of the task
    samples = [sample for sample in results["samples"][TASK] if sample["score"]["rule"] == "chexbert_labels"]
    wanted = findings_of(REPLIES, tiny_multimedeval.FIVE_FINDINGS)
    assert [sample["score"]["value"] for sample in samples] == [[int(f == 1) for f in row] for row in wanted]
    assert [sample["score"]["reason"] for sample in samples] == ["ok"] * 4
    assert len({tuple(row) for row in wanted}) > 1
    written = json.dumps(results["samples"], default=str)
    assert not [reply for reply in REPLIES if reply in written]  # the dataset is credentialed
    replies, summary = tmp_path / "replies.jsonl", tmp_path / "summary.json"
    replies.write_text("".join(json.dumps({"doc_id": str(n), "reply": r}) + "\n" for n, r in enumerate(REPLIES)))
    ran = CliRunner().invoke(app, ["score", TASK, str(replies), "--json", str(summary)])
    assert ran.exit_code == 0, ran.output
    again = json.loads(summary.read_text())["rules"]["reference"]
    assert again["reasons"] == {"ok": 4}
    for name, value in again["metrics"].items():
        assert results["results"][TASK][f"{name},reference"] == pytest.approx(value), name
    assert again["metrics"]["judge_failed_rate"] == 0
    assert len(loads) == 1  # from the cache
