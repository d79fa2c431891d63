"""What of a raw reply is the model's own answer: no reasoning, no markup, no invented next question."""

import re
import unicodedata

from medtasks.extract.answer import Reason
from medtasks.extract.failure import failure_cause

_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"^.*</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_THOUGHT_OPEN = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_TURN_END = re.compile(r"<\|(?:endofchunk|endoftext|end_of_text|end|im_end|eot_id)\|>|</s>", re.IGNORECASE)
_ANSWER_TAG = re.compile(r"<answer>", re.IGNORECASE)
_MARKUP = re.compile(
    r"[*_`#]+|</?[a-z]+>|<\|[a-z_]+\|>|\\(?:boxed|fbox|text|textbf|mathrm|mathbf)\b|\\(?=[()\[\]])|[{}$]", re.IGNORECASE
)
_QUOTES = str.maketrans(
    dict.fromkeys("“”„«»「」", '"') | dict.fromkeys("‘’", "'") | {"【": "[", "】": "]", "。": ".", "、": ","}
)
_UNDERSCORE = re.compile(r"(?<=[^\W_])_+(?=[^\W_])")
_RUN = re.compile(r"(\W)\1{3,}")
_NEXT_TURN = re.compile(r"\b(?:Next )?Question(?: \d+)?\s*:|(?<=\n)[ \t]*(?:User|USER|Human|HUMAN|Instruction)\s*:")


def own_words(reply: str | None, *, split_names: bool = False) -> str | Reason:
    r"""Return the model's own answer, or the reason why there is none to read.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        split_names: Read "Pleural_Thickening" as two words; without it, underscores are Markdown and vanish.

    Returns:
        Text that is never empty, or one of the reasons ``empty``, ``adapter_failed`` and ``truncated`` (the reply ended
        while still reasoning).

    Example:
        >>> own_words("<think>It may be A.</think>**B**\n\nQuestion: What else?")
        'B'
        >>> own_words("<think>It may be").value
        'truncated'
    """
    if reply is None or not reply.strip():
        return Reason.EMPTY
    if failure_cause(reply) is not None:
        return Reason.ADAPTER_FAILED
    said = without_thoughts(_UNDERSCORE.sub(" ", reply) if split_names else reply)
    if said is None:
        return Reason.TRUNCATED
    return first_turn(without_markup(said)) or Reason.EMPTY


def without_thoughts(reply: str) -> str | None:
    """Return the reply without ``<think>`` blocks, or None when one is still open at the end."""
    text = _THOUGHT_END.sub("", _THOUGHT.sub(" ", reply))
    return None if _THOUGHT_OPEN.search(text) else text


def without_markup(text: str) -> str:
    r"""Return the text up to the first end token, without Markdown, LaTeX and tags, in plain characters.

    Example:
        >>> without_markup("$\\boxed{\\text{Ｂ}}$</s> A")
        'B'
    """
    text = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    spoken = [piece for piece in _TURN_END.split(text) if _MARKUP.sub("", piece).strip()]
    own = _MARKUP.sub("", _ANSWER_TAG.sub("\nAnswer: ", spoken[0])).strip() if spoken else ""
    return _RUN.sub(r"\1\1\1", own)  # thousands of quotes or blanks, as broken models write them, would take minutes


def first_turn(text: str) -> str:
    r"""Return what comes before an invented next question, as base models go on with one after their answer.

    A reply that begins with a question repeats the one it was asked; only a later one is invented.

    Example:
        >>> first_turn("B\n\nQuestion: What else? Answer: A")
        'B'
    """
    following = _NEXT_TURN.search(text, 1)
    return text[: following.start()].strip() if following else text
