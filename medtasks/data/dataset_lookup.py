"""Prepared datasets, published or a user's own: folder, provenance, command, and as task YAML names them.

``path_of.<dataset>`` is for ``dataset_path: !function``, ``label_of.<task>`` for ``task_alias: !function``, and
``provenance_of.<dataset>`` for ``metadata: data: !function``. The harness resolves them when a task is selected, not
when tasks are listed: it imports the module before the last dot and takes the rest from it, which may be a dataset of
the user's own. So each of the three has a module whose attributes are its results.
"""

import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import CATALOGUE, Access, DatasetInfo, dataset_info
from medtasks.data.dataset_manifest import FILE_NAME, Manifest, manifest_of
from medtasks.data.privacy import is_private
from medtasks.errors import DatasetNotPrepared, MedTasksError
from medtasks.home import HOME_VARIABLE, dataset_folder, datasets_folder, home, own_tasks_folder

SAMPLE = "SAMPLE DATA"
INCOMPLETE = "INCOMPLETE DATA"
COUNT_UNKNOWN = "COUNT UNKNOWN"
DATASHEET = "datasheet.json"
"""File in the folder of a dataset that was published from a study."""
OPTIONS = "published_with"
"""Key of the datasheet for the command's options."""
# Datasets by the beginning of names of tasks that do not begin with the name of their dataset.
_DATASETS = {
    "medevalkit_vqa_rad": "multimedeval_vqa_rad",
    "medevalkit_path_vqa": "multimedeval_path_vqa",
    "medevalkit_medmcqa": "multimedeval_medmcqa",
    "medevalkit_mmmu_med": "medevalkit_mmmu_med_val",
}


def prepared_folder(name: str) -> Path:
    """Return the folder of a prepared dataset.

    Raises:
        UnknownName: There is no such dataset.
        DatasetNotPrepared: It is not prepared, or not there any more.
    """
    folder = dataset_folder(name)
    if (folder / FILE_NAME).is_file():
        return folder
    if own_task_file(name).is_file():
        raise DatasetNotPrepared(
            f"your own dataset '{name}' is not in {home()} any more; run 'medtasks data prepare --from-folder DIR "
            f"--name {name}' (for a part of another one 'medtasks data select ... --as {name}', for a study "
            f"'medtasks curate publish STUDY --as {name}'), or delete its task {own_task_file(name)}"
        )
    info = dataset_info(name)
    raise DatasetNotPrepared(
        f"dataset '{name}' ({info.benchmark}, {info.access}) is not prepared in {home()}; run "
        f"'medtasks data prepare {name}', add '--source DIR' if you have a copy, or set {HOME_VARIABLE}"
    )


def prepared_state(name: str) -> str:
    """Return ``"yes"`` for a whole prepared dataset, or ``"no"``, ``"incomplete"``, ``"sample"`` or ``"damaged"``."""
    folder = dataset_folder(name)
    if not (folder / FILE_NAME).is_file():
        return "no"
    try:
        manifest = Manifest.read(folder)
    except MedTasksError:
        return "damaged"
    if manifest.sample:
        return "sample"
    return "yes" if manifest.complete else "incomplete"


def is_known(name: str) -> bool:
    """Return whether a dataset is in the catalogue, or was prepared here from a user's own folder.

    Example:
        >>> is_known("mediconfusion"), is_known("no dataset")
        (True, False)
    """
    files = (dataset_folder(name) / FILE_NAME, own_task_file(name))
    return name in CATALOGUE or (name.isidentifier() and any(file.is_file() for file in files))


def own_task_file(name: str) -> Path:
    """Return the file of a task of the user's own, whether or not it exists."""
    return own_tasks_folder() / f"{name}.yaml"


def provenance(name: str) -> dict[str, Any]:
    """Return source, revision, size and fingerprints of a prepared dataset, as the harness writes them into results."""
    manifest = Manifest.read(prepared_folder(name))
    facts = {"fingerprint": manifest.fingerprint, **manifest.model_dump(mode="json")}
    if is_private(name):  # notes on rows left out name files, which may identify a patient
        facts["source"] = CATALOGUE[name].source if name in CATALOGUE else "withheld"
        facts["left_out"] = (
            [f"{len(manifest.left_out)} notes in its {FILE_NAME}"] if manifest.left_out else []
        )
        if manifest.draw is not None:  # names of strata are values of a column
            for number, stratum in enumerate(facts["draw"]["strata"], start=1):
                stratum["name"] = f"stratum {number}"
    return facts


