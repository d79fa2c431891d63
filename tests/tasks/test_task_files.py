"""Our task YAML is complete and consistent; task files of anybody are read as the harness reads them."""

import re
from types import SimpleNamespace

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.errors import MedTasksError, UnknownName
from medtasks.extract.extractor_registry import AnswerKind, extractors
from medtasks.families.family import Rule
from medtasks.lmms.plugin import download_and_check
from medtasks.tasks.documents import KEYS, task_problems, unknown_keys
from medtasks.tasks.prompt_settings import prompt_settings
from medtasks.tasks.task_files import include, task_config, task_file, task_files
from medtasks.tasks.task_index import (
    DottedName,
    harness_folder,
    index_tasks,
    read_config,
    resolve_names,
    tasks_folder,
    with_image_roots,
)

from ..tables import each_row

FILES = sorted(
    path
    for path in tasks_folder().rglob("*")
    if path.suffix == ".yaml" or path.name.endswith("_yaml")
)
TASKS = [path for path in FILES if path.suffix == ".yaml"]


def test_one_task(monkeypatch):
    task = task_file("mediconfusion_gd")
    assert (task.kind, task.dataset, task.output_type) == (
        "task",
        "mediconfusion",
        "multiple_choice",
    )
    assert task.rows == {"reference": Rule("greedy_reference"), "robust": Rule("untied")}
    assert task_file("mediconfusion_ff").rows == {
        "reference": Rule(),
        "fenced": Rule(fenced=True),
    }
    group = task_file("mediconfusion_all")
    assert (group.kind, group.dataset, group.output_type) == ("group", None, None)
    with pytest.raises(
        UnknownName, match=r"unknown task 'medconfusion_gd'; did you mean 'mediconfusion_gd'\?"
    ):
        task_file("medconfusion_gd")


@each_row("name", task_files())
def test_every_task_says_what_it_is(name):
    task, config = task_file(name), task_config(name)
    metadata, folder = config["metadata"], task.path.parent.name
    assert config.get("group", config["task"]) == name
    assert isinstance(metadata["version"], int)
    assert len(metadata["description"]) > 20
    assert "\n" not in metadata["description"]
    if "group" in config:
        assert set(config["task"]) <= set(task_files()) - {name}
        return
    dataset = metadata["dataset"]
    assert dataset in CATALOGUE
    assert metadata["protocol"]
    source = r"(https://\S+) at ([0-9a-f]{7,40})|https://arxiv\.org/abs/\d{4}\.\d{5}"
    assert (checked := re.fullmatch(source, metadata["checked_against"]))
    assert metadata["data"] == f"medtasks.data.provenance_of.{dataset}"
    assert config["task_alias"] == f"medtasks.data.label_of.{name}"
    assert config["dataset_path"] == f"medtasks.data.path_of.{dataset}"
    if folder == "mediconfusion":
        assert checked[1] == CATALOGUE[dataset].source
        assert CATALOGUE[dataset].revision.startswith(checked[2])
    if task.origin:
        base = task_config(task.origin)["metadata"]
        assert (metadata["dataset"], metadata["data"]) == (base["dataset"], base["data"])
        assert metadata["description"] != base["description"]
    kind = AnswerKind.LIKELIHOODS if task.output_type == "multiple_choice" else task.family.kind
    for row in task.rows.values():
        assert (
            row.extractor in extractors(kind)
            if row.extractor
            else task.family.extractor is None
        )
    assert config.keys() <= KEYS
    assert unknown_keys(task) == []


@each_row(
    "name", ["mediconfusion", "mediconfusion_gd_blind", "mediconfusion_ff", "mediconfusion_ps"]
)
def test_our_tasks_pass_the_check_of_the_users_own(sample, name):
    assert list(task_problems(task_file(name))) == []


