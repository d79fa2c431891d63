"""Which sanity variants a task has, decided from its own configuration and the size of its dataset. Light."""

import json
from collections.abc import Mapping
from string import Formatter
from typing import Any

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.home import dataset_folder

BLIND, BLANK, SWAPPED, ROTATED = "blind", "blank", "swapped", "rotated"
OF_IMAGES = (BLIND, BLANK, SWAPPED)
VARIANTS = (*OF_IMAGES, ROTATED)
COLUMN = "variant"
"""Column by which hooks know the documents of a variant."""

_MANIFEST = "manifest.json"
_HOOKS = "medtasks.hooks."
_IMAGES = "medtasks.hooks.images.images"
_LETTERED_PROMPT = "medtasks.hooks.prompts.prompt"
_LETTER = "medtasks.hooks.rotations.process_results"
ROTATED_SCORING: Mapping[str, str] = {
    "medtasks.hooks.pairs.process_results": _LETTER,
    "medtasks.hooks.choice.process_results": _LETTER,
    "medtasks.hooks.grouped_choice.process_results": _LETTER,
    "medtasks.hooks.classification.process_results": _LETTER,
    "medtasks.hooks.multi_answer.process_results": "medtasks.hooks.rotations.process_listed",
}
"""What scores rotated options, by what scores a task whose key is one of the options, or a list of them.

The others have no key among their options (open questions, reports, findings, parts without a published key), or a
judge reads their replies. MedHEval's closed questions have their options in one published text, in several dialects,
of which the rules make use; it cannot be written in another order without changing anything else.
"""


def variants_for(config: Mapping[str, Any], dataset: str | None) -> tuple[str, ...]:
    """Return the names of a task's variants, in the order of :data:`VARIANTS`.

    Args:
        config: What its file and the files that it includes say, with unresolved dotted names.
        dataset: Name of its prepared dataset; None for documents of the user's own, of which only our hooks know what a
            variant shows.

    Returns:
        None for a task whose dataset holds no image; ``rotated`` only where the prompt shows the options.
    """
    if not (_opens_images(config) if dataset is None else has_images(dataset)):
        return ()
    return VARIANTS if config.get("process_results") in ROTATED_SCORING and _shows_options(config) else OF_IMAGES


def _opens_images(config: Mapping[str, Any]) -> bool:
    """Return whether hooks of ours open the images, in chat models' conversations, too."""
    messages = config.get("doc_to_messages")
    return config.get("doc_to_visual") == _IMAGES and (messages is None or str(messages).startswith(_HOOKS))


def has_images(dataset: str) -> bool:
    """Return whether a dataset holds images; one whose number of images nobody states does."""
    if dataset in CATALOGUE:
        return CATALOGUE[dataset].images != 0
    try:
        # The manifest's own class takes longer to import than everything that is done at start-up.
        return bool(json.loads((dataset_folder(dataset) / _MANIFEST).read_text(encoding="utf-8"))["images"] != 0)
    except (OSError, ValueError, KeyError, TypeError):
        return True


def _shows_options(config: Mapping[str, Any]) -> bool:
    hook = str(config.get("doc_to_text"))
    settings = config.get("lmms_eval_specific_kwargs")
    families = [one for one in settings.values() if isinstance(one, Mapping)] if isinstance(settings, Mapping) else []
    templates = [str(one["template"]) for one in families if "template" in one]
    if not templates:
        return hook == _LETTERED_PROMPT  # whose own prompt does
    fields = {field for template in templates for field in _fields(template)}
    return hook.startswith(_HOOKS) and bool(fields & {"options", "option_a"})


def _fields(template: str) -> list[str]:
    try:
        return [field for _, field, _, _ in Formatter().parse(template) if field]
    except ValueError:  # a brace of the user's that is no field; asking the question says so
        return []
