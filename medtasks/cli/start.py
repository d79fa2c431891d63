"""``medtasks demo``, ``doctor``, ``path``, ``models`` and ``plan``: all that comes before a run."""

import math
import os
import shlex
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text
from typer import Argument, Option

from medtasks.cli.data import write_sample_home
from medtasks.cli.look_runs import write_plan
from medtasks.cli.options import IncludePath, JsonFile, TaskName, look_into
from medtasks.cli.output import out, print_state_of_data, say, say_columns, show, write_json
from medtasks.data.shards import clusters_of
from medtasks.doctor.check_results import CheckResult, State
from medtasks.errors import MedTasksError, plain
from medtasks.home import HOME_VARIABLE, as_json
from medtasks.lmms.plugin import installed_adapters
from medtasks.report.published import published_of
from medtasks.report.tables import number_table
from medtasks.report.wording import number
from medtasks.running.recipes import Recipe, recipe, recipes
from medtasks.runs.result_files import read_results, results_files
from medtasks.runs.run import Source
from medtasks.scores.draw_planning import draw_sizes
from medtasks.scores.look_plans import plan_looks
from medtasks.scores.planning import Assumptions, Plan, assumptions
from medtasks.scores.planning import plan as compute_plan
from medtasks.stats.paired import POWER
from medtasks.tasks.documents import task_documents, task_provenance
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import INCLUDE, scored_task
from medtasks.tasks.task_index import tasks_folder
from medtasks.version import __version__

_DEMO_SCORES = (
    "set_accuracy,reference",
    "set_accuracy,robust",
    "invalid_rate,reference",
    "invalid_rate,robust",
)


def demo(
    output: Annotated[Path, Option(help="Folder for data, log, results and report.")] = Path(
        "medtasks-demo"
    ),
    device: Annotated[str, Option(help="Torch device of the model.")] = "cpu",
) -> None:
    """Run MediConfusion on synthetic images with a small built-in model, with and without images, and report on it."""
    folder = output.absolute()
    home = folder / "home"
    results = folder / "results"
    log = folder / "lmms_eval.log"
    write_sample_home(home)
    arguments = [
        *("--model", "medtasks_tiny", "--model_args", "wording=made_up", "--device", device),
        *("--tasks", "mediconfusion,mediconfusion_blind,mediconfusion_gd,mediconfusion_ps"),
        *("--output_path", str(results), "--log_samples", "--timezone", "UTC"),
    ]
    say(f"\n{HOME_VARIABLE}={shlex.quote(str(home))} lmms_eval {shlex.join(arguments)}\n")
    python = [sys.executable, "-m"]
    environment = {**os.environ, HOME_VARIABLE: str(home)}
    before = results_files(results)
    command = [*python, "lmms_eval", *arguments]
    with out.status("Running the harness (about a minute) ..."), log.open("w") as stream:
        harness = subprocess.run(
            command, env=environment, stdout=stream, stderr=subprocess.STDOUT, check=False
        )
    # It exits with 0 after a failure, so only a new file counts.
    new = [path for path in results_files(results) if path not in before]
    newest = None
    if new and not harness.returncode:
        newest = read_results(new[-1], say)
    if newest is None:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise MedTasksError(
            f"the harness produced no results (exit code {harness.returncode}); the end of {log}:\n{tail}"
        )
    rows: list[tuple[str, ...]] = [("", *_DEMO_SCORES)]
    for task, scores in newest.rows().items():
        rows.append((task, *(number(scores.get(column, math.nan)) for column in _DEMO_SCORES)))
    say_columns(rows)
    page = results / "report.html"
    command = [*python, "medtasks.cli.main", "report", str(results), "--html", str(page)]
    with out.status("Writing the report ..."):
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
    if ended.returncode:
        raise MedTasksError(f"the report could not be written: {ended.stderr.strip()}")
    say(
        "wording=made_up puts the model's letters into made-up sentences, as chat models answer, and refuses some.\n"
        "reference reads such replies as MediConfusion's authors do, robust as a careful reader; _gd and _ps compare\n"
        "likelihoods, which need no reading. mediconfusion_blind asks the same questions without the images.\n"
        "Synthetic images, and a model trained on such images alone: these scores say nothing about medicine.\n"
        f"Results: {newest.path}\nReplies: {newest.path.parent}\nLog:     {log}\n"
        f"Report:  {page} (open it in a browser)"
    )


