"""``medtasks data prepare``: prepare a dataset, or all that tasks, groups and tags need.

One dataset that cannot be prepared does not keep the others from it; the last line is one command for the rest.
"""

import itertools
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from getpass import getpass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from medtasks.cli.options import Yes, named_values
from medtasks.cli.output import say, say_columns
from medtasks.data.catalogue import CATALOGUE, Access, DatasetInfo
from medtasks.data.dataset_lookup import (
    own_datasets,
    part_of,
    prepared_state,
    preparing_again,
    study_of,
)
from medtasks.data.dataset_manifest import Manifest, described_images
from medtasks.data.images.decoding import AS_STORED
from medtasks.data.prepare import prepare_dataset
from medtasks.data.prepare.physionet import login_of, stored_login
from medtasks.data.prepare.prepare_dataset import Obtaining, copy_arguments, obtaining
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.sources.medheval_sets import IMAGE_SOURCES, preflight
from medtasks.errors import MedTasksError, SourceError, join_names, unknown_name
from medtasks.home import dataset_folder, own_tasks_folder
from medtasks.tasks.own_tasks import prepare_own
from medtasks.tasks.task_files import members_of, task_files, tasks_of

DatasetInfos = Sequence[DatasetInfo]
MEDHEVAL = "medheval"
_ASKED_ABOVE_MB = 5000.0


