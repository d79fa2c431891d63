"""Yes, no and maybe, as a careful reader accepts them.

The verdict is what a reply begins with ("Yes, ..."), declares ("the answer is no"), or gives in a sentence of its own
("So, yes."); a declared *final* answer overrules the others. "No significant difference" is no verdict: it means "no"
to one question and "yes" to another. "Not sure" and "I don't know" are refusals, "yes and no" is ambiguous. "Perhaps",
"uncertain", "inconclusive" and the like are maybe, which is ambiguous for a closed question about an image.

A closed question is also answered by "true", "present" or "it is not" alone, and by a statement about what it asks:
"There is no fracture." is "no" to "Is there a fracture?", and no match to "Is the bone intact?" or where the question
is unknown. Statements about images in general, or about what cannot be told, answer nothing.
"""

import re
from collections.abc import Sequence

from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.negation import Mention, Stance, clauses, stance, stances
from medtasks.extract.reading.option_names import normalised, words
from medtasks.extract.reading.reply_text import SENTENCES, UNABLE, declared, own_words

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
        rf"(?i)\b(?:{_NOUN}{_LINK}|(?:i|i'd|i would|i will)\s+(?:say|answer|think|believe|conclude|choose|go with)"
        rf"(?:\s+that)?)\W*{_SURE}{_WORD}"
    ),
)
_SECOND = re.compile(
    r"(?i)\W*(?:[,/(]|\bor\b|\band\b|&|\s)\s*(?:also\s+)?(yes|no|maybe|not)\b(?=\W*$|\s*[.,;:!?/)\n]|\s+(?:or|and)\b)"
)
_ECHO = re.compile(
    r"(?i)(?:please\s+)?answer (?:the |this )?(?:following )?question with (?:either )?[\"']?yes[\"']?,? (?:or )?"
    r"[\"']?no[\"']?(?:,? or [\"']?maybe[\"']?)?\W*"
)
# "No, I cannot answer that" declines, "No, I cannot see a fracture" does not.
_OWN_LIMIT = re.compile(
    r"(?i)\bi(?:'m| am)? (?:cannot|can't|can not|unable to|not able to)\s+(?:\w+ly\s+)?(?:answer|help|assist|provide|"
    r"determine|tell|say|interpret|view|analy[sz]e|assess|diagnose)\b"
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
    r"(?i)\b(?:or|no|not|without|absent|absence|free|clear|exclud\w+|neither|never|lack\w*)\b|n't\b"
)
_PART = r"(?:chest|brain|head|abdom\w+|pelvi\w+|spine|neck|lung|liver|hist\w+|patholog\w+|axial|mri?|ct|x-?ray)"
# The whole image is no part of what is asked about it: "in the chest x-ray".
_IMAGE = re.compile(
    rf"(?i)\b(?:(?:in|on|from|according to|based on)\s+)?(?:the|this|that|an?)\s+((?:ab)?normal\s+)?"
    rf"(?:{_PART}\s+){{0,3}}(?:images?|pictures?|photo\w*|x-?rays?|radiographs?|scans?|films?|studies|study|slides?|mri|ct)\b"
)
# Clauses about images in general, or about what is not said.
_NO_STATEMENT = re.compile(
    r"(?i)\b(?:would|typically|usually|generally|sometimes|some cases|used (?:to|for)|whether|if|"
    r"not (?:\w+ly )?(?:mention|state|specif|describ|provid)\w*|(?:difficult|hard) to)\b"
)
# Words that do not tell one question about an image from another.
_FILLERS = frozenset(
    word.what
    for word in words(
        "i you we it there this that these those they its itself is are was were be been being do does did "
        "can could has have had any some in on at of for with to from by and also as well clearly here "
        "evidence sign finding presence see seen show shown reveal demonstrate demonstrated display displayed "
        "contain contained visible visualized identify identified note noted observe observed detect detected "
        "present appear look seem exist depict depicted represent suggest patient image picture photo "
        "photograph scan film study x ray xray radiograph slide section slice ct mri no not nor without "
        "absent never none cannot neither significant obvious apparent"
    )
)
_OPPOSITES = {"normal": "abnormal", "abnormal": "normal"}


def plain_verdict(text: str) -> str | None:
    """Return "yes", "no" or "maybe" where a text is nothing but this word."""
    word = normalised(text)
    return word if word in ("yes", "no", "maybe") else None


def own_part(text: str) -> str:
    """Return the text without a repeated instruction, up to the next instruction that a base model invents."""
    parts = [part.strip() for part in _ECHO.split(text)]
    return next((part for part in parts if part), "")


