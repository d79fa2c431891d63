"""Comparing whole runs: which tasks are compared, and that all their tests are corrected for together."""

import json
from dataclasses import replace

import pytest

from medtasks.audit.comparing import Source, compare_all, compare_runs, compare_task, compare_with
from medtasks.data.provenance_of import provenance
from medtasks.data.store import load_documents
from medtasks.errors import MedTasksError, RepliesError
from medtasks.harness.replies import read_replies
from medtasks.harness.task_files import task_file
from medtasks.stats.paired import holm

from ..made_up_runs import write_run


@pytest.fixture
def runs(sample, tmp_path):
    return {
        "A": Source(write_run(tmp_path / "good", ("mediconfusion", "sides"), 0.9, 1)),
        "B": Source(write_run(tmp_path / "bad", ("mediconfusion", "sides", "mediconfusion_blind"), 0.5, 2)),
        "C": Source(write_run(tmp_path / "third", ("mediconfusion_blind", "mediconfusion"), 0.7, 3)),
    }


def test_tasks_in_two_runs_are_compared_and_others_named(runs):
    compared, causes = compare_all(runs)
    assert list(compared) == ["mediconfusion"]  # the blind variant says nothing about which model is better
    assert list(causes) == ["sides"]
    assert "no task of medtasks" in causes["sides"]
    assert list(compared["mediconfusion"].found.overlaps) == [("A", "B"), ("A", "C"), ("B", "C")]


def test_one_task_is_compared_as_its_replies_are(runs):
    task, documents = task_file("mediconfusion"), load_documents("mediconfusion")
    replies = {
        name: read_replies(next(source.path.glob("*_samples_mediconfusion.jsonl")), documents)
        for name, source in runs.items()
    }
    expected = compare_runs(task, documents, replies)
    assert compare_task(task, runs).found == expected
    assert compare_all(runs)[0]["mediconfusion"].found == expected


def test_a_run_against_a_file_of_replies(runs, tmp_path):
    replies = tmp_path / "replies.jsonl"
    documents = load_documents("mediconfusion")
    replies.write_text("".join(json.dumps({"doc_id": d["doc_id"], "reply": "A"}) + "\n" for d in documents))
    found = compare_task(task_file("mediconfusion"), {"A": runs["A"], "B": Source(replies)}).found
    individual = next(one for one in found.comparisons if one.metric == "individual_accuracy")
    assert individual.result.second == 0.5
    with pytest.raises(RepliesError, match="does not say which task it answers"):
        compare_all({"A": runs["A"], "B": Source(replies)})


def test_tests_of_all_tasks_are_one_family(runs, tmp_path):
    other = write_run(tmp_path / "more", ("mediconfusion", "mediconfusion_gd"), 0.4, 4)
    first = write_run(tmp_path / "less", ("mediconfusion", "mediconfusion_gd"), 0.9, 5)
    for folder in (other, first):  # likelihoods in place of letters
        file = next(folder.glob("*_samples_mediconfusion_gd.jsonl"))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for line in lines:
            loss = {"A": (0.1, 2.0), "B": (2.0, 0.1)}[line["resps"][0]]
            line["resps"] = [[f"({one}, False)"] for one in loss]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    compared, _ = compare_all({"A": Source(first), "B": Source(other)})
    tests = [test for one in compared.values() for test in one.found.comparisons]
    assert list(compared) == ["mediconfusion", "mediconfusion_gd"]
    assert [test.holm for test in tests] == holm([test.result.p for test in tests])
    assert [test.holm for test in tests] != [test.holm for one in compared.values() for test in alone(one)]


def alone(one):
    return [replace(test, holm=p) for test, p in zip(one.found.comparisons, holm(p_values(one)), strict=True)]


def p_values(one):
    return [test.result.p for test in one.found.comparisons]


def test_section_of_a_report_is_one_family_over_all_other_runs(runs):
    found = compare_with(runs["A"], [runs["B"].path, runs["C"].path])
    assert [one.path for one in found] == [str(runs["B"].path), str(runs["C"].path)]
    assert [one.name for one in found] == ["bad", "third"]
    scores = [score for one in found for score in one.scores]
    assert len(scores) == 8
    assert [score.p_holm for score in scores] == holm([score.p for score in scores])
    assert {score.first for score in scores if score.metric == "set_accuracy"} == {
        compare_task(task_file("mediconfusion"), runs).found.comparisons[0].result.first
    }
    assert [note for note in found[0].notes if note.startswith("sides: ")]


def test_runs_that_cannot_be_compared(runs, tmp_path):
    silent = Source(write_run(tmp_path / "silent", ("mediconfusion",), 0.9, 6, samples=False))
    with pytest.raises(RepliesError, match="--log_samples"):
        compare_all({"A": runs["A"], "B": silent})
    with pytest.raises(RepliesError, match="holds no samples of 'mediconfusion'"):
        compare_task(task_file("mediconfusion"), {"A": runs["A"], "B": silent})
    with pytest.raises(RepliesError, match="there is no"):
        compare_all({"A": runs["A"], "B": Source(tmp_path / "nowhere")})
    (tmp_path / "empty").mkdir()
    with pytest.raises(MedTasksError):
        compare_all({"A": runs["A"], "B": Source(tmp_path / "empty")})


def test_runs_on_other_data_are_named(runs, tmp_path):
    other = write_run(tmp_path / "other", ("mediconfusion",), 0.5, 7)
    file = next(other.glob("*_results.json"))
    text = file.read_text().replace(provenance("mediconfusion")["fingerprint"], "0123456789ab")
    file.write_text(text)
    with pytest.raises(RepliesError, match="fingerprint 0123456789ab"):
        compare_all({"A": runs["A"], "B": Source(other)})
