"""MedVLThinker's rules for questions with options: at evaluation time, and for its tables, made later.

The majority of several replies is in :mod:`medtasks.audit.repeats`.

Source: ``eval/run_offline_inference.py``, ``analysis/regrade_eval_results.py`` and ``train/my_reward.py`` of
https://github.com/UCSC-VLAA/MedVLThinker at a3163b1.
"""

import re
from collections.abc import Callable, Sequence

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor_registry import AnswerKind, extractor
from medtasks.extract.published.medevalkit_text import tag_contents
from medtasks.extract.reading.reply_text import given_text

# The answer follows the first of these that occurs.
_LEADS = tuple(
    re.compile(rf"{lead}\s*(.*)\s*", re.IGNORECASE) for lead in ("answer:", "answer is:", "answer is", "is:")
)
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_TURN = re.compile(r"</think>\s*<answer>")


@extractor("medvlthinker_choice", AnswerKind.CHOICE, "MedVLThinker at evaluation time: the first <answer>, alone")
def medvlthinker_choice(reply: str | None, sample: Sample) -> Answer:
    """Read the option that is the whole answer: its letter, its text, or both as ``B. text``.

    Example:
        >>> sample = Sample({"options": ["liver", "spleen"]})
        >>> medvlthinker_choice("<think>A?</think><answer>spleen</answer>", sample).value
        'B'
        >>> medvlthinker_choice("The answer is B", sample).reason.value
        'no_match'
    """
    return _read(reply, sample, first_answer)


@extractor("medvlthinker_choice_regraded", AnswerKind.CHOICE, "MedVLThinker's tables: also behind 'answer is'")
def medvlthinker_choice_regraded(reply: str | None, sample: Sample) -> Answer:
    """Read the option as the later pass for the tables does.

    Example:
        >>> medvlthinker_choice_regraded("The answer is B", Sample({"options": ["liver", "spleen"]})).value
        'B'
    """
    return _read(reply, sample, last_answer)


def _read(reply: str | None, sample: Sample, answer_of: Callable[[str], str]) -> Answer:
    text = given_text(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    named = [letter(index) for index in named_options(answer_of(text), sample.options)]
    if not named:
        return Answer.invalid(Reason.NO_MATCH)
    target = sample.document.get("answer")
    return Answer.ok(target if target in named else named[0])  # of options with the same text each is right


def first_answer(reply: str) -> str:
    """Return the content of the first ``<answer>``, else the whole reply, stripped."""
    contents = tag_contents(reply, "answer")
    return (contents[0] if contents else reply).strip()


def last_answer(reply: str) -> str:
    r"""Return the first line of the last ``<answer>``, else the text after a lead-in, without tags.

    Example:
        >>> last_answer("<answer>\nB\nsure</answer>"), last_answer("Answer: A\nThe final answer: (B)")
        ('B', '(B)')
    """
    if contents := tag_contents(reply, "answer"):
        text = re.split(r"[\n\r]", contents[-1].strip())[0]
    else:
        text = next((matches[-1] for lead in _LEADS if (matches := lead.findall(reply))), reply)
    for tag in _TAGS:
        text = text.replace(tag, "")
    return text.strip()


def named_options(answer: str, options: Sequence[str]) -> list[int]:
    """Return the indices of the options that an answer is: letter, text, or both; case does not matter."""
    plain = answer.strip().lower()
    forms = ((letter(index), f"{letter(index)}. {option}", option) for index, option in enumerate(options))
    return [index for index, names in enumerate(forms) if plain in [name.strip().lower() for name in names]]


def format_reward(reply: str) -> float:
    """Return 1 for a reply that is exactly ``<think>...</think> <answer>...</answer>``, else 0."""
    framed = reply.startswith("<think>") and reply.endswith("</answer>")
    return float(framed and _TURN.search(reply, len("<think>"), len(reply) - len("</answer>")) is not None)
