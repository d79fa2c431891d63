"""Plan of a comparison of two models on a task, from its samples, clusters and pairs, and from earlier runs.

``medtasks plan`` calls this. A plan must follow from the design and from earlier runs alone: never from replies of the
runs that it is for.
"""

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from medtasks.data.samples import Documents, Sample
from medtasks.errors import RepliesError, unknown_name
from medtasks.families.family import Replies, Reply
from medtasks.metrics.metric import AnyMetric, Scale
from medtasks.runs.recorded_replies import read_recorded
from medtasks.runs.run import Source, replies_to
from medtasks.scores.comparing import paired_values
from medtasks.scores.run_values import Values, main_metrics, run_values, without_failures
from medtasks.stats.equivalence import (
    NON_INFERIORITY,
    WORKING_CORRELATION,
    design_effect,
    detectable_difference,
    mcnemar_power,
    non_inferiority_power,
    required_samples,
)
from medtasks.stats.intervals import without_noise
from medtasks.stats.paired import ALPHA, PairedValues
from medtasks.stats.standard_error import mean_error, mean_standard_error
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_file import TaskFile


@dataclass(frozen=True)
class Assumptions:
    """Assumed properties of a comparison, with their sources in words.

    Example:
        >>> assumed = Assumptions("accuracy", 1000, 1000, 0.5, "", None, "", 1.0, "")
        >>> assumed.discordance_of(0.1)
        0.5
    """

    metric: str
    samples: int  # of the prepared data that have a value: pairs, for a metric of pairs
    clusters: int
    score: float  # of the first model
    score_source: str
    # Share of samples that one model alone gets right; None: as of independent answers.
    discordance: float | None
    discordance_source: str
    design: float  # effect: factor on the variance
    design_source: str

    def discordance_of(self, difference: float) -> float:
        """Return the discordance for a difference of the second model from the first."""
        if self.discordance is None:  # of independent answers
            second = min(1.0, max(0.0, self.score + difference))
            return self.score * (1 - second) + second * (1 - self.score)
        return min(1.0, max(self.discordance, abs(difference)))


@dataclass(frozen=True)
class Plan:
    """Answers of a plan. They are None if not requested, or if it takes too many samples."""

    assumptions: Assumptions
    level: float  # of each test, two-sided; half of it for non-inferiority, which is one-sided (CONSORT, ICH E9)
    power: float
    difference: float | None
    needed: int | None  # samples that show the difference
    reached: float | None  # power of the prepared data for it
    detectable: float  # smallest difference that the prepared data show; NaN if none
    margin: float | None
    # Samples that show that the second model is not worse by the margin.
    needed_for_margin: int | None
    reached_for_margin: float | None


def assumptions(
    task: TaskFile,
    against: float | None,
    runs: Sequence[Source],
    rule: str | None,
) -> Assumptions:
    """Estimate the properties of a comparison in a task's main metric, from its data and earlier runs.

    Args:
        task: The task.
        against: Score of the first model, as a fraction. None for that of the first run, or 0.5 without runs.
        runs: Up to two earlier runs. One gives the score and the design effect, two also the discordance.
        rule: Rule under which runs are read, named as the row of the task's results, such as ``robust``. None for the
            task's first.

    Raises:
        RepliesError: The main metric is no share of samples, runs are more than two or have no sample in common, or a
            judge reads the replies.
        UnknownName: There is no such rule.
    """
    if len(runs) > 2:
        raise RepliesError(f"a plan takes up to two earlier runs, but got {len(runs)}")
    metric = main_metrics(task)[0]
    if metric.scale is not Scale.SHARE:
        raise RepliesError(
            f"'{task.name}' is compared by {metric.name}, which is no share of samples; plan needs one"
        )
    documents = task_documents(task)
    replies = []
    for run in runs:
        recorded = read_recorded(task, documents, [replies_to(task.name, run)])
        replies.append(recorded.logged_run(task.name))
    values = [_values(task, documents, metric, of_run, rule) for of_run in replies]
    paired = None
    if runs:
        paired = paired_values(values[0], values[-1])
        if not paired[0]:
            raise RepliesError(
                f"the runs have no sample of '{task.name}' with a value in common"
            )
    units = _units(task, documents, metric)
    if not units:
        raise RepliesError(
            f"{metric.name} of '{task.name}' is no mean over samples, which plan needs"
        )
    assumed = Assumptions(
        metric=metric.name,
        samples=len(units),
        clusters=len(set(units)),
        score=0.5,  # has the largest variance
        score_source="assumed; --against or --run tell it",
        discordance=None,
        discordance_source="if both models answer independently; two runs tell it",
        design=design_effect(units),
        design_source=f"correlation {WORKING_CORRELATION} within clusters, assumed",
    )
    if paired:
        assumed = _with_measured_values(assumed, paired, are_two=len(runs) == 2)
    if against is not None:
        assumed = replace(assumed, score=against, score_source="given")
    return assumed


def _units(task: TaskFile, documents: Documents, metric: AnyMetric) -> list[Hashable]:
    """Return the cluster of each sample, or pair, that the metric has a value for. There is none if it is no mean.

    Raises:
        RepliesError: A judge reads the replies to a task of pairs.
    """
    samples = list(map(Sample, documents))
    if not task.is_computed:
        if task.family.paired:
            raise RepliesError(
                f"a judge reads replies to '{task.name}'; plan the task with the same pairs that needs none"
            )
        return list(task.family.independent_clusters(samples))
    replies = {}  # without an answer
    for sample in samples:
        losses = tuple(map(float, range(1, len(sample.options) + 1)))
        replies[sample.doc_id] = (
            Reply(losses=losses) if task.compares_likelihoods else Reply(text="")
        )
    return [cluster for cluster, _ in _values(task, documents, metric, replies, None).values()]


