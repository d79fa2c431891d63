"""Report tasks from the harness to scores, with metrics that work and metrics that do not."""

import math
import shutil

import pytest

from medtasks.data.document_store import load_documents
from medtasks.extract.failure import failed_reply
from medtasks.home import home
from medtasks.metrics.report_metrics import report_metric
from medtasks.runs.replies import read_replies
from medtasks.scores.scoring import score_replies
from medtasks.tasks.task_files import task_file

from .. import tiny_multimedeval
from .whole_runs import answering, evaluate

pytestmark = pytest.mark.slow

TASK = "multimedeval_mimic_cxr_report"
LEXICAL = {"bleu_1", "bleu_4", "rouge_1", "rouge_l"}
MODELS = {
    *(
        "idf_bertscore_f1",
        "chexbert_similarity",
        "chexbert_certain_5_macro_f1",
        "radgraph_partial",
    ),
    "radcliq_v1_multimedeval",
}
# Where the tiny weights lie in the recorded material, by the name under which metrics look for them.
WEIGHTS = {
    "chexbert": "chexbert/chexbert.pth",
    "bert-base-uncased": "chexbert/bert-base-uncased",
    "radgraph": "radgraph/radgraph.tar.gz",
    "radgraph/encoder": "radgraph/encoder",
    "distilroberta-base": "bertscore/distilroberta-base",
}
LONG = " ".join(
    ["The cardiomediastinal silhouette is normal.", "No effusion."] * 150
)  # 1,000 words
ODD_REPLIES = [
    ["", " \n\t ", failed_reply("out of memory"), LONG],
    [
        "Кардиомегалия, \u202eéclair \U0001fac1 心肥大",
        "\x00\x01\ufffd\ud800",
        "。",
        "no effusion " * 500,
    ],
]


@pytest.fixture(autouse=True)
def prepared(monkeypatch, tmp_path):
    tiny_multimedeval.prepare("mimic_cxr_report")
    monkeypatch.setenv("MEDTASKS_WEIGHTS", str(tmp_path / "weights"))
    monkeypatch.setenv("MEDTASKS_METRICS_DEVICE", "cpu")


@pytest.fixture
def tiny_weights(golden, tmp_path):
    def put():
        for name, path in WEIGHTS.items():
            origin, folder = golden / "metrics" / path, tmp_path / "weights" / name
            folder.mkdir(parents=True)
            for file in sorted(origin.iterdir()) if origin.is_dir() else [origin]:
                shutil.copyfile(file, folder / file.name)

    return put


def run(replies):
    return evaluate([TASK], answering(lambda doc: replies[int(doc["doc_id"])]))


def values(results):
    return {
        name.removesuffix(",reference"): value
        for name, value in results["results"][TASK].items()
        if name.endswith(",reference")
        and not name.endswith("_stderr,reference")
        and "_stderr_" not in name
    }


def saved():
    return sorted((home() / "replies" / TASK).iterdir())


@pytest.mark.parametrize("replies", ODD_REPLIES, ids=["empty", "odd"])
def test_golden_weights_odd_replies_score_without_a_crash(tiny_weights, replies):
    tiny_weights()
    results = run(replies)
    found = values(results)
    assert {name for name, value in found.items() if math.isnan(value)} == {
        "meteor"
    }  # no WordNet here
    failed = sum(reply.startswith(failed_reply("")) for reply in replies)
    assert (found["scored_samples"], found["failed_samples"]) == (4 - failed, failed)
    assert found["invalid_rate"] == (pytest.approx(2 / 3) if replies[0] == "" else 0)
    assert results["results"][TASK]["radcliq_v1_multimedeval_stderr,reference"] >= 0
    for row in results["samples"][TASK]:
        assert "cardiomediastinal" not in str(row)


def test_golden_weights_score_finishes_what_failed(tiny_weights):
    replies = [
        "The heart is enlarged.",
        "",
        "No effusion. Heart of normal size.",
        "Clear lungs.",
    ]
    failed = values(run(replies))
    assert failed.keys() == LEXICAL | MODELS | {
        "meteor",
        "invalid_rate",
        "scored_samples",
        "failed_samples",
    }
    assert {name for name, value in failed.items() if math.isnan(value)} == MODELS | {"meteor"}
    tiny_weights()
    documents, task = load_documents(TASK), task_file(TASK)
    scores = score_replies(
        task, documents, read_replies(saved(), documents), ["radcliq_v1", "f1_chexbert"]
    )
    finished = scores["reference"]
    assert finished.failures.keys() == {"meteor"}
    assert finished.reasons == {"ok": 3, "empty": 1}
    found = {name: one.value for name, one in finished.estimates.items()}
    assert {name: found[name] for name in LEXICAL} == {name: failed[name] for name in LEXICAL}
    whole = values(run(replies))
    assert {name: found[name] for name in MODELS} == {name: whole[name] for name in MODELS}
    texts = [document["report"] for document in documents]
    labelled = report_metric("f1_chexbert_certain")(references=texts, hypotheses=replies)
    assert (
        whole["chexbert_certain_5_macro_f1"] == labelled.totals["chexbert_certain_5_macro_f1"]
    )
    assert math.isfinite(found["radcliq_v1"])
    assert math.isfinite(found["chexbert_14_micro_f1"])
    assert math.isfinite(finished.estimates["chexbert_14_micro_f1"].error)
    assert len(saved()) == 2
