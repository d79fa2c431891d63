"""Documents of those schemas that several sources share, without what preparing adds: dataset and image files.

What the columns mean is said in :mod:`medtasks.data.schema`; here the right option or class is an index, from 0.
"""

from collections.abc import Sequence
from typing import Any

from medtasks.data.samples import letter


def choice_document(
    doc_id: str,
    question: str,
    options: Sequence[str],
    answer: int,
    *,
    subject: str | None = None,
    context: str | None = None,
    image_id: str | None = None,
) -> dict[str, Any]:
    """Return a document of the ``CHOICE`` schema."""
    return {
        "doc_id": doc_id,
        "image_id": image_id,
        "patient_id": None,
        "subject": subject,
        "context": context,
        "question": question,
        "options": list(options),
        "answer": letter(answer),
    }


def class_document(
    doc_id: str,
    options: Sequence[str],
    label: int,
    *,
    image_id: str | None = None,
    patient_id: str | None = None,
    details: str | None = None,
) -> dict[str, Any]:
    """Return a document of the ``CLASSIFICATION`` schema; without ``image_id``, the image file's is added later."""
    return {
        "doc_id": doc_id,
        **({} if image_id is None else {"image_id": image_id}),
        "patient_id": patient_id,
        "details": details,
        "options": list(options),
        "label": label,
    }


def report_document(
    doc_id: str,
    report: str,
    *,
    image_id: str | None = None,
    patient_id: str | None = None,
    context: str | None = None,
    indication: str | None = None,
) -> dict[str, str | None]:
    """Return a document of the ``REPORT`` schema; ``image_id`` names the study or volume."""
    return {
        "doc_id": doc_id,
        "image_id": image_id,
        "patient_id": patient_id,
        "context": context,
        "indication": indication,
        "report": report,
    }