_STYLES = {
    State.OK: "green",
    State.NOTE: "cyan",
    State.WARNING: "yellow",
    State.PROBLEM: "bold red",
}


def doctor(
    context: typer.Context,
    tasks: Annotated[
        list[str] | None, Option("--task", help="Only for this task, group or tag; repeatable.")
    ] = None,
    verify: Annotated[bool, Option("--verify", help="Also read all prepared data.")] = False,
    model: Annotated[
        str, Option(help="Also import this model, as --model names it for lmms_eval.")
    ] = "",
    model_args: Annotated[
        str,
        Option(
            "--model-args",
            "--model_args",
            metavar="base_url=...,model=...",
            help="Also ask this served model about synthetic images; arguments as for --model vlm_server.",
        ),
    ] = "",
    json_file: Annotated[
        Path | None, Option("--json", help="Also write the results as JSON.")
    ] = None,
    include_path: IncludePath = None,
) -> None:
    """Check that everything a run needs is in place, and how to fix what is not.

    Checks the harness, credentials, names of tasks, your own task files, prepared data, weights of metrics and the
    judge. Only the judge, and the served model in --model-args, are asked over the network. The exit code is 1 if
    there is a problem; warnings do not count.
    """
    from medtasks.doctor.examining import examine

    look_into(context, include_path)
    names = tasks or []
    with Console(stderr=True).status("Checking everything, which takes some seconds ..."):
        findings = examine(names, verify=verify, model=model, model_args=model_args)
    counts = Counter(finding.state for finding in findings)
    write_json(
        json_file,
        {
            "medtasks": __version__,
            "tasks": names,
            "verified": verify,
            "counts": {str(state): counts[state] for state in State},
            "findings": list(map(asdict, findings)),
        },
    )
    _print_findings(findings)
    totals = []
    for state in reversed(State):
        ending = "" if state is State.OK or counts[state] == 1 else "s"
        totals.append(f"{counts[state]} {state}{ending}")
    say(f"{', '.join(totals)}.")
    if counts[State.PROBLEM]:
        raise typer.Exit(1)


def _print_findings(findings: Sequence[CheckResult]) -> None:
    """Print the results of checks by area, each with its fix."""
    for area, area_findings in groupby(findings, key=lambda finding: finding.area):
        say(area)
        for finding in area_findings:
            styled = (f"{finding.state:<8}", _STYLES[finding.state])
            out.print(Text.assemble("  ", styled, plain(f" {finding.name}: {finding.found}")))
            if finding.fix:
                say(f"  {'':<8} fix: {finding.fix}")


