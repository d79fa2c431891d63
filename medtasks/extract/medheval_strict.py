"""MedHEval's closed questions as a careful reader would score them.

Yes/no replies are read by :func:`medtasks.extract.yes_no.yes_no`, replies to options by
:mod:`medtasks.extract.robust_choice`: letters, letters with text, and texts count, whatever the case; refusals, answers
on both sides and empty replies are invalid, and invalid is wrong. A question whose published answer names no single
option is left out of the accuracies.
"""

from dataclasses import replace

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer
from medtasks.extract.extractor import Kind, extractor
from medtasks.extract.medheval_reference import BINARY, NO, YES, Counted
from medtasks.extract.robust_choice import robust_choice
from medtasks.extract.yes_no import yes_no

_UNKNOWN_OPTIONS = ("",) * 6  # MedHEval has at most six


@extractor(
    "medheval_strict",
    kind=Kind.CLOSED,
    version=1,
    summary="MedHEval, closed questions as a careful reader would score them",
)
def medheval_strict(reply: str | None, sample: Sample) -> Answer:
    """Read a reply.

    The sample's options and ``answer`` are compared; a yes/no question's text helps to understand statements.

    Example:
        >>> asked = Sample({"kind": "binary", "question": "Is there a mass?", "options": ["Yes", "No"], "answer": "A"})
        >>> medheval_strict("I'm sorry, I can't help with that.", asked).reason.value
        'refused'
        >>> medheval_strict("Yes, in the left lobe.", asked).facts["correct"]
        True
    """
    binary = sample.document["kind"] == BINARY
    return judged(_yes_no(reply, sample) if binary else _chosen(reply, sample), sample)


def judged(answer: Answer, sample: Sample) -> Answer:
    """Compare an answer, however it was read, with the target: add ``target``, ``correct`` and ``counted``."""
    target = sample.document["answer"]
    counted = Counted.LEFT_OUT if target is None else Counted.SCORED
    correct = target is not None and answer.value == target
    return replace(answer, facts={**answer.facts, "target": target, "correct": correct, "counted": counted})


def _chosen(reply: str | None, sample: Sample) -> Answer:
    # Options such as T2 and T2*, or < 5 mm and > 5 mm, are the same without their punctuation.
    said = (reply or "").strip().casefold()
    same = [index for index, option in enumerate(sample.options) if said and option.casefold() == said]
    if len(same) == 1:
        return Answer.ok(letter(same[0]))
    return robust_choice(reply, replace(sample, written_options=sample.options or _UNKNOWN_OPTIONS))


def _yes_no(reply: str | None, sample: Sample) -> Answer:
    answer = yes_no(reply, sample.question)
    return Answer.ok({"yes": YES, "no": NO}[answer.value]) if answer.value else answer
