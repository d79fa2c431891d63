from dataclasses import replace

import pytest

from medtasks.metrics.report_metrics import REPORT_METRICS, report_metric

from ....tables import each_row
from .random_archive import invented_reports

REFERENCES = [*invented_reports(4, 15), "", "small effusion", " \n", "clear lungs"]
HYPOTHESES = [
    *invented_reports(4, 15)[:2],
    *invented_reports(2, 15, seed=9),
    "small effusion",
    "",
    "small effusion",
    "\t",
]


@each_row("name", ["radgraph", "radgraph_combined", "radgraph_xl"])
def test_scores_are_aligned_with_the_texts(v1, xl, settings, name):
    metric = report_metric(name, replace(settings, weights=xl if name == "radgraph_xl" else v1))

    scores = metric(references=REFERENCES, hypotheses=HYPOTHESES)

    assert tuple(scores.samples) == tuple(scores.totals) == REPORT_METRICS[name].keys
    for key, values in scores.samples.items():
        assert len(values) == len(REFERENCES)
        assert values[4:] == [0, 0, 0, 0]
        assert scores.totals[key] == pytest.approx(sum(values) / len(values), abs=1e-15)
    first, second, third, *_ = scores.samples[REPORT_METRICS[name].keys[1]]
    assert first == second == 1
    assert third < 1
    assert scores.settings["model"] == ("radgraph-xl" if name == "radgraph_xl" else "radgraph")
    assert scores.settings["dtype"] == "float32"
