"""What CheXbert's own network, tokenisation and F1 gave for the recorded texts."""

import json
from dataclasses import replace

import numpy as np
import pytest

from medtasks.data.samples import Sample
from medtasks.extract.labeler import chexbert_labels, from_labels, label_replies
from medtasks.metrics.chest_findings import CONDITIONS, FIVE_CONDITIONS, Finding
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.chexbert import Chexbert, prepare
from medtasks.metrics.neural.chexbert_network import read_config, token_ids
from medtasks.metrics.neural.metric_checkpoints import find_chexbert
from medtasks.metrics.report_metrics import report_metric
from medtasks.version import check_unpickling

from ....tables import each_row

SIDES = {"references": "reference", "hypotheses": "hypothesis"}
AVERAGES = ("micro", "macro", "weighted", "samples")


@pytest.fixture(scope="module")
def folder(golden):
    return golden / "metrics" / "chexbert"


@pytest.fixture(scope="module")
def expected(folder):
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def recorded(folder):
    return ModelSettings(
        named_weights={"chexbert": folder}, device="cpu", cache=None, progress=False
    )


def sides(expected):
    return [pair[side] for pair in expected["pairs"] for side in ("reference", "hypothesis")]


def pairs(expected):
    return {
        name: [pair[side]["text"] for pair in expected["pairs"]] for name, side in SIDES.items()
    }


def test_golden_chexbert_order_of_labels_and_classes(expected):
    assert list(CONDITIONS) == expected["labels"]
    assert [finding.name.title() for finding in Finding] == expected["class_names"]
    assert sorted(FIVE_CONDITIONS) == sorted(expected["mimic_cxr_5_labels"])


def test_golden_chexbert_token_ids(recorded, expected):
    files = find_chexbert(recorded)
    wanted = sides(expected)
    rows = token_ids([prepare(side["text"]) for side in wanted], files, read_config(files))
    for row, side in zip(rows, wanted, strict=True):
        assert len(row) == side["token_count"]
        shown = side["input_ids"]
        if "..." in shown:
            cut = shown.index("...")
            row = [*row[:cut], "...", *row[len(row) - len(shown) + cut + 1 :]]
        assert row == shown
    assert max(len(row) for row in rows) <= 512


@each_row("batch_size", [None, 1, 7])
def test_golden_chexbert_classes_and_vectors(recorded, expected, batch_size):
    wanted = sides(expected)
    readings = Chexbert(replace(recorded, batch_size=batch_size))(
        [side["text"] for side in wanted]
    )
    assert [list(reading.classes) for reading in readings] == [
        side["classes"] for side in wanted
    ]
    vectors = np.stack([reading.vector for reading in readings])
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(
        vectors, [side["cls_vector"] for side in wanted], atol=1e-4, rtol=0
    )


def test_golden_chexbert_similarity(recorded, expected):
    scores = report_metric("chexbert", recorded)(**pairs(expected))
    wanted = [pair["cosine"] for pair in expected["pairs"]]
    assert scores.samples["chexbert_similarity"] == pytest.approx(wanted, abs=1e-4)
    assert scores.totals == {
        "chexbert_similarity": pytest.approx(expected["mean_cosine"], abs=1e-4)
    }


@each_row(
    "metric, convention, prefix",
    [
        ("f1_chexbert", "uncertain_positive", "chexbert"),
        ("f1_chexbert_certain", "uncertain_negative", "chexbert_certain"),
    ],
)
def test_golden_chexbert_f1(recorded, expected, metric, convention, prefix):
    scores = report_metric(metric, recorded)(**pairs(expected))
    wanted = expected["f1"][convention]
    reports = {
        f"{prefix}_{size}_{average}_f1": wanted[name][f"{average} avg"]["f1-score"]
        for size, name in (("14", "all_14"), ("5", "top_5"))
        for average in AVERAGES
    }
    assert scores.totals == pytest.approx(
        {**reports, f"{prefix}_5_accuracy": wanted["accuracy_top_5"]}, abs=1e-6
    )
    assert scores.samples[f"{prefix}_5_accuracy"] == wanted["per_report_top_5_exact"]
    assert scores.settings["uncertain"] == convention.removeprefix("uncertain_")


def test_golden_chexbert_labeler_of_the_classification(folder, expected, tmp_path, monkeypatch):
    """The rule of MIMIC-CXR classification, with weights in the folder that several users share."""
    check_unpickling(
        folder
    )  # skipped here with an old torch; the rule would count a refusal as a failure
    (tmp_path / "chexbert").mkdir()
    (tmp_path / "chexbert" / "chexbert.pth").symlink_to(folder / "chexbert.pth")
    (tmp_path / "bert-base-uncased").symlink_to(folder / "bert-base-uncased")
    monkeypatch.setenv("MEDTASKS_WEIGHTS", str(tmp_path))
    wanted = [side for side in sides(expected) if side["text"].strip()]
    texts = [side["text"] for side in wanted]
    names = expected["mimic_cxr_5_labels"]
    answers = [
        from_labels(text, labels, names)
        for text, labels in zip(texts, label_replies(texts), strict=True)
    ]
    assert [list(answer.value) for answer in answers] == [
        side["mimic_cxr_5"] for side in wanted
    ]
    assert (
        list(chexbert_labels(texts[0], Sample({"options": names})).value)
        == wanted[0]["mimic_cxr_5"]
    )
