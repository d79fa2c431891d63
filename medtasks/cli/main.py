"""The ``medtasks`` command: one module per subcommand."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

from medtasks import __version__
from medtasks.cli import (
    compare,
    curate,
    curate_draft,
    curate_hallucination,
    curate_pairs,
    curate_patterns,
    curate_publish,
    curate_review,
    data,
    demo,
    doctor,
    duplicates,
    merge,
    metrics,
    models,
    parity,
    parse,
    report,
    run,
    score,
    select,
    tasks,
    tree,
    weights,
)
from medtasks.cli.output import plain
from medtasks.errors import MedTasksError

_INTERRUPTED = 130
app = typer.Typer(
    help="Medical vision-language benchmarks for lmms-eval.", no_args_is_help=True, pretty_exceptions_enable=False
)
data.app.command("select")(select.select)
data.app.command("tree")(tree.tree)
data.app.command("duplicates")(duplicates.duplicates)
app.add_typer(data.app, name="data")
app.command("tasks")(tasks.list_tasks)
app.command("path")(tasks.show_path)
app.command("run", context_settings=run.PASSES_ON)(run.run)
app.command("merge")(merge.merge)
app.command("score")(score.score)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("parity")(parity.parity)
app.command("metrics")(metrics.metrics)
app.add_typer(models.app, name="models")
app.add_typer(weights.app, name="weights")
curate.app.command("pairs")(curate_pairs.pairs)
curate.app.command("hallucination")(curate_hallucination.hallucination)
curate.app.command("draft")(curate_draft.draft)
curate.app.command("review")(curate_review.review)
curate.app.command("publish")(curate_publish.publish)
curate.app.command("patterns")(curate_patterns.patterns)
curate.app.command("show")(curate.show)
app.add_typer(curate.app, name="curate")
app.command("parse")(parse.parse)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)


def _version(value: bool) -> None:
    if value:
        Console().print(f"medtasks {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def main() -> None:
    """Run the command; an error the user can mend is one sentence and exit code 1, Ctrl-C is exit code 130."""
    try:
        app(prog_name="medtasks")
    except MedTasksError as error:
        _complain(str(error))
        sys.exit(1)
    except OSError as error:
        _complain(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))
        sys.exit(1)
    except SystemExit as leaving:  # what Typer makes of Ctrl-C
        if leaving.code == _INTERRUPTED:
            _complain("interrupted; what was finished is kept, run the same command again to go on")
        raise


def _complain(sentence: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"[bold red]medtasks:[/] {escape(plain(sentence))}", highlight=False)


if __name__ == "__main__":
    main()
