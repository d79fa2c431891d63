"""``medtasks data``: list, prepare, check and select datasets, and write the synthetic sample."""

import contextlib
import inspect
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from medtasks.cli.options import IncludePath, look_into, named_values
from medtasks.cli.output import out, say, say_columns
from medtasks.cli.output import show as print_table
from medtasks.cli.prepare_command import datasets_of, prepare, report_prepared, total_size
from medtasks.data.catalogue import CATALOGUE, Access, DatasetInfo
from medtasks.data.dataset_lookup import own_datasets, prepared_state, preparing_again
from medtasks.data.dataset_manifest import Draw, Manifest, described_images
from medtasks.data.document_store import load_documents
from medtasks.data.drawing import DrawRequest, draw_documents
from medtasks.data.samples import Document, Documents
from medtasks.data.selecting import (
    SELECTABLE,
    Criteria,
    choose,
    criteria_line,
    selectable,
    values_together,
)
from medtasks.errors import MedTasksError, collected_warnings, join_names
from medtasks.home import HOME_VARIABLE, dataset_folder, home, open_to_others
from medtasks.report.tables import number_table
from medtasks.report.wording import quantity
from medtasks.tasks.documents import (
    task_documents,
    task_problems,
    task_provenance,
    unknown_keys,
    unreadable_images,
)
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config, task_files

app = typer.Typer(help="List, prepare and check datasets.", no_args_is_help=True)

Prepared = Annotated[str, Argument(help="A prepared dataset, see 'medtasks data list'.")]
Values = Annotated[list[str] | None, Option()]
# Headings of numbers of values, as in GMAI-MMBench's paper.
_COUNTED = {"modality": "modalities", "keyword": "labels"}
SAMPLE = Path(__file__).parents[1] / "data" / "sources" / "sample"
"""Synthetic images and questions in MediConfusion's layout."""


@app.command("list")
def list_datasets(
    name: Annotated[
        str | None, Argument(help="A dataset, benchmark or group of tasks. Default: all.")
    ] = None,
) -> None:
    """List datasets with access level and state, your own last. For a single one, show source, licence and size."""
    infos = [*CATALOGUE.values(), *own_datasets().values()]
    if name is not None:
        infos = datasets_of(name)
        if infos[0].name == name:
            _show(infos[0])
            return
    rows = [("dataset", "prepared", "access", "questions", "description")]
    for info in infos:
        questions = "unknown" if info.count_unknown else str(info.rows or "")
        rows.append(
            (
                info.name,
                prepared_state(info.name),
                str(info.access),
                questions,
                info.description,
            )
        )
    say_columns(rows)
    if name is not None:
        say(total_size(infos))
    say(f"Data folder: {home()}")


def _show(info: DatasetInfo) -> None:
    """Print what is known of one dataset and of its copy here, one fact a line."""
    from medtasks.data.prepare.prepare_dataset import recipe_of

    layout = images = ""
    with contextlib.suppress(LookupError):
        layout = recipe_of(info.part_of or info.name).layout
    with contextlib.suppress(OSError, MedTasksError):
        images = described_images(Manifest.read(dataset_folder(info.name)).model_dump())
    sizes = [(info.rows, "{} questions"), (info.images, "{} images"), (info.size, "{:g} MB")]
    stated = [text.format(value) for value, text in sizes if value is not None]

    facts = {
        "prepared": prepared_state(info.name),
        "access": info.access,
        "size": ", ".join(stated) or "not stated",
        "licence": info.licence,
        "source": _source_with_revision(info),
        "--source": layout,  # contents of the folder that the option names
        "images": images,
    }
    say(f"{info.name}: {info.benchmark}, {info.description}")
    for fact, value in facts.items():
        if value:
            say(f"  {fact + ':':<10}{value}")


def _source_with_revision(info: DatasetInfo) -> str:
    """Describe where the files of a dataset come from, and whether numbers may move with them."""
    source = f"{info.source} at {info.revision}"
    if info.revision == "main":
        source += (
            ", so that numbers may move with its newest commit, which the manifest records"
        )
    elif not (info.sha256 or info.md5 or len(info.revision) == 40):
        source += ", without a digest of its files, so that numbers may move with them"
    return source


