"""Replies and likelihoods inside the harness's own pipeline: filters, and reading what they pass on."""

import math

import numpy as np
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
from medtasks.lmms.filters import ChooseWith, ReadWith
from medtasks.runs.reply_envelope import (
    FAILED,
    open_envelope,
    open_results,
    parse_loglikelihood,
)

from ..tables import each_row

DOC = {"options": ["Aortic arch", "Kidneys"]}
TAGS = [["<think>", "</think>"], ["<analysis>", "</analysis>"]]
CHARACTERS = st.sampled_from(
    ['"', "\\", "{", "}", "<", ">", "\n", "\t", " ", "A", "\u2028", "é", "<think>", "</think>"]
)
REPLIES = st.text() | st.lists(CHARACTERS).map("".join)


def read_reply(result):
    reply, row = open_envelope(result)
    return row.extractor, reply.text


def read_answer(results):
    return SINGLE_CHOICE.read(Sample(DOC), *open_results(results))


def filtered(filter_class, rule, *replies):
    instances = [
        Instance("generate_until", (), 0, {"task": "t", "doc_id": n, "repeats": 1}, list(resps))
        for n, resps in enumerate(replies)
    ]
    build_filter_ensemble("ours", [[filter_class, {"rule": rule}]]).apply(instances, None)
    return [instance.filtered_resps["ours"] for instance in instances]


def through_the_harness(result, tags=TAGS):
    """Change a filtered reply as the harness does before it calls process_results."""
    return strip_reasoning_tags(result, tags).strip()


@given(reply=REPLIES)
def test_replies_and_marks_of_cut_ones_come_through_the_harness_as_they_were(reply):
    (result,) = filtered(ReadWith, "robust_choice", [reply])
    read, row = open_envelope(through_the_harness(result))
    assert (read.text, read.cut, row.extractor) == (reply, False, "robust_choice")
    (result,) = filtered(ReadWith, "robust_choice", [cut_reply(reply)])
    read, _ = open_envelope(through_the_harness(result))
    assert (read.text, read.cut, read.text_for_files) == (reply, True, cut_reply(reply))


@each_row("reply", [None, 3, ["A"], {}])
def test_reply_that_is_no_text_is_a_failed_sample(reply):
    (result,) = filtered(ReadWith, "robust_choice", [reply])
    assert read_reply(through_the_harness(result)) == ("robust_choice", NO_TEXT)
    assert read_answer([result]) == (Answer.invalid(Reason.ADAPTER_FAILED), "robust_choice")
    assert read_reply(reply) == (None, NO_TEXT)
    assert read_answer([None])[0].reason == Reason.ADAPTER_FAILED


FAILED_SAMPLE = Answer.invalid(Reason.ADAPTER_FAILED)


