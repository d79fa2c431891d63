"""Values of a run's samples under a metric, and agreement of two runs, sample by sample, under every rule.

The value of a sample in a repeated run is its mean over the repeats in which it has one (Miller, 2024, arXiv
2411.00640, section 3.1). Tests and intervals are then those of single runs. In an agreement failed samples are counted,
and are in no other number. Differences are second minus first. Comparisons, plans and boards call this. It never runs a
model.
"""

import itertools
import math
import operator
from collections import Counter
from collections.abc import Collection, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, TypeVar

import numpy as np

from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Documents, Sample
from medtasks.errors import RepliesError, UnknownName, unknown_name
from medtasks.extract.published.letter_choice import most_likely
from medtasks.families.counts import is_stopped
from medtasks.families.family import Replies, Reply, compares_texts
from medtasks.families.text_metrics import NO_MEAN, NotComparable
from medtasks.metrics.metric import (
    AnyMetric,
    CorpusMetric,
    Estimate,
    Role,
    Score,
    mean,
    units_by_cluster,
)
from medtasks.metrics.report_metrics import REPORT_METRICS, keys_of
from medtasks.scores.scoring import AUROC, class_metrics, score_rows
from medtasks.scores.task_calibration import area_by_sample
from medtasks.stats.sample_design import mean_and_error
from medtasks.stats.standard_error import Dyad
from medtasks.tasks.task_file import TaskFile

_Value = TypeVar("_Value")
REPEAT = ", repeat "
OF_CLASSES = "of classes"  # all metrics of classes, of which a task may have none
Values = Mapping[str, tuple[Hashable, float]]
"""Cluster and value by sample."""
TestKey = tuple[str, str]
"""Names of a rule and a metric. A rule is named as its row of the task's results, such as ``robust``."""
ScoresById = Mapping[str, Score]
BothScores = tuple[ScoresById, ScoresById]
"""Scores of two runs under one rule."""
ReplyPairs = Mapping[str, tuple[Reply, Reply]]
"""Replies of two runs, neither of which failed, by sample id."""
NEAR_TIE = 0.25
"""Margin, in nats per token, up to which a flip is one at a near tie: two options, each moved by the spacing of
bfloat16 (8 bits) between 16 and 32, which is 0.125; such logits are usual."""
_EXAMPLES = 5


@dataclass(frozen=True)
class RunValues:
    """Values of one run, or means over its repeats."""

    rules: Mapping[str, str]  # name and version of each extractor by row
    values: Mapping[TestKey, Values]
    skipped: Mapping[TestKey, str]  # why a metric has no values
    # By row and sample id, which tells the repeat, too.
    scores: Mapping[str, ScoresById]


def chosen_metrics(
    task: TaskFile,
    names: Sequence[str] = (),
    documents: Documents = (),
) -> list[AnyMetric]:
    """Return the metrics to compare.

    Args:
        task: The task.
        names: Names of metrics; if empty, all with a standard error but rates of unusable replies. Sensitivity,
            specificity and AUROC are those of each class, or of one, as ``sensitivity (Edema)``. :data:`OF_CLASSES`
            names them all.
        documents: All documents of the task, which have the names of classes; only needed for metrics of classes.

    Raises:
        UnknownName: There is no such metric that can be compared.
        RepliesError: The task scores nothing.
    """
    metrics: list[AnyMetric] = [*task.family.compared_only]
    metrics += [metric for metric in task.metrics if metric.is_compared]
    if names:
        first_of_classes = len(metrics)
        metrics += class_metrics(task, documents)
        comparable = [metric.name for metric in metrics]
        keys: set[str] = set()
        for name in names:
            if name == OF_CLASSES:
                keys.update(comparable[first_of_classes:])
            else:
                keys |= _keys_of(task, name, comparable)
        metrics = [metric for metric in metrics if metric.name in keys]
    else:
        metrics = [metric for metric in metrics if metric.role is not Role.RATE]
    if not metrics:
        raise RepliesError(f"'{task.name}' scores nothing, so that there is nothing to compare")
    return metrics


