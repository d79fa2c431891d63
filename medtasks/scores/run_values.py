"""Values of a run's samples under a metric, and agreement of two runs, sample by sample, under every rule.

The value of a sample in a repeated run is its mean over the repeats in which it has one (Miller, 2024, arXiv
2411.00640, section 3.1); tests and intervals are then those of single runs. In an agreement failed samples are counted,
and are in no other number; differences are second minus first.
"""

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, TypeVar

import numpy as np

from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Documents, Sample
from medtasks.errors import RepliesError, UnknownName, unknown_name
from medtasks.extract.published.letter_choice import most_likely
from medtasks.families.family import Replies, Reply, compares_texts
from medtasks.families.text_metrics import NO_MEAN, NotComparable
from medtasks.metrics.metric import AnyMetric, CorpusMetric, Role, Score, mean, units_by_cluster
from medtasks.metrics.report_metrics import REPORT_METRICS, keys_of
from medtasks.scores.scoring import AUROC, class_metrics, rows_of
from medtasks.scores.task_calibration import area_by_sample
from medtasks.stats.sample_design import mean_and_error
from medtasks.stats.standard_error import Dyad
from medtasks.tasks.task_file import TaskFile

_Value = TypeVar("_Value")
REPEAT = ", repeat "
OF_CLASSES = "of classes"  # all metrics of classes, of which a task may have none
Values = Mapping[str, tuple[Hashable, float]]
"""Cluster and value by sample."""
ScoresById = Mapping[str, Score]
NEAR_TIE = 0.25
"""Margin, in nats per token, up to which a flip is one at a near tie: two options, each moved by the spacing of
bfloat16 (8 bits) between 16 and 32, which is 0.125; such logits are usual."""
_EXAMPLES = 5


@dataclass(frozen=True)
class RunValues:
    """Values of one run, or means over its repeats."""

    rules: Mapping[str, str]  # name and version of each extractor by name of the rule
    values: Mapping[tuple[str, str], Values]  # by name of the rule and metric
    skipped: Mapping[
        tuple[str, str], str
    ]  # why a metric has no values, by name of the rule and metric
    scores: Mapping[
        str, ScoresById
    ]  # by name of the rule and sample id, which tells the repeat, too


def chosen_metrics(
    task: TaskFile, names: Sequence[str] = (), documents: Documents = ()
) -> list[AnyMetric]:
    """Return the metrics to compare: those asked for, or all with a standard error but rates of unusable replies.

    Sensitivity, specificity and AUROC are those of each class of ``documents``, or of one, as ``sensitivity (Edema)``;
    :data:`OF_CLASSES` names them all.
    """
    metrics = [
        *task.family.compared_only,
        *(metric for metric in task.metrics if metric.is_compared),
    ]
    if names:
        of_classes = class_metrics(task, documents)
        metrics += of_classes
        comparable = [metric.name for metric in metrics]
        keys = {metric.name for metric in of_classes if OF_CLASSES in names}
        for name in names:
            if name != OF_CLASSES:
                keys.update(_keys_of(task, name, comparable))
        metrics = [metric for metric in metrics if metric.name in keys]
    else:
        metrics = [metric for metric in metrics if metric.role is not Role.RATE]
    if not metrics:
        raise RepliesError(f"'{task.name}' scores nothing, so that there is nothing to compare")
    return metrics


def _keys_of(task: TaskFile, name: str, comparable: Sequence[str]) -> list[str]:
    """Return the comparable metrics that a name stands for. UnknownName: there are none."""
    if name in REPORT_METRICS:
        parts = [key for key in keys_of(name) if key in comparable]
    else:
        parts = [key for key in comparable if key.startswith(f"{name} (")]
    if parts or name in comparable:
        return parts or [name]
    if any(metric.name == name for metric in task.metrics):
        listed = ", ".join(comparable)
        raise UnknownName(f"'{name}' has no value per sample; those that can be compared: {listed}")
    raise unknown_name("metric", name, comparable)


def main_metrics(task: TaskFile) -> list[AnyMetric]:
    """Return the main metrics of a task that can be compared, or else its first one."""
    metrics = chosen_metrics(task)
    return [metric for metric in metrics if metric.role is Role.MAIN] or metrics[:1]


