"""From option losses to a letter."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.samples import letter
from medtasks.extract.extractor_registry import Answer, Reason

from ..tables import each_row
from .reading import outcome, reading, rows

greedy_reference, prefix_reference, untied = map(reading, ("greedy_reference", "prefix_reference", "untied"))

RULES = (greedy_reference, prefix_reference, untied)
LOSSES = st.lists(st.floats(allow_nan=False), min_size=1, max_size=26)


NAN, INF = math.nan, math.inf
# What the rules make of losses: a tie goes to the first, to the last, to none.
EXPECTED = {
    ("A", "A", "A"): [[0.1, 0.2], [-INF, 3.0], [7.0], [1, 2]],
    ("B", "B", "B"): [[0.2, 0.1], [INF, 3.0], (2.0, 1.0)],
    ("C", "C", "C"): [[1.0, 1.0, 0.5]],
    ("A", "B", "ambiguous"): [[0.5, 0.5], [0.0, -0.0], [INF, INF]],
    ("B", "C", "ambiguous"): [[2.0, 1.0, 1.0, 3.0]],
    ("adapter_failed",) * 3: [[], [NAN, 1.0], [1.0, NAN], [NAN, NAN], [NAN]],
}


@each_row(("losses", "expected"), rows(EXPECTED))
def test_choice(losses, expected):
    assert tuple(outcome(rule(losses)) for rule in RULES) == expected


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


@pytest.mark.parametrize("rule", RULES)
@given(losses=LOSSES, place=st.integers(0, 26))
def test_one_nan_fails_the_sample(rule, losses, place):
    assert rule([*losses[:place], math.nan, *losses[place:]]) == Answer.invalid(Reason.ADAPTER_FAILED)
