"""``medtasks compare`` and ``parity``: whether one model is better than another on the same samples, or as good."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated

import typer

from medtasks.audit.comparing import Verdict, compare_all, compare_task
from medtasks.cli.comparison_output import ComparedRuns, comparisons_as_dict, print_comparisons, verdicts_as_dict
from medtasks.cli.output import IncludePath, JsonFile, look_into, write_json
from medtasks.errors import MedTasksError, RepliesError, near_match
from medtasks.runs.sources import Source, model_of
from medtasks.stats.equivalence import MARGIN
from medtasks.tasks.task_files import task_file, task_files, variant_of


class Required(StrEnum):
    """Verdict that ``--require`` asks for."""

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent"
    NOT_DIFFERENT = "not-different"


_FULFILLED: Mapping[Required, frozenset[Verdict]] = {
    Required.IDENTICAL: frozenset({Verdict.IDENTICAL}),
    Required.EQUIVALENT: frozenset({Verdict.IDENTICAL, Verdict.EQUIVALENT}),
    Required.NOT_DIFFERENT: frozenset(Verdict) - {Verdict.DIFFERENT},
}
_RUNS = "Folders of runs (their --output_path), repeated or not, or samples files; files of replies need TASK."
_MARGIN = "largest score difference that does not matter; 0.01 is one percentage point."
_Model = Annotated[
    list[str] | None,
    typer.Option(help="Model to take from folders with runs of several; once for all, or once per RUN in order."),
]
_Require = Annotated[
    Required | None, typer.Option(help="Exit with 1 unless the verdict is this or better, and all tasks are compared.")
]


def compare(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="[TASK] RUN RUN [RUN ...]", help=_RUNS)],
    metric: Annotated[
        list[str] | None, typer.Option(help="Compare only this metric, so that fewer tests are corrected for.")
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option(help="Compare only under this answer rule, such as reference; repeatable.")
    ] = None,
    equivalence: Annotated[
        float | None, typer.Option(metavar="MARGIN", help=f"Also test whether two runs are equivalent: {_MARGIN}")
    ] = None,
    require: _Require = None,
    model: _Model = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Compare runs on the samples that both answered: agreement, and paired tests under every answer rule.

    Without TASK, all our tasks that two runs have in common are compared and corrected for as one family of tests.
    --equivalence gives a verdict on two runs, as 'medtasks parity' does; so does --require, with a margin of 0.01.
    """
    look_into(context, include_path, [Path(name) for name in names])
    margin = MARGIN if equivalence is None and require is not None else equivalence
    comparisons = _compared(names, metric or (), rule or (), model or (), margin)
    write_json(json_file, comparisons_as_dict(comparisons))
    print_comparisons(comparisons)
    _check(comparisons, require)


def parity(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="[TASK] RUN_A RUN_B", help=_RUNS)],
    margin: Annotated[float, typer.Option(help=_MARGIN.capitalize())] = MARGIN,
    metric: Annotated[list[str] | None, typer.Option(help="Test only this metric; repeatable.")] = None,
    require: _Require = None,
    model: _Model = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Test whether two runs (two backends, precisions or versions) are identical, equivalent or different.

    The same as 'medtasks compare --equivalence MARGIN', with a JSON file of its own: equal replies, likelihoods and
    answers of every task of both, a paired test and an equivalence test of the scores, and a verdict.
    """
    look_into(context, include_path, [Path(name) for name in names])
    comparisons = _compared(names, metric or (), (), model or (), margin)
    write_json(json_file, verdicts_as_dict(comparisons))
    print_comparisons(comparisons)
    _check(comparisons, require)


def _compared(
    names: Sequence[str], metrics: Sequence[str], rules: Sequence[str], models: Sequence[str], margin: float | None
) -> ComparedRuns:
    """Compare the runs on a command line; with a margin there are two.

    ``models`` are those to take from folders with several: none, one for all runs, or one each.
    """
    if margin is not None and not 0 < margin < 1:
        raise MedTasksError(f"the margin {margin:g} is no fraction between 0 and 1; 0.01 is one percentage point")
    task = names[0] if names[0] in task_files() or variant_of(names[0]) else None
    if task is None and not Path(names[0]).exists():
        raise RepliesError(
            f"'{names[0]}' is neither a task of ours nor a folder or file{near_match(names[0], task_files())}; see "
            f"'medtasks tasks'"
        )
    paths = [Path(name) for name in names[task is not None :]]
    if margin is not None and len(paths) != 2:
        raise RepliesError(f"expected two runs, but got {len(paths)}")
    if not 2 <= len(paths) <= len(ascii_uppercase):
        raise RepliesError(f"expected 2 to {len(ascii_uppercase)} runs to compare, but got {len(paths)}")
    if len(models) > 1 and len(models) != len(paths):
        raise RepliesError(f"{len(models)} models for {len(paths)} runs; give --model once, or once per run")
    model_of_run = models if len(models) > 1 else [*models, None][:1] * len(paths)
    runs = dict(zip(ascii_uppercase, paths, strict=False))
    sources = {label: Source(path, model) for (label, path), model in zip(runs.items(), model_of_run, strict=True)}
    if task is None:
        tasks, causes = compare_all(sources, metrics, rules, margin)
    else:
        tasks, causes = {task: compare_task(task_file(task), sources, metrics, rules, margin)}, {}
    return ComparedRuns(
        runs, {label: model_of(source) for label, source in sources.items()}, task, tasks, causes, margin
    )


def _check(comparisons: ComparedRuns, required: Required | None) -> None:
    """Raise MedTasksError unless the verdict is the required one or better, and all tasks were compared."""
    if required is not None and (comparisons.not_compared or comparisons.verdict not in _FULFILLED[required]):
        left = f", and {len(comparisons.not_compared)} of their tasks not compared" if comparisons.not_compared else ""
        raise MedTasksError(f"--require {required} is not met: the verdict is '{comparisons.verdict}'{left}")