def prepare(
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="NAME",
            help="Datasets, benchmarks, tasks, groups or tags; 'medtasks data list'.",
        ),
    ] = None,
    source: Annotated[
        Path | None, Option(help="Folder or archive with a copy, laid out as published.")
    ] = None,
    fetch_images: Annotated[
        bool, Option("--fetch-images", help="Download images that --source lacks.")
    ] = False,
    allow_incomplete: Annotated[
        bool, Option("--allow-incomplete", help="Leave out what is missing.")
    ] = False,
    images: Annotated[
        list[str] | None,
        Option(
            help="MedHEval: SOURCE=DIR, the images of slake, vqa_rad, iu_xray or mimic_cxr; repeatable."
        ),
    ] = None,
    allow_changed: Annotated[
        bool,
        Option(
            "--allow-changed",
            help="MedHEval, GMAI-MMBench: accept a file with another checksum.",
        ),
    ] = False,
    from_folder: Annotated[
        Path | None, Option(help="Folder with your own questions and dataset.json.")
    ] = None,
    own_name: Annotated[
        str | None, Option("--name", help="Name for --from-folder. Default: the folder's.")
    ] = None,
    access: Annotated[
        Access | None, Option(help="Access level of --from-folder. Default: credentialed.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Prepare datasets, or all of tasks and groups. An interrupted run continues where it stopped.

    Several are listed first, with what has to be downloaded. What cannot be prepared is named, with one command for it.
    """
    names = list(dict.fromkeys(names or ()))
    single_options = {
        "--source": source,
        "--fetch-images": fetch_images,
        "--images": images,
        "--allow-changed": allow_changed,
    }
    given = [option for option, value in single_options.items() if value]
    _check_options(names, given, from_folder, own_name or access)
    if from_folder is not None:
        manifest = prepare_own(
            from_folder,
            own_name,
            access or Access.CREDENTIALED,
            allow_incomplete=allow_incomplete,
        )
        report_prepared(manifest)
        path = own_tasks_folder() / f"{manifest.name}.yaml"
        say(f"Run it with 'lmms_eval --tasks {manifest.name}'; the task is in {path}")
        if access is None:
            say(
                "It counts as credentialed: no judge on another machine may see it. Change this with --access."
            )
        say_how_to_publish(manifest)
        return
    folders = _image_folders(images or ())
    options = Options(
        source, fetch_images, allow_incomplete, allow_changed=allow_changed, images=folders
    )
    _prepare_datasets(names, options, yes=yes)


def _prepare_datasets(names: Sequence[str], options: Options, *, yes: bool) -> None:
    """Prepare one dataset by its own name, or all that names of datasets, tasks and groups mean.

    One by its own name is prepared again if it is prepared, without a question. Of several, prepared ones stay.

    Args:
        names: At least one name.
        options: Options of all datasets.
        yes: Whether nothing is asked before large downloads of several.

    Raises:
        UnknownName: A name means nothing. Then none is prepared.
        MedTasksError: A dataset could not be prepared, or there is no terminal to ask at.
    """
    infos = {name: datasets_of(name) for name in names}
    first = infos[names[0]][0]
    if names == [first.name]:
        _prepare_one(first, _with_login([first], options))
        return
    failed = prepare_all(infos, options, yes=yes)
    if failed:
        raise MedTasksError(
            f"{failed} of the datasets above could not be prepared; the command at the end is for them"
        )


def _check_options(
    names: Sequence[str],
    single_options: Sequence[str],
    from_folder: Path | None,
    own_option: str | None,
) -> None:
    """Refuse options that do not go together.

    Args:
        names: Names of the datasets.
        single_options: Given options that are for a single published dataset.
        from_folder: Folder with the user's own dataset; None if published ones are meant.
        own_option: Value of --name or --access, which are for the user's own dataset; empty or None without them.

    Raises:
        BadParameter: Two options contradict each other, or one is not for these datasets.
    """
    name = "".join(names[:1])
    if (not names) == (from_folder is None):
        raise typer.BadParameter(
            "give the NAME of a dataset ('medtasks data list'), or your own with --from-folder"
        )
    if single_options and len(names) != 1:
        raise typer.BadParameter(
            f"options like {join_names(single_options)} are for published datasets, one NAME at a time"
        )
    if from_folder is None and own_option:
        raise typer.BadParameter(
            "--name and --access are for --from-folder; published datasets have theirs"
        )
    if "--images" in single_options and not name.startswith(MEDHEVAL):
        raise typer.BadParameter("--images is for the sets of MedHEval")
    if "--allow-changed" in single_options and not name.startswith((MEDHEVAL, "gmai_mmbench")):
        raise typer.BadParameter("--allow-changed is for the sets of MedHEval and GMAI-MMBench")


def _image_folders(texts: Sequence[str]) -> dict[str, Path]:
    """Return the folders of images by their source, from values of --images.

    Raises:
        BadParameter: A value is not of the form SOURCE=DIR, or names a source a second time.
    """
    folders: dict[str, Path] = {}
    form = "SOURCE=DIR, such as slake=/data/slake/imgs"
    for image_source, folder in named_values("--images", texts, form):
        if image_source in folders:
            raise typer.BadParameter(f"--images names {image_source} twice")
        folders[image_source] = Path(folder).expanduser()
    return folders


# ---- datasets by name ----


def datasets_of(name: str) -> list[DatasetInfo]:
    """Return the datasets that a name on the command line selects.

    Args:
        name: Name of a dataset, task, group or tag, or of a benchmark, with which names of datasets begin.

    Raises:
        UnknownName: There is no such name.
        MedTasksError: It names tasks of which none reads a dataset that could be prepared.
    """
    infos = {**CATALOGUE, **own_datasets()}
    if name in infos:
        return [infos[name]]
    datasets = datasets_of_tasks(name)
    if not datasets:
        datasets = [info for info in infos.values() if info.name.startswith(f"{name}_")]
    if datasets:
        return datasets
    if tasks_of(name):
        raise MedTasksError(
            f"'{name}' reads none of the datasets of 'medtasks data list'; leave it out"
        )
    files = task_files()
    tags = itertools.chain.from_iterable(task.tags for task in files.values())
    raise unknown_name(
        "dataset", name, {*infos, *files, *tags}, "medtasks data list, medtasks tasks"
    )


def datasets_of_tasks(name: str) -> list[DatasetInfo]:
    """Return the datasets that a task, group or tag of ours reads, in the order of the catalogue."""
    names = {task.dataset for task in members_of(name)}
    infos = [*CATALOGUE.values(), *own_datasets().values()]
    return [info for info in infos if info.name in names]


def total_size(infos: DatasetInfos) -> str:
    """Describe the size of several downloads in one phrase."""
    sizes = [info.size for info in infos if info.size is not None]
    return f"{sum(sizes):,.1f} MB in all, as stated for {len(sizes)} of {len(infos)} datasets"


# ---- several datasets ----


def prepare_all(
    by_name: Mapping[str, DatasetInfos],
    options: Options,
    *,
    yes: bool,
    sufficient: Collection[str] = ("yes",),
) -> int:
    """Show what there is to do for datasets, do what can be done, and end with one command for the rest.

    Args:
        by_name: Datasets by the name that the user gave.
        options: Settings of all of them.
        yes: Whether nothing is asked before a large download.
        sufficient: States in which a dataset stays as it is.

    Returns:
        Number of datasets that are not prepared.

    Raises:
        MedTasksError: There is no terminal to ask at before a large download.
    """
    named = {info.name: info for info in itertools.chain.from_iterable(by_name.values())}
    if not named:
        return 0
    # A part is made of a whole one.
    infos = sorted(named.values(), key=lambda info: bool(info.part_of))
    lacking = infos
    if not options.source:
        lacking = [info for info in infos if prepared_state(info.name) not in sufficient]
    _print_to_do(infos, lacking, options)
    options = _with_login(lacking, options)
    downloads = _downloads(lacking, options)
    if downloads and not options.source:
        _confirm(downloads, yes=yes)
    failed = _prepare_each(lacking, options)
    if failed:
        say(
            f"For the rest (words in capitals are yours to replace):\n{_command_for(by_name, failed, options)}"
        )
    return len(failed)


def _print_to_do(
    infos: DatasetInfos,
    lacking: DatasetInfos,
    options: Options,
) -> None:
    """Print state and size of datasets, and what there is to do for those that are lacking."""
    rows = [("dataset", "prepared", "access", "size", "to do")]
    for info in infos:
        to_do = "nothing"
        if info in lacking:
            to_do = "read --source" if options.source else str(obtaining(info))
        size = "not stated" if info.size is None else f"{info.size:,.1f} MB"
        rows.append((info.name, prepared_state(info.name), str(info.access), size, to_do))
    say_columns(rows)


def _with_login(infos: DatasetInfos, options: Options) -> Options:
    """Add a PhysioNet login if a dataset needs one: the stored one, or one that is typed at a terminal."""
    if options.source or Obtaining.LOGIN not in map(obtaining, infos):
        return options
    login = stored_login()
    if login is None and sys.stdin.isatty():
        user = typer.prompt(
            "PhysioNet user name (empty: without its datasets)", default="", show_default=False
        )
        login = login_of(user, getpass("PhysioNet password: ")) if user else None
    return replace(options, login=login)


def _downloads(infos: DatasetInfos, options: Options) -> list[DatasetInfo]:
    """Return the published datasets whose files are downloaded for others or themselves, each once."""
    downloaded = [Obtaining.DOWNLOAD]
    if options.login:
        downloaded.append(Obtaining.LOGIN)
    downloads = {}
    for info in infos:
        whole = CATALOGUE.get(info.part_of or info.name, info)
        if obtaining(info) in downloaded and (
            whole is info or prepared_state(whole.name) == "no"
        ):
            downloads[whole.name] = whole
    return list(downloads.values())


def _confirm(downloads: DatasetInfos, *, yes: bool) -> None:
    """Ask before a large download, or one of images of unstated size.

    Raises:
        MedTasksError: There is no terminal to ask at.
    """
    amount = total_size(downloads)
    say(f"To download: {amount}")
    is_large = sum(info.size or 0.0 for info in downloads) > _ASKED_ABOVE_MB
    is_unknown = any(info.size is None and info.images != 0 for info in downloads)
    if yes or not (is_large or is_unknown):
        return
    if not sys.stdin.isatty():
        raise MedTasksError(
            f"nobody can be asked here whether to download {amount}; add --yes to do so"
        )
    typer.confirm("Download?", abort=True)


def _prepare_each(infos: DatasetInfos, options: Options) -> list[DatasetInfo]:
    """Prepare datasets one by one. Print why some cannot be prepared, and return these."""
    has_several_sources = len({info.source for info in infos}) > 1
    failed = []
    for info in infos:
        # Published files of several sources have equal names. Without a number of rows, one passes for another.
        is_ambiguous = has_several_sources and (info.rows is None or options.allow_incomplete)
        try:
            copy = _source_of(info, options.source, is_ambiguous=is_ambiguous)
            _prepare_one(info, replace(options, source=copy))
        except (MedTasksError, OSError) as error:
            failed.append(info)
            say(f"not prepared: {info.name}: {error}")
    return failed


def _command_for(
    by_name: Mapping[str, DatasetInfos],
    failed: DatasetInfos,
    options: Options,
) -> str:
    """Return one command line for datasets that are not prepared. Words in capitals are for the user to replace."""
    retried = [info.name for info in failed if obtaining(info) is not Obtaining.COPY]
    commands: dict[str, None] = {}
    if retried:
        commands[" ".join(["medtasks data prepare", *retried])] = None
    for name, infos in by_name.items():
        copies = [info for info in infos if info in failed and info.name not in retried]
        commands |= dict.fromkeys(_copy_commands(name, infos, copies))
    ending = " --allow-incomplete" if options.allow_incomplete else ""
    return " && \\\n".join(command + ending for command in commands)


def _copy_commands(
    name: str,
    infos: DatasetInfos,
    copies: DatasetInfos,
) -> list[str]:
    """Return the commands that prepare datasets from copies, or one for a group that is read from a single source."""
    # All datasets of the name are copies, there are several, and they have one source.
    if len(copies) == len(infos) > len({info.source for info in infos}) == 1:
        arguments = dict.fromkeys(itertools.chain.from_iterable(map(copy_arguments, copies)))
        return [" ".join(["medtasks data prepare", name, *arguments])]
    return [" ".join([preparing_again(info.name), *copy_arguments(info)]) for info in copies]


def _source_of(info: DatasetInfo, source: Path | None, *, is_ambiguous: bool) -> Path | None:
    """Return the folder from which a dataset is read.

    Args:
        info: The dataset.
        source: Folder of ``--source``; None without the option.
        is_ambiguous: Whether files of other datasets could pass for those of this one.

    Returns:
        The folder of the dataset's name in ``source``, else ``source`` itself; None without ``source``.

    Raises:
        SourceError: There is no such folder, and ``source`` itself is ambiguous.
    """
    if source is None:
        return None
    folder = source / (info.part_of or info.name)
    if folder.is_dir():
        return folder
    if is_ambiguous:
        raise SourceError(f"its files are to be in {folder}")
    return source


# ---- one dataset ----


def _prepare_one(info: DatasetInfo, options: Options) -> None:
    """Prepare a published dataset, or one of the user's own again."""
    if info.name not in CATALOGUE:
        _prepare_again(info, options.source, options.allow_incomplete)
        return
    if info.name.startswith(MEDHEVAL) and options.source is not None:
        for count in preflight(info, options):
            total = len(count.found) + len(count.missing)
            line = f"images of {IMAGE_SOURCES[count.source].title}: {len(count.found)} of {total} found"
            if count.missing:
                line += f", {len(count.missing)} missing"
            say(line)
    report_prepared(prepare_dataset.prepare(info.name, options))


def say_how_to_publish(manifest: Manifest) -> None:
    """Print the command that writes a dataset for others, unless only the user may see it."""
    if manifest.access != Access.CREDENTIALED:
        say(f"For others: medtasks data publish {manifest.name} --out FOLDER --licence LICENCE")


def _prepare_again(info: DatasetInfo, source: Path | None, allow_incomplete: bool) -> None:
    """Prepare one of the user's own datasets again.

    Args:
        info: The dataset.
        source: New location of its files; None if they are where they were.
        allow_incomplete: Whether questions without their images are left out.

    Raises:
        MedTasksError: It is made by another command, or its files are not there.
    """
    command = preparing_again(info.name)
    whole = part_of(info.name)
    if whole is not None:
        raise MedTasksError(
            f"'{info.name}' is a part of '{whole}'; make it again with '{command}'"
        )
    if study_of(info.name) is not None:
        raise MedTasksError(
            f"'{info.name}' was published from a study; publish it again with '{command}'"
        )
    folder = source or Path(info.source)
    if not folder.is_dir():
        raise MedTasksError(
            f"'{info.name}' came from {folder}, which is not there; give its new location with --source"
        )
    report_prepared(
        prepare_own(
            folder, info.name, info.access, allow_incomplete=allow_incomplete, again=True
        )
    )


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
