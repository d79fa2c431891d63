"""How many samples are in no score, and how many may be."""

import pytest

from medtasks.errors import MedTasksError
from medtasks.runs.sample_counts import FailureLimit, SampleCounts, counts_of


def test_the_filter_that_lost_most_counts():
    row = {
        "alias": "ours",
        "accuracy,reference": 0.5,
        **{f"{name}_samples,reference": value for name, value in (("scored", 8.0), ("failed", 1), ("unjudged", 3))},
        **{f"{name}_samples,robust": value for name, value in (("scored", 11), ("failed", 1))},
        "failed_samples_stderr,reference": "N/A",
    }
    assert counts_of(row) == SampleCounts(scored=8, failed=1, unjudged=3)
    assert counts_of(row).lost == 4
    assert counts_of({"accuracy,none": 0.5}) is None
    assert counts_of({"scored_samples,none": 5}) is None
    assert counts_of({"scored_samples,none": float("nan"), "failed_samples,none": 0}) is None


def test_limits():
    for limit, counts, is_allowed in (
        ("1%", SampleCounts(99, 1), True),
        ("1%", SampleCounts(98, 2), False),
        ("1%", SampleCounts(197, 2, 1), False),
        ("1%", SampleCounts(0, 0), True),
        ("0", SampleCounts(1000, 1), False),
        ("2", SampleCounts(1, 1, 1), True),
        ("2", SampleCounts(1, 1, 2), False),
        ("0.5 %", SampleCounts(199, 1), True),
        ("100%", SampleCounts(0, 9), True),
    ):
        assert FailureLimit.parse(limit).allows(counts) is is_allowed, limit
    for text in ("", "%", "x", "-1", "1.5", "101%", "nan", "nan%", "inf%", "1%%"):
        with pytest.raises(MedTasksError, match="neither a number of samples"):
            FailureLimit.parse(text)
    assert str(SampleCounts(5, 1)) == "1 failed of 6 samples"
    assert str(SampleCounts(5, 1, 2)) == "1 failed and 2 unjudged of 8 samples"
    assert [str(FailureLimit.parse(text)) for text in ("2.5%", "7")] == ["2.5%", "7"]
