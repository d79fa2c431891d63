"""Whether a text affirms what it mentions: the scope of "no", "not seen", "possible" and "cannot be excluded".

The text is cut into clauses, each with one statement, and a mention is judged by the signal words of its own clause.
Signals before a mention reach to the end of the clause ("no effusion or oedema"); signals after it reach back over its
own list ("effusion and oedema are absent"). The reading of uncertainty follows the CheXpert labeler (Irvin et al.,
2019): "possible", "probable", "X or Y", "no new X" and "cannot be excluded" are not affirmed, "likely" is.

The patterns here are English. Other languages have words by role (:mod:`medtasks.extract.reading.languages`): a denial
reaches forward, and back if its verb or nothing follows ("выпот не определяется"); a dismissal ("ausgeschlossen") or an
absence reaches both ways, but a denied dismissal leaves open, as do refusals.
"""

import enum
import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import Generic, NamedTuple, TypeVar

from medtasks.extract.reading.languages import pattern_of
from medtasks.extract.reading.reply_text import CANNOT

T = TypeVar("T")


class Mention(NamedTuple, Generic[T]):
    """Meaning of a text from ``start`` to ``end``: a word's stem, the position of an option, a number."""

    what: T
    start: int
    end: int


class Stance(enum.Enum):
    """Certainty with which a clause speaks of something it mentions."""

    AFFIRMED = enum.auto()
    HEDGED = enum.auto()  # "possible", "may be"
    OPEN = enum.auto()  # "cannot be excluded", "X or Y", "whether"
    DENIED = enum.auto()


_VERB = re.compile(
    r"(?i)\b(?:is|are|was|were|has|have|had|does|did|can|cannot|could|may|might|will|would|should|shows?|showed|reveals?|"
    r"demonstrates?|suggests?|indicates?|appears?|seems?|looks?|contains?|remains?|represents?|corresponds?|depicts?|"
    r"displays?|exhibits?|seen|noted|present|identified|visible|observed|evident|positive for)\b|(?<=[a-z])'s\s|n't\b"
)
_SUBJECT = re.compile(r"(?:the|this|that|there|it|these|those|we|i|he|she|they)\b", re.IGNORECASE)
_DEGREE = re.compile(
    r"(?i)(?:mild|mildly|moderate|moderately|severe|severely|small|large|trace|minimal|marked|bilateral|left|right|normal)\b"
)
_SENTENCE = re.compile(
    r"(?i)(?<=[\u0e00-\ud7af])\.|(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\bDr)\.(?!\w)|[!;]|(?<=\?)\s|(?<!\bno)(?<!\bnot)(?<!\bof)(?<!\bor)(?<!\band)"
    r"(?<!\bany)(?<!\bfor)(?<!\bwithout)(?<!\bis)(?<!\bare)(?<!\bthe)(?<!\ba)(?<!,)[ \t]*\n|"
    r"(?<=[:=|–—-] no)\n|\n(?=\s*(?:[-•*–]|\(?\d{1,2}[.):]\s))"
)
_CONTRAST = re.compile(
    r"(?i),?\s*\b(?:but|however|although|though|yet|whereas|while|except(?: for)?|apart from|aside from|other than|"
    r"despite|nevertheless|instead(?! of)|because|since)\b"
)
_JOINT = re.compile(r",\s*(?:and\s+|or\s+|nor\s+)?|\s+and\s+", re.IGNORECASE)

