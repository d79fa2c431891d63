"""Statements of a reply on options: lines and sentences, walks through the options, and evidence for each.

The kinds of evidence, and what a walk is, are explained in :mod:`medtasks.extract.careful.robust_choice`.
"""

import enum
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from medtasks.extract.reading.languages import Signal, pattern_of, signals_in
from medtasks.extract.reading.option_mentions import Mention, OptionSet, option_mentions

_ROLES = (
    "answer final choose correct wrong likely not not_after lack because and or but than than_after before correction "
    "aside reasoning yes"
)
_CJK = r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]"
# A line, or a sentence: not the full stop after a label ("B. text"), but one after "is B." before a capital.
_STATEMENT_END = re.compile(
    rf"(?m)[\n.!?。！？；;…](?:(?<=[\n。！？；;…])|(?<=\.\.)|(?<={_CJK}[.!?])|(?={_CJK})|"
    r"(?<![\s(\[*][A-Za-z0-9][.!?])(?<![.\s]\w[.!?])(?<!^\w[.!?])(?=[.!?\"')\]]*\s+(?![(\[](?!\w[)\]]\s*\w)))|"
    r"(?<=[^\W\d_][\s(][A-Z\d][.!?])(?=\s+(?![a-z])))(?<!\bvs[.!?])"
)
_SEPARATOR = re.compile(r"[,:()|،]|\s[–—-]\s")
_ITEM = re.compile(r"\s*(?:$|[^\w\s])")  # after the option that a statement begins with
_OPENS = re.compile(r"[)\].:,]|\s[–—-]\s|\s*\(|\s*\n")  # after a label at the beginning of a reply
_NEAR = 25  # characters
_FEW = 6  # words
_OPENING = 3  # characters
_DECLARING = frozenset({"answer", "choose", "correct", "likely", "final"})
_DENYING = frozenset({"not", "lack", "than", "before", "wrong"})


class Evidence(enum.IntEnum):
    """What a statement says of an option; see the top of this module."""

    DENIED = 0
    NAMED = 1
    DECLARED = 2
    ANSWERED = 3
    FINAL = 4


class Finding(NamedTuple):
    """Options with the evidence for them; several options are joined ("A or B") or contradict each other."""

    options: frozenset[int]
    evidence: Evidence
    start: int
    is_line: bool  # a line of its own, with at most a few words and a colon before
    is_label: bool


class Statement(NamedTuple):
    """A line or sentence that mentions options; groups are mentions joined by "and", "or" and marks."""

    start: int
    end: int
    groups: list[Mention]
    signals: list[Signal]


def _union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset[int]().union(*sets)


def _union_of(findings: Sequence[Finding]) -> frozenset[int]:
    """Return the options that findings name by label, else by text."""
    labelled = [finding for finding in findings if finding.is_label]
    return _union(finding.options for finding in labelled or findings)


class OptionStatements(NamedTuple):
    """What a reply says on options, outside a walk through them and in it."""

    findings: list[Finding]  # outside, without what is taken back
    walk: list[Statement]
    after_walk: list[Finding]  # those of the findings that come after it
    named: frozenset[int]  # options with a mention of any kind
    end: int  # of the last statement

    @property
    def affirmed(self) -> frozenset[int]:
        """Options that the findings name without denying them: those after a walk, by label, if there are any."""
        return _union_of([finding for finding in self.after_walk or self.findings if finding.evidence])

    @property
    def denied(self) -> frozenset[int]:
        """Options that the findings deny."""
        return _union(finding.options for finding in self.findings if not finding.evidence)


def option_statements(text: str, options: OptionSet, languages: tuple[str, ...]) -> OptionStatements | None:
    """Return the statements of a text on options; None if it mentions none."""
    return statements_on(text, option_mentions(text, options, languages), len(options), languages)


def statements_on(
    text: str, mentions: Sequence[Mention], count: int, languages: tuple[str, ...]
) -> OptionStatements | None:
    """Return the statements of a text on mentions of some of ``count`` options; None without any."""
    if not mentions:
        return None
    signals = _outside_mentions(signals_in(text.lower(), _ROLES, languages), mentions)
    statements = _statements(text, mentions, signals)
    walks = _walks(text, statements, count)
    walk = [statement for first, last in walks for statement in statements[first:last]]
    outside = [statement for statement in statements if statement not in walk]
    findings = [finding for statement in outside for finding in _findings(text, statement, count)]
    findings = _closed(_after_correction(findings, signals), statements)
    after_walk = [finding for finding in findings if walk and finding.start > walk[-1].start and finding.evidence]
    named = _union(mention.options for mention in mentions)
    return OptionStatements(findings, walk, after_walk, named, statements[-1].end)


