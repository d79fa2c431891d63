"""MediConfusion's reply parser, exactly as published.

Source: ``clean_up_manual`` of https://github.com/AIF4S/MediConfusion at a3045b0. It also reads the letters that greedy
decoding and prefix scoring produce.
"""

from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor import Kind, extractor
from medtasks.extract.reply_text import given_text

LETTERS = ("A", "B")


def _accepted_tokens(letter: str) -> frozenset[str]:
    return frozenset(
        pattern.replace("L", letter) for pattern in ("L", "L:", ".L", ".L:", "L.", 'L")', '("L":', '("L")', '("L").')
    )


_TOKENS = {letter: _accepted_tokens(letter) for letter in LETTERS}


@extractor("mediconfusion_reference", kind=Kind.CHOICE, version=1, summary="MediConfusion's published parser, exactly")
def mediconfusion_reference(reply: str | None, sample: Sample) -> Answer:
    """Read a letter from a reply to a two-option question.

    Newlines become spaces, the reply is cut at single spaces, and a letter counts when one of the pieces is the letter
    in one of nine exact spellings. Exactly one of A and B must count. Case matters; ``(A)``, ``**A**`` and ``a`` are
    invalid, and the article of ``A normal brain`` is read as the letter.

    Returns:
        ``A`` or ``B``, or no value with reason ``ambiguous`` (both letters), ``empty``, ``no_match`` or
        ``adapter_failed``.

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
    found = [letter for letter in LETTERS if pieces & _TOKENS[letter]]
    if len(found) == 1:
        return Answer.ok(found[0])
    return Answer.invalid(Reason.AMBIGUOUS if found else Reason.NO_MATCH)
