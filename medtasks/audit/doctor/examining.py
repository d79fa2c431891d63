"""All checks, one after the other, while child processes import what takes long."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

from medtasks.audit.doctor import (
    credentials,
    datasets,
    findings,
    harness,
    judge,
    machine,
    packages,
    plug_ins,
    task_names,
    weights,
)
from medtasks.audit.doctor.child_process import Child, Told
from medtasks.audit.doctor.findings import AREAS, Check, Finding, findings_of
from medtasks.audit.doctor.scope import Scope, scope_of
from medtasks.harness import AUTOLOAD_VARIABLE
from medtasks.harness.redaction import redacted


def examine(names: Sequence[str] = (), *, verify: bool = False) -> list[Finding]:
    """Look at everything, or at what some tasks, groups and tags need; return findings by area, without secrets.

    A check that fails is one of them. To ``verify``, prepared data are read completely, and the harness is started.
    """
    with ExitStack() as children:
        plug_ins_told, torch_told = _child(children, "plug_ins"), _child(children, "torch")
        found, scope = _scope(names)
        checks = [*_checks_here(scope, verify=verify)]
        if verify:
            checks.append((findings.HARNESS, "start", _start(children)))
        checks += [
            (findings.PLUG_INS, "loading", lambda: plug_ins.plug_ins(plug_ins_told(), autoload=harness.autoloads())),
            (findings.TORCH, "imports", lambda: machine.torch_stack(torch_told())),
        ]
        for area, name, check in checks:
            found += findings_of(area, name, check)
    found.sort(key=lambda finding: AREAS.index(finding.area))
    return [replace(one, found=redacted(one.found), fix=redacted(one.fix)) for one in found]


def _checks_here(scope: Scope, *, verify: bool) -> list[tuple[str, str, Check]]:
    return [
        (findings.HARNESS, "Python", harness.python_version),
        (findings.HARNESS, "medtasks", harness.own_version),
        (findings.HARNESS, "version", harness.harness_version),
        (findings.HARNESS, "seams", harness.seams),
        (findings.HARNESS, f"command {harness.COMMAND}", harness.command),
        (findings.HARNESS, AUTOLOAD_VARIABLE, harness.autoload),
        (findings.TASKS, "own files", task_names.own_files),
        (findings.TASKS, "names", lambda: task_names.collisions(scope)),
        (findings.TASKS, "names", lambda: task_names.foreign_names(scope)),
        (findings.PACKAGES, "required", packages.required_packages),
        (findings.PACKAGES, "harness", packages.harness_packages),
        (findings.PACKAGES, "extras", lambda: packages.extra_packages(scope)),
        (findings.MACHINE, "disk", machine.disks),
        (findings.MACHINE, "memory", machine.memory),
        (findings.CREDENTIALS, "Hub token", lambda: credentials.hub_token(scope)),
        (findings.CREDENTIALS, "replies", credentials.readable_replies),
        (findings.CREDENTIALS, "remote models", lambda: credentials.remote_models(scope)),
        (findings.DATASETS, "prepared", lambda: datasets.prepared_data(scope, verify=verify)),
        (findings.WEIGHTS, "metrics", lambda: weights.metric_weights(scope)),
        (findings.WEIGHTS, "labeler", lambda: weights.labeler(scope)),
        (findings.WEIGHTS, "settings", lambda: weights.model_settings(scope)),
        (findings.JUDGE, "judge", lambda: judge.judge(scope)),
    ]


def _scope(names: Sequence[str]) -> tuple[list[Finding], Scope]:
    """Find what is chosen; where our task files cannot be read, nothing that depends on tasks is looked at."""
    scopes: list[Scope] = []

    def find() -> list[Finding]:
        scopes.append(scope_of(names))
        return []

    found = findings_of(findings.TASKS, "task files", find)
    return found, scopes[0] if scopes else Scope(tuple(names), ())


def _child(children: ExitStack, subject: str, names: Sequence[str] = ()) -> Callable[[], Told]:
    try:
        return children.enter_context(Child(subject, names)).told
    except OSError as error:
        told = Told(how=f"it could not be started: {error.strerror or error}")
        return lambda: told


def _start(children: ExitStack) -> Check:
    names = sorted(task_names.own_names()) if harness.autoloads() else []
    told = _child(children, "harness", names)
    return lambda: harness.started(told(), len(names))
