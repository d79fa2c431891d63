"""A sample without a reply is in no score, in every task family and whatever stands for the reply."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from openpyxl import load_workbook

from medtasks.data.home import home
from medtasks.extract.failure import cut_reply
from medtasks.extract.registry import Kind, extractors
from medtasks.harness import saved_replies
from medtasks.harness.filters import ChooseWith, ReadWith
from medtasks.hooks import answer_texts, label_hallucination

from ..task_families import (
    CASES,
    FAILURES,
    FAMILIES,
    LOST,
    UNREADABLE,
    WITH_LIKELIHOODS,
    Family,
    install_stand_ins,
    kept,
    losses,
    with_lost,
)

BAD_LIKELIHOODS = {"nan": (math.nan, False), "nan_as_text": "(nan, False)", **FAILURES}
COUNTS = ("scored_samples", "failed_samples", "unjudged_samples")
every_case = pytest.mark.parametrize(("one", "rule"), CASES.values(), ids=CASES)
every_family = pytest.mark.parametrize("one", FAMILIES.values(), ids=FAMILIES)
every_failure = pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
with_likelihoods = pytest.mark.parametrize("one", [FAMILIES[name] for name in WITH_LIKELIHOODS], ids=WITH_LIKELIHOODS)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that judge, labeler and text metrics were given."""
    return install_stand_ins(monkeypatch)


def texts(rule: str | None, replies: Sequence[Any]) -> list[list[Any]]:
    """What the harness hands to ``process_results`` for each reply."""
    if rule is None:
        return [[reply] for reply in replies]
    return [[result] for result in ReadWith(rule).apply([[reply] for reply in replies], None)]


def likelihoods(rule: str | None, given: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(one) if rule is None else ChooseWith(rule).apply([[option] for option in one], None) for one in given]


def samples(one: Family, results: Sequence[Sequence[Any]], documents: Any = None) -> list[Mapping[str, Any]]:
    with saved_replies.nothing_saved():
        return [one.process(doc, given) for doc, given in zip(documents or one.documents, results, strict=True)]


def values(one: Family, results: Sequence[Sequence[Any]], documents: Any = None) -> dict[str, Any]:
    """Every metric by name, None where it is NaN."""
    made = samples(one, results, documents)
    found = {entry["metric"]: entry["aggregation"]([each[entry["metric"]] for each in made]) for entry in one.metrics}
    return {name: None if math.isnan(value) else value for name, value in found.items()}


def scores(found: Mapping[str, Any], *also_not: str) -> dict[str, Any]:
    """The metrics without the numbers of samples, and without the rows of a file that has one for every sample."""
    return {name: value for name, value in found.items() if name not in (*COUNTS, "submission_rows", *also_not)}


def counts(found: Mapping[str, Any]) -> list[Any]:
    return [found.get(name, 0) for name in COUNTS]


def are_undefined(found: Mapping[str, Any]) -> bool:
    """Whether there is no score: numbers of things may be 0, of which there are none."""
    kinds = [type(value) for value in scores(found).values() if value != 0 or type(value) is not int]
    return set(kinds) == {type(None)}


# ---- failed samples ----


@every_failure
@every_case
def test_metrics_are_those_of_the_other_samples(one, rule, failure, asked):
    found = values(one, texts(rule, with_lost(one.replies, failure)))
    assert not [text for text in asked if "[[" in text or "LMMS" in text or "SAFETY" in text or "concatenate" in text]
    expected = values(one, texts(rule, kept(one.replies)), kept(one.documents))
    assert scores(found) == scores(expected)
    assert (counts(found), counts(expected)) == ([8, 4, 0], [8, 0, 0])
    assert any(value is not None and value > 0 for value in scores(expected).values())


@every_case
def test_empty_replies_are_scored(one, rule):
    """So the test above can fail: what is said there moves the scores."""
    found = values(one, texts(rule, with_lost(one.replies, "")))
    assert scores(found) != scores(values(one, texts(rule, kept(one.replies)), kept(one.documents)))
    assert counts(found) == [12, 0, 0]


@every_case
def test_failed_samples_alone_have_no_score(one, rule, asked):
    found = values(one, texts(rule, [*FAILURES.values()] * 2))
    assert are_undefined(found)
    assert counts(found) == [0, 12, 0]
    assert found.get("submission_rows", 12) == 12
    assert asked == []


@every_failure
@every_family
def test_records_without_a_filter(one, failure):
    (sample,) = samples(one, [[failure]], one.documents[:1])
    assert {record["reason"] for _, record in sample.items()} == {"adapter_failed"}
    assert not any(record.get("possible_injection") or "cut" in record for _, record in sample.items())


