"""What radiologists call the findings that chest X-ray and chest CT label sets name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_HEART = r"(?:heart|cardiac)(?:\s+(?:size|silhouette|shadow|contour))?"
_LARGE = r"(?:enlarged|enlargement|increased|large|prominent|widened|dilated)"
_SLIGHTLY = (
    r"(?:is|are|was|appears?|remains?|to be|not|n't|mildly|moderately|markedly|severely|slightly|again|also|still|"
    r"stable|borderline|within|and)"
)
# By the words of the label: other expressions, as patterns. Expressions may hold a "not".
_CALLED: dict[str, tuple[str, ...]] = {
    "atelectasis": (r"atelecta(?:sis|ses|tic)", r"lobar collapse"),
    "cardiomegaly": (
        r"cardiomegaly",
        rf"{_LARGE}\s+{_HEART}",
        rf"{_HEART}\s+enlargement",
        rf"enlargement\s+of\s+(?:the\s+)?{_HEART}",
        rf"{_HEART}\s+(?:{_SLIGHTLY}\s+){{0,4}}(?:enlarged|increased)",
    ),
    "consolidation": (r"consolidat(?:ions?|ed|ive)",),
    "edema": (r"o?edema", r"(?:pulmonary|interstitial|alveolar)\s+o?edema"),
    "pleural effusion": (r"(?:pleural\s+)?effusions?", r"pleural\s+fluid", r"hydrothorax"),
    "effusion": (r"(?:pleural\s+)?effusions?", r"pleural\s+fluid", r"hydrothorax"),
    "infiltration": (r"infiltrat(?:ions?|es?|ive)",),
    "mass": (r"mass(?:es)?",),
    "nodule": (r"nodul(?:es?|arity)",),
    "lung nodule": (r"(?:(?:lung|pulmonary)\s+)?nodules?",),
    "pneumonia": (r"pneumonias?",),
    "pneumothorax": (r"(?:hydro)?pneumothora(?:x|ces)",),
    "emphysema": (r"emphysema(?:tous)?",),
    "fibrosis": (r"fibro(?:sis|tic)",),
    "pulmonary fibrotic sequela": (r"fibrotic\s+(?:sequelae?|changes?)", r"pulmonary\s+fibrosis"),
    "pleural thickening": (r"pleural\s+thickening", r"thickening\s+of\s+the\s+pleura", r"thickened\s+pleura"),
    "hernia": (r"hernias?", r"herniations?"),
    "hiatal hernia": (r"hiat(?:al|us)\s+hernias?",),
    "lung opacity": (r"(?:(?:lung|pulmonary|airspace|ground[- ]glass)\s+)?(?:opacit(?:y|ies)|opacifications?)",),
    "lymphadenopathy": (r"lymphadenopath(?:y|ies)", r"enlarged\s+lymph\s+nodes?"),
    "bronchiectasis": (r"bronchiectas(?:is|es)", r"bronchiectatic"),
    "fracture": (r"fractur(?:es?|ed)",),
}
# Longer expressions that hold a label's word and mean something else, unless they are a label themselves.
_OTHERS = (
    r"(?:pericardial|joint|knee|subdural)\s+effusions?",
    r"(?:soft[- ]tissue|subcutaneous|peripheral|cerebral|brain|leg|ankle|pedal)\s+o?edema",
    r"(?:subcutaneous|surgical|mediastinal)\s+emphysema",
    r"cystic\s+fibrosis",
    r"mass\s+effect",
    r"(?:breast|renal|hepatic|liver)\s+(?:mass(?:es)?|nodules?)",
)
_FINDING = re.compile(
    r"\b(?:pneumothora|pneumoni|fractur|opaci|infiltrat|mass(?:es)?\b|nodul|lesion|emphysema|fibro(?:sis|tic)|hernia|"
    r"thickening|congestion|bronchiecta|granuloma|tubercul|cancer|carcinoma|tumou?r|copd|scoliosis|calcif|"
    r"lymphadenopath|hyperinflat|effusion|o?edema|consolidat|atelecta|cardiomegal|pacemaker|catheter)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A label's finding named in a text.

    Attributes:
        label: Position of the label, counted from 0; ``None`` for a look-alike that is no label.
        start: Offset of the first character.
        end: Offset behind the last character.
    """

    label: int | None
    start: int
    end: int


def findings_named(text: str, names: Sequence[str]) -> list[Finding]:
    """Return the labels named in a text, in order; of expressions that contain one another only the longest.

    Args:
        text: One clause.
        names: Label names, such as "Pleural Effusion" or "Pleural_Thickening".

    Example:
        >>> text = "an enlarged heart, no pericardial effusion"
        >>> [finding.label for finding in findings_named(text, ["Cardiomegaly", "Effusion"])]
        [0]
    """
    matches = [
        Finding(label, *match.span()) for label, pattern in _patterns(tuple(names)) for match in pattern.finditer(text)
    ]
    matches.sort(key=lambda found: (found.start, -found.end, found.label is None))
    kept, last = [], 0
    for found in matches:
        if found.start >= last:
            kept.append(found)
            last = found.end
    return [found for found in kept if found.label is not None]


def names_any_finding(text: str) -> bool:
    """Return whether a text names any finding of the chest, be it one of the labels or not.

    Example:
        >>> names_any_finding("A rib fracture."), names_any_finding("This is a chest X-ray.")
        (True, False)
    """
    return _FINDING.search(text) is not None


@lru_cache(maxsize=16)
def _patterns(names: tuple[str, ...]) -> list[tuple[int | None, re.Pattern[str]]]:
    plain = [re.findall(r"[^\W_]+", name.casefold()) for name in names]
    found: list[tuple[int | None, re.Pattern[str]]] = []
    for label, words in enumerate(plain):
        if not words:
            continue
        # Where two labels are kinds of effusion, a mere "effusion" is neither.
        one_of_several = len(words) > 1 and sum(other[-1:] == words[-1:] for other in plain) > 1
        called = () if one_of_several else _CALLED.get(" ".join(words), ())
        own = r"[\W_]*".join(map(re.escape, words)) + "s?"
        found.append((label, re.compile(rf"\b(?:{'|'.join([own, *called])})\b", re.IGNORECASE)))
    return found + [(None, re.compile(rf"\b{other}\b", re.IGNORECASE)) for other in _OTHERS]