def plan(
    context: typer.Context,
    task: TaskName,
    against: Annotated[
        float | None, Option(help="Score of the first model: 0.70. Default: that of --run.")
    ] = None,
    difference: Annotated[
        float | None, Option(help="Difference to detect: 0.03 is three percentage points.")
    ] = None,
    margin: Annotated[
        float | None, Option(help="Also plan a non-inferiority test with this margin.")
    ] = None,
    power: Annotated[float, Option(help="Probability of detecting a true difference.")] = POWER,
    tests: Annotated[
        int, Option(help="Number of tests that share the level of 5 %, as in 'compare'.")
    ] = 1,
    run: Annotated[
        list[Path] | None,
        Option(
            help="Earlier run, for its score and clusters; give two for the share of samples on which they differ."
        ),
    ] = None,
    rule: Annotated[
        str | None, Option(help="Rule for the runs. Default: the task's first.")
    ] = None,
    draw: Annotated[
        bool,
        Option("--draw", help="Which interval a draw of so many questions gives one score."),
    ] = False,
    looks: Annotated[
        int | None,
        Option(metavar="N", help="Plan a comparison that may stop early, at N looks."),
    ] = None,
    seed: Annotated[int, Option(help="Random seed for the order of questions at looks.")] = 0,
    plan_file: Annotated[Path, Option("--out", help="File for the plan of looks.")] = Path(
        "looks.json"
    ),
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Compute the number of samples that shows a difference between two models, and the smallest detectable one.

    With --draw: how wide the interval of one model's score is if only a part of the questions is drawn and asked.
    """
    look_into(context, include_path, run or ())
    chosen = scored_task(task)
    assumed = assumptions(chosen, against, list(map(Source, run or ())), rule)
    if draw:
        _plan_draw(chosen, assumed, json_file)
        return
    if looks is not None:
        write_plan(plan_looks(chosen, assumed, difference, power, looks, seed, rule), plan_file)
    else:
        result = compute_plan(assumed, difference, margin, power, tests)
        write_json(json_file, {"schema_version": 1, "task": task, **as_json(result)})
        _print_plan(task, assumed, result, tests)
    print_state_of_data({"": task_provenance(chosen, task_documents(chosen))})


def _print_plan(task: str, assumed: Assumptions, result: Plan, tests: int) -> None:
    """Print the assumptions of a plan, and the numbers of samples that it comes to."""
    difference = result.difference or 0.0
    discordance = assumed.discordance_of(difference)
    say(
        f"{task}, {assumed.metric}: {assumed.samples} samples prepared, in {assumed.clusters} clusters or pairs.",
        f"First model: {number(assumed.score)} ({assumed.score_source}).",
        f"Samples on which the two models differ: {number(discordance)} ({assumed.discordance_source}).",
        f"Design effect: {assumed.design:.2f} ({assumed.design_source}).",
    )
    level = f"{result.level:.3g}, two-sided"
    if result.margin is not None:
        level += f" (non-inferiority: {result.level / 2:.3g}, one-sided)"
    if tests > 1:
        level += f", as {tests} tests share 5 %"
    say(f"Level: {level}; power: {number(result.power)}.")
    if result.reached is not None:
        say(
            f"To show a difference of {number(difference)}: {_samples(result.needed)}. "
            f"The prepared ones show it with a power of {number(result.reached)}."
        )
    if math.isnan(result.detectable):
        say(f"The prepared data show no difference with a power of {number(result.power)}.")
    else:
        say(f"Smallest difference that the prepared data show: {number(result.detectable)}.")
    if result.margin is not None and result.reached_for_margin is not None:
        say(
            f"To show that the other model is worse by less than {number(result.margin)}, if it differs by "
            f"{number(difference)}: {_samples(result.needed_for_margin)}. "
            f"The prepared ones show it with a power of {number(result.reached_for_margin)}."
        )


def _samples(count: int | None) -> str:
    """Return a number of samples, or say that no number suffices (None)."""
    return "no number of samples suffices" if count is None else f"{count} samples"


def _plan_draw(task: TaskFile, assumed: Assumptions, json_file: Path | None) -> None:
    """Print the width of the interval by size of the draw.

    Args:
        task: The task.
        assumed: Score and clusters that are assumed.
        json_file: File for the same numbers; None writes none.

    Raises:
        MedTasksError: The data are too few for a draw.
    """
    documents = task_documents(task)
    clusters = len({*clusters_of(documents)})
    sizes = draw_sizes(assumed, len(documents), clusters)
    content = {"assumptions": assumed, "draws": [size._asdict() for size in sizes]}
    write_json(json_file, {"schema_version": 1, "task": task.name, **as_json(content)})
    if not sizes:
        raise MedTasksError(
            f"'{task.name}' has {len(documents)} questions in {clusters} clusters, too few to draw from; ask all"
        )
    say(
        f"{task.name}, {assumed.metric}, score {number(assumed.score)} ({assumed.score_source}), design effect "
        f"{assumed.design:.2f} ({assumed.design_source}). All {len(documents):,} questions:"
    )
    rows = []
    for size in sizes:
        rows.append(
            (f"{size.questions:,}", f"{size.clusters:,}", f"± {100 * size.half_width:.1f} pts")
        )
    show(number_table("", ("questions drawn", "clusters", "95 % interval"), rows))
    say(
        "The interval is for the score on all questions, and strata (--by) narrow it. The first N questions (--limit) "
        "give none, however many they are: they are no random sample."
    )


_WIDTH = 116


def show_path(
    lm_eval: Annotated[
        bool, Option("--lm-eval", help="The folder with the text-only tasks for lm-eval.")
    ] = False,
) -> None:
    """Print the folder to give as --include_path to a harness that cannot find plug-ins by itself."""
    # By the files in this other folder lm-eval finds our text-only tasks.
    folder = Path(__file__).parents[1] / "lm_eval_tasks" if lm_eval else tasks_folder()
    print(folder)  # noqa: T201


def models(
    name: Annotated[
        str | None, Argument(help="Recipe to show; without it all are listed.")
    ] = None,
    include_path: Annotated[
        list[Path] | None,
        Option(INCLUDE, "--include-path", metavar="FOLDER", help="Folder with your recipes."),
    ] = None,
) -> None:
    """List the recipes of published models, or show one: every fact with its source, traps, scores and commands.

    Adapters of other installed packages are listed, too; their names are for --model.
    """
    folders = include_path or ()
    if name is not None:
        _show_model(recipe(name, folders))
        return
    rows = [("name", "parameters", "licence", "gate", "backends", "thinking")]
    for each_recipe in recipes(folders).values():
        licence, _, _ = each_recipe.fact("licence").partition(" (")  # its source follows
        rows.append(
            (
                each_recipe.recipe,
                each_recipe.fact("parameters"),
                licence,
                each_recipe.fact("gated"),
                ", ".join(each_recipe.backends) or "none",
                each_recipe.fact("thinking"),
            )
        )
    say_columns(rows)
    adapters = installed_adapters()
    if adapters:
        say("\nAdapters of installed packages, for --model:")
        say_columns(list(adapters.items()))


def _show_model(chosen: Recipe) -> None:
    """Print the facts of a recipe with their sources, its traps and scores, and how to run it."""
    say(f"{chosen.recipe}: {chosen.title} ({chosen.digest})")
    out.print("\n[bold]Facts[/]")
    for fact_name, fact in chosen.facts.items():
        _print_line(f"{fact_name}: {chosen.fact(fact_name)}")
        _print_line(f"source: {fact.source}", 4)
        if fact.quotation:
            _print_line(f'it says: "{fact.quotation}"', 4)
    sections = {
        "Known traps": chosen.traps,
        "Unknown": chosen.unknown,
        "Published scores, which the report shows next to yours": _scores_in_report(chosen),
        "Published scores under protocols that no task here has": _scores_elsewhere(chosen),
    }
    for title, lines in sections.items():
        if lines:
            out.print(f"\n[bold]{title}[/]")
        for line in lines:
            _print_line(line)
    _print_commands(chosen)


def _scores_elsewhere(chosen: Recipe) -> list[str]:
    """Return a line on the scores of a recipe under each protocol that no task here has."""
    lines = []
    for scores in chosen.scores:
        values = ", ".join(f"{name} {value}" for name, value in scores.values.items())
        remark = f" ({scores.remark})" if scores.remark else ""
        lines.append(f"{values}{remark}; source: {scores.source}")
    return lines


def _scores_in_report(chosen: Recipe) -> list[str]:
    """Return the published scores of a model on tasks of ours, one line each."""
    lines = []
    for task, score in published_of(chosen.published_as):
        remark = f" ({score.remark})" if score.remark else ""
        lines.append(
            f"{task} {score.metric}: {score.printed}, as {score.model} in {score.source}{remark}"
        )
    return lines


def _print_commands(chosen: Recipe) -> None:
    """Print the commands that run a model, or why a backend cannot."""
    out.print("\n[bold]Commands[/]")
    command = f"  medtasks run --recipe {chosen.recipe}"
    further = "--tasks TASKS --output_path FOLDER"
    if "hf" in chosen.backends:
        say(f"{command} {further}", f"    is: {chosen.command('hf')}")
    else:
        _print_line(f"not in this process: {chosen.hf.without}")
    if "server" in chosen.backends:
        say(
            f"  {chosen.serve_command()}",
            f"{command} --backend server --model_args base_url=http://127.0.0.1:8000/v1 {further}",
            f"    is: {chosen.command('server')}",
        )
    else:
        _print_line(f"not on a server: {chosen.server.without}")


def _print_line(text: str, indent: int = 2) -> None:
    """Print a text in lines of at most 116 characters, further ones of a paragraph indented by two more blanks."""
    wrapper = textwrap.TextWrapper(
        _WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    )
    for line in text.splitlines():
        say(wrapper.fill(line))
