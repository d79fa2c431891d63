"""Findings in a chest image, read with care.

A label is present (1) if the reply affirms it at least once, in its own words or those of radiologists ("enlarged
heart" is cardiomegaly), else absent (0): not named, negated ("no effusion or pneumothorax", "is not seen", "ruled out",
"Edema: no") or uncertain ("possible", "may be", "cannot be excluded", "X or Y"), as in MultiMedEval's gold labels.
"Likely" and "consistent with" affirm.

A reply that affirms no label is valid, all absent, if it denies one, calls the image normal, or names other findings of
the chest. Otherwise it is a refusal, or no match. "No findings" next to an affirmed label is ambiguous.
"""

import re
from collections import defaultdict
from functools import lru_cache

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.negation import Stance, clauses, stance
from medtasks.extract.reading.reply_text import UNABLE, spaced_words

_HEART = r"(?:heart|cardiac)(?:\s+(?:size|silhouette|shadow|contour))?"
_LARGE = r"(?:enlarged|enlargement|increased|large|prominent|widened|dilated)"
_SLIGHTLY = (
    r"(?:is|are|was|appears?|remains?|to be|not|n't|mildly|moderately|markedly|severely|slightly|again|also|still|"
    r"stable|borderline|within|and)"
)
# Pattern of other expressions, by the words of the label. Expressions may contain a "not".
_CALLED = {
    "atelectasis": r"atelecta(?:sis|ses|tic)|lobar collapse",
    "cardiomegaly": (
        rf"cardiomegaly|{_LARGE}\s+{_HEART}|{_HEART}\s+enlargement|enlargement\s+of\s+(?:the\s+)?{_HEART}|"
        rf"{_HEART}\s+(?:{_SLIGHTLY}\s+){{0,4}}(?:enlarged|increased)"
    ),
    "consolidation": r"consolidat(?:ions?|ed|ive)",
    "edema": r"o?edema|(?:pulmonary|interstitial|alveolar)\s+o?edema",
    "pleural effusion": r"(?:pleural\s+)?effusions?|pleural\s+fluid|hydrothorax",
    "effusion": r"(?:pleural\s+)?effusions?|pleural\s+fluid|hydrothorax",
    "infiltration": r"infiltrat(?:ions?|es?|ive)",
    "mass": r"mass(?:es)?",
    "nodule": r"nodul(?:es?|arity)",
    "lung nodule": r"(?:(?:lung|pulmonary)\s+)?nodules?",
    "pneumonia": r"pneumonias?",
    "pneumothorax": r"(?:hydro)?pneumothora(?:x|ces)",
    "emphysema": r"emphysema(?:tous)?",
    "fibrosis": r"fibro(?:sis|tic)",
    "pulmonary fibrotic sequela": r"fibrotic\s+(?:sequelae?|changes?)|pulmonary\s+fibrosis",
    "pleural thickening": r"pleural\s+thickening|thickening\s+of\s+the\s+pleura|thickened\s+pleura",
    "hernia": r"hernias?|herniations?",
    "hiatal hernia": r"hiat(?:al|us)\s+hernias?",
    "lung opacity": (
        r"(?:(?:lung|pulmonary|airspace|ground[- ]glass)\s+)?(?:opacit(?:y|ies)|opacifications?)"
    ),
    "lymphadenopathy": r"lymphadenopath(?:y|ies)|enlarged\s+lymph\s+nodes?",
    "bronchiectasis": r"bronchiectas(?:is|es)|bronchiectatic",
    "fracture": r"fractur(?:es?|ed)",
}
# Longer expressions with a label's word and another meaning, unless they are labels, too.
_OTHERS = (
    r"(?:pericardial|joint|knee|subdural)\s+effusions?",
    r"(?:soft[- ]tissue|subcutaneous|peripheral|cerebral|brain|leg|ankle|pedal)\s+o?edema",
    r"(?:subcutaneous|surgical|mediastinal)\s+emphysema",
    r"cystic\s+fibrosis",
    r"mass\s+effect",
    r"(?:breast|renal|hepatic|liver)\s+(?:mass(?:es)?|nodules?)",
)
# Any finding of the chest, be it one of the labels or not.
_FINDING = re.compile(
    r"(?i)\b(?:pneumothora|pneumoni|fractur|opaci|infiltrat|mass(?:es)?\b|nodul|lesion|emphysema|fibro(?:sis|tic)|hernia|"
    r"thickening|congestion|bronchiecta|granuloma|tubercul|cancer|carcinoma|tumou?r|copd|scoliosis|calcif|"
    r"lymphadenopath|hyperinflat|effusion|o?edema|consolidat|atelecta|cardiomegal|pacemaker|catheter)"
)


# A match, and the position of its label, None for a look-alike
_Expression = tuple[re.Match[str], int | None]

