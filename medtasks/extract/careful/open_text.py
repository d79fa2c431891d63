"""Replies in free text, compared with the target of an open question.

Facts of the answers: ``closed``, whether the target is "yes" or "no"; ``correct``, never of an invalid reply; and,
between 0 and 1, ``bleu_1`` of the sentence, without smoothing, ``token_f1`` over distinct tokens, and ``token_recall``,
the share of the target's tokens that the reply has.

Called by the extractors for open questions, which compare words here and never judge meaning.
"""

import re
import unicodedata
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache

from medtasks.data.samples import Sample
from medtasks.extract.careful.yes_no import gold_verdict, is_unsure, yes_no
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.published.multimedeval import NUMBERS
from medtasks.extract.reading.languages import ENGLISH, languages_of, pattern_of, words_of
from medtasks.extract.reading.negation import Mention, Stance, clauses, stance
from medtasks.extract.reading.reply_text import own_words
from medtasks.extract.reading.stems import stem
from medtasks.metrics.ngram_metrics import OPEN_RECALL, References, TokenOverlap, token_overlap

DENIED = "not:"

_WORD = re.compile(
    # Case is ignored in the ordinal alone: the range of characters below has signs that are equal to K, Å and в then.
    r"\d+(?i:st|nd|rd|th)\b|(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|(?<![\w.])\.\d+|\d+(?:\.\d+)?)|"
    r"[\u0e00-\u9fff][\u0e31\u0e34-\u0e4e]*|"  # Chinese, Japanese and Thai have no blanks: characters are words
    r"[^\W\d_\u0e00-\u9fff][^\W_\u0e00-\u9fff]*(?:['’][^\W\d_]+)?"
)
_XRAY = re.compile(r"\bx[ -]ray(?=s?\b)", re.IGNORECASE)
_RANKS = "1st 2nd 3rd 4th 5th 6th 7th 8th 9th 10th"
_SPELLINGS = NUMBERS | dict(zip(words_of("first", ENGLISH), _RANKS.split(), strict=True))
_ARTICLES = frozenset(("an", "the"))


@lru_cache(maxsize=1 << 16)
def _spelling_of(written: str) -> str:
    """Return the spelling in which a word is compared."""
    plain = written.casefold().replace("’", "'").removesuffix("'s").replace("'", "")
    return _SPELLINGS.get(plain) or stem(plain)


# A denial is about the finding; "no effusion is seen" and "there is no effusion" share the word "is".
_UNDENIABLE_WORDS = (
    "am and any are at be been being but by can cannot could did do does evidence for from had has have i in is it "
    "its no not of on or sign that there these they this those to was we were with yes"
)
_UNDENIABLE = frozenset(map(_spelling_of, _UNDENIABLE_WORDS.split()))
_NOUN_FOLLOWS = re.compile(r"\s+(?!(?:and|or|vs|versus|is|was|because)\b)[^\W_]", re.IGNORECASE)
_SENTENCE_STARTS = re.compile(r"(?:^|[.!?:;\n])[\s\"'(]*$")
_LABELLED = re.compile(
    r"(?i)\b(?:type|grade|stage|class|category|group|vitamin|hepatitis|ha?emophilia|influenza|factor|level|segment|figure|"
    r"fig|panel|image|part|option|choice|label|lesion)\s+[\"'(]?$"
)
_SELF = re.compile(
    r"(?i)\W*(?:i|we)(?:'m|'d)?\s+(?:\w+ly\s+)?(?:do not|don't|am not|cannot|can't|could not|couldn't|unable|not|"
    r"am unable)\b"
)
_ADVICE = re.compile(
    r"(?i)\b(?:please|consult\w*|recommend\w*|upload|share|if you|could you|can you|let me know|happy to|feel free|"
    r"seek|provide (?:me|more|a|the|additional))\b"
)


def stated_words(text: str, of_interest: Container[str] | None = None) -> list[str]:
    """Return the words of a text in order, those in a denied statement with the prefix ``not:``.

    Lower case, singular, American spelling; no punctuation, possessives and articles; number words up to ten and "none"
    in digits, "third" as "3rd"; numbers without thousands separators and trailing zeros; a unit apart from its number;
    "x-ray" as one word. The letter A stays as a name: at the end, before a mark, "and" or "is", after a noun such as
    "type", and as a capital within a sentence. Of languages without blanks each character is a word.

    Args:
        text: Text without markup.
        of_interest: Words that are checked for denial, all by default.

    Example:
        >>> stated_words("No effusions are seen.")
        ['no', 'not:effusion', 'are', 'not:seen']
    """
    text = _XRAY.sub("xray", unicodedata.normalize("NFKC", text))
    spoken = _spoken_words(text)
    deniable = []
    for word in spoken:
        if word.what not in _UNDENIABLE and (of_interest is None or word.what in of_interest):
            deniable.append(word)
    denied = set(_denied_words(text, deniable)) if deniable else ()
    return [DENIED + word.what if word in denied else word.what for word in spoken]


