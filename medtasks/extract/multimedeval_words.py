"""MultiMedEval's rules that look for fixed words: PubMedQA's yes, no and maybe, and MedNLI's labels.

Source: ``PubMedQA.get_predicted_answer`` in ``multimedeval/qa.py`` and ``MedNLI.get_predicted_answer`` in
``multimedeval/mednli.py`` of https://github.com/corentin-ryr/MultiMedEval at d9ac283, and the same methods of v0.1.0.
"""

from collections.abc import Sequence

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor import Kind, extractor
from medtasks.extract.failure import failure_cause
from medtasks.extract.multimedeval_cleaning import clean_head, clean_v0_1_0
from medtasks.extract.multimedeval_option import Cleaner

_WORDS = ("yes", "no", "maybe")  # of equally frequent words the earlier counts


def _most_frequent(reply: str | None, options: Sequence[str], clean: Cleaner) -> Answer:
    if reply is not None and failure_cause(reply) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    cleaned = clean(reply or "")
    if not cleaned.strip():
        return Answer.invalid(Reason.EMPTY)
    tokens = cleaned.split(" ")  # only at blanks: the older cleaner leaves tabs, and "yes\tno" is neither yes nor no
    word = max(_WORDS, key=tokens.count)
    named = [index for index, option in enumerate(options) if word in clean(option).split()]
    return Answer.ok(letter(named[0])) if word in tokens and named else Answer.invalid(Reason.NO_MATCH)


@extractor(
    "multimedeval_yes_no_maybe_head",
    kind=Kind.CHOICE,
    version=1,
    summary="MultiMedEval, PubMedQA, cleaner at d9ac283: most frequent of yes, no, maybe",
)
def multimedeval_yes_no_maybe_head(reply: str | None, sample: Sample) -> Answer:
    """Read yes, no or maybe, with the cleaner at d9ac283.

    Args:
        reply: Raw reply.
        sample: Its options are one with the word "yes", one with "no", one with "maybe", in any order.

    Returns:
        The letter of the word that the cleaned reply has most often, in a tie yes before no before maybe; ``empty``
        when cleaning leaves no word, ``no_match`` without any of the three. With a colon or a star it is another word.

    Example:
        >>> sample = Sample({"options": ["yes", "no", "maybe"]})
        >>> multimedeval_yes_no_maybe_head("No, there is no effect. Yes?", sample).value
        'B'
    """
    return _most_frequent(reply, sample.options, clean_head)


@extractor(
    "multimedeval_yes_no_maybe_v0_1_0",
    kind=Kind.CHOICE,
    version=1,
    summary="MultiMedEval, PubMedQA, cleaner of v0.1.0: most frequent of yes, no, maybe",
)
def multimedeval_yes_no_maybe_v0_1_0(reply: str | None, sample: Sample) -> Answer:
    """Read yes, no or maybe, with the cleaner of v0.1.0 (published numbers of PubMedQA).

    Args:
        reply: Raw reply.
        sample: Its options are one with the word "yes", one with "no", one with "maybe", in any order.

    Returns:
        The letter of the word that the cleaned reply has most often, in a tie yes before no before maybe; ``empty``
        when cleaning leaves no word, ``no_match`` without any of the three.

    Example:
        >>> sample = Sample({"options": ["yes", "no", "maybe"]})
        >>> multimedeval_yes_no_maybe_v0_1_0("**Maybe:** unclear", sample).value
        'C'
    """
    return _most_frequent(reply, sample.options, clean_v0_1_0)


@extractor(
    "multimedeval_nli",
    kind=Kind.CHOICE,
    version=1,
    summary="MultiMedEval, MedNLI: the one label that occurs in the reply, with case",
)
def multimedeval_nli(reply: str | None, sample: Sample) -> Answer:
    """Read the one label whose text occurs in the reply, with case and inside words (MedNLI; the same in v0.1.0).

    Args:
        reply: Raw reply, not cleaned.
        sample: Its options are the labels as published, in lower case.

    Returns:
        The letter of the label that occurs; ``ambiguous`` when several do, ``no_match`` when none does, ``empty`` for a
        reply of blanks.

    Example:
        >>> sample = Sample({"options": ["entailment", "contradiction", "neutral"]})
        >>> multimedeval_nli("They are contradictions.", sample).value
        'B'
        >>> str(multimedeval_nli("Entailment", sample).reason)
        'no_match'
    """
    if reply is None or not reply.strip():
        return Answer.invalid(Reason.EMPTY)
    if failure_cause(reply) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    found = [index for index, label in enumerate(sample.options) if label in reply]
    if len(found) == 1:
        return Answer.ok(letter(found[0]))
    return Answer.invalid(Reason.AMBIGUOUS if found else Reason.NO_MATCH)