app.command()(prepare)


@app.command()
def verify(
    context: typer.Context,
    name: Annotated[
        str, Argument(help="Dataset name, see 'medtasks data list', or a task of your own.")
    ],
    include_path: IncludePath = None,
) -> None:
    """Read a prepared dataset completely and compare it with its manifest.

    For a task of your own, read all samples and images, load its hooks, rules and metrics, and fill the first prompt.
    """
    from medtasks.data.prepare.prepare_dataset import verify as differences

    look_into(context, include_path)
    task = task_files().get(name)
    if task is not None and task.has_own_files:
        _verify_own_task(task)
        return
    _raise_problems(list(differences(name)), name, f"; fix it with: {preparing_again(name)}")
    if task is not None and not task.is_shipped:
        _check_file(task)
    folder = dataset_folder(name)
    manifest = Manifest.read(folder)
    kind = "complete" if manifest.complete else "incomplete"
    if manifest.sample:
        kind = "synthetic sample"
    out.print(
        f"{name} is as prepared: {manifest.rows} questions, {kind}, fingerprint {manifest.fingerprint}"
    )
    if manifest.access == Access.CREDENTIALED and open_to_others(folder):
        say(
            f"warning: other users of this machine can read {folder}; run: chmod -R go= {shlex.quote(str(folder))}"
        )


def _verify_own_task(task: TaskFile) -> None:
    """Check a task on a user's own files, which medtasks did not prepare."""
    with collected_warnings() as remarks:
        _check_file(task)
        documents = task_documents(task)
        facts = task_provenance(task, documents)
        problems = list(dict.fromkeys(unreadable_images(task, documents)))
    _raise_problems(problems, task.name)
    images = "with their images"
    if task_config(task.name).get("doc_to_visual") == "medtasks.hooks.images.no_images":
        images = "without images"
    say(
        f"{task.name} can be read: {len(documents)} questions of {facts['source']} {images}, fingerprint of "
        f"the text {facts['fingerprint']}. Hooks, rules and the first prompt are in order. medtasks did not "
        f"prepare it, so changes cannot be detected."
    )
    for remark in remarks:
        say(f"note: {remark}")


def _check_file(task: TaskFile) -> None:
    """Warn about unknown keys of a task file, and check its hooks, rules and metrics.

    Raises:
        MedTasksError: There are problems, which are printed.
    """
    for key in unknown_keys(task):
        say(
            f"warning: the task file {task.path} has a key '{key}' that lmms-eval 0.7.3 does not know"
        )
    _raise_problems(list(task_problems(task, download=True)), task.name)


def _raise_problems(problems: Sequence[str], name: str, fix: str = "") -> None:
    """Print problems, and raise an error if there are any.

    Args:
        problems: A sentence each.
        name: Name of the dataset or task.
        fix: How to fix them, which ends the message; empty if the problems say it themselves.

    Raises:
        MedTasksError: There are problems.
    """
    say(*problems)
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise MedTasksError(f"{count} in '{name}'{fix}")


@app.command()
def sample(
    folder: Annotated[
        Path, Argument(help="Folder to write; becomes a complete MEDTASKS_HOME.")
    ],
) -> None:
    """Write synthetic data, to try everything without downloading anything."""
    write_sample_home(folder)
    say(f"Use it with: export {HOME_VARIABLE}={shlex.quote(str(folder.absolute()))}")


def write_sample_home(folder: Path) -> None:
    """Write the synthetic sample into a folder, and prepare it there.

    Args:
        folder: Folder that becomes a home of medtasks. MEDTASKS_HOME names it until the sample is prepared.

    Raises:
        MedTasksError: The folder holds the real dataset, or cannot be written to.
    """
    from medtasks.data.prepare.prepare_dataset import prepare as prepare_dataset
    from medtasks.data.prepare.source_recipe import Options

    before = os.environ.get(HOME_VARIABLE)
    os.environ[HOME_VARIABLE] = str(folder.absolute())
    try:
        if prepared_state("mediconfusion") not in ("no", "sample"):
            raise MedTasksError(
                f"{folder} holds the real MediConfusion; choose another folder for the sample"
            )
        source = folder / "source" / "mediconfusion"
        shutil.copytree(SAMPLE, source, dirs_exist_ok=True)
        report_prepared(prepare_dataset("mediconfusion", Options(source, sample=True)))
    except OSError as error:
        raise MedTasksError(
            f"cannot write the sample to {folder}: {error.strerror or error}"
        ) from error
    finally:
        if before is None:
            del os.environ[HOME_VARIABLE]
        else:
            os.environ[HOME_VARIABLE] = before


