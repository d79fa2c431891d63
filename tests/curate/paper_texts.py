"""The papers whose prompts are kept to the letter."""

import re

from ..conftest import reference_folder


def squeezed(text: str) -> str:
    """The text without white space, and without the marks for code, lists and bold type of its conversion from PDF."""
    return re.sub(r"\s|```|\*\*|^[-•] ", "", text, flags=re.MULTILINE)


def paper(name: str) -> str:
    """The text of a paper, or skip the test."""
    return (reference_folder("MEDTASKS_PAPERS", "papers") / f"{name}.txt").read_text(encoding="utf-8")
