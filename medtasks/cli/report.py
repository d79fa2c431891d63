"""``medtasks report``: a run as one file that a reviewer can open."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from medtasks.audit.report.contents import RunReport
from medtasks.cli.output import IncludePath, JsonFile, ModelName, look_into, out, say, write_json, write_text
from medtasks.errors import RepliesError
from medtasks.runs.repeat_folders import repeat_folders

_PAGE = "report.html"


def report(
    context: typer.Context,
    run: Annotated[
        Path, typer.Argument(help="Folder of a run (its --output_path), or with --task a file of recorded replies.")
    ],
    html: Annotated[
        Path | None, typer.Option(help=f"The page; default: {_PAGE} in the run's folder, beside a file of replies.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="RUN holds recorded replies to this task of ours.")] = None,
    model: ModelName = None,
    against: Annotated[
        list[Path] | None, typer.Option(help="Compare with another run: its folder, or a file of replies; repeatable.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the tables as Markdown.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Also write the tables as LaTeX (booktabs).")] = None,
    figures: Annotated[Path | None, typer.Option(help="Also write the figures into this folder, SVG and PNG.")] = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Write a self-contained page: scores with intervals, published results, why replies are invalid, every reply.

    The page needs no server and no network. Of credentialed data it holds scores and hashed ids only.
    """
    from medtasks.audit.repeats import collected
    from medtasks.audit.report.collecting import collect_replies
    from medtasks.audit.report.contents import report_as_dict
    from medtasks.audit.report.differences import compare_with
    from medtasks.audit.report.figures.drawing import figures as drawn
    from medtasks.audit.report.figures.drawing import write_figures
    from medtasks.audit.report.page import write_page
    from medtasks.audit.report.report_tables import report_tables
    from medtasks.audit.tables import latex as latex_tables
    from medtasks.audit.tables import markdown as markdown_tables
    from medtasks.runs.sources import Source

    if not run.exists():
        raise RepliesError(f"there is no {run}; give the folder that was named with --output_path")
    if task is None and run.is_file():
        raise RepliesError(f"{run} is a file; give the folder of the run, or say with --task which task it answers")
    look_into(context, include_path, [run, *repeat_folders(run), *(against or ())])
    with out.status("Collecting ..."):
        found = collected(run, model) if task is None else collect_replies(task, [run])
        if against:
            found = replace(found, comparisons=compare_with(Source(run, model), against, task))
    page = html or (run if run.is_dir() else run.parent) / _PAGE
    with out.status("Writing ..."):
        write_page(found, page, drawn(found))
        if figures:
            write_figures(found, figures)
    if markdown:
        write_text(markdown, markdown_tables(found.title, report_tables(found)))
    if latex:
        write_text(latex, latex_tables(report_tables(found)))
    if json_file:
        write_json(json_file, report_as_dict(found))
    _print_what_is_missing(found)
    say(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)")


def _print_what_is_missing(found: RunReport) -> None:
    for name, why in found.missing.items():
        say(f"missing: {name}: {why}")
    for sentence in dict.fromkeys(sentence for section in found.tasks for sentence in section.missing):
        names = [section.name for section in found.tasks for lacking in section.missing if lacking == sentence]
        say(f"note: {', '.join(names)}: {sentence}")
    for note in found.notes:
        say(f"note: {note}")
