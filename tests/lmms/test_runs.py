"""Whole runs of the harness, of shards, and of groups."""

import math
from types import ModuleType

import pytest
from lmms_eval.api.metrics import pooled_sample_stderr

from medtasks.data.document_store import load_documents
from medtasks.data.looks import LOOK_VARIABLE, Look, look_sizes
from medtasks.data.shards import SHARD_VARIABLE, clusters_of
from medtasks.errors import MedTasksError
from medtasks.hooks.groups import best_highest, best_lowest
from medtasks.lmms.evaluation import guard_evaluation

from ..tables import each_row
from .whole_runs import answering, evaluate


def constant(reply, *losses):
    """A model that gives the same reply, or the same preference, whatever it is asked."""
    return answering(lambda doc: reply, lambda doc, index: losses[index])


def scores(results, task, rule="reference"):
    names = ("set_accuracy", "individual_accuracy", "confusion", "invalid_rate")
    return {name: results["results"][task][f"{name},{rule}"] for name in names}


ALWAYS_A = {
    "set_accuracy": 0.0,
    "individual_accuracy": 0.5,
    "confusion": 1.0,
    "invalid_rate": 0.0,
}


@pytest.mark.slow
def test_golden_mediconfusion_constant_model(test_data, tmp_path, monkeypatch):
    from medtasks.data.prepare.prepare_dataset import prepare
    from medtasks.data.prepare.source_recipe import Options

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    prepare("mediconfusion", Options(test_data / "mediconfusion"))
    results = evaluate(
        ["mediconfusion", "mediconfusion_gd", "mediconfusion_ps"], constant("A", 1.0, 2.0)
    )
    for task in ("mediconfusion", "mediconfusion_gd", "mediconfusion_ps"):
        assert scores(results, task) == ALWAYS_A
        assert results["n-samples"][task]["effective"] == 352
    assert results["results"]["mediconfusion"]["alias"] == "mediconfusion"


@pytest.mark.slow
def test_the_words_of_the_demo_separate_the_readings_and_leave_likelihoods_alone(sample):
    tasks = ["mediconfusion", "mediconfusion_gd"]
    found = evaluate(
        tasks, model_args="journal=false,wording=made_up", batch_size=32, device="cpu"
    )["results"]
    worded, likely = (found[task] for task in tasks)
    assert worded["alias"] == "mediconfusion [SAMPLE DATA] [MADE-UP WORDING]"
    # Of 16 prompts, which both images of a pair share, 2 get the letter as it was asked for, and 2 a refusal.
    assert (worded["invalid_rate,reference"], worded["invalid_rate,robust"]) == (
        14 / 16,
        2 / 16,
    )
    assert (worded["set_accuracy,reference"], worded["set_accuracy,robust"]) == (
        2 / 16,
        14 / 16,
    )
    assert likely["set_accuracy,robust"] == 1


@pytest.mark.slow
def test_who_names_no_model_is_told_of_one_to_try(sample):
    with pytest.raises(
        MedTasksError, match=r"needs a model: .* such as --model medtasks_tiny to try"
    ):
        evaluate(["mediconfusion"], "hf")  # the default of the harness's command line
    for tasks, model in ((["mme"], "hf"), (["mediconfusion"], "unknown")):
        with pytest.raises(ValueError, match=f"Model '{model}' not found"):
            evaluate(tasks, model)


def test_ties_and_failures_go_as_each_rule_says(sample):
    tied = evaluate(["mediconfusion_gd", "mediconfusion_ps"], constant("", 1.0, 1.0))
    assert scores(tied, "mediconfusion_gd") == ALWAYS_A
    assert scores(tied, "mediconfusion_ps") == ALWAYS_A
    assert scores(tied, "mediconfusion_gd", "robust")["invalid_rate"] == 1.0
    samples = tied["samples"]
    chosen = {task: {s["score"]["value"] for s in samples[task]} for task in samples}
    assert chosen == {"mediconfusion_gd": {"A", None}, "mediconfusion_ps": {"B", None}}
    failed = evaluate(["mediconfusion_ps"], constant("", math.nan, 1.0))
    assert {s["score"]["reason"] for s in failed["samples"]["mediconfusion_ps"]} == {
        "adapter_failed"
    }


