"""``medtasks models``: published models that a recipe runs, and what is known about them."""

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from medtasks.audit.report.published import published_of
from medtasks.cli.output import out, say, say_columns
from medtasks.running.recipes import Recipe, listed, recipe, recipes
from medtasks.tasks.task_files import INCLUDE

app = typer.Typer(help="List published models and show how they are run.", no_args_is_help=True)
Folders = Annotated[
    list[Path] | None,
    typer.Option(INCLUDE, "--include-path", metavar="FOLDER", help="Folder with recipes of your own."),
]
_WIDTH = 116


@app.command("list")
def list_models(include_path: Folders = None) -> None:
    """List all recipes: parameters, licence, gate on the Hub, backends, and how the model is made to think."""
    say_columns(list(listed(recipes(include_path or ()))))


@app.command("show")
def show_model(
    name: Annotated[str, typer.Argument(help="Name, see 'medtasks models list'.")], include_path: Folders = None
) -> None:
    """Show one recipe: every fact with its source, traps, what is not known, published scores, and its commands."""
    one = recipe(name, include_path or ())
    say(f"{one.recipe}: {one.title} ({one.digest})")
    in_tables = (
        f"{task} {score.metric}: {score.printed}, as {score.model} in {score.source}"
        + (f" ({score.remark})" if score.remark else "")
        for task, score in published_of(one.published_as)
    )
    elsewhere = (
        f"{', '.join(f'{name} {value}' for name, value in some.values.items())}"
        f"{f' ({some.remark})' if some.remark else ''}; source: {some.source}"
        for some in one.scores
    )
    _head("Facts")
    for name, fact in one.facts.items():
        _line(f"{name}: {one.fact(name)}")
        _line(f"source: {fact.source}", 4)
        if fact.quotation:
            _line(f'it says: "{fact.quotation}"', 4)
    _show("Known traps", one.traps)
    _show("Not known", one.unknown)
    _show("Published scores, beside which the report sets yours", in_tables)
    _show("Published scores of other protocols than those of tasks here", elsewhere)
    _show_commands(one)


def _show_commands(one: Recipe) -> None:
    _head("Commands")
    if not one.hf.without:
        say(f"  medtasks run --recipe {one.recipe} --tasks TASKS --output_path FOLDER")
        say(f"    is: {one.command('hf')}")
    else:
        _line(f"not in this process: {one.hf.without}")
    if not one.server.without:
        say(f"  {one.serve_command()}")
        say(
            f"  medtasks run --recipe {one.recipe} --backend server --model_args base_url=http://127.0.0.1:8000/v1 "
            f"--tasks TASKS --output_path FOLDER"
        )
        say(f"    is: {one.command('server')}")
    else:
        _line(f"not behind a server: {one.server.without}")


def _show(title: str, lines: Iterable[str]) -> None:
    if found := list(lines):
        _head(title)
        for line in found:
            _line(line)


def _head(title: str) -> None:
    out.print(f"\n[bold]{title}[/]")


def _line(text: str, indent: int = 2) -> None:
    for part in text.splitlines():
        say(
            textwrap.fill(
                part, _WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2), break_on_hyphens=False
            )
        )
