"""Whether a text affirms what it mentions: the scope of "no", "not seen", "possible" and "cannot be excluded".

The text is cut into clauses, each with one statement, and a mention is judged by the signal words of its own clause,
which are those of its language by role (:mod:`medtasks.extract.reading.languages`). All but denials that follow what
they deny reach forward to the end of the clause ("no effusion or oedema"). They reach back over their own list if they
end the clause or a verb follows ("effusion and oedema are not seen", "выпот не определяется"); dismissals and absences
always do ("ruled out", "fehlt"). A dismissal that is denied leaves open, as do refusals. The reading of uncertainty
follows the CheXpert labeler (Irvin et al., 2019): "possible", "probable", "X or Y", "no new X" and "cannot be excluded"
are not affirmed, "likely" is.

Called by every careful extractor. It knows no options and no labels: what a word means is up to the caller.
"""

import enum
import re
import sys
from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from medtasks.extract.reading.languages import (
    ENGLISH,
    Languages,
    Signal,
    pattern_of,
    signals_in,
)

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


_ROLES = "aside unchanged not not_after lack missing absent wrong uncertain open refusal possible normal"
# Each alternative begins with a character, which makes the search fast. A line that ends within a phrase goes on.
_SENTENCE = re.compile(
    r"(?i)\.(?:(?<=(?-i:[\u0e00-\ud7af])\.)|(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bvs\.)(?<!\bDr\.)(?!\w))|[!;]|\s(?<=\?\s)|"
    r"\n(?:(?<!\bno\n)(?<!\bnot\n)(?<!\bof\n)(?<!\bor\n)(?<!\band\n)(?<!\bany\n)(?<!\bfor\n)(?<!\bwithout\n)(?<!\bis\n)"
    r"(?<!\bare\n)(?<!\bthe\n)(?<!\ba\n)(?<!,\n)|(?<=[:=|–—-] no\n)|(?=\s*(?:[-•*–]|\(?\d{1,2}[.):]\s)))"
)
_JOINT = re.compile(r",\s*(?:and\s+|or\s+|nor\s+)?|\s+and\s+", re.IGNORECASE)
_FIELD = re.compile(r"[\w \t-]{1,40}:\s*\w")
_OR = re.compile(r"\b(?:or|nor)\b", re.IGNORECASE)
_VALUE_NO = re.compile(
    r"(?i)\s*[\"']?\s*(?:[:=(|]|[-–—]\s)\s*[\"'(]?\s*"
    r"(?:(?:no|n)\b(?!\s+\w)|(?:none|absent|not \w+|false)\b|negative\b(?!\s+for)|0\b(?!\.\d))|"
    r"\s+no(?=\s*(?:$|[,;.|]))|\s*\(\s*[-–]\s*\)"
)
_VALUE_UNSURE = re.compile(
    r"\s*[:=(]\s*(?:uncertain|unsure|unclear|possible|maybe|unknown|n/a)\b", re.IGNORECASE
)
_PREFIX = re.compile(r"\b(?:non|pre|no|not|anti)[- ]?$|\[\s*\]\s?$", re.IGNORECASE)
_JOINED = re.compile(r"\s*(?:or|and/or|versus|vs\.?|/)\s+\w", re.IGNORECASE)
_JOINED_BEFORE = re.compile(
    r"\b(?:or|and/or|versus|vs\.?)\s+(?:an?\s+)?(?:[\w-]+\s+){0,2}$", re.IGNORECASE
)
_ASKED = re.compile(r"\s?\(?\?")
_CLOSED = re.compile(r"[^(]*\)")  # a signal inside brackets ends with them
_NEXT_ITEM = re.compile(r".*?(?:,|\band\b)", re.IGNORECASE | re.DOTALL)
# Letters of scripts without blanks between words.
WITHOUT_BLANKS = re.compile("[\u0e00-\u9fff]")
_PLURAL = re.compile(r"\b(?:and|or|nor|are|were|have|both|neither)\b", re.IGNORECASE)
# Characters; no statement is longer, and broken models repeat "no" thousands of times
_REACH = 300
_NEAR = 25  # characters between a dismissal and its denial


