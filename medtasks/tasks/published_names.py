"""The published names that task files use, ``medtasks.hooks.<module>.<name>``, and the code they name.

They are part of users' files and of those that this package has written for them, so they stay as they are wherever the
code moves.

``settings_of.<name>`` is for ``lmms_eval_specific_kwargs``. The harness hands over the settings of one model family
and replaces an included file's settings whole, so ours are written once, by name, in the ``prompts.yml`` of each
benchmark. A block among them is for the families that its key names, separated by blanks, on top of the others.
"""

import contextlib
import copy
import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from medtasks.families.family_registry import HOOKS, NAMED, families, modules
from medtasks.families.templates import names_in_template
from medtasks.tasks.task_index import read_config, tasks_folder

MODULES: Mapping[str, str] = {
    "few_shot": "medtasks.prompts.few_shot",
    "filters": "medtasks.lmms.filters",
    "groups": "medtasks.hooks",
    "images": "medtasks.prompts.images",
    "lm_eval_task": "medtasks.lmms.lm_eval_task",
    "multimedeval_prompts": "medtasks.prompts.template",
    "optional_judge": "medtasks.prompts.judged",
    "volumes": "medtasks.prompts.volumes",
}
"""Modules whose names are the same in the code."""
_RENAMED: Mapping[str, str] = {
    "closed_prompts.prompt": "medtasks.prompts.template.closed_prompt",
    "closed_prompts.target": "medtasks.prompts.template.closed_target",
    "closed_prompts.option_texts": "medtasks.prompts.template.closed_option_texts",
    "free_form.prompt": "medtasks.prompts.judged.paired_prompt",
    "judged_choice.prompt": "medtasks.prompts.judged.prompt",
    "judged_choice.messages": "medtasks.prompts.judged.messages",
    "optional_judge.prompt": "medtasks.prompts.judged.prompt_with_judge_or_without",
    "optional_judge.messages": "medtasks.prompts.judged.messages_with_judge_or_without",
    "prompts.letters": "medtasks.prompts.template.letters",
    "prompts.option_texts": "medtasks.prompts.template.option_texts",
    "prompts.prompt": "medtasks.prompts.template.lettered_prompt",
    "prompts.target": "medtasks.prompts.template.lettered_target",
}
METRIC_LISTS: Mapping[str, str] = {
    "closed_questions.YES_NO_METRIC_LIST": "medtasks.families.closed_questions:YES_NO_METRICS",
    "kit_choice.LIKELIHOOD_METRIC_LIST": "medtasks.families.choice:KIT_LIKELIHOODS.metrics",
    "reports.REPORT_METRICS": "medtasks.families.free_texts:REPORTS.metrics",
    "reports.MULTIMEDEVAL_METRICS": "medtasks.families.free_texts:MULTIMEDEVAL_REPORTS.metrics",
}
METRIC_LIST = "METRIC_LIST"


def hook_modules() -> list[str]:
    """Return the names of all modules that task files use."""
    return sorted({SETTINGS_OF, *MODULES, *modules(), *(hook.partition(".")[0] for hook in (*NAMED, *_RENAMED))})


def hook_place(hook: str) -> str:
    """Return the dotted name of the code that a published name of a prompt or filter means."""
    module, _, name = hook.removeprefix(HOOKS).partition(".")
    renamed = _RENAMED.get(f"{module}.{name}")
    return renamed or (f"{MODULES[module]}.{name}" if hook.startswith(HOOKS) and module in MODULES else hook)


def hook_name(hook: object) -> str:
    """Return the dotted name of a hook, a function or a text: for prompts that of the code."""
    if isinstance(hook, str):
        return hook_place(hook)
    return f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', '')}"


def published_names() -> list[str]:
    """Return the names that task files may use, to suggest the nearest one; those of missing packages are left out."""
    hooks = families()
    names = [*hooks, *_RENAMED, *METRIC_LISTS]
    for hook, family in hooks.items():
        metrics = (metric.name for metric in family.metrics)
        names += [f"{hook.partition('.')[0]}.{name}" for name in (METRIC_LIST, *metrics)]
    for module, home in MODULES.items():
        public = {}
        with contextlib.suppress(ImportError):  # lm_eval_task needs an optional package
            public = {name: value for name, value in vars(importlib.import_module(home)).items() if name[0] != "_"}
        names += [f"{module}.{name}" for name, value in public.items() if getattr(value, "__module__", None) == home]
    return [f"{HOOKS}{name}" for name in names]


SETTINGS_OF = "settings_of"
# Simple models that find an image's position by a mark; all others put images first.
_MARKS = {
    family: {"image_mark": "<image>"}
    for family in ("llava", "llava_hf", "llava_onevision", "radfm", "med_flamingo", "vlm_server")
}


def prompt_settings(name: str) -> dict[str, dict[str, Any]]:
    """Return new settings by model family; AttributeError for an unknown name."""
    if name not in _named():
        raise AttributeError(f"there is no {HOOKS}{SETTINGS_OF}.{name}")
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
