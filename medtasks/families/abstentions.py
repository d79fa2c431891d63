"""Questions with an option to abstain (stress variant ``_abstain``): each family of one right option, with two metrics.

Coverage is the share of questions that got one of the other options: an invalid reply is no answer either. To the
task's own metrics an abstention is a wrong answer.
"""

from collections.abc import Iterable
from typing import Any

from medtasks.data.samples import Sample, letter
from medtasks.families.choice import is_right
from medtasks.families.family import Reply, Rule, TaskFamily
from medtasks.families.paired_choice import mean_over_answers, paired_answers
from medtasks.metrics.metric import AnyMetric, Metric, Score
from medtasks.metrics.pairs import answers_by_pair

COVERAGE = "coverage"
ACCURACY = "acc_of_answered"
_COVERAGE_SENTENCE = "Share of questions answered with another option than the one to abstain."
_ACCURACY_SENTENCE = "Share of these answers that are right; undefined if there are none."


class Abstaining(TaskFamily):
    """Base that marks the option to abstain in scores, which :func:`abstaining` puts before another family."""

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Return the score of the other family, with an abstention counted as a wrong answer."""
        score = super()._score(sample, reply, rule)
        last = len(sample.options) - 1
        if "classes" not in score:
            return {**score, "abstention": letter(last)}
        value = None if score["value"] == last else score["value"]  # it is no class
        return {**score, "classes": last, "value": value, "abstention": last}


def has_answer(score: Score) -> bool:
    """Return whether an option other than the one to abstain was read.

    Example:
        >>> has_answer({"value": "A", "abstention": "E"}), has_answer({"value": "E", "abstention": "E"})
        (True, False)
    """
    return score["value"] not in (None, score["abstention"])


def abstaining(family: TaskFamily) -> TaskFamily:
    """Return a family for the same questions with an option to abstain, and two more metrics.

    They are the coverage and the accuracy of the answered questions. They come after the first metric, whose selection
    of samples is theirs, too.

    Args:
        family: Family of one right option, whose class is made without arguments. The last option of its documents is
            the one to abstain, which :func:`medtasks.data.variants.abstain` adds.
    """
    base = type(family)
    abstaining_family: TaskFamily = type(f"Abstaining{base.__name__}", (Abstaining, base), {})()
    first, *others = family.metrics
    coverage: AnyMetric
    accuracy: AnyMetric
    if family.paired:  # with standard errors over pairs of images
        coverage = mean_over_answers(
            COVERAGE,
            lambda answer: answer.value is not None,
            higher_is_better=None,
            selection=first.selection,
            units=_pairs_with_abstentions,
            description=_COVERAGE_SENTENCE,
        )
        accuracy = mean_over_answers(
            ACCURACY,
            lambda answer: answer.correct,
            selection=first.selection,
            units=lambda scores: _pairs_with_abstentions(filter(has_answer, scores)),
            description=_ACCURACY_SENTENCE,
        )
    else:
        coverage = Metric(
            COVERAGE,
            None,
            first.selection,
            description=_COVERAGE_SENTENCE,
            of=lambda score: float(has_answer(score)),
        )
        accuracy = Metric(
            ACCURACY,
            selection=first.selection,
            description=_ACCURACY_SENTENCE,
            of=lambda score: is_right(score) if has_answer(score) else None,
        )
    abstaining_family.metrics = (first, coverage, accuracy, *others)
    return abstaining_family


def _pairs_with_abstentions(scores: Iterable[Score]) -> Any:
    """Return the answers to each pair, an abstention without a value."""
    marked = [score if has_answer(score) else {**score, "value": None} for score in scores]
    return answers_by_pair(paired_answers(marked))
