"""The Hub's token, who else can read what models said of patients, and where credentialed text may go."""

import os
import shlex
from collections.abc import Iterator

from medtasks.audit.doctor.findings import CREDENTIALS, Finding, State, of_error
from medtasks.audit.doctor.scope import Scope
from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.dataset_manifest import FILE_NAME
from medtasks.data.own_datasets import access_of, own_datasets
from medtasks.errors import ModelRefused, listed
from medtasks.home import dataset_folder, home, open_to_others
from medtasks.lmms.remote_models import TRUSTED, Destination, credentialed, refusal, trusted_model
from medtasks.net.journal import FOLDER_NAME
from medtasks.runs.logged_samples import FOLDER_NAME as REPLIES

HUB = "https://huggingface.co/datasets/"  # how addresses of datasets there begin


def hub_token(scope: Scope) -> Iterator[Finding]:
    """Look for a token where a dataset that is still to be prepared can only be downloaded with one."""
    infos = (CATALOGUE[name] for name in scope.datasets if name in CATALOGUE)
    gated = (info for info in infos if info.access is Access.GATED and info.source.startswith(HUB))
    sources = sorted({info.source for info in gated if not (dataset_folder(info.name) / FILE_NAME).is_file()})
    if not sources:
        return
    from huggingface_hub import get_token

    if get_token():
        yield CREDENTIALS.ok("Hub token", "there is a token for the Hugging Face Hub (not shown)")
        return
    found = f"there is no token for the Hugging Face Hub, which asks for one before it gives {', '.join(sources)}"
    fix = "accept the terms on these pages, then: hf auth login"
    yield Finding(CREDENTIALS, "Hub token", scope.state, found, fix)


def readable_replies() -> Iterator[Finding]:
    """Look at whether other users can read saved replies, journals and credentialed data, which may quote a patient."""
    private = (name for name in (*CATALOGUE, *own_datasets()) if access_of(name) is Access.CREDENTIALED)
    for folder in (home() / REPLIES, home() / FOLDER_NAME, *map(dataset_folder, private)):
        if folder.is_dir() and open_to_others(folder):
            found = f"other users of this machine can read files in {folder}, which may quote patients' records"
            yield CREDENTIALS.warning(folder.name, found, f"chmod -R go= {shlex.quote(str(folder))}")
        elif folder.is_dir():
            yield CREDENTIALS.ok(folder.name, f"{folder} can be read by its owner alone")


def remote_models(scope: Scope) -> Iterator[Finding]:
    """Check where credentialed text may go as the environment stands; a run checks its own model."""
    private = credentialed(scope.datasets)
    if not private:
        return
    try:
        trusted = trusted_model(os.environ)
    except ModelRefused as error:
        yield of_error(CREDENTIALS, TRUSTED, State.PROBLEM, error)
        return
    if trusted:
        found = f"the model {trusted}, which {TRUSTED} names, may see credentialed data ({listed(private)})"
        yield CREDENTIALS.note(TRUSTED, found, f"unset {TRUSTED} if no data use agreement covers it")
    if cause := refusal(Destination("http://127.0.0.1"), os.environ):
        where, _, fix = cause.partition("; ")
        found = f"text of credentialed data ({listed(private)}) is not sent {where}: no model on this machine gets it"
        yield Finding(CREDENTIALS, "remote models", scope.state, found, fix)