def test_settings_of_models_that_read_marks():
    """A harness that has changed what it was given once gets the same again."""
    for _ in range(2):
        found = prompt_settings("multimedeval_ct_rate_report")
        assert found["radfm"] == {**found["default"], "image_mark": "<image>", "slices": 0}
        assert found["llava"] == {**found["default"], "image_mark": "<image>"}
        found["llava"].clear()
        found.update(found["default"])
    with pytest.raises(
        AttributeError, match=r"there is no medtasks\.hooks\.settings_of\.medqa"
    ):
        prompt_settings("medqa")


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
    assert sorted(index.tasks_of("all")) == ["elsewhere", "one", "three", "two"]
    assert sorted(index.tasks_of("t*")) == ["three", "two"]
    assert index.tasks_of("nothing") == []
    assert index.configs["one"]["generation_kwargs"] == {}
    assert (index.configs["two"]["output_type"], index.configs["two"]["dataset_path"]) == (
        "generate_until",
        "late",
    )
    assert index.groups["all"]["group"] == "all"
    assert (index.paths["all"], index.paths["two"]) == (
        folder / "group.yaml",
        folder / "deep" / "two.yaml",
    )


def test_places_that_are_searched(folder, tmp_path_factory):
    chosen = index_tasks([folder], ["two"])  # files are chosen by their text
    assert set(chosen.configs) == {"two"}
    assert chosen.members["all"] == ("one", "two", "inner", "elsewhere")
    assert set(index_tasks([folder / "three.yaml"]).configs) == {"three"}
    assert index_tasks([folder / "missing.yaml"]).configs == {}
    other = tmp_path_factory.mktemp("other")
    (other / "one.yaml").write_text("task: one\ndescription: other\n")
    assert (
        "description" not in index_tasks([folder, other]).configs["one"]
    )  # the first folder counts
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
        (
            "task: [\n",
            r"broken.yaml is damaged in line 2, so the harness stops whatever task you choose",
        ),
        ("include: gone_yaml\n", r"broken.yaml includes .*gone_yaml, which does not exist, so"),
        ("include: broken.yaml\n", "broken.yaml is damaged, so"),
        (
            "include: /dev/zero\n",
            r"broken.yaml or a file that it includes cannot be read \(it is a device or a pipe",
        ),
        (f"task: bomb\n{BOMB}", r"the task file .*broken\.yaml is damaged"),
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
doc_to_text: !function medtasks.hooks.prompts.lettered
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
    made = resolve_names(ours)
    assert made["process_docs"]([1, 2]) == theirs["process_docs"]([1, 2]) == [1]
    assert made["doc_to_text"] is theirs["doc_to_text"]
    assert ours["doc_to_text"].is_ours
    assert not ours["process_docs"].is_ours
    assert not DottedName("medtasks_more.hooks.x").is_ours


def test_an_image_root_beside_the_file(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    settings = {
        "default": {"image_root": "images", "template": "x"},
        "llava": {"image_root": "gone"},
        "blip": {},
    }
    placed = with_image_roots({"task": "one", "lmms_eval_specific_kwargs": settings}, tmp_path)
    found = placed["lmms_eval_specific_kwargs"]
    assert found == {
        **settings,
        "default": {"image_root": str(tmp_path / "images"), "template": "x"},
    }
    monkeypatch.chdir(tmp_path)
    absolute = {"lmms_eval_specific_kwargs": {"image_root": "/somewhere/images"}}
    assert with_image_roots(absolute, tmp_path) == absolute
    assert with_image_roots({"lmms_eval_specific_kwargs": None}, tmp_path) == {
        "lmms_eval_specific_kwargs": None
    }


def test_a_task_of_the_harness_has_it_in_its_models_settings_too(tmp_path):
    """The harness takes these out of the configuration before it loads the documents."""
    (tmp_path / "images").mkdir()
    (tmp_path / "own.yaml").write_text("task: own\ndataset_path: json\n")
    include([tmp_path])
    settings = {"default": {"image_root": "images"}}
    hook = "medtasks.hooks.choice.process_results"
    config = SimpleNamespace(
        task="own", lmms_eval_specific_kwargs=settings, process_results=hook
    )
    models = {**settings, "image_root": "images"}
    task = SimpleNamespace(
        config=config, lmms_eval_specific_kwargs=models, dataset={}, dataset_no_image={}
    )
    download_and_check(lambda task: None, task)
    assert task.lmms_eval_specific_kwargs["image_root"] == str(tmp_path / "images")
    assert config.lmms_eval_specific_kwargs["default"] == {
        "image_root": str(tmp_path / "images")
    }


def test_aliases_that_end(tmp_path):
    (tmp_path / "fine.yaml").write_text("task: fine\na: &a [1, 2]\nb: [*a, *a]\n")
    assert index_tasks([tmp_path], strict=True).configs["fine"]["b"] == [[1, 2], [1, 2]]
