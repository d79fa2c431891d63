"""Statements of a reply on options: lines and sentences, walks through the options, and evidence for each.

The kinds of evidence, and what a walk is, are explained in :mod:`medtasks.extract.careful.robust_choice`.

Called by the careful extractors for options, classes and relations. It chooses no option: it only tells what each
statement says.
"""

import enum
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple, TypeVar

from medtasks.extract.reading.languages import (
    Languages,
    Signal,
    languages_of,
    pattern_of,
    signals_in,
)
from medtasks.extract.reading.negation import starts_of
from medtasks.extract.reading.option_mentions import ROLES, Mention, OptionSet, option_mentions

_CJK = r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]"
# A line, or a sentence: not the full stop after a label ("B. text"), but one after "is B." before a capital.
_STATEMENT_END = re.compile(
    rf"(?m)[\n.!?。！？；;…](?:(?<=[\n。！？；;…])|(?<=\.\.)|(?<={_CJK}[.!?])|(?={_CJK})|"
    r"(?<![\s(\[*][A-Za-z0-9][.!?])(?<![.\s]\w[.!?])(?<!^\w[.!?])(?=[.!?\"')\]]*\s+(?![(\[](?!\w[)\]]\s*\w)))|"
    r"(?<=[^\W\d_][\s(][A-Z\d][.!?])(?=\s+(?![a-z])))(?<!\bvs[.!?])"
)
_SEPARATOR = re.compile(r"[,:()|،]|\s[–—-]\s")
_PARTING = re.compile(r"[\w:\n]")  # two mentions
_ITEM = re.compile(r"\s*(?:$|[^\w\s])")  # after the option that a statement begins with
# After a label at the beginning of a reply
_OPENS = re.compile(r"[)\].:,]|\s[–—-]\s|\s*\(|\s*\n")
_LINE_END = re.compile(r"[^\w\n]*(?:\n\s*(?P<next>.*)|\Z)")
_NEAR = 30  # characters
_LINE = 200  # characters before a line that are looked at
_FEW = 6  # words
_OPENING = 3  # characters
_FEW_LANGUAGES = 2
_DECLARING = frozenset({"answer", "choose", "correct", "likely", "final"})
_DENYING = frozenset({"not", "lack", "than", "before", "wrong"})

_Part = TypeVar("_Part", Mention, Signal)
Mentions = Sequence[Mention]
Signals = Sequence[Signal]
Statements = Sequence["Statement"]


class Evidence(enum.IntEnum):
    """Evidence of a statement for an option, the weakest first."""

    DENIED = 0
    NAMED = 1
    DECLARED = 2
    FINAL = 3


class Finding(NamedTuple):
    """Options with the evidence for them. Several options are joined ("A or B") or contradict each other."""

    options: frozenset[int]
    evidence: Evidence
    start: int
    is_label: bool


class Statement(NamedTuple):
    """A line or sentence that mentions options. Groups are mentions joined by "and", "or" and marks."""

    start: int
    end: int
    groups: list[Mention]
    signals: Signals


def _union(findings: Iterable[Finding | Mention]) -> frozenset[int]:
    """Return all options of findings or mentions, none without any of them."""
    return frozenset[int]().union(*(finding.options for finding in findings))


def _named_by(findings: Sequence[Finding]) -> frozenset[int]:
    """Return the options that findings name by label, else by text."""
    return _union([finding for finding in findings if finding.is_label] or findings)


