"""Prompt, target and options of questions with lettered options, and of MedHEval's closed ones.

The settings are those of :mod:`medtasks.prompts.template`; options are listed as ``A: text`` lines, and a template that
marks images itself may have any number of marks. Closed questions, yes/no and options mixed, have two templates:
``yes_no_template`` and ``options_template``, which may name ``question`` and ``choices``, the options as published.
"""

from collections.abc import Mapping
from typing import Any

from medtasks.data.samples import letter
from medtasks.prompts.template import Settings, filled_parts, marked

_DEFAULT = "{{ question }}\n{{ options }}\nAnswer with the option's letter from the given choices directly."
_OPTION = "{{ letter }}: {{ text }}"


def prompt(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Fill the model family's template; errors are those of :func:`medtasks.prompts.template.filled_parts`.

    Example:
        >>> document = {"question": "Where?", "options": ["Here", "There"]}
        >>> prompt(document, {"template": "Q: {{ question }} A: {{ option_a }}"})
        'Q: Where? A: Here'
    """
    settings = {"template": _DEFAULT, **(lmms_eval_specific_kwargs or {}), "option": _OPTION, "options_joined_by": "\n"}
    fields = ["question", "options", *(f"option_{name.lower()}" for name in letters(doc))]
    return marked(filled_parts(doc, settings, fields), settings)


def target(doc: Mapping[str, Any]) -> str:
    """Return the right option's letter."""
    return str(doc["answer"])


def letters(doc: Mapping[str, Any]) -> list[str]:
    """Return the options' letters, for tasks that compare the likelihood of letters.

    A question without options gets two, though no score: the harness needs some, and the likelihood of a single one
    looks like a text in its samples files.
    """
    return [letter(index) for index in range(len(doc["options"]) or 2)]


def option_texts(doc: Mapping[str, Any]) -> list[str]:
    """Return the options' texts, for tasks that compare the likelihood of whole options."""
    return list(doc["options"])


def closed_prompt(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Fill the template for this kind of question, a ``CLOSED_QUESTION`` of :mod:`medtasks.data.schema`.

    Raises MedTasksError if the settings lack the template, or it has an unknown field.

    Example:
        >>> templates = {"yes_no_template": "{{ question }} Yes or no?", "options_template": "{{ choices }}"}
        >>> closed_prompt({"kind": "binary", "question": "Is it?", "choices": ""}, templates)
        'Is it? Yes or no?'
    """
    settings = lmms_eval_specific_kwargs or {}
    name = "yes_no_template" if doc["kind"] == "binary" else "options_template"
    return marked(filled_parts(doc, settings, ("question", "choices"), name), settings)


def closed_target(doc: Mapping[str, Any]) -> str:
    """Return the answer as published."""
    return str(doc["gold"])


def closed_option_texts(doc: Mapping[str, Any]) -> list[str]:
    """Return the options whose likelihoods are compared: Yes and No, or the texts without their labels.

    A question without known options has no score; its published text is returned because the harness needs one.
    """
    return list(doc["options"]) or [str(doc["choices"])]
