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
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
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

_ROLES = (
    "answer final choose correct wrong likely not not_after because and or but than than_after before correction aside "
    "reasoning"
)
_CJK = r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]"
_STATEMENT_END = re.compile(
    r"(?m)\s*\n\s*|[。！？；;]+\s*|(?:\.{2,}|…)\s*|(?<![\s(\[*][A-Za-z0-9])(?<![.\s]\w)(?<!^\w)[.!?]+[\"')\]]*\s+(?![(\[])|"
    rf"(?<=[^\W\d_][\s(][A-Z])[.!?]\s+(?![a-z])|(?<={_CJK})[.!?]+|[.!?](?={_CJK})"
)
_SEPARATOR = re.compile(r"[,:()|،]|\s[–—-]\s")
_NEW_QUESTION = re.compile(r"\n[^\n]*\?[ \t]*\n")
_ITEM = re.compile(r"\s*(?:$|[^\w\s])")  # after the option that a statement begins with
_OPENS = re.compile(r"[)\].:,]|\s[–—-]\s|\s*\(|\s*\n")  # after a label at the beginning of a reply
_NEAR = 25  # characters
_FEW = 6  # words
_MOST_ITEMS = 200  # of a walk
_DECLARING = frozenset({"answer", "choose", "correct", "likely", "final"})
_DENYING = frozenset({"not", "than", "before", "wrong"})


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
    signals: list[Signal]


@extractor("robust_kit_choice", AnswerKind.CHOICE, "robust_choice, by the name of MedEvalKit's tasks", version=5)
@extractor("robust_choice", AnswerKind.CHOICE, "letters, texts and refusals, in any language", version=6)
def robust_choice(reply: str | None, sample: Sample) -> Answer:
    """Read the chosen option from a reply; a sample without options has A and B with unknown texts."""
    options = option_set(tuple(sample.options) or ("", ""))
    text = own_words(reply, cut_questions=False, is_answer=lambda value: _whole(value, options) is not None)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    languages = languages_of(text)
    text = _without_invented(text, options, sample.question, languages)
    new_question = _NEW_QUESTION.search(text)
    chosen: int | Reason = Reason.NO_MATCH
    if new_question:  # a base model goes on with another question
        chosen = _read(text[: new_question.start()].strip(), options, sample, languages)
    if isinstance(chosen, Reason):
        chosen = _read(text, options, sample, languages)
    return Answer.invalid(chosen) if isinstance(chosen, Reason) else Answer.ok(letter(chosen))


def _read(text: str, options: OptionSet, sample: Sample, languages: tuple[str, ...]) -> int | Reason:
    whole = _whole(text, options)
    if whole is not None:
        return whole
    mentions = option_mentions(text, options, languages)
    if not mentions:
        return unnamed_option(text, options, sample, languages)
    signals = signals_in(text.lower(), _ROLES, languages)
    statements = _statements(text, mentions, signals)
    first, last = _walk(text, statements, len(options))
    walk = statements[first:last]
    findings = [finding for statement in statements[:first] for finding in _findings(text, statement, options)]
    after_walk = [finding for statement in statements[last:] for finding in _findings(text, statement, options)]
    findings = _closed(_after_correction([*findings, *after_walk], signals), statements)
    chosen = _decided(findings)
    if chosen is None and walk:
        chosen = _praised(walk, text)
        findings = [finding for finding in after_walk if finding.evidence] or findings
    if chosen is None:
        return _named(text, findings, walk, options, languages)
    return _single(chosen)


def _single(options: frozenset[int]) -> int | Reason:
    if len(options) == 1:
        return next(iter(options))
    return Reason.AMBIGUOUS if options else Reason.NO_MATCH


def _named(
    text: str, findings: Sequence[Finding], walk: Sequence[Statement], options: OptionSet, languages: tuple[str, ...]
) -> int | Reason:
    """Return the option that a reply without a declaration names, or why there is none."""
    named = frozenset[int]().union(*(finding.options for finding in findings if finding.evidence))
    denied = frozenset[int]().union(*(finding.options for finding in findings if not finding.evidence))
    for role, others in (("none", denied), ("all", named)):
        rest = quantity_option(role, options, (role,)) if len(others) == len(options) - 1 else None
        if rest is not None and rest not in others:
            return rest
    if (named or walk) and _is_cut(text, findings):
        return Reason.TRUNCATED
    if len(named) != 1 and pattern_of("refusal none", languages).search(text):
        return Reason.REFUSED
    return _single(named) if named or (denied and not walk) else Reason.AMBIGUOUS


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
    latest = max((finding.start for finding in findings if finding.evidence), default=0)
    ends = [signal.end for signal in signals if "correction" in signal.roles and signal.end <= latest]
    return [finding for finding in findings if finding.start >= max(ends, default=0)]


