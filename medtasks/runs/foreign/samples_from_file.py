"""Samples of a single-choice task from a result file that lists options and gold itself."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_manifest import text_fingerprint
from medtasks.data.option_texts import without_marks
from medtasks.data.samples import Documents
from medtasks.errors import RepliesError
from medtasks.families.columns import Column
from medtasks.runs.foreign.foreign_rows import ForeignFile, ForeignRow
from medtasks.tasks.answer_columns import read_column
from medtasks.tasks.task_file import TaskFile

_OF_ONE_LETTER = (
    {"options": Column.OPTIONS, "answer": Column.LETTER},
    {"options": Column.TEXTS, "answer": Column.LETTER_OR_NOTHING},
)


def samples_from_file(
    file: ForeignFile,
    task: TaskFile,
) -> tuple[list[dict[str, Any]], ForeignFile]:
    """Make documents of the questions, options and gold of a file.

    Args:
        file: Rows with options and gold.
        task: Task that asks for one option.

    Returns:
        The documents, and the file with rows that name them by id, for :func:`~.matching.match_rows`.

    Raises:
        RepliesError: The task asks for no single option, or a row lacks options or gold, or contradicts another one.
        MedTasksError: The gold can be read in several ways.
    """
    if not _asks_for_one_option(task):
        raise RepliesError(
            f"only questions for one option can be scored without them, and '{task.name}' asks others"
        )
    names = list(_names(file.rows))
    documents = _documents(names, file.rows, task)
    note = _read_gold(documents)
    rows = []
    for name, row in zip(names, file.rows, strict=True):
        rows.append(
            replace(
                row, identifier=name, question=None, prompt=None, options=None, image_names=()
            )
        )
    notes = (*file.notes, *_notes(documents, task, note))
    return documents, replace(file, rows=tuple(rows), is_id_named=True, notes=notes)


def _documents(
    names: Sequence[str],
    rows: Sequence[ForeignRow],
    task: TaskFile,
) -> list[dict[str, Any]]:
    """Return the document of each name, or raise RepliesError if two rows of a name differ."""
    by_id: dict[str, dict[str, Any]] = {}
    for name, row in zip(names, rows, strict=True):
        written = list(row.options or ())
        bare = without_marks(written)
        document = {
            "doc_id": name,
            "dataset": task.guarded_as,
            "image_id": " ".join(row.image_names) or None,
            "question": row.question or row.prompt,
            "options": bare or written,
            "answer": row.answer,
        }
        if bare:  # MedEvalKit compares options with their marks
            document["option_lines"] = written
        if by_id.setdefault(name, document) != document:
            raise RepliesError(
                f"{row.place}: '{name}' has another question, other options or another gold before"
            )
    return list(by_id.values())


def _read_gold(documents: Sequence[dict[str, Any]]) -> str:
    """Replace the gold of documents, as the file has it, by the letter of an option.

    Returns:
        How the gold was read, empty if that needs no note.

    Raises:
        RepliesError: A document lacks an option, or its gold is none of its options.
        MedTasksError: The gold can be read in several ways.
    """
    answers = [document["answer"] for document in documents]
    options = [document["options"] for document in documents]
    gold, note = read_column("answer", Column.LETTER, answers, options)
    incomplete = []
    for document, answer in zip(documents, gold, strict=True):
        document["answer"] = answer
        has_options = Column.OPTIONS.holds(document["options"], None)
        if not has_options or not Column.LETTER.holds(answer, document["options"]):
            incomplete.append(document["doc_id"])
    if incomplete:
        raise RepliesError(
            f"{len(incomplete)} of {len(documents)} questions lack an option, or their gold is none of their options, "
            f"such as '{incomplete[0]}'"
        )
    return note


def _asks_for_one_option(task: TaskFile) -> bool:
    family = task.family
    return family.columns in _OF_ONE_LETTER and not family.paired and task.variant is None


def _names(rows: Sequence[ForeignRow]) -> Iterator[str]:
    """Yield the id of each row's question.

    A row without one takes the name of the first row with its texts, images and gold, so that runs share questions. Its
    copies within a run are questions of their own.
    """
    numbers: dict[Hashable, int] = {}
    times_asked: Counter[Hashable] = Counter()
    for row in rows:
        if row.identifier is not None:
            yield row.identifier
            continue
        texts_and_images = (
            row.image_names,
            row.question or row.prompt,
            row.options,
            row.answer,
        )
        in_run = (row.repeat, texts_and_images)
        times_asked[in_run] += 1
        number = numbers.setdefault((texts_and_images, times_asked[in_run]), row.number)
        yield f"row {number}"


def _notes(
    documents: Documents,
    task: TaskFile,
    note: str,
) -> Iterator[str]:
    """Yield what a reader of the scores has to know about samples from a file, one sentence each.

    Args:
        documents: The samples.
        task: Task that asks them.
        note: How the gold was read, empty if that needs no note.
    """
    yield (
        f"Options and gold come from this file: the data of '{task.name}' are not prepared here, so that neither was "
        f"compared with them."
    )
    if note:
        yield f"{note}."
    texts = Counter((document["question"], *document["options"]) for document in documents)
    alike = len(documents) - [*texts.values()].count(1)
    if alike:
        yield f"Samples with the question and the options of another one, which count as samples of their own: {alike}."
    info = CATALOGUE.get(task.dataset or "")
    has_images = info is None or info.images != 0
    if has_images and not any(document["image_id"] for document in documents):
        yield "The file names no images, so that intervals take each sample for independent."


def file_provenance(
    file: ForeignFile,
    documents: Documents,
    task: TaskFile,
) -> dict[str, Any]:
    """Return the provenance of documents that come from a file, like that of prepared data.

    Args:
        file: The file.
        documents: Documents of :func:`samples_from_file`.
        task: Task that asks them.
    """
    info = CATALOGUE.get(task.dataset or "")
    return {
        "name": task.dataset,
        "fingerprint": text_fingerprint(documents)[:12],
        "source": f"the {file.kit} file of replies",
        "prepared": False,
        "sample": False,
        "complete": info is None or info.rows in (None, len(documents)),
        "rows": len(documents),
    }
