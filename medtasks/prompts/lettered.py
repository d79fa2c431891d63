"""Prompt, target and options of questions with lettered options.

The settings are those of :mod:`medtasks.prompts.template`; options are listed as ``A: text`` lines, and a template that
marks images itself may have any number of marks.
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
    """Return the options' letters, for tasks that compare the likelihood of letters."""
    return [letter(index) for index in range(len(doc["options"]))]


def option_texts(doc: Mapping[str, Any]) -> list[str]:
    """Return the options' texts, for tasks that compare the likelihood of whole options."""
    return list(doc["options"])