# ---- statements ----


def _statements(text: str, mentions: Sequence[Mention], signals: Sequence[Signal]) -> list[Statement]:
    """Cut a text into statements, and join the mentions of each; those without a mention are left out."""
    joiners = {signal.start: signal.end for signal in signals if signal.roles & {"and", "or"}}
    statements: list[Statement] = []
    start = place = heard = 0
    for end in _ends(text, mentions):
        groups: list[Mention] = []
        while place < len(mentions) and mentions[place].start < end:
            mention = mentions[place]
            if groups and _is_joint(text, groups[-1].end, mention.start, joiners):
                last = groups.pop()
                mention = Mention(last.options | mention.options, last.start, mention.end, False, False)
            groups.append(mention)
            place += 1
        first = heard
        while heard < len(signals) and signals[heard].start < end:
            heard += 1
        if groups:
            statements.append(Statement(start, end, groups, list(signals[first:heard])))
        start = end
    return statements


def _ends(text: str, mentions: Sequence[Mention]) -> list[int]:
    """Return the places where statements end: not within a bracket, nor within a mention."""
    ends: list[int] = []
    place = start = 0
    for match in _STATEMENT_END.finditer(text):
        end = match.start()
        while place < len(mentions) and mentions[place].end <= end:
            place += 1
        is_within = place < len(mentions) and mentions[place].start < end
        is_in_bracket = text.rfind("(", start, end) > text.rfind(")", start, end) and match[0].strip()
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


def _walk(text: str, statements: Sequence[Statement], count: int) -> tuple[int, int]:
    """Return the places of the first statement of a walk through options, and after its last; twice the end of none."""
    nowhere = (len(statements), len(statements))
    items = [place for place, statement in enumerate(statements) if _is_item(text, statement)][:_MOST_ITEMS]
    order = [min(statements[place].groups[0].options) for place in items]
    if len(order) > 1 and _is_answer_first(text, [statements[place] for place in items], order):
        items, order = items[1:], order[1:]
    while len(order) > 2 and order[-1] in order[:-1]:
        items, order = items[:-1], order[:-1]
    if len(set(order)) < 2 or (len(order) == 2 and order[0] > order[1]):
        return nowhere
    if all(_is_bare(text, statements[place]) for place in items) and len(set(order)) < min(count, 3):
        return nowhere
    last = items[-1]
    line_end = text.find("\n", statements[last].groups[0].start)
    while last + 1 < len(statements) and (line_end < 0 or statements[last + 1].end <= line_end):
        last += 1
    return items[0], last + 1


def _is_item(text: str, statement: Statement) -> bool:
    """Return whether a statement begins with one option that something sets off."""
    first = statement.groups[0]
    lead = text[statement.start : first.start]
    return (
        len(first.options) == 1
        and not re.search(r"[^\W\d_]{2}", lead)
        and bool(_ITEM.match(text, first.end, statement.end))
    )


def _is_bare(text: str, statement: Statement) -> bool:
    return not re.search(r"\w", text[statement.groups[0].end : statement.end])


def _is_answer_first(text: str, items: Sequence[Statement], order: Sequence[int]) -> bool:
    """Return whether the first item is an answer, which the walk follows."""
    rest = list(order[1:])
    is_ordered = rest == sorted(set(rest)) and len(rest) > 1
    bare = [_is_bare(text, item) for item in items]
    return order[0] in rest or (is_ordered and order[0] > rest[0]) or (bare[0] and len(bare) > 2 and not any(bare[1:]))


# ---- evidence ----


def _findings(text: str, statement: Statement, options: OptionSet) -> list[Finding]:
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
        if len(group.options) < max(len(options), 2):
            evidence = _evidence(text, statement, group, before, _to_first_break(after))
            is_line = len(groups) == 1 and _is_line(text, statement, group)
            findings.append(Finding(group.options, evidence, group.start, is_line))
    return findings