@app.command()
def select(
    context: typer.Context,
    name: Prepared,
    new: Annotated[
        str | None, Option("--as", help="Name of the new task. Default: only show.")
    ] = None,
    department: Values = None,
    modality: Values = None,
    clinical_task: Values = None,
    granularity: Values = None,
    keyword: Values = None,
    original_task: Values = None,
    where: Annotated[
        list[str] | None, Option(metavar="COLUMN=VALUE", help="Any other column.")
    ] = None,
    show: Annotated[
        bool, Option("--list", help="Show the values of the selected questions with counts.")
    ] = False,
    draw: Annotated[
        int | None,
        Option(
            min=1, help="Draw about this many questions at random, to estimate scores of all."
        ),
    ] = None,
    by: Annotated[
        str | None,
        Option(metavar="COLUMN", help="Draw from each value of this column its share."),
    ] = None,
    seed: Annotated[int, Option(help="Random seed of the draw.")] = 0,
) -> None:
    """Select questions by their columns or at random, and make them a task of their own.

    Values of one option are alternatives; all options must match. A value is a full name, its abbreviation in the
    paper, or a pattern with * and ?. With --draw, questions on one patient, image or pair are drawn together, and the
    scores of the task are estimates of those of all questions.
    """
    from medtasks.tasks.own_tasks import select_as, whole_dataset  # imports download libraries

    dataset = whole_dataset(name)
    criteria = _chosen_values(context, where or ())
    request = _draw_request(draw, by, seed, criteria)
    if request is None:
        _print_selection(dataset, load_documents(dataset), criteria, show=show)
    elif new is None:
        _, design = draw_documents(load_documents(dataset), request)
        _print_draw(dataset, design)
    if new is not None:
        manifest, tasks, groups = select_as(dataset, criteria, new, request)
        if manifest.draw is not None:
            _print_draw(dataset, manifest.draw)
        report_prepared(manifest)
        say(f"Run it with 'lmms_eval --tasks {','.join(tasks)}'")
        if groups:
            say(f"Its tasks side by side: {join_names(groups)}")


def _chosen_values(context: typer.Context, where: Sequence[str]) -> Criteria:
    """Return the values that a command line selects by column, those of the options before those of --where."""
    criteria = {}
    for column in options():
        if context.params[column]:
            criteria[column] = tuple(context.params[column])
    for column, value in named_values("--where", where, "COLUMN=VALUE"):
        criteria[column] = (*criteria.get(column, ()), value)
    return criteria


def _print_selection(
    dataset: str, documents: Documents, criteria: Criteria, *, show: bool
) -> None:
    """Print the number of documents that fit, and the values of their columns if there are no criteria."""
    chosen = choose(documents, criteria)
    condition = ""
    if criteria:
        condition = f" with {criteria_line(criteria)}"
        if "pair_id" in documents[0]:
            condition += ", of a pair both images if one has it"
    say(f"{dataset}: {len(chosen)} of {len(documents)} questions{condition}")
    if show or not criteria:
        _print_values(chosen)
    if "keyword" in criteria:
        say(
            "The keyword is the right answer: accuracy on these questions is that answer's recall."
        )


def _draw_request(
    number: int | None,
    by: str | None,
    seed: int,
    criteria: Criteria,
) -> DrawRequest | None:
    """Return the requested draw, or None without ``--draw``.

    Raises:
        MedTasksError: ``--by`` comes without ``--draw``, or ``--draw`` together with criteria.
    """
    if number is None:
        if by is not None:
            raise MedTasksError("--by names the strata of a draw; give --draw, too")
        return None
    if criteria:
        raise MedTasksError(
            f"--draw stands for all questions, and {criteria_line(criteria)} for some; give one of them"
        )
    return DrawRequest(number, by, seed)


