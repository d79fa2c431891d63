"""MultiMedEval's task files: which tasks there are, what they are scored with, and that the harness takes them."""

import re

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_lookup import label_of
from medtasks.data.schema import CHOICE, CLASSIFICATION, MULTILABEL, OPEN_QUESTION, REPORT
from medtasks.errors import DatasetNotPrepared
from medtasks.families.family import Row
from medtasks.lmms.plugin import model_manifests
from medtasks.tasks.task_files import task_config, task_file, task_files
from medtasks.tasks.task_index import tasks_folder

from . import tiny_multimedeval
from .tables import each_row

MNIST = list(tiny_multimedeval.MNIST)
TAGS = {
    "multimedeval_qa": ["medqa", "medmcqa", "pubmedqa"],
    "multimedeval_nli": ["mednli"],
    "multimedeval_vqa": ["vqa_rad", "path_vqa", "slake"],
    "multimedeval_classification": [
        *MNIST,
        "pad_ufes_20",
        "vindr_mammo",
        "cbis_ddsm_mass",
        "cbis_ddsm_calcification",
        "mimic_cxr_classification",
    ],
    "multimedeval_report": ["mimic_cxr_report", "mimic_iii_summary"],
    "multimedeval_extra": ["mmlu", "diff_vqa", "chestxray14", "ct_rate_report"],
}
PAPER = [name for tag, names in TAGS.items() if tag != "multimedeval_extra" for name in names]
DATASETS = [*PAPER, *TAGS["multimedeval_extra"], "pad_ufes_20_disjoint", "mimic_iii_summary_head"]
FEW_SHOT = [f"{name}_5shot" for name in DATASETS if tiny_multimedeval.columns(name) is not REPORT]
VARIANTS = ["pad_ufes_20_head", "mimic_cxr_report_paper", "mimic_cxr_report_indication"]
TASKS = [*DATASETS, *FEW_SHOT, *VARIANTS]
PROMPTS = dict.fromkeys(("mmlu", "diff_vqa", "chestxray14", "pad_ufes_20_head", "ct_rate_report"), "head")
PROMPTS |= {"mimic_cxr_report": "head", "mimic_iii_summary_head": "head"}
PROMPTS["mimic_cxr_report_indication"] = "head with indication"

HOOK = {id(CHOICE): "choice", id(OPEN_QUESTION): "open_questions", id(CLASSIFICATION): "classification"}
HOOK |= {id(MULTILABEL): "multilabel", id(REPORT): "reports"}
OPTION = dict.fromkeys(MNIST, "{{ number }}: {{ text }}")
OPTION |= {
    "medqa": "{{ letter }} {{ text }}",
    "medmcqa": "{{ lower }}: {{ text }}.",
    "mmlu": "{{ letter }}. {{ text }}.",
}


def full(names):
    return [f"multimedeval_{name}" for name in names]


def dataset(task):
    name = task.removesuffix("_5shot")
    return max((name for name in DATASETS if task.startswith(name)), key=len) if name in VARIANTS else name


def of_both_versions(rule, robust):
    rows = {"reference": f"multimedeval_{rule}_v0_1_0", "reference_head": f"multimedeval_{rule}_head"}
    return {**rows, "robust": robust}


RULES = {
    **dict.fromkeys(("medqa", "medmcqa"), of_both_versions("option", "robust_choice")),
    "pubmedqa": of_both_versions("yes_no_maybe", "robust_yes_no_maybe"),
    "mmlu": {"reference": "multimedeval_option_head", "robust": "robust_choice"},
    "mednli": {"reference": "multimedeval_nli", "robust": "robust_nli"},
    "mimic_cxr_classification": {"reference": "chexbert_labels", "robust": "robust_labels"},
    "chestxray14": {"reference": "multimedeval_labels_head", "robust": "robust_labels"},
}
RULES_OF_COLUMNS = {
    id(OPEN_QUESTION): {"reference": "multimedeval_vqa_head", "robust": "robust_vqa"},
    id(REPORT): {"reference": "report_text"},
    id(CLASSIFICATION): of_both_versions("class", "robust_class"),
}


def test_names():
    ours = [name for name in task_files() if name.startswith("multimedeval")]
    assert ours == sorted(["multimedeval", *full(TASKS)])
    assert all(task_file(name).path.parent.name == "multimedeval" for name in ours)
    assert len(PAPER) == 24
    assert sorted(task_file("multimedeval").members) == sorted(full(PAPER))
    assert "aggregate_metric_list" not in task_config("multimedeval")


