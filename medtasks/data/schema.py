"""Canonical documents: one column set per task family.

``PAIRED_CHOICE`` (MediConfusion): one row per image of a pair.

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

No column is nullable.
"""

from collections.abc import Mapping
from typing import TypedDict

SPLIT = "test"


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


PAIRED_CHOICE: Mapping[str, str | list[str]] = {
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
