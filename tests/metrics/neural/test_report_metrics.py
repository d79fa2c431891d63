"""The registry of report metrics: what it names exists and gives the keys it promises."""

import math
import subprocess
import sys

import pytest

from medtasks.errors import UnknownName
from medtasks.metrics.model_settings import TOKENIZER, WEIGHTS, WORDNET, ModelSettings
from medtasks.metrics.report_metrics import REPORT_METRICS, metric_info, report_metric

from ...tables import each_row
from ..test_cider import frequencies_file


def test_keys_and_weights_of_the_registry():
    keys = [key for info in REPORT_METRICS.values() for key in info.keys]
    assert len(keys) == len(set(keys))
    assert {name for info in REPORT_METRICS.values() for name in info.weights} <= {
        *WEIGHTS,
        WORDNET,
        TOKENIZER,
    }
    with pytest.raises(UnknownName, match="did you mean 'radgraph'"):
        report_metric("radgrap")


REFERENCES = [
    "No pleural effusion.",
    "",
    "Heart is large, lungs are clear.",
    "same",
    " \n\t",
    "No Effusion",
]
HYPOTHESES = ["No effusion.", "Clear.", "", "same", "Ünïcode 肺 " * 40, "no effusion"]


CIDER = {"cider_coco", "cider_d"}
OF_OTHER_TESTS = {"green", "rate_score", "rate_score_reference", *CIDER}


def test_cider_gives_the_registered_keys(tokenizer, tmp_path):
    for name in CIDER:
        gives_the_registered_keys(name, {}, tmp_path)


@each_row(
    "name",
    [
        n
        for n, info in REPORT_METRICS.items()
        if WORDNET not in info.weights and n not in OF_OTHER_TESTS
    ],
)
def test_metrics_give_the_registered_keys(name, v1, xl, tiny, deep_roberta, tmp_path):
    weights = {"radgraph": v1, "radgraph-xl": xl, "chexbert": tiny}
    weights |= {"distilroberta-base": deep_roberta, "roberta-large": deep_roberta}
    gives_the_registered_keys(name, weights, tmp_path)


def gives_the_registered_keys(name, weights, tmp_path):
    weights["coco-val"] = frequencies_file(
        tmp_path / "coco.json", {"effusion": 3.0, "no effusion": 1.0}
    )
    settings = ModelSettings(
        named_weights=weights, device="cpu", cache=tmp_path, progress=False
    )
    info, metric = metric_info(name), report_metric(name, settings)
    scores = metric(references=REFERENCES, hypotheses=HYPOTHESES)
    assert tuple(scores.totals) == info.keys
    assert set(scores.samples) <= set(info.keys)
    assert all(len(values) == len(REFERENCES) for values in scores.samples.values())
    for key, values in scores.samples.items():
        assert all(type(value) is float and math.isfinite(value) for value in values)
        assert scores.totals[key] == pytest.approx(math.fsum(values) / len(values))
    assert all(type(value) is float for value in scores.totals.values())
    if info.module.startswith("neural") and info.higher_is_better:
        assert scores.settings["dtype"] == "float32"
    with pytest.raises(ValueError, match="1 references and 2 hypotheses"):
        metric(references=["a"], hypotheses=["a", "b"])
    if (
        "idf" not in info.keys[0] and "multimedeval" not in name
    ):  # these weigh tokens by all texts of the call
        order = [3, 1, 4, 0, 2, 5]
        moved = metric(
            references=[REFERENCES[at] for at in order],
            hypotheses=[HYPOTHESES[at] for at in order],
        )
        assert moved.totals == pytest.approx(scores.totals, abs=1e-6)
    if not name.startswith("radcliq_v"):  # which looks for all weights before it runs any
        metric = report_metric(
            name, ModelSettings(device="cpu", cache=tmp_path, progress=False)
        )
    nothing = metric(references=[], hypotheses=[])
    assert tuple(nothing.totals) == info.keys
    assert all(math.isnan(value) for value in nothing.totals.values())
    assert all(list(values) == [] for values in nothing.samples.values())


def test_a_metric_of_the_judges_is_known_wherever_replies_are_scored():
    program = (
        "from medtasks.metrics import report_metrics\n"
        "print('green' in report_metrics.REPORT_METRICS)\n"
        "from medtasks.families import family\n"
        "print(report_metrics.metric_info('green_failed').asks_judge)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["False", "True"]
