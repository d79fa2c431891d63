"""All checks, one after the other, while child processes import what takes long."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from medtasks.audit.doctor import credentials, datasets, installed, judge, machine, plug_ins, task_names, weights
from medtasks.audit.doctor.children import Told, told_by
from medtasks.audit.doctor.findings import (
    AREAS,
    CREDENTIALS,
    DATASETS,
    HARNESS,
    JUDGE,
    MACHINE,
    MODEL,
    PACKAGES,
    PLUG_INS,
    TASKS,
    TORCH,
    WEIGHTS,
    Check,
    Finding,
    findings_of,
)
from medtasks.audit.doctor.scope import Scope, scope_of
from medtasks.harness import AUTOLOAD_VARIABLE
from medtasks.harness.redaction import redacted


def examine(names: Sequence[str] = (), *, verify: bool = False, model_args: str = "") -> list[Finding]:
    """Look at everything, or at what some tasks, groups and tags need; return findings by area, without secrets.

    A check that fails is one of them. To ``verify``, prepared data are read completely, and the harness is started.
    The served model that ``model_args`` name, if any, is asked drawn questions.
    """
    with ThreadPoolExecutor() as children:
        of_plug_ins, of_torch = children.submit(told_by, "plug_ins"), children.submit(told_by, "torch")
        scope = Scope(tuple(names), ())  # where our task files cannot be read, nothing that depends on tasks is checked

        def find_scope() -> tuple[Finding, ...]:
            nonlocal scope
            scope = scope_of(names)
            return ()

        found = findings_of(TASKS, "task files", find_scope)
        checks = _checks_here(scope, verify=verify)
        if verify:
            ours = sorted(task_names.own_names()) if installed.autoloads() else []
            of_harness = children.submit(told_by, "harness", ours)
            checks.append((HARNESS, "start", lambda: installed.started(of_harness.result(), len(ours))))
        checks += [
            (PLUG_INS, "loading", lambda: plug_ins.plug_ins(of_plug_ins.result(), autoload=installed.autoloads())),
            (TORCH, "imports", lambda: machine.torch_stack(of_torch.result())),
        ]
        if model_args:
            checks.append((MODEL, "model", lambda: _served_model(scope, model_args, of_torch.result())))
        for area, name, check in checks:
            found += findings_of(area, name, check)
    found.sort(key=lambda finding: AREAS.index(finding.area))
    return [replace(one, found=redacted(one.found), fix=redacted(one.fix)) for one in found]


def _served_model(scope: Scope, model_args: str, torch: Told) -> Iterable[Finding]:
    if torch.broken_off is not None:  # importing an adapter would end this process as well
        return [MODEL.problem("model", "it is not asked, as torch cannot be imported", "see the area torch")]
    from medtasks.audit.doctor.served_model import served_model  # imports torch, which takes seconds

    return served_model(scope, model_args)


def _checks_here(scope: Scope, *, verify: bool) -> list[tuple[str, str, Check]]:
    return [
        (HARNESS, "medtasks", installed.own_version),
        (HARNESS, "version", installed.harness_version),
        (HARNESS, f"command {installed.COMMAND}", installed.command),
        (HARNESS, AUTOLOAD_VARIABLE, installed.autoload),
        (TASKS, "own files", task_names.own_files),
        (TASKS, "names", lambda: task_names.collisions(scope)),
        (TASKS, "names", lambda: task_names.foreign_names(scope)),
        (PACKAGES, "packages", lambda: installed.packages(scope)),
        (MACHINE, "disk", machine.disks),
        (MACHINE, "memory", machine.memory),
        (CREDENTIALS, "Hub token", lambda: credentials.hub_token(scope)),
        (CREDENTIALS, "replies", credentials.readable_replies),
        (CREDENTIALS, "remote models", lambda: credentials.remote_models(scope)),
        (DATASETS, "prepared", lambda: datasets.prepared_data(scope, verify=verify)),
        (WEIGHTS, "metrics", lambda: weights.metric_weights(scope)),
        (WEIGHTS, "labeler", lambda: weights.labeler(scope)),
        (WEIGHTS, "settings", lambda: weights.model_settings(scope)),
        (JUDGE, "judge", lambda: judge.judge(scope)),
    ]
