"""``medtasks data``: list, prepare, check and select datasets, and write the synthetic sample."""

import contextlib
import inspect
import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from medtasks.cli.options import IncludePath, look_into, named_values
from medtasks.cli.output import out, say, say_columns
from medtasks.cli.output import show as print_table
from medtasks.data.catalogue import CATALOGUE, Access, DatasetInfo, dataset_info
from medtasks.data.dataset_lookup import own_datasets, part_of, preparing_again, study_of
from medtasks.data.dataset_manifest import FILE_NAME, Manifest, described_images
from medtasks.data.document_store import load_documents
from medtasks.data.images.decoding import AS_STORED
from medtasks.data.selecting import SELECTABLE, choose, criteria_line, selectable
from medtasks.errors import MedTasksError, SourceError, collected_warnings
from medtasks.home import HOME_VARIABLE, dataset_folder, home, open_to_others, own_tasks_folder
from medtasks.report.tables import number_table
from medtasks.tasks.documents import task_documents, task_problems, task_provenance, unknown_keys, unreadable_images
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import members_of, task_config, task_files

if TYPE_CHECKING:
    from medtasks.data.prepare.source_recipe import Options

app = typer.Typer(help="List, prepare and check datasets.", no_args_is_help=True)

Prepared = Annotated[str, Argument(help="A prepared dataset, see 'medtasks data list'.")]
Values = Annotated[list[str] | None, Option()]
MEDHEVAL = "medheval"
SAMPLE = Path(__file__).parents[1] / "data" / "sources" / "sample"
"""Synthetic images and questions in MediConfusion's layout."""


@app.command("list")
def list_datasets(
    name: Annotated[str | None, Argument(help="A dataset, benchmark or group of tasks. Default: all.")] = None,
) -> None:
    """List datasets, your own last, with access level and state; or show source, licence and size of a single one."""
    own_infos = own_datasets()
    infos = [*CATALOGUE.values(), *own_infos.values()]
    if name is not None:
        infos = [own_infos[name]] if name in own_infos else _group(name)
        if infos[0].name == name:
            _show(infos[0])
            return
    rows = [("dataset", "prepared", "access", "questions", "description")]
    for info in infos:
        questions = "unknown" if info.count_unknown else str(info.rows or "")
        rows.append((info.name, _state(info.name), str(info.access), questions, info.description))
    say_columns(rows)
    if name is not None:
        say(_total_size(infos))
    say(f"Data folder: {home()}")


def _group(name: str) -> list[DatasetInfo]:
    """Return the dataset of this name, or those of a group of tasks, or those whose names begin with a benchmark's.

    Raises UnknownName for any other name.
    """
    if name in CATALOGUE:
        return [CATALOGUE[name]]
    members = {task.dataset for task in members_of(name)}
    infos = [info for info in CATALOGUE.values() if info.name in members]
    return infos or [info for info in CATALOGUE.values() if info.name.startswith(f"{name}_")] or [dataset_info(name)]


def _total_size(infos: Sequence[DatasetInfo]) -> str:
    sizes = [info.size for info in infos if info.size is not None]
    return f"{sum(sizes):,.1f} MB in all, as stated for {len(sizes)} of {len(infos)} datasets"


def _show(info: DatasetInfo) -> None:
    """Print the source, licence and size of one dataset."""
    from medtasks.data.prepare.prepare_dataset import recipe_of

    layout = images = ""
    with contextlib.suppress(LookupError):
        layout = recipe_of(info.part_of or info.name).layout
    with contextlib.suppress(OSError, MedTasksError):
        images = described_images(Manifest.read(dataset_folder(info.name)).model_dump())
    sizes = [(info.rows, "{} questions"), (info.images, "{} images"), (info.size, "{:g} MB")]
    moving = ""
    if info.revision == "main":
        moving = ", so that numbers may move with its newest commit, which the manifest records"
    elif not (info.sha256 or info.md5 or len(info.revision) == 40):
        moving = ", without a digest of its files, so that numbers may move with them"
    facts = {
        "prepared": _state(info.name),
        "access": info.access,
        "size": ", ".join(text.format(value) for value, text in sizes if value is not None) or "not stated",
        "licence": info.licence,
        "source": f"{info.source} at {info.revision}{moving}",
        "--source": layout,  # contents of that folder
        "images": images,
    }
    say(f"{info.name}: {info.benchmark}, {info.description}")
    for fact, value in facts.items():
        if value:
            say(f"  {fact + ':':<10}{value}")


