"""The model's answer within a raw reply, without reasoning, markup or an invented question, and refusals.

Called by every extractor, as its reader or in it. It must never read an answer: it returns text, or the reason why a
reply has none.
"""

import contextlib
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from medtasks.data.safe_parsing import parse_json
from medtasks.extract.extractor_registry import Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.reading.languages import pattern_of

# The beginning of a thought, also twice in a row where a template and the model write it, or the end of one.
_THOUGHT_MARK = re.compile(
    r"(?P<begins><think(?:ing)?>(?:\s*<think(?:ing)?>)*)|</think(?:ing)?>", re.IGNORECASE
)
_BEGUN_THOUGHT = re.compile(r"(?i)(?<=[^\s>])\s*<think(?:ing)?>\s*\Z")  # after an answer
# End-of-turn tokens of any family: <eos>, </s>, <end_of_turn>, <|im_end|>, [EOS].
_TURN_END = re.compile(
    r"(?i)<[|｜]?(?:/s|eos|eot(?:_\w+)?|end[_▁]?of[_▁]?\w+|endof\w+|end|\w+_end|\w+[_▁]end[_▁]\w+)[|｜]?>|\[eos\]|\[/inst\]"
)
_SPECIAL = re.compile(
    r"<[|｜][\w▁]+[|｜]>(?:assistant|model)?|<start_of_turn>(?:model)?|<(?:s|bos|pad|unk)>"
)
_TAG = re.compile(
    r"<\s*(?P<closes>/?)\s*(?P<name>[^\W\d][\w -]{0,30}?)\s*(?::?\s+(?P<inside>[^<>]{1,60}))?\s*/?>"
)
_BLOCK = re.compile(r"(?i)</?(?:br|p|li|ul|ol|div|td|th|tr|table|h[1-6])\b[^<>]*>")
_INLINE = re.compile(r"</?[a-z_]+[1-6]?(?:\s+[\w-]+=[^<>]*)?\s*/?>|</[A-Z]+>")
_MARKUP = re.compile(
    r"[*#`_\\{}$](?:(?<=[{}$])|(?<=\\)(?:boxed|fbox|text|textbf|mathrm|mathbf|left|right|quad)\b|(?<=\\)(?=[()\[\]])|"
    r"(?<=`)``\w*|(?<!\w[*#`_])(?<=[*#`_])[*#`_]*|(?<=[*`_])[*`_]*(?!\w))",
    re.IGNORECASE,
)
# A capital that base models write onto a word: "BumetanideB. Amiloride", "AExplanation".
_GLUED = re.compile(
    r"[A-Z](?:(?<=[a-z]{3}[A-Z])(?=[a-z]{2}|[.) ])|(?<=\W[A-Z]{2})(?=[a-z]{3}))"
)
_QUOTES = str.maketrans(
    dict.fromkeys("“”„«»「」", '"')
    | dict.fromkeys("‘’", "'")
    | {"【": "[", "】": "]", "。": ".", "、": ","}
)
_UNDERSCORE = re.compile(r"(?<=[^\W_])_+(?=[^\W_])")
_MARKS = re.compile(r"\W{4}")
_RUN = re.compile(r"(\W)\1\1\1+")
# A longer run of marks and blanks loses its middle: patterns take time for each pair of them, and so does NFKC for
# combining marks, of which two are letters to Python.
_GAP = re.compile(r"([\W\uff9e\uff9f]{32})[\W\uff9e\uff9f]+(?=[\W\uff9e\uff9f]{32})")
_FIELD = re.compile(
    r"""(["'])([^"'{}\n]{1,60})\1\s*:\s*("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|\[[^\]]*\]?|(?!\s*[{"'\[])[^,}\]\n]*)"""
)
_ANNOUNCES = re.compile(r"[^.\n]*:\s*\Z")  # "The output in JSON is:"
_KEY_WORD = re.compile(r"[_\W]+|(?<=[a-z])(?=[A-Z])")
# A value in a JSON object that is cut or malformed: a string, a list, or the rest up to a comma or brace.
_VALUE = re.compile(
    r"""["](?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|\[[^\]]*\]?|[^,}\n]*""", re.DOTALL
)
_NEXT_TURN = re.compile(
    r"\b(?:Next )?Question(?: \d+)?\s*:|(?<=\n)[ \t]*(?:User|USER|Human|HUMAN|Instruction)\s*:"
)

