"""Prompts: a template in the task's YAML, filled for one document, with the images at their places.

The templates are settings under ``lmms_eval_specific_kwargs``, one set per model family, in the language of
:mod:`medtasks.families.templates`:

- ``template``: the prompt. It may name the document's columns, of which ``question``, ``context``, ``details`` and
  ``indication`` may be absent, and ``image`` (the place of one image), ``images`` (one place per image), ``hint`` (a
  line of its own, if any), ``options`` (all, as the next settings say; a loop takes one by one), ``option_a`` ...,
  ``option_lines`` (a list) and ``closed_prefix``
- ``closed_prefix``: text under that name where the published answer is exactly ``yes`` or ``no``, elsewhere empty
- ``option``: form of one option, see :func:`medtasks.families.templates.written_options`
- ``options_joined_by``, ``images_joined_by``: text between two, by default a new line, and nothing
- ``image_mark``: mark of an image's place for a simple model; without it, images come first in its prompt
- ``shown_images``: number of images that are shown, the first ones; by default all
- ``image_name``: name of an image in texts of the document, by its ``number``, such as ``<image {{ number }}>``; it is
  shown where question or ``option_lines`` first name it, in this order
- ``image_token``: text that replaces each ``image_name``; the images so named, and no others, are then shown at
  ``images``, in the order of their names
- ``example_answer``: answer in a demonstration, see :func:`example_answer`
- any other text: a name for templates, in place of the document's column of this name if there is one

Questions with lettered options list them as ``A: text`` lines, and a template that marks images itself may have any
number of marks. Closed questions, yes/no and options mixed, have two templates: ``yes_no_template`` and
``options_template``, which may name ``question`` and ``choices``, the options as published.

Task files name these functions through :mod:`medtasks.hooks.prompts`. Text of a document must never be read as a
template.
"""

import uuid
from collections.abc import Collection, Sequence
from typing import Any

from PIL import Image

from medtasks.data.samples import Document, first_letters
from medtasks.data.variants import COLUMN, NOT_SHOWN, TOLD
from medtasks.errors import MedTasksError, SourceError
from medtasks.families.templates import IMAGE, fill_template, written_options
from medtasks.prompts.images import (
    Settings,
    image_counts,
    images,
    named_images,
    without_own_marks,
)

Message = dict[str, Any]
NO_IMAGE = "The image of this question is not available. Answer from the text alone."
"""First line of prompts that say that an image is missing (arXiv 2603.21687)."""
_PLACE = f"<image {uuid.uuid4()}>"  # in no document
_CUT = f"<cut {uuid.uuid4()}>"
_MAY_LACK = ("question", "context", "details", "indication")
_FIELDS = (*_MAY_LACK, "hint", "options", "closed_prefix", IMAGE, "images")


