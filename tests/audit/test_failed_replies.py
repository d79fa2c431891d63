"""Recorded replies of failed samples are in no score, no comparison and no group, as while a run is scored."""

import json
import math
from dataclasses import replace

import pytest

from medtasks.audit.comparing import compare_runs
from medtasks.audit.run_values import chosen_metrics, run_values
from medtasks.audit.scoring import rule_as_dict, score_replies
from medtasks.extract.extractor_registry import AnswerKind, extractors
from medtasks.extract.failure import cut_reply
from medtasks.families.family import Reply
from medtasks.home import home
from medtasks.lmms.filters import ReadWith
from medtasks.metrics.pairs import TOTAL
from medtasks.runs.replies import read_replies

from ..tables import each_row
from ..task_families import CASES, FAILURES, FAMILIES, LOST, WITH_LIKELIHOODS, install_stand_ins, losses, with_lost

COUNTS = {"scored_samples", "failed_samples", "unjudged_samples", "submission_rows"}
of_pairs = {name: case for name, case in CASES.items() if "pair_id" in case[0].documents[0]}
of_samples = {name: case for name, case in CASES.items() if name not in of_pairs}
every_sample_case = each_row(("one", "rule"), of_samples.values())
both_turns = each_row("failures", [list(FAILURES.values())[:4], list(FAILURES.values())[2:]])
with_likelihoods = each_row("rule", extractors(AnswerKind.LIKELIHOODS))


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    return install_stand_ins(monkeypatch)


