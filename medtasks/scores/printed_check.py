"""A number that a paper prints, against the replies that it was computed from.

``medtasks check`` calls this. It explains a number only where a value, rounded to its digits, is equal to it.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TypeGuard

from medtasks.data.samples import Documents
from medtasks.errors import RepliesError, unknown_name
from medtasks.extract.extractor_registry import AnswerKind, Reason
from medtasks.families.family import Replies
from medtasks.metrics.metric import AnyMetric, Metric, Score, ScoreList
from medtasks.runs.sample_counts import SampleCounts
from medtasks.scores.score_model import MetricScore, careful_rule, published_rule
from medtasks.scores.scoring import (
    RowScores,
    answered_documents,
    main_metric,
    score_replies,
    score_rows,
)
from medtasks.tasks.task_file import TaskFile

_NUMBER = re.compile(r"([-−+]?(?:\d+|(?=\.\d))(?:\.\d+)?)\s*%?")
_GUESSED = "fallback"  # field of scores: whether similarity or a draw made the reply an option
_SLACK = Decimal("1e-9")  # of sums of binary fractions


@dataclass(frozen=True)
class RuleScore:
    """Score of one metric under one rule."""

    row: str
    rule: str  # name and version
    score: MetricScore
    failure: str  # why it has no value


@dataclass(frozen=True)
class PrintedCheck:
    """Scores of recorded replies next to a number that a paper prints.

    Attributes:
        metric: Metric that it is a value of.
        printed: The number with its digits, in percent if the metric is a share.
        is_published: Whether the compared rule is a published one.
        compared: Score that the number is compared with: under the published, else the careful rule.
        careful: Score under the careful rule; None if it is the compared one, or the task has no such rule.
        counts: Numbers of scored and failed samples.
        samples: Number of samples of the task.
        missing: Number of those without a reply.
        explanations: Values by what they are of, which rounded are the printed number although the score is not.
        valued: Number of samples that have a value of the metric; None for rates, and for what is no mean over samples.
        guessed: Part of the value from guessed replies; 0 for a metric that is no mean over samples.
        guesses: What is known of these replies, in words that follow "replies".
    """

    metric: str
    printed: Decimal
    is_published: bool
    compared: RuleScore
    careful: RuleScore | None
    counts: SampleCounts
    samples: int
    missing: int
    explanations: Mapping[str, float] = field(default_factory=dict)
    valued: int | None = None
    guessed: float = 0.0
    guesses: str = ""

    @property
    def is_consistent(self) -> bool:
        """Whether the number is the score, rounded."""
        score = self.compared.score
        return is_rounded(self.printed, score.value, score.share)


def printed_number(text: str) -> Decimal:
    """Read a number such as ``72.5`` or ``72.5 %`` with its digits.

    Example:
        >>> printed_number("72.50 %")
        Decimal('72.50')

    Raises:
        RepliesError: The text is no number.
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise RepliesError(f"--printed {text} is no number; give it as printed, such as 72.5")
    return Decimal(match[1].replace("−", "-"))


def in_printed_unit(value: float, share: bool) -> Decimal:
    """Return a value as papers print it: a share in percent.

    Example:
        >>> in_printed_unit(0.725, share=True)
        Decimal('72.500')
    """
    return Decimal(repr(float(value))) * (100 if share else 1)


def is_rounded(printed: Decimal, value: float, share: bool) -> bool:
    """Return whether a value becomes the printed number when it is rounded to the same digits.

    Example:
        >>> is_rounded(Decimal("72.5"), 0.7254, share=True)
        True
    """
    half = Decimal(5).scaleb(int(printed.as_tuple().exponent) - 1)
    return (
        math.isfinite(value) and abs(printed - in_printed_unit(value, share)) <= half + _SLACK
    )


