"""Task families by the names under which task files know them; a family is imported at its first use.

``process_results: !function medtasks.hooks.<module>.process_results`` names the ``FAMILY`` of a module here. Families
older than this rule have names of their own.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from medtasks.families.family import TaskFamily

HOOKS = "medtasks.hooks."
ABSTAINING = "abstentions."
"""Module of hooks for a family whose questions have an option to abstain: ``abstentions.choice__process_results``."""
_PACKAGE = "medtasks.families"
_PROCESS_RESULTS = ".process_results"

NAMED: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "choice.process_results": ("choice", "SINGLE_CHOICE"),
        "grouped_choice.process_results": ("choice", "GROUPED_CHOICE"),
        "judged_choice.process_results": ("choice", "JUDGED_CHOICE"),
        "pairs.process_results": ("paired_choice", "PAIRED_CHOICE"),
        "free_form.process_results": ("paired_choice", "FREE_FORM"),
        "closed_questions.process_results": ("closed_questions", "CLOSED_QUESTIONS"),
        "open_questions.process_results": ("kit_questions", "OPEN_QUESTIONS"),
        "multi_answer.process_results": ("choice", "MULTI_SELECT"),
        "classification.process_results": ("classification", "CLASSIFICATION"),
        "multilabel.process_results": ("classification", "MULTI_LABEL"),
        "reports.process_results": ("free_texts", "REPORTS"),
        "reports.multimedeval_process_results": ("free_texts", "MULTIMEDEVAL_REPORTS"),
        "visual_hallucination.process_results": ("free_texts", "COMPONENT_REPORTS"),
        "visual_hallucination.process_results_eleven": ("free_texts", "COMPONENT_REPORTS_ELEVEN"),
        "knowledge_hallucination.process_results": ("free_texts", "KNOWLEDGE_QUESTIONS"),
        "knowledge_hallucination.process_results_eleven": ("free_texts", "KNOWLEDGE_QUESTIONS_ELEVEN"),
        "kit_choice.process_likelihoods": ("choice", "KIT_LIKELIHOODS"),
        "judged_questions.process_results": ("kit_questions", "JUDGED_QUESTIONS"),
        "radrestruct.process_results": ("kit_questions", "RAD_RESTRUCT"),
        "submission.process_results": ("submission", "SUBMISSION"),
        "kit_submission.process_results": ("submission", "ANSWERS_TO_SUBMIT"),
        "rotations.process_results": ("rotations", "ROTATED_CHOICE"),
        "rotations.process_classes": ("rotations", "ROTATED_CLASSES"),
        "rotations.process_listed": ("rotations", "ROTATED_MULTI_SELECT"),
        "kit_choice.process_results": ("choice", "KIT_CHOICE"),
    }
)
"""Module and name of a family, by its hook in task files without ``medtasks.hooks.``."""


@cache
def family_of(hook: str) -> "TaskFamily | None":
    """Return the family that a hook, as a task's file names it, scores for; None for one that is not ours."""
    if not hook.startswith(HOOKS):
        return None
    family: TaskFamily | None
    name = hook.removeprefix(HOOKS)
    if name.startswith(ABSTAINING):
        family = family_of(HOOKS + name.removeprefix(ABSTAINING).replace("__", ".", 1))
        return family and importlib.import_module(f"{_PACKAGE}.abstentions").abstaining(family)
    module, attribute = NAMED.get(name, (name.removesuffix(_PROCESS_RESULTS), "FAMILY"))
    if module not in modules() or (name not in NAMED and not name.endswith(_PROCESS_RESULTS)):
        return None
    family = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), attribute, None)
    return family


def families() -> "dict[str, TaskFamily]":
    """Return all families by hook, without ``medtasks.hooks.``; imports them all."""
    hooks = [*NAMED, *(f"{module}{_PROCESS_RESULTS}" for module in modules())]
    return {hook: family for hook in hooks if (family := family_of(f"{HOOKS}{hook}")) is not None}


@cache
def modules() -> frozenset[str]:
    """Return the names of the modules of this room."""
    return frozenset(module.name for module in pkgutil.iter_modules(importlib.import_module(_PACKAGE).__path__))
