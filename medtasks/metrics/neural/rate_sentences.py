"""Sentences and entities of a report as RaTEScore finds them.

Sentences are those of a blank English spaCy pipeline with PyRuSH 1.0.13. The boundaries come from ``rush_rules.tsv``,
the English rules of medspacy 1.3.1. A rule is a pattern, a number (odd: the match is no boundary) and its kind. Its
wildcards are explained in the file; ``(`` and ``)`` enclose the matched span.
"""

import re
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import regex  # type: ignore[import-untyped]  # it has no types

# Entries of model_settings.WEIGHTS.
NER = "rate-ner"
ENCODER = "biolord"
RULES = "rush-rules"
# Types of entities.
FOUND = ("DISEASE", "ABNORMALITY")
EXCLUDED = ("NON-DISEASE", "NON-ABNORMALITY")
KINDS = (*FOUND, *EXCLUDED, "ANATOMY")

_CLASSES = {
    "b": r"\A",
    "e": r"\Z",
    "s": r"[ \t\xa0]",
    "n": r"[\n\r]",
    "d": r"[\p{Nd}\p{Numeric_Type=Digit}]",
    "C": r"\p{Uppercase}",
    "c": r"\p{Lowercase}",
    "p": r"""[!-/:-@\[-`{-~]""",
    "a": r"\S",
    "u": r"[\x7f-\x9f\xa1-\U0010ffff]",
    "w": r"[\s\x7f-\U0010ffff]",
    "(": r"\(",
    ")": r"\)",
}


# A rule is a sequence of escaped wildcards, literal characters, ( and ) around the matched span, and + for repetition.
_RULE_PARTS = re.compile(r"(\\(.))|([^()+])|([()])|(\+)")
_MOST_REPEATS = 51
_SHORTEST_GAP = 5  # characters; a shorter rest belongs to the sentence before it
_SHORTEST_SENTENCE = 3  # RaTEScore drops what is shorter
_CLOSING = '.!?)]"'
# Tokens inside a word: spaCy cuts punctuation off both its ends.
_EDGE = r"""[…,:;!?¿¡()\[\]{}<>_#*&"'“”‘’`%§=|+$£€-]"""
_TOKEN = re.compile(
    rf"[^\S ]\s*|(?<= ) \s*|\A \s*|(?<!\S){_EDGE}|(?<={_EDGE}){_EDGE}|\S+?(?={_EDGE}*(?:\s|\Z))|{_EDGE}"
)


class _Rule(NamedTuple):
    pattern: Any
    literals: frozenset[str]  # characters without which a text cannot match
    is_boundary: bool


class _Span(NamedTuple):
    begin: int
    end: int
    is_boundary: bool = True


@cache
def _rules(path: Path) -> dict[str, list[_Rule]]:
    """Return the compiled rules of a file by kind, the last of equal patterns only."""
    rows: dict[tuple[str, str], bool] = {}
    for line in path.read_text("utf-8").splitlines():
        fields = line.split("\t")
        if line.startswith(("#", "@")) or len(fields) < 3:
            continue
        # The published matcher never reaches an end of the text directly after a closed span.
        if ")\\e" not in line:
            is_boundary = float(fields[1]) % 2 == 0
            rows[fields[0], fields[2].strip()] = is_boundary
    rules: dict[str, list[_Rule]] = {"stbegin": [], "stend": []}
    for (text, kind), is_boundary in rows.items():
        rules[kind].append(_compile_rule(text, is_boundary))
    return rules


def _compile_rule(text: str, is_boundary: bool) -> _Rule:
    """Translate a rule into a regular expression, whose groups ``begin`` and ``end`` enclose the matched span."""
    parts = []
    literals = set()
    for escaped, wildcard, literal, marker, plus in _RULE_PARTS.findall(text):
        if escaped:
            parts.append(_CLASSES.get(wildcard, "(?!)"))
            literals |= {wildcard} & set("()")
        elif literal:
            parts.append(regex.escape(literal))
            literals.add(literal)
        elif marker == "(":
            parts.append("(?P<begin>)")
        elif marker:
            parts.append("(?P<end>)")
        elif plus and not parts[-1].startswith("(?P"):
            # A repetition takes the whole run, or one character.
            parts[-1] = f"(?:{parts[-1]}{{1,{_MOST_REPEATS}}}+|{parts[-1]})"
    return _Rule(regex.compile("".join(parts)), frozenset(literals), is_boundary)


