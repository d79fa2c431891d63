"""How far the replies, the likelihoods and the answers of two runs agree, sample by sample.

Failed samples are in no number here: whoever calls leaves them out and counts them. Ids are those of documents.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from medtasks.extract.likelihood import most_likely
from medtasks.families.family import Reply
from medtasks.metrics.metric import Score

NEAR_TIE = 0.25
"""Margin, in nats per token, below which a flip is one at a near tie: two options, each moved by the spacing of
bfloat16 (8 bits) between 16 and 32, which is 0.125; such logits are usual."""
_SPREAD = (0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Quantiles:
    """Of at least one number."""

    median: float
    q90: float
    q99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quantiles | None":
        """Return the quantiles with linear interpolation; None of no number."""
        return cls(*map(float, np.quantile(np.asarray(values, dtype=float), _SPREAD))) if len(values) else None


@dataclass(frozen=True)
class TextAgreement:
    """Replies that are texts."""

    samples: int
    equal: int  # to the last byte
    equal_but_spaces: int  # only after white space is normalised
    # of those that differ even then: how many are the beginning of the other run's reply (which one is shorter counts)
    first_is_beginning: int
    second_is_beginning: int
    # where they part, counted from 0: characters, or white-space separated words, that both begin with
    characters: Quantiles | None
    words: Quantiles | None
    at_first_word: int  # how many part within their first word
    differing: tuple[str, ...]  # ids of those that differ even with white space normalised, the earliest to part first

    @property
    def different(self) -> int:
        """How many differ in more than white space."""
        return self.samples - self.equal - self.equal_but_spaces


@dataclass(frozen=True)
class Flip:
    """A sample for which the two runs choose another option."""

    sample: str
    margin: float  # by which the best option in A leads, in nats per token


@dataclass(frozen=True)
class LikelihoodAgreement:
    """Mean negative log-likelihoods per token, of options; differences are second minus first."""

    samples: int
    equal: int  # all options' to the last digit
    options: int  # of all samples; only those with finite differences are in the next four
    absolute: Quantiles | None
    mean_absolute: float
    mean_signed: float
    equal_choices: int  # samples with the same most likely option, or the same tie
    flips: tuple[Flip, ...]  # the others, the widest margin first
    greedy_options: int  # options whose greedy flag both runs recorded
    equal_greedy: int

    @property
    def near_ties(self) -> int:
        """How many flips are at near ties."""
        return sum(flip.margin <= NEAR_TIE for flip in self.flips)


@dataclass(frozen=True)
class AnswerAgreement:
    """What one rule read from the replies of both runs."""

    samples: int  # with an answer in at least one run; only these can agree
    equal: int
    neither: int  # samples in which the rule found an answer in neither run
    only_first: int  # how many of the others have an answer in one run only
    only_second: int
    differing: tuple[str, ...]  # ids


Pairs = Mapping[str, tuple[Reply, Reply]]


def text_agreement(pairs: Pairs) -> TextAgreement | None:
    """Compare replies by document id; None where none of them is a text."""
    texts = {name: (str(a.text), str(b.text)) for name, (a, b) in pairs.items() if a.losses is None}
    if not texts:
        return None
    parted = {name: two for name, two in texts.items() if _spaced(two[0]) != _spaced(two[1])}
    places = {name: _parting(*two) for name, two in parted.items()}
    return TextAgreement(
        samples=len(texts),
        equal=sum(a == b for a, b in texts.values()),
        equal_but_spaces=sum(a != b for name, (a, b) in texts.items() if name not in parted),
        first_is_beginning=_count(parted.values(), lambda a, b: _spaced(b).startswith(_spaced(a))),
        second_is_beginning=_count(parted.values(), lambda a, b: _spaced(a).startswith(_spaced(b))),
        characters=Quantiles.of([place for place, _ in places.values()]),
        words=Quantiles.of([word for _, word in places.values()]),
        at_first_word=sum(word == 0 for _, word in places.values()),
        differing=tuple(sorted(places, key=lambda name: places[name])),
    )


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _count(texts: Iterable[tuple[str, str]], holds: Callable[[str, str], bool]) -> int:
    return sum(holds(a, b) for a, b in texts)


def _parting(first: str, second: str) -> tuple[int, int]:
    """Return how many characters and how many whole words two texts both begin with.

    Example:
        >>> _parting("No, the lung is clear.", "No, the lungs are clear.")
        (12, 2)
    """
    return _common(first, second), _common(first.split(), second.split())


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    unequal = (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    return next(unequal, min(len(first), len(second)))


def likelihood_agreement(pairs: Pairs) -> LikelihoodAgreement | None:
    """Compare likelihoods by document id; None where there are none, or only of another number of options."""
    known = {
        name: (a, b, a.losses, b.losses)
        for name, (a, b) in pairs.items()
        if a.losses is not None and b.losses is not None and len(a.losses) == len(b.losses)
    }
    if not known:
        return None
    differences = [after - before for *_, a, b in known.values() for before, after in zip(a, b, strict=True)]
    finite = [one for one in differences if math.isfinite(one)]
    flips = [Flip(name, _margin(a)) for name, (_, _, a, b) in known.items() if most_likely(a) != most_likely(b)]
    flags = [
        (before, after)
        for first, second, *_ in known.values()
        for before, after in zip(first.greedy or (), second.greedy or (), strict=False)
    ]
    return LikelihoodAgreement(
        samples=len(known),
        equal=sum(a == b for *_, a, b in known.values()),
        options=len(differences),
        absolute=Quantiles.of([abs(one) for one in finite]),
        mean_absolute=math.fsum(map(abs, finite)) / len(finite) if finite else math.nan,
        mean_signed=math.fsum(finite) / len(finite) if finite else math.nan,
        equal_choices=len(known) - len(flips),
        flips=tuple(sorted(flips, key=lambda flip: -flip.margin)),
        greedy_options=len(flags),
        equal_greedy=sum(before == after for before, after in flags),
    )


def _margin(losses: Sequence[float]) -> float:
    """Return by how much the smallest loss is below the next; 0 for a tie, infinite for an only option."""
    best, following = [*sorted(losses), math.inf][:2]
    return 0.0 if best == following else following - best


def answer_agreement(first: Mapping[str, Score], second: Mapping[str, Score]) -> AnswerAgreement | None:
    """Compare what a rule read, by document id; None where the task's scores say no answers, as of reports."""
    read = {
        name: (first[name]["value"], second[name]["value"])
        for name in first
        if name in second and "value" in first[name] and "value" in second[name]
    }
    if not read:
        return None
    answered = {name: two for name, two in read.items() if two != (None, None)}
    return AnswerAgreement(
        samples=len(answered),
        equal=sum(a == b for a, b in answered.values()),
        neither=len(read) - len(answered),
        only_first=sum(b is None for _, b in answered.values()),
        only_second=sum(a is None for a, _ in answered.values()),
        differing=tuple(name for name, (a, b) in answered.items() if a != b),
    )
