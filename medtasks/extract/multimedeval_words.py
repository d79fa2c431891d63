"""MultiMedEval's rules that look for fixed words: PubMedQA's yes, no and maybe, and MedNLI's labels.

Source: ``PubMedQA.get_predicted_answer`` in ``multimedeval/qa.py`` and ``MedNLI.get_predicted_answer`` in
``multimedeval/mednli.py`` of https://github.com/corentin-ryr/MultiMedEval at d9ac283, and the same methods of v0.1.0.
"""

from collections.abc import Sequence

from medtasks.data.samples import letter
from medtasks.extract.answer import Answer, Reason
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


def multimedeval_yes_no_maybe_head(reply: str | None, options: Sequence[str]) -> Answer:
    """Read yes, no or maybe, with the cleaner at d9ac283.

    Args:
        reply: Raw reply.
        options: The options, one with the word "yes", one with "no", one with "maybe", in any order.

    Returns:
        The letter of the word that the cleaned reply has most often, in a tie yes before no before maybe; ``empty``
        when cleaning leaves no word, ``no_match`` without any of the three. With a colon or a star it is another word.

    Example:
        >>> multimedeval_yes_no_maybe_head("No, there is no effect. Yes?", ["yes", "no", "maybe"]).value
        'B'
    """
    return _most_frequent(reply, options, clean_head)


def multimedeval_yes_no_maybe_v0_1_0(reply: str | None, options: Sequence[str]) -> Answer:
    """Read yes, no or maybe, with the cleaner of v0.1.0 (published numbers of PubMedQA).

    Args:
        reply: Raw reply.
        options: The options, one with the word "yes", one with "no", one with "maybe", in any order.

    Returns:
        The letter of the word that the cleaned reply has most often, in a tie yes before no before maybe; ``empty``
        when cleaning leaves no word, ``no_match`` without any of the three.

    Example:
        >>> multimedeval_yes_no_maybe_v0_1_0("**Maybe:** unclear", ["yes", "no", "maybe"]).value
        'C'
    """
    return _most_frequent(reply, options, clean_v0_1_0)


def multimedeval_nli(reply: str | None, options: Sequence[str]) -> Answer:
    """Read the one label whose text occurs in the reply, with case and inside words (MedNLI; the same in v0.1.0).

    Args:
        reply: Raw reply, not cleaned.
        options: Labels as published, in lower case.

    Returns:
        The letter of the label that occurs; ``ambiguous`` when several do, ``no_match`` when none does, ``empty`` for a
        reply of blanks.

    Example:
        >>> multimedeval_nli("They are contradictions.", ["entailment", "contradiction", "neutral"]).value
        'B'
        >>> str(multimedeval_nli("Entailment", ["entailment", "contradiction", "neutral"]).reason)
        'no_match'
    """
    if reply is None or not reply.strip():
        return Answer.invalid(Reason.EMPTY)
    if failure_cause(reply) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    found = [index for index, label in enumerate(options) if label in reply]
    if len(found) == 1:
        return Answer.ok(letter(found[0]))
    return Answer.invalid(Reason.AMBIGUOUS if found else Reason.NO_MATCH)
