"""The logical relation of two sentences, read with care.

It is declared ("the relationship is neutral") or leading ("Contradiction: ..."), else the one relation that the text
affirms, in any form ("entailed"). "Neither entailment nor contradiction" and "no clear logical relationship" are
neutral; "not entailment" alone names none. The question's list of the three words does not count.
"""

import re

from medtasks.data.samples import Sample
from medtasks.extract.careful.yes_no import worded_option
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.languages import ENGLISH, pattern_of
from medtasks.extract.reading.option_mentions import Mention
from medtasks.extract.reading.option_statements import statements_on
from medtasks.extract.reading.reply_text import UNABLE, own_words

_FORMS = {
    "entailment": r"entail(?:s|ed|ing|ments?)?",
    "contradiction": r"contradict(?:s|ed|ing|ions?|ory)?",
    "neutral": r"neutral(?:ity)?",
}
_RELATION = re.compile(
    "|".join(rf"(?P<{name}>\b{form}\b)" for name, form in _FORMS.items()), re.IGNORECASE
)
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


@extractor(
    "robust_nli",
    AnswerKind.CHOICE,
    "relation of two sentences, read with care",
    own_words,
    version=3,
)
def robust_nli(reply: str, sample: Sample) -> Answer:
    """Read the logical relation of two sentences (MedNLI), where options are words in the order of the letters."""
    # Without an invented next sample, and without the repeated question and its list of the three relations.
    following = _NEXT.search(reply, 1)
    own_reply = reply[: following.start()] if following else reply
    text = _LIST.sub(_without_whole_list, _QUESTION.sub(" ", own_reply)).strip()
    if text != reply and not re.search(r"\w", text):
        return Answer.invalid(Reason.AMBIGUOUS)
    text = _FOLLOWS.sub("entailed by", _NEITHER.sub("neutral", text))
    claim = pattern_of("because", ENGLISH).split(text)[0]
    if _RELATION.search(claim):
        text = claim
    statements = statements_on(text, _mentions(text), len(_FORMS), ENGLISH)
    if statements is None or not statements.affirmed_options:
        return Answer.invalid(Reason.REFUSED if UNABLE.search(text) else Reason.NO_MATCH)
    names = list(_FORMS)
    relations = {names[index] for index in statements.stated_options}
    return worded_option(relations, sample.options) or Answer.invalid(Reason.NO_MATCH)


def _without_whole_list(match: re.Match[str]) -> str:
    """Return a list of relations as it is, or a blank if it names all three and so is the question's."""
    relations = {mention.options for mention in _mentions(match[0])}
    return match[0] if len(relations) < len(_FORMS) else " "


def _mentions(text: str) -> list[Mention]:
    """Return the mentions of relations in a text, in order. Their options are positions in ``_FORMS``."""
    mentions = []
    for match in _RELATION.finditer(text):
        index = (match.lastindex or 1) - 1
        mentions.append(Mention(frozenset({index}), *match.span(), False, True))
    return mentions
