"""Settings of prompts by name, for ``lmms_eval_specific_kwargs: !function medtasks.hooks.settings_of.<name>``.

The harness hands over the settings of one model family, and replaces whole what an included file says of them. So ours
stand once, by name, in the ``prompts.yml`` of a benchmark's folder. A block among the settings is for the families
that its key names, divided by blanks, on top of the others.
"""

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from medtasks.families.family_registry import HOOKS
from medtasks.families.templates import names_in_template
from medtasks.tasks.task_index import read_config, tasks_folder

SETTINGS_OF = "settings_of"
_FILES = "*/prompts.yml"
# Simple models that find an image's place by a mark; all others put images first.
_MARKS = {
    family: {"image_mark": "<image>"}
    for family in ("llava", "llava_hf", "llava_onevision", "radfm", "med_flamingo", "vlm_server")
}


def prompt_settings(name: str) -> dict[str, dict[str, Any]]:
    """Return new settings by model family; AttributeError where there are none of this name."""
    if name not in _named():
        raise AttributeError(f"there is no {HOOKS}{SETTINGS_OF}.{name}")
    given = copy.deepcopy(_named()[name])
    blocks = {families: given.pop(families) for families, block in [*given.items()] if isinstance(block, Mapping)}
    own = {family: block for families, block in blocks.items() for family in families.split()}
    marks = _MARKS if names_in_template(str(given.get("template"))) & {"image", "images"} else {}
    return {
        "default": given,
        **{family: {**given, **marks.get(family, {}), **own.get(family, {})} for family in {**marks, **own}},
    }


@cache
def _named() -> Mapping[str, dict[str, Any]]:
    return {name: given for path in tasks_folder().glob(_FILES) for name, given in read_config(path).items()}
