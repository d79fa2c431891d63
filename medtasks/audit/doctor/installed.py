"""Installed versions of the harness and other packages, against what this package's own metadata ask for."""

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Collection, Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from medtasks import __version__
from medtasks.audit.doctor.findings import HARNESS, PACKAGES, Finding, State
from medtasks.audit.doctor.scope import Scope
from medtasks.audit.facts import installed_version
from medtasks.data.home import dataset_folder
from medtasks.data.manifest import FILE_NAME
from medtasks.errors import one_line
from medtasks.harness import AUTOLOAD_VARIABLE
from medtasks.tasks.task_index import harness_folder

_HARNESS = "lmms_eval"
_OWN = "medtasks"
_PURPOSES = {
    "report": "metrics of reports and summaries",
    "dicom": "preparing datasets from DICOM files",
    "radfm": "reading volumes with RadFM",
    "curate": "building benchmarks of your own",
    "peft": "adapters of PEFT in hf_vlm",
    "lm-eval": "the text-only tasks in lm-evaluation-harness",
    "oracles": "checking scores by the packages that publish them",
}
_NOT_FOR_USERS = {"dev"}
_DICOM_DATASET = "multimedeval_vindr_mammo"


def required(distribution: str = _OWN, extra: str = "") -> list[Requirement]:
    """Return what a distribution needs on this machine, with an extra or without; nothing if it is not installed."""
    try:
        needed = map(Requirement, importlib.metadata.requires(distribution) or [])
    except importlib.metadata.PackageNotFoundError:
        return []
    return [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]


def harness_requirement() -> Requirement:
    """Return the range of the harness's versions that this package needs."""
    return next(filter(_is_harness, required()), Requirement(_HARNESS))


def extras() -> list[str]:
    """Return the names of the extras a user may want, as ``pip`` takes them."""
    try:
        stated = importlib.metadata.metadata(_OWN).get_all("Provides-Extra") or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    return [name for name in map(canonicalize_name, map(str, stated)) if name not in _NOT_FOR_USERS]


def _is_harness(requirement: Requirement) -> bool:
    return canonicalize_name(requirement.name) == canonicalize_name(_HARNESS)


def own_version() -> Iterator[Finding]:
    """Check that this package is installed, without which the harness cannot find it."""
    if installed_version(_OWN) is None:
        found = f"medtasks {__version__} is not installed for {sys.executable}, so that the harness cannot find it"
        yield HARNESS.problem("medtasks", found, "pip install medtasks, or in a clone: pip install -e .")
    else:
        yield HARNESS.ok("medtasks", f"medtasks {__version__} is installed")


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


def autoloads() -> bool:
    """Return whether the user lets our plug-in register anything."""
    return os.environ.get(AUTOLOAD_VARIABLE, "1") != "0"


def autoload() -> Iterator[Finding]:
    """Look at whether the user has switched the plug-in off."""
    if not autoloads():
        found = f"{AUTOLOAD_VARIABLE}=0 hides our tasks and models from the harness"
        yield HARNESS.warning(AUTOLOAD_VARIABLE, found, f"unset {AUTOLOAD_VARIABLE}")


def started(names: Collection[str]) -> Iterator[Finding]:
    """Import the harness as a run does, and check that its task index holds our tasks, groups and tags."""
    fix = f"install what it names, or all anew: pip install --force-reinstall '{harness_requirement()}'"
    try:
        importlib.import_module("lmms_eval.models")  # loads the plug-ins, ours among them
        index = importlib.import_module("lmms_eval.tasks").TaskManager().all_tasks
    except (Exception, SystemExit) as error:  # noqa: BLE001 - plug-ins of others are imported, too
        yield HARNESS.problem("start", f"the harness does not start ({one_line(error)})", fix)
        return
    if missing := sorted(set(names) - set(index)) if autoloads() else []:
        few = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        found = f"{len(missing)} of {len(names)} names of ours are not in the harness's task index ({few})"
        fix = 'fix the other findings, or name our tasks with --include_path "$(medtasks path)"'
        yield HARNESS.problem("start", found, fix)
    else:
        yield HARNESS.ok("start", f"the harness starts and finds all {len(names)} names of ours")


def packages(scope: Scope) -> Iterator[Finding]:
    """Look at the packages without which nothing runs, and at those of the extras.

    The extras are all of them, or those without which a chosen task loses metrics or cannot be prepared.
    """
    plain = required()
    groups = {
        "required": ("medtasks", "", State.PROBLEM, [one for one in plain if not _is_harness(one)]),
    }
    for extra in _needed(scope) if scope.chosen else extras():
        who = f"the extra '{extra}'" + (f", for {_PURPOSES[extra]}," if extra in _PURPOSES else "")
        added = [one for one in required(_OWN, extra) if one not in plain]
        groups[f"extra {extra}"] = (who, f"'medtasks[{extra}]'", scope.state, added)
    for name, (who, mend, state, needed) in groups.items():
        wrong = {f"{one.name}{one.specifier}": words for one in needed if (words := _trouble(one))}
        if wrong:
            found = f"{who} needs {', '.join(f'{package} ({words})' for package, words in wrong.items())}"
            fix = f"pip install {mend or ' '.join(map(repr, wrong))}"
            yield Finding(PACKAGES, name, state, found, fix)
        elif needed:
            yield PACKAGES.ok(name, f"all {len(needed)} packages that {who} needs are installed")


def _needed(scope: Scope) -> Iterator[str]:
    if scope.metrics:
        yield "report"
    if _DICOM_DATASET in scope.datasets and not (dataset_folder(_DICOM_DATASET) / FILE_NAME).is_file():
        yield "dicom"


def _trouble(requirement: Requirement) -> str:
    """Return in words what is wrong with an installed package; empty if nothing."""
    version = installed_version(requirement.name)
    if version is None:
        return "not installed"
    return "" if requirement.specifier.contains(version, prereleases=True) else f"installed is {version}"
