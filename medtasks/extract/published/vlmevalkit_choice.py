"""VLMEvalKit's rules for the chosen option, in two of its versions: an option's letter, else its text.

The reference's next steps, a judge and a random choice, are left out, as in GMAI-MMBench's paper.

Source: ``vlmeval/utils/matching_util.py`` of https://github.com/open-compass/VLMEvalKit at c6bdffd (2024-03-19, in use
until 2025-04) and 2cf2a36 (2026-06-25). Differences: since 2025 a lone letter counts only among the last four words,
and a text only in a reply at most twice as long as all options together; since 2026-06-17 ``answer is`` followed by one
of a, b, c, d counts, whatever follows, so that "the answer is cardiomegaly" is read as C.
"""

import re
from collections.abc import Sequence

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor_registry import AnswerKind, extractor
from medtasks.extract.reading.reply_text import given_text

NO_REPLY = "Failed to obtain answer via API"
_REFUSALS = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)
_TO_BLANKS = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_LAST_WORDS = 4
NO_OPTION = "Z"  # a judge's answer for "none of them", which models imitate
_ANSWER_IS = re.compile(r"answer\s+is\s+\**([ABCD])", re.IGNORECASE)


@extractor(
    "vlmevalkit_2024_06",
    AnswerKind.CHOICE,
    "VLMEvalKit of the published GMAI-MMBench numbers: a lone letter, else an option's text",
)
def vlmevalkit_2024_06(reply: str | None, sample: Sample) -> Answer:
    """Read an option, of at most 26, as for the published GMAI-MMBench numbers, which count invalid as wrong.

    Example:
        >>> sample = Sample({"options": ["polyp", "ulcer"]})
        >>> vlmevalkit_2024_06("B is what the image shows, I would say", sample).value
        'B'
    """
    return _read(reply, sample.options, newest=False)


@extractor(
    "vlmevalkit_2026_06",
    AnswerKind.CHOICE,
    "VLMEvalKit at 2cf2a36: a letter among the last four words, 'answer is c...', else an option's text",
)
def vlmevalkit_2026_06(reply: str | None, sample: Sample) -> Answer:
    """Read an option as the newest version does.

    Example:
        >>> sample = Sample({"options": ["cardiomegaly", "edema", "nodule"]})
        >>> vlmevalkit_2026_06("The answer is cardiomegaly", sample).value
        'C'
    """
    return _read(reply, sample.options, newest=True)


def _read(reply: str | None, options: Sequence[str], *, newest: bool) -> Answer:
    text = given_text(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    letters = [letter(index) for index in range(len(options))]
    if NO_REPLY in text:  # the reference goes on: an option whose text the message contains is chosen
        return _by_text(text.lower(), options, letters, newest=newest)
    if any(refusal in text for refusal in _REFUSALS):
        return Answer.invalid(Reason.REFUSED)
    words = spoken_words(text)
    named = [name for name in letters if name in words]
    if len(named) == 1 and (not newest or words.index(named[0]) >= len(words) - _LAST_WORDS):
        return Answer.ok(named[0])
    if not named and NO_OPTION in words:
        return Answer.invalid(Reason.NO_MATCH)
    declared = _ANSWER_IS.search(text) if newest else None
    if declared and declared[1].upper() in letters:
        return Answer.ok(declared[1].upper())
    return _by_text(text.lower(), options, letters, newest=newest)


def spoken_words(text: str) -> list[str]:
    """Return the words of a reply without the marks next to which a letter counts."""
    return text.translate(_TO_BLANKS).split()


def _by_text(reply: str, options: Sequence[str], letters: Sequence[str], *, newest: bool) -> Answer:
    if newest and len(reply) > 2 * sum(len(option) for option in options):
        return Answer.invalid(Reason.NO_MATCH)
    return Answer.only([name for name, option in zip(letters, options, strict=True) if option.lower() in reply])
