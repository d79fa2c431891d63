"""The chosen option, as a careful reader accepts it, in any language.

Of JSON, tags and boxes only the answer is read (:func:`~medtasks.extract.reading.reply_text.own_words`). What is left
is cut into statements: lines and sentences. Each mention of an option in a statement, by label, text or both, has
*evidence*, which needs words of a language (``words.toml``) only where a mark does not show it:

* **denied**: a denial or a dismissal reaches it ("not A", "A is unlikely", "rather than A", "A" with a cross), or it
  was only a first thought;
* **named**: it is mentioned;
* **declared**: it is all of its statement, follows a colon or begins the reply as a label; or the words around it are
  about the answer, praise it or choose it ("the answer is A", "A fits best");
* **final**: declared, with a word that concludes ("final answer: A", "therefore A").

Two or more statements in a row that each begin with another option are a *walk* through the options. A walk of nothing
but options repeats the question and is not read; of any other only praise counts.

The first of these that names options decides; several options on one step are ambiguous:

1. the last final statement;
2. declared statements outside a walk;
3. the one option that a walk praises;
4. statements after a walk, else before it, else all statements, that name an option;
5. of a reply without any mention: a position ("the third option", "2"), "none" and "all" where an option says so, the
   words of one option that no other option has, and what a statement says about a yes/no question.

What comes before a correction ("wait") counts only if nothing follows it. A reply that ends within a sentence has no
answer on step 4: it was cut. A label next to another option's text is ambiguous.
"""

import enum
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from medtasks.data.samples import Sample, letter
from medtasks.extract.careful.unnamed_options import quantity_option, unnamed_option
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.languages import Signal, languages_of, pattern_of, signals_in
from medtasks.extract.reading.option_mentions import (
    Mention,
    OptionSet,
    folded,
    option_mentions,
    option_set,
    tokens_of,
)
from medtasks.extract.reading.reply_text import own_words

_ROLES = "answer final choose correct wrong likely not not_after because and or but than than_after before correction aside"
_STATEMENT_END = re.compile(
    r"(?m)\s*\n\s*|[。！？；;]+\s*|(?:\.{2,}|…)\s*|(?<![\s(\[*][A-Za-z0-9])(?<![.\s]\w)(?<!^\w)[.!?]+[\"')\]]*\s+(?![(\[])|"
    r"(?<=[^\W\d_][\s(][A-Z])[.!?]\s+(?![a-z])|(?<=[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff])[.!?]+|"
    r"[.!?](?=[\u3040-\u30ff\u3400-\u9fff])"
)
_SEPARATOR = re.compile(r"[,:()|،، ]|\s[–—-]\s|，|、")
_ITEM = re.compile(r"\s*(?:$|[^\w\s])")  # after the option that a statement begins with
_NEAR = 25  # characters
_FEW = 6  # words


class Evidence(enum.IntEnum):
    """What a statement says of an option; see the top of this module."""

    DENIED = 0
    NAMED = 1
    DECLARED = 2
    FINAL = 3


class Finding(NamedTuple):
    """Options with the evidence for them; several options are joined ("A or B") or contradict each other."""

    options: frozenset[int]
    evidence: Evidence
    start: int
    is_line: bool  # a line of its own, with at most a few words and a colon before


class Statement(NamedTuple):
    """A line or sentence that mentions options; groups are mentions joined by "and", "or" and marks."""

    start: int
    end: int
    groups: list[Mention]


@extractor("robust_kit_choice", AnswerKind.CHOICE, "robust_choice, by the name of MedEvalKit's tasks", version=5)
@extractor("robust_choice", AnswerKind.CHOICE, "letters, texts and refusals, in any language", version=6)
def robust_choice(reply: str | None, sample: Sample) -> Answer:
    """Read the chosen option from a reply; a sample without options has A and B with unknown texts."""
    options = option_set(tuple(sample.options) or ("", ""))
    text = own_words(reply, cut_questions=False, is_answer=lambda value: _whole(value, options) is not None)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    named = _read(text, options, sample)
    return Answer.ok(letter(named)) if isinstance(named, int) else Answer.invalid(named)


