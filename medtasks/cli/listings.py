"""``medtasks path`` and ``models``: published models, and how they are run."""

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from medtasks.audit.report.published import published_of
from medtasks.cli.output import out, say, say_columns
from medtasks.running.recipes import Backend, recipe, recipes
from medtasks.tasks.task_files import INCLUDE
from medtasks.tasks.task_index import lm_eval_tasks_folder, tasks_folder

models_app = typer.Typer(help="List published models and show how they are run.", no_args_is_help=True)
_Include = Option(INCLUDE, "--include-path", metavar="FOLDER", help="Folder with your recipes.")
Folders = Annotated[list[Path] | None, _Include]
_WIDTH = 116


def show_path(
    lm_eval: Annotated[bool, Option("--lm-eval", help="The folder with the text-only tasks for lm-eval.")] = False,
) -> None:
    """Print the folder to give as --include_path to a harness that cannot find plug-ins by itself."""
    print(lm_eval_tasks_folder() if lm_eval else tasks_folder())  # noqa: T201


@models_app.command("list")
def list_models(include_path: Folders = None) -> None:
    """List all recipes: parameters, licence, gate on the Hub, backends, and how to make the model think."""
    rows: list[tuple[str, ...]] = [("name", "parameters", "licence", "gate", "backends", "thinking")]
    for each in recipes(include_path or ()).values():
        licence = each.fact("licence").partition(" (")[0]  # without its source
        facts = (each.fact("parameters"), licence, each.fact("gated"), ", ".join(each.backends) or "none")
        rows.append((each.recipe, *facts, each.fact("thinking")))
    say_columns(rows)


@models_app.command("show")
def show_model(
    name: Annotated[str, Argument(help="Name, see 'medtasks models list'.")], include_path: Folders = None
) -> None:
    """Show one recipe: every fact with its source, traps, unknowns, published scores, and its commands."""
    chosen = recipe(name, include_path or ())
    say(f"{chosen.recipe}: {chosen.title} ({chosen.digest})")
    _print_head("Facts")
    for fact_name, fact in chosen.facts.items():
        _print_line(f"{fact_name}: {chosen.fact(fact_name)}")
        _print_line(f"source: {fact.source}", 4)
        if fact.quotation:
            _print_line(f'it says: "{fact.quotation}"', 4)
    _print_section("Known traps", chosen.traps)
    _print_section("Unknown", chosen.unknown)
    in_tables = (
        f"{task} {score.metric}: {score.printed}, as {score.model} in {score.source}"
        + (f" ({score.remark})" if score.remark else "")
        for task, score in published_of(chosen.published_as)
    )
    _print_section("Published scores, which the report shows next to yours", in_tables)
    elsewhere = (
        f"{', '.join(f'{name} {value}' for name, value in scores.values.items())}"
        f"{f' ({scores.remark})' if scores.remark else ''}; source: {scores.source}"
        for scores in chosen.scores
    )
    _print_section("Published scores under protocols that no task here has", elsewhere)
    _print_head("Commands")
    backends: tuple[Backend, ...] = ("hf", "server")
    for backend in backends:
        if backend not in chosen.backends:
            without = chosen.hf.without if backend == "hf" else chosen.server.without
            _print_line(f"{'not in this process' if backend == 'hf' else 'not on a server'}: {without}")
            continue
        extra = ""
        if backend == "server":
            say(f"  {chosen.serve_command()}")
            extra = " --backend server --model_args base_url=http://127.0.0.1:8000/v1"
        say(f"  medtasks run --recipe {chosen.recipe}{extra} --tasks TASKS --output_path FOLDER")
        say(f"    is: {chosen.command(backend)}")


def _print_section(title: str, lines: Iterable[str]) -> None:
    for number, line in enumerate(lines):
        if number == 0:
            _print_head(title)
        _print_line(line)


def _print_head(title: str) -> None:
    out.print(f"\n[bold]{title}[/]")


def _print_line(text: str, indent: int = 2) -> None:
    first, others = " " * indent, " " * (indent + 2)
    for part in text.splitlines():
        say(textwrap.fill(part, _WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False))
