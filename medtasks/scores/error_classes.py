"""Wrong answers, their kinds after the case study of GMAI-MMBench, and their export as CSV.

The authors sorted 53 answers by hand into question misunderstanding, perceptual error, lack of knowledge, irrelevant
response and refusal. A rule cannot tell perception from knowledge. Source: Chen et al., 2024, supplement.
"""

import csv
import enum
import itertools
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.data.samples import Document, Documents, Sample
from medtasks.errors import MedTasksError, plain
from medtasks.extract.careful.yes_no import is_unsure
from medtasks.extract.extractor_registry import Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.reading.languages import languages_of, pattern_of
from medtasks.extract.reading.option_mentions import is_content, same_word, words_in
from medtasks.extract.reading.reply_text import REFUSAL, own_words
from medtasks.families.counts import is_failed, is_stopped
from medtasks.families.family import Replies
from medtasks.home import written_whole
from medtasks.metrics.metric import Score, ScoreList
from medtasks.net.journal import digest_of
from medtasks.tasks.task_file import TaskFile

_REFERENCE = re.compile(
    r"https?:|\bwww\.|\bdoi\b|\bet al\b|\b(?:19|20)\d\d;\s*\d", re.IGNORECASE
)
# Label of an option. "A" may be an article.
_LABEL = re.compile(r"(?<![A-Za-z])(?:[B-HJ-Z]|A(?=[.,:)]))(?![A-Za-z])")
# Metrics of tasks whose single answers are right or wrong.
OF_ANSWERS = frozenset({"accuracy", "individual_accuracy"})
AnswerKey = tuple[str, str]
"""Document id and digest of a reply."""
# First characters of texts that a spreadsheet computes
_FORMULA = "=", "+", "-", "@", "\t", "\r"
HUMAN_COLUMN = "class_by_human"  # of an export, empty
# Columns that are shown in their own way, and a patient's, which is never shown.
_TASK_COLUMNS = (
    "doc_id",
    "question",
    "options",
    "answer",
    "label",
    "labels",
    "report",
    "context",
    "indication",
    "details",
    "hint",
    "kind",
    "choices",
    "gold",
    "image_file",
    "image_files",
    "image_id",
    "unit_id",
    "patient_id",
)


class ErrorClass(enum.StrEnum):
    """Kind of a wrong answer, as far as a rule can tell."""

    REFUSAL = "refusal"
    IRRELEVANT = "irrelevant response"
    MISUNDERSTOOD = "question misunderstanding"
    FAILED = "adapter failed"
    FOR_A_HUMAN = "perception or knowledge, for a human to tell"


@dataclass(frozen=True)
class WrongAnswer:
    """One wrong answer."""

    document: Document
    score: Score  # of the reply, from the task's family
    reply: str  # the reply as the model gave it; empty for likelihoods
    kind: ErrorClass  # as far as a rule can tell

    @property
    def key(self) -> AnswerKey:
        """Document id and digest of the reply, by which a human's judgement is matched."""
        digest = f"r{digest_of(self.reply)[:16]}"  # no spreadsheet takes it for a number
        return str(self.document["doc_id"]), digest


def error_class(reply: str | None, value: str | None, question: str = "") -> ErrorClass:
    """Return the kind of a wrong answer.

    Args:
        reply: The reply as the model gave it; None is an empty one.
        value: Letter that was read; None if there is no valid answer.
        question: Question with its options. A reply without any word of them is irrelevant.

    Example:
        >>> error_class("B. Pneumonia", "B").value
        'perception or knowledge, for a human to tell'
    """
    if failure_cause(reply) is not None:
        return ErrorClass.FAILED
    if value is not None:
        return ErrorClass.FOR_A_HUMAN
    text = own_words(reply)
    if isinstance(text, Reason) or _is_broken(text):
        return ErrorClass.IRRELEVANT
    languages = languages_of(text)
    declines = REFUSAL.search(text) or pattern_of("writer advice", languages).search(text)
    if declines or is_unsure(text, languages):
        return ErrorClass.REFUSAL
    if _is_irrelevant(text, question, languages):
        return ErrorClass.IRRELEVANT
    return ErrorClass.MISUNDERSTOOD


