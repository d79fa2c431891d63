"""Recorded behaviour of the ``radgraph`` package and of CXR-Report-Metric on a tiny archive in the published format."""

import json
import math
from dataclasses import replace

import pytest

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.radgraph import RadGraph, radgraph, radgraph_combined

from ....tables import each_row


@pytest.fixture
def folder(golden):
    return golden / "metrics" / "radgraph"


@pytest.fixture
def expected(folder):
    return json.loads((folder / "expected.json").read_text("utf-8"))


@pytest.fixture(params=["radgraph.tar.gz", "radgraph", "."])
def given(request, folder):
    return ModelSettings(
        named_weights={"radgraph": folder / request.param},
        device="cpu",
        cache=None,
        progress=False,
    )


@each_row("batch_size", [None, 1])
def test_golden_radgraph_annotations(given, expected, batch_size):
    texts = [case["text"] for case in expected["texts"]]
    found = RadGraph("radgraph", replace(given, batch_size=batch_size)).annotate(texts)
    assert found
    for case, annotation in zip(expected["texts"], found, strict=True):
        assert json.dumps(annotation) == json.dumps(case["annotation"])


def test_golden_radgraph_f1(given, expected):
    pairs = expected["pairs"]
    references, hypotheses = (
        [pair[side] for pair in pairs] for side in ("reference", "hypothesis")
    )
    scores = radgraph(given, references, hypotheses)
    for level in ("simple", "partial", "complete"):
        assert scores.samples[f"radgraph_{level}"] == pytest.approx(
            [pair[level] for pair in pairs], abs=1e-6
        )
        assert scores.totals[f"radgraph_{level}"] == pytest.approx(
            expected["mean"][level], abs=1e-6
        )


def test_golden_radgraph_combined(given, expected):
    pairs = expected["pairs"]
    references, hypotheses = (
        [pair[side] for pair in pairs] for side in ("reference", "hypothesis")
    )
    scores = radgraph_combined(given, references, hypotheses)
    unscored = {
        "entity_f1": 0.0,
        "relation_f1": 0.0,
        "combined": 0.0,
    }  # the reference has null: it cannot score them
    for name in unscored:
        wanted = [(pair["cxr_report_metric"] or unscored)[name] for pair in pairs]
        key = "radgraph_combined" if name == "combined" else f"radgraph_{name}"
        assert scores.samples[key] == pytest.approx(wanted, abs=1e-6)
        assert scores.totals[key] == pytest.approx(math.fsum(wanted) / len(wanted), abs=1e-6)
