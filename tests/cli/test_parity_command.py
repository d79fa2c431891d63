"""``medtasks parity``: what it prints, its JSON, and its exit code."""

import json

import pytest

from medtasks.data.document_store import load_documents

from .. import tiny_multimedeval
from ..audit.two_runs import losses, own_tasks, write_replies
from ..made_up_runs import write_run
from .conftest import rows_of


@pytest.fixture
def runs(tmp_path):
    """Two runs of two tasks, one of them with other prompts."""
    with own_tasks(tmp_path / "own") as right:
        for name, lead, asked in (("a", 1.0, "Question"), ("b", 1.01, "Image")):
            write_replies(tmp_path / name, "letters", right, asked)
            write_replies(tmp_path / name, "likely", losses(right, lead))
        yield tmp_path / "a", tmp_path / "b"


def test_equal_runs(medtasks, sample, tmp_path):
    first, second = (write_run(tmp_path / name, ("mediconfusion",), 0.7, 1) for name in "ab")
    ran = medtasks("parity", first, second, "--require", "identical")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:3] == [f"A: {first}, model: a", f"B: {second}, model: b", ""]
    assert "mediconfusion: identical\nEvery reply is the same to the last byte.\n" in ran.out
    assert "Verdict on the scores: identical\nSAMPLE DATA" in ran.out
    assert "Not compared" not in ran.out
    other = write_run(tmp_path / "c", ("mediconfusion",), 0.7, 2)
    ran = medtasks("parity", "mediconfusion", first, other, "--require", "equivalent")
    assert ran.code == 1
    assert ran.err == "medtasks: --require equivalent is not met: the verdict is 'not enough samples to tell'\n"
    assert medtasks("parity", first, other).code == 0
    assert medtasks("parity", first, other, "--require", "not-different").code == 0


def test_lines_and_json(medtasks, runs, tmp_path):
    ran = medtasks("parity", *runs, "--json", tmp_path / "found.json")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert "likely: equivalent within the margin" in lines
    assert "  difference    median 0.005, q90 0.01, q99 0.01, max 0.01 nats per token; mean with sign +0.005" in lines
    assert "  choices       800 of 800 (100.0%) equal" in lines
    (refused,) = (line for line in lines if line.startswith("Not compared: "))
    prompts = "the runs gave different prompts to 800 of 800 questions, such as 0 (some"
    assert refused.startswith(f"Not compared: letters: {prompts}")
    assert lines[-1] == "Verdict on the scores: equivalent within the margin"
    found = json.loads((tmp_path / "found.json").read_text(), parse_constant=pytest.fail)
    assert (found["schema_version"], found["verdict"]) == (1, "equivalent within the margin")
    assert found["settings"] == {"margin": 0.01, "alpha": 0.05, "near_tie": 0.25}
    assert (list(found["tasks"]), list(found["tasks_not_compared"])) == (["likely"], ["letters"])
    task = found["tasks"]["likely"]
    assert (task["lacking"], task["likelihoods"]["options"], task["replies"]) == ("", 1600, None)
    (score,) = task["scores"]
    assert (score["metric"], score["main"], score["p_holm"]) == ("accuracy", True, 1)
    assert score["equivalence"]["shown"] is True
    assert rows_of(ran.out)["p, equivalence"] == [f"{score['equivalence']['p']:.4f}"]
    assert medtasks("parity", *runs, "--require", "not-different").code == 1  # of one task nothing is known


def test_what_cannot_be_compared(fails, runs):
    a, b = runs
    fails(["parity", a], "expected two runs, but got 1")
    fails(["parity", a, b, "--margin", "5"], "the margin 5 is no fraction between 0 and 1")
    fails(["compare", a, b, a, "--equivalence", "0.01"], "expected two runs, but got 3")
    fails(["parity", "letters", a, b], "the runs gave different prompts", "run both with the same data, task file")


def test_scores_that_are_no_means_are_named_together(medtasks, tmp_path):
    tiny_multimedeval.prepare("chestxray14")
    documents = load_documents("multimedeval_chestxray14")
    runs = []
    for name, reply in (("a", "edema"), ("b", "no finding")):
        runs.append(tmp_path / f"{name}.jsonl")
        lines = ({"doc_id": document["doc_id"], "reply": reply} for document in documents)
        runs[-1].write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ran = medtasks("parity", "multimedeval_chestxray14", *runs)
    assert "No score of this task is a mean over samples, so that no test tells whether it is the same." in ran.out
    (left_out,) = (line for line in ran.out.splitlines() if line.startswith("Not compared: "))
    assert left_out.startswith("Not compared: macro_f1, ")
    assert left_out.endswith(" (reference, robust): is no mean over samples.")


def test_compare_with_a_margin_gives_the_same_verdict_and_numbers(medtasks, runs, tmp_path):
    printed = [
        medtasks(*command, "--json", tmp_path / f"{command[0]}.json").out
        for command in (["parity", *runs, "--margin", "0.02"], ["compare", *runs, "--equivalence", "0.02"])
    ]
    assert printed[0] == printed[1]
    alone, compared = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("parity", "compare"))
    assert compared["settings"].items() > alone["settings"].items()
    assert (compared["verdict"], compared["tasks_not_compared"]) == (alone["verdict"], alone["tasks_not_compared"])
    (one,), (other,) = alone["tasks"].values(), compared["tasks"].values()
    assert {**other, "documents": one["documents"]} == {**one, **{key: other[key] for key in other.keys() - one.keys()}}
    assert other.keys() - one.keys() == {"summary", "comparisons"}
    (test,), (score,) = other["comparisons"], one["scores"]
    shared = {key: score[key] for key in score.keys() & test.keys()}
    assert test == {**shared, "first_run": "A", "second_run": "B"}
    ran = medtasks("compare", "likely", *runs, "--require", "equivalent", "--json", tmp_path / "named.json")
    assert ran.code == 0
    named = json.loads((tmp_path / "named.json").read_text())
    assert (named["verdict"], named["settings"]["margin"]) == ("equivalent within the margin", 0.01)
    ran = medtasks("compare", "likely", *runs, "--equivalence", "0.001", "--require", "equivalent")
    assert (ran.code, ran.err) == (1, "medtasks: --require equivalent is not met: the verdict is 'same answers'\n")
