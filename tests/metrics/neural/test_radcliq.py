"""RadCliQ: published numbers, the recorded reference, and what its inputs are made of."""

import json
import math
import re

import pytest

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import radcliq
from medtasks.metrics.neural.radcliq import (
    CXR_REPORT_METRIC,
    RADCLIQ_V0,
    RADCLIQ_V1,
    RadCliQInputs,
)
from medtasks.metrics.report_metrics import report_metric

from ...tables import each_row

NAMES = ("radcliq_v0", "radcliq_v1", "radcliq_v1_multimedeval")


def test_golden_radcliq(golden):
    lines = (golden / "metrics" / "radcliq.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    assert cases
    assert RADCLIQ_V1.score((0.2, 0.35, 0.45, 0.15)) == pytest.approx(1.175656683991, abs=1e-9)
    for case in cases:
        inputs = RadCliQInputs(
            *(case[name] for name in ("radgraph_combined", "bertscore", "semb", "bleu2"))
        )
        assert RADCLIQ_V0.score(inputs) == pytest.approx(case["v0"], abs=1e-9)
        assert RADCLIQ_V1.score(inputs) == pytest.approx(case["v1"], abs=1e-9)


@each_row("name", NAMES)
def test_missing_weights_are_told_before_any_model_runs(name, monkeypatch, tmp_path):
    monkeypatch.setattr(radcliq, "report_metric", lambda *_: pytest.fail("a metric was run"))
    (tmp_path / "radgraph.tar.gz").touch()
    settings = ModelSettings(named_weights={"radgraph": tmp_path / "radgraph.tar.gz"})
    with pytest.raises(WeightsMissing, match="medtasks weights fetch chexbert"):
        report_metric(name, settings)(references=["a"], hypotheses=["b"])


@pytest.fixture
def tiny(golden, tmp_path):
    """Settings with the recorded random models."""
    folder = golden / "metrics"
    named = {
        "radgraph": folder / "radgraph" / "radgraph.tar.gz",
        "chexbert": folder / "chexbert" / "chexbert.pth",
        "distilroberta-base": folder / "bertscore" / "distilroberta-base",
    }
    return ModelSettings(
        named_weights=named, cache=tmp_path / "cache", progress=False, device="cpu"
    )


def test_golden_radcliq_end_to_end(golden, tiny):
    pairs = json.loads((golden / "metrics/bertscore/expected.json").read_text())["pairs"][:6]
    references = [pair["reference"] for pair in pairs] + [
        "",
        "No  pleural   effusion.",
        "Heart\n\n large.",
        "x",
    ]
    hypotheses = [pair["hypothesis"] for pair in pairs] + [
        "Clear.",
        "",
        "Heart  large",
        "résumé 肺 " * 2500,
    ]
    texts = {"references": references, "hypotheses": hypotheses}
    bert = report_metric("bertscore", tiny)(**texts).samples["rescaled_bertscore_f1"]
    assert list(bert[:6]) == pytest.approx(
        [pair["no_idf_rescaled"][2] for pair in pairs], abs=1e-4
    )
    for name, sources in zip(
        NAMES, (CXR_REPORT_METRIC, CXR_REPORT_METRIC, radcliq.MULTIMEDEVAL), strict=True
    ):
        scores = report_metric(name, tiny)(**texts)
        single = {
            side: [re.sub(" +", " ", text) for text in given] for side, given in texts.items()
        }
        columns = [
            report_metric(metric, tiny)(**(single if metric == "bertscore" else texts)).samples[
                key
            ]
            for metric, key in sources.items()
        ]
        assert [scores.settings[field] for field in RadCliQInputs._fields] == list(
            sources.values()
        )
        assert (scores.settings["orientation"], scores.settings["similarity.dtype"]) == (
            "lower is better",
            "float32",
        )
        model = RADCLIQ_V0 if name == "radcliq_v0" else RADCLIQ_V1
        expected = [model.score(RadCliQInputs(*row)) for row in zip(*columns, strict=True)]
        assert list(scores.samples[name]) == pytest.approx(expected, abs=1e-6)
        assert len(scores.samples[name]) == 10
        assert all(map(math.isfinite, scores.samples[name]))
        assert scores.totals[name] == pytest.approx(math.fsum(expected) / 10, abs=1e-6)


def test_golden_radcliq_of_multimedeval_rests_on_the_whole_set(tiny):
    """With idf over a single hypothesis no token weighs anything, and an exact match scores 9.37: never slice."""
    text = ["No pleural effusion."]
    bertscore, key = report_metric("bertscore_multimedeval", tiny), "rescaled_idf_bertscore_f1"
    alone = bertscore(references=text, hypotheses=text).samples[key]
    assert alone[0] == pytest.approx(-5.550157, abs=1e-6)
    score = report_metric("radcliq_v1_multimedeval", tiny)(references=text, hypotheses=text)
    assert score.samples["radcliq_v1_multimedeval"][0] > 9
    whole = bertscore(
        references=[*text, "Heart is large."], hypotheses=[*text, "No edema."]
    ).samples[key]
    assert whole[0] == pytest.approx(1, abs=1e-4)
