"""A number that a paper prints, against the replies that it was computed from."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeGuard

from medtasks.data.samples import Documents
from medtasks.errors import RepliesError, unknown_name
from medtasks.extract.extractor_registry import AnswerKind, Reason
from medtasks.families.family import Replies
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score, ScoreList
from medtasks.runs.sample_counts import SampleCounts
from medtasks.scores.score_model import MetricScore, careful_rule, published_rule
from medtasks.scores.scoring import rows_of, score_replies
from medtasks.tasks.task_file import TaskFile

_NUMBER = re.compile(r"([-−+]?\d+(?:\.\d+)?)\s*%?")
_GUESSED = "fallback"  # field of scores: whether similarity or a draw made the reply an option
_SLACK = Decimal("1e-9")  # of sums of binary fractions


@dataclass(frozen=True)
class PrintedCheck:
    """What recorded replies give where a paper prints a number.

    Attributes:
        metric: Metric that it is a value of.
        printed: The number with its digits, in percent if the metric is a share.
        is_published: Whether the compared rule is a published one.
        rule: Name and version of the rule that the number is compared with: the published, else the careful one.
        score: Score under that rule.
        careful_rule: Name and version of the careful rule; empty if it is the compared one, or there is none.
        careful: Score under the careful rule.
        counts: Numbers of scored and failed samples.
        samples: Number of samples of the task.
        missing: Number of those without a reply.
        valued: Number of samples that have a value of the metric; None for one that is no mean over samples.
        guessed: Part of the value from replies that were guessed; None if unknown.
        guesses: What is known of these replies, in words that follow "replies".
        failure: Why the compared rule gives no number.
        explanations: Values by what they are of, which rounded are the printed number although the score is not.
    """

    metric: str
    printed: Decimal
    is_published: bool
    rule: str
    score: MetricScore
    careful_rule: str
    careful: MetricScore | None
    counts: SampleCounts
    samples: int
    missing: int
    valued: int | None
    guessed: float | None
    guesses: str
    failure: str
    explanations: Mapping[str, float]

    @property
    def is_consistent(self) -> bool:
        """Whether the number is the score, rounded."""
        return is_rounded(self.printed, self.score.value, self.score.share)


def printed_number(text: str) -> Decimal:
    """Read a number such as ``72.5`` or ``72.5 %`` with its digits; raises RepliesError for any other text."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise RepliesError(f"--printed {text} is no number; give it as printed, such as 72.5")
    return Decimal(match[1].replace("−", "-"))


def in_printed_unit(value: float, share: bool) -> Decimal:
    """Return a value as papers print it: a share in percent."""
    return Decimal(repr(float(value))) * (100 if share else 1)


def is_rounded(printed: Decimal, value: float, share: bool) -> bool:
    """Return whether a value becomes the printed number when it is rounded to the same digits.

    Example:
        >>> is_rounded(Decimal("72.5"), 0.7254, share=True)
        True
    """
    half = Decimal(5).scaleb(int(printed.as_tuple().exponent) - 1)
    return math.isfinite(value) and abs(printed - in_printed_unit(value, share)) <= half + _SLACK


