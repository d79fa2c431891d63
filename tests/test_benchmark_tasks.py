"""Tasks of the benchmarks: the harness loads all of them, and their pages name them and agree with the catalogue."""

import re

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_lookup import label_of
from medtasks.errors import DatasetNotPrepared
from medtasks.lmms.plugin import model_manifests
from medtasks.tasks.task_files import task_config, task_file, task_files
from medtasks.tasks.task_index import resolve_names, tasks_folder

from . import tiny_multimedeval
from .tables import each_row

MULTIMEDEVAL = [
    name
    for name, task in task_files().items()
    if name.startswith("multimedeval_") and task.dataset
]
IN_SENTENCES = (
    "gmai_mmbench",
    "mediconfusion",
)  # benchmarks whose pages have no table of datasets
PAGES = {
    page.parent.name: page.read_text(encoding="utf-8")
    for page in tasks_folder().glob("*/README.md")
}


@each_row("name", task_files())
def test_the_page_names_every_task(name):
    task = task_file(name)
    page = PAGES[task.path.parent.name]
    generic = [ending for ending in re.findall(r"`<task>(\w+)`", page) if name.endswith(ending)]
    assert (
        f"`{name}`" in page
        or generic
        or (name.endswith("_5shot") and "`multimedeval_5shot`" in page)
    )


@each_row("name", sorted({task.dataset for task in task_files().values() if task.dataset}))
def test_page_and_catalogue_agree(name):
    if name.startswith(IN_SENTENCES):
        return
    info = CATALOGUE[name]
    rows = rf"\| {info.rows:,} \||\| {info.rows} \|" if info.rows else ""
    lines = [
        line
        for page in PAGES.values()
        for line in page.splitlines()
        if re.match(rf"\| `{name}`.*\| {info.access} \|", line)
    ]
    assert any(re.search(rows, line) for line in lines)


def test_the_page_of_iu_xray_names_every_metric():
    listed = re.findall(
        r"`(\w+)`", PAGES["iu_xray"].partition("## Metrics")[2].partition("## Compared")[0]
    )
    metrics = [
        entry["metric"] for entry in resolve_names(task_config("iu_xray_report")["metric_list"])
    ]
    assert set(listed) == {name for name in metrics if not name.endswith("_stderr")}


@pytest.fixture(scope="module")
def manager():
    from lmms_eval.tasks import TaskManager

    model_manifests()  # as the harness does, so that it finds what has no file
    return TaskManager(
        include_path=str(tasks_folder()), include_defaults=False, model_name="medtasks_tiny"
    )


def test_the_index_of_the_harness_is_ours(manager):
    ours = {
        name: entry["type"]
        for name, entry in manager.task_index.items()
        if name.startswith("multimedeval")
    }
    tags = {
        tag
        for name in MULTIMEDEVAL
        if isinstance(tag := manager._get_config(name).get("tag"), str)
    }
    assert ours == {
        **dict.fromkeys(MULTIMEDEVAL, "task"),
        **dict.fromkeys(tags, "tag"),
        "multimedeval": "group",
    }
    assert "generate_until" in manager.list_all_tasks()


def test_the_harness_loads_every_task_of_multimedeval_for_chat_models(
    manager, multimedeval_home, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    loaded = manager.load_task_or_group(MULTIMEDEVAL, task_type="chat")
    assert sorted(loaded) == sorted(MULTIMEDEVAL)
    for name, task in loaded.items():
        assert len(task.eval_docs) == tiny_multimedeval.TEST_ROWS
        assert task.config.task_alias == f"{name} [SAMPLE DATA]" == label_of(name)
        doc, examples = task.eval_docs[0], 5 if name.endswith("_5shot") else 0
        images = len(doc["image_files"]) * (
            8 if "ct_rate" in name else examples + 1
        )  # a scan is shown as eight slices
        turns = task.doc_to_messages(doc)
        assert [turn["role"] for turn in turns] == ["user", "assistant"] * examples + ["user"]
        assert (
            sum(part["type"] == "image" for turn in turns for part in turn["content"]) == images
        )


def test_data_that_is_not_prepared_stops_a_task_when_it_is_selected(
    manager, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    with pytest.raises(
        DatasetNotPrepared, match="run 'medtasks data prepare medheval_context'"
    ):
        manager.load_task_or_group(["medheval_context"])
    tiny_multimedeval.prepare("octmnist", demonstrations=False)
    assert "multimedeval_octmnist" in manager.load_task_or_group(["multimedeval_octmnist"])
    with pytest.raises(
        DatasetNotPrepared, match=r"'multimedeval_octmnist' in .* has no demonstrations"
    ):
        manager.load_task_or_group(["multimedeval_octmnist_5shot"])
