"""Questions with an option to abstain (stress variant ``_abstain``): each family of one right option, with two metrics.

Coverage is the share of questions that got one of the other options: an invalid reply is no answer either. To the
task's own metrics an abstention is a wrong answer.
"""

from collections.abc import Callable
from typing import Any

from medtasks.data.samples import Sample, letter
from medtasks.families.choice import is_right
from medtasks.families.family import Reply, Rule, TaskFamily
from medtasks.families.paired_choice import mean_over_answers, paired_answers
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score, ScoreList
from medtasks.metrics.pairs import answers_by_pair

COVERAGE, ACCURACY = "coverage", "acc_of_answered"
_DESCRIPTIONS = {
    COVERAGE: "Share of questions answered with another option than the one to abstain.",
    ACCURACY: "Share of these answers that are right; undefined if there are none.",
}


class Abstaining(TaskFamily):
    """Base that marks the option to abstain in scores; :func:`abstaining` puts it before another family."""

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Return the score of the other family, with the value that an abstention has there."""
        score, last = super()._score(sample, reply, rule), len(sample.options) - 1
        if "classes" not in score:
            return {**score, "abstention": letter(last)}
        value = None if score["value"] == last else score["value"]  # it is no class
        return {**score, "classes": last, "value": value, "abstention": last}


def is_answered(score: Score) -> bool:
    """Return whether an option other than the one to abstain was read."""
    return score["value"] not in (None, score["abstention"])


def abstaining(family: TaskFamily) -> TaskFamily:
    """Return a family for the same questions with an option to abstain, with coverage and accuracy of the answered."""
    made: TaskFamily = type(f"Abstaining{type(family).__name__}", (Abstaining, type(family)), {})()
    selection = family.metrics[0].selection
    declared: dict[str, Any] = {"selection": selection, "role": Role.PART}
    metrics: tuple[AnyMetric, ...] = (
        Metric(
            COVERAGE,
            None,
            description=_DESCRIPTIONS[COVERAGE],
            of=lambda s: float(is_answered(s)),
            **declared,
        ),
        Metric(ACCURACY, description=_DESCRIPTIONS[ACCURACY], of=_right_if_answered, **declared),
    )
    if family.paired:  # standard errors over pairs of images

        def answers(scores: ScoreList, *, asked: Callable[[Score], bool]) -> Any:
            read = [
                score if is_answered(score) else {**score, "value": None}
                for score in scores
                if asked(score)
            ]
            return answers_by_pair(paired_answers(read))

        metrics = (
            mean_over_answers(
                COVERAGE,
                lambda answer: answer.value is not None,
                higher_is_better=None,
                units=lambda scores: answers(scores, asked=lambda _: True),
                description=_DESCRIPTIONS[COVERAGE],
                **declared,
            ),
            mean_over_answers(
                ACCURACY,
                lambda answer: answer.correct,
                units=lambda scores: answers(scores, asked=is_answered),
                description=_DESCRIPTIONS[ACCURACY],
                **declared,
            ),
        )
    made.metrics = (family.metrics[0], *metrics, *family.metrics[1:])
    return made


def _right_if_answered(score: Score) -> float | None:
    return is_right(score) if is_answered(score) else None
