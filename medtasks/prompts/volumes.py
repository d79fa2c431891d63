"""Prompts about volumes, for models that read volumes and for those that see only images.

The settings are those of :mod:`medtasks.prompts.template`, and ``slices``: the number of axial slices that represent a
volume, evenly spaced from feet to head; 0: the model reads its file. Every slice is an image with a place of its own.
"""

from typing import Any

from medtasks.data.dataset_lookup import prepared_folder
from medtasks.data.images.volume_files import axial_slices, blank_volume
from medtasks.data.samples import Document
from medtasks.data.variants import BLANK, COLUMN, DEGRADED, images_of
from medtasks.errors import MedTasksError, SourceError
from medtasks.prompts import template as image_prompts
from medtasks.prompts.images import Settings, visible_images
from medtasks.prompts.template import Message


def prompt(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Return the prompt of a simple model, see :func:`medtasks.prompts.template.prompt`."""
    settings = lmms_eval_specific_kwargs or {}
    files = list(doc["image_files"]) * (int(settings.get("slices", 8)) or 1)
    return image_prompts.prompt({**doc, "image_files": files}, settings)


def volumes(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> list[Any]:
    """Return the volumes in a document's ``image_files``: names of files for models that read them, else RGB slices.

    Raises SourceError for a volume that is missing or damaged, MedTasksError for one to be degraded as a file.
    """
    count = int((lmms_eval_specific_kwargs or {}).get("slices", 8))
    if not count and doc.get(COLUMN) == DEGRADED:
        raise MedTasksError(
            "files of volumes cannot be degraded; set slices under lmms_eval_specific_kwargs"
        )
    parts: list[Any] = []
    for volume in images_of(doc):
        path = prepared_folder(doc["dataset"]) / volume.file
        try:
            if count:
                parts += visible_images(
                    doc, axial_slices(path, count), [f"{volume.sha256} {at}" for at in range(count)]
                )
            elif not path.is_file():
                raise FileNotFoundError(path)
            else:
                parts.append(str(blank_volume(path) if doc.get(COLUMN) == BLANK else path))
        except OSError as error:
            what = "is missing" if isinstance(error, FileNotFoundError) else f"is broken ({error})"
            raise SourceError(
                f"the volume of sample {doc['doc_id']} {what}; put {path.resolve()} back, or run 'medtasks data "
                f"prepare {doc['dataset']}' again"
            ) from error
    return parts


def messages(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> list[Message]:
    """Return the conversation of a chat model, which gets slices, see :func:`volumes`.

    Raises MedTasksError if the settings ask for files.
    """
    settings = lmms_eval_specific_kwargs or {}
    count = int(settings.get("slices", 8))
    if not count:
        raise MedTasksError(
            "chat models take no files of volumes; set slices under lmms_eval_specific_kwargs"
        )
    slices = {**doc, "image_files": list(doc["image_files"]) * count}
    parts = image_prompts.question_parts(slices, settings)
    return [image_prompts.user_turn(parts, volumes(doc, settings))]
