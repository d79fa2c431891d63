"""All checks together: order, one failing check, what is chosen, and secrets."""

import pytest

from medtasks.audit.doctor import machine, tasks_and_data
from medtasks.audit.doctor.check_results import AREAS, MODEL, TORCH, CheckResult, State, findings_of, scope_of
from medtasks.audit.doctor.examining import examine
from medtasks.data.catalogue import CATALOGUE
from medtasks.errors import MedTasksError
from medtasks.home import own_tasks_folder
from medtasks.tasks.task_files import task_files

from ...tables import each_row

KEY = "sk-canary-0123456789"


@pytest.fixture
def quick(monkeypatch):
    """Torch, which takes long, is not imported."""
    monkeypatch.setattr(machine, "torch_stack", lambda: [TORCH.ok("torch", "torch 2 can be imported")])


def areas(findings):
    return list(dict.fromkeys(finding.area for finding in findings))


def test_areas_in_order_and_what_tasks_and_arguments_add(quick):
    found = examine()
    assert areas(found) == [area for area in AREAS if area != MODEL]
    assert [one for one in found if (one.state is State.OK) != (one.fix == "")] == []
    address = "base_url=http://127.0.0.1:9/v1"
    assert [one.name for one in examine(model_args=address) if one.area == MODEL] == ["address", "server"]
    found = examine(["mediconfusion"])
    assert {"judge", "weights"} & {*areas(found)} == set()
    assert [one.name for one in found if one.area == "datasets"] == ["mediconfusion"]


@each_row(
    "error, found, fix",
    [
        (
            SystemExit("canary"),
            "this could not be checked (SystemExit at test_examining.py:",
            "look at the named location",
        ),
        (MedTasksError("no disk; make room"), "no disk", "make room"),
    ],
)
def test_failing_check_keeps_what_it_found_and_quotes_nothing_of_others(error, found, fix):
    earlier = CheckResult("tasks", "first", State.OK, "it is there")

    def check():
        yield earlier
        raise error

    first, last = findings_of("tasks", "second", check)
    assert (first, last.area, last.name, last.state) == (earlier, "tasks", "second", State.PROBLEM)
    assert (last.found.startswith(found), last.fix.startswith(fix), "canary" in str(last)) == (True, True, False)


def test_interruption_is_no_finding():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        findings_of("tasks", "second", interrupted)


def test_failing_check_costs_nothing_else(quick, monkeypatch):
    usual = examine()

    def fail(*arguments, **rest):
        raise RuntimeError("canary of a record")

    monkeypatch.setattr(machine.shutil, "disk_usage", fail)
    monkeypatch.setattr(tasks_and_data, "prepared_data", fail)
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
    assert "mine.yaml" in next(one.found for one in found if (one.area, one.name) == ("tasks", "task files"))
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


def test_scope_without_names_is_everything():
    found = scope_of([])
    assert (found.chosen, found.datasets) == (False, tuple(CATALOGUE))
    assert {task.name for task in found.tasks} == {task.name for task in task_files().values() if task.kind == "task"}


@each_row(
    "names, datasets, foreign",
    [
        (["mediconfusion_all"], ["mediconfusion"], ()),
        (["mediconfusion_gd_blind"], ["mediconfusion"], ()),
        (["multimedeval_nli", "mme", "mediconfusion", "x"], ["multimedeval_mednli", "mediconfusion"], ("mme", "x")),
    ],
)
def test_scope_of_names(names, datasets, foreign):
    found = scope_of(names)
    assert (found.chosen, list(found.datasets), found.foreign) == (True, datasets, foreign)


def test_metrics_and_labeler_of_a_scope():
    metrics = {metric.name for metric in scope_of(["multimedeval_mimic_cxr_report"]).metrics}
    assert {"bleu", "meteor", "bertscore_multimedeval", "chexbert", "radgraph", "radcliq_v1_multimedeval"} <= metrics
    assert scope_of(["mediconfusion"]).metrics == ()
    labelled = ("multimedeval_mimic_cxr_classification", "medheval_visual_report")
    others = ("multimedeval_mimic_cxr_report", "mediconfusion")
    assert [scope_of([name]).needs_labeler for name in (*labelled, *others)] == [True, True, False, False]
