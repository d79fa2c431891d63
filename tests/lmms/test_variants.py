"""Sanity variants of every task, and their configurations."""

import importlib
import shutil
from types import SimpleNamespace

import pytest

from medtasks.data.dataset_lookup import prepared_folder
from medtasks.data.document_store import load_documents
from medtasks.data.variants import (
    ABSTAIN,
    DEGRADED,
    NOTA,
    NOTA_CONTROL,
    OF_IMAGES,
    SANITY,
    STRESS,
    TOLD,
    VARIANTS,
)
from medtasks.errors import MedTasksError, UnknownName
from medtasks.home import own_tasks_folder
from medtasks.lmms.plugin import download_and_check
from medtasks.tasks.documents import Selection, select, task_documents
from medtasks.tasks.own_tasks import select_as
from medtasks.tasks.task_files import (
    include,
    index_entries,
    tagged_tasks,
    task_config,
    task_file,
    task_files,
    tasks_of,
    variant_of,
    variants_of,
)
from medtasks.tasks.task_index import resolve_names
from medtasks.tasks.task_variants import THINKING

from ..tables import each_row
from .conftest import choice_yaml

TASKS = [name for name, task in task_files().items() if task.kind == "task"]
ALIKE = {
    (task.process_results, tuple(task.rows), task.variants): name
    for name, task in task_files().items()
}
MADE = [made.name for name in ALIKE.values() for made in variants_of(task_file(name))]
OF_PAIRS = (
    *SANITY,
    TOLD,
    DEGRADED,
    ABSTAIN,
)  # of MediConfusion's two prompts that show options
JUDGED = {
    "gmai_mmbench_val_judged"
}  # shows options and has a key, but a judge reads the replies


def shows_images(documents):
    return any("image_file" in document or document["image_files"] for document in documents)


def keyed_by_option(document):
    """Return whether the right answer is an option, or a list of options, of this very document."""
    if (
        "options" not in document or "kind" in document
    ):  # MedHEval's options are one published text
        return False
    return any(document.get(name) is not None for name in ("answer", "answers", "label"))


def shows_options(task, document):
    """Return whether the prompt holds every option, judged by a document whose options are found nowhere else."""
    options = [
        f"Option no. {number} of this test" for number, _ in enumerate(document["options"])
    ]
    config = resolve_names(task_config(task))
    hook = config["doc_to_text"]
    if task == "mediconfusion_ff":  # its hook asks for a judge first
        hook = importlib.import_module("medtasks.hooks.prompts").lettered
    lines = {"option_lines": options} if "option_lines" in document else {}
    text = hook(
        {**document, "options": options, **lines},
        config["lmms_eval_specific_kwargs"]["default"],
    )
    return all(option in text for option in options)


@each_row("name", TASKS)
def test_variants_follow_from_the_documents(prepared, name):
    documents = load_documents(task_file(name).dataset)
    wanted = {*OF_IMAGES, TOLD, DEGRADED} if shows_images(documents) else set()
    if (
        wanted
        and name not in JUDGED
        and keyed_by_option(documents[0])
        and shows_options(name, documents[0])
    ):
        several, paired = "answers" in documents[0], "pair_id" in documents[0]
        wanted = (
            {*VARIANTS}
            - ({ABSTAIN} if several else set())
            - ({NOTA, NOTA_CONTROL} if several or paired else set())
        )
    assert task_file(name).variants == tuple(
        variant for variant in VARIANTS if variant in wanted
    )


def test_a_variant_is_named_after_its_task():
    assert variant_of("mediconfusion_blind") == ("mediconfusion", "blind")
    assert variant_of("mediconfusion_gd_rotated") == ("mediconfusion_gd", "rotated")


@each_row(
    "name",
    [
        *("mediconfusion", "mediconfusion_ps_rotated", "multimedeval_medqa_blind"),
        "mediconfusion_all_blind",
    ],
)
def test_names_of_other_tasks_are_no_variants(name):
    assert variant_of(name) is None


@each_row(
    "name",
    [
        *("mediconfusion_blind_blind", "blind", "_blind", "", "mediconfusion_sanity"),
        "mediconfusion_Blind",
    ],
)
def test_names_of_no_task_are_no_variants(name):
    assert variant_of(name) is None


def test_a_variant_that_a_task_has_not_is_unknown():
    with pytest.raises(
        UnknownName,
        match="unknown task 'mediconfusion_ps_rotated'; did you mean 'mediconfusion",
    ):
        task_file("mediconfusion_ps_rotated")


def read(name):
    from lmms_eval.utils import load_yaml_config

    task = task_file(name)
    base = {task.path.stem: {"type": "task", "yaml_path": str(task.path)}}
    return dict(load_yaml_config(index_entries(base)[name]["yaml_path"], mode="full"))


