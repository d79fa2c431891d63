"""Checks of task names and files, of prepared data, of the Hub's token, and of who may see replies and records.

Of two tasks with one name the harness silently takes the first.
"""

import os
import shlex
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.dataset_lookup import (
    own_datasets,
    prepared_folder,
    prepared_state,
    preparing_again,
)
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import open_documents
from medtasks.data.privacy import access_of, is_private
from medtasks.data.schema import SPLIT
from medtasks.doctor.check_results import (
    CREDENTIALS,
    DATASETS,
    TASKS,
    CheckResult,
    Findings,
    Scope,
    findings_of,
)
from medtasks.errors import MedTasksError, ModelRefused, join_names, near_match
from medtasks.home import (
    dataset_folder,
    datasets_folder,
    home,
    open_to_others,
    own_tasks_folder,
)
from medtasks.lmms.remote_models import (
    TRUSTED,
    Destination,
    credentialed_datasets,
    refusal,
    trusted_model,
)
from medtasks.net.journal import FOLDER_NAME
from medtasks.runs.logged_samples import FOLDER_NAME as REPLIES
from medtasks.tasks.documents import task_documents, task_problems, unknown_keys
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_files
from medtasks.tasks.task_index import harness_folder, index_tasks

_HUB = "https://huggingface.co/datasets/"  # beginning of a dataset's address


def names(scope: Scope) -> Findings:
    """Check that names are unique: no task of the harness or the user has a name of ours. Check that other names exist.

    Args:
        scope: Names that the user gave, or all of ours.
    """
    ours = set[str]()
    for task in task_files().values():
        ours.update((task.name, *task.tags))
    checked = ours
    if scope.has_names:
        checked = (ours & {*scope.names}) | {task.name for task in scope.tasks}
    harness = harness_folder()
    harness_names = _harness_names(filter(None, [harness]))
    is_taken = False
    for name, path in harness_names.items():
        if name not in checked:
            continue
        is_taken = True
        yield TASKS.problem(
            name,
            f"'{name}' is a name of lmms-eval's own tasks, too, and the harness takes {path}",
            f"rename it in {path}, or where medtasks has it",
        )
    if harness is None:
        fix = "pip install --force-reinstall lmms_eval"
        yield TASKS.problem("names", "lmms-eval has no folder of tasks", fix)
    else:
        yield from _repeated_names()
        if not is_taken:
            sentence = f"no task of lmms-eval has one of the names of ours ({len(checked)})"
            yield TASKS.ok("names", sentence)
    yield from _foreign_names(scope.foreign, harness_names, ours)


def _foreign_names(
    foreign: Iterable[str],
    harness_names: Container[str],
    ours: Iterable[str],
) -> Findings:
    """Check that names that are not ours are those of tasks of lmms-eval.

    Args:
        foreign: The names.
        harness_names: Names of the tasks of lmms-eval.
        ours: Names of ours, one of which the user may have misspelt.
    """
    for name in foreign:
        if name in harness_names:
            yield TASKS.note(
                name,
                f"'{name}' is a task of lmms-eval itself, whose data and metrics are not looked at",
                f"try it: lmms_eval --tasks {name} --limit 1",
            )
        else:
            hint = near_match(name, sorted(ours))
            sentence = f"there is no task '{name}', neither here nor in lmms-eval{hint}"
            yield TASKS.problem(name, sentence, "medtasks tasks lists ours")


def _repeated_names() -> Findings:
    """Check that no task of the user has a name that comes with the package."""
    shipped = set[str]()
    for task in task_files().values():
        if task.is_shipped:
            shipped.update((task.name, *task.tags))
    for name, path in index_tasks([own_tasks_folder()]).paths.items():
        if name in shipped:
            yield TASKS.problem(
                name,
                f"'{name}' is a name of medtasks, too, and the harness does not take {path}",
                f"rename it in {path}",
            )


