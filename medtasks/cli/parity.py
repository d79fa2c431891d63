"""``medtasks parity``: are two runs of the same tasks the same, as good as each other, or different, and why?"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from medtasks import __version__
from medtasks.audit.parity.agreement import NEAR_TIE, LikelihoodAgreement, TextAgreement
from medtasks.audit.parity.records import Difference
from medtasks.audit.parity.runs import FIRST, SECOND, Parity
from medtasks.audit.parity.runs import parity as parity_of
from medtasks.audit.parity.verdict import MetricParity, TaskParity, Verdict, explanation, lacking
from medtasks.audit.report.contents import as_json
from medtasks.audit.report.words import difference_interval, number, p_value, signed
from medtasks.cli.compare import Model, sources_of, task_and_runs
from medtasks.cli.output import (
    IncludePath,
    JsonFile,
    look_into,
    print_state_of_data,
    say,
    say_columns,
    write_json,
)
from medtasks.errors import MedTasksError, RepliesError
from medtasks.stats.equivalence import MARGIN
from medtasks.stats.paired import ALPHA


class Required(StrEnum):
    """What ``--require`` may ask for."""

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent"
    NOT_DIFFERENT = "not-different"


_MET: Mapping[Required, frozenset[Verdict]] = {
    Required.IDENTICAL: frozenset({Verdict.IDENTICAL}),
    Required.EQUIVALENT: frozenset({Verdict.IDENTICAL, Verdict.EQUIVALENT}),
    Required.NOT_DIFFERENT: frozenset(Verdict) - {Verdict.DIFFERENT},
}


def parity(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="[TASK] RUN_A RUN_B",
            help="Folders of runs (their --output_path) or samples files; recorded replies need their task first.",
        ),
    ],
    margin: Annotated[
        float, typer.Option(help="Largest difference of a score that does not matter; 0.01 is one percentage point.")
    ] = MARGIN,
    metric: Annotated[list[str] | None, typer.Option(help="Test this metric only; repeatable.")] = None,
    require: Annotated[
        Required | None,
        typer.Option(help="Exit with 1 unless the verdict is this or better, and all tasks are compared."),
    ] = None,
    model: Model = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Tell whether two runs (two backends, precisions or versions) are the same, and what their difference looks like.

    For every task of both: equal replies, likelihoods and answers, a paired test and an equivalence test of the scores,
    where replies part, a verdict, and what the runs' records say differently.
    """
    if not 0 < margin < 1:
        raise MedTasksError(f"--margin {margin:g} is no fraction between 0 and 1; 0.01 is one percentage point")
    look_into(context, include_path, [Path(name) for name in names])
    task, runs = task_and_runs(names)
    if len(runs) != 2:
        raise RepliesError(f"expected two runs, but got {len(runs)}")
    first, second = sources_of(runs, model or ())
    found = parity_of(first, second, margin, metric or (), task)
    write_json(json_file, _as_dict(runs, margin, found))
    _print(runs, margin, found)
    if require is not None and (found.not_compared or found.verdict not in _MET[require]):
        left = f", and {len(found.not_compared)} of their tasks not compared" if found.not_compared else ""
        raise MedTasksError(f"--require {require} is not met: the verdict is '{found.verdict}'{left}")


def _print(runs: Sequence[Path], margin: float, found: Parity) -> None:
    for label, path in zip((FIRST, SECOND), runs, strict=True):
        say(f"{label}: {path}")
    for one in found.tasks.values():
        _print_task(one)
    _print_differences(found)
    for name, cause in found.not_compared.items():
        say(f"Not compared: {name}: {cause}")
    _print_verdict(found, f"{100 * margin:g} pts")
    print_state_of_data({name: one.data for name, one in found.tasks.items()})


def _print_verdict(found: Parity, margin: str) -> None:
    tests = sum(len(one.metrics) for one in found.tasks.values())
    if tests and found.verdict is not Verdict.IDENTICAL:
        say(f"\nEquivalent: the 90 % interval lies within {margin} to both sides (two one-sided tests at {ALPHA:.0%}).")
        say(f"Different: the paired test rejects (Holm, {tests} tests), and the interval does not lie within.")
    say(f"\nVerdict on the scores: {found.verdict}")


def _print_task(task: TaskParity) -> None:
    say(f"\n{task.task}: {task.verdict}")
    for sentence in (explanation(task), lacking(task), *(f"Note: {one}." for one in task.warnings)):
        if sentence:
            say(f"  {sentence}")
    say_columns([(f"  {name}", text) for name, text in _facts(task)])
    if task.verdict is Verdict.IDENTICAL:
        return
    if task.metrics:
        say("")
        say_columns([_HEADS, *map(_row, task.metrics)])
    for metrics, why in _not_compared(task):
        say(f"  Not compared: {metrics}: {why}.")


def _facts(task: TaskParity) -> Iterator[tuple[str, str]]:
    overlap, failed = task.overlap, task.failed
    left_out = f", {overlap.only_first} in A only, {overlap.only_second} in B only"
    yield "samples", f"{overlap.both} in both{left_out if overlap.only_first or overlap.only_second else ''}"
    yield "failed", f"{failed.only_first} in A only, {failed.only_second} in B only, {failed.both} in both"
    if task.verdict is Verdict.IDENTICAL:
        return
    if task.texts is not None:
        yield from _of_texts(task.texts)
    if task.likelihoods is not None:
        yield from _of_likelihoods(task.likelihoods)
    rows: dict[str, list[str]] = {}
    for row, one in task.answers.items():
        neither = [f"{one.neither} without an answer in either run"] if one.neither else []
        equal = [f"{_share(one.equal, one.samples)} equal"] if one.samples else []
        rows.setdefault("; ".join(equal + neither), []).append(row)
    yield from (("answers", f"{text}, read by {', '.join(names)}") for text, names in rows.items())
    if task.examples:
        yield "look at", ", ".join(task.examples)