@pytest.mark.slow
def test_users_yaml_runs_beside_ours_and_a_general_task(sample, drop_in):
    assert len((drop_in / "sides.yaml").read_text().splitlines()) < 25
    run = evaluate(["mediconfusion", "sides", "shouting"], constant("A"), include=drop_in)
    results, data = run["results"], run["configs"]["mediconfusion"]["metadata"]["data"]
    assert (data["sample"], len(data["fingerprint"])) == (True, 12)
    assert scores(run, "mediconfusion") == scores(run, "mediconfusion", "robust") == ALWAYS_A
    # Every pair has exactly one right answer, so that the totals of pairs do not differ.
    assert results["mediconfusion"]["individual_accuracy_stderr,reference"] == 0
    assert results["mediconfusion"]["set_accuracy_stderr,reference"] == 0
    assert set(results) == {"mediconfusion", "sides", "shouting"}
    assert (results["sides"]["accuracy,none"], results["sides"]["invalid_rate,none"]) == (
        0.5,
        0.0,
    )
    assert results["sides"]["accuracy_stderr,none"] != "N/A"
    assert results["shouting"]["upper,none"] == 1


@each_row(
    ("harness", "shard", "options", "message"),
    [
        *(
            ("lmms", "1/2", options, "1/2 chooses the rows")
            for options in ([4], [None, 2], [-1, 0, True])
        ),
        ("lmms", "3/2", [], "such as --shard 3/16"),
        ("lm", "1/2", [], "MEDTASKS_SHARD=1/2 is for runs of lmms_eval; unset it for lm_eval"),
    ],
)
def test_what_chooses_rows_too_and_another_harness_are_refused(
    monkeypatch, harness, shard, options, message
):
    module = ModuleType(f"{harness}_eval.evaluator")
    module.evaluate = lambda lm, task_dict, limit=None, offset=0, cache_requests=False: None
    module.evaluate.__module__ = module.__name__
    guard_evaluation(module)
    module.evaluate(object(), {}, *options)
    monkeypatch.setenv(SHARD_VARIABLE, shard)
    with pytest.raises(MedTasksError, match=message):
        module.evaluate(object(), {}, *options)


def test_a_look_asks_its_rows_of_whole_pairs(sample, monkeypatch):
    clusters = clusters_of(load_documents("mediconfusion"))
    look = Look(2, 4, 5, look_sizes(clusters, 5, 4, len(clusters))[1])
    monkeypatch.setenv(LOOK_VARIABLE, str(look))
    results = evaluate(["mediconfusion"], constant("A"))
    asked = {line["doc_id"] for line in results["samples"]["mediconfusion"]}
    assert sorted(asked) == look.rows(clusters)
    assert results["n-samples"]["mediconfusion"] == {"original": 32, "effective": look.size}
    assert results["results"]["mediconfusion"]["incomplete_pairs,reference"] == 0
    alias = "mediconfusion [SAMPLE DATA] [PARTIAL, LOOK 2/4]"
    assert results["results"]["mediconfusion"]["alias"] == alias


@each_row(
    ("values", "highest", "lowest"),
    [
        ([0.25, 0.5, 0.125], 0.5, 0.125),
        ([0.25, math.nan, 0.125], 0.25, 0.125),
        ([math.nan, 0.25], 0.25, 0.25),
        ([0.0, math.nan], 0.0, 0.0),
        ([1], 1, 1),
        ([math.nan, math.nan], math.nan, math.nan),
    ],
)
def test_best(values, highest, lowest):
    for best, expected in ((best_highest, highest), (best_lowest, lowest)):
        sizes = [352] * len(values)
        assert best(values, sizes, True) == pytest.approx(expected, nan_ok=True)
        # The harness can compute no pooled error afterwards.
        assert math.isnan(pooled_sample_stderr([0.01] * len(values), sizes))