_WORDS = r"(?:\w+\s+){0,2}"
_SEEN = (
    r"(?:seen|present|identified|visible|visuali[sz]ed|evident|noted|detected|observed|demonstrated|appreciated|found|shown|"
    r"apparent|there|likely|correct|right|indicated|appropriate|supported|consistent|the|an?|it|my|true|(?=\W*$))"
)
_CANNOT = rf"(?:{CANNOT}|difficult to|not)"
_UNRESOLVED = rf"{_CANNOT}\s+(?:be\s+)?(?:\w+ly\s+)?(?:excluded?|ruled?[ -]out)"
_OPEN_BEFORE = re.compile(
    rf"(?i)\b(?:{_UNRESOLVED}|to (?:rule out|exclude)|r/o|evaluat\w+ for|assess\w* for|screen\w* for|whether|if|"
    rf"risk of|(?<!no )history of|h/o|differential|no new|"
    rf"{_CANNOT}\s+(?:be\s+)?(?:determin|tell|say|assess|confirm|answer)\w*)\b"
)
_OPEN_AFTER = re.compile(rf"\b{_UNRESOLVED}\b", re.IGNORECASE)
_HEDGED_BEFORE = re.compile(
    r"(?i)\b(?:may|might|could|perhaps|maybe|presumably|possibly|probably|concern\w* (?:for|about|of)|suspicious for|"
    r"suspicion (?:of|for)|worrisome for|questionable for|question of|suggestion of|suspect|favou?rs?|consider)\b"
)
_HEDGED_NOUN = re.compile(r"\b(?:possible|probable|questionable|suspected|presumed|borderline)\s", re.IGNORECASE)
_HEDGED_AFTER = re.compile(
    r"(?i)\b(?:(?:is|are|was|were)\s+(?:also\s+)?(?:possible|probable|questionable|suspected|uncertain|equivocal)|"
    r"(?:may|might|could)\s+(?:also\s+)?be\s+(?:present|seen|there))\b"
)
_DENIED_BEFORE = re.compile(
    rf"(?i)\bno(?!t|\w|\s+(?:doubt|question)\b|\s+{_WORDS}(?:changes?|increase|decrease|improvement|worsening|progression)\b)|"
    r"\b(?:not(?!\s+(?:only|just|merely|solely)\b)|without|never|nor|neither|none|nothing|denie[sd]|denying|"
    r"negative(?: for|(?=:))|absence of|absent(?=:)|lack(?:s|ing)?(?: of)?|free (?:of|from)|clear of|"
    r"(?:rul(?:ed|es|ing) out|exclud(?:es|ed|ing)|eliminat(?:es?|ed|ing))(?!\s*(?:$|[.,)]|by\b))|"
    r"rather than|instead of|as opposed to|fails? to|argu\w+ against|"
    r"cannot (?:see|identify|detect|find|visuali[sz]e|appreciate)|(?:un|less )likely|resolved|"
    r"resolution of)\b|n't\b"
)
_DENIED_AFTER = re.compile(
    rf"(?i)\b(?:is|are|was|were)(?:\s+not|n't)\W*$|(?:\bnot|n't|\bnever)\s+(?!only\b)(?:\w+ly\s+)?(?:be(?:en)?\s+)?{_SEEN}|"
    r"\b(?:absent|unlikely|less likely|negative(?!\s+for)|no longer|(?<!not )resolved|incorrect|wrong|"
    r"contraindicated|denied)\b|"
    r"\b(?:ruled out|excluded|eliminated)(?=\s*(?:$|[.,)]|by\b|with\b|and\b|on\b|as\b))"
)
_VALUE_NO = re.compile(
    r"(?i)\s*[\"']?\s*(?:[:=(|]|[-–—]\s)\s*[\"'(]?\s*"
    r"(?:(?:no|n)\b(?!\s+\w)|(?:none|absent|not \w+|false)\b|negative\b(?!\s+for)|0\b(?!\.\d))|"
    r"\s+no(?=\s*(?:$|[,;.|]))|\s*\(\s*[-–]\s*\)"
)
_VALUE_UNSURE = re.compile(r"\s*[:=(]\s*(?:uncertain|unsure|unclear|possible|maybe|unknown|n/a)\b", re.IGNORECASE)
_PREFIX = re.compile(r"\b(?:non|pre|no|not|anti)[- ]?$|\[\s*\]\s?$", re.IGNORECASE)
_JOINED = re.compile(r"\s*(?:or|and/or|versus|vs\.?|/)\s+\w", re.IGNORECASE)
_JOINED_BEFORE = re.compile(r"\b(?:or|and/or|versus|vs\.?)\s+(?:an?\s+)?(?:[\w-]+\s+){0,2}$", re.IGNORECASE)
_ASKED = re.compile(r"\s?\(?\?")
_CLOSED = re.compile(r"[^(]*\)")  # a signal inside brackets ends with them
_NEXT_ITEM = re.compile(r".*?(?:,|\band\b)", re.IGNORECASE | re.DOTALL)
_OR = re.compile(r"\b(?:or|nor)\b", re.IGNORECASE)
_SIGNALS = (*(_OPEN_BEFORE, _OPEN_AFTER, _HEDGED_BEFORE, _HEDGED_NOUN, _HEDGED_AFTER), *(_DENIED_BEFORE, _DENIED_AFTER))
_OPEN, _HEDGED = (_OPEN_BEFORE, _OPEN_AFTER), (_HEDGED_BEFORE, _HEDGED_AFTER)
_DENIED = (_DENIED_BEFORE, _DENIED_AFTER)
ENGLISH = ("en",)
_WITHOUT_BLANKS = re.compile("[\u0e00-\u9fff]")
_REACH = 300  # characters; no statement is longer, and broken models repeat "no" thousands of times
_PLURAL = re.compile(r"\b(?:and|or|nor|are|were|have|both|neither)\b", re.IGNORECASE)