def _of_texts(found: TextAgreement) -> Iterator[tuple[str, str]]:
    spaces = f", {found.equal_but_spaces} more but for white space" if found.equal_but_spaces else ""
    yield "replies", f"{_share(found.equal, found.samples)} equal{spaces}"
    if found.characters is not None and found.words is not None:
        yield (
            "they part",
            f"after {found.characters.median:.0f} characters, {found.words.median:.0f} words (median); "
            f"{found.at_first_word} of {found.different} within the first word",
        )


def _of_likelihoods(found: LikelihoodAgreement) -> Iterator[tuple[str, str]]:
    yield "likelihoods", f"{_share(found.equal, found.samples)} equal to the last digit"
    if found.absolute is not None:
        size = found.absolute
        yield (
            "difference",
            f"median {size.median:.2g}, 90 % {size.q90:.2g}, 99 % {size.q99:.2g}, max {size.max:.2g} nats per token; "
            f"mean with sign {found.mean_signed:+.2g}",
        )
    flips = f"; {found.near_ties} of {len(found.flips)} flips at near ties (A's margin at most {NEAR_TIE:g} nats)"
    yield "choices", f"{_share(found.equal_choices, found.samples)} equal{flips if found.flips else ''}"
    if found.greedy_options:
        yield "greedy flags", f"{_share(found.equal_greedy, found.greedy_options)} equal"


_HEADS = ("  score", "values", "A", "B", "B - A", "90 % interval", "p, Holm", "p, equivalence")


def _row(one: MetricParity) -> tuple[str, ...]:
    paired, tested = one.paired, one.equivalence
    return (
        f"  {one.metric} ({one.rule})",
        str(paired.samples),
        number(paired.first, one.share),
        number(paired.second, one.share),
        signed(paired.difference, one.share),
        difference_interval(tested.low, tested.high, one.share),
        p_value(one.p_holm),
        p_value(tested.p),
    )


def _not_compared(task: TaskParity) -> Iterator[tuple[str, str]]:
    """Yield metrics that were not compared for the same reason, with it."""
    rules: dict[tuple[str, str], list[str]] = {}
    for (rule, metric), why in task.not_compared.items():
        rules.setdefault((metric, why), []).append(rule)
    metrics: dict[tuple[str, str], list[str]] = {}
    for (metric, why), names in rules.items():
        metrics.setdefault((", ".join(names), why), []).append(metric)
    yield from ((f"{', '.join(found)} ({names})", why) for (names, why), found in metrics.items())


def _share(part: int, total: int) -> str:
    return f"{part} of {total}" + (f" ({100 * part / total:.1f} %)" if total else "")


def _differences(found: Parity) -> dict[Difference, list[str]]:
    """Return what the records say differently, and of which tasks."""
    tasks: dict[Difference, list[str]] = {}
    for name, one in found.tasks.items():
        for differing in one.differences:
            tasks.setdefault(differing, []).append(name)
    return tasks


def _print_differences(found: Parity) -> None:
    known = _differences(found)
    if known:
        say("\nWhat the runs' records say differently, candidates for a cause:")
        say_columns([("", "A", "B"), *((f"  {one.name}", one.first, one.second) for one in known)])
    else:
        say("\nThe runs' records name no difference that could be a cause.")
    unknown = " and ".join(sorted({label for one in found.tasks.values() for label in one.without_manifest}))
    if unknown:
        say(f"{unknown}: no run manifest (as 'medtasks run' writes it), so that versions and hardware are not known.")


def _as_dict(runs: Sequence[Path], margin: float, found: Parity) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "medtasks": __version__,
        "runs": {label: str(path) for label, path in zip((FIRST, SECOND), runs, strict=True)},
        "settings": {"margin": margin, "alpha": ALPHA, "near_tie": NEAR_TIE},
        "verdict": str(found.verdict),
        "tasks": {name: _task_as_dict(one) for name, one in found.tasks.items()},
        "tasks_not_compared": dict(found.not_compared),
        "differences": [{**as_json(one), "tasks": tasks} for one, tasks in _differences(found).items()],
    }


def _task_as_dict(one: TaskParity) -> dict[str, Any]:
    scores = [
        {"rule": found.rule, "metric": found.metric, "main": found.main, **as_json(found.paired)}
        | {"p_holm": found.p_holm, "equivalence": {**as_json(found.equivalence), "shown": found.equivalence.shown}}
        for found in one.metrics
    ]
    return {
        "verdict": str(one.verdict),
        "kind": str(one.kind),
        "explanation": explanation(one),
        "lacking": lacking(one),
        "warnings": list(one.warnings),
        "without_manifest": list(one.without_manifest),
        "data": as_json(one.data),
        "rules": dict(one.rules),
        "documents": as_json(one.overlap),
        "failed": as_json(one.failed),
        "replies": as_json(one.texts),
        "likelihoods": as_json(one.likelihoods),
        "answers": as_json(one.answers),
        "scores": scores,
        "not_compared": [
            {"rule": rule, "metric": metric, "why": why} for (rule, metric), why in one.not_compared.items()
        ],
        "examples": list(one.examples),
    }
