"""What of a raw reply is the model's own answer: no reasoning, no markup, no invented next question."""

import re
import unicodedata

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
_RUN = re.compile(r"(\W)\1{3,}")
_NEXT_TURN = re.compile(r"\b(?:Next )?Question(?: \d+)?\s*:|(?<=\n)[ \t]*(?:User|USER|Human|HUMAN|Instruction)\s*:")


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
