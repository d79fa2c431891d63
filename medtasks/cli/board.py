"""``medtasks board``: models by benchmarks in one table."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from medtasks.cli.options import IncludePath, JsonFile, look_into
from medtasks.cli.output import out, say, show, write_json, write_text
from medtasks.errors import MedTasksError, plain

_RUNS = "Folders of runs (their --output_path), of which every model is a row; files of replies need TASK."


def board(
    context: typer.Context,
    names: Annotated[list[str], Argument(metavar="[TASK] RUN [RUN ...]", help=_RUNS)],
    tasks: Annotated[
        str | None,
        Option(metavar="NAME,...", help="Columns: tasks and groups. Default: all of the runs."),
    ] = None,
    rule: Annotated[
        Literal["published", "careful"], Option(help="How replies are read, in all columns.")
    ] = "published",
    published: Annotated[
        bool, Option("--published", help="Also show published results, in grey.")
    ] = False,
    step: Annotated[
        list[int] | None,
        Option(
            help="Training step of each RUN in order. Default: what its name says, such as checkpoint-1200."
        ),
    ] = None,
    html: Annotated[Path | None, Option(help="Page with a sortable table and curves.")] = None,
    latex: Annotated[
        Path | None, Option(help="Also write the table as LaTeX (booktabs).")
    ] = None,
    markdown: Annotated[Path | None, Option(help="Also write the table as Markdown.")] = None,
    csv: Annotated[Path | None, Option(help="Also write one line per model and task.")] = None,
    wandb: Annotated[
        str | None,
        Option(metavar="PROJECT", help="Also log five numbers per task to Weights & Biases."),
    ] = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Put runs next to each other: one row per model, one column per task, with intervals and ranks.

    Rows whose names say a training step are a curve, too: is the best checkpoint better than the first one?
    """
    from medtasks.report import board_tables, tables
    from medtasks.report.board_figures import curve_figures
    from medtasks.scores.board_model import board_of

    look_into(context, include_path, [path for path in map(Path, names) if path.exists()])
    columns = list(filter(None, (tasks or "").split(",")))
    if published and rule != "published":
        raise MedTasksError(
            "published results were read by published rules; leave out --rule careful or --published"
        )
    with out.status("Scoring ..."):
        scored = board_of(names, reading=rule, tasks=columns, steps=step)
    rows = board_tables.published_rows(scored) if published else []
    table = board_tables.board_table(scored, rows)
    # A wide table has no room for intervals.
    show(board_tables.board_table(scored, rows, intervals=len(scored.columns) <= 2))
    say(*table.warnings, *table.notes, *board_tables.curve_sentences(scored))
    if html:
        board_tables.write_board_page(scored, rows, html, curve_figures(scored))
        say(f"board: {html}")
    sections = [("Board", [table])]
    write_text(latex, tables.latex(sections))
    write_text(markdown, plain(tables.markdown("Board", sections)))
    write_text(csv, board_tables.board_csv(scored, rows))
    if wandb:
        from medtasks.report.board_wandb import log_board

        say(f"logged to {wandb}: {', '.join(log_board(scored, wandb))}")
    write_json(json_file, board_tables.board_as_dict(scored, rows))
