"""The logical relation of two sentences, read with care.

It is declared ("the relationship is neutral") or leading ("Contradiction: ..."), else the one relation that the text
affirms, in any form ("entailed"). "Neither entailment nor contradiction" and "no clear logical relationship" are
neutral; "not entailment" alone names none. The question's list of the three words does not count.
"""

import re

from medtasks.data.samples import Sample
from medtasks.extract.careful.yes_no import worded_option
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.negation import Mention, Stance, stances
from medtasks.extract.reading.reply_text import UNABLE, declared, own_words

_FORMS = {
    "entailment": r"entail(?:s|ed|ing|ments?)?",
    "contradiction": r"contradict(?:s|ed|ing|ions?|ory)?",
    "neutral": r"neutral(?:ity)?",
}
_RELATION = re.compile("|".join(rf"(?P<{name}>\b{form}\b)" for name, form in _FORMS.items()), re.IGNORECASE)
_ANY = rf"[\"'(]*(?:{'|'.join(_FORMS.values())})[\"')]*"
_OR = r"(?:\s*[,/|]\s*(?:(?:or|and)\s+)?|\s+or\s+)(?:an?\s+)?"
_LIST = re.compile(rf"\b(?:an?\s+)?{_ANY}{_OR}{_ANY}{_OR}{_ANY}", re.IGNORECASE)
_QUESTION = re.compile(
    r"(?:determine the logical relationship[^.?]{0,250}\.\s*)?"
    r"does the second sentence logically follow.{0,250}?\(neutral\)\W*",
    re.IGNORECASE | re.DOTALL,
)
_NEXT = re.compile(r"\n\s*Sentence 1\s*:")
_FOLLOWS = re.compile(r"\bfollows?\s+(?:logically\s+)?from\b", re.IGNORECASE)
_WORDS = r"(?:\s+[\w'-]+){0,4}?"
_POSITIVE = r"(?:entail\w*|follows?|support\w*|confirm\w*|impl(?:y|ies|ied))"
_NOR = rf",?\s+(?:nor|or|and (?:also )?(?:not|neither|does not|doesn't|is not|isn't))\b{_WORDS}"
_NEITHER = re.compile(
    rf"(?i)(?:\b(?:neither|not|nor|no)|n't)\b{_WORDS}\s+(?:{_POSITIVE}{_WORDS}{_NOR}\s+contradict\w*|"
    rf"contradict\w*{_WORDS}{_NOR}\s+{_POSITIVE})|"
    r"\bno (?:clear |direct |obvious )?(?:logical )?(?:relationship|relation|connection)\b"
)
_HEADING = r"(?:relationship|relation|answer|label|inference|classification|verdict|conclusion|category|prediction)"
_SAYS = r"[\"']?(?:\s+between [^.:;\n]{0,100}?)?\s*(?:(?:is|are|was|would be|should be|can be|must be)\b|:|=|->|→)"
_WAY = (
    r"[\s\"'(]*(?:(?:best|most likely|likely|probably|described as|classified as|characterized as|one of|that of|of|"
    r"an?|the|thus)\b[\s\"'(]*)*"
)
_LEADS = tuple(
    re.compile(rf"{lead}{_WAY}(?={_RELATION.pattern})", re.IGNORECASE)
    for lead in (rf"\bfinal\s+{_HEADING}{_SAYS}", rf"\b{_HEADING}{_SAYS}", rf"\b(?:it|this|sentences){_SAYS}")
)
_OPENING = re.compile(rf"{_WAY}", re.IGNORECASE)
_OPENED = re.compile(r"[\"')\]]*\s*(?:$|[.,;:!?(\n]|[-–—]\s|(?:because|since|as|for|given)\b)", re.IGNORECASE)
_JOINT = re.compile(rf"(?i)[\"')]*\s*(?:,|/|\bor\b|\band\b)\s*(?:or\s+)?(?:an?\s+)?(?={_ANY}\W*(?:$|[.,;\n]))")


@extractor("robust_nli", AnswerKind.CHOICE, "relation of two sentences, read with care", own_words, version=3)
def robust_nli(reply: str, sample: Sample) -> Answer:
    """Read the logical relation of two sentences (MedNLI); options are words in the order of the letters."""
    following = _NEXT.search(reply, 1)
    text = _QUESTION.sub(" ", reply[: following.start()] if following else reply)
    text = _LIST.sub(
        lambda match: " " if len({word.what for word in _mentions(match[0])}) == len(_FORMS) else match[0], text
    ).strip()
    if text != reply and not re.search(r"\w", text):
        return Answer.invalid(Reason.AMBIGUOUS)
    text = _FOLLOWS.sub("entailed by", _NEITHER.sub("neutral", text))
    relations = declared(_LEADS, text, lambda lead: _relations_at(text, lead.end()))
    opening = _OPENING.match(text)
    start = opening.end() if opening else 0
    word = _RELATION.match(text, start)
    if not relations and word and (_OPENED.match(text, word.end()) or _JOINT.match(text, word.end())):
        relations = _relations_at(text, start)
    if not relations and UNABLE.search(text):
        return Answer.invalid(Reason.REFUSED)
    by_stance = stances(text, _mentions)
    relations = relations or by_stance[Stance.AFFIRMED] or by_stance[Stance.HEDGED]
    return worded_option(relations, sample.options) or Answer.invalid(Reason.NO_MATCH)


def _mentions(text: str) -> list[Mention[str]]:
    return [Mention(match.lastgroup or "", *match.span()) for match in _RELATION.finditer(text)]


def _relations_at(text: str, start: int) -> set[str]:
    relations: set[str] = set()
    while word := _RELATION.match(text, start):
        relations.add(word.lastgroup or "")
        joint = _JOINT.match(text, word.end())
        if joint is None:
            break
        start = joint.end()
    return relations
