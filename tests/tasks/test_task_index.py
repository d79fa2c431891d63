"""Task files of anybody, read as the harness reads them."""

from types import SimpleNamespace

import pytest

from medtasks.errors import MedTasksError
from medtasks.tasks import own_documents
from medtasks.tasks.task_files import include
from medtasks.tasks.task_index import DottedName, harness_folder, index_tasks, read_config, resolved, with_image_roots

from ..tables import each_row


@pytest.fixture
def folder(tmp_path):
    files = {
        "base_yaml": "output_type: generate_until\ntag: [shared, second]\ngeneration_kwargs: {until: []}\n",
        "late_yaml": "dataset_path: late\noutput_type: multiple_choice\n",
        "one.yaml": "include: base_yaml\ntask: one\ndoc_to_text: !function some.hook\ngeneration_kwargs: {}\n",
        "deep/two.yaml": "include: [../base_yaml, ../late_yaml]\ntask: two\n",
        "three.yaml": "task: three\ntag: shared\nother: !unknown [1]\n",
        "group.yaml": "group: all\ntask: [one, {task: two}, inner, elsewhere]\n",
        "inner.yaml": "group: inner\ntask: [three, all]\n",
        "python.yaml": "task: coded\nclass: !function some.Class\n",
        "broken.yaml": "task: [\n",
        "list.yaml": "- 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_names_includes_and_groups(folder):
    index = index_tasks([folder])
    assert set(index.configs) == {"one", "two", "three", "coded"}
    assert index.tasks_of("one") == ["one"]
    assert sorted(index.tasks_of("shared")) == ["one", "three", "two"]
    assert index.tasks_of("all") == ["one", "two", "three", "elsewhere"]
    assert sorted(index.tasks_of("t*")) == ["three", "two"]
    assert index.tasks_of("nothing") == []
    assert index.configs["one"]["generation_kwargs"] == {}
    assert (index.configs["two"]["output_type"], index.configs["two"]["dataset_path"]) == ("generate_until", "late")
    assert index.groups["all"]["group"] == "all"
    assert (index.paths["all"], index.paths["two"]) == (folder / "group.yaml", folder / "deep" / "two.yaml")


def test_places_that_are_searched(folder, tmp_path_factory):
    chosen = index_tasks([folder], ["two"])  # files are chosen by their text
    assert set(chosen.configs) == {"two"}
    assert chosen.members["all"] == ("one", "two", "inner", "elsewhere")
    assert set(index_tasks([folder / "three.yaml"]).configs) == {"three"}
    assert index_tasks([folder / "missing.yaml"]).configs == {}
    other = tmp_path_factory.mktemp("other")
    (other / "one.yaml").write_text("task: one\ndescription: other\n")
    assert "description" not in index_tasks([folder, other]).configs["one"]  # the first folder counts
    assert index_tasks([other, folder]).configs["one"]["description"] == "other"
    harness = index_tasks([harness_folder()], ["mmbench"])
    assert len(harness.tasks_of("mmbench")) > 2
    assert harness.tasks_of("mmbench_en_dev") == ["mmbench_en_dev"]


BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)


@each_row(
    ("text", "complaint"),
    [
        ("task: [\n", r"broken.yaml is damaged in line 2, so the harness stops whatever task you choose"),
        ("", "broken.yaml is damaged, so"),
        ("include: gone_yaml\n", r"broken.yaml includes .*gone_yaml, which does not exist, so"),
        ("include: broken.yaml\n", "broken.yaml is damaged, so"),
        (f"task: bomb\n{BOMB}", r"the task file .*broken\.yaml is damaged"),
        ("task: bomb\na: &a [*a]\n", r"the task file .*broken\.yaml is damaged"),
    ],
)
def test_a_damaged_file_is_named_where_it_matters(tmp_path, text, complaint):
    (tmp_path / "broken.yaml").write_text(text)
    (tmp_path / "list.yaml").write_text("- 1\n")
    assert index_tasks([tmp_path]).configs == {}
    with pytest.raises(MedTasksError, match=complaint):
        index_tasks([tmp_path], strict=True)


HARNESS_PATHS = """
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl, train: [rows.jsonl, gone.jsonl], other: https://a.b/rows.jsonl}}
process_docs: !function sibling.only_first
doc_to_text: !function medtasks.hooks.prompts.prompt
"""


def test_paths_and_functions_beside_the_file_are_those_of_the_harness(tmp_path):
    from lmms_eval.utils import load_yaml_config

    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "base_yaml").write_text(HARNESS_PATHS)
    (deep / "rows.jsonl").write_text("{}\n")
    (deep / "sibling.py").write_text("def only_first(rows):\n    return rows[:1]\n")
    (tmp_path / "task.yaml").write_text("include: deep/base_yaml\ntask: one\n")
    theirs = load_yaml_config(str(tmp_path / "task.yaml"), mode="full")
    ours = read_config(tmp_path / "task.yaml")
    assert ours["dataset_kwargs"] == theirs["dataset_kwargs"]
    assert ours["dataset_kwargs"]["data_files"]["test"] == str(deep / "rows.jsonl")
    made = resolved(ours)
    assert made["process_docs"]([1, 2]) == theirs["process_docs"]([1, 2]) == [1]
    assert made["doc_to_text"] is theirs["doc_to_text"]
    assert ours["doc_to_text"].is_ours
    assert not ours["process_docs"].is_ours
    assert not DottedName("medtasks_more.hooks.x").is_ours


def test_an_image_root_beside_the_file(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    settings = {"default": {"image_root": "images", "template": "x"}, "llava": {"image_root": "gone"}, "blip": {}}
    placed = with_image_roots({"task": "one", "lmms_eval_specific_kwargs": settings}, tmp_path)
    found = placed["lmms_eval_specific_kwargs"]
    assert found == {**settings, "default": {"image_root": str(tmp_path / "images"), "template": "x"}}
    monkeypatch.chdir(tmp_path)
    absolute = {"lmms_eval_specific_kwargs": {"image_root": "/somewhere/images"}}
    assert with_image_roots(absolute, tmp_path) == absolute
    assert with_image_roots({"lmms_eval_specific_kwargs": None}, tmp_path) == {"lmms_eval_specific_kwargs": None}


def test_a_task_of_the_harness_has_it_in_its_models_settings_too(tmp_path):
    """The harness takes these out of the configuration before it loads the documents."""
    (tmp_path / "images").mkdir()
    (tmp_path / "own.yaml").write_text("task: own\ndataset_path: json\n")
    include([tmp_path])
    settings = {"default": {"image_root": "images"}}
    hook = "medtasks.hooks.choice.process_results"
    config = SimpleNamespace(task="own", lmms_eval_specific_kwargs=settings, process_results=hook)
    models = {**settings, "image_root": "images"}
    task = SimpleNamespace(config=config, lmms_eval_specific_kwargs=models, dataset={}, dataset_no_image={})
    own_documents.complete_documents(task)
    assert task.lmms_eval_specific_kwargs["image_root"] == str(tmp_path / "images")
    assert config.lmms_eval_specific_kwargs["default"] == {"image_root": str(tmp_path / "images")}


def test_aliases_that_end(tmp_path):
    (tmp_path / "fine.yaml").write_text("task: fine\na: &a [1, 2]\nb: [*a, *a]\n")
    assert index_tasks([tmp_path], strict=True).configs["fine"]["b"] == [[1, 2], [1, 2]]
