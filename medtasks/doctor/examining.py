"""Running all checks, and those of the harness and its models."""

import contextlib
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from medtasks.doctor import metric_models, tasks_and_data
from medtasks.doctor.check_results import (
    AREAS,
    CREDENTIALS,
    DATASETS,
    HARNESS,
    JUDGE,
    MODEL,
    TASKS,
    WEIGHTS,
    Area,
    Check,
    CheckResult,
    Findings,
    Scope,
    findings_of,
    scope_of,
)
from medtasks.errors import MedTasksError, near_match, one_line
from medtasks.lmms.remote_models import class_path_of, model_names
from medtasks.runs.redaction import redact
from medtasks.tasks.task_index import harness_folder
from medtasks.version import ARCHITECTURES_NEED, TESTED, installed_version, is_untested


def examine(
    names: Sequence[str] = (),
    *,
    verify: bool = False,
    model: str = "",
    model_args: str = "",
) -> list[CheckResult]:
    """Check everything, or the needs of some tasks, groups and tags.

    Args:
        names: Tasks, groups and tags; empty for everything.
        verify: Whether prepared data are read completely.
        model: Model of the harness, which is imported; empty for none.
        model_args: Arguments of a served model, which is asked questions about synthetic images; empty for none.

    Returns:
        Results by area, without secrets. A check that fails is one of them.
    """
    # Where our task files cannot be read, nothing that depends on tasks is checked.
    scope = Scope(tuple(names), ())

    def find_scope() -> tuple[CheckResult, ...]:
        """Set the scope. There is a result only if this fails."""
        nonlocal scope
        scope = scope_of(names)
        return ()

    # As a check, so that an error becomes a result. The checks below read the scope afterwards.
    findings = findings_of(TASKS, "task files", find_scope)
    checks: list[tuple[Area, str, Check]] = [
        (HARNESS, "version", harness_version),
        (HARNESS, "packages", package_versions),
        (TASKS, "names", lambda: tasks_and_data.names(scope)),
        (TASKS, "own tasks", lambda: tasks_and_data.own_tasks(scope)),
        (CREDENTIALS, "Hub token", lambda: tasks_and_data.hub_token(scope)),
        (CREDENTIALS, "replies", tasks_and_data.readable_replies),
        (CREDENTIALS, "remote models", lambda: tasks_and_data.remote_models(scope)),
        (DATASETS, "prepared", lambda: tasks_and_data.prepared_data(scope, verify=verify)),
        (WEIGHTS, "metrics", lambda: metric_models.metric_weights(scope)),
        (JUDGE, "judge", lambda: metric_models.judge(scope)),
    ]
    if model:
        checks.append((MODEL, model, lambda: importable_model(model)))
    if model_args:
        # It imports torch, which takes seconds.
        from medtasks.doctor.served_model import served_model

        checks.append((MODEL, "model", lambda: served_model(scope, model_args)))
    for area, name, check in checks:
        findings += findings_of(area, name, check)
    findings.sort(key=lambda finding: AREAS.index(finding.area))
    results = []
    for finding in findings:
        results.append(replace(finding, found=redact(finding.found), fix=redact(finding.fix)))
    return results


def importable_model(name: str) -> Findings:
    """Check that a model of the harness exists, and that the packages it imports are installed.

    Args:
        name: Name of the model, as after ``--model``.
    """
    path = class_path_of(name)
    if not path:
        hint = near_match(name, model_names())
        yield MODEL.problem(
            name, f"there is no model '{name}'{hint}", "lmms-eval models lists all"
        )
        return
    module, _, class_name = path.rpartition(".")
    try:
        adapter = getattr(importlib.import_module(module), class_name)
        if hasattr(adapter, "check_versions"):  # one of ours
            adapter.check_versions()
    except MedTasksError as error:
        yield MODEL.result_of_error(name, error)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        yield MODEL.problem(
            name,
            f"the model '{name}' needs the package '{package}', which is not installed",
            f"pip install {package}",
        )
    except Exception as error:  # noqa: BLE001 - a model's module can fail in any way
        yield MODEL.problem(
            name,
            f"the model '{name}' cannot be imported ({one_line(error)})",
            "install what its page in lmms-eval asks for",
        )
    else:
        yield MODEL.ok(name, f"the model '{name}' can be imported ({path})")


def harness_version() -> Findings:
    """Check that the harness is installed in a version this package was made for."""
    requirement = Requirement("lmms_eval")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for dependency in map(Requirement, importlib.metadata.requires("medtasks") or []):
            if canonicalize_name(dependency.name) == "lmms-eval":
                requirement = dependency
                break
    tasks = harness_folder()
    installed = installed_version("lmms_eval")
    fix = f"pip install '{requirement}'"
    if tasks is None:
        yield HARNESS.problem(
            "version", f"lmms-eval is not installed for {sys.executable}", fix
        )
    elif installed is None:
        sentence = f"lmms-eval in {tasks.parent} is not installed as a package, so that its version is not known"
        yield HARNESS.warning("version", sentence, fix)
    elif not requirement.specifier.contains(installed, prereleases=True):
        unfit = f"lmms-eval {installed} in {tasks.parent} does not fit {requirement.specifier}"
        yield HARNESS.problem("version", f"{unfit}, for which medtasks was made", fix)
    elif is_untested("lmms_eval", installed):
        tested = TESTED["lmms_eval"]
        yield HARNESS.warning(
            "version",
            f"lmms-eval {installed} in {tasks.parent} is newer than {tested}, the newest tested one",
            f"pip install 'lmms_eval=={tested}' if a run fails",
        )
    else:
        sentence = f"lmms-eval {installed} in {tasks.parent} fits {requirement.specifier}"
        yield HARNESS.ok("version", sentence)


def package_versions() -> Findings:
    """Warn of packages newer than those tested, and note those too old for the adapters of published models."""
    installed = {}
    all_tested = True
    for name, tested in TESTED.items():
        version = installed_version(name)
        if not version or name == "lmms_eval":
            continue
        installed[name] = version
        if is_untested(name, version):
            all_tested = False
            yield HARNESS.warning(
                name,
                f"{name} {version} is newer than {tested}, the newest that medtasks was tested with",
                f"pip install '{name}=={tested}.*' if a run fails",
            )
    for name, least in ARCHITECTURES_NEED.items():
        if Version(installed.get(name, least)) < Version(least):
            yield HARNESS.note(
                name,
                f"{name} {installed[name]} is older than {least}, which hf_vlm, llava_med, med_flamingo and radfm need",
                f"pip install '{name}>={least}' to run one of them",
            )
    if all_tested:
        versions = ", ".join(f"{name} {version}" for name, version in installed.items())
        yield HARNESS.ok("packages", f"none is newer than those tested: {versions}")
