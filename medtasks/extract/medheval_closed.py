"""MedHEval's closed questions: its evaluator exactly as released, and what a careful reader would score.

Source: ``code/evaluation/close_ended_evaluation`` of https://github.com/Aofei-Chang/MedHEval at 7f7d980. Reply and
published answer go through the same rule and are compared.

Yes/no: the text up to its first full stop, without commas, cut at single blanks. If one of the pieces is exactly
``No``, ``no`` or ``not`` it says no, else yes. Nothing is invalid: refusals, ``NO``, ``Nope`` and ``Cannot tell`` say
yes, and so do the published answers ``B. No`` and ``Cannot be determined``.

Options: the published text of the options is cut at labels (see :func:`listed_options`), and the option is chosen whose
text, label included, is most similar to the whole reply. A published answer that is only a letter is compared in the
same way, so that it may become another option; a lone right letter often does not become the right one either. Where
reply and published answer are like no option they are equal, which is right. A question without an option B has no
score of its own and counts like the average question with options of its source and type.

The evaluator has a slip for empty replies: it means to count each as wrong, but looks at the last reply of the file in
place of each one. If that is empty all replies are wrong, else an empty reply says yes. A score that depends on the
order of the questions cannot be aggregated over processes, so every reply is read as if the last one were not empty.

The careful reader, ``medheval_strict``, reads yes/no replies by :func:`medtasks.extract.yes_no.yes_no`, and replies to
options by :mod:`medtasks.extract.robust_choice`: letters, letters with text, and texts count, whatever the case;
refusals, answers on both sides and empty replies are invalid, and invalid is wrong. A question whose published answer
names no single option is left out of the accuracies.
"""

import difflib
import enum
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.registry import Kind, extractor
from medtasks.extract.robust_choice import robust_choice
from medtasks.extract.yes_no import yes_no

BINARY = "binary"  # kind of a yes/no question; others have options
YES, NO = "A", "B"  # letters of the options Yes and No

_LETTERS = "ABCDEF"
_LABEL = re.compile(r"(?<!\w)[A-Z][:.]|[A-Z]\)")
_DENIALS = frozenset(("No", "no", "not"))
_UNKNOWN_OPTIONS = ("",) * 6  # MedHEval has at most six


class Counted(enum.StrEnum):
    """How a question enters the accuracies."""

    SCORED = "scored"
    LEFT_OUT = "left_out"
    AVERAGED = "averaged"  # not scored, but it counts as many times as the average question of its cell


def says_yes(text: str) -> bool:
    """Return whether a reply or a published answer counts as yes; everything that does not say no does."""
    return _DENIALS.isdisjoint(text.partition(".")[0].replace(",", "").split(" "))


def listed_options(choices: str) -> tuple[str, ...]:
    """Return the options in a published text, label included, from A up to the first missing letter.

    A label is a capital with a colon or full stop that follows no letter or digit, or any capital with a closing
    bracket, also the last one of "(CT)". Of several texts with the same label the last counts.

    Example:
        >>> listed_options("A. Left, B. Right")
        ('A. Left', 'B. Right')
        >>> listed_options("A. Computed tomography (CT), B. MRI (no ECA)")
        ('A)', 'B. MRI (no EC')
    """
    found = _labelled(choices)
    return tuple(found[label] for label in itertools.takewhile(found.__contains__, _LETTERS))


@lru_cache(maxsize=8192)
def _labelled(choices: str) -> Mapping[str, str]:
    starts = [match.start() for match in _LABEL.finditer(choices)]
    pieces = itertools.pairwise([*starts, len(choices)])
    return {choices[start]: choices[start:end].strip(", ") for start, end in pieces}


def most_similar(options: Sequence[str], text: str) -> int | None:
    """Return the index of the option most similar to a text, the earliest of equally similar ones.

    Similarity is ``difflib``'s ratio with the option as its first sequence. None where no option shares a character.
    """
    ratios = [difflib.SequenceMatcher(None, option, text).ratio() for option in options]
    best = max(ratios, default=0.0)
    return ratios.index(best) if best > 0 else None