def _matches(text: str, rules: Sequence[_Rule]) -> list[_Span]:
    """Return the spans that rules of one kind match, without those that are no boundary.

    Of two overlapping matches the wider one stays, of equal ones the first.
    """
    letters = set(text)
    candidates = []  # begin of each match, and its span
    for rule in rules:
        if not rule.literals <= letters:
            continue
        groups = rule.pattern.groupindex
        for match in rule.pattern.finditer(text, overlapped=True):
            begin = match.start("begin") if "begin" in groups else match.start()
            end = match.start("end") if "end" in groups else match.end()
            candidates.append((match.start(), _Span(begin, end, rule.is_boundary)))
    spans: list[_Span] = []
    # Begin, position and end of every span that was ever in the list, sorted.
    taken: list[tuple[int, int, int]] = []
    longest = 0
    for _, span in sorted(candidates, key=itemgetter(0)):
        length = span.end - span.begin
        position = _overlapping(span, taken, longest)
        if position is None:
            position = len(spans)
            spans.append(span)
        elif length > spans[position].end - spans[position].begin:
            spans[position] = span
        else:
            continue
        insort(taken, (span.begin, position, span.end))
        longest = max(longest, length)
    return [span for span in spans if span.is_boundary]


def _overlapping(
    span: _Span,
    taken: Sequence[tuple[int, int, int]],
    longest: int,
) -> int | None:
    """Return the number of the last span, by its begin, that overlaps a span, or None if none does.

    Args:
        span: The span.
        taken: Begin, number and end of the spans to look at, sorted.
        longest: Length of the longest of these spans.
    """
    index = bisect_left(taken, (max(span.end, span.begin + 1),))
    while index and taken[index - 1][0] >= span.begin - longest:
        index -= 1
        begin, position, end = taken[index]
        if (end > span.begin and begin < span.end) or span.begin == span.end == begin:
            return position
    return None


def _trim(text: str, begin: int, end: int) -> _Span | None:
    """Return the part of a gap from its first letter or mark to its last letter, digit or closing mark.

    None if the gap has no such end after its first letter or mark.
    """
    inside = [position for position in range(begin, end) if not text[position].isspace()]
    closing = [
        position
        for position in inside[1:]
        if text[position].isalnum() or text[position] in _CLOSING
    ]
    return _Span(inside[0], closing[-1] + 1) if closing else None


def _spans(text: str, rules: Mapping[str, Sequence[_Rule]]) -> list[_Span]:
    """Pair beginnings with ends of sentences, and turn the gaps around them into sentences or parts of them."""
    ends = _matches(text, rules["stend"])
    begins = [span.begin for span in _matches(text, rules["stbegin"])]
    spans = _paired_spans(text, begins, ends)
    if not spans:
        _fill_gap(spans, text, 0, len(text))
        return spans
    head = _trim(text, 0, spans[0].begin)
    if head and spans[0].begin <= ends[0].begin:
        spans[0] = spans[0]._replace(begin=head.begin)
    elif head:
        spans.insert(0, head)
    _fill_gap(spans, text, spans[-1].end, len(text))
    return spans


