"""Prompts with images at their place in the text, as MultiMedEval asks all its task families.

The texts live in the task YAML, under ``lmms_eval_specific_kwargs``, one set of settings per model family:

=====================  ==============================================================================================
setting                meaning
=====================  ==============================================================================================
``template``           the prompt. ``<img>`` is the place of one image; fields are ``{question}``, ``{context}``,
                       ``{details}``, ``{indication}``, ``{options}``, ``{closed_prefix}``, ``{hint}`` (a line of its
                       own, if any) and ``{images}`` (one ``<img>`` per image)
``closed_prefix``      text of its field where the published answer is exactly ``yes`` or ``no``; elsewhere it is empty
``option``             how one option is written, see :func:`medtasks.families.family.written_options`
``options_joined_by``  what stands between two options, a new line if not given
``images_joined_by``   what stands between two places of ``{images}``, nothing if not given
``image_mark``         what a simple model finds an image's place by; without it, images come first in its prompt
``example_answer``     answer that a demonstration shows, see :func:`example_answer`
=====================  ==============================================================================================
"""

from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.data.samples import letter
from medtasks.errors import MedTasksError, SourceError
from medtasks.families.family import written_options
from medtasks.prompts.images import images, is_blind

Settings = Mapping[str, Any]
Message = dict[str, Any]
_PLACE = "<img>"


def prompt(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Return the prompt of a simple model, which gets text and images apart.

    The family's ``image_mark`` stands in the images' places; without one, a place is removed with the blank behind it.
    Raises MedTasksError where the settings lack a template, or it has an unknown field, and SourceError where it has
    another number of places than the document images.

    Example:
        >>> prompt({"question": "Where?", "image_files": ["a.png"]}, {"template": "Look: <img> {question}"})
        'Look: Where?'
    """
    settings = lmms_eval_specific_kwargs or {}
    mark = settings.get("image_mark", "")
    first, *others = question_parts(doc, settings)
    return first + "".join(mark + part if mark else part.removeprefix(" ") for part in others)


def messages(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Settings | None = None) -> list[Message]:
    """Return the conversation of a chat model: one user turn with every image at its place in the text.

    Errors are those of :func:`prompt`, and :class:`~medtasks.errors.SourceError` for a broken image.
    """
    settings = lmms_eval_specific_kwargs or {}
    return [user_turn(question_parts(doc, settings), images(doc, settings))]


def user_turn(parts: Sequence[str], shown: Sequence[Any]) -> Message:
    """Return a turn in which the images stand between the parts of the text; with a single part they come first."""
    before = [""] * (len(shown) + 1 - len(parts))
    content: list[dict[str, Any]] = []
    for position, part in enumerate([*before, *parts]):
        if position:
            content.append({"type": "image", "url": shown[position - 1]})
        if part:
            content.append({"type": "text", "text": part})
    return {"role": "user", "content": content}


def target(doc: Mapping[str, Any]) -> str:
    """Return the published answer: a letter, a text, the name of a class, names of findings, letters, or a report."""
    if "report" in doc:
        return str(doc["report"])
    if "answers" in doc:
        return ",".join(doc["answers"])
    return str(doc["answer"]) if "answer" in doc else _named_answer(doc)


def question_parts(doc: Mapping[str, Any], settings: Settings) -> list[str]:
    """Fill the template and cut it where the images stand; errors are those of :func:`prompt`.

    There is one part more than there are images; a single part if the template has no place for images, or the document
    is one whose images are left out: their places are removed with the blank behind them.
    """
    shown = len(doc["image_files"]) if "image_files" in doc else int("image_file" in doc)
    # Cut before filling: a question may itself hold the mark.
    places = str(settings.get("images_joined_by", "")).join([_PLACE] * shown)
    if "template" not in settings:
        raise MedTasksError("lmms_eval_specific_kwargs have no template for this model; add one in the task's YAML")
    template = str(settings["template"])
    parts = template.replace("{images}", _PLACE if is_blind(doc) else places).split(_PLACE)
    if is_blind(doc):
        parts = ["".join([parts[0], *(part.removeprefix(" ") for part in parts[1:])])]
    if len(parts) > 1 and len(parts) - 1 != shown:
        raise SourceError(
            f"sample {doc.get('doc_id', '?')} has {shown} images and its prompt {len(parts) - 1} places for them; "
            f"write {{images}} into the template instead of {_PLACE}"
        )
    options = written_options(settings.get("option"), doc.get("options") or ())
    fields = {
        **{name: doc.get(name) or "" for name in ("question", "context", "details", "indication")},
        "hint": f"Hint: {doc['hint']}\n" if doc.get("hint") else "",
        "options": str(settings.get("options_joined_by", "\n")).join(options),
        "closed_prefix": settings.get("closed_prefix", "") if doc.get("answer") in ("yes", "no") else "",
    }
    return [_filled(part, fields) for part in parts]


def example_answer(doc: Mapping[str, Any], settings: Settings) -> str:
    """Return the answer a demonstration shows.

    ``example_answer`` of the settings is a text with the fields ``{text}`` (the right option, the published answer, or
    the names of all findings in alphabetical order), ``{lower_text}``, ``{letter}`` (A, B, ...), ``{lower}`` (a, b,
    ...) and ``{acronym}`` (what the text has in brackets at its end), and no other; ``findings_joined_by`` and
    ``no_finding`` say how findings are listed.

    Example:
        >>> example_answer({"options": ["Nevus (NEV)"], "label": 0}, {"example_answer": "{text} ({acronym})"})
        'Nevus (NEV) (NEV)'
    """
    text = _named_answer(doc, settings)
    chosen = str(doc["answer"]) if "options" in doc and "answer" in doc else ""
    fields = {
        "text": text,
        "lower_text": text.lower(),
        "letter": chosen,
        "lower": chosen.lower(),
        "acronym": text.rpartition("(")[2].removesuffix(")"),
    }
    return _filled(str(settings.get("example_answer", "{text}")), fields)


def _named_answer(doc: Mapping[str, Any], settings: Settings | None = None) -> str:
    if "labels" in doc:
        found = sorted(name for name, present in zip(doc["options"], doc["labels"], strict=True) if present)
        how = settings or {}
        return str(how.get("findings_joined_by", ", ")).join(found) or str(how.get("no_finding", ""))
    if "label" in doc:
        return str(doc["options"][doc["label"]])
    if "options" in doc:
        return str(doc["options"][[letter(index) for index in range(len(doc["options"]))].index(doc["answer"])])
    return str(doc["answer"])


def _filled(text: str, fields: Mapping[str, str]) -> str:
    try:
        return text.format_map(fields)
    except (KeyError, IndexError, ValueError) as error:
        raise MedTasksError(f"{text!r} cannot be filled in ({error}); its fields are {', '.join(fields)}") from error
