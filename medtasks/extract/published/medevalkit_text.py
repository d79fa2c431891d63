r"""MedEvalKit's way to cut an answer out of a reply, exactly as published.

Source: ``extract`` and ``parse_response`` in ``utils/utils.py`` of https://github.com/alibaba-damo-academy/MedEvalKit
at 9b12e3b, and ``extract_boxed_content`` of mathruler 0.1.0. Reasoning is never cut off there; what looks like a fault
is the published behaviour: the word ``boxed`` without ``\boxed{`` turns a reply into the text "None".
"""

NO_BOX = "None"
"""The content of a box that is missing."""

_BOX = r"\boxed{"
# The answer follows the last of each, searched for in turn in the text that the one before left.
_LEADS = ("**answer**:", "**answer**", "*answer*:", "**answer:**", "answer is", "answer:", "答案:", "final answer")


def boxed(text: str) -> str:
    r"""Return the content of the last ``\boxed{...}``, stripped, or :data:`NO_BOX` if it is missing or does not close.
    """
    start = text.rfind(_BOX)
    if start < 0:
        return NO_BOX
    depth = 0
    for position in range(start + len(_BOX) - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + len(_BOX) : position].strip()
    return NO_BOX


def tagged(text: str | None, tag: str, *, required: bool = False) -> str:
    """Return all contents of a tag, joined by a blank and stripped; if empty the whole text, unless ``required``."""
    whole = text or ""
    return " ".join(tag_contents(whole, tag)).strip() or ("" if required else whole)


def tag_contents(text: str, tag: str) -> list[str]:
    """Return the content of each pair of a tag, not stripped; case matters."""
    *pieces, _ = text.split(f"</{tag}>")
    parts = (piece.partition(f"<{tag}>") for piece in pieces)
    return [content for _, begins, content in parts if begins]


def declared_answer(reply: str | None) -> str:
    r"""Return the content of ``<answer>``, and within it that of ``\boxed{}``, else the reply."""
    text = tagged(reply, "answer")
    content = boxed(text)
    return text if content == NO_BOX else content


def parsed_reply(reply: str) -> str:
    """Return the answer that a reply declares, in lower case and not stripped."""
    text = reply.lower()
    text = boxed(text) if "boxed" in text else tagged(text, "answer")
    for lead in _LEADS:
        text = text.rpartition(lead)[2]
    return text
