"""Our metrics give the numbers of the packages that publish them."""

import json
import math

import pytest

from medtasks.metrics.metric import mean
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import metric_info, report_metric

from ..tables import each_row
from .published_packages import ORACLES

WEIGHTS = {
    "radgraph": "radgraph/radgraph.tar.gz",
    "distilroberta-base": "bertscore/distilroberta-base",
}
PLAIN = {  # without weights
    "Unchanged tube. ": "",
    "": "Clear.",
    "Heart is large.\n\nLungs are clear.": "Heart is large.",
    "No pleural effusion or pneumothorax is seen.": "No effusion is seen; no pneumothorax.",
}


def assert_as_published(metric, references, hypotheses, settings):
    ours = report_metric(metric, settings)(references=references, hypotheses=hypotheses)
    published = ORACLES[metric](references, hypotheses, settings)
    for key, values in zip(metric_info(metric).keys, published, strict=True):
        if isinstance(values, float):
            assert ours.totals[key] == pytest.approx(values, abs=1e-4)
            continue
        assert ours.samples[key] == pytest.approx(values, abs=1e-4, nan_ok=True)
        assert ours.totals[key] == pytest.approx(mean(values), abs=1e-4)
        assert any(value > 0 for value in ours.samples[key] if not math.isnan(value))


@each_row("metric", ["bleu", "corpus_bleu", "rouge", "rouge_stemmed"])
def test_lexical_metrics_equal_their_packages(metric):
    texts = {
        **PLAIN,
        "The heart size is normal and the lungs are clear": "The heart size is normal and lungs clear",
    }
    assert_as_published(metric, list(texts), list(texts.values()), ModelSettings())


@each_row(
    "metric", [name for name in ORACLES if name not in ("medheval_bertscore", "radgraph_xl")]
)
def test_golden_metrics_equal_their_packages(golden, metric):
    pairs = json.loads((golden / "metrics/radgraph/expected.json").read_text())["pairs"]
    pairs = [
        *sorted(pairs, key=lambda pair: -pair["partial"])[:3],
        {"reference": "Clear.", "hypothesis": ""},
    ]
    named = {name: golden / "metrics" / path for name, path in WEIGHTS.items()}
    settings = ModelSettings(named_weights=named, device="cpu", cache=None, progress=False)
    assert_as_published(
        metric,
        *([pair[side] for pair in pairs] for side in ("reference", "hypothesis")),
        settings,
    )