def _keys_of(task: TaskFile, name: str, comparable: Sequence[str]) -> set[str]:
    """Return the names of the comparable metrics that a name means.

    Raises:
        UnknownName: There are none.
    """
    if name in REPORT_METRICS:
        parts = {*keys_of(name)}.intersection(comparable)
    else:
        parts = {key for key in comparable if key.startswith(f"{name} (")}
    if parts or name in comparable:
        return parts or {name}
    if any(metric.name == name for metric in task.metrics):
        raise UnknownName(
            f"'{name}' has no value per sample; those that can be compared: {', '.join(comparable)}"
        )
    raise unknown_name("metric", name, comparable)


def main_metrics(task: TaskFile) -> list[AnyMetric]:
    """Return the main metrics of a task that can be compared, or else its first metric that can.

    Raises:
        RepliesError: The task has no metric that can be compared.
    """
    metrics = chosen_metrics(task)
    return [metric for metric in metrics if metric.role is Role.MAIN] or metrics[:1]


def without_failures(
    replies: Replies, samples: Container[str] | None = None
) -> dict[str, Reply]:
    """Return the replies that did not fail by document id.

    Args:
        replies: Replies by document id.
        samples: Ids of the only documents whose replies are returned; None for all.
    """
    kept = {}
    for doc_id, reply in replies.items():
        if not reply.is_failure and (samples is None or doc_id in samples):
            kept[doc_id] = reply
    return kept


def run_values(
    task: TaskFile,
    documents: Documents,
    replies: Replies,
    metrics: Collection[AnyMetric],
) -> RunValues:
    """Return the values of one run's samples under every rule. A metric that is not their mean is skipped.

    Args:
        task: The task.
        documents: All its documents. Those without a reply are left out.
        replies: Replies by document id.
        metrics: Metrics as :func:`chosen_metrics` returns them.
    """
    clusters = task.family.independent_clusters(list(map(Sample, documents)))
    answered = []
    samples = []
    for document, cluster in zip(documents, clusters, strict=True):
        if document["doc_id"] in replies:
            answered.append(document)
            samples.append((document["doc_id"], cluster))
    rows = score_rows(task, answered, replies)
    values: dict[TestKey, Values] = {}
    skipped: dict[TestKey, str] = {}
    for (name, (_, scores)), metric in itertools.product(rows.items(), metrics):
        key = (name, metric.name)
        if metric.name.startswith(AUROC):
            class_name = metric.name.removeprefix(AUROC)[:-1]
            values[key] = area_by_sample(task, documents, replies, class_name)
            continue
        try:
            of_samples = task.family.sample_values(metric, scores, samples)
            values[key] = with_drawn_units(of_samples, scores)
            _check_mean(task, metric, scores, values[key])
        except NotComparable as error:
            values[key] = {}
            skipped[key] = str(error)
    ids = [doc_id for doc_id, _ in samples]
    rules = {}
    by_id = {}
    for name, (rule, scores) in rows.items():
        rules[name] = rule
        by_id[name] = dict(zip(ids, scores, strict=True))
    return RunValues(rules, values, skipped, by_id)


def with_drawn_units(values: Values, scores: Sequence[Score]) -> Values:
    """Replace clusters and dyads by the units of a draw that hold them, if the scores are of drawn samples."""
    drawn = units_by_cluster(scores)
    if not drawn:
        return values
    replaced = {}
    for sample, (cluster, value) in values.items():
        name = cluster.first if isinstance(cluster, Dyad) else str(cluster)
        replaced[sample] = (drawn[name], value)
    return replaced


def is_mean(values: Values, metric: AnyMetric, scores: Sequence[Score]) -> bool:
    """Return whether the mean of values of samples is the value of a metric."""
    average = estimate_mean(values.values()).value
    return math.isclose(average, metric.estimate(scores).value, rel_tol=1e-9, abs_tol=1e-12)


def estimate_mean(values: Collection[tuple[Hashable, float]]) -> Estimate:
    """Estimate a mean, that of the whole benchmark if the units were drawn from it.

    Args:
        values: Cluster, or unit of a draw, and value of each sample or question.
    """
    units = [unit for unit, _ in values]
    average, error = mean_and_error([value for _, value in values], units)
    return Estimate.with_error(average, error)