@each_row("name", MADE)
def test_a_variant_changes_only_what_it_is_about(prepared, name):
    task = task_file(name)
    base, config = task_config(task.base), task_config(name)
    assert base.keys() <= config.keys()
    changed = {key for key in config if config[key] != base.get(key)}
    scored = (
        {"process_results", "metric_list"} if task.variant in ("rotated", ABSTAIN) else set()
    )
    assert changed - {"tag"} == {"task", "task_alias", "metadata", "process_docs"} | scored
    assert config["tag"] == []
    assert (config["process_results"], config["metric_list"]) == (
        task.process_results,
        task.metric_list,
    )


@each_row("name", MADE)
def test_the_metadata_of_a_variant_name_its_base(prepared, name):
    task = task_file(name)
    base, config = task_config(task.base), task_config(name)
    about = {"variant": task.variant, "base": task.base, "description": task.description}
    if task.variant == DEGRADED:
        groups = [*base["metadata"].get("breakdown", []), "degradation", "severity"]
        about |= {"degradations": 1, "breakdown": groups}
    assert config["metadata"] == {**base["metadata"], **about}


@each_row("name", MADE)
def test_the_harness_reads_the_configuration_of_a_variant(prepared, name):
    file, config = read(name), resolve_names(task_config(name))
    assert file.pop("process_docs").__name__ == config.pop("process_docs").__name__ == name
    assert file == config


def index_of(*names):
    return {name: {"type": "task", "yaml_path": str(task_file(name).path)} for name in names}


@pytest.fixture
def entries():
    return index_entries(index_of("mediconfusion", "mediconfusion_ps", "multimedeval_medqa"))


def test_the_harness_index_has_an_entry_for_each_variant(entries):
    assert sorted(entries) == sorted(
        [
            *(
                f"mediconfusion_{ending}"
                for ending in (*OF_PAIRS, "sanity", "stress", *THINKING)
            ),
            *(
                f"mediconfusion_ps_{ending}"
                for ending in (*OF_IMAGES, TOLD, DEGRADED, "sanity", "stress")
            ),  # likelihoods
            *(f"multimedeval_medqa_{ending}" for ending in ("5shot", *THINKING)),
            "multimedeval_5shot",
        ]
    )
    assert entries["multimedeval_5shot"]["task"] == ["multimedeval_medqa_5shot"]


def test_the_file_of_a_variant_is_written_when_it_is_asked_for(entries):
    assert not {"yaml_path"} & entries["mediconfusion_blind"].keys()
    assert "mediconfusion_blind.yaml" in entries["mediconfusion_blind"]["yaml_path"]


def test_the_harness_index_has_a_tag_for_all_variants(entries):
    tag = entries["mediconfusion_sanity"]
    assert tag["type"] == "tag"
    assert tag["task"] == ["mediconfusion", *(f"mediconfusion_{variant}" for variant in SANITY)]


OWN = choice_yaml(
    "own",
    lmms_eval_specific_kwargs="{image_root: pictures, default: {image_root: pictures}, other: {image_root: elsewhere}}",
    doc_to_text="!function beside.prompt",
    metadata="{version: 1, made: !function beside.prompt}",
)


def test_places_in_a_file_of_the_user_are_beside_that_file(tmp_path, monkeypatch):
    (tmp_path / "own.yaml").write_text(OWN)
    (tmp_path / "beside.py").write_text("def prompt(doc, settings):\n    return 'beside'\n")
    (tmp_path / "questions.jsonl").write_text("{}\n")
    (tmp_path / "pictures").mkdir()
    include([tmp_path])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    for variant in OF_IMAGES:
        config, ours = read(f"own_{variant}"), task_config(f"own_{variant}")
        assert config["dataset_kwargs"] == {
            "data_files": {"test": str(tmp_path / "questions.jsonl")}
        }
        assert config["lmms_eval_specific_kwargs"]["default"] == {
            "image_root": str(tmp_path / "pictures")
        }
        for key in ("dataset_kwargs", "lmms_eval_specific_kwargs", "task", "task_alias"):
            assert config[key] == ours[key]
        assert config["doc_to_text"]({}, {}) == config["metadata"]["made"]({}, {}) == "beside"


def test_a_name_that_is_taken_is_no_variant():
    taken = {"mediconfusion_blind": {"type": "task", "yaml_path": "/x.yaml"}}

    entries = index_entries(index_of("mediconfusion") | taken)

    assert "mediconfusion_blind" not in entries
    assert entries["mediconfusion_sanity"]["task"] == [
        "mediconfusion",
        *(f"mediconfusion_{variant}" for variant in SANITY[1:]),
    ]


