"""Canonical documents: one column set per task family.

``PAIRED_CHOICE`` (MediConfusion): one row per image of a pair. No column is nullable.

=================  ============  ==================================================================================
column             type          meaning
=================  ============  ==================================================================================
``doc_id``         str           unique and stable in the dataset, ``"<pair_id>/<position>"``
``dataset``        str           catalogue name, so that hooks find the images beside the documents
``pair_id``        str           the two rows of a pair share it
``position``       int           1 or 2: first or second image of the pair
``image_id``       str           the same picture has the same id wherever it is used
``image_file``     str           path below the dataset's folder; one file per distinct image
``image_sha256``   str           of the file's bytes
``question``       str           as published, without options
``options``        list[str]     option texts in order A, B, ...; at least two
``answer``         str           letter of the right option
``categories``     list[str]     medical areas of this image, one or more
=================  ============  ==================================================================================

All other families share these columns:

=================  ============  ==================================================================================
``doc_id``         str           unique and stable in the dataset
``dataset``        str           name the dataset is prepared under
``image_id``       str or null   the same picture (or study, where a question shows several) has the same id
``patient_id``     str or null   where the source says whose image it is; results never show it
``image_files``    list[str]     paths below the dataset's folder, in the order they are shown; may be empty
``image_sha256``   list[str]     of the files' bytes, in the same order
=================  ============  ==================================================================================

and add their own:

=================  ============  ==================================================================================
``CHOICE``                       question answering and inference with options
``subject``        str or null   as published
``context``        str or null   text the question is about: an abstract, or the first sentence of an inference
``question``       str           as published, without options
``options``        list[str]     option texts in order A, B, ...; at least two
``answer``         str           letter of the right option

``OPEN_QUESTION``                visual question answering
``question``       str           as published
``answer``         str           as published
``question_type``  str or null   as published; scores do not use it

``CLASSIFICATION``               one class per image
``details``        str or null   what the prompt says about this patient
``options``        list[str]     names of the classes, the same in every row
``label``          int           index of the right class, from 0

``MULTILABEL``                   several findings per image
``options``        list[str]     names of the findings, the same in every row
``labels``         list[int]     0 or 1 per finding

``REPORT``                       report generation and summarisation
``context``        str or null   text to summarise
``indication``     str or null   why the study was made, as the report says; empty where it does not say
``report``         str           what a radiologist wrote, as the protocol compares it
=================  ============  ==================================================================================

The split ``demonstrations`` holds examples for few-shot prompts, in the same columns; not every dataset has them.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TypedDict

SPLIT = "test"
DEMONSTRATIONS_SPLIT = "demonstrations"

Columns = Mapping[str, str | list[str]]


class PairedChoice(TypedDict):
    """One row of a paired-choice dataset; see the module's table."""

    doc_id: str
    dataset: str
    pair_id: str
    position: int
    image_id: str
    image_file: str
    image_sha256: str
    question: str
    options: list[str]
    answer: str
    categories: list[str]


PAIRED_CHOICE: Columns = {
    "doc_id": "string",
    "dataset": "string",
    "pair_id": "string",
    "position": "int32",
    "image_id": "string",
    "image_file": "string",
    "image_sha256": "string",
    "question": "string",
    "options": ["string"],
    "answer": "string",
    "categories": ["string"],
}

_SHARED: Columns = {
    "doc_id": "string",
    "dataset": "string",
    "image_id": "string",
    "patient_id": "string",
    "image_files": ["string"],
    "image_sha256": ["string"],
}
CHOICE: Columns = {
    **_SHARED,
    "subject": "string",
    "context": "string",
    "question": "string",
    "options": ["string"],
    "answer": "string",
}
OPEN_QUESTION: Columns = {**_SHARED, "question": "string", "answer": "string", "question_type": "string"}
CLASSIFICATION: Columns = {**_SHARED, "details": "string", "options": ["string"], "label": "int32"}
MULTILABEL: Columns = {**_SHARED, "options": ["string"], "labels": ["int32"]}
REPORT: Columns = {**_SHARED, "context": "string", "indication": "string", "report": "string"}


def image_digests(document: Mapping[str, object]) -> dict[str, str]:
    """Return the SHA-256 of each image file of a document, by path below the dataset's folder."""
    if "image_file" in document:
        return {str(document["image_file"]): str(document["image_sha256"])}
    files, digests = document["image_files"], document["image_sha256"]
    assert isinstance(files, list)
    assert isinstance(digests, list)
    return dict(zip(files, digests, strict=True))


def image_key(file: str) -> str:
    """Return the name an image file has in fingerprints: its own, without folder and ending."""
    return PurePosixPath(file).stem
