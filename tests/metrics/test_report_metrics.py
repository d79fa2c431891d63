"""The registry of report metrics: what it names exists and gives the keys it promises."""

import importlib
import math

import pytest
import torch
from transformers import RobertaConfig, RobertaModel

from medtasks.errors import UnknownName
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import REPORT_METRICS, metric_info, report_metric
from medtasks.metrics.weights import WEIGHTS

from .neural.radgraph.random_archive import write_archive

NAMES = tuple(REPORT_METRICS)
ISSUE = {"bleu", "rouge", "meteor", "chexbert", "f1_chexbert", "radgraph", "radgraph_xl", "bertscore"} | {
    *("radcliq_v0", "radcliq_v1", "radcliq_v1_multimedeval")
}


def test_all_metrics_are_there():
    assert set(NAMES) >= ISSUE
    assert all(name == info.name for name, info in REPORT_METRICS.items())


@pytest.mark.parametrize("name", NAMES)
def test_factories_can_be_imported_and_load_nothing(name):
    info = metric_info(name)
    assert callable(getattr(importlib.import_module(f"medtasks.metrics.{info.module}"), info.name))
    assert callable(report_metric(name, ModelSettings()))


def test_no_two_metrics_share_a_key():
    keys = [key for info in REPORT_METRICS.values() for key in info.keys]
    assert len(keys) == len(set(keys))


def test_weights_are_known():
    assert {name for info in REPORT_METRICS.values() for name in info.weights} <= set(WEIGHTS)


def test_only_radcliq_is_better_when_lower():
    lower = {name for name, info in REPORT_METRICS.items() if not info.higher_is_better}
    assert lower == {"radcliq_v0", "radcliq_v1", "radcliq_v1_multimedeval"}


def test_unknown_names_get_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'radgraph'"):
        report_metric("radgrap")


@pytest.fixture(scope="module")
def weights(golden, tmp_path_factory):
    """Random models of a few kilobytes for every entry that a metric opens."""
    folder = tmp_path_factory.mktemp("weights")
    recorded = golden / "metrics"
    large = folder / "roberta-large"
    distil = recorded / "bertscore" / "distilroberta-base"
    torch.manual_seed(0)
    size = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 24}
    RobertaModel(RobertaConfig(vocab_size=600, max_position_embeddings=514, **size)).save_pretrained(large)
    for name in ("vocab.json", "merges.txt"):
        (large / name).write_bytes((distil / name).read_bytes())
    return {
        "radgraph": recorded / "radgraph" / "radgraph.tar.gz",
        "radgraph-xl": write_archive(folder / "xl", "radgraph-xl"),
        "chexbert": recorded / "chexbert" / "chexbert.pth",
        "distilroberta-base": distil,
        "roberta-large": large,
    }


@pytest.mark.parametrize("name", [name for name in NAMES if not metric_info(name).wordnet])
def test_golden_bertscore_chexbert_radgraph_models_give_the_registered_keys(name, weights, tmp_path):
    settings = ModelSettings(named_weights=weights, device="cpu", cache=tmp_path, progress=False)
    references = ["No pleural effusion.", "", "Heart is large, lungs are clear.", "same", " \n\t"]
    hypotheses = ["No effusion.", "Clear.", "", "same", "Ünïcode 肺 " * 40]
    info = metric_info(name)
    scores = report_metric(name, settings)(references=references, hypotheses=hypotheses)
    assert tuple(scores.totals) == info.keys
    assert set(scores.samples) <= set(info.keys)
    assert all(len(values) == 5 for values in scores.samples.values())
    for key, values in scores.samples.items():
        assert all(type(value) is float and math.isfinite(value) for value in values)
        assert scores.totals[key] == pytest.approx(math.fsum(values) / 5)
    assert all(type(value) is float for value in scores.totals.values())
    with pytest.raises(ValueError, match="1 references and 2 hypotheses"):
        report_metric(name, settings)(references=["a"], hypotheses=["a", "b"])


@pytest.mark.parametrize("name", [name for name in NAMES if not metric_info(name).wordnet])
def test_golden_bertscore_chexbert_radgraph_of_no_pairs_are_nan(name, weights, tmp_path):
    settings = ModelSettings(named_weights=weights, device="cpu", cache=tmp_path, progress=False)
    scores = report_metric(name, settings)(references=[], hypotheses=[])
    assert tuple(scores.totals) == metric_info(name).keys
    assert all(math.isnan(value) for value in scores.totals.values())
    assert all(list(values) == [] for values in scores.samples.values())
