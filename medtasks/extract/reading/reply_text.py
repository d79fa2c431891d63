"""The model's answer within a raw reply, without reasoning, markup or an invented question; and refusals."""

import contextlib
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from medtasks.data.safe_parsing import parse_json
from medtasks.extract.extractor_registry import Reason
from medtasks.extract.failure import failure_cause

T = TypeVar("T")

# The beginning of a thought, also twice in a row where a template and the model write it, or the end of one.
_THOUGHT_MARK = re.compile(r"(?P<begins><think(?:ing)?>(?:\s*<think(?:ing)?>)*)|</think(?:ing)?>", re.IGNORECASE)
_TURN_END = re.compile(r"<\|(?:endofchunk|endoftext|end_of_text|end|im_end|eot_id)\|>|</s>", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<(/)?answer>", re.IGNORECASE)
_MARKUP = re.compile(
    r"(?i)[*_`#]+|</[a-z]+>|(?<!\w)<[a-z]+>|<br>|<\|[a-z_]+\|>|\\(?:boxed|fbox|text|textbf|mathrm|mathbf)\b|\\(?=[()\[\]])|[{}$]"
)
_QUOTES = str.maketrans(
    dict.fromkeys("“”„«»「」", '"') | dict.fromkeys("‘’", "'") | {"【": "[", "】": "]", "。": ".", "、": ","}
)
_UNDERSCORE = re.compile(r"(?<=[^\W_])_+(?=[^\W_])")
_RUN = re.compile(r"(\W)\1\1\1+")
# A longer run of marks and blanks loses its middle: patterns take time for each pair of them, and so does NFKC for
# combining marks, of which two are letters to Python.
_GAP = re.compile(r"([\W\uff9e\uff9f]{32})[\W\uff9e\uff9f]+(?=[\W\uff9e\uff9f]{32})")
_ANSWER_FIELD = r"(?i:(?:(?:final|correct|best|selected)[ _]?)?(?:answer|choice|option)(?:[ _]?(?:choice|letter))?)"
# A value in a JSON object that is cut or malformed: a string, a list, or the rest up to a comma or brace.
_VALUE = re.compile(r"""["](?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|\[[^\]]*\]?|[^,}\n]*""", re.DOTALL)
_NEXT_TURN = re.compile(r"\b(?:Next )?Question(?: \d+)?\s*:|(?<=\n)[ \t]*(?:User|USER|Human|HUMAN|Instruction)\s*:")

CANNOT = r"(?:can(?:not| not|'t)|could(?: not|n't)|unable to|(?:not |im)possible to)"
_JUDGE = (
    r"(?:determine|tell|answer|say|identif|provide|assist|help|assess|interpret|confirm|diagnos|conclu|analy|view|choose|"
    r"see (?:the|any) image)"
)
_LACKING = r"(?:insufficient|not enough|do(?:es)?(?: not|n't) (?:have|provide) (?:enough|sufficient))"
_UNABLE = (
    rf"\b{CANNOT}\s+(?:be\s+)?(?:\w+ly\s+)?{_JUDGE}|\b{_LACKING} (?:information|detail|context)"
    r"|\bi(?: do not|'m not| am not| don't) (?:know|sure|able|qualified)|\bi(?:'m| am) sorry\b|\bas an ai\b|\bno idea\b"
)
# The writer cannot answer; "none of the lobes" is a statement about an image.
UNABLE = re.compile(_UNABLE, re.IGNORECASE)
# Or declines to choose, as none of the options fits.
REFUSAL = re.compile(rf"(?i){_UNABLE}|\bneither(?: of| [a-z]\b| is\b|\W*$)|\bnone of (?:the|these)\b")
SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")  # separators of sentences


def given_text(reply: str | None) -> str | Reason:
    """Return the reply as it is, or the reason why it has no text: ``empty`` or ``adapter_failed``."""
    if reply is None or not reply.strip():
        return Reason.EMPTY
    return answered_text(reply)


def answered_text(reply: str | None) -> str | Reason:
    """Return the reply as it is, possibly empty, or ``adapter_failed``."""
    return reply or "" if failure_cause(reply) is None else Reason.ADAPTER_FAILED


def own_words(reply: str | None, *, split_names: bool = False) -> str | Reason:
    """Return the model's answer, never empty, or the reason why there is no text to read.

    The reason is ``empty``, ``adapter_failed`` or ``truncated`` (the reply ended while still reasoning).
    Of JSON only the answer's field is read, whatever the object is cut to.
    """
    raw = given_text(reply)
    if isinstance(raw, Reason):
        return raw
    text = without_thoughts(raw)
    if text is None:
        return Reason.TRUNCATED
    answer = json_field(text, _ANSWER_FIELD)  # the other fields of a JSON object are reasoning
    text = text if answer is None else answer
    text = _UNDERSCORE.sub(" ", text) if split_names else text
    if not text.isascii():
        text = with_plain_characters(text)
    tagged = _ANSWER_TAG.sub(lambda tag: "\n" if tag[1] else "\nAnswer: ", text)
    pieces = (_MARKUP.sub("", piece).strip() for piece in _TURN_END.split(tagged))  # up to the first end token
    text = next((piece for piece in pieces if piece.removeprefix("Answer:")), "")
    text = _GAP.sub(r"\1", _RUN.sub(r"\1\1\1", text))  # broken models write thousands of quotes or blanks
    # A reply that begins with a question repeats its prompt's; only a later question is invented.
    invented = _NEXT_TURN.search(text, 1)
    return (text[: invented.start()].strip() if invented else text) or Reason.EMPTY


# "Pleural_Thickening" as two words; else underscores are Markdown and vanish.
spaced_words = partial(own_words, split_names=True)


def with_plain_characters(text: str) -> str:
    """Replace characters by their plain forms, such as full-width letters and typographic quotes."""
    return unicodedata.normalize("NFKC", _GAP.sub(r"\1", text)).translate(_QUOTES)


def json_field(text: str, name: str) -> str | None:
    """Return a JSON field's value as text, None without the field; of cut or malformed JSON the last mention counts."""

    def as_text(value: Any) -> str:
        return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    mentions = list(re.finditer(rf"""(["'])(?:{name})\1\s*:\s*""", text))
    if not mentions:
        return None
    with contextlib.suppress(ValueError):
        whole = parse_json(text[text.find("{") : text.rfind("}") + 1], strict=False)
        values = [value for key, value in whole.items() if re.fullmatch(name, key)] if isinstance(whole, dict) else []
        if values:
            return as_text(values[-1])
    value = _VALUE.match(text, mentions[-1].end())
    written = value[0].strip() if value else ""
    for end in ("", '"'):  # of a string that was cut
        with contextlib.suppress(ValueError):
            return as_text(parse_json(written + end, strict=False))
    return written.strip("\"'")


def without_thoughts(reply: str, *, nested: bool = False) -> str | None:
    """Return the reply without ``<think>`` blocks, None if one is still open; ``nested``: each needs its own end."""
    outside: list[str] = []
    depth = end = 0
    for mark in _THOUGHT_MARK.finditer(reply):  # in one pass: models that loop write thousands of them
        if mark["begins"] is not None:
            outside += [reply[end : mark.start()]] if depth == 0 else []
            depth += nested or depth == 0
            continue
        if depth == 0:  # its beginning was in the prompt
            outside.clear()
        depth = max(depth - 1, 0)
        end = mark.end()
    return None if depth else " ".join([*outside, reply[end:]])


# ---- the answer after a reply's reasoning ----

_MEDGEMMA_MARKS = (("<unused94>", "<think>"), ("<unused95>", "</think>"))
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|(?=<answer>)|\Z)", re.DOTALL | re.IGNORECASE)
_TAGS = re.compile(r"</?(?:think(?:ing)?|answer)>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_BOX = "\\boxed{"
_BRACE = re.compile(r"[{}]")


@dataclass(frozen=True)
class Reasoned:
    """A reply in two parts."""

    answer: str | None  # possibly empty; None if the reasoning never ended
    words: int  # outside the answer, so in the reasoning; separated by blanks


def split_reasoning(text: str, *, cut: bool = False, reasoning: str = "") -> Reasoned:
    r"""Split off a reply's reasoning, of which the server may have sent ``reasoning`` apart from the reply.

    Reasoning is the text in ``<think>``, also nested, or before a ``</think>`` whose beginning the chat template had
    written; MedGemma has marks of its own. The answer is the last ``<answer>`` after it that is not blank, and within
    it the last ``\boxed{}``; without either, all text after the reasoning. Reasoning that never ended has no answer,
    nor has a reply that was cut before any mark.
    """

    def words(text: str) -> int:
        return len(_TAGS.sub(" ", text).split())

    for mark, usual in _MEDGEMMA_MARKS:
        text = text.replace(mark, usual)
    after, answer = without_thoughts(text, nested=True), None
    if after is not None:
        tagged = [content for content in _ANSWER.findall(after) if content.strip()]
        within = tagged[-1] if tagged else after
        is_whole = tagged or _THOUGHT_END.search(text) or reasoning or not cut
        # The last box that closes and is not blank.
        braces: list[int] = []
        boxes: dict[int, int] = {}  # start and end of each content
        for brace in _BRACE.finditer(within):
            if brace[0] == "{":
                braces.append(brace.end())
            elif braces and within.endswith(_BOX, 0, start := braces.pop()):
                boxes[start] = brace.start()
        contents = (within[start : boxes[start]].strip() for start in sorted(boxes, reverse=True))
        answer = next(filter(None, contents), "") or (within.strip() if is_whole else None)
    return Reasoned(answer, words(f"{reasoning} {text}") - words(answer or ""))


def declared(leads: Sequence[re.Pattern[str]], text: str, read: Callable[[re.Match[str]], set[T]]) -> set[T]:
    """Return the values that ``read`` finds after the first of several leads, strong ones first, that has any."""
    for lead in leads:
        values = set[T]().union(*map(read, lead.finditer(text)))
        if values:
            return values
    return set()