def _read(text: str, options: OptionSet, sample: Sample) -> int | Reason:
    languages = languages_of(text)
    text = _without_invented(text, options, sample.question, languages)
    if not text:
        return Reason.NO_MATCH
    whole = _whole(text, options)
    if whole is not None:
        return whole
    mentions = option_mentions(text, options, languages)
    if not mentions:
        return unnamed_option(text, options, sample, languages)
    signals = signals_in(text.lower(), _ROLES, languages)
    statements = _statements(text, mentions, signals)
    walk = _walk(text, statements, len(options))
    outside = [statement for statement in statements if statement not in walk]
    findings = [finding for statement in outside for finding in _findings(text, statement, signals)]
    findings = _closed(_after_correction(findings, signals), statements)
    chosen = _decided(findings)
    if chosen is None and walk:
        chosen = _praised(text, walk, signals)
        after = [finding for finding in findings if finding.start > walk[-1].start]
        findings = [finding for finding in after or findings if finding.evidence]
    if chosen is not None:
        return _single(chosen)
    is_cut = _is_cut(text, findings)
    named = frozenset[int]().union(*(finding.options for finding in findings if finding.evidence))
    denied = frozenset[int]().union(*(finding.options for finding in findings if not finding.evidence))
    for role, others in (("none", denied), ("all", named)):
        rest = quantity_option(role, options, (role,)) if len(others) == len(options) - 1 else None
        if rest is not None and rest not in others:
            return rest
    if is_cut and (named or walk):
        return Reason.TRUNCATED
    if not named and pattern_of("refusal", languages).search(text):
        return Reason.REFUSED
    return _single(named)


def _single(options: frozenset[int]) -> int | Reason:
    if len(options) == 1:
        return next(iter(options))
    return Reason.AMBIGUOUS


def _decided(findings: Sequence[Finding]) -> frozenset[int] | None:
    """Return the options of the last final statement, else of all declared ones; None without either."""
    final = [finding for finding in findings if finding.evidence is Evidence.FINAL]
    if final:
        return final[-1].options
    declared = [finding.options for finding in findings if finding.evidence is Evidence.DECLARED]
    return frozenset[int]().union(*declared) if declared else None


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
    corrections = [signal.end for signal in signals if "correction" in signal.roles]
    for end in reversed(corrections):
        after = [finding for finding in findings if finding.start >= end and finding.evidence]
        if after:
            return after
    return findings


# ---- statements ----


def _statements(text: str, mentions: Sequence[Mention], signals: Sequence[Signal]) -> list[Statement]:
    """Cut a text into statements, and join the mentions of each; those without a mention are left out."""
    ends = [*(match.start() for match in _STATEMENT_END.finditer(text)), len(text)]
    joiners = {signal.start: signal.end for signal in signals if signal.roles & {"and", "or"}}
    statements: list[Statement] = []
    start = place = 0
    for end in ends:
        if text.rfind("(", start, end) > text.rfind(")", start, end) and text[end : end + 1] != "\n":
            continue
        if place and mentions[place - 1].end > end or place < len(mentions) and mentions[place].start < end < mentions[place].end:
            continue
        groups: list[Mention] = []
        while place < len(mentions) and mentions[place].start < end:
            mention = mentions[place]
            if groups and _is_joint(text, groups[-1].end, mention.start, joiners):
                last = groups.pop()
                mention = Mention(last.options | mention.options, last.start, mention.end, False, False)
            groups.append(mention)
            place += 1
        if groups:
            statements.append(Statement(start, end, groups))
        start = end
    return statements


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


