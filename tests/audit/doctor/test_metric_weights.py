"""Weights of metrics, WordNet, and the labeler."""

import pytest

from medtasks.audit.doctor import metric_models as checks
from medtasks.audit.doctor.check_results import State
from medtasks.audit.doctor.metric_models import metric_weights, model_settings
from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import WEIGHTS, weights_folder

from .conftest import expect, only

REPORT = "multimedeval_mimic_cxr_report"
LABELS = "multimedeval_mimic_cxr_classification"


@pytest.fixture(autouse=True)
def no_wordnet(monkeypatch):
    def missing():
        raise WeightsMissing("WordNet is nowhere; fetch it")

    monkeypatch.setattr(checks, "load_wordnet", missing)


def put(name):
    folder = weights_folder(name)
    folder.mkdir(parents=True)
    for file in WEIGHTS[name].files:
        (folder / file).write_text("")


def test_report_task_without_weights(scope):
    found = list(metric_weights(scope(REPORT)))
    assert {one.name for one in found} == {
        *("distilroberta-base", "chexbert", "bert-base-uncased", "radgraph", "pubmedbert", "wordnet")
    }
    assert {one.state for one in found} == {State.WARNING}
    assert [one.fix for one in found if one.name == "radgraph"] == ["medtasks weights fetch radgraph"]


def test_weights_that_are_here(scope, monkeypatch):
    put("radgraph")
    monkeypatch.setattr(checks, "load_wordnet", lambda: None)
    states = {one.name: one.state for one in metric_weights(scope(REPORT))}
    assert (states["radgraph"], states["wordnet"], states["chexbert"]) == (State.OK, State.OK, State.WARNING)


def test_task_without_such_metrics(scope):
    assert list(metric_weights(scope("mediconfusion"))) == []
    assert list(model_settings(scope("mediconfusion"))) == []


def test_without_tasks_one_note_sums_up(everything, monkeypatch):
    put("radgraph")
    found = expect(only(metric_weights(everything)), State.NOTE)
    assert found.found.startswith(f"1 of {len(WEIGHTS) + 1} ")
    assert " radgraph " not in found.fix
    assert "wordnet" in found.fix
    for name in set(WEIGHTS) - {"radgraph"}:
        put(name)
    monkeypatch.setattr(checks, "load_wordnet", lambda: None)
    assert only(metric_weights(everything)).state is State.OK


def test_labels_need_chexbert_or_another_labeler(scope, monkeypatch):
    assert {one.name for one in metric_weights(scope(LABELS))} == {"chexbert", "bert-base-uncased"}
    monkeypatch.setenv("MEDTASKS_LABELER", "somewhere:build")
    assert list(metric_weights(scope(LABELS))) == []


def test_settings(everything, monkeypatch):
    assert list(model_settings(everything)) == []
    monkeypatch.setenv("MEDTASKS_METRICS_DTYPE", "float8")
    expect(only(model_settings(everything)), State.PROBLEM, "float8")