@extractor(
    "medheval_reference",
    kind=Kind.CLOSED,
    summary=(
        "MedHEval, closed questions at 7f7d980: what does not say no says yes; the option most similar to the reply"
    ),
)
def medheval_reference(reply: str | None, sample: Sample) -> Answer:
    """Read a reply as the released evaluator does.

    The sample's ``choices`` and ``gold`` are looked at, and whether its ``kind`` is ``binary``. The answer's facts are
    ``target``, the letter that the published answer is read as; ``correct``, which also an invalid answer may be; and
    ``counted``. A sample that the adapter could not run is ``adapter_failed``, because it has no reply to read.

    Example:
        >>> asked = Sample({"kind": "binary", "choices": "", "gold": "Yes"})
        >>> medheval_reference("I'm sorry, I can't help with that.", asked).facts["correct"]
        True
    """
    said, document = reply or "", sample.document
    target: str | None
    if document["kind"] == BINARY:
        answer, target = Answer.ok(_yes_no(said)), _yes_no(document["gold"])
        counted = Counted.SCORED
    else:
        options = listed_options(document["choices"])
        gold = _gold_index(options, document["gold"])
        answer, target = _chosen(options, said), None if gold is None else letter(gold)
        counted = Counted.SCORED if "B" in _labelled(document["choices"]) else Counted.AVERAGED
    failed = failure_cause(said) is not None
    return Answer(
        None if failed else answer.value,
        Reason.ADAPTER_FAILED if failed else answer.reason,
        {"target": target, "correct": not failed and answer.value == target, "counted": counted},
    )


def _yes_no(text: str) -> str:
    return YES if says_yes(text) else NO


_gold_index = lru_cache(maxsize=8192)(most_similar)


def _chosen(options: Sequence[str], reply: str) -> Answer:
    index = most_similar(options, reply)
    if index is None:
        return Answer.invalid(Reason.NO_MATCH if reply.strip() else Reason.EMPTY)
    return Answer.ok(letter(index))


@extractor(
    "medheval_strict", kind=Kind.CLOSED, version=3, summary="MedHEval, closed questions as a careful reader scores them"
)
def medheval_strict(reply: str | None, sample: Sample) -> Answer:
    """Read a reply: it is compared with ``answer``; a yes/no question's text helps to understand statements.

    Example:
        >>> asked = Sample({"kind": "binary", "question": "Is there a mass?", "options": ["Yes", "No"], "answer": "A"})
        >>> medheval_strict("I'm sorry, I can't help with that.", asked).reason.value
        'refused'
        >>> medheval_strict("Yes, in the left lobe.", asked).facts["correct"]
        True
    """
    binary = sample.document["kind"] == BINARY
    return judged(_careful_yes_no(reply, sample) if binary else _careful_choice(reply, sample), sample)


def judged(answer: Answer, sample: Sample) -> Answer:
    """Compare an answer, however it was read, with the target: add ``target``, ``correct`` and ``counted``."""
    target = sample.document["answer"]
    counted = Counted.LEFT_OUT if target is None else Counted.SCORED
    correct = target is not None and answer.value == target
    return replace(answer, facts={**answer.facts, "target": target, "correct": correct, "counted": counted})


def _careful_choice(reply: str | None, sample: Sample) -> Answer:
    # Options such as T2 and T2*, or < 5 mm and > 5 mm, are the same without their punctuation.
    said = (reply or "").strip().casefold()
    same = [index for index, option in enumerate(sample.options) if said and option.casefold() == said]
    if len(same) == 1:
        return Answer.ok(letter(same[0]))
    return robust_choice(reply, replace(sample, written_options=sample.options or _UNKNOWN_OPTIONS))


def _careful_yes_no(reply: str | None, sample: Sample) -> Answer:
    answer = yes_no(reply, sample.question)
    return Answer.ok({"yes": YES, "no": NO}[answer.value]) if answer.value else answer
