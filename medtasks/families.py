"""The families of tasks: what each hook that scores replies needs of a document, and the rule it reads with by default.

``tasks_yaml/README.md`` has the same as a table for people. Light: nothing here imports a hook.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Kind(Enum):
    """What a column holds in every row."""

    TEXT = "a text"
    TEXTS = "a list of texts"
    OPTIONS = "a list of at least two texts"
    LETTER = "the letter of one of the options"
    LETTERS = "a list of letters of the options"
    LABEL = "the number of one of the options, counted from 0"
    LABELS = "a list with 0 or 1 for each of the options"
    POSITION = "1 or 2"
    YES_NO = "yes or no"
    ID = "a text or a number"
    ANYTHING = "anything"


@dataclass(frozen=True)
class Family:
    """Tasks that are scored in one way.

    Attributes:
        name: As people call it.
        columns: Columns that its documents need, besides those of its prompt.
        rule: Rule by which its hook reads texts where the task's file names none; None where a judge reads them.
        short: Columns that are enough in their place, see :mod:`medtasks.harness.own_columns`.
    """

    name: str
    columns: Mapping[str, Kind]
    rule: str | None
    short: Mapping[str, Kind] | None = None


_CHOICE = {"options": Kind.OPTIONS, "answer": Kind.LETTER}
_PAIR = {"pair_id": Kind.ID, "position": Kind.POSITION, **_CHOICE}
_CLOSED = {"question": Kind.TEXT, "kind": Kind.TEXT, "choices": Kind.TEXT, "options": Kind.TEXTS, "gold": Kind.TEXT}
_ANSWERED = {"question": Kind.TEXT, "answer": Kind.TEXT}
_REPORT = {"report": Kind.TEXT}

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        f"medtasks.hooks.{hook}": family
        for hook, family in {
            "choice.process_results": Family("single choice", _CHOICE, "robust_choice"),
            "grouped_choice.process_results": Family("single choice in groups", _CHOICE, "robust_choice"),
            "judged_choice.process_results": Family(
                "single choice with a judge", {"question": Kind.TEXT, **_CHOICE}, "vlmevalkit_2024_06"
            ),
            "pairs.process_results": Family("pairs", _PAIR, "robust_choice"),
            "free_form.process_results": Family("pairs with a judge", {**_PAIR, "question": Kind.TEXT}, None),
            "closed_questions.process_results": Family(
                "yes/no", _CLOSED, "medheval_strict", short={"question": Kind.TEXT, "answer": Kind.YES_NO}
            ),
            "open_questions.process_results": Family("open questions", _ANSWERED, "robust_vqa"),
            "multi_answer.process_results": Family(
                "several answers", {"options": Kind.OPTIONS, "answers": Kind.LETTERS}, "listed_options"
            ),
            "classification.process_results": Family(
                "classification", {"options": Kind.OPTIONS, "label": Kind.LABEL}, "robust_class"
            ),
            "multilabel.process_results": Family(
                "several findings", {"options": Kind.OPTIONS, "labels": Kind.LABELS}, "robust_labels"
            ),
            "reports.process_results": Family("reports", _REPORT, "report_text"),
            "reports.multimedeval_process_results": Family("reports", _REPORT, "report_text"),
            "visual_hallucination.process_results": Family("reports with a judge", _REPORT, "medheval_open_strict"),
            "visual_hallucination.process_results_eleven": Family(
                "reports with a judge", _REPORT, "medheval_open_strict"
            ),
            "knowledge_hallucination.process_results": Family(
                "open questions with a judge", _ANSWERED, "medheval_open_strict"
            ),
            "knowledge_hallucination.process_results_eleven": Family(
                "open questions with a judge", _ANSWERED, "medheval_open_strict"
            ),
            "submission.process_results": Family(
                "answers to submit", {"dataset": Kind.TEXT, "options": Kind.OPTIONS}, "robust_choice"
            ),
        }.items()
    }
)
"""By the hook that scores, as ``process_results`` in a task's file names it."""
