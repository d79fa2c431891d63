"""Scoring recorded replies gives what the metrics give on answers read one by one."""

import json

import pytest

from medtasks.audit.scoring import score_replies
from medtasks.data.store import load_documents
from medtasks.errors import JudgeNotConfigured, RepliesError
from medtasks.families.family import Reply
from medtasks.harness.task_files import task_file
from medtasks.metrics.pairs import TOTAL

MODES = ["mediconfusion", "mediconfusion_gd", "mediconfusion_ps"]
RULES = {
    "mediconfusion": ("mediconfusion_reference v1", "robust_choice v"),
    "mediconfusion_gd": ("greedy_reference v1", "untied v1"),
    "mediconfusion_ps": ("prefix_reference v1", "untied v1"),
}


@pytest.fixture
def documents(sample):
    return load_documents("mediconfusion")


def texts(documents, reply):
    return {document["doc_id"]: Reply(text=reply(document)) for document in documents}


@pytest.mark.parametrize("task", MODES)
def test_right_letters_are_all_right(documents, task):
    scores = score_replies(task_file(task), documents, texts(documents, lambda document: document["answer"]))
    assert list(scores) == ["reference", "robust"]
    for score in scores.values():
        total = score.table[TOTAL]
        assert (total.set_accuracy, total.individual_accuracy, total.confusion, total.invalid_rate) == (1, 1, 0, 0)
        assert score.reasons == {"ok": 32}
        assert score.errors["set_accuracy"] == 0
    # Letters recorded for GD and PS are read as the reference reads them.
    assert scores["reference"].rule == "mediconfusion_reference v1"
    assert scores["robust"].rule.startswith("robust_choice v")


@pytest.mark.parametrize("task", MODES[1:])
def test_losses(documents, task):
    def losses(document):
        right = document["answer"] == "A"
        tied = document["pair_id"] == "90001"
        return Reply(losses=(1.0, 1.0) if tied else (0.5, 1.5) if right else (1.5, 0.5))

    scores = score_replies(task_file(task), documents, {d["doc_id"]: losses(d) for d in documents})
    reference, robust = scores["reference"], scores["robust"]
    assert (reference.rule, robust.rule) == RULES[task]
    assert reference.table[TOTAL].individual_score == 31
    assert reference.table[TOTAL].confused == 1  # a tie is A in GD and B in PS, twice the same
    assert reference.reasons == {"ok": 32}
    assert robust.table[TOTAL].individual_score == 30
    assert robust.reasons == {"ok": 30, "ambiguous": 2}


def test_rules_differ_where_they_should(documents):
    scores = score_replies(task_file("mediconfusion"), documents, texts(documents, lambda document: "**A**"))
    assert scores["reference"].table[TOTAL].invalid_rate == 1
    assert scores["robust"].table[TOTAL].invalid_rate == 0
    summary = scores["reference"].as_dict()
    assert summary["categories"][TOTAL]["confusion"] is None  # NaN is no JSON
    json.loads(json.dumps(summary, allow_nan=False))


def test_unanswered_questions_are_left_out(documents):
    half = texts(documents[:9], lambda document: "A")
    total = score_replies(task_file("mediconfusion"), documents, half)["reference"].table[TOTAL]
    assert (total.images, total.pairs, total.incomplete_pairs, total.invalid) == (9, 4, 1, 0)


def test_replies_of_the_wrong_kind(documents):
    mixed = {"90001/1": Reply(text="A"), "90001/2": Reply(losses=(1.0, 2.0))}
    with pytest.raises(RepliesError, match="some replies are texts and some are log-likelihoods"):
        score_replies(task_file("mediconfusion_gd"), documents, mixed)
    del mixed["90001/1"]
    for task in ("mediconfusion", "mediconfusion_ff"):
        with pytest.raises(RepliesError, match=f"are log-likelihoods, but '{task}' reads texts"):
            score_replies(task_file(task), documents, mixed)
    with pytest.raises(RepliesError, match="'mediconfusion_all' is a group"):
        score_replies(task_file("mediconfusion_all"), documents, mixed)


def test_free_form_needs_a_judge(documents):
    with pytest.raises(JudgeNotConfigured, match="MEDTASKS_JUDGE_BASE_URL"):
        score_replies(task_file("mediconfusion_ff"), documents, texts(documents, lambda document: "A"))


def test_golden_mediconfusion_categories_have_their_published_sizes(test_data, tmp_path, monkeypatch):
    from medtasks.data.mediconfusion import Options, prepare

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    prepare(Options(test_data / "mediconfusion"))
    documents = load_documents("mediconfusion")
    always_a = texts(documents, lambda document: "A")
    for score in score_replies(task_file("mediconfusion"), documents, always_a).values():
        sizes = {name: counts.images for name, counts in score.table.items()}
        assert sizes.pop(TOTAL) == 352
        assert sizes == json.loads((test_data / "mediconfusion/statistics.json").read_text())
        total = score.table[TOTAL]
        assert (total.set_accuracy, total.individual_accuracy, total.confusion, total.invalid_rate) == (0, 0.5, 1, 0)
