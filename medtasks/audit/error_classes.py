"""Wrong answers as CSV, and their kinds that do not depend on the image, after the case study of GMAI-MMBench.

The authors sorted 53 answers by hand into question misunderstanding, perceptual error, lack of knowledge, irrelevant
response and refusal. A rule cannot tell perception from knowledge. Source: Chen et al., 2024, supplement.
"""

import csv
import enum
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data.samples import Sample
from medtasks.errors import MedTasksError
from medtasks.extract.answer import Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.reading.reply_text import own_words, refuses
from medtasks.families.counts import is_failed
from medtasks.families.family import Reply
from medtasks.metrics.metric import Score
from medtasks.tasks.task_file import TaskFile

Documents = Sequence[Mapping[str, Any]]
Replies = Mapping[str, Reply]

_LETTER = re.compile(r"\b[A-Z]\b")
_WORD = re.compile(r"[^\W\d_]{2,}")
_FEW_KINDS = 0.2  # distinct words of all words; broken models repeat themselves
_LONG = 30  # words
OF_ANSWERS = frozenset({"accuracy", "individual_accuracy"})  # metrics of tasks whose single answers are right or wrong
_EXPORTED = ("doc_id", "rule", "question", "options", "key", "value", "reason", "class", "class_by_human", "reply")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what begins so is computed by a spreadsheet
# Columns that are shown as what they are, and a patient's, which is shown nowhere.
_READ = (
    *("doc_id", "question", "options", "answer", "label", "labels", "report", "context", "indication", "details"),
    *("hint", "kind", "choices", "gold", "image_file", "image_files", "image_id", "unit_id", "patient_id"),
)


class ErrorClass(enum.StrEnum):
    """Kind of a wrong answer, as far as a rule can tell."""

    REFUSAL = "refusal"
    IRRELEVANT = "irrelevant response"
    MISUNDERSTOOD = "question misunderstanding"
    FAILED = "adapter failed"
    FOR_A_HUMAN = "perception or knowledge, for a human to tell"


def error_class(reply: str | None, value: str | None) -> ErrorClass:
    """Return the kind of a wrong answer; ``value`` is its letter, if any.

    An irrelevant response is empty, unreadable or repeats itself. The answer to a misunderstood question is several
    options, or none of them.
    """
    if failure_cause(reply) is not None:
        return ErrorClass.FAILED
    if value is not None:
        return ErrorClass.FOR_A_HUMAN
    text = own_words(reply)
    if isinstance(text, Reason) or not readable(text):
        return ErrorClass.IRRELEVANT
    if refuses(text):
        return ErrorClass.REFUSAL
    return ErrorClass.MISUNDERSTOOD


def readable(text: str) -> bool:
    """Return whether a text has words, or is a letter, and does not repeat the same few words.

    Example:
        >>> readable("#### 1.2.3"), readable("polyp polyp " * 40), readable("B")
        (False, False, True)
    """
    words = [word.casefold() for word in _WORD.findall(text)]
    if not words:
        return _LETTER.search(text) is not None
    return len(words) < _LONG or len(set(words)) / len(words) >= _FEW_KINDS


@dataclass(frozen=True)
class WrongAnswer:
    """One wrong answer."""

    document: Mapping[str, Any]
    score: Score  # of the reply, from the task's family
    reply: str  # the reply as the model gave it; empty for likelihoods
    kind: ErrorClass  # why it is wrong, as far as a rule can tell


def wrong_answers(
    task: TaskFile, documents: Documents, scores: Sequence[Score], replies: Mapping[str, Reply]
) -> list[WrongAnswer]:
    """Return the wrong answers of a task with one of :data:`OF_ANSWERS`, a target and a value; of another task none.

    Without a target, or where the published code stops, nothing is wrong.
    """
    if not any(metric.name in OF_ANSWERS for metric in task.metrics) or any(score.get("stops") for score in scores):
        return []
    found = []
    for document, score in zip(documents, scores, strict=True):
        if is_failed(score) or "value" not in score or score["target"] in (None, score["value"]):
            continue
        reply = replies[document["doc_id"]].text
        kind = ErrorClass.FOR_A_HUMAN if reply is None else error_class(reply, score["value"])
        found.append(WrongAnswer(document, score, reply or "", kind))
    return found


def count_kinds(wrong: Sequence[WrongAnswer]) -> dict[str, int]:
    """Return how many wrong answers are of which kind, the most frequent first."""
    return dict(Counter(str(one.kind) for one in wrong).most_common())


def export_wrong_answers(path: Path, private: Sequence[str], wrong: Mapping[str, Sequence[WrongAnswer]]) -> None:
    """Write wrong answers, by name of the row, as CSV, with an empty column for a human's judgement.

    Errors are those of :func:`write_replies`.
    """
    documents = [one.document for answers in wrong.values() for one in answers]
    own = list(dict.fromkeys(column for document in documents for column in own_columns(document)))
    rows = []
    for name, answers in wrong.items():
        for one in answers:
            options = " | ".join(one.document.get("options") or ())
            kind = "" if one.kind is ErrorClass.FOR_A_HUMAN else str(one.kind)
            cells = [one.document["doc_id"], name, one.document.get("question"), options]
            read = (one.score["target"], one.score["value"], one.score["reason"])
            known = own_columns(one.document)
            cells += [*read, kind, "", one.reply, " | ".join(image_names(one.document))]
            rows.append([*cells, *(known.get(key, "") for key in own)])
    write_replies(path, private, "--export-errors", (*_EXPORTED, "images", *own), rows)


def write_replies(
    path: Path, private: Sequence[str], writer: str, titles: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Write a table of questions and replies as CSV, in which no text is a formula; ``writer`` is what was asked for.

    MedTasksError: it cannot be written, or the text of ``private`` datasets may not leave their folder.
    """
    if private:
        names = ",".join(private)
        raise MedTasksError(
            f"'{names}' is credentialed, and {writer} writes questions and replies in clear; allow it with "
            f"MEDTASKS_LOG_TEXT={names}"
        )
    try:
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([_cell(cell) for cell in row] for row in (titles, *rows))
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error


def own_columns(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of a user's own file that no task reads; none of prepared data."""
    known = {} if "dataset" in document else document
    return {name: str(one) for name, one in known.items() if isinstance(one, str | int | float) and name not in _READ}


def image_names(document: Mapping[str, Any]) -> list[str]:
    """Return the image files of a document; an absolute path would say where they lie on this machine."""
    return [Path(file).name if Path(file).is_absolute() else file for file in Sample(document).images]


def _cell(value: Any) -> Any:
    """Return what a cell holds; an apostrophe makes a text of a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
