"""The Hub's token, and who else can read what models said of patients."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from medtasks.audit.doctor.findings import CREDENTIALS, Finding, State
from medtasks.audit.doctor.scope import Scope
from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_info import Access
from medtasks.data.home import dataset_folder, home
from medtasks.data.manifest import FILE_NAME
from medtasks.harness.saved_replies import FOLDER_NAME as REPLIES

_JOURNAL = "journal"  # FOLDER_NAME of medtasks.model_adapters.journal
HUB = "https://huggingface.co/datasets/"
"""How addresses of datasets on the Hub begin."""


def hub_token(scope: Scope) -> Iterator[Finding]:
    """Look for a token where a dataset that is still to be prepared can only be downloaded with one."""
    infos = [CATALOGUE[name] for name in scope.datasets if name in CATALOGUE]
    gated = [
        info
        for info in infos
        if info.access is Access.GATED
        and info.source.startswith(HUB)
        and not (dataset_folder(info.name) / FILE_NAME).is_file()
    ]
    if not gated:
        return
    from huggingface_hub import get_token

    if get_token():
        yield CREDENTIALS.ok("Hub token", "there is a token for the Hugging Face Hub (not shown)")
        return
    sources = sorted({info.source for info in gated})
    found = f"there is no token for the Hugging Face Hub, which asks for one before it gives {', '.join(sources)}"
    state = State.WARNING if scope.chosen else State.NOTE
    fix = "accept the terms on these pages, then: hf auth login"
    yield Finding(CREDENTIALS, "Hub token", state, found, fix)


def readable_replies() -> Iterator[Finding]:
    """Look at whether other users can read saved replies and journals, which may quote a patient's record."""
    for name in (REPLIES, _JOURNAL):
        folder = home() / name
        if not folder.is_dir():
            continue
        if _open_to_others(folder):
            found = f"other users of this machine can read files in {folder}, which may quote patients' records"
            yield CREDENTIALS.warning(name, found, f"chmod -R go= '{folder}'")
        else:
            yield CREDENTIALS.ok(name, f"{folder} can be read by its owner alone")


def _open_to_others(folder: Path) -> bool:
    """Return whether the group or all others may open a file somewhere below a folder, by permission bits alone."""
    return any(
        _passes(folder, enter) and _holds_readable(folder, enter, read)
        for enter, read in ((stat.S_IXGRP, stat.S_IRGRP), (stat.S_IXOTH, stat.S_IROTH))
    )


def _passes(folder: Path, enter: int) -> bool:
    return all(one.stat().st_mode & enter for one in (folder, *folder.resolve().parents))


def _holds_readable(folder: Path, enter: int, read: int) -> bool:
    with os.scandir(folder) as entries:
        for entry in entries:
            mode = entry.stat(follow_symlinks=False).st_mode
            if entry.is_dir(follow_symlinks=False):
                if mode & enter and _holds_readable(Path(entry.path), enter, read):
                    return True
            elif stat.S_ISREG(mode) and mode & read:
                return True
    return False
