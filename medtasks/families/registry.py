"""Task families by the names under which task files know them; a family is imported when it is asked for."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from medtasks.families.family import TaskFamily

HOOKS = "medtasks.hooks."

_FAMILIES: Mapping[str, tuple[str, str]] = {
    "choice.process_results": ("single_choice", "SINGLE_CHOICE"),
    "grouped_choice.process_results": ("single_choice", "GROUPED_CHOICE"),
    "judged_choice.process_results": ("single_choice", "JUDGED_CHOICE"),
    "pairs.process_results": ("paired_choice", "PAIRED_CHOICE"),
    "free_form.process_results": ("paired_choice", "FREE_FORM"),
    "closed_questions.process_results": ("closed_questions", "CLOSED_QUESTIONS"),
    "open_questions.process_results": ("open_questions", "OPEN_QUESTIONS"),
    "multi_answer.process_results": ("multi_select", "MULTI_SELECT"),
    "classification.process_results": ("classification", "CLASSIFICATION"),
    "multilabel.process_results": ("classification", "MULTI_LABEL"),
    "reports.process_results": ("reports", "REPORTS"),
    "reports.multimedeval_process_results": ("reports", "MULTIMEDEVAL_REPORTS"),
    "visual_hallucination.process_results": ("hallucination", "COMPONENT_REPORTS"),
    "visual_hallucination.process_results_eleven": ("hallucination", "COMPONENT_REPORTS_ELEVEN"),
    "knowledge_hallucination.process_results": ("hallucination", "KNOWLEDGE_QUESTIONS"),
    "knowledge_hallucination.process_results_eleven": ("hallucination", "KNOWLEDGE_QUESTIONS_ELEVEN"),
    "submission.process_results": ("submission", "SUBMISSION"),
    "rotations.process_results": ("rotations", "ROTATED_CHOICE"),
    "rotations.process_classes": ("rotations", "ROTATED_CLASSES"),
    "rotations.process_listed": ("rotations", "ROTATED_MULTI_SELECT"),
}
FAMILIES: Mapping[str, tuple[str, str]] = MappingProxyType({HOOKS + hook: place for hook, place in _FAMILIES.items()})
"""Module and name of a family, by the hook that scores, as ``process_results`` in a task's file names it."""

ROTATED: Mapping[str, str] = MappingProxyType(
    {
        HOOKS + hook: HOOKS + rotated
        for hook, rotated in {
            "choice.process_results": "rotations.process_results",
            "grouped_choice.process_results": "rotations.process_results",
            "pairs.process_results": "rotations.process_results",
            "classification.process_results": "rotations.process_classes",
            "multi_answer.process_results": "rotations.process_listed",
        }.items()
    }
)
"""What scores rotated options, by what scores a task whose target is one of the options, or a list of them.

The others have no target among their options (open questions, reports, findings, parts without a published one), or a
judge reads their replies; MedHEval's closed questions publish their options as one text.
"""


def family_of(hook: str) -> "TaskFamily | None":
    """Return the family that a hook scores for; None for a hook that is not ours."""
    place = FAMILIES.get(hook)
    if place is None:
        return None
    found: TaskFamily = getattr(importlib.import_module(f"medtasks.families.{place[0]}"), place[1])
    return found
