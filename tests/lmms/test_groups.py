"""Best of a group's members, beside the harness's own pooled error."""

import math

import pytest
from lmms_eval.api.metrics import pooled_sample_stderr

from medtasks.hooks import best_highest, best_lowest

from ..tables import each_row


@each_row(
    ("values", "highest", "lowest"),
    [
        ([0.25, 0.5, 0.125], 0.5, 0.125),
        ([0.25, math.nan, 0.125], 0.25, 0.125),
        ([math.nan, 0.25], 0.25, 0.25),
        ([0.0, math.nan], 0.0, 0.0),
        ([1], 1, 1),
        ([math.nan, math.nan], math.nan, math.nan),
    ],
)
def test_best(values, highest, lowest):
    for best, expected in ((best_highest, highest), (best_lowest, lowest)):
        sizes = [352] * len(values)
        assert best(values, sizes, True) == pytest.approx(expected, nan_ok=True)
        # The harness can compute no pooled error afterwards.
        assert math.isnan(pooled_sample_stderr([0.01] * len(values), sizes))
