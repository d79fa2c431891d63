"""Yes, no and maybe: what a careful reader accepts as the answer to a question that asks for them.

The verdict is what a reply begins with ("Yes, ..."), declares ("the answer is no"), or gives in a sentence of its own
("So, yes."); a declared *final* answer overrules the others. Words of an explanation never count: "no significant
difference" is no verdict, because it means "no" to one question and "yes" to another. "Not sure" and "I don't know"
speak of the writer and are refusals. "Yes and no", "maybe not" and "maybe yes" are ambiguous.

As verdicts, "perhaps", "possibly", "uncertain", "unclear" and "inconclusive" are maybe: they speak of the evidence.
``robust_yes_no_maybe`` takes maybe for an answer; to a closed question about an image (:func:`yes_no`) it is ambiguous.

To a closed question a reply that is nothing but "true", "present", "it is not" or the like is a verdict, too. A
statement ("There is no fracture.") is one only where the question is known and asks just that: it means "no" to "Is
there a fracture?" and "yes" to "Is the bone intact?". Then the affirmed statement is "yes" and the denied one "no";
contradicting statements are ambiguous. Without the question it is no match, because to accept denials alone would
favour models that deny.
"""

import re
from collections.abc import Sequence

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.negation import Stance, clauses, stance
from medtasks.extract.option_names import normalised, words
from medtasks.extract.registry import Kind, extractor
from medtasks.extract.reply_text import SENTENCES, is_unable, own_words

_SURE = (
    r"(?:(?:(?:most|very|quite)\s+)?(?:likely|probably|definitely|certainly|absolutely|clearly|generally|overall|"
    r"in general|so|thus|therefore|hence|in short|in conclusion|in summary|finally|then|simply)\b[,:]?\s+)*"
)
_SUBJECT = (
    r"(?:it|there|the|this|that|these|those|they|he|she|we|you|i|because|since|as|indeed|of course|a|an|both|all|"
    r"neither|patients|in|at|but|according|based|although|however|though)\b"
)
# What may follow a verdict, unlike the noun of "no fracture" and the number of "no. 2".
_SECOND_WORD = r"\s+(?:(?:or|and)\s+)?(?:yes|no|maybe|not)\b"
_STOP = rf"(?=\W*$|\s*[,;:!?()\]/\"'\n]|\.(?!\d)(?!\s*\d+\b)|\s*[-–—]+\s|\s+{_SUBJECT}|{_SECOND_WORD})"
_YES = rf"yes\b{_STOP}"
_NO = rf"(?:no\b{_STOP}|(?:absolutely|definitely|certainly|of course|probably) not\b(?=\W*$|\s*[,.;:!]))"
_MAYBE = rf"(?:maybe|perhaps|possibly|uncertain|inconclusive|unclear)\b{_STOP}"
_WORD = rf"(?:(?P<yes>{_YES})|(?P<no>{_NO})|(?P<maybe>{_MAYBE}))"
_LEADING = re.compile(rf"\W*{_SURE}{_WORD}", re.IGNORECASE)
_NOUN = r"(?:answer|conclusion|verdict|response|result|decision|choice|option)"
_LINK = (
    r"[\"']?\s*(?:to (?:the|this|your|that) question\s*)?(?:here\s*)?"
    r"(?:(?:is|was|would be|should be|must be)\b|:|=|->|→)"
)
_DECLARED = (
    re.compile(rf"\bfinal\s+{_NOUN}{_LINK}\W*{_SURE}{_WORD}", re.IGNORECASE),
    re.compile(
        rf"\b(?:{_NOUN}{_LINK}|(?:i|i'd|i would|i will)\s+(?:say|answer|think|believe|conclude|choose|go with)"
        rf"(?:\s+that)?)\W*{_SURE}{_WORD}",
        re.IGNORECASE,
    ),
)
_SECOND = re.compile(
    r"\W*(?:[,/(]|\bor\b|\band\b|&|\s)\s*(?:also\s+)?(yes|no|maybe|not)\b(?=\W*$|\s*[.,;:!?/)\n]|\s+(?:or|and)\b)",
    re.IGNORECASE,
)
_ECHO = re.compile(
    r"(?:please\s+)?answer (?:the |this )?(?:following )?question with (?:either )?[\"']?yes[\"']?,? (?:or )?"
    r"[\"']?no[\"']?(?:,? or [\"']?maybe[\"']?)?\W*",
    re.IGNORECASE,
)
# "No, I cannot answer that" declines, "No, I cannot see a fracture" does not.
_OWN_LIMIT = re.compile(
    r"\bi(?:'m| am)? (?:cannot|can't|can not|unable to|not able to)\s+(?:\w+ly\s+)?(?:answer|help|assist|provide|"
    r"determine|tell|say|interpret|view|analy[sz]e|assess|diagnose)\b",
    re.IGNORECASE,
)
_UNSURE = re.compile(r"\W*(?:i(?: a|')m )?(?:not (?:really |quite )?(?:sure|certain)|unsure)\b", re.IGNORECASE)
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
    word.what
    for word in words(
        "i you we it there this that these those they is are was were be been being do does did can could has have "
        "had any some in on at of for with to from by and also as well clearly here evidence sign finding presence "
        "see seen show shown reveal demonstrate demonstrated display displayed contain contained visible "
        "visualized identify identified note noted observe observed detect detected present appear seem exist "
        "depict depicted suggest patient image picture photo photograph scan film study x ray xray radiograph "
        "slide section slice ct mri no not nor without absent never none cannot neither"
    )
)