def _with_measured_values(
    assumed: Assumptions,
    paired: PairedValues,
    *,
    are_two: bool,
) -> Assumptions:
    """Replace what is assumed by what one run shows, or ``are_two`` on the samples that both answered."""
    first, second, clusters = paired
    measured = first
    source = "of the run's scores"
    assumed = replace(
        assumed, score=math.fsum(first) / len(first), score_source="of the first run"
    )
    if are_two:
        measured = [after - before for before, after in zip(first, second, strict=True)]
        discordance = math.fsum(map(abs, measured)) / len(measured)
        assumed = replace(
            assumed, discordance=discordance, discordance_source="of the two runs"
        )
        source = "of the runs' differences"
    error = mean_error(measured, clusters).error
    independent = mean_standard_error(measured)
    if error > 0 and independent > 0:
        design = max(1.0, without_noise((error / independent) ** 2))
        assumed = replace(assumed, design=design, design_source=source)
    return assumed


def plan(
    assumed: Assumptions,
    difference: float | None,
    margin: float | None,
    power: float,
    tests: int = 1,
) -> Plan:
    """Return the number of samples that show a difference, or non-inferiority, and the power of the prepared data.

    Args:
        assumed: Assumptions about the task.
        difference: Difference of the second model from the first, as a fraction; None if it is not planned for.
        margin: Margin of non-inferiority; None if it is not planned for. It is tested one-sided at half of the level,
            as by CONSORT (Piaggio et al., 2012, JAMA 308) and ICH E9, for a true difference of 0 if ``difference`` is
            None.
        power: Power of each test.
        tests: Number of tests that share the level of 5 %, two-sided (a lower bound of Holm's power).

    Raises:
        RepliesError: A number is out of range.
    """
    _check_numbers(assumed.score, difference, margin, power, tests)
    level = ALPHA / tests
    prepared = max(1, math.floor(without_noise(assumed.samples / assumed.design)))
    true = difference or 0.0
    discordance = assumed.discordance_of(true)
    sign = 1
    room = 1 - assumed.score
    if not room:  # the second model can only be worse
        sign = -1
        room = assumed.score

    power_for_difference = partial(
        mcnemar_power, difference=true, discordance=discordance, level=level
    )
    detectable = detectable_difference(
        lambda size: mcnemar_power(prepared, size, assumed.discordance_of(sign * size), level),
        power,
        room,
    )
    answers = Plan(
        assumed, level, power, difference, None, None, detectable, margin, None, None
    )
    if difference is not None:
        samples = _planned_samples(power_for_difference, power, assumed.design)
        answers = replace(answers, needed=samples, reached=power_for_difference(prepared))
    if margin is not None:
        power_for_margin = partial(
            non_inferiority_power,
            difference=true,
            discordance=discordance,
            margin=margin,
            level=NON_INFERIORITY / tests,
        )
        answers = replace(answers, reached_for_margin=power_for_margin(prepared))
        if true > -margin:
            samples = _planned_samples(power_for_margin, power, assumed.design)
            answers = replace(answers, needed_for_margin=samples)
    return answers


def _check_numbers(
    score: float,
    difference: float | None,
    margin: float | None,
    power: float,
    tests: int,
) -> None:
    """Raise RepliesError if a number is out of range."""
    in_range = 0 <= score <= 1 and 0 < power < 1 and tests >= 1
    if not in_range or (margin is not None and not 0 < margin < 1):
        raise RepliesError(
            "--against is between 0 and 1, --power and --margin inside of that, and --tests at least 1"
        )
    if difference is not None and (not difference or not 0 <= score + difference <= 1):
        raise RepliesError(
            f"a model that scores {score:.3g} cannot differ by {difference:.3g}; choose another --difference"
        )


def _planned_samples(
    power_of: Callable[[int], float], power: float, design: float
) -> int | None:
    """Return the number of samples that reaches a power, or None if it is too large to be of use.

    Args:
        power_of: Power by number of independent samples.
        power: The power to reach.
        design: Design effect, by which more samples are needed.
    """
    independent = required_samples(power_of, power)
    return None if independent is None else math.ceil(without_noise(independent * design))


def _values(
    task: TaskFile,
    documents: Documents,
    metric: AnyMetric,
    replies: Replies,
    rule: str | None,
) -> Values:
    """Return cluster and value of each sample that has a reply which did not fail.

    Args:
        task: The task.
        documents: All its documents.
        metric: Metric of the values.
        replies: Replies by document id.
        rule: Rule that reads them, named as the row of the task's results; None for the first.

    Raises:
        UnknownName: There is no such rule.
    """
    computed = run_values(task, documents, without_failures(replies), [metric])
    return computed.values[chosen_rule(rule, computed.rules), metric.name]


def chosen_rule(rule: str | None, rules: Collection[str]) -> str:
    """Return the name of a rule that is among a task's, or of the first one if it is None or empty.

    Raises:
        UnknownName: There is no such rule.
    """
    name = rule or next(iter(rules))
    if name not in rules:
        raise unknown_name("rule", name, rules)
    return name
