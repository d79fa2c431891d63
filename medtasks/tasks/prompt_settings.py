"""Settings of prompts by name, as ``lmms_eval_specific_kwargs: !function medtasks.hooks.settings_of.<name>``.

The harness hands over the settings of one model family and replaces an included file's settings whole, so ours are
written once, by name, in the ``prompts.yml`` of each benchmark. A block among them is for the families that its key
names, separated by blanks, on top of the others.
"""

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from medtasks.families.templates import names_in_template
from medtasks.tasks.task_index import read_config, tasks_folder

# Simple models that find an image's position by a mark; all others put images first.
_MARKS = {
    family: {"image_mark": "<image>"}
    for family in ("llava", "llava_hf", "llava_onevision", "radfm", "med_flamingo", "vlm_server")
}


def prompt_settings(name: str) -> dict[str, dict[str, Any]]:
    """Return new settings by model family; AttributeError for an unknown name."""
    if name not in _named():
        raise AttributeError(f"there is no medtasks.hooks.settings_of.{name}")
    default = copy.deepcopy(_named()[name])
    blocks = {families: default.pop(families) for families, block in [*default.items()] if isinstance(block, Mapping)}
    by_family = {family: block for families, block in blocks.items() for family in families.split()}
    marks = _MARKS if names_in_template(str(default.get("template"))) & {"image", "images"} else {}
    names = {**marks, **by_family}
    made = {family: default | marks.get(family, {}) | by_family.get(family, {}) for family in names}
    return {"default": default, **made}


@cache
def _named() -> Mapping[str, dict[str, Any]]:
    return {
        name: settings for path in tasks_folder().glob("*/prompts.yml") for name, settings in read_config(path).items()
    }