def test_tasks_that_are_not_ours_get_no_variants():
    assert (
        index_entries(
            {"mediconfusion": {"type": "task", "yaml_path": "/elsewhere/mediconfusion.yaml"}}
        )
        == {}
    )
    assert index_entries({"mediconfusion": {"type": "tag", "task": [], "yaml_path": -1}}) == {}
    assert index_entries({}) == {}


def test_a_tag_names_a_task_and_its_variants(prepared):
    stressed = [
        "mediconfusion_gd",
        *(f"mediconfusion_gd_{variant}" for variant in STRESS if variant in OF_PAIRS),
    ]
    assert [task.name for task in tagged_tasks("mediconfusion_gd_stress")] == stressed
    names = ["mediconfusion_gd", *(f"mediconfusion_gd_{variant}" for variant in SANITY)]
    assert [task.name for task in tagged_tasks("mediconfusion_gd_sanity")] == names
    assert tasks_of("mediconfusion_gd_sanity") == names
    assert tasks_of("mediconfusion_gd_blind") == ["mediconfusion_gd_blind"]


def test_other_names_are_no_tags(prepared):
    assert (
        tagged_tasks("multimedeval_medqa_sanity")
        == tagged_tasks("mediconfusion")
        == tagged_tasks("_sanity")
        == []
    )
    assert tasks_of("multimedeval_medqa_blind") == []


def test_tags_and_variants_are_selected(prepared):
    chosen = ("mediconfusion_gd_sanity", "mediconfusion_blind", "somebody_elses")
    assert select(chosen) == Selection(chosen, {})


def test_a_part_has_no_name_of_a_variant_or_a_tag(prepared):
    for name in ("mediconfusion_blind", "mediconfusion_ps_sanity"):
        with pytest.raises(
            MedTasksError,
            match=f"there is a task or dataset '{name}' already; choose another name",
        ):
            select_as("mediconfusion", {"categories": ["Cerebral"]}, name)


def test_variants_of_a_missing_dataset_say_how_to_prepare_it():
    names = ("mediconfusion_blind", "mediconfusion_swapped")
    chosen = select(names)
    assert chosen.ready == ()
    for name in names:
        assert "medtasks data prepare mediconfusion" in chosen.missing[name]
        task = SimpleNamespace(
            config=SimpleNamespace(task=name, dataset_path=read(name)["dataset_path"])
        )
        with pytest.raises(
            MedTasksError, match="medtasks data prepare mediconfusion"
        ):  # before the harness loads it
            download_and_check(None, task)
        assert read(name)["task_alias"] == name


@pytest.fixture
def part(sample_home, tmp_path, monkeypatch):
    """Select a part of the sample in a home of its own."""
    shutil.copytree(sample_home, tmp_path / "home")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    select_as("mediconfusion", {"categories": ["Cerebral"]}, "mc_head")


def test_a_part_has_the_variants_of_the_whole(part):
    assert task_file("mc_head_gd").variants == OF_PAIRS
    assert variant_of("mc_head_gd_rotated") == ("mc_head_gd", "rotated")
    asked = task_documents(task_file("mc_head_swapped"))
    assert {document["doc_id"] for document in asked} == {
        one["doc_id"] for one in load_documents("mc_head")
    }
    assert task_config("mc_head_blind")["metadata"]["dataset"] == "mc_head"
    assert read("mc_head_blind")["task_alias"] == "mc_head_blind [SAMPLE DATA]"


def test_questions_without_images_have_no_variants(part):
    manifest = prepared_folder("mc_head") / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"images": ', '"images": 0, "x": '))
    assert task_file("mc_head_gd").variants == ()


def test_a_task_that_only_the_harness_scores_has_no_variants(part):
    (own_tasks_folder() / "foreign.yaml").write_text(
        "task: foreign\noutput_type: generate_until\n"
    )
    assert task_files()["foreign"].variants == ()
    assert "is scored by metrics of the harness alone" in task_files()["foreign"].only_harness


def test_a_task_with_a_file_of_that_name_is_no_variant(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    own_tasks_folder().mkdir()
    text = task_file("mediconfusion").path.read_text()
    included = task_file("mediconfusion").path.parent / "_paired_choice_yaml"
    text = text.replace("include: _paired_choice_yaml", f"include: {included}")
    (own_tasks_folder() / "x.yaml").write_text(
        text.replace("task: mediconfusion\n", "task: mediconfusion_blind\n")
    )
    assert variant_of("mediconfusion_blind") is None
    assert task_file("mediconfusion_blind").variant is None
    assert [task.variant for task in variants_of(task_file("mediconfusion"))] == list(
        OF_PAIRS[1:]
    )