def _walk(text: str, statements: Sequence[Statement], count: int) -> list[Statement]:
    """Return the statements of a walk through options, with all that stands between its items."""
    items = [
        place
        for place, statement in enumerate(statements)
        if len(statement.groups[0].options) == 1
        and not re.search(r"[^\W\d_]{2}", text[statement.start : statement.groups[0].start])
        and _ITEM.match(text, statement.groups[0].end, statement.end)
    ]
    order = [next(iter(statements[place].groups[0].options)) for place in items]
    if len(order) > 1 and _is_answer_first(text, [statements[place] for place in items], order):
        items, order = items[1:], order[1:]
    while len(order) > 2 and order[-1] in order[:-1]:
        items, order = items[:-1], order[:-1]
    if len(set(order)) < 2 or (len(order) == 2 and order[0] > order[1]):
        return []
    bare = all(_is_bare(text, statements[place]) for place in items)
    if bare and len(set(order)) < min(count, 3):
        return []
    last = statements[items[-1]]
    line_end = text.find("\n", last.groups[0].start)
    return [
        statement
        for statement in statements[items[0] :]
        if statement.start <= last.start or (line_end < 0 or statement.end <= line_end)
    ]


def _is_bare(text: str, statement: Statement) -> bool:
    return not re.search(r"\w", text[statement.groups[0].end : statement.end])


def _is_answer_first(text: str, items: Sequence[Statement], order: Sequence[int]) -> bool:
    """Return whether the first item is an answer, which the walk follows."""
    rest = list(order[1:])
    is_ordered = rest == sorted(set(rest)) and len(rest) > 1
    bare = [_is_bare(text, item) for item in items]
    return order[0] in rest or (is_ordered and order[0] > rest[0]) or (bare[0] and len(bare) > 2 and not any(bare[1:]))


# ---- evidence ----


def _findings(text: str, statement: Statement, signals: Sequence[Signal]) -> list[Finding]:
    """Return the evidence for each group of mentions of a statement."""
    inside = [signal for signal in signals if statement.start <= signal.start < statement.end]
    groups = statement.groups
    findings = []
    for place, group in enumerate(groups):
        first = groups[place - 1].end if place else statement.start
        last = groups[place + 1].start if place + 1 < len(groups) else statement.end
        before = _context(text, inside, first, group.start, is_before=True, is_shared=place > 0)
        after = _context(text, inside, group.end, last, is_before=False, is_shared=place + 1 < len(groups))
        before = [signal for signal in before if place or "than" not in signal.roles]
        evidence = _evidence(text, statement, group, before, after)
        lead = text[statement.start : group.start]
        is_line = "\n" in text[statement.start - 1 : statement.start + 1] or statement.start == 0
        is_line = is_line and len(groups) == 1 and (not re.search(r"\w", lead) or len(lead.split()) < _FEW and ":" in lead)
        is_line = is_line and not re.search(r"\w", text[group.end : statement.end])
        findings.append(Finding(group.options, evidence, group.start, is_line))
    return findings


def _context(
    text: str, signals: Sequence[Signal], start: int, end: int, *, is_before: bool, is_shared: bool
) -> list[Signal]:
    """Return the signals between two places that belong to the mention after them, or before them.

    If mentions are on both sides, the last separator between them divides the signals; without one, denials and
    comparisons reach forward, all else belongs to the mention before.
    """
    between = [signal for signal in signals if start <= signal.start and signal.end <= end]
    breaks = [signal.start for signal in between if signal.roles & {"but", "because"}]
    if not is_shared:
        if is_before:
            return [signal for signal in between if not breaks or signal.start >= breaks[-1]]
        return [signal for signal in between if not breaks or signal.start < breaks[0]]
    marks = [match.start() for match in _SEPARATOR.finditer(text, start, end) if match[0] != " "]
    cuts = sorted([*marks, *breaks, *(signal.start for signal in between if "final" in signal.roles)])
    if cuts:
        return [signal for signal in between if (signal.start >= cuts[-1]) == is_before]
    forward = {"not", "than", "before"}
    return [signal for signal in between if bool(signal.roles & forward) == is_before]


