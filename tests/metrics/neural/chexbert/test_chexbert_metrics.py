"""CheXbert on odd texts, and its metrics: the published example, and scikit-learn as a second opinion."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from medtasks.metrics.chest_findings import CONDITIONS, FIVE_CONDITIONS, label_scores
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.chexbert import Chexbert, prepare


@pytest.fixture
def settings(tiny):
    return ModelSettings(
        named_weights={"chexbert": tiny}, device="cpu", cache=None, progress=False
    )


def test_a_long_text_is_read_up_to_the_limit(settings):
    # One token per word, so that 510 of them stand between [CLS] and [SEP].
    start = "effusion " * 509
    cut, same, other = Chexbert(settings)(
        [start + "left", start + "left heart " * 9, start + "right"]
    )
    assert cut.classes == same.classes
    np.testing.assert_allclose(cut.vector, same.vector, atol=1e-5, rtol=0)
    assert not np.allclose(cut.vector, other.vector, atol=1e-3)


def test_white_space_parts_words_and_half_characters_are_left_out(settings):
    assert prepare(" no\x0cedema \x1f\u2003left\n\n") == "no edema left"
    assert prepare("no\ud800 edema") == "no edema"
    whole, half = Chexbert(settings)(["no edema", "no\udc80 edema"])
    assert np.array_equal(whole.vector, half.vector)


@given(st.lists(st.tuples(*[st.tuples(*[st.integers(0, 3)] * 14)] * 2), min_size=1, max_size=8))
def test_averages_are_scikit_learns(pairs):
    gold, predicted = zip(*pairs, strict=True)
    totals = label_scores(gold, predicted, uncertain="negative", prefix="x").totals
    five = [CONDITIONS.index(name) for name in FIVE_CONDITIONS]
    for size, columns in (("14", list(range(14))), ("5", five)):
        sides = [(np.array(side) == 1)[:, columns] for side in (gold, predicted)]
        for average in ("micro", "macro", "weighted", "samples"):
            wanted = f1_score(*sides, average=average, zero_division=0)
            assert totals[f"x_{size}_{average}_f1"] == pytest.approx(wanted, abs=1e-12), average


@given(st.lists(st.tuples(*[st.tuples(*[st.integers(0, 3)] * 14)] * 2), min_size=1, max_size=6))
def test_uncertain_counts_as_the_convention_says(pairs):
    gold, predicted = zip(*pairs, strict=True)
    as_positive, as_negative = (
        label_scores(gold, predicted, uncertain=convention, prefix="x")
        for convention in ("positive", "negative")
    )
    # Replacing uncertain findings by what they count as changes nothing.
    for scores, convention, value in (
        (as_positive, "positive", 1),
        (as_negative, "negative", 2),
    ):
        replaced = [
            [[value if c == 3 else c for c in row] for row in side]
            for side in (gold, predicted)
        ]
        again = label_scores(*replaced, uncertain=convention, prefix="x")
        assert (again.totals, again.samples) == (scores.totals, scores.samples)
    five = [CONDITIONS.index(name) for name in FIVE_CONDITIONS]
    exact = [[a[c] in (1, 3) for c in five] == [b[c] in (1, 3) for c in five] for a, b in pairs]
    assert as_positive.samples["x_5_accuracy"] == exact
