"""``medtasks plan``: the number of samples that a comparison of two models needs."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from medtasks.audit.planning import Plan, assumptions
from medtasks.audit.planning import plan as planned
from medtasks.audit.report.wording import number
from medtasks.cli.options import IncludePath, JsonFile, look_into
from medtasks.cli.output import print_state_of_data, say, write_json
from medtasks.runs.run import Source
from medtasks.stats.paired import POWER
from medtasks.tasks.documents import task_documents, task_provenance
from medtasks.tasks.task_files import scored_task


def plan(
    context: typer.Context,
    task: Annotated[str, Argument(help="One of our tasks, see 'medtasks tasks'.")],
    against: Annotated[float | None, Option(help="Score of the first model: 0.70. Default: that of --run.")] = None,
    difference: Annotated[float | None, Option(help="Difference to detect: 0.03 is three percentage points.")] = None,
    margin: Annotated[float | None, Option(help="Also plan a non-inferiority test with this margin.")] = None,
    power: Annotated[float, Option(help="Probability of detecting a true difference.")] = POWER,
    tests: Annotated[int, Option(help="Number of tests that share the level of 5 %, as in 'compare'.")] = 1,
    run: Annotated[
        list[Path] | None,
        Option(help="Earlier run, for its score and clusters; give two for the share of samples on which they differ."),
    ] = None,
    rule: Annotated[str | None, Option(help="Answer rule for the runs. Default: the task's first.")] = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Compute the number of samples that shows a difference between two models, and the smallest detectable one."""
    look_into(context, include_path, run or ())
    chosen = scored_task(task)
    assumed = assumptions(chosen, against, [Source(path) for path in run or ()], rule)
    result = planned(assumed, difference, margin, power, tests)
    numbers = {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(result).items()
    }
    write_json(json_file, {"schema_version": 1, "task": task, **numbers})
    _print(task, result, tests)
    print_state_of_data({"": task_provenance(chosen, task_documents(chosen))})


def _print(task: str, plan: Plan, tests: int) -> None:
    assumed, power = plan.assumptions, number(plan.power)
    discordance = assumed.discordance_of(plan.difference or 0.0)
    of_tests = f", as {tests} tests share 5 %" if tests > 1 else ""
    say(f"{task}, {assumed.metric}: {assumed.samples} samples prepared, in {assumed.clusters} clusters or pairs.")
    say(f"First model: {number(assumed.score)} ({assumed.score_source}).")
    say(f"Samples on which the two models differ: {number(discordance)} ({assumed.discordance_source}).")
    say(f"Design effect: {assumed.design:.2f} ({assumed.design_source}).")
    say(f"Level: {plan.level:.3g}, two-sided{of_tests}; power: {power}.")
    if plan.difference is not None and plan.reached is not None:
        say(
            f"To show a difference of {number(plan.difference)}: {_samples(plan.needed)}. "
            f"The prepared ones show it with a power of {number(plan.reached)}."
        )
    if math.isnan(plan.detectable):
        say(f"The prepared data show no difference with a power of {power}.")
    else:
        say(f"Smallest difference that the prepared data show: {number(plan.detectable)}.")
    if plan.margin is not None and plan.reached_for_margin is not None:
        say(
            f"To show that the other model is worse by less than {number(plan.margin)}, if it differs by "
            f"{number(plan.difference or 0.0)}: {_samples(plan.needed_for_margin)}. "
            f"The prepared ones show it with a power of {number(plan.reached_for_margin)}."
        )


def _samples(count: int | None) -> str:
    return "no number of samples suffices" if count is None else f"{count} samples"
