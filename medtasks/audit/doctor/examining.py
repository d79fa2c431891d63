"""Running all checks."""

from collections.abc import Sequence
from dataclasses import replace

from medtasks.audit.doctor import check_results as areas
from medtasks.audit.doctor import machine, metric_models, tasks_and_data
from medtasks.audit.doctor.check_results import Check, CheckResult, Scope, findings_of, scope_of
from medtasks.runs.redaction import redacted


def examine(names: Sequence[str] = (), *, verify: bool = False, model_args: str = "") -> list[CheckResult]:
    """Check everything, or the needs of some tasks, groups and tags; return results by area, without secrets.

    A check that fails is one of them. To ``verify``, prepared data are read completely. The served model that
    ``model_args`` name, if any, is asked questions about synthetic images.
    """
    scope = Scope(tuple(names), ())  # where our task files cannot be read, nothing that depends on tasks is checked

    def find_scope() -> tuple[CheckResult, ...]:
        nonlocal scope
        scope = scope_of(names)
        return ()

    findings = findings_of(areas.TASKS, "task files", find_scope)
    checks: list[tuple[str, str, Check]] = [
        (areas.HARNESS, "version", machine.harness_version),
        (areas.TASKS, "names", lambda: tasks_and_data.collisions(scope)),
        (areas.TASKS, "names", lambda: tasks_and_data.foreign_names(scope)),
        (areas.TASKS, "own tasks", lambda: tasks_and_data.own_tasks(scope)),
        (areas.TORCH, "imports", machine.torch_stack),
        (areas.MACHINE, "disk", machine.disks),
        (areas.MACHINE, "memory", machine.memory),
        (areas.CREDENTIALS, "Hub token", lambda: tasks_and_data.hub_token(scope)),
        (areas.CREDENTIALS, "replies", tasks_and_data.readable_replies),
        (areas.CREDENTIALS, "remote models", lambda: tasks_and_data.remote_models(scope)),
        (areas.DATASETS, "prepared", lambda: tasks_and_data.prepared_data(scope, verify=verify)),
        (areas.WEIGHTS, "metrics", lambda: metric_models.metric_weights(scope)),
        (areas.WEIGHTS, "settings", lambda: metric_models.model_settings(scope)),
        (areas.JUDGE, "judge", lambda: metric_models.judge(scope)),
    ]
    if model_args:
        from medtasks.audit.doctor.served_model import served_model  # imports torch, which takes seconds

        checks.append((areas.MODEL, "model", lambda: served_model(scope, model_args)))
    for area, name, check in checks:
        findings += findings_of(area, name, check)
    findings.sort(key=lambda finding: areas.AREAS.index(finding.area))
    return [replace(finding, found=redacted(finding.found), fix=redacted(finding.fix)) for finding in findings]
