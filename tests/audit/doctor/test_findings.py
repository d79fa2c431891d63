"""A check that fails is a finding and costs nothing else; what a child told before it ended, however it ended."""

import pytest

from medtasks.audit.doctor import children
from medtasks.audit.doctor.children import Told
from medtasks.audit.doctor.findings import Finding, State, findings_of, of_error
from medtasks.errors import MedTasksError

from ...warm_python import start_from_here_warm
from .conftest import only

FIRST = Finding("tasks", "first", State.OK, "it is there")


def failing(error):
    yield FIRST
    raise error


@pytest.mark.parametrize("error", [ValueError("canary of a record"), KeyError("canary"), SystemExit("canary")])
def test_failing_check_keeps_what_it_found_and_quotes_nothing(error):
    first, last = findings_of("tasks", "second", lambda: failing(error))
    assert first == FIRST
    assert (last.area, last.name, last.state) == ("tasks", "second", State.PROBLEM)
    assert type(error).__name__ in last.found
    assert "test_findings.py" in last.found
    assert "canary" not in last.found + last.fix
    assert last.fix


def test_our_own_error_is_told_in_its_words():
    found = only(findings_of("tasks", "second", lambda: failing(MedTasksError("no disk; make room"))), "second")
    assert (found.state, found.found, found.fix) == (State.PROBLEM, "no disk", "make room")


def test_interruption_is_no_finding():
    with pytest.raises(KeyboardInterrupt):
        findings_of("tasks", "second", lambda: failing(KeyboardInterrupt()))


def test_error_without_a_fix_gets_the_given_one():
    assert of_error("tasks", "a", State.NOTE, MedTasksError("it is so."), "change it") == Finding(
        "tasks", "a", State.NOTE, "it is so", "change it"
    )


def test_child_that_cannot_run_tells_its_exit_code(told):
    found = told("nothing of the kind")
    assert found.how == "exit code 1"
    with pytest.raises(MedTasksError, match=r"ended too early \(exit code 1\)"):
        found.step("index")


def test_child_that_does_not_end(told, package, monkeypatch):
    monkeypatch.setattr(children, "TIMEOUT_S", 0.5)
    package("torch", "import time\ntime.sleep(600)\n")
    found = told("torch")
    assert (found.how, found.steps) == ("no end within 0.5 s", {})


def test_child_that_cannot_be_started(told, monkeypatch):
    def fail(*arguments, **rest):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(children.subprocess, "run", fail)
    assert told("torch") == Told(how="it could not be started: Cannot allocate memory")


@pytest.mark.slow
def test_real_harness_finds_our_tasks(told, monkeypatch):
    start_from_here_warm(monkeypatch)
    index = told("harness", "mediconfusion", "multimedeval_qa", "no_such_task").step("index")
    assert (index["error"], index["missing"]) == ("", ["no_such_task"])


@pytest.mark.slow
def test_real_torch(told):
    found = told("torch")
    assert found.how == ""
    assert [found.step(name)["error"] for name in ("torch", "torchvision", "transformers", "devices")] == [""] * 4
    assert found.step("transformers")["uses_torch"] is True
