"""Laws of all task files: how a task is asked, read and counted. What each task says of itself: test_task_files.py."""

import re

import pytest
from lmms_eval.models import MODEL_REGISTRY_V2

from medtasks.data.catalogue import CATALOGUE
from medtasks.families.family import Asks
from medtasks.lmms.plugin import model_manifests
from medtasks.tasks.task_files import members_of, task_config, task_files
from medtasks.tasks.task_index import SETTINGS

from ..tables import each_row

TASKS = [name for name, task in task_files().items() if task.kind == "task"]
GROUPS = [name for name, task in task_files().items() if task.kind == "group"]
MODELS = {
    *MODEL_REGISTRY_V2.list_model_names(),
    *(model.model_id for model in model_manifests()),
}
MODELS |= {
    "blip2",
    "deepseek",
    "molmo",
    "gemini_api",
}  # of other releases, or of MediConfusion's own code
OWN_ROWS = ("robust", "strict", "fenced")
NO_PUBLISHED_RULE = ("gmai_mmbench_mcls", "gmai_mmbench_test", "medevalkit_mmmu_med_test")
"""Tasks that nothing published scores: answers to submit, and several answers of which only the paper tells."""
SAMPLED = {"mediconfusion_ff"}
"""Tasks whose published code samples replies of some models."""
YES_NO_ONLY = {"medheval_context", "medheval_knowledge_closed"}
"""Tasks without the questions that some metrics of their family are about."""
ABOUT = {"task", "task_alias", "tag", "metadata"}
DIFFERENCES = {
    "_judged": {
        "doc_to_text",
        "doc_to_messages",
        "filter_list",
        "metric_list",
        "process_results",
    },
    "_ll": {
        *(
            "doc_to_choice",
            "filter_list",
            "metric_list",
            "output_type",
            "process_results",
            "target_delimiter",
        ),
        *("generation_kwargs", "model_specific_generation_kwargs"),
    },
    "_reasoning": {"generation_kwargs", SETTINGS},
    "_cot": {SETTINGS},
    "_5shot": {"doc_to_text", "doc_to_messages", "doc_to_visual"},
}
"""Settings in which a task differs from the one that its name begins with, by the ending of its name."""
METADATA = {"description", "protocol", "version", "checked_against", "few_shot", "num_fewshot"}


@each_row("name", TASKS)
def test_how_every_task_is_asked(name):
    config, task = task_config(name), task_files()[name]
    assert (config["test_split"], config["dataset_kwargs"]) == (
        "test",
        {"load_from_disk": True},
    )
    assert config.get("num_fewshot", 0) == 0, (
        "examples are in the prompt, not drawn by the harness"
    )
    assert config["reasoning_tags"] == ("none" if task.family.extractor else None), (
        "our rules see the reasoning"
    )
    assert {"doc_to_text", "doc_to_visual", "doc_to_target"} <= config.keys()
    assert task.output_type in ("generate_until", "multiple_choice")
    assert (
        ("doc_to_choice" in config)
        == ("target_delimiter" in config)
        == task.compares_likelihoods
    )
    settings = config[SETTINGS]
    assert "default" in settings
    assert settings.keys() - {"default"} <= MODELS
    assert all(isinstance(own, dict) for own in settings.values())


@each_row("name", TASKS)
def test_replies_are_generated_greedily(name):
    config = task_config(name)
    if task_files()[name].compares_likelihoods:
        return
    generation = dict(config["generation_kwargs"])
    assert generation.pop("max_new_tokens") in range(1, 8193)
    assert generation == {"do_sample": False, "temperature": 0, "num_beams": 1, "until": []}
    own = config.get("model_specific_generation_kwargs") or {"default": {}}
    assert own["default"] == {}
    assert own.keys() - {"default"} <= MODELS
    for model, changes in own.items():
        sampled = (
            {"do_sample", "temperature", "top_p", "num_beams"} if name in SAMPLED else set()
        )
        assert changes.keys() <= {"max_new_tokens", *sampled}, model


@each_row("name", TASKS)
def test_rows_of_published_rules_come_first_and_ours_read_by_other_rules(name):
    task = task_files()[name]
    published = [row for row in task.rows if row.partition("_")[0] == "reference"]
    own = [row for row in task.rows if row not in published]
    assert [*published, *own] == list(task.rows)
    assert all(re.fullmatch(r"reference(_[a-z0-9]+)?", row) for row in published)
    assert set(own) <= {*OWN_ROWS}
    if published:
        assert published[0] == "reference"
    else:
        assert task.compares_likelihoods or name.removesuffix("_reasoning") in NO_PUBLISHED_RULE
    assert all(not task.rows[row].fenced and not task.rows[row].reasoned for row in published)
    assert ("fenced" in own) == (task.family.asks is not Asks.NOBODY)
    assert all(task.rows[row].fenced == (row == "fenced") for row in own)
    assert len(set(task.rows.values())) == len(task.rows)


def test_no_rule_of_ours_is_in_a_row_of_published_ones():
    """The judge between marks gets the replies that published rules leave open."""
    rows = [
        (name, row, task_files()[name].rows[row].extractor)
        for name in TASKS
        for row in task_files()[name].rows
    ]
    published = {extractor for _, row, extractor in rows if row.startswith("reference")}
    own = {extractor for _, row, extractor in rows if row in ("robust", "strict")}
    assert published & own == set()
    for name, row, extractor in rows:
        if row.startswith("reference") and extractor is not None:
            assert not extractor.startswith(("robust", "untied")), (name, row)


@each_row("name", TASKS)
def test_the_metrics_of_every_task_are_those_of_its_family(name):
    task = task_files()[name]
    of_family = list(task.family.metrics)
    if name.removesuffix("_ll") in YES_NO_ONLY:
        of_family = [metric for metric in of_family if metric in task.metrics]
        assert of_family[0] is task.family.metrics[0]
    assert list(task.metrics) == of_family


@pytest.mark.parametrize("ending", DIFFERENCES)
def test_a_task_named_after_another_differs_in_what_its_ending_says(ending):
    pairs = [(name, name.removesuffix(ending)) for name in TASKS if name.endswith(ending)]
    pairs = [(name, base) for name, base in pairs if base in TASKS]
    assert len(pairs) > 2
    for name, base in pairs:
        config, other = task_config(name), task_config(base)
        different = {key for key in {*config, *other} if config.get(key) != other.get(key)}
        assert different <= {*ABOUT, *DIFFERENCES[ending]}, name
        assert different - {*ABOUT}, name
        mine, theirs = config["metadata"], other["metadata"]
        assert {
            key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key)
        } <= METADATA, name
        assert {"description", "protocol"} <= {
            key for key in mine if mine[key] != theirs.get(key)
        }, name
        if ending == "_reasoning":
            limits = {"max_new_tokens": 0}
            assert {**config["generation_kwargs"], **limits} == {
                **other["generation_kwargs"],
                **limits,
            }


@each_row("name", GROUPS)
def test_a_group_averages_metrics_that_all_its_members_have(name):
    config, members = task_config(name), members_of(name)
    assert members
    for entry in config.get("aggregate_metric_list", []):
        assert all(
            entry["metric"] in {metric.name for metric in member.metrics} for member in members
        ), entry


def test_tags_name_their_benchmark_and_every_dataset_has_a_task():
    for name in TASKS:
        assert all(tag.startswith(name.partition("_")[0]) for tag in task_files()[name].tags), (
            name
        )
    assert {task_files()[name].dataset for name in TASKS} == {*CATALOGUE}