@each_row(
    ("filter_class", "rule", "replies", "answer"),
    [
        (
            ReadWith,
            "mediconfusion_reference",
            [cut_reply("B")],
            Answer.ok("B"),
        ),  # is read without its mark
        (
            ReadWith,
            "mediconfusion_reference",
            ["B", "A"],
            Answer.ok("B"),
        ),  # the first of repeated replies
        (ReadWith, "robust_choice", ["(A)"], Answer.ok("A")),
        (ReadWith, "robust_choice", [failed_reply("no memory")], FAILED_SAMPLE),
        (ReadWith, "robust_choice", [""], Answer.invalid(Reason.EMPTY)),
        (ChooseWith, "greedy_reference", ["(1.5, False)", (1.5, True)], Answer.ok("A")),
        (ChooseWith, "prefix_reference", ["(1.5, False)", (1.5, True)], Answer.ok("B")),
        (ChooseWith, "untied", ["(1.5, False)", (1.5, True)], Answer.invalid(Reason.AMBIGUOUS)),
        (ChooseWith, "prefix_reference", ["(1.5, False)", "out of memory"], FAILED_SAMPLE),
    ],
)
def test_named_rule_reads(filter_class, rule, replies, answer):
    results = filtered(
        filter_class,
        rule,
        *([[reply] for reply in replies] if filter_class is ChooseWith else [replies]),
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
    assert read_answer([(1.0, False), (1.0, True)]) == (
        Answer.invalid(Reason.AMBIGUOUS),
        "untied",
    )


@each_row(
    "reply",
    [
        '{"answer": "B"}',
        '"B"',
        "[1, 2]",
        "null",
        "3",
        "NaN",
        "{",
        "[" * 100_000,
        '{"rule": ',
        '{"rule": "x"}',
    ],
)
def test_json_of_the_model_is_a_reply(reply):
    assert read_reply(reply) == (None, reply)


@each_row("filter_class", [ReadWith, ChooseWith])
def test_unknown_rule_is_refused_before_the_run(filter_class):
    with pytest.raises(UnknownName):
        filter_class("no_such_rule")


def same(result, expected):
    (loss, greedy), (expected_loss, expected_greedy) = result, expected
    assert loss == expected_loss or (math.isnan(loss) and math.isnan(expected_loss))
    assert (type(loss), greedy) == (float, expected_greedy)


@each_row(
    ("result", "expected"),
    [
        ((1.5, False), (1.5, False)),
        ([1.5, True], (1.5, True)),
        ((1, 0), (1.0, False)),
        ((np.float32(0.25), np.True_), (0.25, True)),
        ((math.nan, True), (math.nan, True)),
        ("(1.5, False)", (1.5, False)),
        ("[1.5, true]", (1.5, True)),
        (" ( -0.25 ,  1 ) \n", (-0.25, True)),
        ("(1e-05, False)", (1e-05, False)),
        ("(inf, False)", (math.inf, False)),
        ("(-inf, True)", (-math.inf, True)),
        ("(nan, False)", (math.nan, False)),
        ("(np.float64(1.5), np.True_)", (1.5, True)),
        ("(array(1.5, dtype=float32), array(True))", (1.5, True)),
        ("(tensor(1.5000), tensor(True))", (1.5, True)),
        ("(tensor(1.5000, dtype=torch.bfloat16), tensor(False))", (1.5, False)),
        ("(tensor(1.5000, device='cuda:0'), tensor(True, device='cuda:0'))", (1.5, True)),
    ],
)
def test_pairs(result, expected):
    same(parse_loglikelihood(result), expected)


@each_row(
    "result",
    [
        *(
            None,
            "",
            "A",
            "1.5",
            "(1.5)",
            "(1.5,)",
            "(1.5, False, 3)",
            "1.5, False",
            "(1.5 False)",
            "(1.5, maybe)",
        ),
        *(
            "(x, True)",
            "(1.5, 2)",
            "(--1, True)",
            "(1.5, True",
            "(1.5, True) B",
            "Error: (1.5, True)",
            "[[medtasks]]",
        ),
        *(
            3.0,
            (1.5,),
            (1, 2, 3),
            ("x", True),
            (None, True),
            {"loss": 1.5},
            ((), True),
            b"(1.5, True)",
        ),
    ],
)
def test_garbage_is_a_failed_sample(result):
    same(parse_loglikelihood(result), FAILED)


@given(
    result=st.none()
    | st.text()
    | st.integers()
    | st.tuples(st.text(), st.booleans())
    | st.lists(st.floats())
)
def test_never_raises(result):
    loss, greedy = parse_loglikelihood(result)
    assert (type(loss), type(greedy)) == (float, bool)


@given(loss=st.floats(), greedy=st.booleans())
def test_text_of_a_pair_is_the_pair(loss, greedy):
    for text in (
        str((loss, greedy)),
        str([loss, greedy]),
        str((np.float64(loss), np.bool_(greedy))),
    ):
        same(parse_loglikelihood(text), (loss, greedy))