def _state(name: str) -> str:
    folder = dataset_folder(name)
    if not (folder / FILE_NAME).is_file():
        return "no"
    try:
        manifest = Manifest.read(folder)
    except MedTasksError:
        return "damaged"
    return "sample" if manifest.sample else "yes" if manifest.complete else "incomplete"


@app.command()
def prepare(
    name: Annotated[str | None, Argument(help="A dataset, benchmark or group of tasks; 'medtasks data list'.")] = None,
    source: Annotated[Path | None, Option(help="Folder or archive with a copy, laid out as published.")] = None,
    fetch_images: Annotated[bool, Option("--fetch-images", help="Download images that --source lacks.")] = False,
    allow_incomplete: Annotated[bool, Option("--allow-incomplete", help="Leave out what is missing.")] = False,
    images: Annotated[
        list[str] | None,
        Option(help="MedHEval: SOURCE=DIR, the images of slake, vqa_rad, iu_xray or mimic_cxr; repeatable."),
    ] = None,
    allow_changed: Annotated[
        bool, Option("--allow-changed", help="MedHEval, GMAI-MMBench: accept a file with another checksum.")
    ] = False,
    from_folder: Annotated[Path | None, Option(help="Folder with your own questions and dataset.json.")] = None,
    own_name: Annotated[str | None, Option("--name", help="Name for --from-folder. Default: the folder's.")] = None,
    access: Annotated[Access | None, Option(help="Access level of --from-folder. Default: credentialed.")] = None,
) -> None:
    """Prepare a dataset, or all complete ones of a group; an interrupted run continues where it stopped."""
    _check_changed_sources(name or "", images, allow_changed)
    if (name is None) == (from_folder is None):
        raise typer.BadParameter("give the NAME of a dataset ('medtasks data list'), or your own with --from-folder")
    if from_folder is not None:
        if source is not None or fetch_images:
            raise typer.BadParameter("--source and --fetch-images are for published datasets, not for --from-folder")
        _prepare_own(from_folder, own_name, access, allow_incomplete)
        return
    if own_name is not None or access is not None:
        raise typer.BadParameter("--name and --access are for --from-folder; published datasets have theirs")
    assert name is not None
    if info := own_datasets().get(name):
        _prepare_again(info, source, allow_incomplete)
        return
    from medtasks.data.prepare.source_recipe import Options

    folders = _image_folders(images or ())
    options = Options(source, fetch_images, allow_incomplete, allow_changed=allow_changed, images=folders)
    infos = _group(name)
    if infos[0].name == name:
        _prepare_published(infos[0], options)
    else:
        _prepare_group(name, infos, options)


def _check_changed_sources(name: str, images: Sequence[str] | None, allow_changed: bool) -> None:
    """Raise BadParameter for options that a dataset does not have."""
    if images and not name.startswith(MEDHEVAL):
        raise typer.BadParameter("--images is for the sets of MedHEval")
    if allow_changed and not name.startswith((MEDHEVAL, "gmai_mmbench")):
        raise typer.BadParameter("--allow-changed is for the sets of MedHEval and GMAI-MMBench")


def _image_folders(texts: Sequence[str]) -> dict[str, Path]:
    """Return the folders of images by their source, from values of --images."""
    folders: dict[str, Path] = {}
    for image_source, folder in named_values("--images", texts, "SOURCE=DIR, such as slake=/data/slake/imgs"):
        if image_source in folders:
            raise typer.BadParameter(f"--images names {image_source} twice")
        folders[image_source] = Path(folder).expanduser()
    return folders


def _prepare_published(info: DatasetInfo, options: "Options") -> None:
    from medtasks.data.prepare.prepare_dataset import prepare as run
    from medtasks.data.sources.medheval_sets import IMAGE_SOURCES, preflight

    if info.name.startswith(MEDHEVAL) and options.source is not None:
        for count in preflight(info, options):
            missing = f", {len(count.missing)} missing" if count.missing else ""
            total = len(count.found) + len(count.missing)
            say(f"images of {IMAGE_SOURCES[count.source].title}: {len(count.found)} of {total} found{missing}")
    report_prepared(run(info.name, options))