def _is_broken(text: str) -> bool:
    """Return whether a text repeats few words, as broken models do, or has neither a word nor a letter."""
    words = [word.casefold() for word in re.findall(r"[^\W\d_]{2,}", text)]
    repeats = len(words) >= 30 and len(set(words)) / len(words) < 0.2
    return repeats or not (words or re.search(r"\b[A-Z]\b", text))


def _is_irrelevant(text: str, question: str, languages: tuple[str, ...]) -> bool:
    """Return whether a text is nothing but references, or has no option's letter and no word of what is asked."""
    lines = [line for line in text.splitlines() if not _REFERENCE.search(line)]
    if any(map(_LABEL.search, lines)):
        return False
    content = _content(" ".join(lines), languages)
    asked_content = _content(question, languages)
    if not content or not asked_content or {*languages}.isdisjoint(languages_of(question)):
        return len(lines) < len(text.splitlines()) and not content
    return not any(itertools.starmap(same_word, itertools.product(content, asked_content)))


def _content(text: str, languages: tuple[str, ...]) -> set[str]:
    """Return the words that tell one text from another."""
    return set(filter(is_content, words_in(pattern_of("plain", languages).sub(" ", text))))


def wrong_answers(
    task: TaskFile,
    documents: Documents,
    scores: ScoreList,
    replies: Replies,
) -> list[WrongAnswer]:
    """Return the wrong answers of a task with a metric of :data:`OF_ANSWERS`, or none where the published code stops.

    Args:
        task: Task that the replies answer.
        documents: Documents with a score.
        scores: Scores of their replies, shape (documents,).
        replies: Replies by document id.
    """
    if not any(metric.name in OF_ANSWERS for metric in task.metrics) or is_stopped(scores):
        return []
    wrong = []
    for document, score in zip(documents, scores, strict=True):
        if not _is_wrong(score):
            continue
        text = replies[document["doc_id"]].text
        kind = ErrorClass.FOR_A_HUMAN
        if text is not None:  # else these are likelihoods
            parts = [document.get("question") or "", *(document.get("options") or ())]
            kind = error_class(text, score["value"], " ".join(parts))
        wrong.append(WrongAnswer(document, score, text or "", kind))
    return wrong


def _is_wrong(score: Score) -> bool:
    """Return whether a reply that did not fail has another answer than the target, or none.

    Without a target it is not wrong.
    """
    if is_failed(score) or "value" not in score:
        return False
    return score["target"] not in (None, score["value"])


def count_kinds(wrong: Sequence[WrongAnswer]) -> dict[str, int]:
    """Count wrong answers by kind, the most frequent first."""
    return dict(Counter(str(answer.kind) for answer in wrong).most_common())


