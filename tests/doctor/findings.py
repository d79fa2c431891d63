"""Picking out and judging single findings."""

from collections.abc import Iterable

from medtasks.doctor.check_results import CheckResult, Scope, State

EVERYTHING = Scope((), ())  # no task chosen, and no task of ours looked at


def only(findings: Iterable[CheckResult], name: str | None = None) -> CheckResult:
    """Return the only finding, or the one with a name."""
    (finding,) = [finding for finding in findings if name in (None, finding.name)]
    assert (finding.state is State.OK) == (finding.fix == ""), finding
    assert finding.found, finding
    assert "\n" not in finding.found + finding.fix, finding
    return finding


def expect(
    finding: CheckResult, state: State, *words: str, called: str = "", fix: str = ""
) -> CheckResult:
    """Check the state and name of a finding, and words in it and in its fix."""
    assert (finding.state, finding.name) == (state, called or finding.name), finding
    assert [word for word in words if word not in finding.found] == [], finding
    assert fix in finding.fix, finding
    return finding


def states(findings: Iterable[CheckResult]) -> dict[str, State]:
    return {finding.name: finding.state for finding in findings}