CANNOT = r"(?:can(?:not| not|'t)|could(?: not|n't)|unable to|(?:not |im)possible to)"
_JUDGE = (
    r"(?:determine|tell|answer|say|identif|provide|assist|help|assess|interpret|confirm|diagnos|conclu|analy|view|choose|"
    r"see (?:the|any) image)"
)
_LACKING = (
    r"(?:insufficient|not enough|do(?:es)?(?: not|n't) (?:have|provide) (?:enough|sufficient))"
)
_UNABLE = (
    rf"\b{CANNOT}\s+(?:be\s+)?(?:\w+ly\s+)?{_JUDGE}|\b{_LACKING} (?:information|detail|context)"
    r"|\bi(?: do not|'m not| am not| don't) (?:know|sure|able|qualified)|\bi(?:'m| am) sorry\b|\bas an ai\b|\bno idea\b"
)
# The writer cannot answer; "none of the lobes" is a statement about an image.
UNABLE = re.compile(_UNABLE, re.IGNORECASE)
# Or declines to choose, as none of the options fits.
REFUSAL = re.compile(
    rf"(?i){_UNABLE}|\bneither(?: of| [a-z]\b| is\b|\W*$)|\bnone of (?:the|these)\b"
)
SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")  # separators of sentences

_MEDGEMMA_MARKS = (("<unused94>", "<think>"), ("<unused95>", "</think>"))
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|(?=<answer>)|\Z)", re.DOTALL | re.IGNORECASE)
_TAGS = re.compile(r"</?(?:think(?:ing)?|answer)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_BOX = "\\boxed{"
_BRACE = re.compile(r"[{}]")


def given_text(reply: str | None) -> str | Reason:
    """Return the reply as it is, or the reason why it has no text: ``empty``, also for None, or ``adapter_failed``.

    Example:
        >>> given_text(" "), given_text("**B**")
        (<Reason.EMPTY: 'empty'>, '**B**')
    """
    if reply is None or not reply.strip():
        return Reason.EMPTY
    return answered_text(reply)


def answered_text(reply: str | None) -> str | Reason:
    """Return the reply as it is, empty for None, or ``adapter_failed``."""
    return reply or "" if failure_cause(reply) is None else Reason.ADAPTER_FAILED


def own_words(
    reply: str | None,
    *,
    split_names: bool = False,
    is_answer: Callable[[str], bool] | None = None,
) -> str | Reason:
    """Return the model's answer, never empty, or the reason why there is no text to read.

    Of JSON only the answer's field is read, whatever the object is cut to; of a reply with a tag or a box for the
    answer only what is inside.

    Args:
        reply: The raw reply. None is an empty one.
        split_names: Whether underscores join words; else they are Markdown.
        is_answer: Whether the value of a JSON field is an answer, where no field is called one. With None, the default,
            only a field's name tells.

    Returns:
        The text, or ``empty``, ``adapter_failed`` or ``truncated`` (the reply ended while still reasoning).

    Example:
        >>> own_words("<think>A or B?</think> **B**. Question: What next?")
        'B.'
    """
    raw = given_text(reply)
    if isinstance(raw, Reason):
        return raw
    text = without_thoughts(_BEGUN_THOUGHT.sub("", raw))
    if text is None:
        return Reason.TRUNCATED
    turns = (_SPECIAL.sub(" ", turn) for turn in _TURN_END.split(text))
    text = next(filter(str.strip, turns), "")
    if '":' in text or "':" in text or '" :' in text:
        text = _json_answer(text, is_answer)
    if split_names:
        text = _UNDERSCORE.sub(" ", text)
    if not text.isascii():
        text = with_plain_characters(text)
    text = _wrapped_answer(text)
    text = _GLUED.sub(r"\n\g<0>", _MARKUP.sub("", without_html(text)))
    if _MARKS.search(text):  # broken models write thousands of quotes or blanks
        text = _GAP.sub(r"\1", _RUN.sub(r"\1\1\1", text))
    text = text.strip()
    # A reply that begins with a question repeats its prompt's. Only a later question is invented.
    invented = _NEXT_TURN.search(text, 1)
    if invented:
        text = text[: invented.start()].strip()
    return text or Reason.EMPTY


def without_html(text: str) -> str:
    """Return a text without tags of HTML. A letter between angle brackets alone stays.

    Example:
        >>> without_html("<b>normal</b>"), without_html("<A>")
        ('normal', '<A>')
    """
    if "<" not in text or len(text) <= len("</A>"):
        return text
    return _INLINE.sub("", _BLOCK.sub("\n", text))


def json_fields(text: str) -> list[tuple[str, str]]:
    """Return key and value of each field of the JSON objects in a text, which may be cut, malformed or nested.

    Example:
        >>> json_fields('{"answer": "B", "certain": tr')
        [('answer', 'B'), ('certain', 'tr')]
    """
    fields = []
    for _, key, value in _FIELD.findall(text):
        name = _as_text(_decode_value(f'"{key}"'))
        fields.append((name, _as_text(_decode_value(value))))
    return fields


def _decode_value(written: str) -> Any:
    """Return the value that a text is in JSON, perhaps a string that was cut, else the text without quotes."""
    written = written.strip()
    for end in ("", '"'):
        with contextlib.suppress(ValueError):
            return parse_json(written + end, strict=False)
    return written.strip("\"'")


def _as_text(value: Any) -> str:
    """Return a value of JSON as text: a text as it is, null as an empty one, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _json_answer(text: str, is_answer: Callable[[str], bool] | None) -> str:
    """Return the answer's field, else fields that are an answer, else the prose before an object that was cut.

    Args:
        text: Text with something like a JSON object. If nothing in it is an answer, it is returned whole.
        is_answer: See :func:`own_words`.
    """
    fields = json_fields(text)
    for role in ("answer", "option"):
        values = [value for key, value in fields if _has_role(key, role)]
        if values:
            return next(filter(str.strip, reversed(values)), "")
    before, brace, _ = text.partition("{")
    if not brace:
        return text
    unnamed = _unnamed_answers(fields, is_answer)
    if unnamed:
        return unnamed
    if "}" in text:
        return text
    prose = before.strip("`\n ").removesuffix("json").strip("`\n ")
    return _ANNOUNCES.sub("", prose) or text


def _unnamed_answers(
    fields: Sequence[tuple[str, str]], is_answer: Callable[[str], bool] | None
) -> str:
    """Return the fields that are an answer, a line each, or the keys where all values are positions, from 0 or 1."""
    if is_answer is None:
        return ""
    values = [key if value == "true" else value for key, value in fields]
    answers = dict.fromkeys(filter(is_answer, values))
    if not answers and all(value.isdigit() for _, value in fields):
        return " ".join(key for key, _ in fields)
    return "\n".join(answers)


def _has_role(key: str, role: str) -> bool:
    """Return whether the name of a field or tag has a word of a role, and none for reasoning."""
    words = _KEY_WORD.sub(" ", key).strip()
    return pattern_of(role).search(words) is not None and not pattern_of("reasoning").search(
        words
    )


def _wrapped_answer(text: str) -> str:
    """Return the content of the last tag or box for the answer, or the whole text if there is no such content.

    The content of a tag is its attribute, or the text up to the next tag.
    """
    contents = []
    start = None  # of the text after a tag for the answer
    for tag in _TAG.finditer(text):
        if start is not None:
            contents.append(text[start : tag.start()])
            start = None
        if tag["name"].lower() != "a" and _has_role(tag["name"], "answer"):
            contents.append(tag["inside"] or "")
            if not tag["closes"]:
                start = tag.end()
    if start is not None:
        contents.append(text[start:])
    answers = list(filter(str.strip, contents))
    return answers[-1] if answers else last_box(text) or text


# "Pleural_Thickening" as two words; else underscores are Markdown and vanish.
spaced_words = partial(own_words, split_names=True)


def with_plain_characters(text: str) -> str:
    """Replace characters by their plain forms, such as full-width letters and typographic quotes."""
    return unicodedata.normalize("NFKC", _GAP.sub(r"\1", text)).translate(_QUOTES)


def json_field(text: str, name: str) -> str | None:
    """Return the value of a JSON field as text.

    Args:
        text: Text with one JSON object, which may be cut or malformed. Then the last mention of the field counts.
        name: Name of the field, a pattern.

    Returns:
        The value, None without the field.

    Example:
        >>> json_field('{"grade": 2, "reason": "cut', "grade")
        '2'
    """
    mentions = list(re.finditer(rf"""(["'])(?:{name})\1\s*:\s*""", text))
    if not mentions:
        return None
    whole = _decode_value(text[text.find("{") : text.rfind("}") + 1])
    if isinstance(whole, dict):
        values = [value for key, value in whole.items() if re.fullmatch(name, key)]
        if values:
            return _as_text(values[-1])
    value = _VALUE.match(text, mentions[-1].end())
    return _as_text(_decode_value(value[0] if value else ""))


def without_thoughts(reply: str, *, nested: bool = False) -> str | None:
    """Return the reply without ``<think>`` blocks.

    Args:
        reply: Text of a reply.
        nested: Whether a block within a block needs an end of its own.

    Returns:
        The text outside the blocks, None if a block never ends.

    Example:
        >>> without_thoughts("<think>A or B?</think>B"), without_thoughts("<think>A or B?")
        (' B', None)
    """
    outside = []
    depth = 0
    end = 0
    # In one pass: models that loop write thousands of marks.
    for mark in _THOUGHT_MARK.finditer(reply):
        if mark["begins"] is not None:
            if depth == 0:
                outside.append(reply[end : mark.start()])
            if nested or depth == 0:
                depth += 1
            continue
        if depth == 0:  # its beginning was in the prompt
            outside.clear()
        depth = max(depth - 1, 0)
        end = mark.end()
    return None if depth else " ".join([*outside, reply[end:]])


# ---- the answer after a reply's reasoning ----


def last_box(text: str) -> str | None:
    r"""Return the content of the last ``\boxed{}`` that closes and is not blank, or None without one.

    Example:
        >>> last_box(r"\boxed{B} or \boxed{no}")
        'no'
    """
    open_braces = []
    ends = {}  # of boxes, by their start
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            open_braces.append(brace.end())
        elif open_braces:
            start = open_braces.pop()
            if text.endswith(_BOX, 0, start):
                ends[start] = brace.start()
    for start in sorted(ends, reverse=True):
        content = text[start : ends[start]]
        if content.strip():
            return content
    return None


@dataclass(frozen=True)
class ReasonedReply:
    """A reply in two parts."""

    answer: str | None  # possibly empty; None if the reasoning never ended
    words: int  # outside the answer, so in the reasoning; separated by blanks


def split_reasoning(
    text: str,
    *,
    cut: bool = False,
    reasoning: str = "",
) -> ReasonedReply:
    r"""Split off a reply's reasoning, of which the server may have sent ``reasoning`` apart from the reply.

    Reasoning is the text in ``<think>``, also nested, or before a ``</think>`` whose beginning the chat template had
    written; MedGemma has marks of its own. The answer is the last ``<answer>`` after it that is not blank, and within
    it the last ``\boxed{}``; without either, all text after the reasoning. Reasoning that never ended has no answer,
    nor has a reply that was cut before any mark.

    Args:
        text: Text of the reply.
        cut: Whether the reply was cut at a length limit.
        reasoning: Text that the server sent apart from the reply.

    Example:
        >>> split_reasoning("<think>A or B?</think><answer>B</answer>")
        ReasonedReply(answer='B', words=3)
    """
    for mark, usual in _MEDGEMMA_MARKS:
        text = text.replace(mark, usual)
    answer = None
    after = without_thoughts(text, nested=True)
    if after is not None:
        texts = [after, *filter(str.strip, _ANSWER.findall(after))]
        in_box = last_box(texts[-1])
        if in_box is not None:
            answer = in_box.strip()
        elif len(texts) > 1 or reasoning or not cut or _THOUGHT_END.search(text):
            answer = texts[-1].strip()
    return ReasonedReply(answer, _word_count(f"{reasoning} {text}") - _word_count(answer or ""))


def _word_count(text: str) -> int:
    """Return the number of words, separated by blanks, apart from tags."""
    return len(_TAGS.sub(" ", text).split())
