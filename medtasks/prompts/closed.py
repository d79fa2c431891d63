"""Prompt, target and options of MedHEval's closed questions: yes/no and options mixed.

The settings are those of :mod:`medtasks.prompts.template`, with two templates: ``yes_no_template`` and
``options_template``, which may name ``question`` and ``choices``, the options as published.
"""

from collections.abc import Mapping
from typing import Any

from medtasks.prompts.template import Settings, filled_parts, marked


def prompt(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Fill the template for this kind of question, a ``CLOSED_QUESTION`` of :mod:`medtasks.data.schema`.

    Raises MedTasksError where the settings lack the template, or it has an unknown field.

    Example:
        >>> templates = {"yes_no_template": "{{ question }} Yes or no?", "options_template": "{{ choices }}"}
        >>> prompt({"kind": "binary", "question": "Is it?", "choices": ""}, templates)
        'Is it? Yes or no?'
    """
    settings = lmms_eval_specific_kwargs or {}
    name = "yes_no_template" if doc["kind"] == "binary" else "options_template"
    return marked(filled_parts(doc, settings, ("question", "choices"), name), settings)


def target(doc: Mapping[str, Any]) -> str:
    """Return the answer as published."""
    return str(doc["gold"])


def option_texts(doc: Mapping[str, Any]) -> list[str]:
    """Return the options whose likelihoods are compared: Yes and No, or the texts without their labels.

    Where these cannot be told, the published text is the only one: the harness needs one, and the question has no
    score anyway.
    """
    return list(doc["options"]) or [str(doc["choices"])]
