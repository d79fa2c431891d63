"""Captions as prompts show them, and those that are not shown to an LLM.

A caption is data, but an LLM reads it beside its orders, and the published prompts put no marks around it. What can be
done is done: it takes one line, so that it cannot pass for another part of the prompt; one that seems to give orders or
to bring a draft of its own is not sent; and a draft is nothing until an expert has read it.
"""

import re

from medtasks.judges.fence import addresses_judge

SHORTEST = 100
"""Characters; captions with fewer likely say too little of the image (MediConfusion, section 2)."""
_LIKE_A_DRAFT = re.compile(r"\b(?:question|option ?[12ab]|image ?[12])\s*:", re.IGNORECASE)


def one_line(text: str) -> str:
    """Return a caption with its white space as single blanks, and none around it: what prompts show and rules count."""
    return " ".join(text.split())


def why_not_sent(text: str) -> str:
    """Return why no question is drafted from a caption; empty where it can be.

    Example:
        >>> why_not_sent("Axial CT.")
        'a caption is shorter than 100 characters'
    """
    shown = one_line(text)
    if len(shown) < SHORTEST:
        return f"a caption is shorter than {SHORTEST} characters"
    if addresses_judge(shown) or _LIKE_A_DRAFT.search(shown):
        return "a caption seems to address the LLM"
    return ""
