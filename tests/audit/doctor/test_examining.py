"""All checks together: order, one failing check, what is chosen, and secrets."""

import pytest

from medtasks.audit.doctor import datasets, machine
from medtasks.audit.doctor.check_results import AREAS, HARNESS, MODEL, TORCH, CheckResult, State, asked_by, scope_of
from medtasks.audit.doctor.examining import examine
from medtasks.data.catalogue import CATALOGUE
from medtasks.families.family import Asks
from medtasks.home import own_tasks_folder
from medtasks.tasks.task_files import task_file, task_files

from ...tables import each_row

KEY = "sk-canary-0123456789"


@pytest.fixture
def quick(monkeypatch):
    """Nothing that takes long is imported; returns the names that the harness's index was asked for."""
    asked = []

    def started(names):
        asked.append(set(names))
        yield HARNESS.ok("start", "it starts")

    monkeypatch.setattr(machine, "started", started)
    monkeypatch.setattr(machine, "torch_stack", lambda: [TORCH.ok("torch", "torch 2 can be imported")])
    return asked


def areas(findings):
    return list(dict.fromkeys(finding.area for finding in findings))


def test_all_areas_in_order(quick):
    found = examine()
    wanted = [area for area in AREAS if area in areas(found)]
    assert areas(found) == wanted
    assert set(AREAS) - {MODEL} == set(wanted)
    assert [
        one for one in found if not isinstance(one, CheckResult) or (one.state is State.OK) != (one.fix == "")
    ] == []
    assert quick == []


def test_served_model(quick):
    address = "base_url=http://127.0.0.1:9/v1"
    assert [one.name for one in examine(model_args=address) if one.area == MODEL] == ["address", "server"]


def test_a_task_without_extras_weights_and_judge(quick):
    found = examine(["mediconfusion"])
    assert "judge" not in areas(found)
    assert "weights" not in areas(found)
    assert [one.name for one in found if one.area == "datasets"] == ["mediconfusion"]
    assert [one.name for one in found if one.area == "packages"] == ["required"]


def test_verifying_starts_the_harness_with_all_our_names(quick):
    found = examine(verify=True)
    (names,) = quick
    assert {"mediconfusion", "multimedeval", "multimedeval_qa"} <= names
    assert [one.state for one in found if (one.area, one.name) == ("harness", "start")] == [State.OK]


def test_failing_check_costs_nothing_else(quick, monkeypatch):
    usual = examine()

    def fail(*arguments, **rest):
        raise RuntimeError("canary of a record")

    monkeypatch.setattr(machine.shutil, "disk_usage", fail)
    monkeypatch.setattr(datasets, "prepared_data", fail)
    monkeypatch.setattr(machine, "harness_version", fail)
    found = examine()
    assert {"disk", "prepared", "version"} <= {one.name for one in found if "could not be checked" in one.found}
    assert "canary" not in str(found)
    kept = [one for one in usual if one.area not in ("machine", "datasets") and one.name != "version"]
    assert [one for one in kept if one not in found] == []


def test_malformed_own_file_is_named_and_costs_only_what_depends_on_tasks(quick):
    own_tasks_folder().mkdir(parents=True)
    (own_tasks_folder() / "mine.yaml").write_text("task: [")
    found = examine()
    assert "mine.yaml" in next(one.found for one in found if (one.area, one.name) == ("tasks", "mine"))
    assert set(areas(found)) == set(AREAS) - {MODEL}
    assert next(one for one in found if (one.area, one.name) == ("tasks", "names")).state is State.OK


def test_no_secret_in_any_finding(quick, monkeypatch):
    """Whatever a package, a driver or a user's variable says: keys in the environment are not repeated."""
    for name in ("MEDTASKS_JUDGE_API_KEY", "HF_TOKEN", "MY_SERVICE_TOKEN"):
        monkeypatch.setenv(name, f"{KEY}-{name.lower()}")
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "judge")
    loud = TORCH.problem("torch", f"ValueError: sent {KEY}-hf_token with api_key={KEY}", "install another")
    monkeypatch.setattr(machine, "torch_stack", lambda: [loud])
    found = examine()
    assert "ValueError: sent ***" in str(found)
    assert KEY not in str(found)


# What the chosen tasks need


def test_without_names_everything():
    found = scope_of([])
    assert not found.chosen
    assert found.datasets == tuple(CATALOGUE)
    assert {task.name for task in found.tasks} == {task.name for task in task_files().values() if task.kind == "task"}


@each_row(
    "names, datasets",
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


@each_row(
    "name, needed",
    [
        ("multimedeval_mimic_cxr_classification", True),
        ("medheval_visual_report", True),
        ("multimedeval_mimic_cxr_report", False),
        ("mediconfusion", False),
    ],
)
def test_labeler(name, needed):
    assert scope_of([name]).needs_labeler is needed


@each_row(
    "name, need",
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
