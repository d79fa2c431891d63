"""The ``medtasks`` command: its commands in the order and the panels of the help, and its exit codes.

Modules of commands are imported at every start, so they must import nothing that takes long to load.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer import Option
from typer.main import get_command

from medtasks.cli import (
    board,
    check,
    compare,
    curate,
    data,
    metrics,
    own_tasks,
    pages,
    questions,
    score,
    start,
)
from medtasks.cli.run_command import PASSES_ON, merge, run
from medtasks.errors import MedTasksError, plain
from medtasks.runs.redaction import redact_log
from medtasks.version import __version__

app = typer.Typer(
    help="Medical vision-language benchmarks for lmms-eval.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_METAVARS = {"bool": "", "str": "TEXT", "int": "INTEGER", "float": "NUMBER"}
# Commands by their panel of the help.
_COMMANDS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Start here": {
        "demo": start.demo,
        "doctor": start.doctor,
        "tasks": own_tasks.tasks,
        "new": own_tasks.new,
        "plan": start.plan,
    },
    "Run": {
        "run": run,
        "questions": questions.questions,
        "merge": merge,
        "models": start.models,
        "path": start.show_path,
    },
    "Look": {
        "report": pages.report,
        "board": board.board,
        "export": pages.export,
        "score": score.score,
        "check": check.check,
        "compare": compare.compare,
        "metrics": metrics.metrics,
        "parse": score.parse,
    },
}
data.app.command("duplicates")(pages.duplicates)
for _panel, _functions in _COMMANDS.items():
    for _name, _function in _functions.items():
        _settings = PASSES_ON if _function is run else None
        app.command(_name, rich_help_panel=_panel, context_settings=_settings)(_function)
app.add_typer(metrics.weights_app, name="weights", rich_help_panel="Run")
app.add_typer(score.judge_app, name="judge", rich_help_panel="Look")
app.add_typer(data.app, name="data", rich_help_panel="Build")
app.add_typer(curate.app, name="curate", rich_help_panel="Build")


def _join_lines_of_help(group: typer.Typer) -> None:
    """Let the terminal break the help's lines: typer would keep those of the docstrings as well."""
    for command in group.registered_commands:
        paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    for member in group.registered_groups:
        if member.typer_instance is not None:
            _join_lines_of_help(member.typer_instance)


_join_lines_of_help(app)


def _version(value: bool) -> None:
    if value:
        Console().print(f"medtasks {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


def _set_plain_types(command: Any) -> None:
    """Let the help of a command and of those below show ``PATH...`` where newer Typer has ``<list[Path]>``."""
    context = command.make_context(command.name, [], resilient_parsing=True)
    for parameter in command.get_params(context):
        if not hasattr(parameter, "display_type"):
            continue
        label = parameter.display_type(context).strip("<>")
        name = label.removeprefix("list[").removesuffix("]")
        metavar = name  # of choices, such as a|b
        if "|" not in name:
            metavar = _METAVARS.get(name.removesuffix(" range"), name.upper())
        if label != name:
            metavar += "..."
        parameter.display_type = lambda ctx, metavar=metavar: metavar
    for subcommand in getattr(command, "commands", {}).values():
        _set_plain_types(subcommand)


def main() -> None:
    """Run the command.

    An error that the user can fix is one sentence and exit code 1, or 2 where 1 is a verdict; Ctrl-C is exit code 130.
    """
    command = get_command(app)
    _set_plain_types(command)
    redact_log()
    try:
        command(prog_name="medtasks")
    except MedTasksError as error:
        _complain(str(error))
        sys.exit(error.exit_code)
    except OSError as error:
        sentence = str(error)
        if error.filename and error.strerror:
            sentence = f"{error.filename}: {error.strerror}"
        _complain(sentence)
        sys.exit(1)
    except SystemExit as error:
        if error.code == 130:  # Typer's code for Ctrl-C
            _complain(
                "interrupted; what was finished is kept, run the same command again to go on"
            )
        raise


def _complain(sentence: str) -> None:
    Console(stderr=True, soft_wrap=True).print(
        f"[bold red]medtasks:[/] {escape(plain(sentence))}", highlight=False
    )


if __name__ == "__main__":
    main()
