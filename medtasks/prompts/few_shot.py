"""Prompts with few-shot examples: the demonstrations a dataset was prepared with, in their order.

The harness's own ``--num_fewshot`` passes on no images of examples and knows no turns; these hooks do both. The
settings are those of :mod:`medtasks.prompts.template`, and ``example``: the template of one demonstration in a simple
model's prompt, with ``question`` and ``answer``. Errors are those of the hooks there and of :func:`demonstrations`.
"""

import functools

from PIL import Image

from medtasks.data.dataset_lookup import prepared_folder
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.samples import Document
from medtasks.data.schema import DEMONSTRATIONS_SPLIT
from medtasks.errors import DatasetNotPrepared
from medtasks.families.templates import fill_template
from medtasks.prompts import images as document_images
from medtasks.prompts import template as zero_shot
from medtasks.prompts.images import Settings
from medtasks.prompts.instructions import HIDDEN_MARK, without_mark
from medtasks.prompts.template import Message


def prompt(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Return the prompt of a simple model: the solved examples, then the question.

    Args:
        doc: The document, of a dataset with demonstrations.
        lmms_eval_specific_kwargs: The model family's settings, none by default.

    Raises:
        DatasetNotPrepared: The dataset has no demonstrations.
    """
    settings = lmms_eval_specific_kwargs or {}
    template = str(settings.get("example", "{{ question }}\n{{ answer }}\n\n"))
    complaint = f"example {template!r} cannot be filled in"
    text = ""
    for example in without_mark(demonstrations(doc["dataset"]), HIDDEN_MARK.get()):
        answer = zero_shot.example_answer(example, settings)
        values = {"question": zero_shot.prompt(example, settings), "answer": answer}
        text += fill_template(template, values, values, complaint)
    return text + zero_shot.prompt(doc, settings)


def images(
    doc: Document, lmms_eval_specific_kwargs: Settings | None = None
) -> list[Image.Image]:
    """Open the images of the demonstrations and then those of the document.

    Args:
        doc: The document, of a dataset with demonstrations.
        lmms_eval_specific_kwargs: The model family's settings, none by default.

    Raises:
        DatasetNotPrepared: The dataset has no demonstrations.
    """
    opened: list[Image.Image] = []
    for example in _images_of(doc["dataset"]):
        opened += example
    return opened + document_images.images(doc, lmms_eval_specific_kwargs)


def messages(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> list[Message]:
    """Return the conversation of a chat model: question and answer of each example as turns, then the question.

    Args:
        doc: The document, of a dataset with demonstrations.
        lmms_eval_specific_kwargs: The model family's settings, none by default.

    Raises:
        DatasetNotPrepared: The dataset has no demonstrations.
    """
    settings = lmms_eval_specific_kwargs or {}
    examples = demonstrations(doc["dataset"])
    turns = []
    for example, opened in zip(examples, _images_of(doc["dataset"]), strict=True):
        answer = zero_shot.example_answer(example, settings)
        turns.append(zero_shot.user_turn(zero_shot.question_parts(example, settings), opened))
        turns.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
    return turns + zero_shot.messages(doc, settings)


def demonstrations(name: str) -> tuple[Document, ...]:
    """Return the solved examples of a dataset, read once per process.

    Raises:
        DatasetNotPrepared: It has none.
    """
    return _documents(str(prepared_folder(name)), name)


def _images_of(name: str) -> list[list[Image.Image]]:
    """Return copies, because a model's preparation may shrink what it gets in place."""
    examples = _open_examples(str(prepared_folder(name)), name)
    return [[image.copy() for image in opened] for opened in examples]


@functools.cache
def _documents(folder: str, name: str) -> tuple[Document, ...]:
    """Return the demonstrations of a dataset in a folder, which is part of the cache's key.

    Raises:
        DatasetNotPrepared: It has none.
    """
    examples = tuple(load_documents(name, DEMONSTRATIONS_SPLIT))
    if not examples:
        notes = Manifest.read(prepared_folder(name)).left_out
        reasons = [note for note in notes if "demonstrations" in note]
        reason = f" ({reasons[0]})" if reasons else ""
        raise DatasetNotPrepared(
            f"dataset '{name}' in {folder} has no demonstrations for few-shot prompts"
            f"{reason}; prepare it again from a source with its training split: "
            f"medtasks data prepare {name} --source DIR"
        )
    return examples


# A few datasets at a time: five decoded mammograms are a hundred megabytes.
@functools.lru_cache(maxsize=2)
def _open_examples(folder: str, name: str) -> tuple[tuple[Image.Image, ...], ...]:
    """Return the images of each demonstration, opened once. Nothing may change them."""
    return tuple(tuple(document_images.images(example)) for example in _documents(folder, name))