def _paired_spans(
    text: str,
    begins: Sequence[int],
    ends: Sequence[_Span],
) -> list[_Span]:
    """Return the sentences from a beginning to its end, and those of the gaps between them.

    Args:
        text: The report.
        begins: Positions at which sentences may begin, rising.
        ends: Spans at which sentences may end, by their begin.
    """
    stripped = _stripped_lengths(text)
    spans: list[_Span] = []
    is_open = False
    begin = 0
    last_end = 0
    next_end = 0
    for number, candidate in enumerate(begins):
        if candidate < last_end:
            continue
        if not is_open:
            is_open = True
            begin = candidate
        is_last_begin = number == len(begins) - 1
        following = len(text) if is_last_begin else begins[number + 1]
        previous = spans[-1].end if spans else 0
        if begin > previous:
            _fill_gap(spans, text, previous, begin)
        for position in range(next_end, len(ends)):
            end = ends[position]
            is_last_end = position == len(ends) - 1
            if following <= end.begin and not is_last_end:
                break
            last_end = stripped[min(end.begin + 1, len(text))]
            next_end = position
            if last_end < begin:
                continue
            if not is_open:
                spans[-1] = _Span(begin, last_end)
                continue
            spans.append(_Span(begin, last_end))
            is_open = False
            if not is_last_begin and (is_last_end or following <= ends[position + 1].end):
                break
    return spans


def _stripped_lengths(text: str) -> list[int]:
    """Return the length of the text up to each position without blanks at its end."""
    lengths = [0]
    for position, sign in enumerate(text, 1):
        lengths.append(lengths[-1] if sign.isspace() else position)
    return lengths


def _fill_gap(
    spans: list[_Span],
    text: str,
    begin: int,
    end: int,
) -> None:
    """Append a gap, or move the end of the last span to that of a short one."""
    gap = _trim(text, begin, end)
    if gap and gap.end - gap.begin > _SHORTEST_GAP:
        spans.append(gap)
    elif gap and spans:
        spans[-1] = spans[-1]._replace(end=gap.end)


def split_sentences(text: str, rules: Path) -> list[str]:
    """Split a report into sentences, without those shorter than three characters.

    Args:
        text: Report.
        rules: File of rules, ``rush_rules.tsv``.
    """
    spans = _spans(text, _rules(rules))
    starts = {0}
    number = 0
    no_token = len(text) + 1
    following = [*spans, _Span(no_token, no_token)]  # the one at ``number`` is the next
    for match in _TOKEN.finditer(text):
        begin = match.start()
        # The rest after a sentence is one of its own, and so are the blanks in it.
        is_after = begin >= following[number].end
        while begin >= following[number].end:
            number += 1
        is_begin = begin == following[number].begin
        is_between = begin < following[number].begin and (number > 0 or not spans)
        if is_after or is_begin or (is_between and match.group().isspace()):
            starts.add(begin)
    borders = [*sorted(starts), len(text)]
    sentences = [text[begin:end].strip() for begin, end in pairwise(borders)]
    return [sentence for sentence in sentences if len(sentence) >= _SHORTEST_SENTENCE]


def entity_spans(
    tokens: Sequence[str],
    labels: Sequence[str],
) -> list[tuple[int, int, str]]:
    """Find the entities of a sentence by the published rules.

    A label decides together with the next one. An entity that is open at the end ends before the last token; it is lost
    if one before it ended right at the beginning of the next. ``I-`` before ``B-`` starts an entity. A change of type
    within an entity does not end it.

    Args:
        tokens: Wordpieces, from ``[CLS]`` to ``[SEP]``.
        labels: One per token, such as ``B-DISEASE``, ``I-DISEASE`` or ``O``.

    Returns:
        First token, last token and type of each entity.

    Example:
        >>> entity_spans(["[CLS]", "no", "edema", "[SEP]"], ["O", "O", "B-NON-DISEASE", "O"])
        [(2, 2, 'NON-DISEASE')]
    """
    spans = []
    start: int | None = None
    kind = ""
    was_closed = False
    for position, (token, label) in enumerate(zip(tokens, labels, strict=False)):
        if token in ("[CLS]", "[SEP]") or label == "O" or position + 1 >= len(labels):
            continue
        following = labels[position + 1]
        if label.startswith("B-"):
            start = position
            kind = label[2:]
        if following.startswith("I-"):
            continue
        if start is not None:
            spans.append((start, position, kind))
        start = None
        kind = ""
        was_closed = following.startswith("B-")
        if was_closed:
            start = position
            kind = label[2:]
    if start is not None and not was_closed:
        spans.append((start, len(tokens) - 2, kind))
    return spans