def _border(text: str, signals: Sequence[Signal], start: int, end: int) -> int | None:
    """Return the last place between two mentions where a clause begins; None if they are in one clause."""
    marks = [match.start() for match in _SEPARATOR.finditer(text, start, end)]
    breaks = [signal.start for signal in signals if signal.roles & {"but", "because", "final"}]
    return max([*marks, *breaks], default=None)


def _is_forward(signal: Signal, border: int | None) -> bool:
    """Return whether a signal between two mentions is about the second: after the border, else denials and choices."""
    if border is None:
        return bool(signal.roles & {"not", "than", "before"})
    return signal.start >= border


def _from_last_break(signals: Sequence[Signal]) -> list[Signal]:
    """Return the signals before the first mention of a statement that are about it: not "rather than", after a "but"."""
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
    near = {role for signal in in_clause for role in signal.roles}
    if _denies(text, before) or near & {"not", "not_after", "than_after"} or _dismisses(after):
        return Evidence.DENIED
    roles = {role for signal in before for role in signal.roles if _reaches(role, group.start - signal.end)}
    rest = text[group.end : statement.end]
    lead = text[statement.start : group.start]
    is_all = not re.search(r"[^\W_]", lead + rest)
    follows_colon = lead.rstrip(" \"'([<").endswith((":", "=", "→")) and not re.search(r"\w{2}", rest)
    opens = group.start <= 3 and group.is_label and _OPENS.match(text, group.end)
    is_declared = roles & _DECLARING or near & _DECLARING or is_all or follows_colon or opens
    if not is_declared or "reasoning" in roles:
        return Evidence.NAMED
    return Evidence.FINAL if "final" in roles else Evidence.DECLARED


def _reaches(role: str, distance: int) -> bool:
    """Return whether a role is about a mention: "it is B", but not "it is a large mass of the liver"."""
    return role != "choose" or distance <= _NEAR


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


def _praised(walk: Sequence[Statement], text: str) -> frozenset[int] | None:
    """Return the options of the items of a walk that are called right; None without any."""
    roles: dict[int, set[str]] = {}
    option = -1
    for statement in walk:
        if _is_item(text, statement):
            option = min(statement.groups[0].options)
        roles.setdefault(option, set()).update(*(signal.roles for signal in statement.signals))
    praised = {option for option, of in roles.items() if "correct" in of and not of & {"wrong", "not", "not_after"}}
    return frozenset(praised) or None


def _is_cut(text: str, findings: Sequence[Finding]) -> bool:
    """Return whether a reply announces what does not follow, or ends within a sentence, some words after an option."""
    if text.endswith((":", ",")):
        return True
    last = max((finding.start for finding in findings), default=0)
    pieces = re.split(r"[.!?。！？\n]\s*", text[last:])
    most_words = _FEW if len(pieces) == 1 else _FEW // 2
    return text[-1].isalnum() and len(pieces[-1].split()) > most_words


# ---- whole replies ----


def _whole(text: str, options: OptionSet) -> int | None:
    """Return the option that is all of a text: by its letter, by its text, or by both."""
    stripped = text.strip(" \t\n.,:;!()[]<>\"'*`")
    if stripped.upper() in options.letters:
        return options.letters[stripped.upper()]
    label, separator, rest = stripped.partition(stripped[1:2] if stripped[1:2] in tuple(".:)") else "\n")
    index = options.letters.get(label.upper())
    if separator and index is not None and options.written[index].casefold() == rest.strip().casefold():
        return index
    words = [token.word for token in tokens_of(folded(text))]
    matching = [index for index, own in enumerate(options.words) if own and list(own) == words]
    return matching[0] if len(matching) == 1 else None


def _without_invented(text: str, options: OptionSet, question: str, languages: tuple[str, ...]) -> str:
    """Return a reply up to an invented question, which names none of the options and is not the sample's question."""
    for match in _heading(languages).finditer(text):
        rest = text[match.end() : match.end() + 600]
        words = f" {' '.join(token.word for token in tokens_of(folded(rest)))} "
        repeated = sum(bool(own) and f" {' '.join(own)} " in words for own in options.words)
        if repeated < 2 and not (question and question[:30] in rest):
            return text[: match.start()].strip()
    return text


@cache
def _heading(languages: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?i)(?:^|\n|[.!?]\s)\W*(?:{pattern_of('question', languages).pattern})[^\w\n]*\d*\s*:")