def clauses(text: str, languages: tuple[str, ...] = ENGLISH) -> list[str]:
    """Cut a text without markup into statements, at a comma or "and" where another begins; a list stays whole."""
    statements: list[str] = []
    others = _others(languages)
    pieces = itertools.chain.from_iterable(_CONTRAST.split(sentence) for sentence in _SENTENCE.split(text))
    for piece in itertools.chain.from_iterable(_contrasts(piece, others) for piece in pieces) if others else pieces:
        start = 0
        verbs = [match.start() for match in _VERB.finditer(piece)]
        if others:
            verbs = sorted(verbs + [match.start() for match in pattern_of(_STATES, others).finditer(piece)])
        last_or = max((match.start() for match in _OR.finditer(piece)), default=-1)
        joints = list(_JOINT.finditer(piece))
        ends = [joint.start() for joint in joints[1:]] + [len(piece)]
        for joint, end in zip(joints, ends, strict=False):
            verb_before, verb_after = (
                bisect_left(verbs, last) > bisect_left(verbs, first)
                for first, last in ((start, joint.start()), (joint.end(), end))
            )
            begins = verb_after and (verb_before or _SUBJECT.match(piece, joint.end()))
            if begins or (_DEGREE.match(piece, joint.end()) and last_or < joint.start()):
                statements.append(piece[start : joint.start()].strip())
                start = joint.end()
        statements.append(piece[start:].strip())
    return list(filter(None, statements))


_STATES = "present absent not not_after"


