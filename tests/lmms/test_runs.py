"""Whole runs of the harness in this process."""

import math

import pytest

from medtasks.errors import DatasetNotPrepared

from .whole_runs import answering, evaluate

pytestmark = pytest.mark.slow


def constant(reply, *losses):
    """A model that gives the same reply, or the same preference, whatever it is asked."""
    return answering(lambda doc: reply, lambda doc, index: losses[index])


def scores(results, task, rule="reference"):
    names = ("set_accuracy", "individual_accuracy", "confusion", "invalid_rate")
    return {name: results["results"][task][f"{name},{rule}"] for name in names}


ALWAYS_A = {"set_accuracy": 0.0, "individual_accuracy": 0.5, "confusion": 1.0, "invalid_rate": 0.0}


def test_constant_model_on_the_sample(sample):
    results = evaluate(["mediconfusion", "mediconfusion_gd", "mediconfusion_ps"], constant("A", 1.0, 2.0))
    for task in ("mediconfusion", "mediconfusion_gd", "mediconfusion_ps"):
        for rule in ("reference", "robust"):
            assert scores(results, task, rule) == ALWAYS_A
        # Every pair has exactly one right answer, so that the totals of pairs do not differ.
        assert results["results"][task]["individual_accuracy_stderr,reference"] == 0
        assert results["results"][task]["set_accuracy_stderr,reference"] == 0
    data = results["configs"]["mediconfusion"]["metadata"]["data"]
    assert data["sample"] is True
    assert len(data["fingerprint"]) == 12


def test_golden_mediconfusion_constant_model(test_data, tmp_path, monkeypatch):
    from medtasks.data.prepare.prepare_dataset import prepare
    from medtasks.data.prepare.source_recipe import Options

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    prepare("mediconfusion", Options(test_data / "mediconfusion"))
    results = evaluate(["mediconfusion", "mediconfusion_gd", "mediconfusion_ps"], constant("A", 1.0, 2.0))
    for task in ("mediconfusion", "mediconfusion_gd", "mediconfusion_ps"):
        assert scores(results, task) == ALWAYS_A
        assert results["n-samples"][task]["effective"] == 352
    assert results["results"]["mediconfusion"]["alias"] == "mediconfusion"


def test_ties_and_failures_go_as_each_rule_says(sample):
    tied = evaluate(["mediconfusion_gd", "mediconfusion_ps"], constant("", 1.0, 1.0))
    assert scores(tied, "mediconfusion_gd") == ALWAYS_A
    assert scores(tied, "mediconfusion_ps") == ALWAYS_A
    assert scores(tied, "mediconfusion_gd", "robust")["invalid_rate"] == 1.0
    samples = tied["samples"]
    chosen = {task: {s["score"]["value"] for s in samples[task]} for task in samples}
    assert chosen == {"mediconfusion_gd": {"A", None}, "mediconfusion_ps": {"B", None}}
    failed = evaluate(["mediconfusion_ps"], constant("", math.nan, 1.0))
    assert {s["score"]["reason"] for s in failed["samples"]["mediconfusion_ps"]} == {"adapter_failed"}


def test_users_yaml_runs_beside_ours_and_a_general_task(sample, drop_in):
    assert len((drop_in / "sides.yaml").read_text().splitlines()) < 25
    model = constant("The answer is (A).")
    results = evaluate(["mediconfusion", "sides", "shouting"], model, include=drop_in)["results"]
    assert set(results) == {"mediconfusion", "sides", "shouting"}
    assert (results["sides"]["accuracy,none"], results["sides"]["invalid_rate,none"]) == (0.5, 0.0)
    assert results["sides"]["accuracy_stderr,none"] != "N/A"
    assert results["shouting"]["upper,none"] == 0


def test_unprepared_dataset_is_one_sentence():
    with pytest.raises(DatasetNotPrepared, match=r"not prepared in .*; run 'medtasks data prepare mediconfusion'"):
        evaluate(["mediconfusion"])
