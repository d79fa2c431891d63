"""All checks together, and those of the harness and its models."""

import importlib.metadata
import importlib.util
import sys
from unittest.mock import Mock

import pytest
from medtasks.model_adapters.hf_vlm import HfVlm

from medtasks.data.catalogue import CATALOGUE
from medtasks.doctor import examining, tasks_and_data
from medtasks.doctor.check_results import (
    AREAS,
    HARNESS,
    MODEL,
    TASKS,
    State,
    findings_of,
    scope_of,
)
from medtasks.doctor.examining import (
    examine,
    harness_version,
    importable_model,
    package_versions,
)
from medtasks.errors import MedTasksError, several
from medtasks.home import own_tasks_folder
from medtasks.tasks.task_files import task_files

from .findings import expect, only

KEY = "sk-canary-0123456789"


def areas(findings):
    return list(dict.fromkeys(finding.area for finding in findings))


def test_areas_in_order_without_secrets(monkeypatch):
    for name in ("MEDTASKS_JUDGE_API_KEY", "HF_TOKEN", "MY_SERVICE_TOKEN"):
        monkeypatch.setenv(name, f"{KEY}-{name.lower()}")
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "judge")
    loud = HARNESS.problem(
        "version", f"ValueError: sent {KEY}-hf_token with api_key={KEY}", "install another"
    )
    monkeypatch.setattr(examining, "harness_version", lambda: [loud])
    findings = examine(model_args="base_url=http://127.0.0.1:9/v1")
    assert areas(findings) == list(AREAS)
    assert [
        finding for finding in findings if (finding.state is State.OK) != (finding.fix == "")
    ] == []
    assert [finding.name for finding in findings if finding.area == MODEL] == [
        "address",
        "server",
    ]
    assert "ValueError: sent ***" in str(findings)
    assert KEY not in str(findings)
    findings = examine(["mediconfusion"])
    assert {"judge", "weights", MODEL} & {*areas(findings)} == set()
    assert [finding.name for finding in findings if finding.area == "datasets"] == [
        "mediconfusion"
    ]


def test_failing_checks_cost_nothing_else(monkeypatch):
    fail = Mock(side_effect=RuntimeError("canary of a record"))
    usual = examine()
    monkeypatch.setattr(tasks_and_data, "prepared_data", fail)
    monkeypatch.setattr(examining, "harness_version", fail)
    findings = examine()
    failing = {finding.name for finding in findings if "could not be checked" in finding.found}
    assert {"prepared", "version"} <= failing
    assert "canary" not in str(findings)
    others = [item for item in usual if item.area != "datasets" and item.name != "version"]
    assert [finding for finding in others if finding not in findings] == []
    with pytest.raises(KeyboardInterrupt):
        findings_of(TASKS, "second", Mock(side_effect=KeyboardInterrupt))


def test_a_model_of_the_harness_is_imported(monkeypatch):
    def found(name):
        (result,) = importable_model(name)
        return result.state, result.found, result.fix

    assert found("medtasks_tiny")[0] is State.OK
    assert found("medtasks_tiney")[:2] == (
        State.PROBLEM,
        "there is no model 'medtasks_tiney'; did you mean 'medtasks_tiny'?",
    )
    monkeypatch.setitem(sys.modules, "decord", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "lmms_eval.models.chat.qwen2_5_vl", raising=False)
    monkeypatch.delitem(sys.modules, "lmms_eval.models.simple.qwen2_5_vl", raising=False)
    state, sentence, fix = found("qwen2_5_vl")
    assert (state, fix) == (State.PROBLEM, "pip install decord")
    assert (
        sentence == "the model 'qwen2_5_vl' needs the package 'decord', which is not installed"
    )


def test_scope_of_names_and_a_malformed_own_file():
    everything = scope_of([])
    assert (everything.has_names, everything.datasets) == (False, tuple(CATALOGUE))
    tasks = {task.name for task in task_files().values() if task.kind == "task"}
    assert {task.name for task in everything.tasks} == tasks
    for names, datasets, foreign in (
        (["mediconfusion_all"], ["mediconfusion"], ()),
        (["mediconfusion_gd_blind"], ["mediconfusion"], ()),
        (
            ["multimedeval_nli", "mme", "mediconfusion", "x"],
            ["multimedeval_mednli", "mediconfusion"],
            ("mme", "x"),
        ),
    ):
        scope = scope_of(names)
        assert (scope.has_names, list(scope.datasets), scope.foreign) == (
            True,
            datasets,
            foreign,
        )
    own_tasks_folder().mkdir(parents=True)
    (own_tasks_folder() / "mine.yaml").write_text("task: [")
    findings = examine()
    assert "mine.yaml" in next(
        finding.found for finding in findings if finding.name == "task files"
    )
    assert set(areas(findings)) == set(AREAS) - {MODEL}


def test_versions_of_packages(monkeypatch):
    versions = {
        "transformers": "4.57.6",
        "torch": "99.0",
        "openai": "1.66.0",
        "pillow": "13.0.9",
    }
    monkeypatch.setattr(examining, "installed_version", versions.get)
    old, new = sorted(package_versions(), key=lambda finding: finding.name == "torch")
    expect(
        old,
        State.NOTE,
        "transformers 4.57.6 is older than 5.18",
        fix="pip install 'transformers>=5.18'",
    )
    expect(new, State.WARNING, "torch 99.0 is newer than", fix="pip install 'torch==")
    versions["torch"] = "2.10.0"
    assert [finding.state for finding in package_versions()] == [State.NOTE, State.OK]


def test_a_model_that_needs_a_newer_package(monkeypatch):
    monkeypatch.setattr(HfVlm, "least_versions", {"transformers": "99.1"})
    expect(
        only(importable_model("hf_vlm")),
        State.PROBLEM,
        "hf_vlm needs transformers 99.1",
        fix="pip install '",
    )
    monkeypatch.setattr(HfVlm, "least_versions", {"transformers": "4.0"})
    expect(only(importable_model("hf_vlm")), State.OK, "can be imported")


def test_version_of_the_harness(monkeypatch):
    ok, problem = (State.OK, ""), (State.PROBLEM, "pip install 'lmms_")
    untested = (State.WARNING, "pip install 'lmms_eval==0.7.3' if")
    for installed, (state, fix) in (
        ("0.7.3", ok),
        ("0.7.9.dev1", untested),
        ("0.7.2", problem),
        ("0.8.0", untested),
    ):
        monkeypatch.setattr(
            examining, "installed_version", lambda name, installed=installed: installed
        )
        finding = expect(only(harness_version()), state, installed, fix=fix)
        assert "0.7.3" in finding.found + finding.fix
    monkeypatch.setattr(examining, "installed_version", lambda name: None)
    expect(
        only(harness_version()),
        State.WARNING,
        "is not installed as a package",
        fix="pip install 'lmms_",
    )
    monkeypatch.setattr(
        importlib.metadata,
        "requires",
        Mock(side_effect=importlib.metadata.PackageNotFoundError),
    )
    monkeypatch.setattr(examining, "harness_folder", lambda: None)
    finding = expect(only(harness_version()), State.PROBLEM, "lmms-eval is not installed")
    assert finding.fix == "pip install 'lmms_eval'"


def test_a_second_fault_of_a_file_is_no_fix_of_the_first():
    error = MedTasksError(several(["line 1 is empty", "line 4 is empty"]))

    result = TASKS.result_of_error("mine", error, "fill them in")

    assert (result.found, result.fix) == (
        "line 1 is empty; also line 4 is empty",
        "fill them in",
    )
