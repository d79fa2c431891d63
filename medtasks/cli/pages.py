"""``medtasks report``, ``export`` and ``data duplicates``: a run, and copies of images, as files for others."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from medtasks.cli.options import (
    GroupColumns,
    HelpedBy,
    IncludePath,
    JsonFile,
    ModelName,
    Prevalence,
    columns_of,
    for_prevalence,
    look_into,
    named_values,
)
from medtasks.cli.output import out, say, show, write_json, write_text
from medtasks.data.privacy import LOG_TEXT_VARIABLE
from medtasks.errors import MedTasksError, RepliesError, plain
from medtasks.report import tables
from medtasks.report.report_model import RunReport, report_as_dict
from medtasks.report.wording import names_by, number, quantity
from medtasks.runs.recorded_replies import read_recorded
from medtasks.runs.result_files import repeat_folders
from medtasks.runs.run import Source, replies_to
from medtasks.scores.helped_scores import with_help
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import included_option, task_file, task_files
from medtasks.version import __version__

Checklist = StrEnum("Checklist", ["stard-ai", "claim", "tripod-llm", "mi-clear-llm"])

_PAGE = "report.html"


def report(
    context: typer.Context,
    run: Annotated[
        Path, Argument(help="Folder of a run (--output_path); with --task, a file of replies.")
    ],
    html: Annotated[
        Path | None,
        Option(help=f"Page to write. Default: {_PAGE} in RUN, or next to the file."),
    ] = None,
    task: Annotated[
        str | None, Option(help="RUN holds recorded replies to this task of ours.")
    ] = None,
    model: ModelName = None,
    markdown: Annotated[Path | None, Option(help="Also write the tables as Markdown.")] = None,
    latex: Annotated[
        Path | None, Option(help="Also write the tables as LaTeX (booktabs).")
    ] = None,
    figures: Annotated[
        Path | None, Option(help="Also write the figures into this folder, SVG and PNG.")
    ] = None,
    checklist: Annotated[
        list[Checklist] | None, Option(help="Also write checklist-NAME.html; repeatable.")
    ] = None,
    by: GroupColumns = None,
    prevalence: Prevalence = None,
    helped_by: HelpedBy = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Write a self-contained page: scores with intervals, published results, why replies are invalid, every reply.

    The page needs no server and no network. For credentialed data it holds only scores and hashed ids.
    """
    from medtasks.report.figures import figures as draw_figures
    from medtasks.report.page import write_page

    if not run.exists():
        raise RepliesError(
            f"there is no {run}; give the folder that was named with --output_path"
        )
    if task is None and run.is_file():
        raise RepliesError(
            f"{run} is a file; give the folder of the run, or say with --task which task it answers"
        )
    look_into(context, include_path, [run, *repeat_folders(run)])
    with out.status("Collecting ..."):
        content = _collect(run, model, task, columns_of(by))
        if helped_by is not None:
            content = _with_help(content, Source(run, model), Source(helped_by))
        adjusted = for_prevalence([part.rules for part in content.tasks], prevalence)
        parts = zip(content.tasks, adjusted, strict=True)
        content = replace(
            content, tasks=tuple(replace(part, rules=rules) for part, rules in parts)
        )
    page = html or (run if run.is_dir() else run.parent) / _PAGE
    with out.status("Writing ..."):
        write_page(content, page, draw_figures(content, figures))
    _write_tables(content, page, checklist or (), markdown, latex, json_file)
    _print_notes(content)
    say(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)")


def _collect(
    run: Path,
    model: str | None,
    task: str | None,
    columns: Sequence[str],
) -> RunReport:
    """Collect the report of a run, or of a file of replies to one task.

    Args:
        run: Folder of the run, or file of replies.
        model: Model whose run is meant; None if the folder has runs of a single one.
        task: Task that the replies are to; None for the folder of a run.
        columns: Columns by which scores are grouped, too.

    Raises:
        MedTasksError: The folder holds runs of several models. The message has a command for each.
    """
    from medtasks.report.collecting import collect_replies
    from medtasks.report.repeats import collect_repeats
    from medtasks.runs.run import SeveralModels

    try:
        if task is not None:
            return collect_replies(task, [run], columns)
        return collect_repeats(run, model, columns)
    except SeveralModels as error:
        command = ["medtasks", "report", str(run), "--model"]
        commands = [shlex.join([*command, name]) + included_option() for name in error.models]
        raise MedTasksError(
            f"{run} holds runs of {len(commands)} models; report on one with one of: {'; '.join(commands)}; "
            f"all of them in one table: medtasks board {shlex.quote(str(run))}{included_option()}"
        ) from error


