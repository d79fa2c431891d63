"""Prepared data: by default what a look at the manifest and the number of rows tells, on request everything."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from medtasks.audit.doctor.credentials import HUB
from medtasks.audit.doctor.findings import DATASETS, Finding, State, findings_of, of_error
from medtasks.audit.doctor.scope import Scope
from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.dataset_lookup import prepared_folder
from medtasks.data.dataset_manifest import FILE_NAME, Manifest
from medtasks.data.document_store import open_documents
from medtasks.data.own_datasets import preparing_again
from medtasks.data.privacy import is_private
from medtasks.data.schema import SPLIT
from medtasks.errors import MedTasksError
from medtasks.home import dataset_folder, datasets_folder

_SHOWN = 2


def prepared_data(scope: Scope, *, verify: bool) -> Iterator[Finding]:
    """Look at the datasets of the chosen tasks; without tasks, at those that are prepared.

    To ``verify``, read everything and compare it with the manifest, as ``medtasks data verify`` does.
    """
    here = [name for name in scope.datasets if (dataset_folder(name) / FILE_NAME).is_file()]
    for name in scope.datasets if scope.chosen else here:
        check = partial(_dataset, name, verify=verify) if name in here else partial(_missing, name)
        yield from findings_of(DATASETS, name, check)
    if not scope.chosen:
        lacking = len(scope.datasets) - len(here)
        found = f"of {len(scope.datasets)} datasets {lacking} are not prepared in {datasets_folder()}"
        fix = "medtasks data prepare NAME, with a name of medtasks data list" if lacking else ""
        yield Finding(DATASETS, "not prepared", State.NOTE if lacking else State.OK, found, fix)


def _missing(name: str) -> Iterator[Finding]:
    try:
        prepared_folder(name)
    except MedTasksError as error:
        finding = of_error(DATASETS, name, State.PROBLEM, error)
        yield replace(finding, fix=_command(name)) if name in CATALOGUE else finding


def _command(name: str) -> str:
    """Return the command that prepares a dataset again, as far as it can be known."""
    info = CATALOGUE.get(name)
    if info is None or info.access is Access.PUBLIC:
        return preparing_again(name)
    if info.access is Access.GATED and info.source.startswith(HUB):
        return (
            f"accept the terms on {info.source}, then: medtasks data prepare {name} (--source DIR if you have a copy)"
        )
    return f"medtasks data prepare {name} --source DIR, with the data from {info.source}"


def _dataset(name: str, *, verify: bool) -> Iterator[Finding]:
    from medtasks.data.prepare.prepare_dataset import verify as differences

    again = _command(name)
    try:
        manifest = Manifest.read(dataset_folder(name))
        if manifest.selected_from:
            prepared_folder(manifest.selected_from)  # where the images are
        rows = len(open_documents(name)[SPLIT])
    except MedTasksError as error:
        yield of_error(DATASETS, name, State.PROBLEM, error, again)
        return
    how = "verified" if verify else "prepared"
    what = f"'{name}' is {how}: {manifest.rows} questions, {manifest.images} images, fingerprint {manifest.fingerprint}"
    if rows != manifest.rows:
        found = f"'{name}' holds {rows} questions, and its manifest says {manifest.rows}"
        yield DATASETS.problem(name, found, again)
    elif problems := list(differences(name)) if verify else []:
        count = "1 difference" if len(problems) == 1 else f"{len(problems)} differences"
        found = f"'{name}' is damaged, {count} from what was prepared{_few(name, ': {}', problems)}"
        yield DATASETS.problem(name, found, again)
    elif manifest.sample:
        yield DATASETS.warning(name, f"'{name}' is the drawn sample, on which scores say nothing about a model", again)
    elif not manifest.complete:
        yield DATASETS.warning(name, f"{what}, but incomplete{_few(name, ' ({})', manifest.left_out)}", again)
    else:
        yield DATASETS.ok(name, what)


def _few(name: str, form: str, notes: Sequence[str]) -> str:
    """Return the first notes in a form; none of a private dataset, where names of files may be patients'."""
    if not notes or is_private(name):
        return ""
    return form.format("; ".join(notes[:_SHOWN]) + (" ..." if len(notes) > _SHOWN else ""))