def _evidence(
    text: str, statement: Statement, group: Mention, before: Sequence[Signal], after: Sequence[Signal]
) -> Evidence:
    clause_end = _SEPARATOR.search(text, group.end, statement.end)
    in_clause = [signal for signal in after if clause_end is None or signal.start <= clause_end.start()]
    near = {role for signal in in_clause for role in signal.roles}
    if _denies(before, group.start) or near & {"not", "not_after", "than_after"} or _dismisses(after):
        return Evidence.DENIED
    lead = text[statement.start : group.start].rstrip(" \"'([<\n")
    roles = {role for signal in before for role in signal.roles - _far_roles(signal, group.start)}
    is_all = not re.search(r"[^\W_]", text[statement.start : group.start] + text[group.end : statement.end])
    opens = group.start <= 3 and group.is_label and re.match(r"[)\].:,]|\s[–—-]\s|\s*\(|\s*\n", text[group.end :])
    declared = roles & {"answer", "choose", "correct", "likely"} or near & {"correct", "answer", "likely", "choose"}
    if not (declared or is_all or opens or lead.endswith((":", "=", "：", "→"))):
        return Evidence.NAMED
    return Evidence.FINAL if "final" in roles else Evidence.DECLARED


def _far_roles(signal: Signal, start: int) -> set[str]:
    """Return the roles that need a mention near: "it is B", not "it is a large mass of the liver"."""
    return {"choose"} if start - signal.end > _NEAR else set()


def _denies(before: Sequence[Signal], start: int) -> bool:
    """Return whether a denial reaches a mention: no word about the answer stands between, unless near the denial."""
    for place, signal in enumerate(before):
        if not signal.roles & {"not", "than", "before", "wrong"}:
            continue
        later = [other for other in before[place + 1 :] if other.roles & {"answer", "choose", "final", "correct"}]
        if not later or later[0].start - signal.end < _NEAR:
            return True
    return False


def _dismisses(after: Sequence[Signal]) -> bool:
    for signal in after:
        if "wrong" in signal.roles:
            return True
        if signal.roles & {"correct", "answer"}:
            return False
    return False


def _praised(text: str, walk: Sequence[Statement], signals: Sequence[Signal]) -> frozenset[int] | None:
    """Return the options of the items of a walk that call their option right; None without any."""
    starts = [statement.start for statement in walk if len(statement.groups[0].options) == 1]
    praised = set[int]()
    for place, statement in enumerate(walk):
        following = [start for start in starts if start > statement.start]
        end = following[0] if following else walk[-1].end
        inside = [signal for signal in signals if statement.groups[0].start <= signal.start < end or (
            statement.start <= signal.start < end)]
        roles = [signal.roles for signal in inside]
        if any("correct" in of for of in roles) and not any(of & {"wrong", "not", "not_after"} for of in roles):
            praised |= statement.groups[0].options
    return frozenset(praised) or None


def _is_cut(text: str, findings: Sequence[Finding]) -> bool:
    """Return whether a reply ends within a sentence that is not itself a mention of an option."""
    tail = re.split(r"[.!?。！？\n]\s*", text.rstrip())[-1]
    return len(tail.split()) > 3 and text[-1].isalnum() or text.endswith((":", ",", "：", "、", "，"))


# ---- whole replies, and replies without a mention ----


def _whole(text: str, options: OptionSet) -> int | None:
    """Return the option that is all of a text: by its letter, or by its text with or without another word."""
    stripped = text.strip(" \t\n.,:;!()[]<>\"'*`")
    if stripped.upper() in options.letters:
        return options.letters[stripped.upper()]
    words = [token.word for token in tokens_of(folded(text))]
    matching = [index for index, own in enumerate(options.words) if own and list(own) == words]
    return matching[0] if len(matching) == 1 else None


def _without_invented(text: str, options: OptionSet, question: str, languages: tuple[str, ...]) -> str:
    """Return a reply up to an invented question, which is none if it names the options or repeats the question."""
    heading = re.compile(rf"(?:^|\n)\W*(?:{pattern_of('question', languages).pattern})[^\w\n]*\d*\s*[:：]", re.I)
    for match in heading.finditer(text):
        rest = folded(text[match.end() : match.end() + 600])
        own = sum(bool(words) and " ".join(words) in " ".join(token.word for token in tokens_of(rest)) for words in options.words)
        if own < 2 and question[:30] not in text[match.end() : match.end() + 600]:
            return text[: match.start()].strip()
    return text
