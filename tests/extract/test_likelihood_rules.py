"""From option losses to a letter."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.samples import letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.likelihood import greedy_reference, prefix_reference, untied

RULES = pytest.mark.parametrize("rule", [greedy_reference, prefix_reference, untied])
LOSSES = st.lists(st.floats(allow_nan=False), min_size=1, max_size=26)


@pytest.mark.parametrize(
    ("losses", "greedy", "prefix", "without_ties"),
    [
        ([0.1, 0.2], "A", "A", "A"),
        ([0.2, 0.1], "B", "B", "B"),
        ([0.5, 0.5], "A", "B", "ambiguous"),
        ([0.0, -0.0], "A", "B", "ambiguous"),
        ([math.inf, math.inf], "A", "B", "ambiguous"),
        ([math.inf, 3.0], "B", "B", "B"),
        ([-math.inf, 3.0], "A", "A", "A"),
        ([2.0, 1.0, 1.0, 3.0], "B", "C", "ambiguous"),
        ([1.0, 1.0, 0.5], "C", "C", "C"),
        ([7.0], "A", "A", "A"),
        ([1, 2], "A", "A", "A"),
        ([], *["adapter_failed"] * 3),
        ([math.nan, 1.0], *["adapter_failed"] * 3),
        ([1.0, math.nan], *["adapter_failed"] * 3),
        ([math.nan, math.nan], *["adapter_failed"] * 3),
        ([math.nan], *["adapter_failed"] * 3),
    ],
)
def test_choice(losses, greedy, prefix, without_ties):
    answers = [rule(losses) for rule in (greedy_reference, prefix_reference, untied)]
    assert [a.value or str(a.reason) for a in answers] == [greedy, prefix, without_ties]


@given(losses=LOSSES)
def test_rules_differ_only_in_ties(losses):
    first, last, neither = greedy_reference(losses), prefix_reference(losses), untied(losses)
    best = [letter(n) for n, loss in enumerate(losses) if loss == min(losses)]
    assert (first.value, last.value) == (best[0], best[-1])
    assert neither == (Answer.ok(best[0]) if len(best) == 1 else Answer.invalid(Reason.AMBIGUOUS))


@given(losses=LOSSES)
def test_reversing_the_options_reverses_the_answer(losses):
    mirrored = {letter(n): letter(len(losses) - 1 - n) for n in range(len(losses))}
    turned = losses[::-1]
    assert mirrored[greedy_reference(turned).value] == prefix_reference(losses).value
    assert mirrored.get(untied(turned).value) == untied(losses).value


@RULES
@given(losses=LOSSES, place=st.integers(0, 26))
def test_one_nan_fails_the_sample(rule, losses, place):
    assert rule([*losses[:place], math.nan, *losses[place:]]) == Answer.invalid(Reason.ADAPTER_FAILED)


@RULES
def test_tuples_are_read_as_lists(rule):
    assert rule((2.0, 1.0)).value == "B"
