"""Baselines and rescaling."""

import csv
from importlib.resources import files

import pytest

from medtasks.errors import MedTasksError
from medtasks.metrics.bertscore.baseline import BASELINES, Baseline, read_baseline, rescale

HEADER = "LAYER,P,R,F\n"


def test_rescaling_keeps_one_and_moves_the_baseline_to_zero():
    assert rescale(1.0, 0.8473319) == 1.0
    assert rescale(0.8473319, 0.8473319) == 0.0
    assert rescale(0.0, 0.8473319) == pytest.approx(-5.550157, abs=1e-6)


@pytest.mark.parametrize(("encoder", "layer"), BASELINES)
def test_the_numbers_are_those_of_the_package(encoder, layer):
    path = files("bert_score") / "rescale_baseline" / "en" / f"{encoder}.tsv"
    row = list(csv.DictReader(path.read_text().splitlines()))[layer]
    assert BASELINES[encoder, layer] == Baseline(float(row["P"]), float(row["R"]), float(row["F"]))


def test_golden_bertscore_baseline(golden):
    assert read_baseline(golden / "metrics/bertscore/baseline.tsv", 5) == BASELINES["distilroberta-base", 5]


def test_a_row_is_found_by_its_layer_not_its_place(tmp_path):
    path = tmp_path / "baseline.tsv"
    path.write_text(HEADER + "5,0.5,0.6,0.7\n0,0.1,0.2,0.3\n")
    assert read_baseline(path, 5) == Baseline(0.5, 0.6, 0.7)
    assert read_baseline(path, 0) == Baseline(0.1, 0.2, 0.3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEADER + "4,0.1,0.1,0.1\n", "no row for layer 5"),
        (HEADER + "5,0.1,0.1,1.0\n", "below 1"),
        (HEADER + "5,0.1,0.1,nan\n", "below 1"),
        (HEADER + "5,0.1,0.1\n", "no baseline file"),
        (HEADER + "5,a,b,c\n", "no baseline file"),
        ("layer;p;r;f\n5;1;1;1\n", "no baseline file"),
    ],
)
def test_what_is_no_baseline_file_is_refused(tmp_path, content, said):
    path = tmp_path / "baseline.tsv"
    path.write_text(content)
    with pytest.raises(MedTasksError, match=said):
        read_baseline(path, 5)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MedTasksError, match=r"none\.tsv cannot be read"):
        read_baseline(tmp_path / "none.tsv", 5)
