"""What the chosen tasks need."""

import pytest

from medtasks.audit.doctor.scope import asked_by, scope_of
from medtasks.data.catalogue import CATALOGUE
from medtasks.families.family import Asks
from medtasks.harness.task_files import task_file, task_files


def test_without_names_everything():
    found = scope_of([])
    assert not found.chosen
    assert found.datasets == tuple(CATALOGUE)
    assert {task.name for task in found.tasks} == {task.name for task in task_files().values() if task.kind == "task"}


@pytest.mark.parametrize(
    ("names", "datasets"),
    [
        (["mediconfusion"], ["mediconfusion"]),
        (["mediconfusion_all"], ["mediconfusion"]),
        (["mediconfusion_gd_blind"], ["mediconfusion"]),
        (["multimedeval_nli", "mediconfusion"], ["multimedeval_mednli", "mediconfusion"]),
        (["mme"], []),
    ],
)
def test_datasets(names, datasets):
    found = scope_of(names)
    assert found.chosen
    assert list(found.datasets) == datasets


def test_foreign_names():
    assert scope_of(["mediconfusion", "mme", "multimedeval_nli", "x"]).foreign == ("mme", "x")


def test_report_task_needs_metrics_that_are_models():
    metrics = {metric.name for metric in scope_of(["multimedeval_mimic_cxr_report"]).metrics}
    assert {"bleu", "meteor", "bertscore_multimedeval", "chexbert", "radgraph", "radcliq_v1_multimedeval"} <= metrics
    assert scope_of(["mediconfusion"]).metrics == ()


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("multimedeval_mimic_cxr_classification", True),
        ("medheval_visual_report", True),
        ("multimedeval_mimic_cxr_report", False),
        ("mediconfusion", False),
    ],
)
def test_labeler(name, needed):
    assert scope_of([name]).needs_labeler is needed


@pytest.mark.parametrize(
    ("name", "need"),
    [
        ("mediconfusion", Asks.NOBODY),
        ("mediconfusion_ff", Asks.JUDGE),
        ("gmai_mmbench_val_judged", Asks.JUDGE),
        ("medheval_visual_report", Asks.JUDGE_IF_THERE),
        ("medheval_knowledge_open", Asks.JUDGE_IF_THERE),
        ("mediconfusion_all", Asks.NOBODY),
    ],
)
def test_judge(name, need):
    assert asked_by(task_file(name)) is need