class OptionStatements(NamedTuple):
    """Statements of a reply on options, outside a walk through them and in it."""

    findings: list[Finding]  # outside, without what is taken back
    walk: list[Statement]
    named: frozenset[int]  # options with a mention of any kind

    @property
    def affirmed_options(self) -> frozenset[int]:
        """Options that the findings name without denying them: by label, if there are any."""
        return _named_by([finding for finding in self.findings if finding.evidence])

    @property
    def denied_options(self) -> frozenset[int]:
        """Options that the findings deny."""
        return _union(finding for finding in self.findings if not finding.evidence)

    @property
    def decided_options(self) -> frozenset[int]:
        """Options of the last final statement, else all that are declared, else those that a walk calls right.

        It is empty if a reply decides for none.
        """
        final = [finding for finding in self.findings if finding.evidence is Evidence.FINAL]
        declared = [
            finding for finding in self.findings if finding.evidence is Evidence.DECLARED
        ]
        decided = _named_by(final[-1:] or declared)
        if decided:
            return decided
        right = set[int]()
        for statement in self.walk:
            roles = _roles(statement.signals)
            if roles & {"correct", "yes"} and not roles & {"wrong", "not", "not_after"}:
                right |= statement.groups[0].options
        return frozenset(right)

    @property
    def stated_options(self) -> frozenset[int]:
        """Options that are decided, else those that are affirmed."""
        return self.decided_options or self.affirmed_options


def option_statements(
    text: str,
    options: OptionSet,
    languages: Languages,
) -> OptionStatements | None:
    """Return the statements of a text on options, None if it mentions none.

    Example:
        >>> options = OptionSet(("cyst", "scar"), (("cyst",), ("scar",)))
        >>> option_statements("Not A. So the answer is B.", options, ("en",)).decided_options
        frozenset({1})
    """
    return statements_on(
        text, option_mentions(text, options, languages), len(options), languages
    )


def statements_on(
    text: str,
    mentions: Mentions,
    count: int,
    languages: Languages,
) -> OptionStatements | None:
    """Return the statements of a text on what it mentions, None if it mentions nothing.

    Args:
        text: The reply.
        mentions: Mentions of options, in order.
        count: Number of options of the question. A group of mentions of all of them repeats the question.
        languages: Languages of the reply.
    """
    if not mentions:
        return None
    starts = [mention.start for mention in mentions]
    ends = [0, *(mention.end for mention in mentions)]
    signals = []
    for signal in _signals(text, languages):
        # A signal is part of an option's text if the last mention that begins before the signal ends after that.
        if ends[bisect_right(starts, signal.start)] <= signal.start:
            signals.append(signal)
    statements = _statements(text, mentions, signals, languages)
    walk: list[Statement] = []
    outside = statements
    for first, end in _walks(text, statements, count):
        walk += statements[first:end]
        outside = [statement for statement in outside if statement not in walk]
    findings = _after_correction(_findings(text, outside, count), signals)
    return OptionStatements(findings, walk, _union(mentions))


def _signals(text: str, languages: Languages) -> list[Signal]:
    """Return the signals of a text, of which the last line may be in another language."""
    last = text.rfind("\n") + 1
    of_last = languages_of(text[last:])
    if not last or len(of_last) > _FEW_LANGUAGES or not set(of_last).isdisjoint(languages):
        return signals_in(text, ROLES, languages)
    signals = list(signals_in(text[:last], ROLES, languages))
    for start, end, roles in signals_in(text[last:], ROLES, of_last):
        signals.append(Signal(start + last, end + last, roles))
    return signals


def _after_correction(findings: list[Finding], signals: Signals) -> list[Finding]:
    """Return the findings after the last correction ("wait") that is before an affirmed option, else all of them."""
    latest = max((finding.start for finding in findings if finding.evidence), default=0)
    correction = 0
    for signal in signals:
        if "correction" in signal.roles and correction < signal.end <= latest:
            correction = signal.end
    return [finding for finding in findings if finding.start >= correction]


# ---- statements ----


def _statements(
    text: str,
    mentions: Mentions,
    signals: Signals,
    languages: Languages,
) -> list[Statement]:
    """Cut a text into statements, and join the mentions of each. Statements without a mention are left out."""
    joints = pattern_of("and or", languages)
    statements = []
    start = 0
    for end in _ends(text, mentions):
        own_mentions = _between(mentions, start, end)
        if own_mentions:
            own_signals = _between(signals, start, end)
            groups = _groups(text, own_mentions, own_signals, joints)
            statements.append(Statement(start, end, groups, own_signals))
        start = end
    return statements