def check_printed(
    task: TaskFile, documents: Documents, replies: Replies, printed: Decimal, name: str | None = None
) -> PrintedCheck:
    """Compare a printed number with the score of replies.

    Args:
        task: The task.
        documents: All its documents.
        replies: Replies by document id.
        printed: The number.
        name: Metric that it is a value of; by default the task's main one.

    Raises:
        RepliesError: The number is no percentage, though the metric is a share.
        UnknownName: The task has no such metric.
    """
    metrics = {metric.name: metric for metric in task.metrics}
    further = [name] if name and name not in metrics and task.family.kind is AnswerKind.REPORT else []
    of_rows = rows_of(task, [document for document in documents if document["doc_id"] in replies], replies)
    rules = score_replies(task, documents, replies, further, of_rows)
    published = published_rule(rules)
    careful = careful_rule(rules)
    compared = published or careful or next(iter(rules.values()))
    careful = None if careful is compared else careful
    name = name or _main_metric(task)
    if name not in compared.estimates:
        raise unknown_name("metric", name, compared.estimates)
    score = compared.estimates[name]
    if score.share and not 0 <= printed <= 100:
        raise RepliesError(f"--printed {printed} is no percentage, and '{name}' is a share; give it in percent")
    metric = metrics.get(name)
    scores = of_rows[compared.name][1]
    guessed, guesses = _guesses(metric, scores, of_rows[careful.name][1] if careful else ())
    verdict = PrintedCheck(
        metric=name,
        printed=printed,
        is_published=published is not None,
        rule=compared.rule,
        score=score,
        careful_rule=careful.rule if careful else "",
        careful=careful.estimates[name] if careful else None,
        counts=compared.counts,
        samples=len(documents),
        missing=len(documents) - len(replies),
        valued=len(metric.values(scores)) if _is_mean_over_samples(metric, scores) else None,
        guessed=guessed,
        guesses=guesses,
        failure=compared.failures.get(name, ""),
        explanations={},
    )
    others = {}
    for rule in rules.values():
        if rule is not compared:
            others[f"the number under the rule '{rule.name}' ({rule.rule})"] = rule.estimates[name].value
    return replace(verdict, explanations=_explanations(verdict, others | _other_counts(verdict, metric, scores)))


def _main_metric(task: TaskFile) -> str:
    main = [metric.name for metric in task.metrics if metric.role is Role.MAIN]
    return main[0] if main else task.metrics[0].name


def _explanations(verdict: PrintedCheck, values: Mapping[str, float]) -> dict[str, float]:
    """Return the values that rounded are the printed number; none if the score is."""
    if verdict.is_consistent:
        return {}
    share = verdict.score.share
    equal = {what: value for what, value in values.items() if is_rounded(verdict.printed, value, share)}
    if is_rounded(verdict.printed, verdict.score.value, not share):
        unit = "as a fraction, and --printed is in percent" if share else "times 100"
        equal[f"the same number {unit}"] = verdict.score.value
    return equal


def _guesses(metric: AnyMetric | None, scores: ScoreList, careful: ScoreList) -> tuple[float | None, str]:
    """Return how much of a mean over samples comes from guessed replies, and what is known of them.

    Where the rule does not tell its guesses, these are the replies in which the careful rule finds no answer.
    """
    if not _is_mean_over_samples(metric, scores):
        return None, ""
    guessed = {score["sample"] for score in scores if score.get(_GUESSED)}
    guesses = "read by similarity"
    if not any(_GUESSED in score for score in scores):
        if not careful:
            return None, ""
        guessed = {score["sample"] for score in careful if score["reason"] != Reason.OK}
        guesses = "in which a careful reading finds no answer"

    def of_guess(score: Score) -> float | None:
        value = metric.of(score)
        return value if value is None or score["sample"] in guessed else 0.0

    return replace(metric, of=of_guess).estimate(scores).value, guesses


def _is_mean_over_samples(metric: AnyMetric | None, scores: ScoreList) -> TypeGuard[Metric[Score]]:
    return isinstance(metric, Metric) and all(isinstance(unit, dict) for unit, _ in metric.values(scores))


def _other_counts(verdict: PrintedCheck, metric: AnyMetric | None, scores: ScoreList) -> dict[str, float]:
    """Return the values with other samples in the denominator, or counted as wrong."""
    if not _is_mean_over_samples(metric, scores):
        return {}
    readable = [score for score in scores if score["reason"] == Reason.OK and not score.get(_GUESSED)]
    values = {"the number on replies with a readable answer only": metric.estimate(readable).value}
    if verdict.guessed:
        values[f"the number with replies {verdict.guesses} counted as wrong"] = verdict.score.value - verdict.guessed
    if verdict.valued == verdict.counts.scored and metric.weights is None:
        of_all = verdict.score.value * verdict.valued / verdict.samples
        values["the number with samples without a reply counted as wrong"] = of_all
    return values
