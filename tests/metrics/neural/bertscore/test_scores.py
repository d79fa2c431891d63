"""Scores from matched tokens, computed by hand, and the baseline that rescales them."""

import math
from importlib.resources import files

import numpy as np
import pytest

from medtasks.metrics.cross_check import package_baseline
from medtasks.metrics.neural.bertscore import BASELINE_F1, Idf, TokenMatches, bert_scores

from ....tables import each_row

CLS, SEP = 0, 2


def pair(reference, hypothesis, reference_best=(), hypothesis_best=()):
    """A pair from the ids of its words; [CLS] and [SEP] have matches that would show in the scores."""
    sides = []
    for ids, best in ((reference, reference_best), (hypothesis, hypothesis_best)):
        sides.append((np.array([CLS, *ids, SEP], np.int32), np.array([9, *best, -9], np.float32)))
    (reference_ids, reference_values), (hypothesis_ids, hypothesis_values) = sides
    return TokenMatches(reference_ids, hypothesis_ids, reference_values, hypothesis_values)


def test_the_text_of_a_special_token_weighs_nothing():
    scores = bert_scores([pair([5, SEP, 6], [5], [0.5, 0.1, 0.25], [0.5])])
    assert scores.recall == (0.375,)


def test_idf_counts_texts_that_hold_a_token():
    given_pairs = [pair([5, 5, 6], [7, 8], [0.5, 0.5, 0.25], [0.5, 0.25]), pair([6], [7], [1.0], [1.0])]
    scores = bert_scores(given_pairs, Idf.REFERENCES)
    five, six, unseen = math.log(3 / 2), math.log(3 / 3), math.log(3)
    assert six == 0
    assert scores.recall[0] == pytest.approx((five * 0.5 + five * 0.5 + six * 0.25) / (2 * five))
    assert scores.precision[0] == pytest.approx((unseen * 0.5 + unseen * 0.25) / (2 * unseen))
    assert math.isnan(scores.recall[1])
    assert scores.f1[1] == 0

    scores = bert_scores(given_pairs, Idf.HYPOTHESES)
    seven, eight = 0.0, math.log(3 / 2)
    assert scores.precision[0] == pytest.approx((seven * 0.5 + eight * 0.25) / eight)
    assert scores.recall[0] == pytest.approx((0.5 + 0.5 + 0.25) / 3)


def test_equal_and_empty_texts_count_as_texts():
    one = pair([5, 6], [5], [0.5, 0.25], [0.5])
    other = pair([6], [5], [0.25], [0.5])
    weights = math.log(6 / 3), math.log(6 / 5)
    scores = bert_scores([one, one, other, other, pair([], [5], [], [0.0])], Idf.REFERENCES)
    assert scores.recall[0] == pytest.approx((weights[0] * 0.5 + weights[1] * 0.25) / sum(weights))


@each_row("idf", Idf)
def test_an_empty_side_scores_zero(idf):
    full = pair([5], [6], [0.5], [0.5])
    scores = bert_scores([pair([], [5], [], [0.0]), full, pair([5], [], [0.0]), pair([], [])], idf)
    for values in (scores.precision, scores.recall, scores.f1):
        assert [values[place] for place in (0, 2, 3)] == [0, 0, 0]


def test_one_text_alone_has_no_idf_and_a_warning_says_so(warnings):
    scores = bert_scores([pair([5], [5], [1.0], [1.0])], Idf.REFERENCES)
    assert math.isnan(scores.precision[0])
    assert math.isnan(scores.recall[0])
    assert scores.f1 == (0.0,)
    bert_scores([pair([5], [5], [1.0], [1.0])])
    assert len(warnings) == 1
    assert "idf over the references: in 1 of 1 pairs" in warnings[0]


def test_the_baseline_is_that_of_the_package(golden):
    table = files("bert_score") / "rescale_baseline" / "en" / "distilroberta-base.tsv"
    for text in (table.read_text(), (golden / "metrics/bertscore/baseline.tsv").read_text()):
        assert package_baseline(text, 5)[2] == BASELINE_F1
