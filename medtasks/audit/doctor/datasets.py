"""Checks of prepared data, the Hub's token, and access of others to replies and patients' records."""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from medtasks.audit.doctor.check_results import CREDENTIALS, DATASETS, CheckResult, Scope, State, findings_of, of_error
from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.dataset_lookup import own_datasets, prepared_folder, preparing_again
from medtasks.data.dataset_manifest import FILE_NAME, Manifest
from medtasks.data.document_store import open_documents
from medtasks.data.privacy import access_of, is_private
from medtasks.data.schema import SPLIT
from medtasks.errors import MedTasksError, ModelRefused, listed
from medtasks.home import dataset_folder, datasets_folder, home, open_to_others
from medtasks.lmms.remote_models import TRUSTED, Destination, credentialed, refusal, trusted_model
from medtasks.net.journal import FOLDER_NAME
from medtasks.runs.logged_samples import FOLDER_NAME as REPLIES

_SHOWN = 2


def prepared_data(scope: Scope, *, verify: bool) -> Iterator[CheckResult]:
    """Check the datasets of the chosen tasks; without tasks, those that are prepared.

    To ``verify``, read everything and compare it with the manifest, as ``medtasks data verify`` does.
    """
    here = [name for name in scope.datasets if (dataset_folder(name) / FILE_NAME).is_file()]
    for name in scope.datasets if scope.chosen else here:
        yield from findings_of(DATASETS, name, partial(_dataset, name, verify=verify))
    if not scope.chosen:
        lacking = len(scope.datasets) - len(here)
        sentence = f"of {len(scope.datasets)} datasets {lacking} are not prepared in {datasets_folder()}"
        fix = "medtasks data prepare NAME, with a name of medtasks data list" if lacking else ""
        yield CheckResult(DATASETS, "not prepared", State.NOTE if lacking else State.OK, sentence, fix)


def _command(name: str) -> str:
    """Return the command that prepares a dataset again."""
    info = CATALOGUE.get(name)
    if info is None or info.access is Access.PUBLIC:
        return preparing_again(name)
    if info.access is Access.GATED and info.source.startswith(HUB):
        return (
            f"accept the terms on {info.source}, then: medtasks data prepare {name} (--source DIR if you have a copy)"
        )
    return f"medtasks data prepare {name} --source DIR, with the data from {info.source}"


def _dataset(name: str, *, verify: bool) -> Iterator[CheckResult]:
    from medtasks.data.prepare.prepare_dataset import verify as differences

    try:
        prepared_folder(name)
    except MedTasksError as error:
        finding = of_error(DATASETS, name, State.PROBLEM, error)
        yield replace(finding, fix=_command(name)) if name in CATALOGUE else finding
        return
    command = _command(name)
    try:
        manifest = Manifest.read(dataset_folder(name))
        if manifest.selected_from:
            prepared_folder(manifest.selected_from)  # where the images are
        rows = len(open_documents(name)[SPLIT])
    except MedTasksError as error:
        yield of_error(DATASETS, name, State.PROBLEM, error, command)
        return
    how = "verified" if verify else "prepared"
    what = f"'{name}' is {how}: {manifest.rows} questions, {manifest.images} images, fingerprint {manifest.fingerprint}"
    if rows != manifest.rows:
        sentence = f"'{name}' holds {rows} questions, and its manifest says {manifest.rows}"
        yield DATASETS.problem(name, sentence, command)
    elif problems := list(differences(name)) if verify else []:
        count = "1 difference" if len(problems) == 1 else f"{len(problems)} differences"
        sentence = f"'{name}' is damaged, {count} from what was prepared{_few(name, ': {}', problems)}"
        yield DATASETS.problem(name, sentence, command)
    elif manifest.sample:
        yield DATASETS.warning(
            name, f"'{name}' is the drawn sample, on which scores say nothing about a model", command
        )
    elif not manifest.complete:
        yield DATASETS.warning(name, f"{what}, but incomplete{_few(name, ' ({})', manifest.left_out)}", command)
    else:
        yield DATASETS.ok(name, what)


def _few(name: str, form: str, notes: Sequence[str]) -> str:
    """Format the first notes; none for a private dataset, whose file names may be patients'."""
    if not notes or is_private(name):
        return ""
    return form.format("; ".join(notes[:_SHOWN]) + (" ..." if len(notes) > _SHOWN else ""))


HUB = "https://huggingface.co/datasets/"  # of addresses of datasets


def hub_token(scope: Scope) -> Iterator[CheckResult]:
    """Check that there is a token, if a dataset that is not prepared can only be downloaded with one."""
    infos = (CATALOGUE[name] for name in scope.datasets if name in CATALOGUE)
    gated = (info for info in infos if info.access is Access.GATED and info.source.startswith(HUB))
    sources = sorted({info.source for info in gated if not (dataset_folder(info.name) / FILE_NAME).is_file()})
    if not sources:
        return
    from huggingface_hub import get_token

    if get_token():
        yield CREDENTIALS.ok("Hub token", "there is a token for the Hugging Face Hub (not shown)")
        return
    sentence = f"there is no token for the Hugging Face Hub, which asks for one before it gives {', '.join(sources)}"
    fix = "accept the terms on these pages, then: hf auth login"
    yield CheckResult(CREDENTIALS, "Hub token", scope.state, sentence, fix)


def readable_replies() -> Iterator[CheckResult]:
    """Check that other users cannot read saved replies, journals and credentialed data, which may quote a patient."""
    private = (name for name in (*CATALOGUE, *own_datasets()) if access_of(name) is Access.CREDENTIALED)
    for folder in (home() / REPLIES, home() / FOLDER_NAME, *map(dataset_folder, private)):
        if folder.is_dir() and open_to_others(folder):
            sentence = f"other users of this machine can read files in {folder}, which may quote patients' records"
            yield CREDENTIALS.warning(folder.name, sentence, f"chmod -R go= {shlex.quote(str(folder))}")
        elif folder.is_dir():
            yield CREDENTIALS.ok(folder.name, f"{folder} can be read by its owner alone")


def remote_models(scope: Scope) -> Iterator[CheckResult]:
    """Check where the environment lets credentialed text go; a run checks its own model."""
    private = credentialed(scope.datasets)
    if not private:
        return
    try:
        trusted = trusted_model(os.environ)
    except ModelRefused as error:
        yield of_error(CREDENTIALS, TRUSTED, State.PROBLEM, error)
        return
    if trusted:
        sentence = f"the model {trusted}, which {TRUSTED} names, may see credentialed data ({listed(private)})"
        yield CREDENTIALS.note(TRUSTED, sentence, f"unset {TRUSTED} if no data use agreement covers it")
    if cause := refusal(Destination("http://127.0.0.1"), os.environ):
        where, _, fix = cause.partition("; ")
        sentence = (
            f"text of credentialed data ({listed(private)}) is not sent {where}: no model on this machine gets it"
        )
        yield CheckResult(CREDENTIALS, "remote models", scope.state, sentence, fix)
