"""Published rules for an option's letter: MediConfusion, VLMEvalKit, and likelihoods; replies are in ``readings/``."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.samples import letter
from medtasks.extract.extractor_registry import Answer, Reason

from .reading import reading, recorded

read = reading("mediconfusion_reference")
OLD, NEW = reading("vlmevalkit_2024_06"), reading("vlmevalkit_2026_06")
SPELLINGS = ["L", "L:", ".L", ".L:", "L.", 'L")', '("L":', '("L")', '("L").']


def test_golden_mediconfusion_parser(golden):
    cases = recorded(golden, "mediconfusion_parser", 400)
    wrong = [
        case
        for case in cases
        if read(case["reply"], ("Aortic arch", "Kidneys")).value != case["letter"]
    ]
    assert not wrong


def test_accepted_spellings():
    for frame in ("{}", "The answer is {} of course", "Reason\n{}"):
        for spelling in SPELLINGS:
            assert (
                read(frame.format(spelling.replace("L", "B")), ("Aortic arch", "Kidneys")).value
                == "B"
            )


def test_golden_gmai_extract(golden):
    for case in recorded(golden, "gmai_extract", 400):
        options = list(case["options"].values())
        for name, rule in (("2024_06", OLD), ("2026_06", NEW)):
            expected = None if case[name] == "Z" else case[name]
            assert rule(case["reply"], options).value == expected, (name, case)


greedy_reference, prefix_reference, untied = map(
    reading, ("greedy_reference", "prefix_reference", "untied")
)

RULES = (greedy_reference, prefix_reference, untied)
LOSSES = st.lists(st.floats(allow_nan=False), min_size=1, max_size=26)


@given(losses=LOSSES)
def test_rules_differ_only_in_ties(losses):
    first, last, neither = greedy_reference(losses), prefix_reference(losses), untied(losses)
    best = [letter(n) for n, loss in enumerate(losses) if loss == min(losses)]
    assert (first.value, last.value) == (best[0], best[-1])
    assert neither == (
        Answer.ok(best[0]) if len(best) == 1 else Answer.invalid(Reason.AMBIGUOUS)
    )


@pytest.mark.parametrize("rule", RULES)
@given(losses=LOSSES, place=st.integers(0, 26))
def test_one_nan_fails_the_sample(rule, losses, place):
    assert rule([*losses[:place], math.nan, *losses[place:]]) == Answer.invalid(
        Reason.ADAPTER_FAILED
    )
