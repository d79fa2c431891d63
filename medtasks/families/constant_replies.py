"""What models would say that do not look at the image: the same to every question, or what is most often right.

A strategy says which *answer* is meant to each sample; the words that a rule reads as this answer differ from rule to
rule and are found by :mod:`medtasks.audit.baselines`. What is most frequent is counted in the targets of these samples,
so that its accuracy is the best that the same answer to every question can have.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from medtasks.data.privacy import is_private
from medtasks.data.samples import Sample, letter
from medtasks.metrics.overlaps import is_closed

_LONGEST_NAME = 20
_MOST_CONSTANTS = 6  # of more options, only the most frequent is of interest


@dataclass(frozen=True)
class Meant:
    """The answer that is meant to one sample."""

    said: tuple[str, ...]  # replies that may say it, the likeliest first
    # What the family must make of the reply: ``value`` of its score, or ``correct`` if that has no ``value``. None
    # where any reading will do.
    value: object = None
    option: int | None = None  # index of the option for tasks that compare likelihoods; None for all options alike
    whole: bool = False  # whether ``said`` must be taken as it is, and no other way to write the option is tried


@dataclass(frozen=True)
class Strategy:
    """A way to answer without looking: a name such as ``always A``, one sentence, and what is meant to each sample."""

    name: str
    describes: str
    meant: tuple[Meant, ...]


MeaningOf = Callable[[Sample, int], Meant]


def lettered(sample: Sample, index: int) -> Meant:
    """Mean the option of an index, which is called by its letter."""
    name, text = letter(index), sample.options[index]
    return Meant((name, f"{name}. {text}", text), name, index)


def option_strategies(samples: Sequence[Sample]) -> list[Strategy]:
    """Return each letter that every question has, of at most six, and the most frequent answer.

    There is none where a target is not known.
    """
    same = len({len(sample.options) for sample in samples}) == 1
    among = "of these questions" if same else "of the questions with as many options"
    describes = f"Answers the letter that is most often right {among}."
    most = most_frequent_option("most frequent answer", describes, samples, lettered)
    return [*each_option(samples, lettered), *most] if most else []


def each_option(samples: Sequence[Sample], mean: MeaningOf) -> list[Strategy]:
    """Return the strategies that always choose one of the options that every question has, if these are not many.

    Questions without any options are none of these.
    """
    fewest = min((len(sample.options) for sample in samples if sample.options), default=0)
    return [
        Strategy(
            f"always {name}", f"Answers {name} to every question.", tuple(mean(sample, index) for sample in samples)
        )
        for index, name in enumerate(_names(samples, fewest) if fewest <= _MOST_CONSTANTS else ())
    ]


def most_frequent_option(name: str, describes: str, samples: Sequence[Sample], mean: MeaningOf) -> list[Strategy]:
    """Return the strategy that always means what is most often right; none where a target is not known."""
    if any(sample.target is None for sample in samples):
        return []
    frequent = most_frequent((len(sample.options), sample.target) for sample in samples)
    return [Strategy(name, describes, tuple(mean(sample, frequent[len(sample.options)]) for sample in samples))]


def _names(samples: Sequence[Sample], number: int) -> list[str]:
    """Return what the first options are called: their texts where these are short, public and always the same."""
    letters = [letter(index) for index in range(number)]
    texts = {sample.options for sample in samples if sample.options}
    options = next(iter(texts))
    plain = len(texts) == 1 and len({*options}) == len(options) and max(map(len, options)) <= _LONGEST_NAME
    return list(options[:number]) if plain and not is_private(str(samples[0].dataset)) else letters


def answer_strategies(
    samples: Sequence[Sample], cleaned: Callable[[str], str], kind_of: Callable[[Sample], Any] | None = None
) -> list[Strategy]:
    """Return "yes", "no" and the most frequent answers to each kind of question; none where a target is not known.

    ``cleaned`` gives what of targets makes them the same. Without ``kind_of`` there are yes/no questions and others.
    """
    targets = [str(sample.document["answer"]) for sample in samples if sample.document.get("answer") is not None]
    if len(targets) < len(samples):
        return []
    same = [cleaned(target) for target in targets]
    asked = [(is_closed(target), target) for target in same]
    kinds = [closed for closed, _ in asked] if kind_of is None else list(map(kind_of, samples))
    frequent = most_frequent(zip(kinds, same, strict=True))
    # as it first occurs
    spelled = {word: target for target, word in zip(reversed(targets), reversed(same), strict=True)}
    found = [
        Strategy(
            f"always {word}",
            f"Answers {word} to every question.",
            tuple(_words(word, closed, target, word) for closed, target in asked),
        )
        for word in ("yes", "no")
        if any(closed for closed, _ in asked)
    ]
    most = tuple(
        _words(spelled[frequent[kind]], closed, target, frequent[kind])
        for kind, (closed, target) in zip(kinds, asked, strict=True)
    )
    to_whom = "yes/no questions and to others" if kind_of is None else "closed and to open questions of each language"
    describes = f"Answers what is most often right, to {to_whom}."
    return [*found, Strategy("most frequent answer", describes, most)]


def _words(reply: str, closed: bool, target: str, said: str) -> Meant:
    """Mean words; it is known whether they are right where they are the target, and for yes/no questions."""
    return Meant((reply, said), target == said if closed or target == said else None, whole=True)


def most_frequent(targets: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the most frequent target of each group, of equally frequent ones the least.

    Example:
        >>> most_frequent([("yes/no", "A"), ("yes/no", "B"), ("other", "C")])
        {'yes/no': 'A', 'other': 'C'}
    """
    counts: dict[Any, Counter[Any]] = defaultdict(Counter)
    for group, target in targets:
        counts[group][target] += 1
    return {group: min(found, key=lambda target: (-found[target], target)) for group, found in counts.items()}
