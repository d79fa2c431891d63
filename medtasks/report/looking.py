"""Samples as a model sees them, next to the headers of their files: the page of ``medtasks data look``.

Of private data the page has hashed ids in place of those of samples and files. Images are shown: that is what the user
asked for, in a folder that only they can open.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from medtasks.data.images.decoding import AS_STORED, decode_image
from medtasks.data.images.header_facts import header_facts
from medtasks.data.images.image_store import pixels_sha256
from medtasks.data.images.volume_files import holds_volume
from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Document, Sample
from medtasks.errors import MedTasksError, unknown_name
from medtasks.home import make_folder, owner_only
from medtasks.prompts.images import OPENED, image_decoding, image_path, volume_rule
from medtasks.prompts.messages import data_url, png
from medtasks.report.page import write_rendered
from medtasks.tasks.documents import (
    call_hook,
    image_settings,
    is_private_task,
    task_documents,
)
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config, task_file, task_files
from medtasks.tasks.task_index import resolve_names

PAGE = "index.html"
_SEED = 0
_SIDE = 480  # pixels of a thumbnail
_DIGITS = 12  # of a fingerprint
_Facts = dict[str, str]  # values of facts by their names


@dataclass(frozen=True)
class ModelImage:
    """One image as the model gets it."""

    pixels: Image.Image
    file: str  # name of the PNG that is written

    @property
    def facts(self) -> _Facts:
        """Size and fingerprint of the pixels."""
        digest = pixels_sha256(self.pixels.convert("RGB"))[:_DIGITS]
        return {"size": f"{self.pixels.width} x {self.pixels.height}", "pixels": digest}

    @property
    def thumbnail(self) -> str:
        """A small copy in a URL."""
        small = self.pixels.convert("RGB")
        small.thumbnail((_SIDE, _SIDE))
        return data_url(small)


@dataclass(frozen=True)
class SampleView:
    """One sample of the page: the images that the model gets, and facts about the files that they come from."""

    doc_id: str
    images: Sequence[ModelImage] = ()
    files: dict[str, _Facts] = field(default_factory=dict)  # facts by the file's name
    fault: str = ""  # why the model gets nothing


def task_to_look_at(name: str) -> TaskFile:
    """Return a task or variant, or a task on the dataset of this name that shows images.

    Raises:
        UnknownName: There is no such task or dataset.
    """
    files = task_files()
    tasks_of_dataset = [task for task in files.values() if task.dataset == name]
    if name in files or not tasks_of_dataset:
        return task_file(name)
    return max(tasks_of_dataset, key=lambda task: "blank" in task.variants)  # it shows images


def look_at(task: TaskFile, count: int, ids: Sequence[str] = ()) -> list[SampleView]:
    """Return samples of a task as the harness's default model family gets them.

    Args:
        task: Task or variant.
        count: Number of samples, drawn at random and always the same ones.
        ids: Samples to show instead, in this order. Those of private data may be hashed.

    Raises:
        UnknownName: No sample has one of the ids.
        MedTasksError: The data are not prepared, or damaged. A damaged image is a fault of its sample.
    """
    documents = task_documents(task)
    private = is_private_task(task, documents)
    by_id: dict[str, Document] = {}  # as the page names them
    for document in documents:
        doc_id = str(document["doc_id"])
        by_id[hidden_id("doc", doc_id) if private else doc_id] = document
    samples: list[SampleView] = []
    drawn = random.Random(_SEED).sample([*by_id], min(count, len(by_id)))
    for doc_id in ids or sorted(drawn, key=[*by_id].index):
        page_id = hidden_id("doc", doc_id) if private and doc_id not in by_id else doc_id
        if page_id not in by_id:
            raise unknown_name("sample", doc_id, by_id, "its question file")
        samples.append(_look(task, by_id[page_id], page_id, len(samples) + 1, private=private))
    return samples


def _look(
    task: TaskFile,
    document: Document,
    doc_id: str,
    number: int,
    *,
    private: bool,
) -> SampleView:
    """Return one sample, with a fault instead of images if it cannot be shown."""
    hook = resolve_names(task_config(task.name).get("doc_to_visual"))
    settings = image_settings(task)
    images: list[ModelImage] = []
    fault = ""
    try:
        visuals = call_hook(hook, document, settings) if callable(hook) else []
        for visual in visuals:
            if isinstance(visual, Image.Image):
                images.append(ModelImage(visual, f"{number}_{len(images) + 1}.png"))
            else:
                fault = "The model gets a volume as it is, which has no images to show."
    except Exception as error:  # noqa: BLE001 - a hook may be the user's own
        fault = str(error) if isinstance(error, MedTasksError) else type(error).__name__
    files = {}
    for file in Sample(document).images:
        name = hidden_id("file", file) if private else file
        files[name] = _facts_of(file, document, settings)
    return SampleView(doc_id, images, files, fault)


def _facts_of(file: str, document: Document, settings: Any) -> _Facts:
    """Return the facts of a file's header, and the conversions by which it became what the model sees."""
    facts: _Facts = {}
    try:
        path = image_path(file, document, settings)
        facts = header_facts(path)
        if holds_volume(path):
            from medtasks.data.images.volume_slices import show_volume  # which brings NumPy

            rule = volume_rule(document, settings)
            volume = show_volume(path, rule if rule.slices else None)
            return {**volume.facts, "done": ", ".join(volume.conversions)}
        decoding = image_decoding(document, settings)
        facts["rule"] = str(decoding.rule)
        opened = OPENED.get((path, decoding))
        if opened is None:
            decode_image(path, decoding)
            facts["done"] = "unknown: a hook of the task opens it"
        else:
            facts["done"] = ", ".join(opened.conversions) or AS_STORED
    except (OSError, MedTasksError) as error:
        facts["not shown"] = getattr(error, "strerror", None) or str(error)
    return facts


def write_look(task: TaskFile, samples: Sequence[SampleView], folder: Path) -> Path:
    """Write images as PNG and a page about them into a folder that only its owner may read, and return the page."""
    with owner_only():
        make_folder(folder, 0o700)
        for sample in samples:
            for image in sample.images:
                (folder / image.file).write_bytes(png(image.pixels))
        write_rendered("look", folder / PAGE, "--out", task=task.name, samples=samples)
    return folder / PAGE
