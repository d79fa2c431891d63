"""MedHEval's closed questions: its evaluator exactly as released, and a careful rule.

Source: ``code/evaluation/close_ended_evaluation`` of https://github.com/Aofei-Chang/MedHEval at 7f7d980. Reply and
published answer go through the same rule and are compared.

Yes/no: the text up to its first full stop, without commas, cut at single blanks, says no if a piece is exactly ``No``,
``no`` or ``not``, else yes. So refusals, ``NO``, ``Nope`` and the published ``B. No`` say yes; nothing is invalid.

Options: the published text is cut at labels (see :func:`listed_options`); chosen is the option, label included, that is
most similar to the whole reply, so that a lone letter may become another option. A reply and a published answer that
are both like no option are equal, which is right. A question without an option B counts like the average question with
options of its source and type.

By a slip the evaluator calls all replies wrong if the last one of the file is empty. As no score may depend on the
order of the questions, the last reply counts as not empty here.

The careful rule, ``medheval_strict``, uses :func:`medtasks.extract.careful.yes_no.yes_no` and ``robust_choice``.
Invalid is wrong; a question whose published answer names no single option is in no accuracy.

Called by the registry and, for gold answers, by the family. Faults of the original must stay in the reference.
"""

import enum
import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from medtasks.data.samples import Sample, letter
from medtasks.extract.careful.robust_choice import robust_choice
from medtasks.extract.careful.yes_no import yes_no
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.failure import failure_cause
from medtasks.extract.published.medevalkit_choice import most_similar
from medtasks.extract.reading.negation import starts_of

BINARY = "binary"  # kind of a yes/no question; others have options
YES, NO = "A", "B"  # letters of the options Yes and No

_LABEL = re.compile(r"(?<!\w)[A-Z][:.]|[A-Z]\)")
_DENIALS = frozenset(("No", "no", "not"))


class Counted(enum.StrEnum):
    """Weight of a question in the accuracies."""

    SCORED = "scored"
    LEFT_OUT = "left_out"
    AVERAGED = "averaged"  # not scored, but it counts as many times as the average question of its cell


def listed_options(choices: str) -> tuple[str, ...]:
    """Return the options in a published text, label included, from A up to the first missing letter.

    A label is a capital with a colon or full stop that follows no letter or digit, or any capital with a closing
    bracket, even that of "(CT)". Of several texts with the same label the last counts.

    Example:
        >>> listed_options("A: cyst, B: scar, D: mass")
        ('A: cyst', 'B: scar')
    """
    texts = _texts_by_label(choices)
    return tuple(texts[label] for label in itertools.takewhile(texts.__contains__, "ABCDEF"))


@lru_cache(maxsize=8192)
def _texts_by_label(choices: str) -> Mapping[str, str]:
    """Return the text of each option, label included, by the letter of its label."""
    pieces = itertools.pairwise([*starts_of(_LABEL, choices), len(choices)])
    return {choices[start]: choices[start:end].strip(", ") for start, end in pieces}


@extractor(
    "medheval_reference",
    AnswerKind.CLOSED,
    "MedHEval at 7f7d980: yes unless it says no; most similar option",
)
def medheval_reference(reply: str | None, sample: Sample) -> Answer:
    """Read a reply as the released evaluator does.

    A reply of None is empty. The sample needs ``kind``, ``choices`` and ``gold``. Facts: ``target``, the letter read
    from the published answer, None if that is like no option; ``correct``, possible even for an invalid answer; and
    ``counted``.
    """
    text = reply or ""
    document = sample.document
    counted = Counted.SCORED
    if document["kind"] != BINARY:
        options = listed_options(document["choices"])
        value = _nearest_letter(text, options)
        target = _nearest_letter(document["gold"], options)
        if "B" not in _texts_by_label(document["choices"]):
            counted = Counted.AVERAGED
    else:
        value = _said_verdict(text)
        target = _said_verdict(document["gold"])
    failed = failure_cause(text) is not None
    facts = {"target": target, "correct": not failed and value == target, "counted": counted}
    if failed:
        return Answer.invalid(Reason.ADAPTER_FAILED, **facts)
    if value is None:
        return Answer.invalid(Reason.NO_MATCH if text.strip() else Reason.EMPTY, **facts)
    return Answer.ok(value, **facts)


def _said_verdict(text: str) -> str:
    """Return the letter of yes or no that the evaluator reads from a text."""
    pieces = text.partition(".")[0].replace(",", "").split(" ")
    return YES if _DENIALS.isdisjoint(pieces) else NO


def _nearest_letter(text: str, options: tuple[str, ...]) -> str | None:
    """Return the letter of the option that the evaluator reads from a text, None if it is like none."""
    index = most_similar(options, text)
    return None if index is None else letter(index)


@extractor(
    "medheval_strict",
    AnswerKind.CLOSED,
    "MedHEval, closed questions, read with care",
    version=4,
)
def medheval_strict(reply: str | None, sample: Sample) -> Answer:
    """Read a reply with care, and compare it with the sample's ``answer``. None is an empty reply.

    The text of a yes/no question explains statements.
    """
    if sample.document["kind"] == BINARY:
        answer = yes_no(reply, sample.question, sample.languages)
        if answer.value:
            answer = Answer.ok({"yes": YES, "no": NO}[answer.value])
        return with_target(answer, sample)
    # Options such as T2 and T2*, or < 5 mm and > 5 mm, are the same without their punctuation.
    text = (reply or "").strip().casefold()
    plain_options = list(map(str.casefold, sample.options))
    if text and plain_options.count(text) == 1:
        return with_target(Answer.ok(letter(plain_options.index(text))), sample)
    options = sample.options or ("",) * 6  # MedHEval has at most six
    return with_target(robust_choice(reply, replace(sample, written_options=options)), sample)


def with_target(answer: Answer, sample: Sample) -> Answer:
    """Compare an answer with the target: add ``target``, ``correct`` and ``counted``."""
    target = sample.document["answer"]
    counted = Counted.LEFT_OUT if target is None else Counted.SCORED
    correct = target is not None and answer.value == target
    return replace(
        answer, facts={**answer.facts, "target": target, "correct": correct, "counted": counted}
    )