@each_row("task", TASKS)
def test_a_task(task):
    file, config, name = task_file(f"multimedeval_{task}"), task_config(f"multimedeval_{task}"), dataset(task)
    columns, shots = id(tiny_multimedeval.columns(name)), task in FEW_SHOT
    rules, hook = RULES.get(name) or RULES_OF_COLUMNS[columns], HOOK[columns]
    rows = {row: Row(rule, OPTION.get(name) if row.startswith("reference") else None) for row, rule in rules.items()}
    assert list(file.rows.items()) == list(rows.items())  # the harness shows rows in this order
    process = "multimedeval_process_results" if hook == "reports" else "process_results"
    assert file.process_results == f"medtasks.hooks.{hook}.{process}"
    metrics = "MULTIMEDEVAL_METRICS" if hook == "reports" else "METRIC_LIST"
    assert file.metric_list == f"medtasks.hooks.{hook}.{metrics}"
    metadata = config["metadata"]
    assert metadata["dataset"] == file.dataset == f"multimedeval_{name}"
    assert metadata["protocol"] == ("5-shot" if shots else "zero-shot")
    assert metadata.get("num_fewshot") == (5 if shots else None)
    assert metadata["prompt"] == PROMPTS.get(task.removesuffix("_5shot"), "paper")
    place, _, commit = metadata["checked_against"].partition(" at ")
    assert place == "https://github.com/corentin-ryr/MultiMedEval"
    assert commit in ("d9ac283", "1873076")
    if "_v0_1_0" in rules["reference"] and not shots and task != "pad_ufes_20_head":
        assert commit == "1873076"
    hooks, visual = ("few_shot", "few_shot.images") if shots else ("multimedeval_prompts", "images.images")
    if task == "ct_rate_report":
        hooks, visual = "volumes", "volumes.volumes"
    assert config["doc_to_text"] == f"medtasks.hooks.{hooks}.prompt"
    assert config["doc_to_messages"] == f"medtasks.hooks.{hooks}.messages"
    assert config["doc_to_visual"] == f"medtasks.hooks.{visual}"
    assert config["doc_to_target"] == "medtasks.hooks.multimedeval_prompts.target"
    assert (config["num_fewshot"], config["reasoning_tags"]) == (0, "none")
    greedy = {"temperature": 0, "do_sample": False, "num_beams": 1, "until": []}
    usual, model, most = (1000, "radfm", 200) if hook == "reports" else (200, "llava_med", 1000)
    assert config["generation_kwargs"] == {"max_new_tokens": usual, **greedy}
    assert config["model_specific_generation_kwargs"] == {"default": {}, model: {"max_new_tokens": most}}


def test_readme_names_every_task_and_agrees_with_the_catalogue():
    readme = (tasks_folder() / "multimedeval" / "README.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(multimedeval\w*)`", readme))
    assert {*full([*DATASETS, *VARIANTS]), *TAGS, "multimedeval", "multimedeval_5shot"} <= names
    for info in (CATALOGUE[name] for name in full(DATASETS)):
        row = rf"^\| `{info.name}`[^|]*\|[^|]*\| {info.rows or ''} ?\| [^|]+ \| {info.access} \|"
        assert re.search(row, readme, re.MULTILINE), info.name


@pytest.fixture(scope="module")
def manager():
    model_manifests()  # as the harness does, so that it finds what has no file
    from lmms_eval.tasks import TaskManager

    return TaskManager(include_path=str(tasks_folder()), include_defaults=False, model_name="medtasks_tiny")


def test_index_of_the_harness(manager):
    ours = {name: entry for name, entry in manager.task_index.items() if name.startswith("multimedeval")}
    assert sorted(name for name, entry in ours.items() if entry["type"] == "task") == sorted(full(TASKS))
    assert [name for name, entry in ours.items() if entry["type"] == "group"] == ["multimedeval"]
    tags = {name: sorted(entry["task"]) for name, entry in ours.items() if entry["type"] == "tag"}
    few_shot = sorted(full(name for name in FEW_SHOT if name.removesuffix("_5shot") in PAPER))
    assert tags == {**{tag: sorted(full(names)) for tag, names in TAGS.items()}, "multimedeval_5shot": few_shot}
    assert "generate_until" in manager.list_all_tasks()


@pytest.mark.parametrize("kind", ["simple", "chat"])
def test_the_harness_loads_every_task(manager, multimedeval_home, monkeypatch, kind):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    loaded = manager.load_task_or_group(full(TASKS), task_type=kind)
    assert sorted(loaded) == sorted(full(TASKS))
    for name, task in loaded.items():
        assert len(task.eval_docs) == tiny_multimedeval.TEST_ROWS
        assert task.config.task_alias == f"{name} [SAMPLE DATA]" == label_of(name)
        doc = task.eval_docs[0]
        shots = 6 if name.endswith("_5shot") else 8 if "ct_rate" in name else 1  # a scan is shown as eight slices
        if kind == "simple":
            assert len(task.doc_to_visual(doc)) == shots * len(doc["image_files"])
            assert "<img>" not in task.doc_to_text(doc)
        else:
            turns = task.doc_to_messages(doc)
            examples = 5 if name.endswith("_5shot") else 0
            assert [turn["role"] for turn in turns] == ["user", "assistant"] * examples + ["user"]
            images = [part for turn in turns for part in turn["content"] if part["type"] == "image"]
            assert len(images) == shots * len(doc["image_files"])


def test_few_shot_task_without_demonstrations_stops_when_it_is_selected(manager, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    tiny_multimedeval.prepare("octmnist", demonstrations=False)
    assert "multimedeval_octmnist" in manager.load_task_or_group(["multimedeval_octmnist"])
    with pytest.raises(DatasetNotPrepared, match=r"'multimedeval_octmnist' in .* has no demonstrations"):
        manager.load_task_or_group(["multimedeval_octmnist_5shot"])
