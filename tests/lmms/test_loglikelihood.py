"""Log-likelihoods that went through the harness."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from lmms_eval.api.instance import unwrap_generation_output

from medtasks.lmms.filters import ChooseWith
from medtasks.runs.reply_envelope import FAILED, parse_loglikelihood

from ..tables import each_row


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
        ((math.inf, False), (math.inf, False)),
        ((math.nan, True), (math.nan, True)),
        ("(1.5, False)", (1.5, False)),
        ("[1.5, true]", (1.5, True)),
        (" ( -0.25 ,  1 ) \n", (-0.25, True)),
        ("(1e-05, False)", (1e-05, False)),
        ("(1E5, 0)", (1e5, False)),
        ("(.5, True)", (0.5, True)),
        ("(3., True)", (3.0, True)),
        ("(inf, False)", (math.inf, False)),
        ("(-inf, True)", (-math.inf, True)),
        ("[Infinity, false]", (math.inf, False)),
        ("(nan, False)", (math.nan, False)),
        ("[NaN, false]", (math.nan, False)),
        ("(np.float64(1.5), np.True_)", (1.5, True)),
        ("(np.float32(inf), np.False_)", (math.inf, False)),
        ("(numpy.float64(1.5), False)", (1.5, False)),
        ("(array(1.5, dtype=float32), array(True))", (1.5, True)),
        ("(tensor(1.5000), tensor(True))", (1.5, True)),
        ("(tensor([1.5000]), tensor([False]))", (1.5, False)),
        ("(tensor(1.5000, dtype=torch.bfloat16), tensor(False))", (1.5, False)),
        ("(tensor(1.5000, device='cuda:0'), tensor(True, device='cuda:0'))", (1.5, True)),
        ("(tensor(1.5000, device='cuda:0', dtype=torch.float16), True)", (1.5, True)),
        ("(tensor(nan, device='cuda:0'), False)", (math.nan, False)),
    ],
)
def test_pairs(result, expected):
    same(parse_loglikelihood(result), expected)


@each_row(
    "result",
    [
        *(None, "", "A", "1.5", "(1.5)", "(1.5,)", "(1.5, False, 3)", "1.5, False", "(1.5 False)", "(1.5, maybe)"),
        *("(x, True)", "(1.5, 2)", "(--1, True)", "(1.5, True", "(1.5, True) B", "Error: (1.5, True)", "[[medtasks]]"),
        *(3.0, (1.5,), (1, 2, 3), ("x", True), (None, True), {"loss": 1.5}, ((), True), b"(1.5, True)"),
    ],
)
def test_garbage_is_a_failed_sample(result):
    same(parse_loglikelihood(result), FAILED)


@given(result=st.none() | st.text() | st.integers() | st.tuples(st.text(), st.booleans()) | st.lists(st.floats()))
def test_never_raises(result):
    loss, greedy = parse_loglikelihood(result)
    assert (type(loss), type(greedy)) == (float, bool)


@given(loss=st.floats(), greedy=st.booleans())
def test_text_of_a_pair_is_the_pair(loss, greedy):
    for text in (str((loss, greedy)), str([loss, greedy]), str((np.float64(loss), np.bool_(greedy)))):
        same(parse_loglikelihood(text), (loss, greedy))


@each_row("pair", [(1.5, False), [1.5, False], (np.float32(1.5), np.False_)])
def test_filter_works_for_this_harness_and_a_repaired_one(pair):
    kept, _ = unwrap_generation_output(pair)
    expected = {"rule": "untied", "loss": 1.5, "is_greedy": False}
    assert ChooseWith("untied").apply([[kept], [pair]], None) == [expected, expected]
