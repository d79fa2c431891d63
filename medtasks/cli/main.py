"""The ``medtasks`` command: one module per subcommand."""

import sys

import typer
from rich.console import Console

from medtasks import __version__
from medtasks.cli import data, demo, parse, score, tasks
from medtasks.errors import MedTasksError

app = typer.Typer(
    help="Medical vision-language benchmarks for lmms-eval.", no_args_is_help=True, pretty_exceptions_enable=False
)
app.add_typer(data.app, name="data")
app.command("tasks")(tasks.list_tasks)
app.command("path")(tasks.show_path)
app.command("score")(score.score)
app.command("parse")(parse.parse)
app.command("demo")(demo.demo)


def _version(value: bool) -> None:
    if value:
        Console().print(f"medtasks {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _root(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print it.")) -> None:
    pass


def main() -> None:
    """Run the command; an error the user can mend is one sentence and exit code 1."""
    try:
        app()
    except MedTasksError as error:
        Console(stderr=True, soft_wrap=True).print(f"[bold red]medtasks:[/] {_escaped(error)}", highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        Console(stderr=True).print(
            "\nmedtasks: interrupted; what was finished is kept, run the same command again to go on"
        )
        sys.exit(130)


def _escaped(error: MedTasksError) -> str:
    return str(error).replace("[", "\\[")


if __name__ == "__main__":
    main()