def data_warning(facts: Mapping[str, Any]) -> str:
    """Return the warning that belongs to each score on data of this provenance, or nothing for a set known to be whole.

    Example:
        >>> data_warning({"name": "gmai_mmbench_mcls", "sample": False, "complete": True})
        'COUNT UNKNOWN'
    """
    if facts["sample"]:
        return SAMPLE
    if not facts["complete"]:
        return INCOMPLETE
    info = CATALOGUE.get(facts.get("name", ""))
    return COUNT_UNKNOWN if info and info.count_unknown else ""


def _refuse_unknown(name: str) -> None:
    if not is_known(name):
        raise AttributeError(
            f"there is no dataset '{name}'; known: {', '.join(sorted(CATALOGUE))}"
        )


def path_of(name: str) -> str:
    """Return the folder of a dataset, whether or not it is prepared: loading its documents reports what is missing.

    Raises:
        AttributeError: The dataset is unknown.
    """
    _refuse_unknown(name)
    return str(dataset_folder(name))


def label_of(task: str) -> str:
    """Return the name of a task in the harness's table: its own, and :func:`data_warning`.

    Raises:
        AttributeError: The name begins with that of no dataset.
    """
    datasets = {name: name for name in (*CATALOGUE, *own_datasets())} | _DATASETS
    beginnings = [beginning for beginning in datasets if f"{task}_".startswith(f"{beginning}_")]
    if not beginnings:
        if is_known(task):  # a task of the user's own whose dataset is gone
            return task
        raise AttributeError(f"no dataset name is the beginning of task name {task!r}")
    with suppress(MedTasksError):
        manifest = Manifest.read(prepared_folder(datasets[max(beginnings, key=len)]))
        if warning := data_warning(manifest.model_dump()):
            return f"{task} [{warning}]"
    return task


def provenance_of(name: str) -> dict[str, Any]:
    """Return the provenance, or its error: loading the documents of the task raises the same for the user.

    Raises:
        AttributeError: The dataset is unknown.
    """
    _refuse_unknown(name)
    try:
        return provenance(name)
    except MedTasksError as error:
        return {"error": str(error)}


# Datasets a user prepared from folders of their own: those that are not in the catalogue.


def own_dataset_info(
    name: str,
    about: str,
    source: str,
    access: Access,
    rows: int | None = None,
    images: int | None = None,
) -> DatasetInfo:
    """Describe a dataset that is made from a user's folder, not in the catalogue.

    Args:
        name: Of the dataset.
        about: Its description, in a few words.
        source: The folder.
        access: Who may see it.
        rows: Number of its questions, None if unknown.
        images: Number of its distinct images, None if unknown.
    """
    return DatasetInfo(
        name,
        "own questions",
        about,
        source,
        "local",
        access,
        "of its owner",
        rows=rows,
        images=images,
    )


def own_datasets() -> Mapping[str, DatasetInfo]:
    """Return the prepared datasets that are not in the catalogue, by name."""
    datasets = {}
    for folder in sorted(path.parent for path in datasets_folder().glob(f"[!.]*/{FILE_NAME}")):
        name = folder.name
        if name in CATALOGUE:
            continue
        try:
            manifest = manifest_of(folder)
            datasets[name] = own_dataset_info(
                name,
                f"from {manifest.source}",
                manifest.source,
                Access(manifest.access),
                manifest.rows,
                manifest.images,
            )
        except (MedTasksError, ValueError):
            datasets[name] = own_dataset_info(
                name, "its manifest is damaged", "an unknown folder", Access.CREDENTIALED
            )
    return datasets


def part_of(name: str) -> str | None:
    """Return the dataset of which a prepared one is a part, None for a whole one, or if unknown."""
    try:
        return manifest_of(dataset_folder(name)).selected_from
    except (MedTasksError, OSError, ValueError):
        return None


def study_of(name: str) -> str | None:
    """Return the folder of the study that a dataset was published from, None for any other dataset."""
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
        with suppress(OSError, ValueError, LookupError, TypeError):
            sheet = json.loads((dataset_folder(name) / DATASHEET).read_text(encoding="utf-8"))
            options = [str(option) for option in sheet[OPTIONS]]
        return shlex.join(["medtasks", "curate", "publish", study, *options])
    whole = None if name in CATALOGUE else part_of(name)
    if whole is None:
        return f"medtasks data prepare {name}"
    return f"medtasks data select {whole} ... --as {name}"
