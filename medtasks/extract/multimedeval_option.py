"""MultiMedEval's option matching: the option with the highest BLEU-1 against the reply.

Source: ``get_predicted_answer`` in ``multimedeval/qa.py``, ``mnist.py`` and ``image_classification.py`` of
https://github.com/corentin-ryr/MultiMedEval at d9ac283, and ``getPredictedAnswer`` in the same modules of v0.1.0. Both
versions match alike and differ in the cleaner alone. A tie goes to the first option. Tasks differ where no option has a
word in common with the reply: a question has no valid answer then, an image gets the first class.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor import Kind, extractor
from medtasks.extract.failure import failure_cause
from medtasks.extract.multimedeval_cleaning import clean_head, clean_v0_1_0
from medtasks.metrics.bleu import References

Cleaner = Callable[[str], str]


@lru_cache(maxsize=4096)
def _references(clean: Cleaner, options: tuple[str, ...]) -> References:
    # A dataset asks about the same classes thousands of times.
    return References.of([clean(option) for option in options])


def _closest(reply: str | None, options: Sequence[str], clean: Cleaner) -> Answer:
    if reply is not None and failure_cause(reply) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    cleaned = clean(reply or "")
    if not cleaned.strip():
        return Answer.invalid(Reason.EMPTY)
    scores = _references(clean, tuple(options)).scores(cleaned)
    best = max(scores, default=0.0)
    return Answer.ok(letter(scores.index(best))) if best > 0 else Answer.invalid(Reason.NO_MATCH)


def _closest_class(reply: str | None, options: Sequence[str], clean: Cleaner) -> Answer:
    answer = _closest(reply, options, clean)
    if answer.reason in (Reason.EMPTY, Reason.NO_MATCH) and options:
        return Answer.ok(letter(0))
    return answer


@extractor(
    "multimedeval_option_head",
    kind=Kind.CHOICE,
    version=1,
    summary="MultiMedEval, questions, cleaner at d9ac283: highest BLEU-1",
)
def multimedeval_option_head(reply: str | None, sample: Sample) -> Answer:
    """Read the answer to a question, with the cleaner at d9ac283 (MedQA, MedMCQA, MMLU).

    Args:
        reply: Raw reply.
        sample: Its options are written the way the task compares them, for example ``"A Aortic arch"`` for MedQA.

    Returns:
        The letter of the option with the highest BLEU-1; ``empty`` when cleaning leaves no word (also of the reply "A",
        which is dropped as an article), ``no_match`` when every option scores 0.

    Example:
        >>> sample = Sample({"options": ["A aorta", "B kidney"]})
        >>> multimedeval_option_head("Answer: b", sample).value
        'B'
        >>> str(multimedeval_option_head("A", sample).reason)
        'empty'
    """
    return _closest(reply, sample.options, clean_head)


@extractor(
    "multimedeval_option_v0_1_0",
    kind=Kind.CHOICE,
    version=1,
    summary="MultiMedEval, questions, cleaner of v0.1.0: highest BLEU-1",
)
def multimedeval_option_v0_1_0(reply: str | None, sample: Sample) -> Answer:
    """Read the answer to a question, with the cleaner of v0.1.0 (published numbers of MedQA and MedMCQA).

    Args:
        reply: Raw reply.
        sample: Its options are written the way the task compares them, for example ``"a: Aortic arch."`` for MedMCQA.

    Returns:
        The letter of the option with the highest BLEU-1; ``empty`` when cleaning leaves no word, ``no_match`` when
        every option scores 0.

    Example:
        >>> sample = Sample({"options": ["a: aorta.", "b: kidney."]})
        >>> multimedeval_option_v0_1_0("(a)", sample).value
        'A'
    """
    return _closest(reply, sample.options, clean_v0_1_0)


@extractor(
    "multimedeval_class_head",
    kind=Kind.CHOICE,
    version=1,
    summary="MultiMedEval, images, cleaner at d9ac283: highest BLEU-1, else the first class",
)
def multimedeval_class_head(reply: str | None, sample: Sample) -> Answer:
    """Read the class of an image, with the cleaner at d9ac283.

    Args:
        reply: Raw reply.
        sample: Its options are the classes the way the task compares them, for example ``"1: adipose"`` for MedMNIST.

    Returns:
        The letter of the class with the highest BLEU-1, and the first class when none has a word of the reply, even for
        an empty one. A sample that the adapter could not run stays ``adapter_failed``.

    Example:
        >>> sample = Sample({"options": ["1: adipose", "2: mucus"]})
        >>> [multimedeval_class_head(reply, sample).value for reply in ("mucus", "2", "")]
        ['B', 'A', 'A']
    """
    return _closest_class(reply, sample.options, clean_head)


@extractor(
    "multimedeval_class_v0_1_0",
    kind=Kind.CHOICE,
    version=1,
    summary="MultiMedEval, images, cleaner of v0.1.0: highest BLEU-1, else the first class",
)
def multimedeval_class_v0_1_0(reply: str | None, sample: Sample) -> Answer:
    """Read the class of an image, with the cleaner of v0.1.0 (published numbers of image classification).

    Args:
        reply: Raw reply.
        sample: Its options are the classes the way the task compares them, for example ``"1: adipose"`` for MedMNIST.

    Returns:
        The letter of the class with the highest BLEU-1, and the first class when none has a word of the reply, even for
        an empty one. A sample that the adapter could not run stays ``adapter_failed``.

    Example:
        >>> sample = Sample({"options": ["1: adipose", "2: mucus"]})
        >>> [multimedeval_class_v0_1_0(reply, sample).value for reply in ("mucus", "2", "")]
        ['B', 'B', 'A']
    """
    return _closest_class(reply, sample.options, clean_v0_1_0)