def prompt(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Return the prompt of a simple model, which gets text and images apart.

    Args:
        doc: The document.
        lmms_eval_specific_kwargs: The model family's settings. ``image_mark`` marks the images' places; without one, a
            place is removed with the blank after it.

    Raises:
        MedTasksError: The settings lack a template, or it has an unknown field.
        SourceError: The template has another number of places than the document has images.

    Example:
        >>> prompt({"question": "Is it normal?"}, {"template": "Q: {{ question }} A:"})
        'Q: Is it normal? A:'
    """
    settings = lmms_eval_specific_kwargs or {}
    return join_parts(question_parts(doc, settings), settings)


def messages(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> list[Message]:
    """Return the conversation of a chat model: one user turn with every image at its place in the text.

    Args:
        doc: The document.
        lmms_eval_specific_kwargs: The model family's settings, none by default.

    Raises:
        MedTasksError: As of :func:`prompt`.
        SourceError: As of :func:`prompt`, or an image is broken.
    """
    settings = {"image_mark": _PLACE, **(lmms_eval_specific_kwargs or {})}
    parts = question_parts(doc, settings)
    opened = images(doc, settings)
    if not all(isinstance(image, Image.Image) for image in opened):
        raise MedTasksError(
            "chat models take no files of volumes; set slices under lmms_eval_specific_kwargs"
        )
    return [user_turn(parts, opened)]


def user_turn(parts: Sequence[str], opened: Sequence[Any]) -> Message:
    """Return a turn with the images between the parts of the text.

    Args:
        parts: Texts, one more than there are images; of a single part, the images come first.
        opened: The images.

    Example:
        >>> user_turn(["Compare ", " with ", "."], ["left", "right"])["content"][1:4]
        [{'type': 'image', 'url': 'left'}, {'type': 'text', 'text': ' with '}, {'type': 'image', 'url': 'right'}]
    """
    before = [""] * (len(opened) + 1 - len(parts))
    content = []
    for position, part in enumerate([*before, *parts]):
        if position:
            content.append({"type": "image", "url": opened[position - 1]})
        if part:
            content.append({"type": "text", "text": part})
    return {"role": "user", "content": content}


def lettered_prompt(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Fill the model family's template with lettered options.

    Args:
        doc: A document with ``options``.
        lmms_eval_specific_kwargs: The model family's settings; by default a template of ours.

    Raises:
        MedTasksError: The template has an unknown field.

    Example:
        >>> settings = {"template": "{{ question }} {{ option_b }}?"}
        >>> lettered_prompt({"question": "Left", "options": ["heart", "lung"]}, settings)
        'Left lung?'
    """
    template = "{{ question }}\n{{ options }}\nAnswer with the option's letter from the given choices directly."
    settings = {
        "template": template,
        **(lmms_eval_specific_kwargs or {}),
        "option": "{{ letter }}: {{ text }}",
        "options_joined_by": "\n",
    }
    fields = ["question", "options", *(f"option_{name.lower()}" for name in letters(doc))]
    return join_parts(fill_parts(doc, settings, fields), settings)


def closed_prompt(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Fill the template for this kind of question.

    Args:
        doc: A ``CLOSED_QUESTION`` of :mod:`medtasks.data.schema`.
        lmms_eval_specific_kwargs: The model family's settings, with both templates.

    Raises:
        MedTasksError: The template is missing, or has an unknown field.
    """
    settings = lmms_eval_specific_kwargs or {}
    name = "yes_no_template" if doc["kind"] == "binary" else "options_template"
    return join_parts(fill_parts(doc, settings, ("question", "choices"), name), settings)


def question_parts(doc: Document, settings: Settings) -> list[str]:
    """Fill the template and cut it at the places of images.

    Args:
        doc: The document.
        settings: The model family's settings.

    Returns:
        A single part if the template has no place, or no image is shown.

    Raises:
        MedTasksError: As of :func:`prompt`.
        SourceError: As of :func:`prompt`.
    """
    parts = fill_parts(doc, settings, _FIELDS)
    count = sum(image_counts(doc, settings).values())
    if len(parts) > 1 and len(parts) - 1 != count:
        raise SourceError(
            f"sample {doc.get('doc_id', '?')} has {count} images and its prompt {len(parts) - 1} places for them; "
            f"write {{{{ images }}}} into the template, a place for each"
        )
    return parts


class _Options(list[str]):
    """Options that print as the settings list them."""

    listed = ""

    def __str__(self) -> str:
        return self.listed


def fill_parts(
    doc: Document,
    settings: Settings,
    fields: Collection[str],
    name: str = "template",
) -> list[str]:
    """Fill a template, and cut it at its places for images.

    If the document's images are left out, the places are removed, with the blank after them.

    Args:
        doc: The document.
        settings: The model family's settings.
        fields: Names that the message about an unknown name lists.
        name: Name of the template in the settings.

    Raises:
        MedTasksError: The template is missing or has an unknown field.
    """
    if name not in settings:
        raise MedTasksError(
            f"lmms_eval_specific_kwargs have no {name} for this model; add one in the task's YAML"
        )
    template = str(settings[name])
    complaint = f"{template!r} cannot be filled in"
    if name != "template":
        complaint = f"{name} {complaint}"
    texts = list(doc.get("options") or ())
    options = _Options(texts)
    option_lines = written_options(settings.get("option"), texts)
    options.listed = str(settings.get("options_joined_by", "\n")).join(option_lines)
    values = _document_values(doc, settings, option_lines)
    for option_letter, text in zip(first_letters(len(texts)), texts, strict=True):
        values[f"option_{option_letter.lower()}"] = text
    values["options"] = options
    if doc.get(COLUMN) == TOLD and not settings.get("demonstrations"):
        template = f"{NO_IMAGE}\n{template}"
    if doc.get(COLUMN) not in NOT_SHOWN:
        return fill_template(template, values, fields, complaint).split(_PLACE)
    values["images"] = _PLACE
    template = without_own_marks(template, settings)
    parts = fill_template(template, values, fields, complaint).split(_PLACE)
    return [join_parts(parts, {})]


def _document_values(
    doc: Document,
    settings: Settings,
    option_lines: Sequence[str],
) -> dict[str, Any]:
    """Return the values of a template by name, without those of options."""
    question, lines, places = _texts_and_places(doc, settings, option_lines)
    values = {column: "" if value is None else value for column, value in doc.items()}
    for column in _MAY_LACK:
        values[column] = doc.get(column) or ""
    values["question"] = question
    values["option_lines"] = lines
    for setting, text in settings.items():
        if isinstance(text, str):
            values[setting] = text
    # Demonstrations come before the question, and with them the note.
    if doc.get(COLUMN) == TOLD and settings.get("demonstrations"):
        values["question"] = f"{NO_IMAGE}\n{question}"
    values["hint"] = f"Hint: {doc['hint']}\n" if doc.get("hint") else ""
    values["closed_prefix"] = ""
    if doc.get("answer") in ("yes", "no"):
        values["closed_prefix"] = settings.get("closed_prefix", "")
    values[IMAGE] = _PLACE
    values["images"] = places
    return values


def _texts_and_places(
    doc: Document,
    settings: Settings,
    option_lines: Sequence[str],
) -> tuple[str, list[str], str]:
    """Return question and option lines with places where they first name images, and the places of the others."""
    named = named_images(doc, settings)
    token = settings.get("image_token")
    between = str(settings.get("images_joined_by", ""))
    texts = [str(doc.get("question") or "")]
    texts += doc.get("option_lines") or option_lines
    text = _CUT.join(texts)
    unnamed = 0
    for index, count in image_counts(doc, settings).items():
        if index in named:
            text = text.replace(named[index], token or between.join([_PLACE] * count), 1)
        if token or index not in named:
            unnamed += count
    question, *lines = text.split(_CUT)
    return question, lines, between.join([_PLACE] * unnamed)


def join_parts(parts: Sequence[str], settings: Settings) -> str:
    """Join parts with the family's ``image_mark`` between them, or without the blanks at the cuts.

    Example:
        >>> join_parts(["See ", " here."], {"image_mark": "<image>"}), join_parts(["See", " here."], {})
        ('See <image> here.', 'Seehere.')
    """
    mark = settings.get("image_mark", "")
    if mark:
        return str(mark).join(parts)
    first, *others = parts
    return first + "".join(part.removeprefix(" ") for part in others)


def example_answer(doc: Document, settings: Settings) -> str:
    """Return the answer in a demonstration.

    Args:
        doc: A solved example.
        settings: ``example_answer`` is a template with ``text`` (the right option, the published answer, or the names
            of all findings in alphabetical order), ``lower_text``, ``letter`` (A, B, ...), ``lower`` (a, b, ...) and
            ``acronym`` (in brackets at the end of the text) alone; ``findings_joined_by`` and ``no_finding`` are for
            findings.

    Example:
        >>> doc = {"options": ["left lung", "right lung"], "answer": "B"}
        >>> example_answer(doc, {"example_answer": "{{ letter }}) {{ text }}"})
        'B) right lung'
    """
    text = _named_answer(doc, settings)
    answer_letter = str(doc["answer"]) if "options" in doc and "answer" in doc else ""
    values = {
        "text": text,
        "lower_text": text.lower(),
        "letter": answer_letter,
        "lower": answer_letter.lower(),
        "acronym": text.rpartition("(")[2].removesuffix(")"),
    }
    template = str(settings.get("example_answer", "{{ text }}"))
    return fill_template(template, values, values, f"{template!r} cannot be filled in")


# ---- targets and options ----


def target(doc: Document) -> str:
    """Return the published answer: a letter, a text, the name of a class, names of findings, letters, or a report.

    An answer that is none of its options is as published in ``gold``.

    Example:
        >>> target({"options": ["normal", "effusion"], "label": 1})
        'effusion'
    """
    if "report" in doc:
        return str(doc["report"])
    if "answers" in doc:
        return ",".join(doc["answers"])
    if doc.get("answer") is None and doc.get("gold") is not None:
        return str(doc["gold"])
    return str(doc["answer"]) if "answer" in doc else _named_answer(doc)


def _named_answer(doc: Document, settings: Settings | None = None) -> str:
    """Return the text of a document's answer: of its option, its class or its findings, or as it is written.

    Args:
        doc: A document with an answer.
        settings: ``findings_joined_by`` and ``no_finding`` are for findings. Without settings (None) findings are
            joined by commas, and none of them is an empty text.
    """
    if "labels" in doc:
        form = settings or {}
        pairs = zip(doc["options"], doc["labels"], strict=True)
        findings = sorted(name for name, present in pairs if present)
        if not findings:
            return str(form.get("no_finding", ""))
        return str(form.get("findings_joined_by", ", ")).join(findings)
    if "label" in doc:
        return str(doc["options"][doc["label"]])
    if "options" in doc:
        index = letters(doc).index(doc["answer"])
        return str(doc["options"][index])
    return str(doc["answer"])


def letters(doc: Document) -> list[str]:
    """Return the options' letters, for tasks that compare the likelihood of letters.

    A question without options gets two, though no score: the harness needs some, and the likelihood of a single one
    looks like a text in its samples files.

    Example:
        >>> letters({"options": ["yes", "no", "maybe"]})
        ['A', 'B', 'C']
    """
    return first_letters(len(doc["options"]) or 2)


def option_texts(doc: Document) -> list[str]:
    """Return the options' texts, for tasks that compare the likelihood of whole options."""
    return list(doc["options"])


def closed_target(doc: Document) -> str:
    """Return the answer as published."""
    return str(doc["gold"])


def closed_option_texts(doc: Document) -> list[str]:
    """Return the options whose likelihoods are compared: Yes and No, or the texts without their labels.

    A question without known options has no score. Its published text is returned because the harness needs one.
    """
    return list(doc["options"]) or [str(doc["choices"])]
