"""Replies of models that do not look at the image: the same to every question, or the most frequent target.

A strategy says which *answer* is meant to each sample; the words that a rule reads as this answer differ from rule to
rule and are found by :mod:`medtasks.scores.baselines`. Frequencies are those of these samples' targets, so that the
accuracy is the best that the same answer to every question can have. No strategy may use anything of a single image.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from medtasks.data.privacy import is_private
from medtasks.data.samples import Sample, Samples, first_letters, letter
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
    # Index of the option for tasks that compare likelihoods, None for all options alike.
    option: int | None = None
    # Whether ``said`` must be taken as it is, and no other way to write the option is tried.
    whole: bool = False


@dataclass(frozen=True)
class Strategy:
    """A way to answer without looking at the image."""

    name: str  # such as ``always A``
    describes: str  # in one sentence
    meant: tuple[ExpectedAnswer, ...]  # to each sample


AnswerFor = Callable[[Sample, int], ExpectedAnswer]


def option_by_letter(sample: Sample, index: int) -> ExpectedAnswer:
    """Build the constant reply that names option ``index`` by its letter.

    Example:
        >>> option_by_letter(Sample({"options": ["cyst", "scar"]}), 1).said
        ('B', 'B. scar', 'scar')
    """
    name = letter(index)
    text = sample.options[index]
    return ExpectedAnswer((name, f"{name}. {text}", text), name, index)


def option_strategies(samples: Samples) -> list[Strategy]:
    """Return each letter that every question has, of at most six, and the most frequent answer, of known targets."""
    same = len({len(sample.options) for sample in samples}) == 1
    among = "of these questions" if same else "of the questions with as many options"
    most = most_frequent_option(
        "most frequent answer",
        f"Answers the letter that is most often right {among}.",
        samples,
        option_by_letter,
    )
    if not most:
        return []
    return each_option(samples, option_by_letter) + most


def each_option(samples: Samples, answer_for: AnswerFor) -> list[Strategy]:
    """Return the strategies that always choose one of the options that every question has, if these are not many.

    Questions without any options are none of these. Options are called by their texts where these are short, public and
    always the same, else by their letters.

    Args:
        samples: The samples.
        answer_for: Function from a sample and the index of an option to the answer that names it.
    """
    texts = {sample.options for sample in samples} - {()}
    fewest = min(map(len, texts), default=0)
    if not 0 < fewest <= _MOST_CONSTANTS:
        return []
    names = first_letters(fewest)
    options = next(iter(texts))
    is_same = len(texts) == 1 and len({*options}) == len(options)
    is_short = max(map(len, options)) <= _LONGEST_NAME
    if is_same and is_short and not is_private(str(samples[0].dataset)):
        names = list(options)
    strategies = []
    for index, name in enumerate(names):
        answers = tuple(answer_for(sample, index) for sample in samples)
        strategies.append(_always(name, answers))
    return strategies


def _always(name: str, answers: tuple[ExpectedAnswer, ...]) -> Strategy:
    return Strategy(f"always {name}", f"Answers {name} to every question.", answers)


def most_frequent_option(
    name: str,
    describes: str,
    samples: Samples,
    answer_for: AnswerFor,
) -> list[Strategy]:
    """Return the strategy that always names the most frequent target, none where a target is unknown.

    Args:
        name: Name of the strategy.
        describes: Its description in one sentence.
        samples: The samples.
        answer_for: Function from a sample and the index of an option to the answer that names it.
    """
    if any(sample.target is None for sample in samples):
        return []
    frequent = most_frequent((len(sample.options), sample.target) for sample in samples)
    answers = tuple(answer_for(sample, frequent[len(sample.options)]) for sample in samples)
    return [Strategy(name, describes, answers)]


def answer_strategies(
    samples: Samples,
    clean: Callable[[str], str],
    kind_of: Callable[[Sample], Any] | None = None,
) -> list[Strategy]:
    """Return "yes", "no" and the most frequent answer to each kind of question.

    Args:
        samples: Samples with the column ``answer``. There are no strategies if one has no answer.
        clean: Function from a target to the text that is compared.
        kind_of: Function from a sample to the kind of its question, by default whether its target is yes or no.
    """
    targets_as_written = [sample.document.get("answer") for sample in samples]
    if None in targets_as_written:
        return []
    spellings = list(map(str, targets_as_written))
    targets = list(map(clean, spellings))
    closed = list(map(CLOSED.__contains__, targets))
    kinds: list[Any] = closed
    groups = "yes/no questions and to others"
    if kind_of is not None:
        kinds = list(map(kind_of, samples))
        groups = "closed and to open questions of each language"
    frequent = most_frequent(zip(kinds, targets, strict=True))
    # As it first occurs.
    spelling_of = dict(zip(reversed(targets), reversed(spellings), strict=True))

    def answer(
        reply: str,
        target: str,
        number: int,
    ) -> ExpectedAnswer:
        """Build an answer, known to be right if it is the target, and to be wrong of a yes/no question."""
        is_right = targets[number] == target
        value = is_right if closed[number] or is_right else None
        return ExpectedAnswer((reply, target), value, whole=True)

    strategies = []
    if any(closed):
        for word in CLOSED:
            answers = tuple(answer(word, word, number) for number in range(len(targets)))
            strategies.append(_always(word, answers))
    most = []
    for number, kind in enumerate(kinds):
        most.append(answer(spelling_of[frequent[kind]], frequent[kind], number))
    strategies.append(
        Strategy(
            "most frequent answer",
            f"Answers what is most often right, to {groups}.",
            tuple(most),
        )
    )
    return strategies


def most_frequent(targets: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return the most frequent target of each group, of equally frequent ones the least.

    Args:
        targets: Group and target of each sample.

    Example:
        >>> most_frequent([("closed", "yes"), ("closed", "no"), ("open", "left")])
        {'closed': 'no', 'open': 'left'}
    """
    counts: dict[Any, Counter[Any]] = defaultdict(Counter)
    for group, target in targets:
        counts[group][target] += 1
    frequent = {}
    for group, by_target in counts.items():
        most = max(by_target.values())
        frequent[group] = min(target for target, count in by_target.items() if count == most)
    return frequent