def run_values(
    task: TaskFile, documents: Documents, replies: Replies, metrics: Sequence[AnyMetric]
) -> RunValues:
    """Return the values of one run's samples under every rule; a metric that is not their mean is skipped.

    Documents without a reply are left out; ``metrics`` are those of :func:`chosen_metrics`.
    """
    clusters = task.family.independent_clusters([Sample(document) for document in documents])
    answered = [
        pair for pair in zip(documents, clusters, strict=True) if pair[0]["doc_id"] in replies
    ]
    samples = [(document["doc_id"], cluster) for document, cluster in answered]
    rows = rows_of(task, [document for document, _ in answered], replies)
    values: dict[tuple[str, str], Values] = {}
    skipped: dict[tuple[str, str], str] = {}
    for (name, (_, scores)), metric in itertools.product(rows.items(), metrics):
        key = (name, metric.name)
        if metric.name.startswith(AUROC):
            values[key] = area_by_sample(
                task, documents, replies, metric.name.removeprefix(AUROC)[:-1]
            )
            continue
        try:
            values[key] = with_drawn_units(
                task.family.sample_values(metric, scores, samples), scores
            )
            _check_mean(task, metric, scores, values[key])
        except NotComparable as why:
            values[key], skipped[key] = {}, str(why)
    ids = [doc_id for doc_id, _ in samples]
    by_id = {name: dict(zip(ids, scores, strict=True)) for name, (_, scores) in rows.items()}
    return RunValues({name: rule for name, (rule, _) in rows.items()}, values, skipped, by_id)


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


def _check_mean(task: TaskFile, metric: AnyMetric, scores: Sequence[Score], values: Values) -> None:
    """Raise NotComparable if a metric is not the mean of these values."""
    texts = compares_texts(
        metric
    )  # are compared with their mean already, by computing all their metrics
    if values and not texts:
        average, _ = mean_and_error(
            [value for _, value in values.values()], [unit for unit, _ in values.values()]
        )
        if not math.isclose(average, metric.estimate(scores).value, rel_tol=1e-9, abs_tol=1e-12):
            raise NotComparable(NO_MEAN)
    elif (
        not values and not task.family.paired
    ):  # of pairs none may be complete, reported of both runs together
        if any(score.get("stops") for score in scores):
            raise NotComparable("has no number, because the published code stops")
        of_all = isinstance(metric, CorpusMetric) and not texts
        raise NotComparable(NO_MEAN if of_all else "has no value per sample")


def mean_values(
    task: TaskFile, documents: Documents, repeats: Sequence[Replies], metrics: Iterable[AnyMetric]
) -> RunValues:
    """Return each sample's mean value over the repeats in which it has one; else like :func:`run_values`."""
    all_runs = [run_values(task, documents, replies, list(metrics)) for replies in repeats]
    answered = [values for values, replies in zip(all_runs, repeats, strict=True) if replies]
    by_question = {
        key: values_by_question([run.values[key] for run in answered]) for key in answered[0].values
    }
    values = {
        key: {
            question: (cluster, mean(of_question))
            for question, (cluster, of_question) in questions.items()
        }
        for key, questions in by_question.items()
    }
    skipped = {key: why for run in answered for key, why in run.skipped.items()}
    scores = {row: by_repeat([run.scores[row] for run in all_runs]) for row in answered[0].scores}
    return RunValues(answered[0].rules, values, skipped, scores)


def values_by_question(repeats: Sequence[Values]) -> dict[str, tuple[Hashable, list[float]]]:
    """Return the cluster of each question, or pair, and its values in the repeats in which it has one.

    Where a repeat lacks an answer to one image of a pair, the dyad of a repeat that has both counts.
    """
    by_question: dict[str, tuple[Hashable, list[float]]] = {}
    for question, (cluster, value) in itertools.chain.from_iterable(
        values.items() for values in repeats
    ):
        largest, of_question = by_question.get(question, (cluster, []))
        largest = max(
            (largest, cluster),
            key=lambda unit: (
                len({unit.first, unit.second}) if isinstance(unit, Dyad) else 0,
                str(unit),
            ),
        )
        by_question[question] = (largest, [*of_question, value])
    return by_question


def by_repeat(repeats: Sequence[Mapping[str, _Value]]) -> dict[str, _Value]:
    """Return replies or scores of all repeats; ids tell the second and later ones."""
    return {
        f"{sample}{REPEAT}{number}" if number > 1 else sample: value
        for number, repeat in enumerate(repeats, 1)
        for sample, value in repeat.items()
    }


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
        return cls(
            len(left & right), len(left - right), len(right - left), samples - len(left | right)
        )


@dataclass(frozen=True)
class Failures:
    """Numbers of failed samples, among those in both runs."""

    only_first: int
    only_second: int
    both: int

    @property
    def one_sided(self) -> int:
        """Number of samples that failed in one run only."""
        return self.only_first + self.only_second