def _check_mean(
    task: TaskFile, metric: AnyMetric, scores: Sequence[Score], values: Values
) -> None:
    """Raise NotComparable if a metric is not the mean of these values."""
    # Texts are compared with their mean already, by computing all their metrics.
    texts = compares_texts(metric)
    if values and not texts and not is_mean(values, metric, scores):
        raise NotComparable(NO_MEAN)
    # Of pairs none may be complete, which is reported of both runs together.
    if values or task.family.paired:
        return
    if is_stopped(scores):
        raise NotComparable("has no number, because the published code stops")
    of_all = isinstance(metric, CorpusMetric) and not texts
    raise NotComparable(NO_MEAN if of_all else "has no value per sample")


def mean_values(
    task: TaskFile,
    documents: Documents,
    repeats: Sequence[Replies],
    metrics: Collection[AnyMetric],
) -> RunValues:
    """Return each sample's mean value over the repeats in which it has one.

    Args:
        task: The task.
        documents: All its documents.
        repeats: Replies of each repeat by document id, of which at least one has a reply.
        metrics: Metrics as :func:`chosen_metrics` returns them.
    """
    all_runs = [run_values(task, documents, replies, metrics) for replies in repeats]
    answered = [run for run, replies in zip(all_runs, repeats, strict=True) if replies]
    first = answered[0]
    values: dict[TestKey, Values] = {}
    for key in first.values:
        values[key] = means_by_question([run.values[key] for run in answered])
    skipped: dict[TestKey, str] = {}
    for run in answered:
        skipped |= run.skipped
    scores = {row: by_repeat([run.scores[row] for run in all_runs]) for row in first.scores}
    return RunValues(first.rules, values, skipped, scores)


def means_by_question(repeats: Sequence[Values]) -> Values:
    """Return the cluster of each question, or pair, and the mean of its values (:func:`values_by_question`)."""
    means = {}
    for question, (cluster, values) in values_by_question(repeats).items():
        means[question] = (cluster, mean(values))
    return means


def values_by_question(repeats: Sequence[Values]) -> dict[str, tuple[Hashable, list[float]]]:
    """Return the cluster of each question, or pair, and its values in the repeats in which it has one.

    Where a repeat lacks an answer to one image of a pair, the dyad of a repeat that has both counts.

    Example:
        >>> values_by_question([{"q1": ("scan 1", 1.0), "q2": ("scan 2", 0.0)}, {"q1": ("scan 1", 0.0)}])
        {'q1': ('scan 1', [1.0, 0.0]), 'q2': ('scan 2', [0.0])}
    """
    by_question: dict[str, tuple[Hashable, list[float]]] = {}
    for repeat in repeats:
        for question, (cluster, value) in repeat.items():
            largest, of_question = by_question.get(question, (cluster, []))
            largest = max(largest, cluster, key=_images_of)
            by_question[question] = (largest, [*of_question, value])
    return by_question


def _images_of(unit: Hashable) -> tuple[int, str]:
    """Return the number of different images of a dyad, and a text that decides between equal ones."""
    return len({unit.first, unit.second}) if isinstance(unit, Dyad) else 0, str(unit)


def by_repeat(repeats: Sequence[Mapping[str, _Value]]) -> dict[str, _Value]:
    """Return replies or scores of all repeats by sample id, to which the second and later repeats are added.

    Example:
        >>> by_repeat([{"q1": "A"}, {"q1": "B"}])
        {'q1': 'A', 'q1, repeat 2': 'B'}
    """
    values: dict[str, _Value] = {}
    for number, repeat in enumerate(repeats, 1):
        ending = f"{REPEAT}{number}" if number > 1 else ""
        for sample, value in repeat.items():
            values[f"{sample}{ending}"] = value
    return values