@every_family
def test_numbers_of_samples_stand_last(one):
    names = [entry["metric"] for entry in one.metrics]
    place = names.index("scored_samples")
    assert names[place + 1] == "failed_samples"
    assert set(names[place + 2 :]) <= {"unjudged_samples", "possible_injection"}


def test_failed_rows_of_a_submission_are_blank():
    one = FAMILIES["submission"]
    values(one, texts("robust_choice", with_lost(one.replies, *FAILURES.values())))
    (path,) = (home() / "submissions" / "mediconfusion").glob("*.xlsx")
    header, *rows = load_workbook(path).active.iter_rows(values_only=True)
    cells = [(row[header.index("prediction")], row[header.index("option")]) for row in rows]
    assert [n for n, cell in enumerate(cells) if cell == (None, None)] == sorted({*LOST, one.replies.index("")})


@pytest.mark.parametrize("bad", BAD_LIKELIHOODS.values(), ids=BAD_LIKELIHOODS)
@pytest.mark.parametrize("rule", [None, *extractors(Kind.LIKELIHOODS)])
@with_likelihoods
def test_failed_likelihoods_are_in_no_metric(one, rule, bad):
    given = [[(loss, False) for loss in options] for options in losses(one)]
    mixed = [[*options[:-1], bad] if n in LOST else options for n, options in enumerate(given)]
    found = values(one, likelihoods(rule, mixed))
    expected = values(one, likelihoods(rule, kept(given)), kept(one.documents))
    assert scores(found) == scores(expected)
    assert (counts(found), counts(expected)) == ([8, 4, 0], [8, 0, 0])
    alone = values(one, likelihoods(rule, [[bad] * len(options) for options in given]))
    assert are_undefined(alone)
    assert counts(alone) == [0, 12, 0]


@with_likelihoods
def test_tied_likelihoods_are_invalid_and_scored(one):
    tied = [[(1.0, False) if n in LOST else (loss, False) for loss in given] for n, given in enumerate(losses(one))]
    found = values(one, likelihoods("untied", tied))
    assert counts(found) == [12, 0, 0]
    assert found["invalid_rate"] > 0


# ---- replies that the server cut ----


@every_case
def test_a_mark_of_a_cut_reply_changes_no_metric(one, rule):
    whole, cut = texts(rule, one.replies), texts(rule, [cut_reply(reply) for reply in one.replies])
    for before, after in zip(samples(one, whole), samples(one, cut), strict=True):
        for metric, record in before.items():
            unsaid = record["reason"] in ("empty", "no_match", "ambiguous")
            assert after[metric] == {**record, "reason": "truncated" if unsaid else record["reason"], "cut": True}
    assert values(one, cut) == values(one, whole)


@every_case
def test_a_reply_cut_before_it_said_anything_is_no_failure(one, rule):
    found = values(one, texts(rule, with_lost(one.replies, cut_reply(""), cut_reply(" \n"))))
    assert found == values(one, texts(rule, with_lost(one.replies, "", " \n")))
    assert counts(found) == [12, 0, 0]


# ---- replies that nobody judged ----

BY_JUDGES = ("free_form", "judged_choice", "knowledge_hallucination", "visual_hallucination", "multilabel-chexbert")
JUDGED = {name: case for name, case in CASES.items() if name.startswith(BY_JUDGES)}


def by_verdict(found: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics that need a verdict; where texts are compared as well, the invalid rate is of all replies."""
    compared = {*answer_texts.NAMES, *label_hallucination.NAMES}
    of_all = {*compared, "invalid_rate", "invalid_rate_stderr"} if compared & found.keys() else set()
    return {name: value for name, value in scores(found, *of_all).items() if not name.startswith("judge_")}


@pytest.mark.parametrize(("one", "rule"), JUDGED.values(), ids=JUDGED)
def test_replies_without_a_verdict_are_in_no_metric_that_needs_one(one, rule):
    found = values(one, texts(rule, with_lost(one.replies, UNREADABLE)))
    expected = values(one, texts(rule, kept(one.replies)), kept(one.documents))
    assert (counts(found), counts(expected)) == ([8, 0, 4], [8, 0, 0])
    assert (found["judge_failed_rate"], expected["judge_failed_rate"]) == (4 / 12, 0)
    assert by_verdict(found) == by_verdict(expected)


@pytest.mark.parametrize("silent", ["", cut_reply("")], ids=["empty", "cut"])
@pytest.mark.parametrize(("one", "rule"), JUDGED.values(), ids=JUDGED)
def test_replies_that_say_nothing_do_not_stand_for_those_that_nobody_judged(one, rule, silent):
    found = values(one, texts(rule, [UNREADABLE, silent, FAILURES["request"]] * 4))
    assert are_undefined(by_verdict(found))
    assert found["judge_failed_rate"] == 0.5
    assert counts(found) == [4, 4, 4]
