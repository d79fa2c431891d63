"""Extractors by name, for task YAML and ``medtasks parse``."""

import importlib
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from medtasks.errors import unknown_name
from medtasks.extract.extractor import REGISTERED, Extract, Kind, RegisteredExtractor, extractor

__all__ = ["Extract", "Kind", "RegisteredExtractor", "extractor", "extractor_of", "extractors"]

# Imported at the first look-up; names are listed in this order.
_MODULES = (
    *("mediconfusion_reference", "robust_choice", "robust_class", "yes_no", "robust_nli", "multimedeval"),
    *("vlmevalkit_choice", "open_text", "chexbert_labels", "robust_labels", "listed_options", "free_text"),
    *("medheval_closed", "likelihood"),
)
_CALLED: Mapping[Kind | None, str] = {
    Kind.LABELS: "label rule",
    Kind.OPEN: "rule for open questions",
    Kind.CLOSED: "rule for closed questions",
    Kind.REPORT: "rule for reports",
    Kind.FREE_TEXT: "rule for free text",
    Kind.LIKELIHOODS: "likelihood rule",
}


def extractor_of(name: str, kind: Kind | None = None) -> RegisteredExtractor:
    """Return the extractor ``name``, of one kind or of any, or raise UnknownName, which suggests the nearest name."""
    known = extractors(kind)
    if name not in known:
        raise unknown_name(_CALLED.get(kind, "answer rule"), name, known)
    return known[name]


@cache
def extractors(kind: Kind | None = None) -> Mapping[str, RegisteredExtractor]:
    """Return the extractors of a kind, or of all kinds, by name."""
    places = [importlib.import_module(f"medtasks.extract.{module}").__name__ for module in _MODULES]
    ordered = sorted(REGISTERED.values(), key=lambda registered: places.index(registered.extract.__module__))
    return MappingProxyType({found.name: found for found in ordered if kind in (None, found.kind)})
