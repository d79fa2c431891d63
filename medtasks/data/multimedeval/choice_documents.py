"""Documents of the ``CHOICE`` schema that show no image."""

from collections.abc import Sequence
from typing import Any

from medtasks.data.multimedeval.source_rows import SourceRow
from medtasks.data.samples import letter


def choice_document(
    doc_id: str,
    question: str,
    options: Sequence[str],
    answer: int,
    *,
    subject: str | None = None,
    context: str | None = None,
) -> dict[str, Any]:
    """Return a document of the ``CHOICE`` schema without images.

    Args:
        doc_id: Unique in the dataset.
        question: As published, without options.
        options: Their texts.
        answer: Index of the right one, from 0.
        subject: As published.
        context: Text the question is about.
    """
    return {
        "doc_id": doc_id,
        "image_id": None,
        "patient_id": None,
        "subject": subject,
        "context": context,
        "question": question,
        "options": list(options),
        "answer": letter(answer),
    }


def answer_index(row: SourceRow, column: str, options: int) -> int:
    """Return the index of the right option.

    Args:
        row: A row of the source.
        column: Where it states the index, counted from 0.
        options: How many there are.

    Raises:
        SourceError: It is no index of an option.
    """
    value = row.integer(column)
    if not 0 <= value < options:
        raise row.error(f"{column} is {value}, and the options are 0 to {options - 1}")
    return value
