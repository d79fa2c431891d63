"""Task files that are not ours, read as the harness reads them."""

import pytest

from medtasks.runs.harness_tasks import harness_folder, index_tasks, is_cut_at_blank_lines


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


def test_names(folder):
    index = index_tasks([folder])
    assert set(index.configs) == {"one", "two", "three", "coded"}
    assert index.tasks_of("one") == ["one"]
    assert sorted(index.tasks_of("shared")) == ["one", "three", "two"]
    assert index.tasks_of("all") == ["one", "two", "three", "elsewhere"]
    assert index.tasks_of("t*") == ["three", "two"] or index.tasks_of("t*") == ["two", "three"]
    assert index.tasks_of("nothing") == []


def test_includes(folder):
    configs = index_tasks([folder]).configs
    assert configs["one"]["generation_kwargs"] == {}
    assert configs["two"]["output_type"] == "generate_until"
    assert configs["two"]["dataset_path"] == "late"


def test_files_are_chosen_by_text(folder):
    assert set(index_tasks([folder], ["two"]).configs) == {"two"}
    assert index_tasks([folder], ["two"]).members["all"] == ("one", "two", "inner", "elsewhere")


def test_one_file(folder):
    assert set(index_tasks([folder / "three.yaml"]).configs) == {"three"}
    assert index_tasks([folder / "missing.yaml"]).configs == {}


def test_the_first_folder_counts(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "one.yaml").write_text("task: one\ndescription: other\n")
    assert "description" not in index_tasks([folder, other]).configs["one"]
    assert index_tasks([other, folder]).configs["one"]["description"] == "other"


def test_the_harness_has_a_folder():
    index = index_tasks([harness_folder()], ["mmbench"])
    assert len(index.tasks_of("mmbench")) > 2
    assert index.tasks_of("mmbench_en_dev") == ["mmbench_en_dev"]


@pytest.mark.parametrize(
    ("config", "cut"),
    [
        ({}, True),
        ({"output_type": "generate_until"}, True),
        ({"output_type": "generate_until", "generation_kwargs": None}, True),
        ({"output_type": "generate_until_multi_round", "generation_kwargs": {"max_new_tokens": 8}}, True),
        ({"generation_kwargs": {"until": []}}, False),
        ({"generation_kwargs": {"until": None}}, False),
        ({"output_type": "multiple_choice"}, False),
        ({"class": "some.Class"}, False),
        ({"fewshot_delimiter": "###"}, False),
        ({"model_specific_generation_kwargs": {"default": {"until": []}}}, False),
        ({"model_specific_generation_kwargs": {"mine": {"until": []}, "default": {}}}, False),
        ({"model_specific_generation_kwargs": {"mine": {}, "default": {"until": []}}}, True),
        ({"model_specific_generation_kwargs": {"other": {"until": []}}}, True),
    ],
)
def test_replies_cut_at_blank_lines(config, cut):
    assert is_cut_at_blank_lines(config, "mine") is cut