def _harness_names(folders: Iterable[Path]) -> dict[str, Path]:
    """Return the files of tasks, groups and tags, as the harness indexes them."""
    index = index_tasks(folders)
    paths: dict[str, Path] = {}
    for tag, members in index.members.items():
        for task in members:
            # A task that is a Python class has no tags.
            if task in index.configs and "class" not in index.configs[task]:
                paths.setdefault(tag, index.paths[task])
    return {**paths, **index.paths}


def own_tasks(scope: Scope) -> Findings:
    """Check the files of the user's own tasks, their hooks, rules, metrics and first prompt, and their samples."""

    def check(task: TaskFile) -> Findings:
        """Yield a warning for each unknown key, then the problems that would stop a run, or that there are none."""
        for key in unknown_keys(task):
            yield TASKS.warning(
                task.name,
                f"the task file {task.path} has a key '{key}' that lmms-eval 0.7.3 does not know",
                "correct it, or remove it",
            )
        problems = list(task_problems(task))
        for problem in problems:
            yield TASKS.result_of_error(
                task.name, MedTasksError(problem), f"correct {task.path}"
            )
        if not problems:
            sentence = f"hooks, rules and the first prompt of '{task.name}' are in order"
            if not (task.dataset or task.only_harness):
                sentence += f"; all {len(task_documents(task))} samples can be asked"
            yield TASKS.ok(task.name, sentence)

    for task in scope.tasks:
        if task.kind == "task" and not task.is_shipped:
            yield from findings_of(TASKS, task.name, partial(check, task))


def prepared_data(scope: Scope, *, verify: bool) -> Findings:
    """Check the datasets of the chosen tasks, or without tasks those prepared.

    Args:
        scope: The tasks.
        verify: Whether files are compared with the manifests.
    """
    here = [name for name in scope.datasets if prepared_state(name) != "no"]
    for name in scope.datasets if scope.has_names else here:
        yield from findings_of(DATASETS, name, partial(_dataset, name, verify=verify))
    if not scope.has_names:
        lacking = len(scope.datasets) - len(here)
        sentence = f"of {len(scope.datasets)} datasets {lacking} are not prepared in {datasets_folder()}"
        if lacking:
            yield DATASETS.note(
                "not prepared",
                sentence,
                "medtasks data prepare NAME, with a name of medtasks data list",
            )
        else:
            yield DATASETS.ok("not prepared", sentence)


def _dataset(name: str, *, verify: bool) -> Findings:
    """Check that a dataset is prepared, the whole published one, and undamaged if ``verify`` is set."""
    command = _prepare_command(name)
    try:
        prepared_folder(name)
    except MedTasksError as error:
        finding = DATASETS.result_of_error(name, error)
        yield replace(finding, fix=command) if name in CATALOGUE else finding
        return
    try:
        manifest = Manifest.read(dataset_folder(name))
        if manifest.selected_from:
            prepared_folder(manifest.selected_from)  # where the images are
        rows = len(open_documents(name)[SPLIT])
    except MedTasksError as error:
        yield DATASETS.result_of_error(name, error, command)
        return
    if rows != manifest.rows:
        sentence = f"'{name}' holds {rows} questions, and its manifest says {manifest.rows}"
        yield DATASETS.problem(name, sentence, command)
        return
    yield _soundness(name, manifest, verify=verify)


def _soundness(name: str, manifest: Manifest, *, verify: bool) -> CheckResult:
    """Return whether a prepared dataset is sound: real data, complete, and undamaged if ``verify`` is set."""
    from medtasks.data.prepare.prepare_dataset import verify as differences

    command = _prepare_command(name)
    problems = list(differences(name)) if verify else []
    how = "verified" if verify else "prepared"
    what = f"'{name}' is {how}: {manifest.rows} questions, {manifest.images} images, fingerprint {manifest.fingerprint}"
    if problems:
        count = "1 difference" if len(problems) == 1 else f"{len(problems)} differences"
        sentence = f"'{name}' is damaged, {count} from what was prepared{_first_notes(name, problems, ': {}')}"
        return DATASETS.problem(name, sentence, command)
    if manifest.sample:
        sentence = (
            f"'{name}' is the synthetic sample, on which scores say nothing about a model"
        )
        return DATASETS.warning(name, sentence, command)
    if not manifest.complete:
        sentence = f"{what}, but incomplete{_first_notes(name, manifest.left_out, ' ({})')}"
        return DATASETS.warning(name, sentence, command)
    return DATASETS.ok(name, what)