def clauses(text: str, languages: Languages = ENGLISH) -> list[str]:
    """Cut a text without markup into statements, at a comma or "and" where another begins.

    A list stays whole.

    Example:
        >>> clauses("No effusion or edema, but there is a mass. The heart is normal.")
        ['No effusion or edema, but', 'there is a mass', 'The heart is normal']
    """
    statements: list[str] = []
    for sentence in _SENTENCE.split(text):
        start = 0
        # It is cut after words such as "but" and "except".
        for signal in signals_in(sentence, "but except not than wrong absent", languages):
            # "sin" and "ohne" mean "except", but are denials, too.
            if "but" not in signal.roles and signal.roles != {"except"}:
                continue
            # A single character, as in "が、", cuts only next to a comma.
            near = sentence[max(0, signal.start - 1)] + sentence[signal.end : signal.end + 1]
            if signal.end - signal.start > 1 or "," in near:
                statements += _coordinate_clauses(sentence[start : signal.end], languages)
                start = signal.end
        statements += _coordinate_clauses(sentence[start:], languages)
    return list(filter(None, statements))


def _coordinate_clauses(piece: str, languages: Languages) -> list[str]:
    """Cut a piece at a comma or "and" that a subject with a verb, a degree or a field follows."""
    joints = list(_JOINT.finditer(piece))
    if not joints:
        return [piece.strip()]
    verbs = starts_of(pattern_of("verb present", languages), piece)
    subject = pattern_of("subject", languages)
    degree = pattern_of("degree normal", languages)
    last_or = max(starts_of(_OR, piece), default=-1)
    ends = [*map(re.Match.start, joints[1:]), len(piece)]
    statements = []
    start = 0
    for joint, end in zip(joints, ends, strict=True):
        has_verb = bisect_left(verbs, joint.start()) > bisect_left(verbs, start)
        verb_follows = bisect_left(verbs, end) > bisect_left(verbs, joint.end())
        begins = verb_follows and (has_verb or subject.match(piece, joint.end()))
        is_degree = last_or < joint.start() and degree.match(piece, joint.end())
        if begins or is_degree or _FIELD.match(piece, joint.end()):
            statements.append(piece[start : joint.start()].strip())
            start = joint.end()
    return [*statements, piece[start:].strip()]


def starts_of(
    pattern: re.Pattern[str],
    text: str,
    start: int = 0,
    end: int = sys.maxsize,
) -> list[int]:
    """Return where the matches of a pattern begin in a part of a text.

    Example:
        >>> starts_of(re.compile("a"), "banana", 2)
        [3, 5]
    """
    return [match.start() for match in pattern.finditer(text, start, end)]


class _Sign(NamedTuple):
    """A word of a clause that bears on what the clause mentions."""

    start: int
    end: int
    stance: Stance
    is_adjective: bool  # it ends with its list item: "possible effusion, oedema"
    reaches_forward: bool
    reaches_back: bool

    def place(self) -> int:
        """Return where the word begins."""
        return self.start


@lru_cache(maxsize=256)
def _signs(clause: str, languages: Languages) -> list[_Sign]:
    """Return the words of a clause that bear on what it mentions, in order."""
    signs = []
    for signal in signals_in(clause, _ROLES, languages):
        kind = _stance_of(signal, clause, languages)
        if kind is None:
            continue
        is_adjective = "possible" in signal.roles
        reaches_forward = not signal.roles <= {"not_after"}
        is_doubt = kind is Stance.OPEN and "open" not in signal.roles
        reaches_back = not reaches_forward or is_doubt
        # A word that only dismisses or declines does not deny what follows it.
        if signal.roles.isdisjoint({"not", "lack", "missing"}):
            reaches_back |= not signal.roles.isdisjoint({"wrong", "absent", "refusal"})
        reaches_back = reaches_back or _ends_clause(clause, signal, languages)
        signs.append(
            _Sign(signal.start, signal.end, kind, is_adjective, reaches_forward, reaches_back)
        )
    return signs


