"""Weight files of neural metrics.

They are in ``$MEDTASKS_HOME/weights/NAME``, which ``medtasks weights fetch NAME`` fills, or in
``$MEDTASKS_WEIGHTS/NAME``: a folder of the same layout that is searched first and never downloaded to, for weights
that several users share or that were copied to a machine without network. Only :func:`fetch` downloads, and
:func:`weights_path` if the user names a repository on the Hub.
"""

import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from medtasks.errors import MedTasksError, WeightsMissing, unknown_name
from medtasks.home import home, packaged_facts, written_whole

if TYPE_CHECKING:
    import torch

WEIGHTS_VARIABLE = "MEDTASKS_WEIGHTS"
CONVERTED = ".safetensors"  # ending of a conversion, next to the published file
_HUB = "https://huggingface.co"
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+(?<!\.pth)(?<!\.gz)(?<!\.safetensors)")  # owner/name, and no file


@dataclass(frozen=True)
class WeightsInfo:
    """Files of a metric in one repository on the Hugging Face Hub."""

    name: str
    description: str
    hub: str
    files: tuple[str, ...]  # of the repository; may be patterns of fnmatch
    size: float  # of the download, in megabytes (10^6 bytes)
    licence: str  # as stated by the source

    @property
    def source(self) -> str:
        """Address of the repository."""
        return f"{_HUB}/{self.hub}"


WEIGHTS: Mapping[str, WeightsInfo] = {
    name: WeightsInfo(name, **{**facts, "files": tuple(facts["files"])})
    for name, facts in packaged_facts(__package__, "weight_files").items()
}


def weights_info(name: str) -> WeightsInfo:
    """Return one entry, or raise UnknownName."""
    if name not in WEIGHTS:
        raise unknown_name("weights", name, WEIGHTS)
    return WEIGHTS[name]


def weights_folder(name: str) -> Path:
    """Return the folder ``medtasks weights fetch`` fills for ``name``, whether or not it exists."""
    return home() / "weights" / weights_info(name).name


def _shared_folder(name: str) -> Path | None:
    shared = os.environ.get(WEIGHTS_VARIABLE)
    return Path(shared).expanduser().absolute() / weights_info(name).name if shared else None


def complete_in(info: WeightsInfo, folder: Path) -> Path | None:
    """Return the path in ``folder`` for a metric to open, a conversion first; None if files are missing."""
    if len(info.files) == 1:
        published = folder / info.files[0]
        converted = published.with_suffix(CONVERTED)
        return next((path for path in (converted, published) if path.is_file()), None)
    required = [name for name in info.files if name == "config.json" or name.endswith(".safetensors")]
    return folder if all((folder / name).is_file() for name in required) else None


def weights_path(name: str, chosen: Path | None = None) -> Path:
    """Find weights on this machine, or raise WeightsMissing with the command that fetches them.

    ``chosen`` is a file or folder, or a repository on the Hub with files of the same names (``owner/name``), which is
    downloaded once. The default is the fetched file of an entry with a single file, else its folder. A conversion to
    safetensors takes precedence over the published file.
    """
    info = weights_info(name)
    if chosen is not None and chosen.exists():
        return chosen
    if chosen is not None:
        if not _REPOSITORY.fullmatch(str(chosen)):
            raise WeightsMissing(
                f"{chosen} does not exist; it should hold {info.description} ({', '.join(info.files)})"
            )
        folder = home() / "weights" / "hub" / str(chosen).replace("/", "--")
        if not complete_in(info, folder):
            _download(info, str(chosen), folder)
        if converted := complete_in(info, folder):
            return converted
        raise WeightsMissing(f"{_HUB}/{chosen} lacks some of {', '.join(info.files)}; name one that has them")
    for candidate in (_shared_folder(name), weights_folder(name)):
        if candidate and (path := complete_in(info, candidate)):
            return path
    path = weights_folder(name) / info.files[0] if len(info.files) == 1 else weights_folder(name)
    raise WeightsMissing(
        f"{info.description}: {path} is missing or incomplete ({info.source}, {info.size:,.0f} MB); fetch it with "
        f"'medtasks weights fetch {name}'"
    )


def fetch(name: str) -> Path:
    """Download an entry into :func:`weights_folder`, without the files that are there already.

    Raises WeightsMissing if the Hub cannot be reached, or lacks the files.
    """
    info = weights_info(name)
    shared = _shared_folder(name)
    if shared and (path := complete_in(info, shared)):
        return path
    _download(info, info.hub, weights_folder(name))
    return weights_path(name)


def _download(info: WeightsInfo, repository: str, folder: Path) -> None:
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(repository, allow_patterns=list(info.files), local_dir=folder)
    except Exception as error:  # the Hub's client raises kinds of several libraries
        reason = " ".join(str(error).split())
        raise WeightsMissing(
            f"{_HUB}/{repository} could not be downloaded ({type(error).__name__}: {reason}); on a machine without "
            f"network put {', '.join(info.files)} into {folder}"
        ) from error


def write_safetensors(read: "Callable[[], Mapping[str, torch.Tensor]]", target: Path, *, like: Path) -> Path:
    """Write tensors by name, replacing an older file, with the permissions of the file ``like``.

    Raises a MedTasksError if the target cannot be written, or its name does not end in ``.safetensors``.
    """
    from safetensors.torch import save_file

    if target.suffix != CONVERTED:
        raise MedTasksError(f"{target} must end in {CONVERTED}, the ending of its format; choose another name")
    # Clones, because tensors that share memory cannot be saved.
    state = {key: tensor.detach().clone().contiguous() for key, tensor in read().items()}
    try:
        with written_whole(target) as partial:
            save_file(state, partial, metadata={"format": "pt"})
            shutil.copymode(like, partial)  # safetensors writes files that only their owner may read
    except Exception as error:  # safetensors has its own kind for a full disk
        raise MedTasksError(
            f"{target} cannot be written ({error}); free some space or choose another folder"
        ) from error
    return target


def packed_files(source: Path, name_pattern: re.Pattern[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files with a matching name in a folder or archive, opened, by name without a leading ``./``.

    Files of a folder, links included, are ordered by name, those of an archive, without links, by position; names are
    never used as paths. An unreadable source raises an OSError, or an error of zipfile or tarfile.
    """
    if source.is_dir():
        for path in sorted(
            Path(folder, name) for folder, _, names in os.walk(source, followlinks=True) for name in names
        ):
            name = path.relative_to(source).as_posix()
            if name_pattern.fullmatch(name) and path.is_file():
                with path.open("rb") as file:
                    yield name, file
        return
    with ExitStack() as opened:
        members: Iterator[tuple[str, IO[bytes] | None]]
        if zipfile.is_zipfile(source):
            archive = opened.enter_context(zipfile.ZipFile(source))
            members = ((name, archive.open(name)) for name in archive.namelist() if name_pattern.fullmatch(name))
        else:
            packed = opened.enter_context(tarfile.open(source))
            files = ((member.name.removeprefix("./"), member) for member in packed if member.isfile())
            members = ((name, packed.extractfile(member)) for name, member in files if name_pattern.fullmatch(name))
        yield from ((name, file) for name, file in members if file)