def _outside_mentions(signals: Sequence[Signal], mentions: Sequence[Mention]) -> list[Signal]:
    """Return the signals that are no part of an option's text."""
    starts = [mention.start for mention in mentions]
    ends = [0, *(mention.end for mention in mentions)]
    return [signal for signal in signals if ends[bisect_right(starts, signal.start)] <= signal.start]


def decided(findings: Sequence[Finding]) -> frozenset[int] | None:
    """Return the options of the strongest evidence; None without any declaration.

    A final statement makes the last answer count; others count together with what is declared after them.
    """
    answers = [finding for finding in findings if finding.evidence >= Evidence.ANSWERED]
    if any(finding.evidence is Evidence.FINAL for finding in answers):
        return answers[-1].options
    last = answers[-1].start if answers else 0
    declared = [finding for finding in findings if finding.evidence is Evidence.DECLARED]
    if answers:
        declared = [finding for finding in declared if finding.start > last and not finding.is_line]
    return _union_of(answers + declared) or None


def _closed(findings: list[Finding], statements: Sequence[Statement]) -> list[Finding]:
    """Make the last line final if it is a line for the answer, and the only such line."""
    last = findings[-1] if findings else None
    if last is None or not last.is_line or not last.evidence or last.start < statements[-1].start:
        return findings
    if any(finding.is_line and finding.options != last.options for finding in findings):
        return findings
    return [*findings[:-1], last._replace(evidence=Evidence.FINAL)]


def _after_correction(findings: list[Finding], signals: Sequence[Signal]) -> list[Finding]:
    """Return what follows the last correction that an option follows."""
    latest = max((finding.start for finding in findings if finding.evidence), default=0)
    ends = [signal.end for signal in signals if "correction" in signal.roles and signal.end <= latest]
    return [finding for finding in findings if finding.start >= max(ends, default=0)]


# ---- statements ----


def _statements(text: str, mentions: Sequence[Mention], signals: Sequence[Signal]) -> list[Statement]:
    """Cut a text into statements, and join the mentions of each; those without a mention are left out."""
    statements: list[Statement] = []
    start = place = heard = 0
    for end in _ends(text, mentions):
        first_mention = place
        while place < len(mentions) and mentions[place].start < end:
            place += 1
        first_signal = heard
        while heard < len(signals) and signals[heard].start < end:
            heard += 1
        if place > first_mention:
            own_signals = list(signals[first_signal:heard])
            groups = _groups(text, mentions[first_mention:place], own_signals)
            statements.append(Statement(start, end, groups, own_signals))
        start = end
    return statements


def _groups(text: str, mentions: Sequence[Mention], signals: Sequence[Signal]) -> list[Mention]:
    """Join mentions with nothing but "and", "or" and marks in between; what follows a denied list's end is apart."""
    joiners = {signal.start: signal.end for signal in signals if signal.roles & {"and", "or"}}
    last_joiner = max((start for start in joiners if start < mentions[-1].start), default=-1)
    denials = (signal.start for signal in signals if signal.roles & {"not", "lack"})
    denial = min(denials, default=len(text))
    groups: list[Mention] = []
    for mention in mentions:
        last = groups[-1] if groups else None
        if (
            last
            and last.is_label == mention.is_label
            and (denial > last.start or last_joiner >= last.end)
            and _is_joint(text, last.end, mention.start, joiners)
        ):
            mention = Mention(last.options | mention.options, last.start, mention.end, last.is_label, False)
            groups.pop()
        groups.append(mention)
    return groups


def _ends(text: str, mentions: Sequence[Mention]) -> list[int]:
    """Return the places where statements end: not within a bracket, nor within a mention."""
    ends: list[int] = []
    place = start = 0
    for match in _STATEMENT_END.finditer(text):
        end = match.start()
        while place < len(mentions) and mentions[place].end <= end:
            place += 1
        is_within = place < len(mentions) and mentions[place].start < end
        is_in_bracket = text.rfind("(", start, end) > text.rfind(")", start, end) and match[0] != "\n"
        if not is_within and not is_in_bracket:
            ends.append(end)
            start = end
    return [*ends, len(text)]


def _is_joint(text: str, start: int, end: int, joiners: dict[int, int]) -> bool:
    """Return whether there is nothing but "and", "or" and marks between two places."""
    if end - start > _NEAR:
        return False
    while start < end:
        if start in joiners:
            start = joiners[start]
        elif text[start].isalnum() or text[start] in ":\n":
            return False
        else:
            start += 1
    return True