def _print_draw(dataset: str, design: Draw) -> None:
    """Print the numbers of a draw, and those of its strata if there are several."""
    say(f"{dataset}: {design}")
    rows = []
    for stratum in design.strata:
        rows.append(
            (
                stratum.name,
                f"{stratum.drawn} of {stratum.existing}",
                f"{stratum.rows} of {stratum.existing_rows}",
            )
        )
    print_table(number_table("", (design.by or "stratum", "clusters", "questions"), rows))


def _print_values(documents: Sequence[Document]) -> None:
    """Print the values of each column, with the numbers of their questions, modalities and labels."""
    columns = selectable(documents)
    for column, counts in columns.items():
        headings = [column, "questions"]
        distinct = []
        for other, heading in _COUNTED.items():
            if other in columns and other != column:
                headings.append(heading)
                distinct.append(values_together(documents, column, other))
        rows = []
        for value in sorted(counts, key=lambda value: (-counts[value], value)):
            others = [str(len(together[value])) for together in distinct]
            rows.append((value, str(counts[value]), *others))
        print_table(number_table("", headings, rows))


@app.command()
def look(
    context: typer.Context,
    name: Annotated[
        str, Argument(help="A prepared dataset, a task or a variant such as NAME_blank.")
    ],
    sample: Annotated[
        int, Option(min=1, help="Number of samples, drawn at random but always the same.")
    ] = 3,
    ids: Annotated[
        list[str] | None, Option("--id", help="Sample to show instead; repeatable.")
    ] = None,
    folder: Annotated[
        Path | None,
        Option("--out", help="Folder for a page and PNG files. Default: only print."),
    ] = None,
    include_path: IncludePath = None,
) -> None:
    """Show images as a model gets them, next to what the headers of their files say and what was done with them.

    Names and ids of patients are in neither; those that are part of an image are.
    """
    from medtasks.report.looking import look_at, task_to_look_at, write_look

    look_into(context, include_path)
    task = task_to_look_at(name)
    looked_at = look_at(task, sample, ids or ())
    for shown in looked_at:
        say(f"sample {shown.doc_id}: the model gets {quantity(len(shown.images), 'image')}")
        if shown.fault:
            say(shown.fault)
        seen = {image.file: image.facts for image in shown.images}
        for file, facts in [*seen.items(), *shown.files.items()]:
            say(f"  {file}")
            say_columns([("   ", *fact) for fact in facts.items()])
    if folder is not None:
        say(f"{write_look(task, looked_at, folder)}: open it in a browser")


@app.command()
def publish(
    name: Annotated[str, Argument(help="A prepared dataset of your own.")],
    folder: Annotated[
        Path, Option("--out", help="New folder, named as the benchmark and its first task.")
    ],
    licence: Annotated[
        str,
        Option(help="Licence by which you publish questions and images, such as cc-by-4.0."),
    ],
) -> None:
    """Write a dataset of your own, with its tasks, into a folder for the Hub, which pip installs as well.

    Nothing leaves the machine: you upload the folder. Credentialed data and those of others are refused.
    """
    from medtasks.curate.hub_folder import publish_folder

    with out.status(f"Writing {folder} ..."):
        benchmark = publish_folder(name, folder, licence)
    say(
        f"{folder}: {len(benchmark.documents)} questions, {benchmark.manifest.access}, {licence}"
    )
    path = shlex.quote(str(folder))
    say(
        "Look at README.md, and name the authors in its citation.",
        f"Try it:    lmms_eval --tasks {benchmark.name} --include_path {path}",
        f"Upload it: hf upload ORG/{benchmark.name} {path} --repo-type dataset",
    )


def options() -> dict[str, str]:
    """Return the options of ``medtasks data select`` by column.

    Other columns are selected with --where.
    """
    parameters = inspect.signature(select).parameters
    return {name: f"--{name.replace('_', '-')}" for name in parameters if name in SELECTABLE}