def _denied_words(text: str, words: Sequence[Mention[str]]) -> Iterator[Mention[str]]:
    """Yield the words among ``words`` that the clauses of a text deny.

    Args:
        text: Text without markup.
        words: Words of the text, in its order.
    """
    languages = languages_of(text)
    if "en" in languages:
        languages = ENGLISH
    # Clauses follow one another, as the words do.
    parts = iter(clauses(text, languages))
    clause = ""
    clause_start = 0
    clause_end = 0
    for word in words:
        while clause_end <= word.start:
            following = next(parts, None)
            if following is None:
                break
            clause = following
            clause_start = text.index(clause, clause_end)
            clause_end = clause_start + len(clause)
        start = word.start - clause_start
        end = word.end - clause_start
        is_inside = start >= 0 and end <= len(clause)
        if is_inside and stance(clause, start, end, languages) is Stance.DENIED:
            yield word


def _spoken_words(text: str) -> list[Mention[str]]:
    """Return the words of a text in one spelling, without articles."""
    shouting = text.isupper()
    spoken = []
    for match in _WORD.finditer(text):
        if match.lastgroup == "number":  # without thousands separators and outer zeros
            whole, _, fraction = match[0].replace(",", "").partition(".")
            parts = (whole.lstrip("0") or "0", fraction.rstrip("0"))
            spoken.append(Mention(".".join(filter(None, parts)), *match.span()))
        elif match[0].casefold() not in _ARTICLES and not _is_article_a(match, text, shouting):
            spoken.append(Mention(_spelling_of(match[0]), *match.span()))
    return spoken


def _is_article_a(
    match: re.Match[str],
    text: str,
    shouting: bool,
) -> bool:
    """Return whether a word is the article "a", and not the letter."""
    if match[0] not in ("a", "A") or not _NOUN_FOLLOWS.match(text, match.end()):
        return False
    before = text[max(0, match.start() - 20) : match.start()]
    if _LABELLED.search(before):
        return False
    return match[0] == "a" or shouting or _SENTENCE_STARTS.search(before) is not None


def open_reply(reply: str | None) -> tuple[str | None, Reason]:
    """Return the text of a reply to an open question, and the reason if it has none.

    Args:
        reply: The raw reply. Of one that partly declines only the statements are returned, joined by semicolons.
    """
    text = own_words(reply)
    if isinstance(text, Reason):
        return None, text
    languages = languages_of(text)
    if not is_unsure(text, languages):
        return text, Reason.OK
    of_writer = pattern_of("writer refusal", languages)
    stated = []
    for clause in clauses(text, languages):
        is_aside = of_writer.search(clause) or _SELF.match(clause) or _ADVICE.search(clause)
        if re.search(r"\w", clause) and not is_aside:
            stated.append(clause)
    if not stated:
        return None, Reason.REFUSED
    return "; ".join(stated), Reason.OK


@lru_cache(maxsize=4096)  # many replies are compared with a target
def target_words(target: str) -> tuple[str, ...]:
    """Return the :func:`stated_words` of a target.

    Example:
        >>> target_words("Two pleural effusions")
        ('2', 'pleural', 'effusion')
    """
    return tuple(stated_words(target))


@extractor(
    "robust_vqa",
    AnswerKind.OPEN,
    "words of the target that are not denied; clear yes or no",
    version=3,
)
def robust_vqa(reply: str | None, sample: Sample) -> Answer:
    """Score with care.

    A closed question is right if the reply says the target's "yes" or "no", also by a statement about what the question
    asks; both or neither is invalid. Overlaps are those of the "yes" or "no" alone.

    For an open question, words in a denied statement match only words that the target denies, too: "no pneumonia" has
    nothing of "pneumonia". Right is three quarters of the target's words, as for the reference. Refusals are invalid.
    """
    verdict = gold_verdict(sample.document["answer"].strip())
    if verdict is not None:
        answer = yes_no(reply, sample.question, sample.languages)
        if answer.value is None:
            return invalid_open_answer(answer.reason, closed=True)
        overlap = token_overlap({answer.value}, {verdict})
        correct = answer.value == verdict
        return open_answer(answer.value, verdict, overlap, closed=True, correct=correct)
    words = target_words(sample.document["answer"])
    text, reason = open_reply(reply)
    if text is None:
        return invalid_open_answer(reason, closed=False)
    spoken = stated_words(text, frozenset(word.removeprefix(DENIED) for word in words))
    if not spoken:
        return invalid_open_answer(Reason.EMPTY, closed=False)
    overlap = token_overlap(set(spoken), set(words))
    correct = overlap.recall >= OPEN_RECALL
    return open_answer(
        " ".join(spoken), " ".join(words), overlap, closed=False, correct=correct
    )


def open_answer(
    text: str,
    target: str,
    overlap: TokenOverlap,
    *,
    closed: bool,
    correct: bool,
) -> Answer:
    """Return the answer of a valid reply.

    Args:
        text: Words of the reply as they are compared, joined by blanks.
        target: Words of the target, likewise.
        overlap: Overlap of the two.
        closed: Whether the target is "yes" or "no".
        correct: Whether the reply is right.
    """
    return Answer.ok(
        text,
        closed=closed,
        correct=correct,
        bleu_1=References([target]).scores(text)[0],
        token_f1=overlap.f1,
        token_recall=overlap.recall,
    )


def invalid_open_answer(reason: Reason, *, closed: bool) -> Answer:
    """Return the answer of an invalid reply, which is not right and shares nothing with the target."""
    return Answer.invalid(
        reason, closed=closed, correct=False, bleu_1=0.0, token_f1=0.0, token_recall=0.0
    )