def _findings(
    text: str,
    statements: Statements,
    count: int,
) -> list[Finding]:
    """Return the evidence of statements for the options of each of their groups, in order.

    A group of all ``count`` options of the question repeats the question, and is no evidence.
    """
    findings = []
    for statement in statements:
        for number, group in enumerate(statement.groups):
            if len(group.options) < max(count, 2):
                evidence = _evidence(text, statement, number)
                findings.append(Finding(group.options, evidence, group.start, group.is_label))
    return findings


def _groups(
    text: str,
    mentions: Mentions,
    signals: Signals,
    joints: re.Pattern[str],
) -> list[Mention]:
    """Join mentions with nothing but "and", "or" and marks in between. What follows a denied list's end is apart."""
    # A denied list ends at its first denial, or at a later "and" or "or" between mentions.
    denials = [signal.start for signal in signals if signal.roles & {"not", "lack"}]
    border = min(denials, default=len(text))
    for signal in signals:
        if signal.roles & {"and", "or"} and signal.start < mentions[-1].start:
            border = max(border, signal.start)
    groups: list[Mention] = []
    for mention in mentions:
        if groups:
            last = groups[-1]
            gap = text[last.end : mention.start]
            is_pair = last.is_label == mention.is_label and last.end <= border
            if is_pair and len(gap) <= _NEAR and not _PARTING.search(joints.sub("", gap)):
                groups.pop()
                options = last.options | mention.options
                mention = Mention(options, last.start, mention.end, last.is_label, False)
        groups.append(mention)
    return groups


def _between(
    parts: Sequence[_Part],
    start: int,
    end: int,
) -> Sequence[_Part]:
    """Return the mentions or signals that begin between two positions."""
    first = bisect_left(parts, start, key=_start)
    return parts[first : bisect_left(parts, end, first, key=_start)]


def _start(part: Mention | Signal | Statement) -> int:
    """Return where a part of a text begins, the key by which parts are searched."""
    return part.start


def _ends(text: str, mentions: Mentions) -> list[int]:
    """Return the positions where statements end: not within a bracket, nor within a mention. The last is the text's."""
    ends = []
    start = 0
    last_ends = [0, *(mention.end for mention in mentions)]
    starts = [mention.start for mention in mentions]
    for match in _STATEMENT_END.finditer(text):
        end = match.start()
        is_in_bracket = text.rfind("(", start, end) > text.rfind(")", start, end)
        if is_in_bracket and match[0] != "\n":
            continue
        if last_ends[bisect_left(starts, end)] <= end:
            ends.append(end)
            start = end
    return [*ends, len(text)]


def _runs(items: Statements) -> list[list[Statement]]:
    """Split the items of walks into runs, each with one item for an option."""
    runs: list[dict[int, Statement]] = [{}]  # item by option
    for item in items:
        option = min(item.groups[0].options)
        if option in runs[-1]:
            runs.append({})
        runs[-1][option] = item
    return [list(run.values()) for run in runs]


def _walks(
    text: str,
    statements: Statements,
    count: int,
) -> list[tuple[int, int]]:
    """Return for each walk through options the number of its first statement, and of the one after its last.

    Args:
        text: The reply.
        statements: Its statements, in order, which are numbered from 0.
        count: Number of options of the question.
    """
    walks = []
    for items in _runs(_items(text, statements)):
        # One item alone is no walk, nor are two of more options of which the reply says nothing.
        is_short = len(items) < min(count, 3) and all(is_bare(text, item) for item in items)
        if len(items) < 2 or is_short:
            continue
        # Statements on one line with the last item are part of the walk.
        line_end = text.find("\n", items[-1].groups[0].start)
        end = bisect_right(statements, items[-1].start, key=_start)
        while end < len(statements) and (line_end < 0 or statements[end].end <= line_end):
            end += 1
        walks.append((bisect_left(statements, items[0].start, key=_start), end))
    return walks


def _items(text: str, statements: Statements) -> list[Statement]:
    """Return the statements that may be items of a walk, without those that are the answer."""
    items = [statement for statement in statements if _is_item(text, statement)]
    if not all(is_bare(text, item) for item in items):
        items = [item for item in items if not _is_after_lead(text, item)]
    if len(items) > 1 and _is_answer_first(text, items):
        return items[1:]
    return items