def verdicts(text: str) -> set[str]:
    """Return the verdicts, of ``yes``, ``no`` and ``maybe``, that a reply declares, begins with, or has alone."""

    def verdict(match: re.Match[str], text: str) -> set[str]:
        """Return the verdict of a match, and a second one next to it ("yes and no", "maybe not")."""
        first = match.lastgroup or ""
        following = _SECOND.match(text, match.end())
        second = following[1].casefold() if following else first
        return {first, "no" if second == "not" else second}

    final, stated = (
        {word for match in pattern.finditer(text) for word in verdict(match, text)} for pattern in _DECLARED
    )
    if final:
        return final
    for number, sentence in enumerate(SENTENCES.split(text)):
        match = _LEADING.match(sentence)
        alone = match and not re.search(r"\w", sentence[match.end() :])
        if match and (alone or (number == 0 and not _OWN_LIMIT.search(sentence))):
            stated |= verdict(match, sentence)
    return stated


def is_unsure(text: str) -> bool:
    """Return whether the reply is about its writer's limits: "I cannot tell", "not sure"."""
    return UNABLE.search(text) is not None or _UNSURE.match(text) is not None


def yes_no(reply: str | None, question: str = "") -> Answer:
    """Read "yes" or "no" from a reply to a closed question; its text makes statements readable."""
    text = own_words(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    text = own_part(text)
    plain = re.sub(r"[^\w'\s]+", " ", text).strip().casefold()
    read = verdicts(text) or {verdict for verdict, form in _SHORT.items() if form.fullmatch(plain)}
    if not read and is_unsure(text):
        return Answer.invalid(Reason.REFUSED)
    # Statements answer a question that asks whether one thing is so.
    topic = {word.what for word in _content(question)} if not read else set()
    asks = topic and _ASKS.match(question) and not _NOT_SIMPLE.search(question)
    for clause in clauses(text) if asks else ():
        if _NO_STATEMENT.search(clause):
            continue
        by_stance: dict[Stance, set[str]] = {kind: set() for kind in Stance}
        for word in _content(clause):
            by_stance[stance(clause, word.start, word.end)].add(word.what)
        affirmed = by_stance.pop(Stance.AFFIRMED)
        doubtful = set[str]().union(*by_stance.values())
        opposites = {_OPPOSITES.get(word) for word in affirmed}
        if topic <= affirmed - doubtful:
            read.add("yes")
        # The subject of a denial does not limit it, unlike the words next to what it denies: "no displaced fracture".
        elif set() < by_stance[Stance.DENIED] <= topic or (
            opposites & topic and (affirmed | doubtful) - {*_OPPOSITES} <= topic
        ):
            read.add("no")
    return Answer.invalid(Reason.AMBIGUOUS) if "maybe" in read else Answer.only(read)


def _content(text: str) -> list[Mention[str]]:
    stems = words(_IMAGE.sub(lambda match: (match[1] or "").rjust(len(match[0])), text))
    stems = [word._replace(what="abnormal") if word.what.startswith("abnormal") else word for word in stems]
    return [word for word in stems if word.what not in _FILLERS]


@extractor("robust_yes_no_maybe", AnswerKind.CHOICE, "verdict on a question, read with care", own_words, version=2)
def robust_yes_no_maybe(reply: str, sample: Sample) -> Answer:
    """Read a verdict (PubMedQA); options are words in the order of the letters."""
    text = own_part(reply)
    if not text:  # nothing but the instruction
        return Answer.invalid(Reason.AMBIGUOUS)
    return worded_option(verdicts(text), sample.options) or Answer.invalid(
        Reason.REFUSED if is_unsure(text) else Reason.NO_MATCH
    )


def worded_option(read: set[str], options: Sequence[str]) -> Answer | None:
    """Turn words into the letter of the one option that is this word, or into None without any word."""
    if not read:
        return None
    if len(read) > 1:
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.only([letter(index) for index, option in enumerate(options) if normalised(option) in read])


# ---- the logical relation of two sentences ----
#
# It is declared ("the relationship is neutral") or leading ("Contradiction: ..."), else the one relation that the text
# affirms, in any form ("entailed"). "Neither entailment nor contradiction" and "no clear logical relationship" are
# neutral; "not entailment" alone names none. The question's list of the three words does not count.

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


@extractor("robust_nli", AnswerKind.CHOICE, "relation of two sentences, read with care", own_words, version=2)
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
