"""Groups of samples: simultaneous intervals, and tests that some group differs, by simulation."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from medtasks.audit.scoring import by_group
from medtasks.metrics.metric import Metric
from medtasks.stats.intervals import difference_of_shares, interval

TASK = SimpleNamespace(
    metrics=[Metric("accuracy", of=lambda score: float(score["value"] == score["target"]))], breakdown=("department",)
)


def groups_of(*answers):
    """Return the groups of right (1) and wrong (0) answers, named after their order."""
    documents = [{"department": f"{place}"} for place, members in enumerate(answers) for _ in members]
    scores = [
        {"cluster_id": f"{place} {number}", "target": 1, "value": value, "reason": "ok"}
        for place, members in enumerate(answers)
        for number, value in enumerate(members)
    ]
    return by_group(TASK, documents, scores)["department"]


def test_no_group_is_found_to_differ_where_none_does():
    random = np.random.default_rng(7)
    found = [groups_of(*random.binomial(1, 0.6, size=(9, 40)).tolist()) for _ in range(200)]
    assert np.mean([min(group.p_holm[0] for group in groups) < 0.05 for groups in found]) < 0.08
    held = [all(group.scores[0].low <= 0.6 <= group.scores[0].high for group in groups) for groups in found]
    assert np.mean(held) > 0.92


def test_a_group_that_differs_is_found_and_small_ones_are_not_compared():
    large, other, worse, small = groups_of([1, 0, 1] * 40, [1, 1, 0] * 30, [0, 0, 0, 1] * 20, [0] * 12)
    assert worse.p_holm[0] < 0.01
    assert worse.p_holm[0] < other.p_holm[0]
    assert (large.compared, small.compared) == (True, False)
    assert math.isnan(small.p_holm[0])
    for group, level in ((large, 1 - 0.05 / 3), (small, 0.95)):
        score = group.scores[0]
        ends = interval(score.value, score.error, group.questions - 1, True, group.questions, level)
        assert (score.low, score.high) == pytest.approx(ends, abs=1e-3)


def test_two_groups_are_one_test():
    first, second = groups_of([1] * 40 + [0] * 20, [1] * 20 + [0] * 40)
    assert first.p_holm[0] == pytest.approx(second.p_holm[0], rel=0.1)
    assert first.p_holm[0] == pytest.approx(difference_of_shares((2 / 3, 1 / 3), (60, 60), 59), rel=0.1)
    (only,) = groups_of([1, 0] * 30)  # has nothing to be compared with
    assert math.isnan(only.p_holm[0])