def draw_wrong_answers(
    wrong: Mapping[str, Sequence[WrongAnswer]],
    size: int,
    columns: Sequence[str],
) -> dict[str, list[WrongAnswer]]:
    """Draw a sample of the documents with a wrong answer, each with the same probability, and spread over groups.

    Args:
        wrong: Wrong answers by row.
        size: Number of documents to draw; all if there are no more.
        columns: Columns that group documents, such as clinical task, department and granularity.

    Returns:
        The wrong answers to the drawn documents by row.
    """
    documents = {}
    for answer in itertools.chain.from_iterable(wrong.values()):
        documents[answer.document["doc_id"]] = answer.document
    ids = sorted(documents)
    chance = random.Random(20261129)  # the same wrong answers give the same sample
    chance.shuffle(ids)
    ids.sort(key=lambda doc_id: [str(documents[doc_id].get(column)) for column in columns])
    start = chance.randrange(max(1, len(ids)))
    places = range(start, start + size * len(ids), len(ids)) if size < len(ids) else ()
    drawn = {ids[position // size] for position in places} or {*ids}
    drawn_answers = {}
    for name, answers in wrong.items():
        drawn_answers[name] = [
            answer for answer in answers if answer.document["doc_id"] in drawn
        ]
    return drawn_answers


def export_wrong_answers(
    path: Path,
    private: Sequence[str],
    wrong: Mapping[str, Sequence[WrongAnswer]],
) -> None:
    """Write wrong answers as CSV, with an empty column for a human's judgement.

    Args:
        path: New file.
        private: Names of credentialed datasets whose text the file would show.
        wrong: Wrong answers by row.

    Raises:
        MedTasksError: The file cannot be written, or it would show text of ``private`` datasets.
    """
    own_names: dict[str, None] = {}
    for answer in itertools.chain.from_iterable(wrong.values()):
        own_names |= dict.fromkeys(own_columns(answer.document))
    rows = []
    for name, answers in wrong.items():
        for answer in answers:
            document = answer.document
            score = answer.score
            columns = own_columns(document)
            kind = "" if answer.kind is ErrorClass.FOR_A_HUMAN else str(answer.kind)
            row = [
                document["doc_id"],
                name,
                document.get("question"),
                " | ".join(document.get("options") or ()),
                score["target"],
                score["value"],
                score["reason"],
                kind,
                "",
                answer.key[1],
                answer.reply,
                " | ".join(image_names(document)),
                *(columns.get(key, "") for key in own_names),
            ]
            rows.append(row)
    titles = (
        "doc_id",
        "rule",
        "question",
        "options",
        "key",
        "value",
        "reason",
        "class",
        HUMAN_COLUMN,
        "digest",
        "reply",
        "images",
        *own_names,
    )
    write_replies(path, private, "--export-errors", titles, rows)


def write_replies(
    path: Path,
    private: Sequence[str],
    writer: str,
    titles: Sequence[str],
    rows: Sequence[Sequence[Any]],
) -> None:
    """Write a table of questions and replies as CSV, in which no text is a formula.

    Args:
        path: New file.
        private: Names of credentialed datasets whose text the table would show.
        writer: Name of the table in messages.
        titles: Titles of the columns. One that occurs before, such as that of a column of the user's own, gets the
            ending ``_own``.
        rows: Cells, shape (rows, columns).

    Raises:
        MedTasksError: The table cannot be written, or it would show text of ``private`` datasets.
    """
    if private:
        names = ",".join(private)
        raise MedTasksError(
            f"'{names}' is credentialed, and {writer} writes questions and replies in clear; allow it with "
            f"MEDTASKS_LOG_TEXT={names}"
        )
    headings: list[str] = []
    for title in titles:
        while title in headings:
            title += "_own"
        headings.append(title)
    try:
        with (
            written_whole(path) as partial,
            partial.open("w", encoding="utf-8", errors="replace", newline="") as stream,
        ):
            for row in (headings, *rows):
                csv.writer(stream).writerow(map(_harmless_cell, row))
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error


def _harmless_cell(cell: Any) -> Any:
    """Return a cell without control characters, in which an apostrophe makes a formula a text again."""
    if not isinstance(cell, str):
        return cell
    return f"'{plain(cell)}" if cell.startswith(_FORMULA) else plain(cell)


def own_columns(document: Document) -> dict[str, str]:
    """Return the columns of a user's own file that no task reads, or none for prepared data.

    Example:
        >>> own_columns({"doc_id": "1", "question": "Is it normal?", "ward": 3})
        {'ward': '3'}
    """
    columns: dict[str, str] = {}
    if "dataset" in document:
        return columns
    for name in document:
        if name not in _TASK_COLUMNS and isinstance(document[name], str | int | float):
            columns[name] = str(document[name])
    return columns


def image_names(document: Document) -> list[str]:
    """Return the image files of a document, without absolute paths of this machine."""
    files = Sample(document).images
    return [Path(file).name if Path(file).is_absolute() else file for file in files]