def own_part(text: str) -> str:
    r"""Return the text without a repeated instruction, up to the next instruction that a base model invents.

    Example:
        >>> own_part("Answer the question with yes, no or maybe. Yes\nAnswer the question with yes or no. B")
        'Yes'
    """
    parts = [part.strip() for part in _ECHO.split(text)]
    return next((part for part in parts if part), "")


def verdicts(text: str) -> set[str]:
    """Return the verdicts a reply gives: of ``yes``, ``no`` and ``maybe``, several if it contradicts itself.

    It is the final answer if one is declared; else what the reply begins with, declares, or says in its own sentence.
    The "no" of "no significant difference" is never a verdict.

    Example:
        >>> verdicts("Yes, no significant difference was found.")
        {'yes'}
        >>> verdicts("No significant difference was found.")
        set()
    """
    final = {word for match in _DECLARED[0].finditer(text) for word in _said(match, text)}
    if final:
        return final
    found = {word for match in _DECLARED[1].finditer(text) for word in _said(match, text)}
    for number, sentence in enumerate(SENTENCES.split(text)):
        match = _LEADING.match(sentence)
        alone = match and not re.search(r"\w", sentence[match.end() :])
        if match and (alone or (number == 0 and not _OWN_LIMIT.search(sentence))):
            found |= _said(match, sentence)
    return found


def _said(match: re.Match[str], text: str) -> set[str]:
    """Return the verdict of a match, and a second one set beside it ("yes and no", "maybe not")."""
    first = match.lastgroup or ""
    beside = _SECOND.match(text, match.end())
    second = beside[1].casefold() if beside else first
    return {first, "no" if second == "not" else second}


def is_unsure(text: str) -> bool:
    """Return whether the reply is about its writer's limits: "I cannot tell", "not sure".

    Example:
        >>> is_unsure("Not sure."), is_unsure("There is no fracture.")
        (True, False)
    """
    return is_unable(text) or _UNSURE.match(text) is not None


def yes_no(reply: str | None, question: str = "") -> Answer:
    """Read "yes" or "no" from a reply to a closed question; with its text, statements about what it asks are read, too.

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
    return Answer.invalid(Reason.AMBIGUOUS) if "maybe" in found else Answer.only(found)


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
        held = {word.what: stance(clause, word.start, word.end) for word in words(clause) if word.what in asked}
        if asked and asked == set(held) and set(held.values()) == {Stance.AFFIRMED}:
            found.add("yes")
        elif Stance.DENIED in held.values() and _content(clause) <= asked:
            found.add("no")
    return found


def _content(text: str) -> set[str]:
    return {word.what for word in words(text)} - _FILLERS


@extractor("robust_yes_no_maybe", kind=Kind.CHOICE, summary="the verdict on a question as a careful reader would")
def robust_yes_no_maybe(reply: str | None, sample: Sample) -> Answer:
    """Read the verdict of a reply to a question that asks for yes, no or maybe (PubMedQA).

    The sample's options are the words "yes", "no" and "maybe" in the order of the letters; a verdict that is no option
    is ``no_match``.

    Example:
        >>> sample = Sample({"options": ["yes", "no", "maybe"]})
        >>> robust_yes_no_maybe("No. Yes-men were not asked.", sample).value
        'B'
        >>> robust_yes_no_maybe("No significant difference was seen.", sample).reason.value
        'no_match'
    """
    text = own_words(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    text = own_part(text)
    if not text:  # nothing but the instruction
        return Answer.invalid(Reason.AMBIGUOUS)
    return worded_option(verdicts(text), sample.options) or Answer.invalid(
        Reason.REFUSED if is_unsure(text) else Reason.NO_MATCH
    )


def worded_option(found: set[str], options: Sequence[str]) -> Answer | None:
    """Turn words into the letter of the one option that is this word, or into nothing where no word was found."""
    if not found:
        return None
    if len(found) > 1:
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.only([letter(index) for index, option in enumerate(options) if normalised(option) in found])
