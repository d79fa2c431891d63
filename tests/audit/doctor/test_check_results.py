"""A check that fails is a finding and costs nothing else."""

import pytest

from medtasks.audit.doctor.check_results import CheckResult, State, findings_of, of_error
from medtasks.errors import MedTasksError

from ...tables import each_row
from .conftest import only

FIRST = CheckResult("tasks", "first", State.OK, "it is there")


def failing(error):
    yield FIRST
    raise error


@each_row("error", [ValueError("canary of a record"), KeyError("canary"), SystemExit("canary")])
def test_failing_check_keeps_what_it_found_and_quotes_nothing(error):
    first, last = findings_of("tasks", "second", lambda: failing(error))
    assert first == FIRST
    assert (last.area, last.name, last.state) == ("tasks", "second", State.PROBLEM)
    assert type(error).__name__ in last.found
    assert "test_check_results.py" in last.found
    assert "canary" not in last.found + last.fix
    assert last.fix


def test_our_own_error_is_told_in_its_words():
    found = only(findings_of("tasks", "second", lambda: failing(MedTasksError("no disk; make room"))), "second")
    assert (found.state, found.found, found.fix) == (State.PROBLEM, "no disk", "make room")


def test_interruption_is_no_finding():
    with pytest.raises(KeyboardInterrupt):
        findings_of("tasks", "second", lambda: failing(KeyboardInterrupt()))


def test_error_without_a_fix_gets_the_given_one():
    assert of_error("tasks", "a", State.NOTE, MedTasksError("it is so."), "change it") == CheckResult(
        "tasks", "a", State.NOTE, "it is so", "change it"
    )