def _walks(text: str, statements: Sequence[Statement], count: int) -> list[tuple[int, int]]:
    """Return the places of the first statement of each walk through options, and after its last."""
    items = [place for place, statement in enumerate(statements) if _is_item(text, statement)]
    if len(items) > 1 and _is_answer_first(text, [statements[place] for place in items]):
        items = items[1:]
    runs: list[dict[int, int]] = [{}]  # place by option
    for place in items:
        option = min(statements[place].groups[0].options)
        if option in runs[-1]:
            runs.append({})
        runs[-1][option] = place
    walks = []
    for run in runs:
        if _is_walk(text, [statements[place] for place in run.values()], list(run), count):
            first, *_, last = run.values()
            line_end = text.find("\n", statements[last].groups[0].start)
            while last + 1 < len(statements) and (line_end < 0 or statements[last + 1].end <= line_end):
                last += 1
            walks.append((first, last + 1))
    return walks


def _is_walk(text: str, items: Sequence[Statement], order: Sequence[int], count: int) -> bool:
    """Return whether items are a walk: not one alone, nor two in reverse, nor two of more that nothing is said of."""
    if len(order) < 2 or (len(order) == 2 and order[0] > order[1]):
        return False
    return len(order) >= min(count, 3) or not all(is_bare(text, item) for item in items)


def _is_item(text: str, statement: Statement) -> bool:
    """Return whether a statement begins with one option that something sets off."""
    first = statement.groups[0]
    lead = text[statement.start : first.start]
    lead = lead if ":" in lead else pattern_of("option").sub("", lead)
    return (
        len(first.options) == 1
        and not re.search(r"[^\W\d_]{2}", lead)
        and bool(_ITEM.match(text, first.end, statement.end))
    )


def is_bare(text: str, statement: Statement) -> bool:
    """Return whether a statement is nothing but the option that it begins with."""
    return not re.search(r"\w", text[statement.groups[0].end : statement.end])


def _is_answer_first(text: str, items: Sequence[Statement]) -> bool:
    """Return whether the first item is an answer, which the walk follows."""
    first, second, *others = (min(item.groups[0].options) for item in items)
    if items[0].groups[0].start <= _OPENING and items[0].groups[0].is_label and not items[1].groups[0].is_label:
        return True
    rest = [second, *others]
    is_ordered = rest == sorted(set(rest)) and len(rest) > 1
    if (second <= first and is_ordered) or (first in rest and first + second != 1):
        return True
    return is_bare(text, items[0]) and len(others) > 0 and not any(is_bare(text, item) for item in items[1:])


# ---- evidence ----


def _findings(text: str, statement: Statement, count: int) -> list[Finding]:
    """Return the evidence for each group of mentions of a statement; one of all options repeats the question."""
    signals, groups = statement.signals, statement.groups
    starts = [signal.start for signal in signals]
    findings = []
    for place, group in enumerate(groups):
        before_start = groups[place - 1].end if place else 0
        after_end = groups[place + 1].start if place + 1 < len(groups) else statement.end
        before = signals[bisect_left(starts, before_start) : bisect_left(starts, group.start)]
        after = signals[bisect_left(starts, group.end) : bisect_left(starts, after_end)]
        if place:
            cut = _border(text, before, before_start, group.start)
            before = [signal for signal in before if _is_forward(signal, cut)]
        else:
            before = _from_last_break(before)
        if place + 1 < len(groups):
            cut = _border(text, after, group.end, after_end)
            after = [signal for signal in after if not _is_forward(signal, cut)]
        if len(group.options) < max(count, 2):
            evidence = _evidence(text, statement, group, before, _to_first_break(after))
            is_line = len(groups) == 1 and _is_line(text, statement, group)
            findings.append(Finding(group.options, evidence, group.start, is_line, group.is_label))
    return findings


def _border(text: str, signals: Sequence[Signal], start: int, end: int) -> int | None:
    """Return the last place between two mentions where a clause begins; None if they are in one clause."""
    marks = [match.start() for match in _SEPARATOR.finditer(text, start, end)]
    breaks = [signal.start for signal in signals if signal.roles & {"but", "because", "final"}]
    return max([*marks, *breaks], default=None)


def _is_forward(signal: Signal, border: int | None) -> bool:
    """Return whether a signal between two mentions is about the second: after the border, else denials and choices."""
    if border is None:
        return bool(signal.roles & {"not", "lack", "than", "before"})
    return signal.start >= border


def _from_last_break(signals: Sequence[Signal]) -> list[Signal]:
    """Return the signals before a first mention that are about it: after a "but", and no comparison."""
    breaks = [place for place, signal in enumerate(signals) if signal.roles & {"but", "because"}]
    return [signal for signal in signals[breaks[-1] if breaks else 0 :] if "than" not in signal.roles]


def _to_first_break(signals: Sequence[Signal]) -> list[Signal]:
    breaks = [place for place, signal in enumerate(signals) if signal.roles & {"but", "because"}]
    return list(signals[: breaks[0]] if breaks else signals)


