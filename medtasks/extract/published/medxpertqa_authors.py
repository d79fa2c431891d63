"""MedXpertQA's rule for replies without examples: the first capital letter on its own; without one it is wrong.

With ten options "I would choose C" is I.

Source: ``answer_cleansing`` in ``eval/utils.py`` and ``eval/config/prompt_templates.py`` of
https://github.com/TsinghuaC3I/MedXpertQA at f21247d.
"""

import re

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor_registry import AnswerKind, extractor
from medtasks.extract.reading.reply_text import given_text

DIRECT, REASONED = "Among A through {last}, the answer is", "Therefore, among A through {last}, the answer is"
"""Ends of the prompt, which a reply may repeat: for a direct answer, and for the second turn after reasoning."""

_LEAD = " answer is "
_UNWANTED = ("I understand", "A through J", "A through E", "A through D")


@extractor("medxpertqa_authors", AnswerKind.CHOICE, "MedXpertQA's authors, direct answers: first capital letter")
def medxpertqa_authors(reply: str | None, sample: Sample) -> Answer:
    """Read a direct answer.

    Example:
        >>> medxpertqa_authors("Among A through C, the answer is (B)", Sample({"options": ["x", "y", "z"]})).value
        'B'
    """
    return _read(reply, sample, DIRECT)


@extractor("medxpertqa_authors_cot", AnswerKind.CHOICE, "MedXpertQA's authors, second turn behind a reasoning one")
def medxpertqa_authors_cot(reply: str | None, sample: Sample) -> Answer:
    """Read the answer that is asked for in a second turn."""
    return _read(reply, sample, REASONED)


def _read(reply: str | None, sample: Sample, trigger: str) -> Answer:
    text = given_text(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    name = first_letter(text, len(sample.options), trigger)
    return Answer.ok(name) if name else Answer.invalid(Reason.NO_MATCH)


def first_letter(reply: str, options: int, trigger: str = DIRECT) -> str | None:
    """Return the first of the options' letters after a trigger, else after "answer is"; None without any."""
    if not options:
        return None
    letters, text = [letter(index) for index in range(options)], reply
    for lead in (trigger.format(last=letters[-1]), _LEAD):
        if lead in text:
            text = text.split(lead)[1].strip()
            break
    for phrase in _UNWANTED:
        text = text.replace(phrase, "")
    match = re.search(rf"\b(?:{'|'.join(map(re.escape, letters))})\b", text)
    return match[0] if match else None
