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
def test_replies_and_marks_of_cut_ones_come_through_the_harness_as_they_were(reply):
    (result,) = filtered(ReadWith, "robust_choice", [reply])
    read, row = opened(through_the_harness(result))
    assert (read.text, read.cut, row.extractor) == (reply, False, "robust_choice")
    (result,) = filtered(ReadWith, "robust_choice", [cut_reply(reply)])
    read, _ = opened(through_the_harness(result))
    assert (read.text, read.cut, read.recorded) == (reply, True, cut_reply(reply))


@each_row("reply", [None, 3, ["A"], {}])
def test_reply_that_is_no_text_is_a_failed_sample(reply):
    (result,) = filtered(ReadWith, "robust_choice", [reply])
    assert read_reply(through_the_harness(result)) == ("robust_choice", NO_TEXT)
    assert read_answer([result]) == (Answer.invalid(Reason.ADAPTER_FAILED), "robust_choice")
    assert read_reply(reply) == (None, NO_TEXT)
    assert read_answer([None])[0].reason == Reason.ADAPTER_FAILED


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


FAILED = Answer.invalid(Reason.ADAPTER_FAILED)


@each_row(
    ("filter_class", "rule", "replies", "answer"),
    [
        (ReadWith, "mediconfusion_reference", [cut_reply("B")], Answer.ok("B")),  # is read without its mark
        (ReadWith, "mediconfusion_reference", ["B", "A"], Answer.ok("B")),  # the first of repeated replies
        (ReadWith, "robust_choice", ["(A)"], Answer.ok("A")),
        (ReadWith, "robust_choice", [failed_reply("no memory")], FAILED),
        (ReadWith, "robust_choice", [""], Answer.invalid(Reason.EMPTY)),
        (ChooseWith, "greedy_reference", ["(1.5, False)", (1.5, True)], Answer.ok("A")),
        (ChooseWith, "prefix_reference", ["(1.5, False)", (1.5, True)], Answer.ok("B")),
        (ChooseWith, "untied", ["(1.5, False)", (1.5, True)], Answer.invalid(Reason.AMBIGUOUS)),
        (ChooseWith, "prefix_reference", ["(1.5, False)", "out of memory"], FAILED),
    ],
)
def test_named_rule_reads(filter_class, rule, replies, answer):
    results = filtered(
        filter_class, rule, *([[reply] for reply in replies] if filter_class is ChooseWith else [replies])
    )
    assert read_answer(results) == (answer, rule)


def test_order_is_kept_and_the_rule_sees_reasoning_that_the_harness_would_cut():
    results = filtered(ReadWith, "mediconfusion_reference", ["B"], ["A"], ["(A)"])
    assert [read_answer([result])[0].value for result in results] == ["B", "A", None]
    (result,) = filtered(ReadWith, "robust_choice", ["<think>A or B? It is"])
    assert read_answer([through_the_harness(result)])[0].reason == Reason.TRUNCATED


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


def test_filters_of_the_tag_are_plain_text_for_the_log():
    (result,) = filtered(ReadWith, "robust_choice", ["é <b>"])
    assert json.loads(result) == {"rule": "robust_choice", "reply": "é <b>"}
    assert "é" in result
    assert "<" not in result


@each_row("filter_class", [ReadWith, ChooseWith])
def test_unknown_rule_is_refused_before_the_run(filter_class):
    with pytest.raises(UnknownName):
        filter_class("no_such_rule")
