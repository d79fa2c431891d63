"""``medtasks compare``: is one model better than another on the same questions?"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated, Any

import typer
from rich.table import Table

from medtasks import __version__
from medtasks.audit.comparing import ComparedTask, Comparison, compare_all, compare_task
from medtasks.audit.report.contents import as_json
from medtasks.audit.report.words import p_value
from medtasks.audit.run_files import Source
from medtasks.audit.scoring import difference, is_share, number
from medtasks.cli.output import (
    IncludePath,
    JsonFile,
    look_into,
    number_table,
    out,
    print_state_of_data,
    say,
    write_json,
)
from medtasks.errors import RepliesError, near_match
from medtasks.harness.task_files import task_file, task_files, variant_of
from medtasks.stats.paired import ALPHA, DRAWS, POWER, SEED, SIGN_FLIP


def compare(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[TASK] RUN RUN [RUN ...]",
            help="Folders of runs (their --output_path) or samples files; recorded replies need their task first.",
        ),
    ],
    metric: Annotated[
        list[str] | None, typer.Option(help="Compare this metric only, so that fewer tests are corrected for.")
    ] = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Compare runs on the documents that both answered, with paired tests under every answer rule.

    Without TASK, all our tasks that two runs have in common are compared and corrected for as one family of tests.
    """
    look_into(context, include_path, [Path(name) for name in names])
    task, runs = task_and_runs(names)
    if not 2 <= len(runs) <= len(ascii_uppercase):
        raise RepliesError(f"expected 2 to {len(ascii_uppercase)} runs to compare, but got {len(runs)}")
    labels = dict(zip(ascii_uppercase, runs, strict=False))
    sources = {label: Source(path) for label, path in labels.items()}
    if task is None:
        found, causes = compare_all(sources, metric or ())
    else:
        found, causes = {task: compare_task(task_file(task), sources, metric or ())}, {}
    write_json(json_file, _as_dict(labels, task, found, causes))
    for label, path in labels.items():
        say(f"{label}: {path}")
    for name, one in found.items():
        _print_task(name, one, heading=task is None)
    _print_family([test for one in found.values() for test in one.found.comparisons])
    for name, cause in causes.items():
        say(f"Not compared: {name}: {cause}")
    print_state_of_data({name: one.data for name, one in found.items()})


def task_and_runs(names: Sequence[str]) -> tuple[str | None, list[Path]]:
    """Return the task that the first name may be, and the runs; RepliesError: it is neither task nor run."""
    first = names[0]
    if first in task_files() or variant_of(first):
        return first, [Path(name) for name in names[1:]]
    if not Path(first).exists():
        raise RepliesError(
            f"'{first}' is neither a task of ours nor a folder or file{near_match(first, task_files())}; see "
            f"'medtasks tasks'"
        )
    return None, [Path(name) for name in names]


def _print_task(task: str, one: ComparedTask, *, heading: bool) -> None:
    if heading:
        out.print(f"\n[bold]{task}[/]")
    for (first, second), overlap in one.found.overlaps.items():
        out.print(
            f"\n{first} and {second}: {overlap.both} of {one.documents} documents answered in both are compared. "
            f"Left out: {overlap.only_first} answered in {first} only, {overlap.only_second} in {second} only, "
            f"{overlap.neither} in neither."
        )
        by_metric = defaultdict(list)
        for test in one.found.comparisons:
            if (test.first, test.second) == (first, second):
                by_metric[test.metric].append(test)
        for name, rows in by_metric.items():
            out.print(_table(name, rows))
    say("Rules: " + ", ".join(f"{name} is {rule}" for name, rule in one.found.rules.items()) + ".")
    by_reason = defaultdict(list)
    for (rule, metric), why in one.found.skipped.items():
        by_reason[metric, why].append(rule)
    for (metric, why), rules in by_reason.items():
        say(f"Not compared: {metric} ({', '.join(rules)}) {why}.")


def _table(metric: str, comparisons: Sequence[Comparison]) -> Table:
    """Return the table of one metric and two runs; rules are columns."""
    first, second = comparisons[0].first, comparisons[0].second
    results = [one.result for one in comparisons]
    share = all(is_share(metric, value) for found in results for value in (found.first, found.second))
    table = number_table(f"{second} compared with {first}", [one.rule for one in comparisons], metric)
    table.add_row("samples (independent units)", *(f"{found.samples} ({found.units})" for found in results))
    table.add_row(first, *(number(found.first, share=share) for found in results))
    table.add_row(second, *(number(found.second, share=share) for found in results))
    table.add_row(f"{second} - {first}", *(difference(found.difference, share=share) for found in results))
    ends = ([difference(end, share=share) for end in (found.low, found.high)] for found in results)
    table.add_row("95 % interval", *(f"{low.removesuffix(' pts')} to {high}" for low, high in ends))
    table.add_row("test", *(found.test for found in results))
    table.add_row("p", *(p_value(found.p) for found in results))
    table.add_row("p, Holm", *(p_value(one.holm) for one in comparisons))
    detectable = (difference(found.detectable, share=share).removeprefix("+") for found in results)
    table.add_row("detectable difference", *detectable)
    return table


def _print_family(tests: Sequence[Comparison]) -> None:
    if any(one.result.test == SIGN_FLIP for one in tests):
        out.print(
            f"{SIGN_FLIP}: the models' values of whole units are exchanged; all ways or {DRAWS} drawn with seed {SEED}."
        )
    if tests:
        out.print(
            f"p, Holm: corrected for all {len(tests)} tests of this call.\n"
            f"detectable difference: the smallest true one found with {POWER:.0%} power at a level of {ALPHA:.0%}, "
            f"given how often these runs differ."
        )


def _as_dict(
    labels: Mapping[str, Path], task: str | None, found: Mapping[str, ComparedTask], causes: Mapping[str, str]
) -> dict[str, Any]:
    """Return one object; of a single named task its parts stand at the top."""
    common = {
        "schema_version": 1,
        "medtasks": __version__,
        "runs": {label: str(path) for label, path in labels.items()},
        "settings": {"alpha": ALPHA, "power": POWER, "draws": DRAWS, "seed": SEED},
    }
    if task is not None:
        return {"task": task, **common, **_task_as_dict(found[task])}
    tasks = {name: _task_as_dict(one) for name, one in found.items()}
    return {**common, "tasks": tasks, "tasks_not_compared": dict(causes)}


def _task_as_dict(one: ComparedTask) -> dict[str, Any]:
    found = one.found
    comparisons = []
    for test in found.comparisons:
        head = {"first_run": test.first, "second_run": test.second, "rule": test.rule, "metric": test.metric}
        comparisons.append({**head, **as_json(test.result), "p_holm": test.holm})
    return {
        "data": dict(one.data),
        "rules": dict(found.rules),
        "documents": [
            {"first": first, "second": second, **asdict(overlap)} for (first, second), overlap in found.overlaps.items()
        ],
        "comparisons": comparisons,
        "not_compared": [{"rule": rule, "metric": metric, "why": why} for (rule, metric), why in found.skipped.items()],
    }
