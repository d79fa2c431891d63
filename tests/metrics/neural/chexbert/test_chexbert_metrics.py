"""CheXbert's metrics: the published example, scikit-learn as a second opinion, and odd inputs."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from medtasks.metrics.chest_findings import (
    AVERAGES,
    CONDITIONS,
    FIVE_CONDITIONS,
    f1_averages,
    f1_of_reports,
    label_scores,
)
from medtasks.metrics.neural.chexbert import Chexbert
from medtasks.metrics.report_metrics import report_metric

TEXTS = ["No edema.", "Small left effusion.", "", "heart 9", "the lungs, clear"]


def test_the_references_example():
    key = [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0]]
    guess = [[1, 0, 0, 0, 0], [0, 1, 1, 0, 1], [0, 0, 0, 0, 1]]
    found = f1_averages(key, guess)
    assert found == pytest.approx({"micro": 2 / 3, "macro": 8 / 15, "weighted": 2 / 3, "samples": 0.4888889}, abs=1e-6)
    assert f1_of_reports(key, guess) == pytest.approx([2 / 3, 4 / 5, 0])


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 6), st.floats(0, 1))
def test_averages_are_scikit_learns(seed, reports, labels, rate):
    draw = random.Random(seed)
    key, guess = ([[int(draw.random() < rate) for _ in range(labels)] for _ in range(reports)] for _ in "kg")
    if labels == 1:  # scikit-learn takes one column for something else
        key, guess = ([[*row, 0] for row in side] for side in (key, guess))
    found = f1_averages(key, guess)
    for average in AVERAGES:
        wanted = f1_score(np.array(key), np.array(guess), average=average, zero_division=0)
        assert found[average] == pytest.approx(wanted, abs=1e-12), average


@given(st.lists(st.tuples(*[st.tuples(*[st.integers(0, 3)] * 14)] * 2), min_size=1, max_size=6))
def test_uncertain_counts_as_the_convention_says(pairs):
    gold, predicted = zip(*pairs, strict=True)
    as_positive, as_negative = (
        label_scores(gold, predicted, uncertain=convention, prefix="x") for convention in ("positive", "negative")
    )
    # Replacing uncertain findings by what they count as changes nothing.
    for scores, convention, value in ((as_positive, "positive", 1), (as_negative, "negative", 2)):
        replaced = [[[value if c == 3 else c for c in row] for row in side] for side in (gold, predicted)]
        again = label_scores(*replaced, uncertain=convention, prefix="x")
        assert (again.totals, again.samples) == (scores.totals, scores.samples)
    five = [CONDITIONS.index(name) for name in FIVE_CONDITIONS]
    exact = [[a[c] in (1, 3) for c in five] == [b[c] in (1, 3) for c in five] for a, b in pairs]
    assert as_positive.samples["x_5_accuracy"] == exact


def test_blank_and_negative_findings_are_the_same():
    blank, negative = [[0] * 14], [[2] * 14]
    scores = label_scores(blank, negative, uncertain="positive", prefix="x")
    assert scores.totals.pop("x_5_accuracy") == 1
    assert set(scores.totals.values()) == {0}


def test_similarity_is_the_cosine_of_the_vectors(settings):
    readings = Chexbert(settings)(TEXTS)
    scores = report_metric("chexbert", settings)(references=TEXTS, hypotheses=[*TEXTS[1:], TEXTS[0]])
    for position, value in enumerate(scores.samples["chexbert_similarity"]):
        one, other = (readings[n % len(TEXTS)].vector.astype(float) for n in (position, position + 1))
        assert value == pytest.approx(one @ other / math.sqrt((one @ one) * (other @ other)))
    assert len(set(scores.samples["chexbert_similarity"])) == len(TEXTS)


def test_equal_reports_are_alike(settings):
    similarity = report_metric("chexbert", settings)(references=TEXTS, hypotheses=TEXTS)
    assert similarity.samples["chexbert_similarity"] == pytest.approx([1] * len(TEXTS))
    labels = report_metric("f1_chexbert", settings)(references=TEXTS, hypotheses=TEXTS)
    assert labels.totals["chexbert_5_accuracy"] == labels.totals["chexbert_14_micro_f1"] == 1
