"""All checks together: order, one failing check, what is chosen, and secrets."""

from unittest.mock import Mock

import pytest

from medtasks.audit.doctor import examining, tasks_and_data
from medtasks.audit.doctor.check_results import AREAS, MODEL, TORCH, CheckResult, State, findings_of, scope_of
from medtasks.audit.doctor.examining import examine
from medtasks.data.catalogue import CATALOGUE
from medtasks.errors import MedTasksError
from medtasks.home import own_tasks_folder
from medtasks.tasks.task_files import task_files

from ...tables import each_row

KEY = "sk-canary-0123456789"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Torch, which takes long, is not imported; its finding quotes a secret."""
    loud = TORCH.problem("torch", f"ValueError: sent {KEY}-hf_token with api_key={KEY}", "install another")
    monkeypatch.setattr(examining, "torch_stack", lambda: [loud])


def areas(findings):
    return list(dict.fromkeys(finding.area for finding in findings))


def test_areas_in_order_without_secrets(monkeypatch):
    for name in ("MEDTASKS_JUDGE_API_KEY", "HF_TOKEN", "MY_SERVICE_TOKEN"):
        monkeypatch.setenv(name, f"{KEY}-{name.lower()}")
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "judge")
    findings = examine(model_args="base_url=http://127.0.0.1:9/v1")
    assert areas(findings) == list(AREAS)
    assert [finding for finding in findings if (finding.state is State.OK) != (finding.fix == "")] == []
    assert [finding.name for finding in findings if finding.area == MODEL] == ["address", "server"]
    assert "ValueError: sent ***" in str(findings)
    assert KEY not in str(findings)
    findings = examine(["mediconfusion"])
    assert {"judge", "weights", MODEL} & {*areas(findings)} == set()
    assert [finding.name for finding in findings if finding.area == "datasets"] == ["mediconfusion"]


@each_row(
    "error, sentence, fix",
    [
        (SystemExit("canary"), "this could not be checked (SystemExit at test_examining.py:", "look at the named"),
        (MedTasksError("no disk; make room"), "no disk", "make room"),
    ],
)
def test_failing_check_keeps_its_earlier_findings_and_quotes_nothing_of_others(error, sentence, fix):
    earlier = CheckResult("tasks", "first", State.OK, "it is there")

    def check():
        yield earlier
        raise error

    first, last = findings_of("tasks", "second", check)
    assert (first, last.area, last.name, last.state) == (earlier, "tasks", "second", State.PROBLEM)
    assert (last.found.startswith(sentence), last.fix.startswith(fix), "canary" in str(last)) == (True, True, False)


def test_failing_checks_cost_nothing_else(monkeypatch):
    fail = Mock(side_effect=RuntimeError("canary of a record"))
    usual = examine()
    monkeypatch.setattr(examining.shutil, "disk_usage", fail)
    monkeypatch.setattr(tasks_and_data, "prepared_data", fail)
    monkeypatch.setattr(examining, "harness_version", fail)
    findings = examine()
    failing = {finding.name for finding in findings if "could not be checked" in finding.found}
    assert {"disk", "prepared", "version"} <= failing
    assert "canary" not in str(findings)
    others = [item for item in usual if item.area not in ("machine", "datasets") and item.name != "version"]
    assert [finding for finding in others if finding not in findings] == []
    with pytest.raises(KeyboardInterrupt):
        findings_of("tasks", "second", Mock(side_effect=KeyboardInterrupt))


def test_scope_of_names_and_a_malformed_own_file():
    everything = scope_of([])
    assert (everything.chosen, everything.datasets) == (False, tuple(CATALOGUE))
    tasks = {task.name for task in task_files().values() if task.kind == "task"}
    assert {task.name for task in everything.tasks} == tasks
    for names, datasets, foreign in (
        (["mediconfusion_all"], ["mediconfusion"], ()),
        (["mediconfusion_gd_blind"], ["mediconfusion"], ()),
        (["multimedeval_nli", "mme", "mediconfusion", "x"], ["multimedeval_mednli", "mediconfusion"], ("mme", "x")),
    ):
        scope = scope_of(names)
        assert (scope.chosen, list(scope.datasets), scope.foreign) == (True, datasets, foreign)
    own_tasks_folder().mkdir(parents=True)
    (own_tasks_folder() / "mine.yaml").write_text("task: [")
    findings = examine()
    assert "mine.yaml" in next(finding.found for finding in findings if finding.name == "task files")
    assert set(areas(findings)) == set(AREAS) - {MODEL}