def _others(languages: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(language for language in languages if language != "en")


def _contrasts(piece: str, languages: tuple[str, ...]) -> Iterator[str]:
    """Cut after words such as "aber" and "außer"; a single character, as in "が、", is one only next to a comma."""
    start, denial = 0, pattern_of("not not_after", languages)
    for match in pattern_of("but except", languages).finditer(piece):
        near = piece[max(0, match.start() - 1)] + piece[match.end() : match.end() + 1]
        is_denial = denial.search(match[0]) and not pattern_of("but", languages).fullmatch(match[0])  # "sin", "ohne"
        if not is_denial and (len(match[0]) > 1 or "," in near):
            yield piece[start : match.end()]
            start = match.end()
    yield piece[start:]


@cache
def _denied_verb(languages: tuple[str, ...]) -> re.Pattern[str]:
    denial, verb = pattern_of("not", languages).pattern, pattern_of("present", languages).pattern
    return re.compile(rf"(?i)(?:{denial})(?:\W*$|\W*(?:\w+\W+){{0,2}}?(?:{verb}))")


@lru_cache(maxsize=256)
def _signals(clause: str, languages: tuple[str, ...]) -> dict[re.Pattern[str], tuple[list[int], list[int]]]:
    """Return the starts and the ends of a clause's signals, both in order."""
    spans: dict[re.Pattern[str], list[tuple[int, int]]] = {pattern: [] for pattern in _SIGNALS}
    if "en" in languages:
        spans = {pattern: [match.span() for match in pattern.finditer(clause)] for pattern in _SIGNALS}
    if others := _others(languages):
        for signs, span in _signals_by_role(clause, others):
            for sign in signs:
                spans[sign].append(span)
    return {
        sign: (sorted(start for start, _ in of_sign), sorted(end for _, end in of_sign))
        for sign, of_sign in spans.items()
    }


def _signals_by_role(
    clause: str, languages: tuple[str, ...]
) -> Iterator[tuple[tuple[re.Pattern[str], ...], tuple[int, int]]]:
    """Yield the signals of other languages than English: what they are as, and where."""
    denial = pattern_of("not not_after", languages)
    for match in pattern_of("uncertain", languages).finditer(clause):
        is_open = pattern_of("not not_after wrong", languages).search(match[0])
        yield (_OPEN if is_open else _HEDGED), match.span()
    for match in pattern_of("refusal", languages).finditer(clause):
        yield _OPEN, match.span()
    for match in pattern_of("wrong", languages).finditer(clause):
        is_denied = not denial.search(match[0]) and denial.search(clause)
        yield (_OPEN if is_denied else _DENIED), match.span()
    for match in pattern_of("absent", languages).finditer(clause):
        if not denial.search(match[0]) and not pattern_of("normal", languages).fullmatch(match[0]):
            yield _DENIED, match.span()
    for match in pattern_of("not_after", languages).finditer(clause):
        yield _DENIED[1:], match.span()
    for match in pattern_of("not", languages).finditer(clause):
        is_last = _denied_verb(languages).match(clause, match.start()) or _WITHOUT_BLANKS.match(match[0])
        yield (_DENIED if is_last else _DENIED[:1]), match.span()


def stance(clause: str, start: int, end: int, languages: tuple[str, ...] = ENGLISH) -> Stance:
    """Return the stance of one of :func:`clauses` on its words from ``start`` to ``end``."""
    signals = _signals(clause, languages)

    def before(pattern: re.Pattern[str], barrier: re.Pattern[str] = _CLOSED) -> bool:
        ends = signals[pattern][1]
        near = ends[bisect_left(ends, start - _REACH) : bisect_right(ends, start)]
        return any(not barrier.match(clause, last, start) for last in near)

    def after(pattern: re.Pattern[str]) -> bool:
        starts = signals[pattern][0]
        near = starts[bisect_left(starts, end) : bisect_right(starts, end + _REACH)]
        return any(
            # not across an opened bracket or a finished list item
            not ("(" in between and ")" not in between)
            and ("," not in between or _PLURAL.search(between.rpartition(",")[2]))
            for between in (clause[end:first] for first in near)
        )

    if before(_OPEN_BEFORE) or after(_OPEN_AFTER) or _VALUE_UNSURE.match(clause, end):
        return Stance.OPEN
    denied = _PREFIX.search(clause, max(0, start - 6), start) or _VALUE_NO.match(clause, end)
    if denied or before(_DENIED_BEFORE) or after(_DENIED_AFTER):
        return Stance.DENIED
    if _JOINED.match(clause, end) or _JOINED_BEFORE.search(clause, max(0, start - 60), start):
        return Stance.OPEN
    hedged = before(_HEDGED_BEFORE) or before(_HEDGED_NOUN, _NEXT_ITEM) or after(_HEDGED_AFTER)
    return Stance.HEDGED if hedged or _ASKED.match(clause, end) else Stance.AFFIRMED


def stances(
    text: str, mentions: Callable[[str], Iterable[Mention[T]]], languages: tuple[str, ...] = ENGLISH
) -> dict[Stance, set[T]]:
    """Return everything that the clauses of a text without markup mention, by stance."""
    by_stance: dict[Stance, set[T]] = {kind: set() for kind in Stance}
    for clause in clauses(text, languages):
        for mention in mentions(clause):
            by_stance[stance(clause, mention.start, mention.end, languages)].add(mention.what)
    return by_stance


def stances_of(pattern: re.Pattern[str], parts: Iterable[str], languages: tuple[str, ...] = ENGLISH) -> set[Stance]:
    """Return the stances of clauses on the matches of a pattern."""
    return {stance(clause, *match.span(), languages) for clause in parts for match in pattern.finditer(clause)}
