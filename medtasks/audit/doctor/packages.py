"""Installed packages against what this package's own metadata asks for."""

import importlib.metadata
from collections.abc import Iterator, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from medtasks.audit.doctor.findings import PACKAGES, Finding, State
from medtasks.audit.doctor.scope import Scope
from medtasks.audit.facts import installed_version
from medtasks.data.prepared import known, prepared_folder
from medtasks.errors import DatasetNotPrepared

HARNESS_PACKAGE = "lmms_eval"
_OWN = "medtasks"
_REPORT = "report"
_DICOM = "dicom"
_PURPOSES = {
    _REPORT: "metrics of reports and summaries",
    _DICOM: "preparing datasets from DICOM files",
    "radfm": "reading volumes with RadFM",
    "lm-eval": "the text-only tasks in lm-evaluation-harness",
    "dev": "developing medtasks",
}


def requirements(extra: str | None = None) -> list[Requirement]:
    """Return what this package needs on this machine; of an extra, only what that adds. Nothing if not installed."""
    plain = _required(_OWN) or []
    return plain if extra is None else [one for one in _required(_OWN, extra) or () if one not in plain]


def _required(distribution: str, extra: str = "") -> list[Requirement] | None:
    """Return what a distribution needs on this machine, with an extra or without; None where it is not installed."""
    try:
        lines = importlib.metadata.requires(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    needed = map(Requirement, lines)
    return [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]


def requires_python() -> str:
    """Return the versions of Python that this package needs, such as ``>=3.11``; empty where it is not installed."""
    return next(iter(_stated("Requires-Python")), "")


def harness_requirement() -> Requirement:
    """Return the range of the harness's versions that this package needs."""
    wanted = canonicalize_name(HARNESS_PACKAGE)
    found = [one for one in requirements() if canonicalize_name(one.name) == wanted]
    return found[0] if found else Requirement(HARNESS_PACKAGE)


def extras() -> list[str]:
    """Return the names of this package's extras, as ``pip`` takes them."""
    return [canonicalize_name(name) for name in _stated("Provides-Extra")]


def _stated(field: str) -> list[str]:
    try:
        return list(map(str, importlib.metadata.metadata(_OWN).get_all(field) or ()))
    except importlib.metadata.PackageNotFoundError:
        return []


def required_packages() -> Iterator[Finding]:
    """Look at the packages without which nothing runs, and at those the harness itself asks for."""
    harness = canonicalize_name(HARNESS_PACKAGE)  # looked at where the harness is
    needed = [one for one in requirements() if canonicalize_name(one.name) != harness]
    wrong = [(one, words) for one in needed if (words := _trouble(one))]
    for one, words in wrong:
        yield PACKAGES.problem(one.name, f"medtasks needs {_shown(one)}, {words}", f"pip install '{_shown(one)}'")
    if needed and not wrong:
        yield PACKAGES.ok("required", f"all {len(needed)} packages medtasks needs are installed")


def harness_packages() -> Iterator[Finding]:
    """Look for packages the harness asks for; their versions are the harness's own affair."""
    needed = _required(HARNESS_PACKAGE)
    if needed is None:
        return  # said where the harness's version is looked at
    missing = [one for one in needed if installed_version(one.name) is None]
    if missing:
        names = ", ".join(one.name for one in missing)
        fix = "pip install " + " ".join(f"'{_shown(one)}'" for one in missing)
        yield PACKAGES.warning("harness", f"lmms-eval needs {names}, not installed", fix)
    else:
        yield PACKAGES.ok("harness", f"all {len(needed)} packages lmms-eval needs are installed")


def extra_packages(scope: Scope) -> Iterator[Finding]:
    """Look at the extras: all of them, or those that the chosen tasks need."""
    for extra in _needed(scope) if scope.chosen else extras():
        wrong = [f"{_shown(one)} ({words})" for one in requirements(extra) if (words := _trouble(one))]
        purpose = _PURPOSES.get(extra)
        what = f"the extra '{extra}'" + (f", for {purpose}," if purpose else "")
        if wrong:
            state = State.WARNING if scope.chosen else State.NOTE
            fix = f"pip install 'medtasks[{extra}]'"
            yield Finding(PACKAGES, f"extra {extra}", state, f"{what} lacks {', '.join(wrong)}", fix)
        else:
            yield PACKAGES.ok(f"extra {extra}", f"{what} is installed")


def _needed(scope: Scope) -> Sequence[str]:
    """Return the extras without which a chosen task loses metrics, or its data cannot be prepared."""
    needed = [_REPORT] if scope.metrics else []
    if "multimedeval_vindr_mammo" in scope.datasets and not _is_prepared("multimedeval_vindr_mammo"):
        needed.append(_DICOM)
    return needed


def _is_prepared(name: str) -> bool:
    try:
        return known(name) and prepared_folder(name).is_dir()
    except DatasetNotPrepared:
        return False


def _trouble(requirement: Requirement) -> str:
    """Return in words what is wrong with an installed package; empty if nothing."""
    version = installed_version(requirement.name)
    if version is None:
        return "not installed"
    return "" if requirement.specifier.contains(version, prereleases=True) else f"installed is {version}"


def _shown(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"
