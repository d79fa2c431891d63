"""Filters inside the harness's own pipeline, and reading what they pass on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lmms_eval.api.instance import Instance
from lmms_eval.api.reasoning import strip_reasoning_tags
from lmms_eval.filters import build_filter_ensemble

from medtasks.data.samples import Sample
from medtasks.errors import UnknownName
from medtasks.extract.extractor_registry import Answer, Reason
from medtasks.extract.failure import NO_TEXT, cut_reply, failed_reply
from medtasks.families.choice import SINGLE_CHOICE
from medtasks.families.family import Reply, Row
from medtasks.lmms.filters import ChooseWith, ReadWith
from medtasks.runs.reply_envelope import opened, opened_all

from ..tables import each_row

DOC = {"options": ["Aortic arch", "Kidneys"]}
TAGS = [["<think>", "</think>"], ["<analysis>", "</analysis>"]]
CHARACTERS = st.sampled_from(
    ['"', "\\", "{", "}", "<", ">", "\n", "\t", " ", "A", "\u2028", "é", "<think>", "</think>"]
)
REPLIES = st.text() | st.lists(CHARACTERS).map("".join)


def read_reply(result):
    reply, row = opened(result)
    return row.extractor, reply.text


def read_answer(results):
    return SINGLE_CHOICE.read(Sample(DOC), *opened_all(results))


def filtered(filter_class, rule, *replies):
    instances = [
        Instance("generate_until", (), 0, {"task": "t", "doc_id": n, "repeats": 1}, list(resps))
        for n, resps in enumerate(replies)
    ]
    build_filter_ensemble("ours", [[filter_class, {"rule": rule}]]).apply(instances, None)
    return [instance.filtered_resps["ours"] for instance in instances]


def through_the_harness(result, tags=TAGS):
    """What the harness does with a filtered reply before it calls process_results."""
    return strip_reasoning_tags(result, tags).strip()


@given(reply=REPLIES)
def test_reply_comes_through_the_harness_as_it_was(reply):
    [result] = filtered(ReadWith, "robust_choice", [reply])
    assert read_reply(through_the_harness(result)) == ("robust_choice", reply)


@each_row("reply", [None, 3, ["A"], {}])
def test_reply_that_is_no_text_is_a_failed_sample(reply):
    [result] = filtered(ReadWith, "robust_choice", [reply])
    assert read_reply(through_the_harness(result)) == ("robust_choice", NO_TEXT)
    assert read_answer([result]) == (Answer.invalid(Reason.ADAPTER_FAILED), "robust_choice")


@given(reply=REPLIES)
def test_mark_of_a_cut_reply_comes_through_the_harness_and_off_the_reply(reply):
    [result] = filtered(ReadWith, "robust_choice", [cut_reply(reply)])
    read, _ = opened(through_the_harness(result))
    assert (read.text, read.cut, read.recorded) == (reply, True, cut_reply(reply))
    [result] = filtered(ReadWith, "robust_choice", [reply])
    assert not opened(through_the_harness(result))[0].cut


def test_reply_that_was_cut_is_read_without_its_mark():
    [result] = filtered(ReadWith, "mediconfusion_reference", [cut_reply("B")])
    assert read_answer([result]) == (Answer.ok("B"), "mediconfusion_reference")
    assert opened(cut_reply("B"))[0].text == "B"


@each_row(
    ("reason", "expected"),
    [
        *((reason, "truncated") for reason in ("empty", "no_match", "ambiguous", "truncated")),
        *((reason, reason) for reason in ("ok", "refused", "adapter_failed", "judge_failed")),
    ],
)
def test_score_of_a_cut_reply(monkeypatch, reason, expected):
    """Only what may have been said behind the cut is put down to it."""
    monkeypatch.setattr(type(SINGLE_CHOICE), "_score", lambda *_: {"value": None, "reason": reason, "rule": "any"})
    whole, cut = (SINGLE_CHOICE.score(Sample(DOC), Reply("?", cut=cut), Row()) for cut in (False, True))
    assert (whole["reason"], "cut" in whole) == (reason, False)
    assert cut == {**whole, "reason": expected, "cut": True}


def test_rule_sees_reasoning_the_harness_would_cut():
    [result] = filtered(ReadWith, "robust_choice", ["<think>A or B? It is"])
    answer, rule = read_answer([through_the_harness(result)])
    assert (answer.reason, rule) == (Reason.TRUNCATED, "robust_choice")


def test_first_of_repeated_replies_is_read_and_order_is_kept():
    results = filtered(ReadWith, "mediconfusion_reference", ["B", "A"], ["A"], ["(A)"])
    answers = [read_answer([result])[0].value for result in results]
    assert answers == ["B", "A", None]


@each_row(("rule", "value"), [("mediconfusion_reference", None), ("robust_choice", "A")])
def test_named_rule_reads(rule, value):
    [result] = filtered(ReadWith, rule, ["(A)"])
    answer, used = read_answer([result])
    assert (answer.value, used) == (value, rule)


@each_row(("rule", "value"), [("greedy_reference", "A"), ("prefix_reference", "B"), ("untied", None)])
def test_named_likelihood_rule_reads(rule, value):
    results = filtered(ChooseWith, rule, ["(1.5, False)"], [(1.5, True)])
    answer, used = read_answer(results)
    assert (answer.value, used) == (value, rule)


def test_failed_likelihood_fails_the_sample():
    results = filtered(ChooseWith, "prefix_reference", ["(1.5, False)"], ["out of memory"])
    assert read_answer(results) == (Answer.invalid(Reason.ADAPTER_FAILED), "prefix_reference")


def test_without_a_filter_the_careful_rules_read():
    assert read_answer(["(b)"]) == (Answer.ok("B"), "robust_choice")
    assert read_answer(["(2.0, False)", "[1.0, True]"]) == (Answer.ok("B"), "untied")
    assert read_answer([(1.0, False), (1.0, True)]) == (Answer.invalid(Reason.AMBIGUOUS), "untied")


@each_row(
    "reply",
    ['{"answer": "B"}', '"B"', "[1, 2]", "null", "3", "NaN", "{", "[" * 100_000, '{"rule": ', '{"rule": "x"}'],
)
def test_json_of_the_model_is_a_reply(reply):
    assert read_reply(reply) == (None, reply)


@each_row("result", [None, 3, ["A"], {}])
def test_what_is_no_text_is_no_reply(result):
    assert read_reply(result) == (None, NO_TEXT)


def test_no_text_is_a_failure_and_an_empty_one_is_none():
    assert read_answer([None])[0].reason == Reason.ADAPTER_FAILED
    assert read_answer([failed_reply("no memory")])[0].reason == Reason.ADAPTER_FAILED
    assert read_answer([""])[0].reason == Reason.EMPTY


def test_filters_of_the_tag_are_plain_text_for_the_log():
    [result] = filtered(ReadWith, "robust_choice", ["é <b>"])
    assert json.loads(result) == {"rule": "robust_choice", "reply": "é <b>"}
    assert "é" in result
    assert "<" not in result


@each_row("filter_class", [ReadWith, ChooseWith])
def test_unknown_rule_is_refused_before_the_run(filter_class):
    with pytest.raises(UnknownName):
        filter_class("no_such_rule")
