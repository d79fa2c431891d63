"""Best of a group's members, beside the harness's own pooled error."""

import math

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
    ],
)
def test_best(values, highest, lowest):
    assert best_highest(values, [352] * len(values), True) == highest
    assert best_lowest(values, [352] * len(values), True) == lowest


@each_row("best", [best_highest, best_lowest])
def test_best_of_nothing_known_is_nan(best):
    assert math.isnan(best([math.nan, math.nan], [352, 352], True))


@each_row("best", [best_highest, best_lowest])
def test_harness_can_compute_no_pooled_error_afterwards(best):
    stderrs, sizes = [0.01, 0.02, 0.03], [352, 352, 352]
    assert not math.isnan(pooled_sample_stderr(stderrs, sizes))
    best([0.1, 0.2, 0.3], sizes, True)
    assert len(sizes) == 3
    assert math.isnan(pooled_sample_stderr(stderrs, sizes))
