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

GENERATED = sources.CLOSED
LIKELIHOOD = [f"{name}_ll" for name in GENERATED]
WITH_TYPES = ("medheval_visual_mm", "medheval_visual_cxr")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """All six sets in miniature, prepared once."""
    return sources.prepared_home(tmp_path_factory.mktemp("medheval"))


@pytest.fixture
def prepared(home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(home))


@pytest.fixture(scope="module")
def manager():
    from lmms_eval.tasks import TaskManager

    model_manifests()  # as the harness does, so that it finds what has no file
    return TaskManager(include_path=str(tasks_folder()), include_defaults=False, model_name="medtasks_tiny")


def test_names():
    closed = [
        name for name, task in task_files().items() if name.startswith("medheval") and "closed" in _protocol(task)
    ]
    assert sorted(closed) == sorted([*GENERATED, *LIKELIHOOD])


def _protocol(task):
    return task_config(task.name)["metadata"].get("protocol", "")


def test_groups():
    assert list(task_file("medheval").members) == sources.SETS
    assert list(task_file("medheval_closed").members) == GENERATED
    assert list(task_file("medheval_public").members) == ["medheval_visual_mm"]
    assert all(CATALOGUE[task_file(name).dataset].access == "public" for name in task_file("medheval_public").members)


@pytest.mark.parametrize("name", [*GENERATED, *LIKELIHOOD])
def test_how_replies_are_read(name):
    file = task_file(name)
    by_text = {"reference": "medheval_reference", "strict": "medheval_strict"}
    expected = by_text if name in GENERATED else {"strict": "untied"}
    assert file.rows == {row: Row(rule) for row, rule in expected.items()}
    assert list(file.rows)[-1] == "strict"
    assert file.dataset == name.removesuffix("_ll")
    assert file.process_results == "medtasks.hooks.closed_questions.process_results"
    names = {entry["metric"] for entry in resolved(task_config(name)["metric_list"])}
    types = {"acc_anatomy", "acc_measurement", "acc_symptom", "acc_technique"}
    assert {"accuracy", "invalid_rate", "yes_rate", "always_yes", "always_no", "random_choice"} <= names
    assert types & names == (types if file.dataset in WITH_TYPES else set())


@pytest.mark.parametrize("name", GENERATED)
def test_replies_are_long_enough(name):
    config = task_config(name)
    assert config["generation_kwargs"]["max_new_tokens"] >= 16
    assert config["generation_kwargs"]["temperature"] == 0
    assert all(limits.get("max_new_tokens", 16) >= 16 for limits in config["model_specific_generation_kwargs"].values())


@pytest.mark.parametrize("kind", ["simple", "chat"])
def test_the_harness_loads_every_closed_task(manager, prepared, kind):
    names = [*GENERATED, *(LIKELIHOOD if kind == "simple" else ())]
    loaded = manager.load_task_or_group(names, task_type=kind)
    assert sorted(loaded) == sorted(names)
    for name, task in loaded.items():
        doc = task.eval_docs[0]
        assert len(task.eval_docs) == len(sources.RECORDS[name.removesuffix("_ll")])
        assert len(task.doc_to_visual(doc)) == 1
        assert task.doc_to_text(doc).startswith(doc["question"])


def test_the_harness_loads_the_groups(manager, prepared):
    for group in ("medheval_closed", "medheval_public"):
        (members,) = manager.load_task_or_group([group]).values()
        assert sorted(members) == sorted(task_file(group).members)


def test_unprepared_sets_are_one_sentence(manager, tmp_path, monkeypatch):
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
