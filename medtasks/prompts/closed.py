"""Prompt, target and options of MedHEval's closed questions: yes/no and options mixed.

The texts live in the task YAML under ``lmms_eval_specific_kwargs``, two templates per model family:
``yes_no_template`` and ``options_template``. Fields are ``{question}`` and ``{choices}``, the options as published.
"""

from collections.abc import Mapping
from typing import Any

from medtasks.errors import MedTasksError
from medtasks.prompts.images import is_blind, own_marks_removed


def prompt(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> str:
    """Fill the model family's template for this kind of question, a ``CLOSED_QUESTION`` of :mod:`medtasks.data.schema`.

    Raises MedTasksError where the settings lack the template, or it has an unknown field.

    Example:
        >>> templates = {"yes_no_template": "{question} Yes or no?", "options_template": "{question} {choices}"}
        >>> prompt({"kind": "binary", "question": "Is it?", "choices": ""}, templates)
        'Is it? Yes or no?'
    """
    name = "yes_no_template" if doc["kind"] == "binary" else "options_template"
    settings = lmms_eval_specific_kwargs or {}
    if name not in settings:
        raise MedTasksError(f"lmms_eval_specific_kwargs have no {name} for this model; add one in the task's YAML")
    template = str(settings[name])
    if is_blind(doc):
        template = own_marks_removed(template, settings)
    try:
        return template.format(question=doc["question"], choices=doc["choices"])
    except (KeyError, IndexError, ValueError) as error:
        raise MedTasksError(
            f"{name} {settings[name]!r} cannot be filled in ({error}); its fields are {{question}} and {{choices}}"
        ) from error


def target(doc: Mapping[str, Any]) -> str:
    """Return the answer as published."""
    return str(doc["gold"])


def option_texts(doc: Mapping[str, Any]) -> list[str]:
    """Return the options whose likelihoods are compared: Yes and No, or the texts without their labels.

    Where these cannot be told, the published text is the only one: the harness needs one, and the question has no
    score anyway.
    """
    return list(doc["options"]) or [str(doc["choices"])]