def check_printed(
    task: TaskFile,
    documents: Documents,
    replies: Replies,
    printed: Decimal,
    name: str | None,
) -> PrintedCheck:
    """Compare a printed number with the score of replies.

    Args:
        task: The task.
        documents: All its documents.
        replies: Replies by document id.
        printed: The number.
        name: Metric that it is a value of; None for the task's main one.

    Raises:
        RepliesError: The number is no percentage, though the metric is a share.
        UnknownName: The task has no such metric.
    """
    name = name or main_metric(task).name
    metric = {metric.name: metric for metric in task.metrics}.get(name)
    further = [name] if metric is None and task.family.kind is AnswerKind.REPORT else []
    answered = answered_documents(documents, replies)
    row_scores = score_rows(task, answered, replies)
    rules = score_replies(task, documents, replies, further, row_scores)
    by_row = {}
    for row, rule in rules.items():
        if name not in rule.estimates:
            raise unknown_name("metric", name, rule.estimates)
        by_row[row] = RuleScore(
            row, rule.rule, rule.estimates[name], rule.failures.get(name, "")
        )
    careful = careful_rule(rules)
    compared = published_rule(rules) or careful or next(iter(rules.values()))
    verdict = PrintedCheck(
        metric=name,
        printed=printed,
        is_published=compared is published_rule(rules),
        compared=by_row.pop(compared.name),
        careful=by_row.get(careful.name if careful else ""),
        counts=compared.counts,
        samples=len(documents),
        missing=len(documents) - len(replies),
    )
    if not 0 <= printed <= 100 and verdict.compared.score.share:
        raise RepliesError(
            f"--printed {printed} is no percentage, and '{name}' is a share; give it in percent"
        )
    return _with_explanations(verdict, by_row.values(), metric, row_scores)


def _with_explanations(
    verdict: PrintedCheck,
    others: Iterable[RuleScore],
    metric: AnyMetric | None,
    row_scores: RowScores,
) -> PrintedCheck:
    """Add the part of guessed replies, and what else the number is of if it is not the score.

    Args:
        verdict: The check so far.
        others: Scores under the other rules.
        metric: The metric; None if the task does not declare it.
        row_scores: Scores of the samples by row.
    """
    values = {}
    for other in others:
        values[f"the number under the rule '{other.row}' ({other.rule})"] = other.score.value
    scores = row_scores[verdict.compared.row][1]
    if _is_share_of_samples(metric, scores):
        careful = row_scores[verdict.careful.row][1] if verdict.careful else ()
        guessed, guesses = _guesses(metric, scores, careful)
        valued = len(metric.values(scores))
        verdict = replace(verdict, valued=valued, guessed=guessed, guesses=guesses)
        values |= _other_counts(verdict, metric, scores)
    if verdict.is_consistent:
        return verdict
    score = verdict.compared.score
    equal = {}
    for description, value in values.items():
        if is_rounded(verdict.printed, value, score.share):
            equal[description] = value
    if is_rounded(verdict.printed, score.value, not score.share):
        unit = "as a fraction, and --printed is in percent" if score.share else "times 100"
        equal[f"the same number {unit}"] = score.value
    return replace(verdict, explanations=equal)


def _is_share_of_samples(
    metric: AnyMetric | None, scores: ScoreList
) -> TypeGuard[Metric[Score]]:
    """Return whether a metric is a mean over samples that is higher for better replies.

    It is not if it is None, for a metric that the task does not declare.
    """
    if not isinstance(metric, Metric) or not metric.higher_is_better:
        return False
    return all(isinstance(unit, dict) for unit, _ in metric.values(scores))


def _guesses(metric: Metric[Score], scores: ScoreList, careful: ScoreList) -> tuple[float, str]:
    """Return the part of a metric that comes from guessed replies, and a description of them.

    Where the rule does not tell its guesses, these are the replies in which the careful rule finds no answer.
    """
    guessed = {score["sample"] for score in scores if score.get(_GUESSED)}
    guesses = "read by similarity"
    if not any(_GUESSED in score for score in scores):
        guessed = {score["sample"] for score in careful if score["reason"] != Reason.OK}
        guesses = "in which a careful reading finds no answer"

    def of_guess(score: Score) -> float | None:
        value = metric.of(score)
        return value if value is None or score["sample"] in guessed else 0.0

    return replace(metric, of=of_guess).estimate(scores).value, guesses


def _other_counts(
    verdict: PrintedCheck,
    metric: Metric[Score],
    scores: ScoreList,
) -> dict[str, float]:
    """Return the values with other samples in the denominator, or counted as wrong."""
    readable = []
    for score in scores:
        if score["reason"] == Reason.OK and not score.get(_GUESSED):
            readable.append(score)
    value = verdict.compared.score.value
    values = {
        "the number on replies with a readable answer only": metric.estimate(readable).value,
        f"the number with replies {verdict.guesses} counted as wrong": value - verdict.guessed,
    }
    if verdict.valued == verdict.counts.scored:
        of_all = value * verdict.counts.scored / verdict.samples
        values["the number with samples without a reply counted as wrong"] = of_all
    return values
