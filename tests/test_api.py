"""Scores, runs and comparisons from Python: the numbers of the commands, and the errors of a user."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import medtasks
from medtasks.data.document_store import load_documents
from medtasks.data.schema import CHOICE
from medtasks.errors import MedTasksError, RepliesError, UnknownName

from .audit.report.harness_output import publish_own, texts, write_run, write_task
from .recorded_runs import medtasks as command
from .tables import each_row

TASK = "mediconfusion"
CANARY = "zyzzyva"


@pytest.fixture
def ids(sample: Path) -> list[str]:
    return [document["doc_id"] for document in load_documents(TASK)]


def values(scores: medtasks.Scores, metric: str) -> dict[str, float]:
    table = scores.table()
    return dict(table[table.metric == metric].set_index("row").value)


def test_the_import_loads_no_library():
    heavy = ("numpy", "pandas", "torch", "lmms_eval", "pydantic", "datasets")
    program = f"import sys, medtasks; print([name for name in {heavy} if name in sys.modules], dir(medtasks))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("[] ")
    assert "'read_run'" in ran.stdout
    with pytest.raises(AttributeError, match="no attribute 'scores'"):
        medtasks.scores  # noqa: B018


def test_scores_equal_those_of_the_command_whatever_holds_the_replies(ids, tmp_path):
    replies = ["A", "The answer is (B).", "none of them", ""] * (len(ids) // 4)
    by_id = dict(zip(ids, replies, strict=True))
    recorded = tmp_path / "replies.jsonl"
    recorded.write_text("".join(f"{json.dumps({'doc_id': name, 'reply': text})}\n" for name, text in by_id.items()))
    command("score", TASK, recorded, "--json", tmp_path / "scores.json")
    rules = json.loads((tmp_path / "scores.json").read_text())["rules"]
    first, frame = medtasks.score(TASK, replies), pd.DataFrame({"doc_id": ids, "reply": replies})
    fields = pd.DataFrame({"id": ids, "reply": [json.dumps({"answer": text}) for text in replies]})
    for same in (by_id, pd.Series(by_id), frame.sample(frac=1, random_state=1)):
        assert medtasks.score(TASK, same).table().equals(first.table())
    assert medtasks.score(TASK, fields, answer_field="answer").table().equals(first.table())
    with pytest.raises(RepliesError, match=f"none of the {len(ids)} replies has a JSON field 'choice'"):
        medtasks.score(TASK, fields, answer_field="choice")
    for name, rule in rules.items():
        table = first.table().set_index(["row", "metric"]).loc[name]
        for metric, error in rule["standard_errors"].items():
            total = rule["categories"]["total"][metric]
            expected = (math.nan if total is None else total, math.nan if error is None else error)
            assert (table.value[metric], table.standard_error[metric]) == pytest.approx(expected, abs=0, nan_ok=True)
        assert (table.low.dropna() <= table.value[table.low.notna()]).all()
    samples = first.samples()
    assert set(samples.row) == set(rules)
    assert dict(samples.groupby("row").correct.mean()) == values(first, "individual_accuracy")


@each_row("nothing", [None, float("nan"), pd.NA])
def test_no_reply_is_a_failed_sample_and_no_wrong_answer(ids, nothing):
    scores = medtasks.score(TASK, {ids[0]: "A", ids[1]: nothing})
    assert (scores.answered, scores.questions) == (2, len(ids))
    assert set(values(scores, "failed_samples").values()) == {1}
    assert set(values(scores, "individual_accuracy").values()) == {1.0}
    failed = scores.samples().query("doc_id == @ids[1]")
    assert failed.correct.isna().all()
    assert failed.reply.isna().all()


@each_row(
    "replies, sentence",
    [
        (["A"], "questions, but 1 replies came; give a list with one reply per question"),
        ("A", "but one text came"),
        ({"x": "A"}, "the reply to 'x': no document 'x' in the prepared dataset"),
        (pd.DataFrame({"id": ["90001/1"]}), r"has no column \['doc_id', 'reply'\]"),
        (pd.DataFrame({"doc_id": ["90001/1"] * 2, "reply": ["A", "B"]}), "two different replies to '90001/1'"),
        ({"90001/1": 3}, "the reply to '90001/1' is no text but int; give a text or None"),
        ({}, "there are no replies; give at least one"),
    ],
)
def test_replies_that_do_not_fit_are_one_sentence(sample, replies, sentence):
    with pytest.raises(RepliesError, match=sentence):
        medtasks.score(TASK, replies)


def test_a_run_gives_its_recorded_scores_and_samples(ids, tmp_path):
    write_run(tmp_path, {TASK: texts(dict.fromkeys(ids, "A"))})
    run = medtasks.read_run(tmp_path, include_path=str(tmp_path))  # one folder need not be a list
    assert run.tasks == (TASK,)
    (results,) = tmp_path.glob("*_results.json")
    recorded = json.loads(results.read_text())["results"][TASK]
    table = run.table().set_index(["metric", "row"]).value
    scores = {key: value for key, value in recorded.items() if ",r" in key and "_stderr" not in key}
    assert scores
    for key, value in scores.items():
        assert table[tuple(key.split(","))] == value
    samples = run.samples(TASK)
    assert list(samples[samples.row == "robust"].doc_id) == ids
    assert set(samples.reply) == {"A"}
    assert all(Path(image).is_file() for images in samples.images for image in images)
    again = medtasks.score(TASK, samples).table()
    assert again.set_index(["metric", "row"]).value["set_accuracy", "robust"] == table["set_accuracy", "robust"]
    with pytest.raises(UnknownName, match="mediconfusion"):
        run.samples("mediconfusoin")
    with pytest.raises(MedTasksError, match="there is no folder"):
        medtasks.read_run(tmp_path / "nowhere")


def test_two_runs_compared_as_the_command_compares_them(ids, tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, replies in zip(folders, ("A", "ABA"), strict=True):
        folder.mkdir()
        write_run(folder, {TASK: texts({name: replies[n % len(replies)] for n, name in enumerate(ids)})})
    command("compare", *folders, "--json", tmp_path / "compared.json")
    expected = json.loads((tmp_path / "compared.json").read_text())["tasks"][TASK]["comparisons"]
    runs = [medtasks.read_run(folder) for folder in folders]
    for pair in (folders, runs):
        tests = medtasks.compare(*pair).to_dict("records")
        for test, printed in zip(tests, expected, strict=True):
            assert (test["row"], test["metric"]) == (printed["rule"], printed["metric"])
            for key in ("difference", "p", "p_holm", "samples", "units"):
                assert test[key] == printed[key]
    assert set(medtasks.compare(*runs, task=TASK, metrics=["set_accuracy"]).metric) == {"set_accuracy"}


def test_no_text_of_credentialed_data_is_in_a_frame_unless_allowed(tmp_path, monkeypatch):
    rows = [{"question": f"{CANARY} {row}", "options": [CANARY, "no"], "answer": "A"} for row in range(4)]
    publish_own("secret_choice", CHOICE, rows, "credentialed")
    write_task("secret_choice", "choice", {"robust": "robust_choice"})
    scores = medtasks.score("secret_choice", ["A", f"B {CANARY}", CANARY, "B"])
    samples = scores.samples()
    assert CANARY not in samples.to_json()
    assert "d0" not in set(samples.doc_id)
    assert samples.correct.tolist()[0] is True
    write_run(tmp_path, {"secret_choice": texts({f"d{row}": f"A {CANARY}" for row in range(4)})})
    assert CANARY not in medtasks.read_run(tmp_path).samples().to_json()
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", "secret_choice")
    assert CANARY in medtasks.score("secret_choice", ["A"] * 4).samples().to_json()
