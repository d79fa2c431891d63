"""Installed versions of the harness and other packages, against what this package's own metadata ask for."""

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Collection, Iterator, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from medtasks.audit.doctor.findings import HARNESS, PACKAGES, Finding, State
from medtasks.audit.doctor.scope import Scope
from medtasks.audit.facts import installed_version
from medtasks.data.dataset_manifest import FILE_NAME
from medtasks.errors import one_line
from medtasks.home import dataset_folder
from medtasks.lmms import AUTOLOAD_VARIABLE
from medtasks.tasks.task_index import harness_folder

_HARNESS = "lmms_eval"
_OWN = "medtasks"
_DICOM_DATASET = "multimedeval_vindr_mammo"


def required(extra: str = "") -> list[Requirement]:
    """Return the packages that this one needs on this machine, with an extra or without; none if unknown."""
    try:
        needed = map(Requirement, importlib.metadata.requires(_OWN) or [])
    except importlib.metadata.PackageNotFoundError:
        return []
    return [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]


def harness_requirement() -> Requirement:
    """Return the range of the harness's versions that this package needs."""
    return next(filter(_is_harness, required()), Requirement(_HARNESS))


def _is_harness(requirement: Requirement) -> bool:
    return canonicalize_name(requirement.name) == canonicalize_name(_HARNESS)


def harness_version() -> Iterator[Finding]:
    """Look at whether the harness is there, in a version this package was made for."""
    wanted, tasks, installed = harness_requirement(), harness_folder(), installed_version(_HARNESS)
    fix = f"pip install '{wanted}'"
    if tasks is None:
        yield HARNESS.problem("version", f"lmms-eval is not installed for {sys.executable}", fix)
    elif installed is None:
        found = f"lmms-eval in {tasks.parent} is not installed as a package, so that its version is not known"
        yield HARNESS.warning("version", found, fix)
    elif wanted.specifier.contains(installed, prereleases=True):
        yield HARNESS.ok("version", f"lmms-eval {installed} in {tasks.parent} fits {wanted.specifier}")
    else:
        found = f"lmms-eval {installed} in {tasks.parent} does not fit {wanted.specifier}, for which medtasks was made"
        yield HARNESS.problem("version", found, fix)


def started(names: Collection[str]) -> Iterator[Finding]:
    """Import the harness as a run does, and check that its task index holds our tasks, groups and tags."""
    fix = f"install what it names, or all anew: pip install --force-reinstall '{harness_requirement()}'"
    try:
        importlib.import_module("lmms_eval.models")  # loads the plug-ins, ours among them
        index = importlib.import_module("lmms_eval.tasks").TaskManager().all_tasks
    except (Exception, SystemExit) as error:  # noqa: BLE001 - plug-ins of others are imported, too
        yield HARNESS.problem("start", f"the harness does not start ({one_line(error)})", fix)
        return
    missing = sorted(set(names) - set(index))
    if missing and os.environ.get(AUTOLOAD_VARIABLE, "1") != "0":
        few = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        found = f"{len(missing)} of {len(names)} names of ours are not in the harness's task index ({few})"
        fix = 'fix the other findings, or name our tasks with --include_path "$(medtasks path)"'
        yield HARNESS.problem("start", found, fix)
    else:
        yield HARNESS.ok("start", f"the harness starts and finds all {len(names)} names of ours")


def packages(scope: Scope) -> Iterator[Finding]:
    """Check the packages without which nothing runs, and those of extras that a chosen task needs."""
    extras = ["report"] if scope.chosen and scope.metrics else []
    if scope.chosen and _DICOM_DATASET in scope.datasets and not (dataset_folder(_DICOM_DATASET) / FILE_NAME).is_file():
        extras.append("dicom")
    plain = required()
    yield from _packages("required", "medtasks", State.PROBLEM, [one for one in plain if not _is_harness(one)])
    for extra in extras:
        added = [one for one in required(extra) if one not in plain]
        yield from _packages(f"extra {extra}", f"medtasks[{extra}]", scope.state, added)


def _packages(name: str, who: str, state: State, needed: Sequence[Requirement]) -> Iterator[Finding]:
    wrong = {f"{one.name}{one.specifier}": words for one in needed if (words := _trouble(one))}
    if wrong:
        found = f"{who} needs {', '.join(f'{package} ({words})' for package, words in wrong.items())}"
        yield Finding(PACKAGES, name, state, found, f"pip install {' '.join(map(repr, wrong))}")
    elif needed:
        yield PACKAGES.ok(name, f"all {len(needed)} packages that {who} needs are installed")


def _trouble(requirement: Requirement) -> str:
    """Return in words what is wrong with an installed package; empty if nothing."""
    version = installed_version(requirement.name)
    if version is None:
        return "not installed"
    return "" if requirement.specifier.contains(version, prereleases=True) else f"installed is {version}"