def _with_help(content: RunReport, run: Source, helper: Source) -> RunReport:
    """Return a report in which scores of drawn tasks are helped by a run on all questions.

    Raises:
        RepliesError: No task is drawn, or there is no such run.
    """
    drawn = [part for part in content.tasks if part.draw]
    helped = {}
    for part in drawn or content.tasks[:1]:  # if none is drawn, reading the first one says so
        task = task_file(part.name)
        recorded = read_recorded(task, task_documents(task), [replies_to(part.name, run)])
        rules, sentences = with_help(task, recorded.only_run, part.rules, helper)
        helped[part.name] = replace(part, rules=tuple(rules), draw=(*part.draw, *sentences))
    return replace(content, tasks=tuple(helped.get(part.name, part) for part in content.tasks))


def _print_notes(content: RunReport) -> None:
    """Print the tasks without results, the sentences on missing samples, and the notes of a report."""
    for name, cause in content.missing.items():
        say(f"missing: {name}: {cause}")
    sentences: list[tuple[str, str]] = []
    for task in content.tasks:
        sentences += [(task.name, sentence) for sentence in (*task.draw, *task.missing)]
    for text, names in names_by(sentences).items():
        say(f"note: {names}: {text}")
    for note in content.notes:
        say(f"note: {note}")


def _write_tables(
    content: RunReport,
    page: Path,
    checklists: Sequence[str],
    *files: Path | None,
) -> None:
    """Write checklists next to the page, and all tables as Markdown, LaTeX and JSON into the files that are named."""
    from medtasks.report.checklist import write_checklist
    from medtasks.report.report_tables import report_tables
    from medtasks.report.sentences import quotable_sentences

    markdown, latex, json_file = files
    aids = []
    for name in checklists:
        path = page.with_name(f"checklist-{name}.html")
        aids.append(write_checklist(content, name, path))
        say(f"checklist: {path}")
    if markdown:
        sections = list(report_tables(content))
        if aids:
            sections.append(("Checklists", aids))
        write_text(markdown, plain(tables.markdown(content.title, sections)))
    if latex:
        write_text(latex, tables.latex(report_tables(content)))
    if json_file:
        write_json(
            json_file, {**report_as_dict(content), "sentences": quotable_sentences(content)}
        )


def export(
    context: typer.Context,
    results: Annotated[Path, Argument(help="Folder of a finished run (its --output_path).")],
    hub: Annotated[
        Path | None, Option(help="YAML file for .eval_results/ of the model's repository.")
    ] = None,
    eee: Annotated[
        Path | None, Option(help="Folder for records of Every Eval Ever 0.3.")
    ] = None,
    task: Annotated[list[str] | None, Option(help="Export only this task; repeatable.")] = None,
    benchmark: Annotated[
        list[str] | None, Option(help="Hub benchmark of a task: TASK=ORG/DATASET/TASK_ID.")
    ] = None,
    organization: Annotated[
        str, Option(help="Who ran the evaluation, for --eee.")
    ] = "not stated",
    relationship: Annotated[
        Literal["first_party", "third_party", "collaborative", "other"],
        Option(help="Relation of who ran it to the model, for --eee."),
    ] = "other",
    model: ModelName = None,
    include_path: IncludePath = None,
) -> None:
    """Export main scores with intervals, versions and fingerprints, no text of samples. The bytes are always the same.

    Refused for synthetic or incomplete data, shards, parts (--limit), and runs that are unfinished or damaged.
    """
    from medtasks.report.exporting import exports, hub_yaml, write_eee
    from medtasks.runs.run import open_run

    if hub is None and eee is None:
        raise MedTasksError("nothing to write; name a file with --hub, or a folder with --eee")
    look_into(context, include_path, [results])
    with out.status("Collecting ..."):
        chosen = exports(open_run(results, model), task or ())
    files: list[Path] = []
    if hub:
        names = dict(named_values("--benchmark", benchmark or (), "TASK=ORG/DATASET/TASK_ID"))
        write_text(hub, hub_yaml(chosen, names))
        files.append(hub)
    if eee:
        files += write_eee(chosen, eee, organization, relationship)
    for path in files:
        say(f"written: {path}")


