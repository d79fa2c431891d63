"""Recorded replies of failed samples are in no score, no comparison and no group, as while a run is scored."""

import json
import math
from dataclasses import replace

import pytest

from medtasks.extract.extractor_registry import AnswerKind, extractors
from medtasks.extract.failure import cut_reply
from medtasks.families.family import Reply
from medtasks.home import home
from medtasks.lmms.filters import ReadWith
from medtasks.metrics.pairs import TOTAL
from medtasks.runs.replies import read_replies
from medtasks.scores.run_values import chosen_metrics, run_values
from medtasks.scores.scoring import rule_as_dict, score_replies

from ..tables import each_row
from ..task_families import (
    CASES,
    FAILURES,
    FAMILIES,
    LOST,
    WITH_LIKELIHOODS,
    install_stand_ins,
    losses,
    with_lost,
)

COUNTS = {"scored_samples", "failed_samples", "unjudged_samples", "submission_rows"}


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    return install_stand_ins(monkeypatch)


@pytest.fixture
def recorded(tmp_path):
    def through_a_file(family, replies):
        path = tmp_path / "replies.jsonl"
        pairs = zip(family.documents, replies, strict=True)
        path.write_text(
            "".join(
                f"{json.dumps({'doc_id': doc['doc_id'], 'reply': reply})}\n"
                for doc, reply in pairs
            )
        )
        return read_replies(path, family.documents)

    return through_a_file


def without_lost(family, replies):
    lost = {family.documents[n]["doc_id"] for n in LOST}
    return {doc_id: reply for doc_id, reply in replies.items() if doc_id not in lost}


def check_scores(task, family, replies):
    """Scores of all replies are those of the others, and the failed ones are counted."""

    def parts(scores):
        """Values and errors; a metric of classes or texts counts the clusters of failed samples, too."""
        numbers = {
            name: (item.value, item.error)
            for name, item in scores.estimates.items()
            if name not in COUNTS
        }
        wrong = [(answer.document, answer.kind) for answer in scores.wrong]
        return repr((numbers, scores.groups, scores.categories, wrong))

    scored = score_replies(task, family.documents, replies)
    for name, expected in score_replies(
        task, family.documents, without_lost(family, replies)
    ).items():
        scores = scored[name]
        assert parts(scores) == parts(expected)
        assert scores.reasons == {**expected.reasons, "adapter_failed": 4}
        if scores.categories:
            total = scores.categories[TOTAL]
            assert (total.images, total.pairs, total.incomplete_pairs) == (8, 3, 2)
        else:
            assert [
                scores.estimates[count].value for count in ("scored_samples", "failed_samples")
            ] == [8, 4]
    failed = {doc_id: reply for doc_id, reply in replies.items() if reply.is_failure}
    for alone in score_replies(task, family.documents, failed).values():
        defined = {
            name: item.value
            for name, item in alone.estimates.items()
            if not math.isnan(item.value)
        }
        assert {name for name, value in defined.items() if value} <= {
            "failed_samples",
            "submission_rows",
        }
        assert alone.reasons == {"adapter_failed": 4}
        assert (list(alone.wrong), any(alone.groups.values())) == ([], False)
        assert not alone.categories or rule_as_dict(task, alone)["categories"].keys() == {TOTAL}


def check_values(task, family, replies):
    metrics = chosen_metrics(task)
    values = run_values(task, family.documents, replies, metrics)
    expected = run_values(task, family.documents, without_lost(family, replies), metrics)
    lost = {family.documents[n]["doc_id"] for n in LOST}
    of_others = {
        row: {doc_id: score for doc_id, score in scores.items() if doc_id not in lost}
        for row, scores in values.scores.items()
    }
    assert repr(replace(values, scores=of_others)) == repr(expected)
    assert values.values.keys() | values.skipped.keys()
    assert not any(lost & by_sample.keys() for by_sample in values.values.values())
    failed = {doc_id: reply for doc_id, reply in replies.items() if reply.is_failure}
    alone = run_values(task, family.documents, failed, metrics)
    assert not any(alone.values.values())
    lacks = {"has no value per sample", "is no mean over samples"}
    assert "pair_id" in family.documents[0] or {*alone.skipped.values()} <= lacks


@each_row("number, name", enumerate(CASES))
def test_recorded_replies(number, name, recorded, asked):
    (family, rule), failures = CASES[name], list(FAILURES.values())
    asked.clear()
    replies = recorded(
        family, with_lost(family.replies, *(failures[:4] if number % 2 else failures[2:]))
    )
    assert [reply.is_failure for reply in replies.values()] == [n in LOST for n in range(12)]
    check_scores(family.task(rule), family, replies)
    assert not [
        text
        for text in asked
        if "[[" in text or "LMMS" in text or "SAFETY" in text or "concatenate" in text
    ]
    if not name.startswith(("submission", "kit_submission", "free_form")):
        check_values(family.task(rule), family, replies)


@each_row("rule", extractors(AnswerKind.LIKELIHOODS))
def test_recorded_likelihoods(rule):
    for family in (FAMILIES[name] for name in WITH_LIKELIHOODS):
        options = [
            [*row[:-1], math.nan] if n in LOST else row for n, row in enumerate(losses(family))
        ]
        pairs = zip(family.documents, options, strict=True)
        replies = {document["doc_id"]: Reply(losses=tuple(row)) for document, row in pairs}
        task = family.task(rule, "multiple_choice")
        check_scores(task, family, replies)
        check_values(task, family, replies)


@each_row(
    "name",
    (name for name, (family, _) in CASES.items() if "pair_id" not in family.documents[0]),
)
def test_marks_of_cut_replies_change_no_score(name, recorded):
    family, rule = CASES[name]
    whole = score_replies(
        family.task(rule), family.documents, recorded(family, family.replies)
    )["rule"]
    replies = recorded(family, [cut_reply(reply) for reply in family.replies])
    assert all(reply.cut for reply in replies.values())
    cut = score_replies(family.task(rule), family.documents, replies)["rule"]
    assert repr((cut.estimates, cut.groups)) == repr((whole.estimates, whole.groups))
    assert not cut.reasons.keys() & {"empty", "no_match", "ambiguous"}
    assert sum(cut.reasons.values()) == 12


def test_what_a_credentialed_run_saves_can_be_scored_later():
    """Nothing of the reply is in the harness's file, so that its marks must be in ours."""
    documents = [
        {**doc, "dataset": "multimedeval_mednli"} for doc in FAMILIES["choice"].documents[:8]
    ]
    given = [*FAILURES.values(), cut_reply("B"), ""]
    for doc, result in zip(
        documents,
        ReadWith("robust_choice").apply([[reply] for reply in given], None),
        strict=True,
    ):
        FAMILIES["choice"].process(doc, [result])
    (file,) = (home() / "replies").rglob("*.jsonl")
    replies = list(read_replies(file, documents).values())
    assert [reply.is_failure for reply in replies] == [True] * 6 + [False] * 2
    assert replies[6:] == [Reply(text="B", cut=True), Reply(text="")]