def _prepare_group(name: str, infos: Sequence[DatasetInfo], options: "Options") -> None:
    """Prepare every dataset of a group that is complete, and name the others; an error without any."""
    say(f"{name}: {_total_size(infos)}")
    has_several_sources = len({info.source for info in infos}) > 1
    prepared = 0
    for info in infos:
        try:
            if options.source is None and _state(info.name) == "yes":
                say(f"{info.name} is prepared already")
            else:
                # Published files of several sources have equal names. Without a number of rows, one passes for another.
                is_ambiguous = has_several_sources and (info.rows is None or options.allow_incomplete)
                source = _source_of(info, options.source, is_ambiguous=is_ambiguous)
                _prepare_published(info, replace(options, source=source))
            prepared += 1
        except SourceError as error:
            say(f"not prepared: {info.name}: {error}")
    if not prepared:
        raise MedTasksError(f"no dataset of '{name}' could be prepared, for the reasons above")


def _source_of(info: DatasetInfo, source: Path | None, *, is_ambiguous: bool) -> Path | None:
    """Return the folder of a dataset's name in ``--source``, or ``--source`` itself unless that is ambiguous."""
    if source is None:
        return None
    folder = source / (info.part_of or info.name)
    if folder.is_dir():
        return folder
    if is_ambiguous:
        raise SourceError(f"its files are to be in {folder}")
    return source


def _prepare_own(folder: Path, name: str | None, access: Access | None, allow_incomplete: bool) -> None:
    from medtasks.tasks.own_tasks import prepare_own

    manifest = prepare_own(folder, name, access or Access.CREDENTIALED, allow_incomplete=allow_incomplete)
    report_prepared(manifest)
    path = own_tasks_folder() / f"{manifest.name}.yaml"
    say(f"Run it with 'lmms_eval --tasks {manifest.name}'; the task is in {path}")
    if access is None:
        say("It counts as credentialed: no judge on another machine may see it. Change this with --access.")


def _prepare_again(info: DatasetInfo, source: Path | None, allow_incomplete: bool) -> None:
    from medtasks.tasks.own_tasks import prepare_own

    command, whole = preparing_again(info.name), part_of(info.name)
    if whole is not None:
        raise MedTasksError(f"'{info.name}' is a part of '{whole}'; make it again with '{command}'")
    if study_of(info.name) is not None:
        raise MedTasksError(f"'{info.name}' was published from a study; publish it again with '{command}'")
    folder = source or Path(info.source)
    if not folder.is_dir():
        raise MedTasksError(
            f"'{info.name}' came from {folder}, which is not there; give its new location with --source"
        )
    report_prepared(prepare_own(folder, info.name, info.access, allow_incomplete=allow_incomplete, again=True))


def report_prepared(manifest: Manifest) -> None:
    """Print what was prepared, and what was left out."""
    for note in manifest.left_out:
        say(f"left out: {note}")
    say(
        f"Prepared {manifest.name}: {manifest.rows} questions, {manifest.images} images, fingerprint "
        f"{manifest.fingerprint}, in {dataset_folder(manifest.name)}"
    )
    if set(manifest.image_conversions) - {AS_STORED}:
        say(f"Models see its images by the rule {described_images(manifest.model_dump())}")


@app.command()
def verify(
    context: typer.Context,
    name: Annotated[str, Argument(help="Dataset name, see 'medtasks data list', or a task of your own.")],
    include_path: IncludePath = None,
) -> None:
    """Read a prepared dataset completely and compare it with its manifest.

    For a task of your own, read all samples and images, load its hooks, rules and metrics, and fill the first prompt.
    """
    from medtasks.data.prepare.prepare_dataset import verify as run

    look_into(context, include_path)
    task = task_files().get(name)
    if task is not None and task.kind == "task" and task.dataset is None:
        with collected_warnings() as remarks:
            _check_file(task)
            documents = task_documents(task)
            facts = task_provenance(task, documents)
            problems = list(dict.fromkeys(unreadable_images(task, documents)))
        _fail(problems, name, "")
        images = "with their images"
        if task_config(name).get("doc_to_visual") == "medtasks.hooks.images.no_images":
            images = "without images"
        say(
            f"{name} can be read: {len(documents)} questions of {facts['source']} {images}, fingerprint of "
            f"the text {facts['fingerprint']}. Hooks, rules and the first prompt are in order. medtasks did not "
            f"prepare it, so changes cannot be detected."
        )
        for remark in remarks:
            say(f"note: {remark}")
        return
    _fail(list(run(name)), name, f"; fix it with: {preparing_again(name)}")
    if task is not None and not task.is_shipped:
        _check_file(task)
    folder = dataset_folder(name)
    manifest = Manifest.read(folder)
    kind = "synthetic sample" if manifest.sample else "complete" if manifest.complete else "incomplete"
    out.print(f"{name} is as prepared: {manifest.rows} questions, {kind}, fingerprint {manifest.fingerprint}")
    if manifest.access == Access.CREDENTIALED and open_to_others(folder):
        say(f"warning: other users of this machine can read {folder}; run: chmod -R go= {shlex.quote(str(folder))}")


