"""What was sampled: the unit that standard errors are taken over."""

import hashlib
from collections.abc import Mapping
from typing import Any


def unit_of(doc: Mapping[str, Any]) -> str:
    """Return the unit of a document: its patient, else its image, else the document itself.

    A document that stands for a question several times says itself what its unit is, in ``unit_id``.

    Records end up in the harness's samples file, so what identifies a patient is hashed.

    Example:
        >>> unit_of({"doc_id": "7", "patient_id": "p9"}) == unit_of({"doc_id": "8", "patient_id": "p9"})
        True
        >>> unit_of({"doc_id": "7", "image_id": "scan", "patient_id": None})
        'image-59ad1b2fc74287de'
    """
    for kind in ("unit", "patient", "image", "doc"):
        value = doc.get(f"{kind}_id")
        if value is not None:
            return f"{kind}-{hashlib.sha256(str(value).encode()).hexdigest()[:16]}"
    return "unknown"
