"""MediConfusion's reply parser, exactly as published.

Source: ``clean_up_manual`` of https://github.com/AIF4S/MediConfusion at a3045b0. It also reads the letters that greedy
decoding and prefix scoring produce.
"""

from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor_registry import AnswerKind, extractor
from medtasks.extract.reading.reply_text import given_text

LETTERS = ("A", "B")
_SPELLINGS = ("L", "L:", ".L", ".L:", "L.", 'L")', '("L":', '("L")', '("L").')
_TOKENS = {letter: {spelling.replace("L", letter) for spelling in _SPELLINGS} for letter in LETTERS}


@extractor("mediconfusion_reference", AnswerKind.CHOICE, "MediConfusion's published parser, exactly")
def mediconfusion_reference(reply: str | None, sample: Sample) -> Answer:
    """Read a letter from a reply to a two-option question.

    Newlines become spaces, the reply is cut at single spaces, and a letter counts when one of the pieces is the letter
    in one of nine exact spellings. Exactly one of A and B must count. Case matters; ``(A)``, ``**A**`` and ``a`` are
    invalid, and the article of ``A normal brain`` is read as the letter.

    Example:
        >>> mediconfusion_reference("The answer is A.", Sample({})).value
        'A'
        >>> mediconfusion_reference("(A)", Sample({})).reason.value
        'no_match'
    """
    text = given_text(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    pieces = set(text.replace("\n", " ").split(" "))
    return Answer.only([letter for letter in LETTERS if pieces & _TOKENS[letter]])
