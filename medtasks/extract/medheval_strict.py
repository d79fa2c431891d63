"""MedHEval's closed questions as a careful reader would score them.

Yes/no replies are read by :func:`medtasks.extract.robust_open.yes_no`, replies to options by
:mod:`medtasks.extract.robust_choice`: letters, letters with text, and texts count, whatever the case; refusals, answers
on both sides and empty replies are invalid, and invalid is wrong. A question whose published answer names no single
option is left out of the accuracies.
"""

from medtasks.data.samples import letter
from medtasks.extract import robust_choice
from medtasks.extract.answer import Answer
from medtasks.extract.medheval_question import NO, YES, ClosedQuestion, ClosedReading, Counted
from medtasks.extract.robust_open import yes_no

_UNKNOWN_OPTIONS = ("",) * 6  # MedHEval has at most six


def read(reply: str | None, question: ClosedQuestion) -> ClosedReading:
    """Read a reply.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        question: Its ``options`` and ``answer`` are compared; a yes/no question's text helps to understand statements.

    Example:
        >>> asked = ClosedQuestion("Is there a mass?", True, "", ("Yes", "No"), "A", "Yes")
        >>> read("I'm sorry, I can't help with that.", asked).answer.reason.value
        'refused'
        >>> read("Yes, in the left lobe.", asked).correct
        True
    """
    return judged(_yes_no(reply, question) if question.binary else _chosen(reply, question), question)


def judged(answer: Answer, question: ClosedQuestion) -> ClosedReading:
    """Compare an answer, however it was read, with the question's key."""
    keyed = question.answer is not None
    correct = keyed and answer.value == question.answer
    return ClosedReading(answer, question.answer, correct, Counted.SCORED if keyed else Counted.LEFT_OUT)


def _chosen(reply: str | None, question: ClosedQuestion) -> Answer:
    # Options such as T2 and T2*, or < 5 mm and > 5 mm, are the same without their punctuation.
    said = (reply or "").strip().casefold()
    same = [index for index, option in enumerate(question.options) if said and option.casefold() == said]
    if len(same) == 1:
        return Answer.ok(letter(same[0]))
    return robust_choice.read(reply, question.options or _UNKNOWN_OPTIONS)


def _yes_no(reply: str | None, question: ClosedQuestion) -> Answer:
    answer = yes_no(reply, question.question)
    return Answer.ok({"yes": YES, "no": NO}[answer.value]) if answer.value else answer