@pytest.fixture
def recorded(tmp_path):
    """Replies to the documents of a family as they come from a file."""

    def through_a_file(one, replies):
        path = tmp_path / "replies.jsonl"
        lines = [{"doc_id": doc["doc_id"], "reply": reply} for doc, reply in zip(one.documents, replies, strict=True)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return read_replies(path, one.documents)

    return through_a_file


def without_lost(one, replies):
    lost = {one.documents[n]["doc_id"] for n in LOST}
    return {doc_id: reply for doc_id, reply in replies.items() if doc_id not in lost}


def with_failed_passes(one):
    """Losses of which those of the lost samples have a NaN."""
    given = [[*options[:-1], math.nan] if n in LOST else options for n, options in enumerate(losses(one))]
    both = zip(one.documents, given, strict=True)
    return {doc["doc_id"]: Reply(losses=tuple(options)) for doc, options in both}


def numbers(scores):
    """Values and errors; a metric of classes or texts counts the clusters of failed samples, too."""
    return {name: (one.value, one.error) for name, one in scores.estimates.items() if name not in COUNTS}


def check_scores(task, one, replies):
    """Scores of all replies are those of the others, and the failed ones are counted."""
    found = score_replies(task, one.documents, replies)["rule"]
    expected = score_replies(task, one.documents, without_lost(one, replies))["rule"]
    assert repr(numbers(found)) == repr(numbers(expected))
    assert [found.estimates[name].value for name in ("scored_samples", "failed_samples")] == [8, 4]
    assert found.reasons == {**expected.reasons, "adapter_failed": 4}
    assert repr(found.groups) == repr(expected.groups)
    assert [(one.document, one.kind) for one in found.wrong] == [(one.document, one.kind) for one in expected.wrong]
    alone = score_replies(task, one.documents, {doc: one for doc, one in replies.items() if one.failed})["rule"]
    defined = {name for name, one in alone.estimates.items() if not math.isnan(one.value) and one.value != 0}
    assert defined <= {"failed_samples", "submission_rows"}
    assert (list(alone.wrong), alone.estimates["failed_samples"].value) == ([], 4)
    assert not any(alone.groups.values())


@both_turns
@every_sample_case
def test_scores_of_recorded_replies(one, rule, failures, recorded, asked):
    replies = recorded(one, with_lost(one.replies, *failures))
    assert [reply.failed for reply in replies.values()] == [n in LOST for n in range(12)]
    check_scores(one.task(rule), one, replies)
    assert not [text for text in asked if "[[" in text or "LMMS" in text or "SAFETY" in text or "concatenate" in text]


@with_likelihoods
@each_row("name", [name for name in WITH_LIKELIHOODS if name != "pairs"])
def test_scores_of_recorded_likelihoods(name, rule):
    one = FAMILIES[name]
    check_scores(one.task(rule, "multiple_choice"), one, with_failed_passes(one))


def check_pairs(task, one, replies):
    scored = score_replies(task, one.documents, replies)
    for name, expected in score_replies(task, one.documents, without_lost(one, replies)).items():
        found = scored[name]
        assert repr((found.categories, numbers(found))) == repr((expected.categories, numbers(expected)))
        assert found.reasons == {**expected.reasons, "adapter_failed": 4}
        total = found.categories[TOTAL]
        assert (total.images, total.pairs, total.incomplete_pairs) == (8, 3, 2)
    failed = {doc_id: reply for doc_id, reply in replies.items() if reply.failed}
    for alone in score_replies(task, one.documents, failed).values():
        assert alone.reasons == {"adapter_failed": 4}
        assert rule_as_dict(task, alone)["categories"].keys() == {TOTAL}
        assert math.isnan(alone.categories[TOTAL].individual_accuracy)


@both_turns
@each_row("name", of_pairs)
def test_scores_of_recorded_replies_to_pairs(name, failures, recorded):
    one, rule = of_pairs[name]
    check_pairs(one.task(rule), one, recorded(one, with_lost(one.replies, *failures)))


@with_likelihoods
def test_scores_of_recorded_likelihoods_of_pairs(rule):
    one = FAMILIES["pairs"]
    check_pairs(one.task(rule, "multiple_choice"), one, with_failed_passes(one))


def check_values(task, one, replies):
    """Failed samples have no value, and those of the others are as without them."""
    metrics = chosen_metrics(task)
    found = run_values(task, one.documents, replies, metrics)
    expected = run_values(task, one.documents, without_lost(one, replies), metrics)
    lost = {one.documents[n]["doc_id"] for n in LOST}
    of_others = {
        row: {doc: one for doc, one in scores.items() if doc not in lost} for row, scores in found.scores.items()
    }
    assert repr(replace(found, scores=of_others)) == repr(expected)
    assert found.values.keys() | found.skipped.keys()
    assert not any(lost & values.keys() for values in found.values.values())
    alone = run_values(task, one.documents, {doc: one for doc, one in replies.items() if one.failed}, metrics)
    assert not any(alone.values.values())
    if "pair_id" not in one.documents[0]:
        assert alone.skipped.keys() == alone.values.keys()
        assert set(alone.skipped.values()) <= {"has no value per sample", "is no mean over samples"}


@both_turns
@each_row("name", [name for name in CASES if not name.startswith(("submission", "kit_submission", "free_form"))])
def test_values_of_samples(name, failures, recorded):
    one, rule = CASES[name]
    check_values(one.task(rule), one, recorded(one, with_lost(one.replies, *failures)))


@with_likelihoods
@each_row("name", WITH_LIKELIHOODS)
def test_values_of_likelihoods(name, rule):
    one = FAMILIES[name]
    check_values(one.task(rule, "multiple_choice"), one, with_failed_passes(one))


@each_row("name", ["choice-robust_choice", "pairs-robust_choice", "reports-report_text"])
def test_runs_are_compared_on_what_both_answered(name, recorded):
    """Metrics that weigh words by how rare they are in all texts would differ otherwise."""
    (one, rule), failures = CASES[name], list(FAILURES.values())
    first = recorded(one, with_lost(one.replies, *failures))
    second = recorded(one, [failures[n] if n < 2 else reply for n, reply in enumerate(reversed(one.replies))])
    runs = {"A": first, "B": second}
    answered = {name: {doc: reply for doc, reply in run.items() if not reply.failed} for name, run in runs.items()}
    found, expected = (compare_runs(one.task(rule), one.documents, replies) for replies in (runs, answered))
    assert repr(replace(found, agreements={})) == repr(replace(expected, agreements={}))
    assert found.agreements["A", "B"].texts == expected.agreements["A", "B"].texts
    overlap = found.overlaps["A", "B"]
    assert (overlap.both, overlap.only_first, overlap.only_second, overlap.neither) == (7, 1, 3, 1)


@each_row("name", of_samples)
def test_marks_of_cut_replies_change_no_score(name, recorded):
    one, rule = of_samples[name]
    whole = score_replies(one.task(rule), one.documents, recorded(one, one.replies))["rule"]
    replies = recorded(one, [cut_reply(reply) for reply in one.replies])
    assert all(reply.cut for reply in replies.values())
    cut = score_replies(one.task(rule), one.documents, replies)["rule"]
    assert repr((cut.estimates, cut.groups)) == repr((whole.estimates, whole.groups))
    assert not cut.reasons.keys() & {"empty", "no_match", "ambiguous"}
    assert sum(cut.reasons.values()) == 12


def test_what_a_credentialed_run_saves_can_be_scored_later():
    """Nothing of the reply is in the harness's file, so that its marks must be in ours."""
    documents = [{**doc, "dataset": "multimedeval_mednli"} for doc in FAMILIES["choice"].documents[:8]]
    given = [*FAILURES.values(), cut_reply("B"), ""]
    for doc, result in zip(documents, ReadWith("robust_choice").apply([[one] for one in given], None), strict=True):
        FAMILIES["choice"].process(doc, [result])
    (file,) = (home() / "replies").rglob("*.jsonl")
    replies = list(read_replies(file, documents).values())
    assert [reply.failed for reply in replies] == [True] * 6 + [False] * 2
    assert replies[6:] == [Reply(text="B", cut=True), Reply(text="")]
