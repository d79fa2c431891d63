"""What of a raw reply is the model's own answer, without reasoning, markup or an invented question; and refusals."""

import contextlib
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from medtasks.data.safe_parsing import parse_json
from medtasks.extract.answer import Reason
from medtasks.extract.failure import failure_cause

T = TypeVar("T")

# The beginning of a thought, also twice in a row where a template and the model write it, or the end of one.
_THOUGHT_MARK = re.compile(r"(?P<begins><think(?:ing)?>(?:\s*<think(?:ing)?>)*)|</think(?:ing)?>", re.IGNORECASE)
_TURN_END = re.compile(r"<\|(?:endofchunk|endoftext|end_of_text|end|im_end|eot_id)\|>|</s>", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<(/)?answer>", re.IGNORECASE)
_MARKUP = re.compile(
    r"[*_`#]+|</[a-z]+>|(?<!\w)<[a-z]+>|<br>|<\|[a-z_]+\|>|\\(?:boxed|fbox|text|textbf|mathrm|mathbf)\b|\\(?=[()\[\]])|[{}$]",
    re.IGNORECASE,
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
_INABILITY = re.compile(_UNABLE, re.IGNORECASE)
_REFUSAL = re.compile(
    rf"{_UNABLE}|\bneither(?: of| [a-z]\b| is\b|\W*$)|\bnone of (?:the|these)\b",
    re.IGNORECASE,
)
SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")  # what stands between sentences


def given_text(reply: str | None) -> str | Reason:
    """Return the reply as it is, or the reason why there is none: ``empty`` or ``adapter_failed``."""
    if reply is None or not reply.strip():
        return Reason.EMPTY
    return reply if failure_cause(reply) is None else Reason.ADAPTER_FAILED


def own_words(reply: str | None, *, split_names: bool = False) -> str | Reason:
    r"""Return the model's own answer, never empty, or the reason why there is none to read.

    The reason is ``empty``, ``adapter_failed`` or ``truncated`` (the reply ended while still reasoning).
    Of JSON only the answer's field is read, whatever the object is cut to.
    ``split_names`` reads "Pleural_Thickening" as two words; without it, underscores are Markdown and vanish.

    Example:
        >>> own_words("<think>It may be A.</think>**B**\n\nQuestion: What else?")
        'B'
        >>> own_words("$\\boxed{\\text{Ｂ}}$</s> A")
        'B'
        >>> own_words("<think>It may be").value
        'truncated'
    """
    given = given_text(reply)
    if isinstance(given, Reason):
        return given
    own = without_thoughts(given)
    if own is None:
        return Reason.TRUNCATED
    answer = json_field(own, _ANSWER_FIELD)  # the other fields of a JSON object are reasoning
    own = own if answer is None else answer
    text = _UNDERSCORE.sub(" ", own) if split_names else own
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _GAP.sub(r"\1", text)).translate(_QUOTES)
    tagged = _ANSWER_TAG.sub(lambda tag: "\n" if tag[1] else "\nAnswer: ", text)
    spoken = (_MARKUP.sub("", piece).strip() for piece in _TURN_END.split(tagged))  # up to the first end token
    text = next((piece for piece in spoken if piece.removeprefix("Answer:")), "")
    text = _GAP.sub(r"\1", _RUN.sub(r"\1\1\1", text))  # broken models write thousands of quotes or blanks
    # A reply that begins with a question repeats the one it was asked; only a later one is invented.
    invented = _NEXT_TURN.search(text, 1)
    return (text[: invented.start()].strip() if invented else text) or Reason.EMPTY


def json_field(text: str, name: str) -> str | None:
    """Return a JSON field's value as text, None without the field; of cut or malformed JSON the last mention counts."""
    mentions = list(re.finditer(rf"""(["'])(?:{name})\1\s*:\s*""", text))
    if not mentions:
        return None
    with contextlib.suppress(ValueError):
        whole = parse_json(text[text.find("{") : text.rfind("}") + 1], strict=False)
        values = [value for key, value in whole.items() if re.fullmatch(name, key)] if isinstance(whole, dict) else []
        if values:
            return _as_text(values[-1])
    value = _VALUE.match(text, mentions[-1].end())
    written = value[0].strip() if value else ""
    for end in ("", '"'):  # of a string that was cut
        with contextlib.suppress(ValueError):
            return _as_text(parse_json(written + end, strict=False))
    return written.strip("\"'")


def _as_text(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def without_thoughts(reply: str, *, nested: bool = False) -> str | None:
    """Return the reply without ``<think>`` blocks, or None when one is still open at the end.

    The first end closes a block, with ``nested`` that which belongs to its beginning.

    Example:
        >>> text = "<think>One. <think>Two.</think> A"
        >>> without_thoughts(text), without_thoughts(text, nested=True)
        ('  A', None)
    """
    kept: list[str] = []
    depth = place = 0
    for mark in _THOUGHT_MARK.finditer(reply):  # in one pass: models that loop write thousands of them
        if mark["begins"] is not None:
            kept += [reply[place : mark.start()]] if depth == 0 else []
            depth += nested or depth == 0
            continue
        if depth == 0:  # what began it stood in the prompt
            kept.clear()
        depth = max(depth - 1, 0)
        place = mark.end()
    return None if depth else " ".join([*kept, reply[place:]])


def declared(leads: Sequence[re.Pattern[str]], text: str, read: Callable[[re.Match[str]], set[T]]) -> set[T]:
    """Return what is read after the first of several leads, strong ones first, after which there is something."""
    for lead in leads:
        found = set[T]().union(*map(read, _matches(lead, text)))
        if found:
            return found
    return set()


@lru_cache(maxsize=8)  # a text is read for letters, then for texts
def _matches(lead: re.Pattern[str], text: str) -> tuple[re.Match[str], ...]:
    return tuple(lead.finditer(text))


def refuses(text: str) -> bool:
    """Return whether the text declines to choose: it cannot tell, or none of the options fits."""
    return _REFUSAL.search(text) is not None


def is_unable(text: str) -> bool:
    """Return whether the text says that its writer cannot answer; "none of the lobes" is a statement about an image."""
    return _INABILITY.search(text) is not None