@dataclass(frozen=True)
class TextAgreement:
    """Agreement of replies that are texts; "different" ones differ in more than white space."""

    samples: int
    equal: int  # to the last byte
    equal_but_spaces: int  # only after white space is normalised
    first_is_beginning: (
        int  # different replies of which the second run's begins with the first run's
    )
    second_is_beginning: int
    characters: (
        Mapping[str, float] | None
    )  # quantiles of how many both of two different replies begin with
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
    answers: Mapping[
        str, AnswerAgreement
    ]  # by name of the rule; empty where scores hold no answers, as of reports

    @property
    def all_equal(self) -> bool:
        """Whether every reply is equal to the last byte, and every likelihood to the last digit."""
        compared = self.overlap.both - self.failed.one_sided - self.failed.both
        return compared == sum(
            part.equal for part in (self.texts, self.likelihoods) if part is not None
        )

    @property
    def examples(self) -> list[str]:
        """Ids of a few samples that differ most: flips at the widest margins, other answers, the earliest to part."""
        flipped = [flip.sample for flip in self.likelihoods.flips] if self.likelihoods else []
        answered = [sample for part in self.answers.values() for sample in part.differing]
        parted = self.texts.differing if self.texts else ()
        return list(dict.fromkeys([*flipped, *answered, *parted]))[:_EXAMPLES]


def agreement(
    first: Replies,
    second: Replies,
    samples: int,
    scores: Mapping[str, tuple[ScoresById, ScoresById]],
    *,
    hashed: bool = False,
) -> Agreement:
    """Compare two runs' replies to a task of this many samples; ``scores`` are those of both by name of the rule.

    Ids of samples are reported, ``hashed`` if the task is private.
    """

    def written(sample: str) -> str:
        name, mark, number = sample.partition(REPEAT)
        return hidden_id("doc", name) + mark + number if hashed else sample

    failed: Counter[tuple[bool, bool]] = Counter()
    pairs = {}
    for sample in first:
        if sample in second:
            a, b = first[sample], second[sample]
            failed[a.failed, b.failed] += 1
            if not (a.failed or b.failed):
                pairs[written(sample)] = (a, b)
    answers = {}
    for row, (of_first, of_second) in scores.items():
        values = {}
        for sample, score in of_first.items():
            if "value" in score and "value" in of_second.get(sample, ()):
                values[written(sample)] = (score["value"], of_second[sample]["value"])
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


def text_agreement(pairs: Mapping[str, tuple[Reply, Reply]]) -> TextAgreement | None:
    """Compare replies by sample id; None where none of them is a text."""
    texts = {
        sample: (str(a.text), str(b.text)) for sample, (a, b) in pairs.items() if a.losses is None
    }
    if not texts:
        return None
    words = {sample: (a.split(), b.split()) for sample, (a, b) in texts.items()}
    different = {sample: (" ".join(a), " ".join(b)) for sample, (a, b) in words.items() if a != b}
    common = {  # characters and words that both begin with
        sample: tuple(len(commonprefix(parts[sample])) for parts in (texts, words))  # noqa: RUF071  # no paths
        for sample in different
    }
    equal = sum(a == b for a, b in texts.values())
    return TextAgreement(
        samples=len(texts),
        equal=equal,
        equal_but_spaces=len(texts) - equal - len(different),
        first_is_beginning=sum(b.startswith(a) for a, b in different.values()),
        second_is_beginning=sum(a.startswith(b) for a, b in different.values()),
        characters=_quantiles([characters for characters, _ in common.values()]),
        words=_quantiles([number for _, number in common.values()]),
        at_first_word=sum(number == 0 for _, number in common.values()),
        differing=tuple(sorted(common, key=lambda sample: common[sample])),
    )


def _quantiles(values: Sequence[float]) -> dict[str, float] | None:
    """Return median, two quantiles and maximum, interpolated; None without values."""
    shares = {"median": 0.5, "q90": 0.9, "q99": 0.99, "max": 1.0}
    return (
        {name: float(np.quantile(values, share)) for name, share in shares.items()}
        if values
        else None
    )


def likelihood_agreement(pairs: Mapping[str, tuple[Reply, Reply]]) -> LikelihoodAgreement | None:
    """Compare likelihoods by sample id; None where there are none, or only of another number of options."""
    samples = 0
    equal = 0
    differences: list[float] = []
    flips = []
    greedy: list[tuple[bool, bool]] = []
    for sample, (first, second) in pairs.items():
        a, b = first.losses, second.losses
        if a is None or b is None or len(a) != len(b):
            continue
        samples += 1
        equal += a == b
        differences += [after - before for before, after in zip(a, b, strict=True)]
        greedy += zip(first.greedy or (), second.greedy or (), strict=False)
        if most_likely(a) != most_likely(b):
            best, following = [*sorted(a), math.inf][:2]
            flips.append(
                Flip(sample, 0.0 if best == following else following - best)
            )  # both may be infinite
    if not samples:
        return None
    finite = list(filter(math.isfinite, differences))
    return LikelihoodAgreement(
        samples=samples,
        equal=equal,
        options=len(differences),
        absolute=_quantiles(list(map(abs, finite))),
        mean_absolute=mean(list(map(abs, finite))),
        mean_signed=mean(finite),
        equal_choices=samples - len(flips),
        flips=tuple(sorted(flips, key=lambda flip: -flip.margin)),
        greedy_options=len(greedy),
        equal_greedy=sum(before == after for before, after in greedy),
    )
