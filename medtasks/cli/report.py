"""``medtasks report``: a run as one file that a reviewer can open."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from medtasks.audit.report.wording import names_by
from medtasks.cli.options import IncludePath, JsonFile, ModelName, look_into
from medtasks.cli.output import out, say, write_json, write_text
from medtasks.errors import RepliesError
from medtasks.runs.result_files import repeat_folders

_PAGE = "report.html"


def report(
    context: typer.Context,
    run: Annotated[
        Path, Argument(help="Folder of a run (its --output_path); with --task, a file of recorded replies.")
    ],
    html: Annotated[Path | None, Option(help=f"Page to write. Default: {_PAGE} in RUN, or next to the file.")] = None,
    task: Annotated[str | None, Option(help="RUN holds recorded replies to this task of ours.")] = None,
    model: ModelName = None,
    against: Annotated[
        list[Path] | None, Option(help="Compare with another run, a folder or file; repeatable.")
    ] = None,
    markdown: Annotated[Path | None, Option(help="Also write the tables as Markdown.")] = None,
    latex: Annotated[Path | None, Option(help="Also write the tables as LaTeX (booktabs).")] = None,
    figures: Annotated[Path | None, Option(help="Also write the figures into this folder, SVG and PNG.")] = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Write a self-contained page: scores with intervals, published results, why replies are invalid, every reply.

    The page needs no server and no network. For credentialed data it holds only scores and hashed ids.
    """
    from medtasks.audit.repeats import collected
    from medtasks.audit.report.collecting import collect_replies
    from medtasks.audit.report.contents import report_as_dict
    from medtasks.audit.report.differences import compare_with
    from medtasks.audit.report.figures import figures as drawn
    from medtasks.audit.report.figures import write_figures
    from medtasks.audit.report.page import write_page
    from medtasks.audit.report.report_tables import report_tables
    from medtasks.audit.tables import latex as latex_tables
    from medtasks.audit.tables import markdown as markdown_tables
    from medtasks.runs.run import Source

    if not run.exists():
        raise RepliesError(f"there is no {run}; give the folder that was named with --output_path")
    if task is None and run.is_file():
        raise RepliesError(f"{run} is a file; give the folder of the run, or say with --task which task it answers")
    look_into(context, include_path, [run, *repeat_folders(run), *(against or ())])
    with out.status("Collecting ..."):
        content = collected(run, model) if task is None else collect_replies(task, [run])
        if against:
            content = replace(content, comparisons=compare_with(Source(run, model), against, task))
    page = html or (run if run.is_dir() else run.parent) / _PAGE
    with out.status("Writing ..."):
        write_page(content, page, drawn(content))
        if figures:
            write_figures(content, figures)
    if markdown:
        write_text(markdown, markdown_tables(content.title, report_tables(content)))
    if latex:
        write_text(latex, latex_tables(report_tables(content)))
    if json_file:
        write_json(json_file, report_as_dict(content))
    for name, why in content.missing.items():
        say(f"missing: {name}: {why}")
    missing = names_by((task.name, sentence) for task in content.tasks for sentence in task.missing)
    for note in (*(f"{names}: {text}" for text, names in missing.items()), *content.notes):
        say(f"note: {note}")
    say(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)")