@dataclass(frozen=True)
class Overlap:
    """Numbers of samples that both, one or none of two runs replied to."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @classmethod
    def of(cls, first: Replies, second: Replies, samples: int) -> "Overlap":
        """Count the replies to a task of this many samples."""
        left, right = first.keys(), second.keys()
        neither = samples - len(left | right)
        return cls(len(left & right), len(left - right), len(right - left), neither)


@dataclass(frozen=True)
class Failures:
    """Numbers of failed samples, among those in both runs."""

    only_first: int
    only_second: int
    both: int

    @property
    def one_sided_failures(self) -> int:
        """Number of samples that failed in one run only."""
        return self.only_first + self.only_second


@dataclass(frozen=True)
class TextAgreement:
    """Agreement of replies that are texts. "Different" ones differ in more than white space."""

    samples: int
    equal: int  # to the last byte
    equal_but_spaces: int  # only after white space is normalised
    # Different replies of which the second run's begins with the first run's.
    first_is_beginning: int
    second_is_beginning: int
    # Quantiles of how many both of two different replies begin with.
    characters: Mapping[str, float] | None
    words: Mapping[str, float] | None  # likewise
    at_first_word: int  # different replies without a common first word
    differing: tuple[str, ...]  # ids of different replies, the earliest to part first


@dataclass(frozen=True)
class Flip:
    """A sample for which the two runs choose different options."""

    sample: str
    margin: float  # by which the best option in the first run leads, in nats per token


@dataclass(frozen=True)
class LikelihoodAgreement:
    """Agreement of options' mean negative log-likelihoods per token."""

    samples: int
    equal: int  # samples with all options equal to the last digit
    options: int  # of all samples; those with finite differences are in the next three
    absolute: Mapping[str, float] | None  # quantiles
    mean_absolute: float
    mean_signed: float
    equal_choices: int  # samples with the same most likely option, or the same tie
    flips: tuple[Flip, ...]  # the other samples, the widest margin first
    greedy_options: int  # options whose greedy flag both runs recorded
    equal_greedy: int


@dataclass(frozen=True)
class AnswerAgreement:
    """Agreement of the answers that one rule extracts."""

    samples: int  # with an answer in at least one run; only these can agree
    equal: int
    neither: int  # samples without an answer in either run
    only_first: int
    only_second: int
    differing: tuple[str, ...]  # ids


@dataclass(frozen=True)
class Agreement:
    """Agreement of two runs of one task."""

    overlap: Overlap  # of all samples, failed ones too
    failed: Failures
    texts: TextAgreement | None  # None where replies are likelihoods
    likelihoods: LikelihoodAgreement | None  # None where replies are texts
    # By row; empty where scores hold no answers, as of reports.
    answers: Mapping[str, AnswerAgreement]

    @property
    def all_equal(self) -> bool:
        """Whether every reply is equal to the last byte, and every likelihood to the last digit."""
        compared = self.overlap.both - self.failed.one_sided_failures - self.failed.both
        return compared == sum(part.equal for part in (self.texts, self.likelihoods) if part)

    @property
    def examples(self) -> list[str]:
        """Ids of a few samples that differ most: flips at the widest margins, other answers, the earliest to part."""
        samples = [flip.sample for flip in self.likelihoods.flips] if self.likelihoods else []
        for part in self.answers.values():
            samples += part.differing
        if self.texts:
            samples += self.texts.differing
        return list(dict.fromkeys(samples))[:_EXAMPLES]


def agreement(
    first: Replies,
    second: Replies,
    samples: int,
    scores: Mapping[str, BothScores],
    *,
    hashed: bool = False,
) -> Agreement:
    """Compare two runs' replies to a task.

    Args:
        first: Replies of the first run by sample id, with the number of the repeat if there are several; failed ones
            included.
        second: Those of the second run.
        samples: Number of samples of the task, times the repeats that are compared.
        scores: Scores of both runs by row, of replies that did not fail. A row without a value in both is left out.
        hashed: Whether reported ids of samples are hashed, as for a private task.
    """

    def reported_id(sample: str) -> str:
        name, mark, number = sample.partition(REPEAT)
        return hidden_id("doc", name) + mark + number if hashed else sample

    failed: Counter[tuple[bool, bool]] = Counter()
    pairs = {}
    for sample, reply in first.items():
        if sample in second:
            other = second[sample]
            failed[reply.is_failure, other.is_failure] += 1
            if not (reply.is_failure or other.is_failure):
                pairs[reported_id(sample)] = (reply, other)
    answers = {}
    for row, (of_first, of_second) in scores.items():
        values = {}
        for sample, score in of_first.items():
            if "value" in score and "value" in of_second.get(sample, ()):
                values[reported_id(sample)] = (score["value"], of_second[sample]["value"])
        if values:
            answers[row] = _answer_agreement(values)
    return Agreement(
        Overlap.of(first, second, samples),
        Failures(failed[True, False], failed[False, True], failed[True, True]),
        text_agreement(pairs),
        likelihood_agreement(pairs),
        answers,
    )