def _first_notes(
    dataset: str,
    notes: Sequence[str],
    form: str,
) -> str:
    """Quote up to two notes in a form, but none of a private dataset, as file names may be patients'."""
    if not notes or is_private(dataset):
        return ""
    text = "; ".join(notes[:2])
    return form.format(f"{text} ..." if len(notes) > 2 else text)


def _prepare_command(name: str) -> str:
    """Return the advice for preparing a dataset."""
    info = CATALOGUE.get(name)
    if info is None or info.access is Access.PUBLIC:
        return preparing_again(name)
    if info.access is Access.GATED and info.source.startswith(_HUB):
        command = f"medtasks data prepare {name} (--source DIR if you have a copy)"
        return f"accept the terms on {info.source}, then: {command}"
    return f"medtasks data prepare {name} --source DIR, with the data from {info.source}"


def hub_token(scope: Scope) -> Findings:
    """Check that there is a token for the Hugging Face Hub, if one is needed.

    Args:
        scope: The tasks. A token is needed if one of their datasets is not prepared, and can only be downloaded with
            it.
    """
    sources = set()
    for name in scope.datasets:
        info = CATALOGUE.get(name)
        if info is None or info.access is not Access.GATED or not info.source.startswith(_HUB):
            continue
        if prepared_state(name) == "no":
            sources.add(info.source)
    if not sources:
        return
    from huggingface_hub import get_token

    if get_token():
        yield CREDENTIALS.ok(
            "Hub token", "there is a token for the Hugging Face Hub (not shown)"
        )
        return
    pages = ", ".join(sorted(sources))
    sentence = f"there is no token for the Hugging Face Hub, which asks for one before it gives {pages}"
    fix = "accept the terms on these pages, then: hf auth login"
    yield CheckResult(CREDENTIALS, "Hub token", scope.state, sentence, fix)


def readable_replies() -> Findings:
    """Check that other users cannot read saved replies, journals and credentialed data, which may quote a patient."""
    mode = home().stat().st_mode & 0o777 if home().is_dir() else 0
    if mode & 0o077:
        yield CREDENTIALS.note(
            "data folder",
            f"{home()} has the mode {mode:o}, so that others may list what is in it",
            f"chmod go= {shlex.quote(str(home()))}, if no group shares it",
        )
    folders = [home() / REPLIES, home() / FOLDER_NAME]
    for name in (*CATALOGUE, *own_datasets()):
        if access_of(name) is Access.CREDENTIALED:
            folders.append(dataset_folder(name))
    for folder in folders:
        if folder.is_dir() and open_to_others(folder):
            yield CREDENTIALS.warning(
                folder.name,
                f"other users of this machine can read files in {folder}, which may quote patients' records",
                f"chmod -R go= {shlex.quote(str(folder))}",
            )
        elif folder.is_dir():
            yield CREDENTIALS.ok(folder.name, f"{folder} can be read by its owner alone")


def remote_models(scope: Scope) -> Findings:
    """Check where the environment lets credentialed text go. A run checks its own model."""
    private = credentialed_datasets(scope.datasets)
    if not private:
        return
    try:
        trusted = trusted_model(os.environ)
    except ModelRefused as error:
        yield CREDENTIALS.result_of_error(TRUSTED, error)
        return
    if trusted:
        yield CREDENTIALS.note(
            TRUSTED,
            f"the model {trusted}, which {TRUSTED} names, may see credentialed data ({join_names(private)})",
            f"unset {TRUSTED} if no data use agreement covers it",
        )
    if cause := refusal(Destination("http://127.0.0.1"), os.environ):
        destination, _, fix = cause.partition("; ")
        unsent = f"text of credentialed data ({join_names(private)}) is not sent {destination}"
        yield CheckResult(
            CREDENTIALS,
            "remote models",
            scope.state,
            f"{unsent}: no model on this machine gets it",
            fix,
        )
