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
from medtasks.audit.report import words
from medtasks.audit.report.contents import as_json
from medtasks.audit.report.words import p_value
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
from medtasks.runs.model_names import model_title
from medtasks.runs.sources import Source, model_of
from medtasks.stats.paired import ALPHA, DRAWS, POWER, SEED, SIGN_FLIP

Model = Annotated[
    list[str] | None,
    typer.Option(help="Of folders with runs of several models, this one; or repeated, one model per RUN in order."),
]


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
    rule: Annotated[
        list[str] | None, typer.Option(help="Compare under this answer rule only, such as reference; repeatable.")
    ] = None,
    model: Model = None,
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
    sources = dict(zip(labels, sources_of(runs, model or ()), strict=True))
    if task is None:
        found, causes = compare_all(sources, metric or (), rule or ())
    else:
        found, causes = {task: compare_task(task_file(task), sources, metric or (), rule or ())}, {}
    models = {label: model_of(source) for label, source in sources.items()}
    write_json(json_file, _as_dict(labels, models, task, found, causes))
    for label, path in labels.items():
        say(f"{label}: {path}{models[label] and f', model: {models[label]}'}")
    for name, one in found.items():
        _print_task(name, one, models, heading=task is None)
    _print_family([test for one in found.values() for test in one.found.comparisons if not test.same_as])
    for name, cause in causes.items():
        say(f"Not compared: {name}: {cause}")
    print_state_of_data({name: one.data for name, one in found.items()})


def sources_of(runs: Sequence[Path], models: Sequence[str]) -> list[Source]:
    """Return runs with the models to take from them: one for all, or one each."""
    if len(models) > 1 and len(models) != len(runs):
        raise RepliesError(f"{len(models)} models for {len(runs)} runs; give --model once, or once per run")
    wanted = models if len(models) > 1 else [*models, None][:1] * len(runs)
    return [Source(run, model) for run, model in zip(runs, wanted, strict=True)]


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


def _sentences(task: str, one: ComparedTask, models: Mapping[str, str]) -> list[str]:
    """Return the main result of each two runs: the main metric under the first rule, one sentence each."""
    firsts: dict[tuple[str, str], Comparison] = {}
    for test in one.found.comparisons:
        if test.metric == one.main:
            firsts.setdefault((test.first, test.second), test)
    short = {label: model_title(model).partition(" (")[0] for label, model in models.items()}
    named = {label: f"{label} ({name})" if name else label for label, name in short.items()}
    sentences = []
    for test in firsts.values():
        found = test.result
        on = f"{task} ({words.counted(found.samples, 'pair' if test.metric == 'set_accuracy' else 'sample')})"
        first, second = (words.number(value, test.share) for value in (found.first, found.second))
        verdict = f"{test.second} is {'higher' if found.difference > 0 else 'lower'}"
        sentences.append(
            f"On {on}, {named[test.second]} has {test.metric} {second} and {named[test.first]} {first} "
            f"under {test.rule}: difference {words.signed(found.difference, test.share)}, 95 % interval "
            f"{words.difference_interval(found.low, found.high, test.share)}, p = {p_value(found.p)} "
            f"(Holm {p_value(test.holm)}): {verdict if test.holm < ALPHA else 'not shown to differ'}."
        )
    return sentences


def _print_task(task: str, one: ComparedTask, models: Mapping[str, str], *, heading: bool) -> None:
    if heading:
        out.print(f"\n[bold]{task}[/]")
    for sentence in _sentences(task, one, models):
        say(sentence)
    for (first, second), overlap in one.found.overlaps.items():
        out.print(
            f"\n{first} and {second}: {overlap.both} of {one.documents} documents answered in both are compared. "
            f"Left out: {overlap.only_first} answered in {first} only, {overlap.only_second} in {second} only, "
            f"{overlap.neither} in neither."
        )
        by_metric, alike = defaultdict(list), defaultdict[tuple[str, str], list[str]](list)
        for test in one.found.comparisons:
            if (test.first, test.second) == (first, second) and test.same_as:
                alike[test.rule, test.same_as].append(test.metric)
            elif (test.first, test.second) == (first, second):
                by_metric[test.metric].append(test)
        for name, rows in by_metric.items():
            out.print(_table(name, rows))
        for (rule, same), metrics in alike.items():
            say(f"{rule} gives every sample the same {', '.join(metrics)} as {same}; both are one test.")
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
    table = number_table(f"{second} compared with {first}", [one.rule for one in comparisons], metric)
    table.add_row("samples (independent units)", *(f"{found.samples} ({found.units})" for found in results))
    table.add_row(first, *(words.number(one.result.first, one.share) for one in comparisons))
    table.add_row(second, *(words.number(one.result.second, one.share) for one in comparisons))
    table.add_row(f"{second} - {first}", *(words.signed(one.result.difference, one.share) for one in comparisons))
    intervals = (words.difference_interval(one.result.low, one.result.high, one.share) for one in comparisons)
    table.add_row("95 % interval", *intervals)
    table.add_row("test", *(found.test for found in results))
    table.add_row("p", *(p_value(found.p) for found in results))
    table.add_row("p, Holm", *(p_value(one.holm) for one in comparisons))
    table.add_row("detectable difference", *(words.points(one.result.detectable, one.share) for one in comparisons))
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
    labels: Mapping[str, Path],
    models: Mapping[str, str],
    task: str | None,
    found: Mapping[str, ComparedTask],
    causes: Mapping[str, str],
) -> dict[str, Any]:
    """Return one object; of a single named task its parts stand at the top."""
    common = {
        "schema_version": 1,
        "medtasks": __version__,
        "runs": {label: str(path) for label, path in labels.items()},
        "models": dict(models),
        "settings": {"alpha": ALPHA, "power": POWER, "draws": DRAWS, "seed": SEED},
    }
    if task is not None:
        return {"task": task, **common, **_task_as_dict(task, found[task], models)}
    tasks = {name: _task_as_dict(name, one, models) for name, one in found.items()}
    return {**common, "tasks": tasks, "tasks_not_compared": dict(causes)}


def _task_as_dict(task: str, one: ComparedTask, models: Mapping[str, str]) -> dict[str, Any]:
    found = one.found
    comparisons = []
    for test in found.comparisons:
        head = {"first_run": test.first, "second_run": test.second, "rule": test.rule, "metric": test.metric}
        comparisons.append({**head, **as_json(test.result), "p_holm": test.holm, "same_as": test.same_as})
    return {
        "summary": _sentences(task, one, models),
        "data": dict(one.data),
        "rules": dict(found.rules),
        "documents": [
            {"first": first, "second": second, **asdict(overlap)} for (first, second), overlap in found.overlaps.items()
        ],
        "comparisons": comparisons,
        "not_compared": [{"rule": rule, "metric": metric, "why": why} for (rule, metric), why in found.skipped.items()],
    }
