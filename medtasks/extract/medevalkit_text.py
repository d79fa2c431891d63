r"""How MedEvalKit cuts an answer out of a reply, exactly as published.

Source: ``extract`` and ``parse_response`` in ``utils/utils.py`` of https://github.com/alibaba-damo-academy/MedEvalKit
at 9b12e3b, and ``extract_boxed_content`` of mathruler 0.1.0. Reasoning is never cut off there; what looks like a fault
is the published behaviour: the word ``boxed`` without ``\boxed{`` turns a reply into the text "None".
"""

import re

_NO_BOX = "None"
_BOX = r"\boxed{"
_BRACE = re.compile(r"[{}]")
# What stands behind the last of these is the answer; one after the other, each in what the one before has left. The
# last one cannot occur any more and stands for completeness.
_LEADS = (
    *("**answer**:", "**answer**", "*answer*:", "**answer:**", "answer is", "answer:", "答案:", "final answer"),
    "final answer is",
)


def boxed(text: str) -> str:
    r"""Return what the last ``\boxed{...}`` holds, stripped; the text "None" where there is none, or none that closes.

    Example:
        >>> boxed(r"so $\boxed{\text{B}}$"), boxed("B")
        ('\\text{B}', 'None')
    """
    start = text.rfind(_BOX)
    if start < 0:
        return _NO_BOX
    depth = 0
    for place in range(start + len(_BOX) - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + len(_BOX) : place].strip()
    return _NO_BOX


def last_box(text: str) -> str:
    r"""Return the content, stripped, of the last ``\boxed{...}`` that closes and is not blank; empty if there is none.

    Example:
        >>> last_box(r"\boxed{A} or $\boxed{\text{B}}$, \boxed{ }, \boxed{C")
        '\\text{B}'
    """
    braces: list[int] = []
    boxes: dict[int, int] = {}  # start and end of each content
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            braces.append(brace.end())
        elif braces and text.endswith(_BOX, 0, start := braces.pop()):
            boxes[start] = brace.start()
    contents = (text[start : boxes[start]].strip() for start in sorted(boxes, reverse=True))
    return next(filter(None, contents), "")


def tagged(text: str | None, tag: str, *, required: bool = False) -> str:
    """Return all contents of a tag, joined by a blank and stripped.

    Where they are empty it is the whole text, or nothing if the tag is ``required``; nothing of no text.

    Example:
        >>> tagged("<answer>A</answer> or <answer>B</answer>", "answer"), tagged("B", "answer")
        ('A B', 'B')
    """
    whole = text or ""
    return " ".join(tag_contents(whole, tag)).strip() or ("" if required else whole)


def tag_contents(text: str, tag: str) -> list[str]:
    """Return what stands between each pair of a tag, as it is; case matters."""
    first, last = f"<{tag}>", f"</{tag}>"
    contents = []
    place = text.find(first)
    while place >= 0:
        end = text.find(last, place + len(first))
        if end < 0:
            break
        contents.append(text[place + len(first) : end])
        place = text.find(first, end + len(last))
    return contents


def unwrapped(text: str) -> str:
    r"""Return the content of ``\boxed{...}`` where the word ``boxed`` occurs, else of ``<answer>``, else the text."""
    if "boxed" in text:
        return boxed(text)
    return tagged(text, "answer") if "<answer>" in text else text


def parsed_reply(reply: str) -> str:
    r"""Return what a reply declares as its answer, in lower case and not stripped.

    Example:
        >>> parsed_reply("The answer is (B)."), parsed_reply("My boxed answer: B")
        (' (b).', 'None')
    """
    text = unwrapped(reply.lower())
    for lead in _LEADS:
        text = text.rpartition(lead)[2]
    return text
