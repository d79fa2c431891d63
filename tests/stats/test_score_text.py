"""Scores in the tables of commands."""

import math

import pytest

from medtasks.audit.scoring import difference, is_share, number, with_error


@pytest.mark.parametrize(
    ("metric", "value", "share"),
    [
        ("accuracy", 0.5, True),
        ("bleu_1", 0.0, True),
        ("accuracy", math.nan, True),
        ("scored_samples", 1, False),  # a count
        ("hallucination_score", 0.8, False),  # of 0 to 5
        ("radcliq_v1", 0.4, False),
        ("idf_bertscore_f1", 0.4, False),
        ("chexbert_similarity", 0.4, False),
        ("kappa", -0.1, False),
        ("length_ratio", 1.2, False),
    ],
)
def test_what_is_a_share(metric, value, share):
    assert is_share(metric, value) is share


def test_scores_and_their_errors():
    assert with_error(0.3125, 0.0833, share=True) == "31.25% ± 8.33%"
    assert with_error(1.2, 0.1, share=False) == "1.2000 ± 0.1000"
    assert with_error(0.5, math.nan, share=True) == "50.00%"
    assert with_error(math.nan, math.nan, share=True) == with_error(math.nan, 0.1, share=True) == "n/a"
    assert with_error(12, math.nan, share=False) == "12"
    assert number(math.inf, share=False) == "n/a"


def test_differences_of_shares_are_percentage_points():
    assert difference(-0.05, share=True) == "-5.00 pts"
    assert difference(0.25, share=False) == "+0.2500"
    assert difference(math.nan, share=True) == "n/a"
