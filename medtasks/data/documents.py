"""Documents of those schemas that several sources share, without what preparing adds: dataset and image files."""

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
    """Return a document of the ``CHOICE`` schema, without its image files.

    Args:
        doc_id: Unique in the dataset.
        question: As published, without options.
        options: Their texts.
        answer: Index of the right one, from 0.
        subject: As published.
        context: Text the question is about.
        image_id: The same for questions on the same images.
    """
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
    """Return a document of the ``CLASSIFICATION`` schema, without its image.

    Args:
        doc_id: Unique in the dataset.
        options: Names of all classes.
        label: Index of the right one, from 0.
        image_id: The same for documents on the same image; None: :func:`~medtasks.data.preparation.image_row` says it.
        patient_id: As published.
        details: What the prompt says about this patient.
    """
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
    """Return a document of the ``REPORT`` schema, without its image files.

    Args:
        doc_id: Unique in the dataset.
        report: What a radiologist wrote, as the protocol compares it.
        image_id: The study or volume; None without images.
        patient_id: As published.
        context: Text to summarise.
        indication: Why the study was made, as the report says.
    """
    return {
        "doc_id": doc_id,
        "image_id": image_id,
        "patient_id": patient_id,
        "context": context,
        "indication": indication,
        "report": report,
    }