def _answer_agreement(values: Mapping[str, tuple[Any, Any]]) -> AnswerAgreement:
    """Compare the answers in two runs by sample id, None for a reply without a valid answer."""
    answered = {sample: pair for sample, pair in values.items() if pair != (None, None)}
    differing = tuple(sample for sample, (a, b) in answered.items() if a != b)
    return AnswerAgreement(
        samples=len(answered),
        equal=len(answered) - len(differing),
        neither=len(values) - len(answered),
        only_first=sum(b is None for _, b in answered.values()),
        only_second=sum(a is None for a, _ in answered.values()),
        differing=differing,
    )


def text_agreement(pairs: ReplyPairs) -> TextAgreement | None:
    """Compare two runs' replies that are texts. Return None if none of them is one."""
    samples = 0
    equal = 0
    first_is_beginning = 0
    second_is_beginning = 0
    common: dict[str, tuple[int, int]] = {}  # characters and words that both begin with
    for sample, replies in pairs.items():
        if replies[0].losses is not None:
            continue
        texts = [str(reply.text) for reply in replies]
        words = list(map(str.split, texts))
        samples += 1
        equal += texts[0] == texts[1]
        if words[0] == words[1]:
            continue
        first, second = map(" ".join, words)
        first_is_beginning += second.startswith(first)
        second_is_beginning += first.startswith(second)
        common[sample] = (len(commonprefix(texts)), len(commonprefix(words)))  # noqa: RUF071  # no paths
    if not samples:
        return None
    numbers_of_words = [words for _, words in common.values()]
    return TextAgreement(
        samples=samples,
        equal=equal,
        equal_but_spaces=samples - equal - len(common),
        first_is_beginning=first_is_beginning,
        second_is_beginning=second_is_beginning,
        characters=_quantiles([characters for characters, _ in common.values()]),
        words=_quantiles(numbers_of_words),
        at_first_word=numbers_of_words.count(0),
        differing=tuple(sorted(common, key=common.__getitem__)),
    )


def _quantiles(values: Sequence[float]) -> dict[str, float] | None:
    """Return median, two quantiles and maximum, interpolated, or None without values."""
    if not values:
        return None
    shares = {"median": 0.5, "q90": 0.9, "q99": 0.99, "max": 1.0}
    return {name: float(np.quantile(values, share)) for name, share in shares.items()}


def likelihood_agreement(pairs: ReplyPairs) -> LikelihoodAgreement | None:
    """Compare two runs' likelihoods by sample id.

    Args:
        pairs: Replies of both runs. Those that are texts, or have different numbers of options, are left out.

    Returns:
        The agreement, or None if no likelihoods are left.
    """
    samples = 0
    equal = 0
    differences: list[float] = []
    flips = []
    greedy: list[tuple[bool, bool]] = []
    for sample, (first, second) in pairs.items():
        before = first.losses
        after = second.losses
        if before is None or after is None or len(before) != len(after):
            continue
        samples += 1
        equal += before == after
        differences += map(operator.sub, after, before)
        greedy += zip(first.greedy or (), second.greedy or (), strict=False)
        if most_likely(before) != most_likely(after):
            best, following = [*sorted(before), math.inf][:2]
            margin = 0.0 if best == following else following - best  # both may be infinite
            flips.append(Flip(sample, margin))
    if not samples:
        return None
    finite = list(filter(math.isfinite, differences))
    absolute = list(map(abs, finite))
    return LikelihoodAgreement(
        samples=samples,
        equal=equal,
        options=len(differences),
        absolute=_quantiles(absolute),
        mean_absolute=mean(absolute),
        mean_signed=mean(finite),
        equal_choices=samples - len(flips),
        flips=tuple(sorted(flips, key=lambda flip: -flip.margin)),
        greedy_options=len(greedy),
        equal_greedy=sum(itertools.starmap(operator.eq, greedy)),
    )
