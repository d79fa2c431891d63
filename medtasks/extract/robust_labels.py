"""What a careful reader accepts as the list of findings in a chest image.

A label is present (1) where the reply affirms it at least once, in its own words or those of radiologists ("enlarged
heart" is cardiomegaly), and absent (0) otherwise: not named, negated ("no effusion or pneumothorax", "is not seen",
"ruled out", "Edema: no") or uncertain ("possible", "may be", "cannot be excluded", "X or Y"). Uncertain counts as
absent because the gold labels of MultiMedEval count CheXpert's uncertain label so. "Likely" and "consistent with"
affirm.

A reply that affirms no label is valid, all absent, when it denies one, calls the image normal, or names other findings
of the chest. Otherwise it is a refusal, or no match. "No findings" beside an affirmed label is ambiguous.
"""

import re
from collections.abc import Sequence

from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.chest_findings import findings_named, names_any_finding
from medtasks.extract.extractor import Kind, extractor
from medtasks.extract.negation import Stance, clauses, stance
from medtasks.extract.reply_text import is_unable, own_words

_QUESTION = re.compile(r"\W*\blist the (?:conditions|options) that can be seen in this picture\W*", re.IGNORECASE)
_NO_FINDING_ITEM = re.compile(r"\bno findings?\b\s*(?=[,|;\n]|$)", re.IGNORECASE)
_FINAL = re.compile(r"\bfinal (?:answer|list|labels?|diagnosis)\s*(?:is|are)?\s*:?\s*", re.IGNORECASE)
_WHAT = (
    r"(?:findings?|abnormalit(?:y|ies)|diseases?|patholog(?:y|ies)|process|conditions?|signs? of (?:disease|illness))"
)
_NORMAL = re.compile(
    rf"\b(?:normal|unremarkable|healthy|none|no\s+(?:[\w-]+\s+){{0,3}}?{_WHAT}|(?:nothing|no\w*)\s+abnormal)\b|"
    rf"(?:\bnot|n't)\s+(?:show|see|reveal|demonstrate|have|display)\s+(?:any\s+)?(?:[\w-]+\s+){{0,3}}?{_WHAT}\b|"
    r"\b(?:lungs?|chest|fields?|angles?|image)\b[^.;\n]{0,40}\bclear\b|\bclear\s+(?:lungs?|lung fields)\b",
    re.IGNORECASE,
)
_NOT_NORMAL = re.compile(
    r"(?:\b(?:not|never|nor|no longer)|n't)\s+(?:\w+ly\s+)?(?:normal|clear|healthy)\b", re.IGNORECASE
)
# Clauses that call the whole image normal, and so contradict any finding.
_ALL_NORMAL = re.compile(
    r"(?:there (?:is|are)\s+)?(?:no findings?|none|normal)|(?:an?\s+|the\s+)?(?:chest\s+)?(?:x-?ray|radiograph|image|"
    r"film|study|picture|exam\w*)\s+(?:is|appears|looks)\s+(?:completely\s+|entirely\s+)?(?:normal|unremarkable)",
    re.IGNORECASE,
)
_NO_FINDING = "nofinding"


@extractor("robust_labels", kind=Kind.LABELS, version=1, summary="findings as a careful reader would")
def robust_labels(reply: str | None, sample: Sample) -> Answer:
    """Read which of the labels a reply gives to a chest image.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        sample: Its options are label names, such as "Pleural Effusion" or "Pleural_Thickening". A label "No Finding" is
            present where the reply calls the image normal and affirms no other label.

    Returns:
        One value per label, or none with the reason why.

    Example:
        >>> sample = Sample({"options": ["Cardiomegaly", "Edema", "Pleural Effusion"]})
        >>> robust_labels("The heart is enlarged. No effusion, possible edema.", sample).value
        (1, 0, 0)
        >>> robust_labels("A chest X-ray of an adult.", sample).reason.value
        'no_match'
    """
    text = own_words(reply, split_names=True)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    text = _NO_FINDING_ITEM.sub("normal. ", _own_list(text))  # the name of a label, not the denial of what follows
    findings = [_NO_FINDING if _plain(name) == _NO_FINDING else name for name in sample.options]
    found = _stances(text, ["" if name == _NO_FINDING else name for name in findings])
    affirmed, normal = found[Stance.AFFIRMED], _is_normal(text)
    if affirmed:
        if any(_ALL_NORMAL.fullmatch(clause.strip(" .,:-•*\"'()[]")) for clause in clauses(text)):
            return Answer.invalid(Reason.AMBIGUOUS)
    elif is_unable(text) and not normal:
        return Answer.invalid(Reason.REFUSED)
    elif not (any(found.values()) or normal or names_any_finding(text)):
        return Answer.invalid(Reason.NO_MATCH)
    empty = normal and not affirmed
    return Answer.ok(
        tuple(int(empty if name == _NO_FINDING else label in affirmed) for label, name in enumerate(findings))
    )


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _own_list(text: str) -> str:
    """Return the final list if one is declared, without the question before it and the next one behind it."""
    own = next((part for part in _QUESTION.split(text) if part.strip()), text)
    final = [part for part in _FINAL.split(own)[1:] if part.strip()]
    return final[-1] if final else own


def _is_normal(text: str) -> bool:
    return _NORMAL.search(text) is not None and _NOT_NORMAL.search(text) is None


def _stances(text: str, names: Sequence[str]) -> dict[Stance, set[int]]:
    found: dict[Stance, set[int]] = {kind: set() for kind in Stance}
    for clause in clauses(text):
        for finding in findings_named(clause, names):
            if finding.label is None:
                continue
            inside = re.search(r"\bnot\b|n't", clause[finding.start : finding.end])
            held = Stance.DENIED if inside else stance(clause, finding.start, finding.end)
            found[held].add(finding.label)
    return found