def _is_item(text: str, statement: Statement) -> bool:
    """Return whether a statement begins with one option that something sets off."""
    first = statement.groups[0]
    lead = text[statement.start : first.start]
    if ":" not in lead:
        lead = pattern_of("option").sub("", lead)
    if re.search(r"[^\W\d_]{2}", lead):
        return False
    return _ITEM.match(text, first.end, statement.end) is not None


def _is_after_lead(text: str, statement: Statement) -> bool:
    """Return whether an option alone on its line follows a line such as "The correct answer is:"."""
    line = text[: statement.start].rstrip().rpartition("\n")[2]
    if not line.endswith(":") or not is_bare(text, statement):
        return False
    return bool(pattern_of("answer correct").search(line)) and not pattern_of("wrong").search(
        line
    )


def is_bare(text: str, statement: Statement) -> bool:
    """Return whether a statement is nothing but the option that it begins with."""
    return not re.search(r"\w", text[statement.groups[0].end : statement.end])


def _is_answer_first(text: str, items: Statements) -> bool:
    """Return whether the first item is an answer, which the walk follows: out of order, or alone without a word."""
    first, second = (min(item.groups[0].options) for item in items[:2])
    if second <= first:
        return True
    return is_bare(text, items[0]) and not any(is_bare(text, item) for item in items[1:])


def _roles(signals: Iterable[Signal]) -> frozenset[str]:
    """Return all roles of signals."""
    return frozenset[str]().union(*(signal.roles for signal in signals))


# ---- evidence ----


def _before(
    text: str,
    statement: Statement,
    number: int,
) -> list[Signal]:
    """Return the signals before a group that are about it, not about the group before or an earlier clause.

    Between two groups in one clause, only denials and choices are about the second.
    """
    group = statement.groups[number]
    if not number:
        signals = _between(statement.signals, statement.start, group.start)
        # They follow the last "but" or "because". A comparison is with what is not named.
        breaks = [signal.start for signal in signals if signal.roles & {"but", "because"}]
        start = max(breaks, default=0)
        signals = _between(signals, start, group.start)
        return [signal for signal in signals if "than" not in signal.roles]
    start = statement.groups[number - 1].end
    signals = _between(statement.signals, start, group.start)
    separators = starts_of(_SEPARATOR, text, start, group.start)
    if separators:
        return [signal for signal in signals if signal.start > separators[-1]]
    return [signal for signal in signals if signal.roles & {"not", "lack", "than", "before"}]


def _is_line(text: str, statement: Statement) -> bool:
    """Return whether a statement is a line of its own: an option after a few words.

    The first or last line of a text needs no colon, unless the line next to it is about the answer, too.
    """
    lead = text[statement.start : statement.groups[0].start]
    begins_line = statement.start == 0 or "\n" in lead
    if not begins_line or len(lead.split()) >= _FEW or not is_bare(text, statement):
        return False
    end = _LINE_END.match(text, statement.end)
    if ":" in lead or end is None:
        return ":" in lead
    previous = (
        text[max(statement.start - _LINE, 0) : statement.start].rstrip().rpartition("\n")[2]
    )
    neighbours = (previous, end["next"] or "")
    return not all(neighbours) and not any(map(_is_about_answer, neighbours))


def _is_about_answer(line: str) -> bool:
    """Return whether a line is a short one with a word such as "answer"."""
    return len(line.split()) < _FEW and pattern_of("answer").search(line) is not None


def _after(
    text: str,
    statement: Statement,
    number: int,
) -> list[Signal]:
    """Return the signals after a group that are about it: up to the next one, or to another thought."""
    start = statement.groups[number].end
    if number + 1 == len(statement.groups):
        signals = _between(statement.signals, start, statement.end)
    else:
        of_next = frozenset(_before(text, statement, number + 1))
        between = _between(statement.signals, start, statement.groups[number + 1].start)
        signals = [signal for signal in between if signal not in of_next]
    return list(takewhile(lambda signal: not signal.roles & {"but", "because"}, signals))


