"""The ``medtasks`` command: its commands in the order and the panels of the help, and its exit codes.

Modules of commands are imported at every start, so they must import nothing that takes long to load.
"""

import sys
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
_START, _RUN, _LOOK, _BUILD = "Start here", "Run", "Look", "Build"
data.app.command("duplicates")(pages.duplicates)
app.command("demo", rich_help_panel=_START)(start.demo)
app.command("doctor", rich_help_panel=_START)(start.doctor)
app.command("tasks", rich_help_panel=_START)(own_tasks.tasks)
app.command("new", rich_help_panel=_START)(own_tasks.new)
app.command("plan", rich_help_panel=_START)(start.plan)
app.command("run", rich_help_panel=_RUN, context_settings=PASSES_ON)(run)
app.command("questions", rich_help_panel=_RUN)(questions.questions)
app.command("merge", rich_help_panel=_RUN)(merge)
app.command("models", rich_help_panel=_RUN)(start.models)
app.add_typer(metrics.weights_app, name="weights", rich_help_panel=_RUN)
app.command("path", rich_help_panel=_RUN)(start.show_path)
app.command("report", rich_help_panel=_LOOK)(pages.report)
app.command("board", rich_help_panel=_LOOK)(board.board)
app.command("export", rich_help_panel=_LOOK)(pages.export)
app.command("score", rich_help_panel=_LOOK)(score.score)
app.command("check", rich_help_panel=_LOOK)(check.check)
app.command("compare", rich_help_panel=_LOOK)(compare.compare)
app.add_typer(score.judge_app, name="judge", rich_help_panel=_LOOK)
app.command("metrics", rich_help_panel=_LOOK)(metrics.metrics)
app.command("parse", rich_help_panel=_LOOK)(score.parse)
app.add_typer(data.app, name="data", rich_help_panel=_BUILD)
app.add_typer(curate.app, name="curate", rich_help_panel=_BUILD)


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
            _complain("interrupted; what was finished is kept, run the same command again to go on")
        raise


def _complain(sentence: str) -> None:
    Console(stderr=True, soft_wrap=True).print(
        f"[bold red]medtasks:[/] {escape(plain(sentence))}", highlight=False
    )


if __name__ == "__main__":
    main()
