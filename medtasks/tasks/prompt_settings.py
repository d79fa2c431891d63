"""Settings of prompts by name, as ``lmms_eval_specific_kwargs: !function medtasks.hooks.settings_of.<name>``.

The harness hands over the settings of one model family and replaces an included file's settings whole, so ours are
written once, by name, in the ``prompts.yml`` of each benchmark. A block among them is for the families that its key
names, separated by blanks, on top of the others.
"""

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from medtasks.errors import MedTasksError
from medtasks.families.templates import names_in_template
from medtasks.tasks.task_index import Config, NewConfig, read_config, tasks_folder

_MARK = "image_mark"
# Simple models that find an image's position by a mark; all others put images first.
_MARKS = {
    family: {_MARK: "<image>"}
    for family in (
        "llava",
        "llava_hf",
        "llava_onevision",
        "radfm",
        "med_flamingo",
        "vlm_server",
    )
}


def prompt_settings(name: str) -> dict[str, NewConfig]:
    """Return new settings by model family, those of other models under ``"default"``.

    Args:
        name: Name of a block in a ``prompts.yml``.

    Raises:
        AttributeError: No file has a block of that name.
    """
    if name not in _settings_by_name():
        raise AttributeError(f"there is no medtasks.hooks.settings_of.{name}")
    default: dict[str, Any] = copy.deepcopy(_settings_by_name()[name])
    by_family: dict[str, NewConfig] = {}
    for key, block in [*default.items()]:
        if isinstance(block, Mapping):
            by_family |= dict.fromkeys(key.split(), default.pop(key))
    marks = _MARKS if _has_places(default) else {}
    settings = {"default": default}
    for family in {**marks, **by_family}:
        settings[family] = default | marks.get(family, {}) | by_family.get(family, {})
    return settings


def for_other_model(settings: Config, family: str, model: str) -> NewConfig:
    """Return the settings of a family for a model that runs its checkpoints, with the marks of images that it reads.

    Args:
        settings: Settings of the family.
        family: Model family for which a prompt was published, such as ``"llava_med"``.
        model: The harness's name of the model that is asked.

    Raises:
        MedTasksError: The template holds marks of its own, as with solved examples, and the model reads none.
    """
    unmarked = {name: value for name, value in settings.items() if name != _MARK}
    marks = _MARKS.get(model, {})
    if not marks and _MARK in settings and settings[_MARK] in str(settings.get("template")):
        raise MedTasksError(
            f"{model} puts images first, and the prompt for prompt_family={family} has images at marks in its text; "
            f"run it with vlm_server, or leave prompt_family out of --model_args"
        )
    return unmarked | marks if _has_places(unmarked) else unmarked


@cache
def prompt_families() -> frozenset[str]:
    """Return the families that any ``prompts.yml`` has a block for."""
    return frozenset().union(*map(prompt_settings, _settings_by_name()))


def _has_places(settings: Config) -> bool:
    return bool(names_in_template(str(settings.get("template"))) & {"image", "images"})


@cache
def _settings_by_name() -> Mapping[str, NewConfig]:
    settings: dict[str, NewConfig] = {}
    for path in tasks_folder().glob("*/prompts.yml"):
        settings |= read_config(path)
    return settings