def _is_line(text: str, statement: Statement, group: Mention) -> bool:
    lead = text[statement.start : group.start]
    is_own = statement.start == 0 or "\n" in lead
    is_short = not re.search(r"\w", lead) or (":" in lead and len(lead.split()) < _FEW)
    return is_own and is_short and not re.search(r"\w", text[group.end : statement.end])


def _evidence(
    text: str, statement: Statement, group: Mention, before: Sequence[Signal], after: Sequence[Signal]
) -> Evidence:
    clause_end = _SEPARATOR.search(text, group.end, statement.end)
    in_clause = [signal for signal in after if clause_end is None or signal.start <= clause_end.start()]
    if not group.is_label:  # "melanoma without ulceration", but "A without contrast" has no label
        in_clause = [signal for signal in in_clause if "lack" not in signal.roles]
    near = {role for signal in in_clause for role in signal.roles if _reaches(role, signal.start - group.end)}
    rest = text[group.end : statement.end]
    if _denies(text, before) or near & {"not", "not_after", "than_after"} or _dismisses(after) or _is_no(rest):
        return Evidence.DENIED
    roles = {role for signal in before for role in signal.roles}
    close = {role for signal in before for role in signal.roles if group.start - signal.end <= _NEAR}
    if "reasoning" in roles:
        return Evidence.NAMED
    if "final" in close or ("final" in roles and roles & {"answer", "correct"}):
        return Evidence.FINAL
    lead = text[statement.start : group.start]
    is_all = not re.search(r"[^\W_]", lead + rest)
    opens = group.start <= _OPENING and group.is_label and _OPENS.match(text, group.end) and not _is_offer(statement)
    if "answer" in close or (is_all and group.is_label and not group.has_text):
        return Evidence.ANSWERED
    is_value = not group.is_label and group is not statement.groups[0]  # "malignant: benign"
    follows_colon = not is_value and lead.rstrip(" \"'([<").endswith((":", "=", "→")) and not re.search(r"\w{2}", rest)
    is_declared = (roles - {"choose"} | close | near) & _DECLARING or is_all or follows_colon or opens
    return Evidence.DECLARED if is_declared else Evidence.NAMED


def _is_no(rest: str) -> bool:
    """Return whether all that follows a mention is "no" or "absent"."""
    value = rest.strip(" :-–=()[].\"'")
    return pattern_of("not absent").fullmatch(value) is not None


def _is_offer(statement: Statement) -> bool:
    """Return whether a statement offers another option by label: "A. Aspirin or B. Heparin"."""
    ends = {signal.end for signal in statement.signals if signal.roles & {"and", "or"}}
    return any(
        group.is_label and not ends.isdisjoint(range(group.start - 2, group.start + 1)) for group in statement.groups
    )


def _reaches(role: str, distance: int) -> bool:
    """Return whether a role is about a mention: "it is B", but not "it is a large mass of the liver"."""
    return role not in ("choose", "final") or distance <= _NEAR


def _denies(text: str, before: Sequence[Signal]) -> bool:
    """Return whether a denial reaches a mention: no word about the answer stands between, unless near the denial."""
    for place, signal in enumerate(before):
        if not signal.roles & _DENYING or text[signal.end : signal.end + 1] == ",":
            continue
        later = next((other for other in before[place + 1 :] if other.roles & _DECLARING), None)
        if later is None or later.start - signal.end < _NEAR:
            return True
    return False


def _dismisses(after: Sequence[Signal]) -> bool:
    """Return whether a mention is called wrong after it, before anything is called right."""
    verdict = next((signal for signal in after if signal.roles & {"wrong", "correct", "answer"}), None)
    return verdict is not None and "wrong" in verdict.roles


def praised(walk: Sequence[Statement], text: str) -> frozenset[int] | None:
    """Return the options of the items of a walk that are called right; None without any."""
    roles: dict[int, set[str]] = {}
    option = -1
    for statement in walk:
        if _is_item(text, statement):
            option = min(statement.groups[0].options)
        roles.setdefault(option, set()).update(*(signal.roles for signal in statement.signals))
    right = {
        option for option, of in roles.items() if of & {"correct", "yes"} and not of & {"wrong", "not", "not_after"}
    }
    return frozenset(right) or None


def is_cut(text: str, findings: Sequence[Finding]) -> bool:
    """Return whether a reply announces what does not follow, or ends within a sentence, some words after an option."""
    if text.endswith((":", ",")):
        return True
    last = max((finding.start for finding in findings), default=0)
    pieces = re.split(r"[.!?。！？\n]\s*", text[last:])
    most_words = _FEW if len(pieces) == 1 else _FEW // 2
    return text[-1].isalnum() and len(pieces[-1].split()) > most_words
