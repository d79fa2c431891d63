"""Running all checks."""

from collections.abc import Sequence
from dataclasses import replace

from medtasks.audit.doctor import datasets, judge_check, machine, metric_weights, task_names
from medtasks.audit.doctor.check_results import (
    AREAS,
    CREDENTIALS,
    DATASETS,
    HARNESS,
    JUDGE,
    MACHINE,
    MODEL,
    PACKAGES,
    TASKS,
    TORCH,
    WEIGHTS,
    Check,
    CheckResult,
    Scope,
    findings_of,
    scope_of,
)
from medtasks.runs.redaction import redacted


def examine(names: Sequence[str] = (), *, verify: bool = False, model_args: str = "") -> list[CheckResult]:
    """Check everything, or the needs of some tasks, groups and tags; return results by area, without secrets.

    A check that fails is one of them. To ``verify``, prepared data are read completely, and the harness is imported.
    The served model that ``model_args`` name, if any, is asked questions about synthetic images.
    """
    scope = Scope(tuple(names), ())  # where our task files cannot be read, nothing that depends on tasks is checked

    def find_scope() -> tuple[CheckResult, ...]:
        nonlocal scope
        scope = scope_of(names)
        return ()

    findings = findings_of(TASKS, "task files", find_scope)
    checks: list[tuple[str, str, Check]] = [
        (HARNESS, "version", machine.harness_version),
        (TASKS, "own files", task_names.own_files),
        (TASKS, "names", lambda: task_names.collisions(scope)),
        (TASKS, "names", lambda: task_names.foreign_names(scope)),
        (TASKS, "own tasks", lambda: task_names.own_tasks(scope)),
        (PACKAGES, "packages", lambda: machine.packages(scope)),
        (TORCH, "imports", machine.torch_stack),
        (MACHINE, "disk", machine.disks),
        (MACHINE, "memory", machine.memory),
        (CREDENTIALS, "Hub token", lambda: datasets.hub_token(scope)),
        (CREDENTIALS, "replies", datasets.readable_replies),
        (CREDENTIALS, "remote models", lambda: datasets.remote_models(scope)),
        (DATASETS, "prepared", lambda: datasets.prepared_data(scope, verify=verify)),
        (WEIGHTS, "metrics", lambda: metric_weights.metric_weights(scope)),
        (WEIGHTS, "settings", lambda: metric_weights.model_settings(scope)),
        (JUDGE, "judge", lambda: judge_check.judge(scope)),
    ]
    if verify:
        checks.append((HARNESS, "start", lambda: machine.started(task_names.own_names())))
    if model_args:
        from medtasks.audit.doctor.served_model import served_model  # imports torch, which takes seconds

        checks.append((MODEL, "model", lambda: served_model(scope, model_args)))
    for area, name, check in checks:
        findings += findings_of(area, name, check)
    findings.sort(key=lambda finding: AREAS.index(finding.area))
    return [replace(finding, found=redacted(finding.found), fix=redacted(finding.fix)) for finding in findings]
