"""The task files of MedEvalKit's protocol: what they name, and what their page says of them."""

import re

from medtasks.data.catalogue import CATALOGUE
from medtasks.extract.extractor_registry import extractors
from medtasks.tasks.task_files import task_config, task_file, task_files, tasks_of
from medtasks.tasks.task_index import resolved, tasks_folder

from .tables import each_row

CHOICE = [
    *("pmc_vqa", "pmc_vqa_clean", "omnimedvqa", "omnimedvqa_vlmevalkit", "medxpertqa_mm", "medxpertqa_text"),
    *("mmmu_med", "medframeqa"),
]
VQA = ["vqa_rad", "path_vqa", "slake", "slake_en"]
ENDINGS = {
    **dict.fromkeys(CHOICE, ("", "_reasoning", "_ll")),
    **dict.fromkeys(VQA, ("", "_reasoning", "_judged", "_judged_reasoning")),
    "mmmu_med_images": ("",),
    "mmmu_med_test": ("", "_reasoning"),
}
TASKS = [f"medevalkit_{name}{ending}" for name, endings in ENDINGS.items() for ending in endings]
README = (tasks_folder() / "medevalkit" / "README.md").read_text(encoding="utf-8")


def test_all_tasks_and_no_others():
    assert [name for name, task in task_files().items() if name.startswith("medevalkit_") and task.dataset] == sorted(
        TASKS
    )


@each_row("name", TASKS)
def test_a_task_is_whole(name):
    task, config = task_file(name), task_config(name)
    assert {row.extractor for row in task.rows.values()} <= set(extractors())
    assert "robust" in task.rows
    assert ("reference" in task.rows) == (not task.compares_likelihoods and "_test" not in name)
    settings = resolved(config["lmms_eval_specific_kwargs"])["default"]
    boxed = any("boxed" in str(text) for text in settings.values())
    assert boxed == name.endswith("_reasoning") == (config["generation_kwargs"]["max_new_tokens"] == 8192)
    assert config["model_specific_generation_kwargs"]["med_flamingo"] == {"max_new_tokens": 100}
    assert config["metadata"]["dataset"] == task.dataset
    assert ("_judged" in name) == (task.family.asks.name == "JUDGE")
    assert {*task.breakdown} <= {
        "question_type",
        "modality",
        "part",
        "medical_task",
        "body_system",
        "subject",
        "language",
    }


def test_groups_and_tags():
    nine = ["pmc_vqa", "omnimedvqa", "medxpertqa_mm", "medxpertqa_text", "mmmu_med", "medframeqa", *VQA[:3]]
    assert sorted(tasks_of("medevalkit")) == sorted(f"medevalkit_{name}" for name in nine)
    assert tasks_of("medevalkit_choice") == sorted(f"medevalkit_{name}" for name in CHOICE)
    assert tasks_of("medevalkit_vqa") == sorted(f"medevalkit_{name}" for name in VQA)
    for ending in ("reasoning", "ll"):
        tagged = {f"medevalkit_{name}_{ending}" for name in [*CHOICE, *VQA]} & set(TASKS)
        assert set(tasks_of(f"medevalkit_{ending}")) == tagged
    assert set(tasks_of("medevalkit_judged")) == {name for name in TASKS if "_judged" in name}


def test_the_page_names_every_task_and_set():
    named = set(re.findall(r"`(medevalkit\w*)`", README))
    assert {f"medevalkit_{name}" for name in ENDINGS} <= named
    assert {"medevalkit", *(f"medevalkit_{tag}" for tag in ("choice", "vqa", "reasoning", "ll", "judged"))} <= named
    assert {ending for endings in ENDINGS.values() for ending in endings if f"`<task>{ending}`" not in README} == {""}


@each_row("name", sorted({task_file(task).dataset for task in TASKS}))
def test_page_and_catalogue_agree(name):
    info = CATALOGUE[name]
    rows = f"{info.rows:,}" if info.rows else "(about 33,430|not known)"
    assert re.search(rf"^\| `{name}` \| {rows} \|[^|]*\| {info.access} \|", README, re.MULTILINE)
