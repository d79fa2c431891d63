"""Token overlap, and when an answer counts as right."""

import pytest

from medtasks.metrics.overlaps import TokenOverlap, closed_correct, is_closed, open_correct, token_overlap

from ..tables import each_row


def test_overlap_of_equal_sets_stays_below_one():
    overlap = token_overlap({"left", "lobe"}, {"left", "lobe"})
    assert (overlap.precision, overlap.recall) == (1, 1)
    assert overlap.f1 == pytest.approx(2 / (2 + 1e-8), abs=1e-15)


@each_row("reply, key", [(set(), {"lobe"}), ({"lobe"}, set()), (set(), set()), ({"lung"}, {"lobe"})])
def test_nothing_in_common_scores_zero(reply, key):
    assert token_overlap(reply, key) == TokenOverlap(0, 0, 0)


def test_precision_is_of_the_reply_and_recall_of_the_key():
    overlap = token_overlap({"the", "left", "lower", "lobe"}, {"left"})
    assert (overlap.precision, overlap.recall) == (0.25, 1)
    assert overlap.f1 == pytest.approx(0.4)


@each_row(
    "key, closed", [("yes", True), ("no", True), ("not", False), ("Yes", False), ("", False), ("yes left", False)]
)
def test_closed_is_exactly_yes_or_no(key, closed):
    assert is_closed(key) is closed


@each_row(
    "reply, key, right",
    [
        ({"no"}, "no", True),
        ({"not", "seen"}, "no", True),
        ({"no", "not"}, "no", True),
        ({"none"}, "no", False),
        ({"not"}, "yes", False),
        ({"yes"}, "yes", True),
        ({"yes", "no"}, "yes", True),
        ({"yes", "no"}, "no", True),
        (set(), "no", False),
    ],
)
def test_closed_correct(reply, key, right):
    assert closed_correct(reply, key) is right


@each_row("recall, right", [(0.75, True), (0.7499, False), (1.0, True), (0.0, False)])
def test_open_correct_from_three_quarters(recall, right):
    assert open_correct(recall) is right