def _evidence(
    text: str,
    statement: Statement,
    number: int,
) -> Evidence:
    """Return the evidence of a statement for the options of one of its groups.

    Args:
        text: The reply.
        statement: One of its statements.
        number: Position of the group in the statement's ``groups``.
    """
    group = statement.groups[number]
    before = _before(text, statement, number)
    after = _after(text, statement, number)
    in_clause = _in_clause(text, group, after)
    if "wrong" in _roles(after) or _roles(in_clause) & {"not", "not_after", "than_after"}:
        return Evidence.DENIED
    following = text[group.end : statement.end].strip(" :-–=()[].\"'")
    if pattern_of("not absent").fullmatch(following) or _denies(text, before):
        return Evidence.DENIED
    close = _near_roles(before, group)
    if "final" in close or ("answer" in close and _is_line(text, statement)):
        return Evidence.FINAL
    near = close | _near_roles(in_clause, group)
    is_declared = near & _DECLARING or _is_set_off(text, statement, group)
    return Evidence.DECLARED if is_declared else Evidence.NAMED


def _near_roles(signals: Signals, group: Mention) -> frozenset[str]:
    """Return the roles of signals near a group, before or after it."""
    near = []
    for signal in signals:
        if max(group.start - signal.end, signal.start - group.end) <= _NEAR:
            near.append(signal)
    return _roles(near)


def _in_clause(
    text: str,
    group: Mention,
    after: Signals,
) -> Signals:
    """Return the signals ``after`` a group up to the first separator, or all without a separator.

    After the text of an option, other than after its label, words such as "without" are left out: "melanoma without
    ulceration" is still a melanoma.
    """
    if not after:
        return []
    # No further than the last signal: a search to the end of a long statement, repeated for each of its groups,
    # would take quadratic time.
    separator = _SEPARATOR.search(text, group.end, after[-1].start)
    signals = _between(after, group.end, separator.end()) if separator else after
    if group.is_label:  # "A without contrast"
        return signals
    return [signal for signal in signals if "lack" not in signal.roles]


def _is_set_off(
    text: str,
    statement: Statement,
    group: Mention,
) -> bool:
    """Return whether marks alone declare a group: it is all, follows a colon, or begins the reply as a label."""
    is_first_label = group.is_label and group.start <= _OPENING
    if is_first_label and _OPENS.match(text, group.end) and not _is_offer(statement):
        return True
    lead = text[statement.start : group.start]
    following = text[group.end : statement.end]
    if not re.search(r"[^\W_]", lead + following):
        return True
    if not group.is_label and group is not statement.groups[0]:  # "malignant: benign"
        return False
    follows_colon = lead.rstrip(" \"'([<").endswith((":", "=", "→"))
    return follows_colon and not re.search(r"\w{2}", following)


def _is_offer(statement: Statement) -> bool:
    """Return whether a statement offers another option by label: "A. Aspirin or B. Heparin"."""
    ends = {signal.end for signal in statement.signals if signal.roles & {"and", "or"}}
    for group in statement.groups:
        if group.is_label and not ends.isdisjoint(range(group.start - 2, group.start + 1)):
            return True
    return False


def _denies(text: str, before: Signals) -> bool:
    """Return whether a denial reaches a mention: no word about the answer comes between, unless near the denial."""
    for number, signal in enumerate(before, 1):
        if not signal.roles & _DENYING or text[signal.end : signal.end + 1] == ",":
            continue
        later = next((other for other in before[number:] if other.roles & _DECLARING), None)
        if later is None or later.start - signal.end < _NEAR:
            return True
    return False


def is_cut(text: str, findings: Sequence[Finding]) -> bool:
    """Return whether a reply announces what does not follow, or ends within a sentence, some words after an option.

    Args:
        text: The reply, not empty.
        findings: What it says about options. It is looked at from the last of them on, as a whole without any.

    Example:
        >>> is_cut("The answer is:", []), is_cut("The answer is A.", [])
        (True, False)
    """
    if text.endswith((":", ",")):
        return True
    last = max((finding.start for finding in findings), default=0)
    pieces = re.split(r"[.!?。！？\n]\s*", text[last:])
    most_words = _FEW if len(pieces) == 1 else _FEW // 2
    return text[-1].isalnum() and len(pieces[-1].split()) > most_words