_QUESTION = re.compile(
    r"\W*\blist the (?:conditions|options) that can be seen in this picture\W*", re.IGNORECASE
)
_NO_FINDING_ITEM = re.compile(r"\bno findings?\b\s*(?=[,|;\n]|$)", re.IGNORECASE)
_FINAL = re.compile(
    r"\bfinal (?:answer|list|labels?|diagnosis)\s*(?:is|are)?\s*:?\s*", re.IGNORECASE
)
_WHAT = (
    r"(?:findings?|abnormalit(?:y|ies)|diseases?|patholog(?:y|ies)|process|conditions?"
    r"|signs? of (?:disease|illness))"
)
_NORMAL = re.compile(
    rf"(?i)\b(?:normal|unremarkable|healthy|none|no\s+(?:[\w-]+\s+){{0,3}}?{_WHAT}|(?:nothing|no\w*)\s+abnormal)\b|"
    rf"(?:\bnot|n't)\s+(?:show|see|reveal|demonstrate|have|display)\s+(?:any\s+)?(?:[\w-]+\s+){{0,3}}?{_WHAT}\b|"
    r"\b(?:lungs?|chest|fields?|angles?|image)\b[^.;\n]{0,40}\bclear\b|\bclear\s+(?:lungs?|lung fields)\b"
)
_NOT_NORMAL = re.compile(
    r"(?i)(?:\b(?:not|never|nor|no longer)|n't)\s+(?:\w+ly\s+)?(?:normal|clear|healthy)\b"
)
# Clauses that call the whole image normal and so contradict any finding.
_ALL_NORMAL = re.compile(
    r"(?i)(?:there (?:is|are)\s+)?(?:no findings?|none|normal)|(?:an?\s+|the\s+)?(?:chest\s+)?(?:x-?ray|radiograph|"
    r"image|film|study|picture|exam\w*)\s+(?:is|appears|looks)\s+(?:completely\s+|entirely\s+)?(?:normal|unremarkable)"
)


@extractor(
    "robust_labels", AnswerKind.LABELS, "findings, read with care", spaced_words, version=3
)
def robust_labels(reply: str, sample: Sample) -> Answer:
    """Read the labels of an image.

    "No Finding" is present if the reply calls the image normal and affirms no other label.
    """
    return _labels_in(reply, tuple(sample.options))


@lru_cache(maxsize=4096)  # many samples of a run have the same short reply
def _labels_in(text: str, options: tuple[str, ...]) -> Answer:
    """Return 1 or 0 for each label, or why a text gives none."""
    text = _own_list(text)
    by_stance = _by_stance(text, options)
    affirmed = by_stance[Stance.AFFIRMED]
    if affirmed:
        if any(
            _ALL_NORMAL.fullmatch(clause.strip(" .,:-•*\"'()[]")) for clause in clauses(text)
        ):
            return Answer.invalid(Reason.AMBIGUOUS)
    elif _NORMAL.search(text) and not _NOT_NORMAL.search(text):
        affirmed = {index for index, name in enumerate(options) if _is_no_finding(name)}
    elif UNABLE.search(text):
        return Answer.invalid(Reason.REFUSED)
    elif not any(by_stance.values()) and not _FINDING.search(text):
        return Answer.invalid(Reason.NO_MATCH)
    return Answer.ok(tuple(int(index in affirmed) for index in range(len(options))))


def _own_list(text: str) -> str:
    """Return the last list of a reply that is its answer, without a repeated question."""
    text = next(filter(str.strip, _QUESTION.split(text)), text)
    for part in _FINAL.split(text)[1:]:
        if part.strip():
            text = part
    # The item is the name of a label, not the denial of what follows.
    return _NO_FINDING_ITEM.sub("normal. ", text)


def _is_no_finding(name: str) -> bool:
    """Return whether a label is "No Finding", in any spelling."""
    return re.sub(r"[\W_]+", "", name).casefold() == "nofinding"


def _label_words(name: str) -> list[str]:
    """Return the words of a label, none of "No Finding"."""
    return [] if _is_no_finding(name) else re.findall(r"[^\W_]+", name.casefold())


def _by_stance(text: str, names: tuple[str, ...]) -> dict[Stance, set[int]]:
    """Return the labels that a text names, by stance."""
    by_stance = defaultdict[Stance, set[int]](set)
    for clause in clauses(text):
        # Of expressions that contain one another only the longest counts. A look-alike is no label.
        end = 0
        expressions: list[_Expression] = []
        for label, pattern in _patterns(names):
            expressions += ((match, label) for match in pattern.finditer(clause))
        for match, label in sorted(expressions, key=_sort_key):
            if match.start() < end:
                continue
            end = match.end()
            if label is not None:
                is_denied = re.search(r"\bnot\b|n't", match[0])
                kind = Stance.DENIED if is_denied else stance(clause, *match.span())
                by_stance[kind].add(label)
    return by_stance


def _sort_key(expression: _Expression) -> tuple[int, int, bool]:
    """Return the order of an expression: by position, the longest first, and a label before a look-alike."""
    match, label = expression
    return match.start(), -match.end(), label is None


@lru_cache(maxsize=16)
def _patterns(names: tuple[str, ...]) -> list[tuple[int | None, re.Pattern[str]]]:
    """Return the patterns of labels with their positions, and those of look-alikes with None."""
    words_of_names = list(map(_label_words, names))
    last_words = [words[-1:] for words in words_of_names]
    patterns: list[tuple[int | None, re.Pattern[str]]] = []
    for label, words in enumerate(words_of_names):
        if not words:
            continue
        forms = r"[\W_]*".join(map(re.escape, words)) + "s?"
        called = _CALLED.get(" ".join(words))
        # Of two labels that are kinds of effusion, a mere "effusion" is neither.
        is_kind_of_several = len(words) > 1 and last_words.count(words[-1:]) > 1
        if called and not is_kind_of_several:
            forms += f"|{called}"
        patterns.append((label, re.compile(rf"\b(?:{forms})\b", re.IGNORECASE)))
    for expression in _OTHERS:
        patterns.append((None, re.compile(rf"\b{expression}\b", re.IGNORECASE)))
    return patterns
