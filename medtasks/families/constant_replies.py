"""Replies of models that do not look at the image: the same to every question, or the most frequent target.

A strategy says which *answer* is meant to each sample; the words that a rule reads as this answer differ from rule to
rule and are found by :mod:`medtasks.scores.baselines`. Frequencies are those of these samples' targets, so that the
accuracy is the best that the same answer to every question can have.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from medtasks.data.privacy import is_private
from medtasks.data.samples import Sample, letter
from medtasks.metrics.ngram_metrics import CLOSED

_LONGEST_NAME = 20
_MOST_CONSTANTS = 6  # of more options, only the most frequent is of interest


@dataclass(frozen=True)
class ExpectedAnswer:
    """Answer of a constant reply to one sample, and the replies that give it."""

    said: tuple[str, ...]  # replies that may be read as it, the likeliest first
    # Value of the score that the family must give the reply, or ``correct`` if that has no ``value``; None where any
    # reading will do.
    value: object = None
    option: int | None = (
        None  # index of the option for tasks that compare likelihoods; None for all options alike
    )
    whole: bool = False  # whether ``said`` must be taken as it is, and no other way to write the option is tried


@dataclass(frozen=True)
class Strategy:
    """A way to answer without looking: a name such as ``always A``, one sentence, and what is meant to each sample."""

    name: str
    describes: str
    meant: tuple[ExpectedAnswer, ...]


MeaningOf = Callable[[Sample, int], ExpectedAnswer]


def option_by_letter(sample: Sample, index: int) -> ExpectedAnswer:
    """Build the constant reply that names option ``index`` by its letter."""
    name, text = letter(index), sample.options[index]
    return ExpectedAnswer((name, f"{name}. {text}", text), name, index)


def option_strategies(samples: Sequence[Sample]) -> list[Strategy]:
    """Return each letter that every question has, of at most six, and the most frequent answer, of known targets."""
    same = len({len(sample.options) for sample in samples}) == 1
    among = "of these questions" if same else "of the questions with as many options"
    describes = f"Answers the letter that is most often right {among}."
    most = most_frequent_option("most frequent answer", describes, samples, option_by_letter)
    return [*each_option(samples, option_by_letter), *most] if most else []


def each_option(samples: Sequence[Sample], mean: MeaningOf) -> list[Strategy]:
    """Return the strategies that always choose one of the options that every question has, if these are not many.

    Questions without any options are none of these. Options are called by their texts where these are short, public and
    always the same, else by their letters.
    """
    texts = {sample.options for sample in samples if sample.options}
    fewest = min(map(len, texts), default=0)
    if not 0 < fewest <= _MOST_CONSTANTS:
        return []
    options = next(iter(texts))
    plain = (
        len(texts) == 1
        and len({*options}) == len(options)
        and max(map(len, options)) <= _LONGEST_NAME
    )
    by_text = plain and not is_private(str(samples[0].dataset))
    return [
        Strategy(
            f"always {name}",
            f"Answers {name} to every question.",
            tuple(mean(sample, index) for sample in samples),
        )
        for index, name in enumerate(options if by_text else map(letter, range(fewest)))
    ]


def most_frequent_option(
    name: str, describes: str, samples: Sequence[Sample], mean: MeaningOf
) -> list[Strategy]:
    """Return the strategy that always means the most frequent target; none where a target is unknown."""
    if any(sample.target is None for sample in samples):
        return []
    frequent = most_frequent((len(sample.options), sample.target) for sample in samples)
    return [
        Strategy(
            name,
            describes,
            tuple(mean(sample, frequent[len(sample.options)]) for sample in samples),
        )
    ]


def answer_strategies(
    samples: Sequence[Sample],
    cleaned: Callable[[str], str],
    kind_of: Callable[[Sample], Any] | None = None,
) -> list[Strategy]:
    """Return "yes", "no" and the most frequent answer to each kind of question, of targets as ``cleaned``."""
    targets = [
        str(sample.document["answer"])
        for sample in samples
        if sample.document.get("answer") is not None
    ]
    if len(targets) < len(samples):
        return []
    same = [cleaned(target) for target in targets]
    closed = [target in CLOSED for target in same]
    kinds = closed if kind_of is None else list(map(kind_of, samples))
    frequent = most_frequent(zip(kinds, same, strict=True))
    # as it first occurs
    spelled = {word: target for target, word in zip(reversed(targets), reversed(same), strict=True)}

    def words(reply: str, clean: str, number: int) -> ExpectedAnswer:
        """Mean words; it is known whether they are right where they are the target, and for yes/no questions."""
        right = same[number] == clean
        return ExpectedAnswer(
            (reply, clean), right if closed[number] or right else None, whole=True
        )

    constants = [
        Strategy(
            f"always {word}",
            f"Answers {word} to every question.",
            tuple(words(word, word, number) for number in range(len(same))),
        )
        for word in ("yes", "no")
        if any(closed)
    ]
    most = tuple(
        words(spelled[frequent[kind]], frequent[kind], number) for number, kind in enumerate(kinds)
    )
    to_whom = (
        "yes/no questions and to others"
        if kind_of is None
        else "closed and to open questions of each language"
    )
    describes = f"Answers what is most often right, to {to_whom}."
    return [*constants, Strategy("most frequent answer", describes, most)]


def most_frequent(targets: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the most frequent target of each group, of equally frequent ones the least."""
    counts: dict[Any, Counter[Any]] = defaultdict(Counter)
    for group, target in targets:
        counts[group][target] += 1
    return {
        group: min(counted, key=lambda target: (-counted[target], target))
        for group, counted in counts.items()
    }
