"""Turning a user's own folder of questions into a dataset and a task of the harness, without code.

The task file stands alone: one that included ours would make every task of the harness unlistable once this package
moves. It is put together from the task of a published dataset, so that it asks and scores as that does.
"""

import contextlib
import re
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import Access
from medtasks.data.home import dataset_folder
from medtasks.data.manifest import FILE_NAME, Manifest
from medtasks.data.multimedeval.folder import QA, VQA, OwnQuestions, read_folder
from medtasks.data.own_datasets import own_dataset_info
from medtasks.data.preparation import Options, prepare_recipe
from medtasks.errors import MedTasksError, SourceError
from medtasks.harness.task_files import task_config
from medtasks.harness.task_index import DottedName
from medtasks.tasks.task_writing import own_keys, own_metadata, refuse_taken, write_task_file

TAG = "multimedeval_own"
_PREFIX = "multimedeval_"
_MARK = "# Written by 'medtasks data prepare --from-folder', which overwrites changes.\n"
_MODELS = {QA: "multimedeval_medqa", VQA: "multimedeval_vqa_rad"}
_READ_WITH = "medtasks.hooks.filters.ReadWith"


def prepare_own(
    folder: Path,
    name: str | None = None,
    access: Access = Access.CREDENTIALED,
    *,
    allow_incomplete: bool = False,
    again: bool = False,
) -> Manifest:
    """Prepare a user's folder as a dataset and write its task file; the manifest's name is also the task's.

    Args:
        folder: Holds ``dataset.json``, see :mod:`medtasks.data.multimedeval.folder`.
        name: What to call it; None: the folder's name.
        access: Who may read it. As long as the user does not say otherwise, it stays on this machine.
        allow_incomplete: Leave out what cannot be used.
        again: ``name`` is a dataset prepared before, which may have moved to ``folder``.

    Raises:
        SourceError: The folder is not of that format, or samples cannot be used.
        MedTasksError: The name is taken, or nothing can be written.
    """
    questions = read_folder(folder)
    chosen = own_name(name or folder.resolve().name)
    if chosen == TAG:
        raise MedTasksError(f"there is a task or dataset '{TAG}' already; choose another name with --name")
    refuse_taken(chosen, _MARK, "--name")
    if not again:
        _refuse_another_folder(chosen, folder)
    info = own_dataset_info(chosen, folder.resolve(), access, questions.kind)
    manifest = prepare_recipe(info, questions.recipe, Options(folder, allow_incomplete=allow_incomplete))
    write_task_file(chosen, _task_config(chosen, questions), _MARK)
    return manifest


def own_name(text: str) -> str:
    """Return the name of the dataset and task a folder's name gives.

    Raises:
        MedTasksError: It holds no letter or digit.

    Example:
        >>> own_name("Chest X-rays (2024)")
        'multimedeval_chest_x_rays_2024'
    """
    slug = re.sub(r"[^a-z0-9]+", "_", text.lower().removeprefix(_PREFIX)).strip("_")
    if not slug:
        raise MedTasksError(f"'{text}' gives no task name; choose one of letters and digits with --name")
    return _PREFIX + slug


def _refuse_another_folder(name: str, folder: Path) -> None:
    prepared, source = dataset_folder(name), None
    if (prepared / FILE_NAME).is_file():
        with contextlib.suppress(SourceError):  # a damaged one is not worth keeping
            source = Manifest.read(prepared).source
    if source not in (None, str(folder.resolve())):
        raise MedTasksError(
            f"'{name}' is prepared from {source} already; choose another name with --name, or replace it: "
            f"medtasks data prepare {name} --source {folder}"
        )


def _task_config(name: str, questions: OwnQuestions) -> dict[str, Any]:
    config, with_images = task_config(_MODELS[questions.kind]), task_config(_MODELS[VQA])
    own = own_keys(name, name, TAG)
    description = f"Own {questions.kind} questions, {questions.modality or 'no modality given'}"
    metadata = own_metadata(with_images["metadata"], name, description=description, prompt="head")
    settings = {
        family: _prompt(questions.kind) | {key: known[key] for key in ("image_mark",) if key in known}
        for family, known in with_images["lmms_eval_specific_kwargs"].items()
    }
    rules = [_filter("reference", "multimedeval_option_head"), _filter("robust", "robust_choice")]
    changed = {
        **own,
        "lmms_eval_specific_kwargs": settings,
        "filter_list": rules if questions.kind == QA else config["filter_list"],
        "metadata": metadata,
    }
    return {**own, **config, **changed}


def _prompt(kind: str) -> dict[str, str]:
    """Return the prompt of the reference's additional datasets: images, question, options, one blank between each."""
    if kind == QA:
        return {
            "template": "{images} {question} {options}",
            "images_joined_by": " ",
            "option": "{text}",
            "options_joined_by": " ",
        }
    return {"template": "{images} {question}", "images_joined_by": " "}


def _filter(name: str, rule: str) -> dict[str, Any]:
    return {"name": name, "filter": [{"function": DottedName(_READ_WITH), "rule": rule}]}
