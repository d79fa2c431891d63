"""What a careful reader accepts as the answer to a question about an image without options.

Closed questions (:func:`yes_no`): the verdict that a reply begins with, declares, or gives in a sentence of its own;
see :mod:`medtasks.extract.verdict`. "Yes and no" and "maybe" are ambiguous. A reply that is nothing but "true",
"present", "it is not" or the like is a verdict, too. A statement ("There is no fracture.") is a verdict only where the
question is known and asks just that: it means "no" to "Is there a fracture?" and "yes" to "Is the bone intact?". Then
the affirmed statement is "yes" and the denied one "no"; contradicting statements are ambiguous. Without the question it
is no match, because to accept denials alone would favour models that deny.

Open questions (:func:`open_reply`): the reply's own words without refusals and the advice around them. Denials stay in
the text, so that answers which are themselves negative can be found; whoever compares it must tell what is denied, as
:func:`medtasks.extract.stated_words.stated_words` does.
"""

import re

from medtasks.extract.answer import Answer, Reason
from medtasks.extract.class_names import words
from medtasks.extract.negation import Stance, clauses, stance
from medtasks.extract.reply_text import own_words
from medtasks.extract.verdict import is_unsure, own_part, verdicts

_IT_IS = r"(?:it|there|this|that|they) (?:is|are|does|do|has|have)"
_SHORT = {
    "yes": re.compile(rf"(?:(?:it's|that's|this is) )?(?:true|present)|(?:yes )?{_IT_IS}"),
    "no": re.compile(
        rf"(?:(?:it's|that's|this is) )?(?:false|absent|none|not (?:present|seen|visible))|there (?:is|are) none|"
        rf"(?:no )?{_IT_IS}(?: not|n't)"
    ),
}
_ASKS = re.compile(r"\W*(?:is|are|was|were|does|do|did|can|could|has|have)\b", re.IGNORECASE)
_NOT_SIMPLE = re.compile(
    r"\b(?:or|no|not|without|absent|absence|free|clear|exclud\w+|neither|never|lack\w*)\b|n't\b", re.IGNORECASE
)
# Words that do not tell one question about an image from another.
_FILLERS = frozenset(
    word.stem
    for word in words(
        "i you we it there this that these those they is are was were be been being do does did can could has have "
        "had any some in on at of for with to from by and also as well clearly here evidence sign finding presence "
        "see seen show shown reveal demonstrate demonstrated display displayed contain contained visible "
        "visualized identify identified note noted observe observed detect detected present appear seem exist "
        "depict depicted suggest patient image picture photo photograph scan film study x ray xray radiograph "
        "slide section slice ct mri no not nor without absent never none cannot neither"
    )
)
_SELF = re.compile(
    r"\W*(?:i|we)(?:'m|'d)?\s+(?:\w+ly\s+)?(?:do not|don't|am not|cannot|can't|could not|couldn't|unable|not|"
    r"am unable)\b",
    re.IGNORECASE,
)
_ADVICE = re.compile(
    r"\b(?:please|consult\w*|recommend\w*|upload|share|if you|could you|can you|let me know|happy to|feel free|seek|"
    r"provide (?:me|more|a|the|additional)|language model|(?:health|medical) professional)\b",
    re.IGNORECASE,
)


def yes_no(reply: str | None, question: str = "") -> Answer:
    """Read "yes" or "no" from a reply to a closed question.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        question: The question as asked. With it, statements about what it asks are read, too.

    Returns:
        The value ``yes`` or ``no``, or no value with the reason why.

    Example:
        >>> yes_no("No, the lungs are clear. Yes-men may differ.").value
        'no'
        >>> yes_no("There is no fracture.").reason.value
        'no_match'
        >>> yes_no("There is no fracture.", "Is there a fracture?").value
        'no'
    """
    text = own_words(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    text = own_part(text)
    found = verdicts(text) or _short(text)
    if not found and is_unsure(text):
        return Answer.invalid(Reason.REFUSED)
    found = found or _stated(text, question)
    if len(found) > 1 or "maybe" in found:
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.ok(found.pop()) if found else Answer.invalid(Reason.NO_MATCH)


def open_reply(reply: str | None) -> tuple[str | None, Reason]:
    """Return the text of a reply to compare with an open question's answer.

    Args:
        reply: Raw reply; ``None`` is read as empty.

    Returns:
        The text and ``Reason.OK``, or ``None`` and the reason why there is nothing to compare. Of a reply that partly
        declines, what it states is returned.

    Example:
        >>> open_reply("I cannot determine the type, but it appears to be an MRI.")[0]
        'it appears to be an MRI'
        >>> open_reply("I'm sorry, but I can't help with that.")[1].value
        'refused'
    """
    text = own_words(reply)
    if isinstance(text, Reason):
        return None, text
    if not is_unsure(text):
        return text, Reason.OK
    stated = [
        clause
        for clause in clauses(text)
        if not (is_unsure(clause) or _SELF.match(clause) or _ADVICE.search(clause)) and re.search(r"\w", clause)
    ]
    return ("; ".join(stated), Reason.OK) if stated else (None, Reason.REFUSED)


def _short(text: str) -> set[str]:
    plain = re.sub(r"[^\w'\s]+", " ", text).strip().casefold()
    return {verdict for verdict, form in _SHORT.items() if form.fullmatch(plain)}


def _stated(text: str, question: str) -> set[str]:
    """Return what the statements of a reply answer to a question that asks whether one thing is so."""
    if not _ASKS.match(question) or _NOT_SIMPLE.search(question):
        return set()
    asked = _content(question)
    found: set[str] = set()
    for clause in clauses(text):
        held = {word.stem: stance(clause, word.start, word.end) for word in words(clause) if word.stem in asked}
        if asked and asked == set(held) and set(held.values()) == {Stance.AFFIRMED}:
            found.add("yes")
        elif Stance.DENIED in held.values() and _content(clause) <= asked:
            found.add("no")
    return found


def _content(text: str) -> set[str]:
    return {word.stem for word in words(text)} - _FILLERS