def _stance_of(
    signal: Signal,
    clause: str,
    languages: Languages,
) -> Stance | None:
    """Return the stance that a word gives to what it reaches, None if it bears on nothing."""
    if signal.roles & {"aside", "unchanged", "normal"}:
        return None
    if "open" in signal.roles or signal.roles == {"refusal"}:
        return Stance.OPEN
    if signal.roles & {"uncertain", "possible"}:
        is_denied = pattern_of("not not_after wrong").search(clause, signal.start, signal.end)
        return Stance.OPEN if is_denied else Stance.HEDGED
    if "wrong" in signal.roles:
        denial = pattern_of("not not_after", languages)
        before = denial.search(clause, max(0, signal.start - _NEAR), signal.start)
        if before or denial.search(clause, signal.end, signal.end + _NEAR):
            return Stance.OPEN
    return Stance.DENIED


def _ends_clause(
    clause: str,
    signal: Signal,
    languages: Languages,
) -> bool:
    """Return whether nothing but a few words and a verb follows a signal."""
    after = clause[signal.end : signal.end + _NEAR]
    if not re.search(r"\w", after) or WITHOUT_BLANKS.match(clause, signal.start):
        return True
    verb = pattern_of("present", languages).search(after)
    return verb is not None and len(after[: verb.start()].split()) <= 2


def stance(
    clause: str,
    start: int,
    end: int,
    languages: Languages = ENGLISH,
) -> Stance:
    """Return the stance of a clause on its words from ``start`` to ``end``.

    Args:
        clause: One of :func:`clauses`.
        start: Position of the first character of the words.
        end: Position after their last character.
        languages: Languages of the text.

    Example:
        >>> stance("no effusion or edema", 15, 20).name, stance("possible edema", 9, 14).name
        ('DENIED', 'HEDGED')
    """
    signs = _signs(clause, languages)
    first = bisect_left(signs, start - _REACH, key=_Sign.place)
    last = bisect_left(signs, end + _REACH, key=_Sign.place)
    kinds = {sign.stance for sign in signs[first:last] if _bears_on(sign, clause, start, end)}
    if Stance.OPEN in kinds or _VALUE_UNSURE.match(clause, end):
        return Stance.OPEN
    if Stance.DENIED in kinds or _PREFIX.search(clause, max(0, start - 6), start):
        return Stance.DENIED
    if _VALUE_NO.match(clause, end):
        return Stance.DENIED
    if _JOINED.match(clause, end) or _JOINED_BEFORE.search(clause, max(0, start - 60), start):
        return Stance.OPEN
    if Stance.HEDGED in kinds or _ASKED.match(clause, end):
        return Stance.HEDGED
    return Stance.AFFIRMED


def _bears_on(
    sign: _Sign,
    clause: str,
    start: int,
    end: int,
) -> bool:
    """Return whether a sign reaches a mention: not out of brackets, nor back over a finished list item."""
    if sign.end <= start:
        barrier = _NEXT_ITEM if sign.is_adjective else _CLOSED
        return sign.reaches_forward and not barrier.match(clause, sign.end, start)
    if not sign.reaches_back or sign.start < end:
        return False
    between = clause[end : sign.start]
    if "(" in between and ")" not in between:
        return False
    return "," not in between or _PLURAL.search(between.rpartition(",")[2]) is not None


def stances_of(pattern: re.Pattern[str], parts: Iterable[str]) -> set[Stance]:
    """Return the stances of English clauses on the matches of a pattern, none without a match.

    Example:
        >>> stances_of(re.compile("edema"), clauses("There is no edema."))
        {<Stance.DENIED: 4>}
    """
    kinds = set()
    for clause in parts:
        for match in pattern.finditer(clause):
            kinds.add(stance(clause, *match.span()))
    return kinds
