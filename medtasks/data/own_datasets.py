"""Datasets a user prepared from folders of their own: those under ``MEDTASKS_HOME`` and not in the catalogue.

A dataset with a damaged manifest, or whose access is unknown, counts as credentialed.
"""

import contextlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from medtasks.data.catalogue import CATALOGUE, Access, DatasetInfo
from medtasks.data.dataset_manifest import FILE_NAME, manifest_of
from medtasks.errors import MedTasksError
from medtasks.home import dataset_folder, datasets_folder

BENCHMARK = "own questions"
DATASHEET, OPTIONS = "datasheet.json", "published_with"
"""File in the folder of a dataset that was published from a study, and its key for the command's options."""


def own_dataset_info(name: str, source: Path, access: Access, kind: str) -> DatasetInfo:
    """Describe a dataset of a ``kind`` (``"QA"``, ``"VQA"``, or a study's) that is made from a user's folder."""
    return _info(name, f"{kind}, from {source}", str(source), access)


def own_datasets() -> Mapping[str, DatasetInfo]:
    """Return the prepared datasets that are not in the catalogue, by name."""
    datasets = {}
    for folder in sorted(path.parent for path in datasets_folder().glob(f"[!.]*/{FILE_NAME}")):
        name = folder.name
        if name in CATALOGUE:
            continue
        try:
            manifest = manifest_of(folder)
            facts = (f"from {manifest.source}", manifest.source, Access(manifest.access))
            datasets[name] = _info(name, *facts, manifest.rows, manifest.images)
        except (MedTasksError, ValueError):
            datasets[name] = _info(name, "its manifest is damaged", "an unknown folder", Access.CREDENTIALED)
    return datasets


def access_of(name: str | None) -> Access:
    """Return the access level of a dataset, in the catalogue or a user's own.

    Documents that name none are a user's own file, which counts as public.
    """
    if name is None:
        return Access.PUBLIC
    if name in CATALOGUE:
        return CATALOGUE[name].access
    try:
        return Access(manifest_of(dataset_folder(name)).access)
    except (MedTasksError, OSError, ValueError):  # a name that no folder can have is a ValueError
        return Access.CREDENTIALED


def part_of(name: str) -> str | None:
    """Return the dataset of which a prepared one is a part; None for a whole one, or if unknown."""
    try:
        return manifest_of(dataset_folder(name)).selected_from
    except (MedTasksError, OSError, ValueError):
        return None


def study_of(name: str) -> str | None:
    """Return the folder of the study that a dataset was published from; None for any other dataset."""
    if name in CATALOGUE or not (dataset_folder(name) / DATASHEET).is_file():
        return None
    try:
        return manifest_of(dataset_folder(name)).source
    except (MedTasksError, OSError):
        return "STUDY"  # its manifest is damaged


def preparing_again(name: str) -> str:
    """Return the command that prepares a dataset again."""
    if (study := study_of(name)) is not None:
        options = ["--as", name]
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            sheet = json.loads((dataset_folder(name) / DATASHEET).read_text(encoding="utf-8"))
            options = [str(option) for option in sheet[OPTIONS]]
        return shlex.join(["medtasks", "curate", "publish", study, *options])
    whole = None if name in CATALOGUE else part_of(name)
    return f"medtasks data prepare {name}" if whole is None else f"medtasks data select {whole} ... --as {name}"


def _info(
    name: str, description: str, source: str, access: Access, rows: int | None = None, images: int | None = None
) -> DatasetInfo:
    facts = (name, BENCHMARK, description, source, "local", access, "of its owner")
    return DatasetInfo(*facts, rows=rows, images=images)