def duplicates(
    context: typer.Context,
    name: Annotated[
        str,
        Argument(help="A prepared dataset, see 'medtasks data list', or a task of your own."),
    ],
    against: Annotated[
        str | None, Option(help="Folder of (training) images, or another prepared dataset.")
    ] = None,
    distance: Annotated[
        int, Option(min=0, max=64, help="Differing bits between hashes of duplicates, of 256.")
    ] = 40,
    html: Annotated[
        Path | None, Option(help="Page to write. Default: NAME_duplicates.html here.")
    ] = None,
    json_file: JsonFile = None,
    list_file: Annotated[
        Path | None,
        Option(
            "--list",
            help="Also write the doc_ids to leave out so that no duplicate remains, one per line.",
        ),
    ] = None,
    fail_on_found: Annotated[
        bool, Option("--fail-on-found", help="Exit with 1 if there are duplicates.")
    ] = False,
    include_path: IncludePath = None,
) -> None:
    """Find images of a benchmark that are in it twice, in its few-shot examples, or among other images.

    Copies are found even if re-encoded, resized, brightened, windowed, or given a border or a line of text. Several
    questions on one image do not count. Only image files are searched, not archives, tables or volumes.
    """
    from medtasks.data.dataset_lookup import provenance
    from medtasks.data.duplicates.duplicate_search import find_duplicates
    from medtasks.data.duplicates.image_copies import dataset_images, other_images, own_images
    from medtasks.report.dataset_pages import (
        DuplicateNames,
        duplicates_as_dict,
        write_duplicates_page,
    )
    from medtasks.tasks.documents import (
        image_files,
        private_datasets,
        task_documents,
        task_provenance,
    )

    if against == name:
        raise MedTasksError(
            f"'{name}' is compared with itself in any case; leave out --against"
        )
    look_into(context, include_path)
    task = task_files().get(name)
    if task is not None and task.has_own_files:
        documents = task_documents(task)
        data = task_provenance(task, documents)
        files = image_files(task, documents)
        images = own_images(name, documents, files, private_datasets(task, documents))
    else:
        data = provenance(name)
        images = dataset_images(name)
    other = other_images(against, without=images.own) if against else None
    copies = find_duplicates(images, other, distance)
    names = DuplicateNames(copies)
    contents = duplicates_as_dict(name, data, copies, names, distance)
    page = html or Path(f"{name}_duplicates.html")
    write_duplicates_page(contents, copies, names, page, sample=contents["data"]["sample"])
    write_json(json_file, {"medtasks": __version__, **contents})
    write_text(list_file, "".join(f"{doc_id}\n" for doc_id in contents["left_out"]))
    _print_duplicates(contents, private=images.private)
    say(f"Page: {page}")
    number = len(contents["within"]) + len(copies.outside)
    if number and fail_on_found:
        ending = "" if number == 1 else "s"
        raise MedTasksError(f"{number} duplicate{ending} found in '{name}'; look at {page}")


def _print_duplicates(contents: dict[str, Any], *, private: Sequence[str]) -> None:
    """Print tables and sentences on the duplicates found.

    Args:
        contents: Result of the search as JSON.
        private: Credentialed datasets, of which images and names are withheld; mostly none.
    """
    from medtasks.report.dataset_pages import duplicate_tables, skipped_images

    name = contents["dataset"]
    against = contents["against"]
    settings = contents["settings"]
    say(
        f"{name}: {quantity(contents['questions'], 'question')} on "
        f"{quantity(contents['pictures'], 'distinct image')}"
    )
    if against:
        say(
            f"Compared with {quantity(against['files'], 'file')} of {against['name']}, "
            f"{quantity(against['pictures'], 'distinct image')}"
        )
        if not against["findings"]:
            say(f"No image of {name} was found there.")
    if not contents["within"]:
        say(f"{name} holds no image twice.")
    for table in duplicate_tables(contents):
        show(table)
    say(*skipped_images(contents))
    groups = contents["groups"]
    if groups:
        say(
            f"Duplicates within the benchmark form {quantity(len(groups), 'group')}, the largest of "
            f"{quantity(len(groups[0]), 'distinct image')}."
        )
    say(
        f"Duplicates: at most {settings['distance']} of {settings['bits']} bits of the hashes differ and details "
        f"correlate by {settings['likeness']} or more ({settings['likeness_of_small_pictures']} below 56 pixels)"
        f"; mirrored and rotated copies are not found."
    )
    left_out = contents["left_out"]
    if left_out:
        say(
            f"To remove all duplicates, leave out {quantity(len(left_out), 'question')} "
            f"({number(len(left_out) / contents['questions'])}), pairs as a whole; --list writes their ids."
        )
    if private:
        say(
            f"Credentialed data: images and names are withheld, ids are hashed; "
            f"{LOG_TEXT_VARIABLE}={','.join(private)} shows them."
        )
    if contents["data"]["sample"]:
        say("SAMPLE DATA: synthetic images.")