def _check_file(task: TaskFile) -> None:
    for key in unknown_keys(task):
        say(f"warning: the task file {task.path} has a key '{key}' that lmms-eval 0.7.3 does not know")
    _fail(list(task_problems(task, download=True)), task.name, "")


def _fail(problems: Sequence[str], name: str, fix: str) -> None:
    for problem in problems:
        say(problem)
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise MedTasksError(f"{count} in '{name}'{fix}")


@app.command()
def sample(folder: Annotated[Path, Argument(help="Folder to write; becomes a complete MEDTASKS_HOME.")]) -> None:
    """Write synthetic data, to try everything without downloading anything."""
    write_sample_home(folder)
    say(f"Use it with: export {HOME_VARIABLE}={shlex.quote(str(folder.absolute()))}")


def write_sample_home(folder: Path) -> None:
    """Write the synthetic sample and prepare it in ``folder``, which may hold no real dataset."""
    from medtasks.data.prepare.prepare_dataset import prepare as run
    from medtasks.data.prepare.source_recipe import Options

    before = os.environ.get(HOME_VARIABLE)
    os.environ[HOME_VARIABLE] = str(folder.absolute())
    try:
        if _state("mediconfusion") not in ("no", "sample"):
            raise MedTasksError(f"{folder} holds the real MediConfusion; choose another folder for the sample")
        source = folder / "source" / "mediconfusion"
        shutil.copytree(SAMPLE, source, dirs_exist_ok=True)
        report_prepared(run("mediconfusion", Options(source, sample=True)))
    except OSError as error:
        raise MedTasksError(f"cannot write the sample to {folder}: {error.strerror or error}") from error
    finally:
        if before is None:
            del os.environ[HOME_VARIABLE]
        else:
            os.environ[HOME_VARIABLE] = before


@app.command()
def select(
    context: typer.Context,
    name: Prepared,
    new: Annotated[str | None, Option("--as", help="Name of the new task. Default: only show.")] = None,
    department: Values = None,
    modality: Values = None,
    clinical_task: Values = None,
    granularity: Values = None,
    keyword: Values = None,
    original_task: Values = None,
    where: Annotated[list[str] | None, Option(metavar="COLUMN=VALUE", help="Any other column.")] = None,
    show: Annotated[bool, Option("--list", help="Show the values of the selected questions with counts.")] = False,
) -> None:
    """Select questions by their columns, and make them a task of their own.

    Values of one option are alternatives; all options must match. A value is a full name, its abbreviation in the
    paper, or a pattern with * and ?.
    """
    from medtasks.tasks.own_tasks import select_as, whole_dataset  # imports download libraries

    dataset = whole_dataset(name)
    criteria = {column: tuple(context.params[column]) for column in options() if context.params[column]}
    for column, value in named_values("--where", where or (), "COLUMN=VALUE"):
        criteria[column] = (*criteria.get(column, ()), value)
    documents = load_documents(dataset)
    chosen = choose(documents, criteria)
    condition = f" with {criteria_line(criteria)}" if criteria else ""
    pairs = ", of a pair both images if one has it" if criteria and "pair_id" in documents[0] else ""
    say(f"{dataset}: {len(chosen)} of {len(documents)} questions{condition}{pairs}")
    if show or not criteria:
        for column, counts in selectable(chosen).items():
            rows = [(value, str(counts[value])) for value in sorted(counts, key=lambda value: (-counts[value], value))]
            print_table(number_table("", (column, "questions"), rows))
    if "keyword" in criteria:
        out.print("The keyword is the right answer: accuracy on these questions is that answer's recall.")
    if new is None:
        return
    manifest, tasks = select_as(dataset, criteria, new)
    report_prepared(manifest)
    say(f"Run it with 'lmms_eval --tasks {','.join(tasks)}'")


def options() -> dict[str, str]:
    """Return the options of ``medtasks data select`` by column; other columns are selected with --where."""
    return {name: f"--{name.replace('_', '-')}" for name in inspect.signature(select).parameters if name in SELECTABLE}
