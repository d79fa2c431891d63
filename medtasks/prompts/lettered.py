"""Prompt, target and options of questions with lettered options.

The texts live in the task YAML, under ``lmms_eval_specific_kwargs``, one ``template`` per model family. Fields:
``{question}``, ``{option_a}``, ``{option_b}`` ... and ``{options}`` (all options as ``A: text`` lines).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.data.samples import letter
from medtasks.prompts.images import is_blind, own_marks_removed

_DEFAULT = "{question}\n{options}\nAnswer with the option's letter from the given choices directly."


def prompt(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> str:
    """Fill the model family's template with ``question`` and ``options``, blanks and newlines exactly as they are.

    The mark of an image that is not shown is left out.

    Example:
        >>> prompt({"question": "Where?", "options": ["Here", "There"]}, {"template": "Q: {question} A: {option_a}"})
        'Q: Where? A: Here'
    """
    settings = lmms_eval_specific_kwargs or {}
    template = str(settings.get("template", _DEFAULT))
    if is_blind(doc):
        template = own_marks_removed(template, settings)
    options: Sequence[str] = doc["options"]
    filled = {f"option_{letter(index).lower()}": text for index, text in enumerate(options)}
    listed = "\n".join(f"{letter(index)}: {text}" for index, text in enumerate(options))
    return template.format(question=doc["question"], options=listed, **filled)


def target(doc: Mapping[str, Any]) -> str:
    """Return the right option's letter."""
    return str(doc["answer"])


def letters(doc: Mapping[str, Any]) -> list[str]:
    """Return the options' letters, for tasks that compare the likelihood of letters."""
    return [letter(index) for index in range(len(doc["options"]))]


def option_texts(doc: Mapping[str, Any]) -> list[str]:
    """Return the options' texts, for tasks that compare the likelihood of whole options."""
    return list(doc["options"])
