"""One finding picked out, and scopes."""

from collections.abc import Callable, Iterable

import pytest

from medtasks.audit.doctor.check_results import CheckResult, Scope, State, scope_of

EVERYTHING = Scope((), ())


def only(findings: Iterable[CheckResult], name: str | None = None) -> CheckResult:
    """The one finding there is, or the one with a name."""
    (found,) = [one for one in findings if name in (None, one.name)]
    assert (found.state is State.OK) == (found.fix == ""), found
    assert found.found, found
    assert "\n" not in found.found + found.fix, found
    return found


def expect(
    found: CheckResult, state: State, *words: str, called: str | None = None, fix: str | Iterable[str] = ()
) -> CheckResult:
    """That a finding is in this state, is about what it should be, and has these words in it and in its fix."""
    assert (found.state, found.name) == (state, called or found.name), found
    assert [word for word in words if word not in found.found] == [], found
    assert [word for word in ([fix] if isinstance(fix, str) else fix) if word not in found.fix] == [], found
    return found


@pytest.fixture
def everything() -> Scope:
    """No task chosen, and no task of ours looked at."""
    return EVERYTHING


@pytest.fixture
def scope() -> Callable[..., Scope]:
    """What some tasks need."""
    return lambda *names: scope_of(names)
