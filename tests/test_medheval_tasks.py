"""MedHEval's closed tasks and its groups: what they are, and that the harness can load them."""

import re

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.errors import DatasetNotPrepared
from medtasks.families.family import Row
from medtasks.lmms.plugin import model_manifests
from medtasks.tasks.task_files import task_config, task_file, task_files
from medtasks.tasks.task_index import resolved, tasks_folder

from . import medheval_sources as sources
from .tables import each_row

GENERATED = sources.CLOSED
LIKELIHOOD = [f"{name}_ll" for name in GENERATED]
WITH_TYPES = ("medheval_visual_mm", "medheval_visual_cxr")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """All six sets in miniature, prepared once."""
    return sources.prepared_home(tmp_path_factory.mktemp("medheval"))


@pytest.fixture(scope="module")
def manager():
    from lmms_eval.tasks import TaskManager

    model_manifests()  # as the harness does, so that it finds what has no file
    return TaskManager(include_path=str(tasks_folder()), include_defaults=False, model_name="medtasks_tiny")


def test_names_and_groups():
    names = [name for name in task_files() if name.startswith("medheval")]
    closed = [name for name in names if "closed" in task_config(name)["metadata"].get("protocol", "")]
    assert sorted(closed) == sorted([*GENERATED, *LIKELIHOOD])
    assert list(task_file("medheval").members) == sources.SETS
    assert list(task_file("medheval_closed").members) == GENERATED
    assert list(task_file("medheval_public").members) == ["medheval_visual_mm"]
    assert all(CATALOGUE[task_file(name).dataset].access == "public" for name in task_file("medheval_public").members)


@each_row("name", [*GENERATED, *LIKELIHOOD])
def test_a_closed_task(name):
    file, config = task_file(name), task_config(name)
    by_text = {"reference": "medheval_reference", "strict": "medheval_strict"}
    expected = by_text if name in GENERATED else {"strict": "untied"}
    assert list(file.rows.items()) == [(row, Row(rule)) for row, rule in expected.items()]
    assert file.dataset == name.removesuffix("_ll")
    assert file.process_results == "medtasks.hooks.closed_questions.process_results"
    names = {entry["metric"] for entry in resolved(config["metric_list"])}
    types = {"acc_anatomy", "acc_measurement", "acc_symptom", "acc_technique"}
    assert {"accuracy", "invalid_rate", "yes_rate", "always_yes", "always_no", "random_choice"} <= names
    assert types & names == (types if file.dataset in WITH_TYPES else set())
    if name in GENERATED:
        limits = [config["generation_kwargs"], *config["model_specific_generation_kwargs"].values()]
        assert all(limit.get("max_new_tokens", 16) >= 16 for limit in limits)
        assert config["generation_kwargs"]["temperature"] == 0


@pytest.mark.parametrize("kind", ["simple", "chat"])
def test_the_harness_loads_every_closed_task_and_the_groups(manager, home, monkeypatch, tmp_path, kind):
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    names = [*GENERATED, *(LIKELIHOOD if kind == "simple" else ())]
    loaded = manager.load_task_or_group(names, task_type=kind)
    assert sorted(loaded) == sorted(names)
    for name, task in loaded.items():
        doc = task.eval_docs[0]
        assert len(task.eval_docs) == len(sources.RECORDS[name.removesuffix("_ll")])
        assert len(task.doc_to_visual(doc)) == 1
        assert task.doc_to_text(doc).startswith(doc["question"])
    for group in ("medheval_closed", "medheval_public"):
        (members,) = manager.load_task_or_group([group]).values()
        assert sorted(members) == sorted(task_file(group).members)
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    with pytest.raises(DatasetNotPrepared, match="run 'medtasks data prepare medheval_context'"):
        manager.load_task_or_group(["medheval_context"])


def test_readme_names_every_task_and_set():
    readme = (tasks_folder() / "medheval" / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(medheval\w*)`", readme))
    assert {*GENERATED, *sources.SETS, "medheval", "medheval_closed", "medheval_public"} <= named
    assert {name for name in named if name in task_files() or name in CATALOGUE} >= set(sources.SETS)
    for name in sources.SETS:
        info = CATALOGUE[name]
        row = rf"^\| `{name}` \|[^|]*\| {info.rows:,} \| {info.images} \| {info.access} \|"
        assert re.search(row, readme, re.MULTILINE), name
