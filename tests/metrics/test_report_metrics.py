"""The registry of report metrics: what it names exists and gives the keys it promises."""

import json
import math
from dataclasses import replace

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import RobertaConfig, RobertaModel

from medtasks.errors import UnknownName
from medtasks.metrics.model_settings import WEIGHTS, ModelSettings
from medtasks.metrics.report_metrics import REPORT_METRICS, metric_info, report_metric

from ..tables import each_row
from ..tiny_chexbert import write_chexbert
from .neural.radgraph.random_archive import write_archive

NAMES = tuple(REPORT_METRICS)
ISSUE = {"bleu", "rouge", "meteor", "chexbert", "f1_chexbert", "radgraph", "radgraph_xl", "bertscore"} | {
    *("radcliq_v0", "radcliq_v1", "radcliq_v1_multimedeval")
}


def test_all_metrics_are_there():
    assert set(NAMES) >= ISSUE
    assert all(name == info.name for name, info in REPORT_METRICS.items())


def test_no_two_metrics_share_a_key():
    keys = [key for info in REPORT_METRICS.values() for key in info.keys]
    assert len(keys) == len(set(keys))


def test_weights_are_known():
    assert {name for info in REPORT_METRICS.values() for name in info.weights} <= set(WEIGHTS)


def test_unknown_names_get_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'radgraph'"):
        report_metric("radgrap")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Random models of a few kilobytes for every entry that a metric opens."""
    folder = tmp_path_factory.mktemp("weights")
    encoder = RobertaConfig(
        vocab_size=300,
        max_position_embeddings=514,
        hidden_size=8,
        num_attention_heads=2,
        intermediate_size=8,
        num_hidden_layers=17,
    )
    torch.manual_seed(0)
    RobertaModel(encoder).save_pretrained(folder / "roberta")
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())]
    (folder / "roberta" / "vocab.json").write_text(json.dumps({token: at for at, token in enumerate(vocabulary)}))
    (folder / "roberta" / "merges.txt").write_text("#version: 0.2\n")
    return {
        "radgraph": write_archive(folder / "v1", "radgraph"),
        "radgraph-xl": write_archive(folder / "xl", "radgraph-xl"),
        "chexbert": write_chexbert(folder / "chexbert"),
        "distilroberta-base": folder / "roberta",
        "roberta-large": folder / "roberta",
    }


WITHOUT_WORDNET = each_row("name", [name for name in NAMES if not metric_info(name).wordnet])
REFERENCES = ["No pleural effusion.", "", "Heart is large, lungs are clear.", "same", " \n\t", "No Effusion"]
HYPOTHESES = ["No effusion.", "Clear.", "", "same", "Ünïcode 肺 " * 40, "no effusion"]


@WITHOUT_WORDNET
def test_metrics_give_the_registered_keys(name, weights, tmp_path):
    settings = ModelSettings(named_weights=weights, device="cpu", cache=tmp_path, progress=False)
    info, metric = metric_info(name), report_metric(name, settings)
    scores = metric(references=REFERENCES, hypotheses=HYPOTHESES)
    assert tuple(scores.totals) == info.keys
    assert set(scores.samples) <= set(info.keys)
    assert all(len(values) == len(REFERENCES) for values in scores.samples.values())
    for key, values in scores.samples.items():
        assert all(type(value) is float and math.isfinite(value) for value in values)
        assert scores.totals[key] == pytest.approx(math.fsum(values) / len(values))
    assert all(type(value) is float for value in scores.totals.values())
    if info.weights and info.higher_is_better:
        assert scores.settings["dtype"] == "float32"
    with pytest.raises(ValueError, match="1 references and 2 hypotheses"):
        metric(references=["a"], hypotheses=["a", "b"])
    if "idf" not in info.keys[0] and "multimedeval" not in name:  # these weigh tokens by all texts of the call
        order = [3, 1, 4, 0, 2, 5]
        moved = metric(references=[REFERENCES[at] for at in order], hypotheses=[HYPOTHESES[at] for at in order])
        assert moved.totals == pytest.approx(scores.totals, abs=1e-6)


@WITHOUT_WORDNET
def test_no_pairs_are_nan_and_need_no_weights(name, weights, tmp_path):
    settings = ModelSettings(device="cpu", cache=tmp_path, progress=False)
    if name.startswith("radcliq_v"):  # looks for all of them before it runs any
        settings = replace(settings, named_weights=weights)
    scores = report_metric(name, settings)(references=[], hypotheses=[])
    assert tuple(scores.totals) == metric_info(name).keys
    assert all(math.isnan(value) for value in scores.totals.values())
    assert all(list(values) == [] for values in scores.samples.values())
