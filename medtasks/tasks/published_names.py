"""What the names stand for that task files use: ``medtasks.hooks.<module>.<name>``.

They stand in users' files and in those that this package has written for them, so they stay as they are, wherever the
code is that they name.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType

from medtasks.families.family_registry import HOOKS, NAMED, families, modules
from medtasks.tasks.prompt_settings import SETTINGS_OF

MODULES: Mapping[str, str] = MappingProxyType(
    {
        "few_shot": "medtasks.prompts.few_shot",
        "filters": "medtasks.lmms.filters",
        "groups": "medtasks.lmms.metric_hooks",
        "images": "medtasks.prompts.images",
        "lm_eval_task": "medtasks.lmms.lm_eval_task",
        "multimedeval_prompts": "medtasks.prompts.template",
        "optional_judge": "medtasks.prompts.judged",
        "prompts": "medtasks.prompts.lettered",
        "volumes": "medtasks.prompts.volumes",
    }
)
"""Modules whose names are the same where the code is."""
_RENAMED: Mapping[str, str] = {
    "closed_prompts.prompt": "medtasks.prompts.lettered.closed_prompt",
    "closed_prompts.target": "medtasks.prompts.lettered.closed_target",
    "closed_prompts.option_texts": "medtasks.prompts.lettered.closed_option_texts",
    "free_form.prompt": "medtasks.prompts.judged.paired_prompt",
    "judged_choice.prompt": "medtasks.prompts.judged.prompt",
    "judged_choice.messages": "medtasks.prompts.judged.messages",
    "optional_judge.prompt": "medtasks.prompts.judged.prompt_with_judge_or_without",
    "optional_judge.messages": "medtasks.prompts.judged.messages_with_judge_or_without",
}
METRIC_LISTS: Mapping[str, str] = {
    "closed_questions.YES_NO_METRIC_LIST": "medtasks.families.closed_questions:YES_NO_METRICS",
    "kit_choice.LIKELIHOOD_METRIC_LIST": "medtasks.families.kit_choice:KIT_LIKELIHOODS.metrics",
    "reports.REPORT_METRICS": "medtasks.families.reports:REPORTS.metrics",
    "reports.MULTIMEDEVAL_METRICS": "medtasks.families.reports:MULTIMEDEVAL_REPORTS.metrics",
}
METRIC_LIST = "METRIC_LIST"


def hook_modules() -> list[str]:
    """Return the names of all modules that task files use."""
    return sorted({SETTINGS_OF, *MODULES, *modules(), *(hook.partition(".")[0] for hook in (*NAMED, *_RENAMED))})


def place_of(hook: str) -> str:
    """Return the dotted name of the code that a published name of a prompt or filter stands for."""
    module, _, name = hook.removeprefix(HOOKS).partition(".")
    known = _RENAMED.get(f"{module}.{name}")
    return known or (f"{MODULES[module]}.{name}" if hook.startswith(HOOKS) and module in MODULES else hook)


def published_names() -> list[str]:
    """Return the names that task files may use, to suggest the nearest of one that does not exist."""
    known = families()
    lists = [
        f"{hook.partition('.')[0]}.{name}"
        for hook, family in known.items()
        for name in (METRIC_LIST, *(metric.name for metric in family.metrics))
    ]
    code = [
        f"{module}.{name}"
        for module, place in MODULES.items()
        for name, value in vars(importlib.import_module(place)).items()
        if getattr(value, "__module__", None) == place and not name.startswith("_")
    ]
    return [f"{HOOKS}{name}" for name in (*known, *lists, *code, *_RENAMED, *METRIC_LISTS)]
