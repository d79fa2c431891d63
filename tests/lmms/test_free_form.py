"""MediConfusion's free-form mode against a judge on loopback."""

import json
import math
from pathlib import Path

import pytest

from medtasks.audit.scoring import score_replies
from medtasks.runs.replies import read_replies
from medtasks.tasks.task_files import task_file

from .whole_runs import answering, evaluate

pytestmark = pytest.mark.slow


def verdict(body):
    """Prefer the option whose first word stands in the reply that is shown; else like both alike."""
    prompt = body["messages"][-1]["content"]
    reply = prompt.split("[AI Assistant]\n")[1].split("\n\n[End of AI Assistant]")[0]
    option_a = prompt.split("[Answer A]\n")[1].split("\n")[0]
    scores = "A: 9\nB: 2" if option_a in reply else "A: 5\nB: 5"
    return f"{scores}\nYour explanation: because"


@pytest.fixture
def judge(judging):
    return judging(verdict)


@pytest.fixture
def parrot(sample):
    """Answers every question with the text of option A."""
    return answering(lambda doc: f"I see this: {doc['options'][0]}")


def test_judge_reads_every_reply_once_and_a_rerun_is_free(judge, parrot, sample):
    results = evaluate(["mediconfusion_ff"], parrot)["results"]["mediconfusion_ff"]
    assert results["confusion,reference"] == 1.0
    assert results["individual_accuracy,reference"] == 0.5
    assert results["judge_failed_rate,reference"] == 0.0
    asked = judge.count
    assert 0 < asked <= 64  # once with the published prompt, once with the reply between marks
    assert results["confusion,fenced"] == 1.0
    evaluate(["mediconfusion_ff"], parrot)
    assert judge.count == asked


def test_unreachable_judge_loses_nothing(parrot, sample, monkeypatch, tmp_path):
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "nobody")
    monkeypatch.setenv("MEDTASKS_JUDGE_ATTEMPTS", "1")
    found = evaluate(["mediconfusion_ff"], parrot)
    results = found["results"]["mediconfusion_ff"]
    assert results["judge_failed_rate,reference"] == 1.0
    assert results["unjudged_samples,reference"] == 32
    for metric in ("invalid_rate", "set_accuracy", "individual_accuracy", "confusion"):
        assert math.isnan(results[f"{metric},reference"])
    samples = found["samples"]["mediconfusion_ff"]
    assert {sample["score"]["reason"] for sample in samples} == {"judge_failed"}
    assert all("I see this" in str(sample["resps"]) for sample in samples)


def test_recorded_replies_are_judged(judge, sample, tmp_path: Path):
    from medtasks.data.document_store import load_documents

    documents = load_documents("mediconfusion")
    file = tmp_path / "replies.jsonl"
    lines = [{"doc_id": d["doc_id"], "reply": d["options"][0] if d["position"] == 1 else "fog"} for d in documents]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    scores = score_replies(task_file("mediconfusion_ff"), documents, read_replies(file, documents))
    total = scores["reference"].categories["total"]
    assert total.invalid == 16
    assert total.individual_score == sum(d["answer"] == "A" for d in documents if d["position"] == 1)
    assert scores["reference"].reasons == {"ok": 16, "ambiguous": 16}
