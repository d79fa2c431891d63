"""Gains of tasks over their variants in the same run, costs of thinking, and differences from other runs."""

import bisect
import contextlib
import itertools
import math
import statistics
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace

from medtasks.data.images.degrading import SEVERITIES
from medtasks.data.samples import Sample
from medtasks.data.variants import DEGRADED, SEVERITY, WITHOUT_IMAGE
from medtasks.errors import MedTasksError
from medtasks.extract.extractor_registry import AnswerKind, Reason
from medtasks.families.counts import answered, is_failed
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score, mean
from medtasks.report.report_model import Gain, LengthBin, TaskReport, Thinking
from medtasks.scores.comparing import BothValues, TestKey, paired_values, same_values
from medtasks.scores.run_values import Values, main_metrics, mean_values
from medtasks.scores.subgroups import with_interval
from medtasks.scores.task_reading import TaskReading
from medtasks.stats.paired import PairedResult, PairedValues, compare_paired, correct_by_holm
from medtasks.tasks.documents import images_by_id
from medtasks.tasks.task_files import task_config
from medtasks.tasks.task_index import mapping_in

SAME_IMAGES = "same images"  # the gain over another task that asks about the same images
_DIRECT = "direct"  # the base of a thinking variant
TOKENS, WORDS = "tokens", "words"
_TRUNCATED: Metric[Score] = Metric(
    "truncated", False, answered, of=lambda score: float(score["reason"] == Reason.TRUNCATED)
)
_BINS, _LEAST_IN_BIN = 4, 5
_Repeats = Sequence[TaskReading]  # replies to a task, one reading per repeat of the run


def gains_over(
    repeats: _Repeats,
    report: TaskReport,
    variant_repeats: _Repeats,
    variant_report: TaskReport,
) -> list[Gain]:
    """Return the gains of a task over a variant of it, or of a thinking variant over its direct form.

    They are tested sample by sample if the replies are here, with the mean over the repeats of each. Else they are the
    differences of the recorded scores, without an error, if both were asked the same number of questions.

    Args:
        repeats: Replies of the task, one reading per repeat of the run.
        report: Report of the task.
        variant_repeats: Replies of the variant or the direct form.
        variant_report: Its report.

    Returns:
        Gains whose p-values are not corrected for each other yet, see :func:`corrected_gains`.
    """
    if not (repeats and variant_repeats):
        return []
    gains = paired_gains(repeats, variant_repeats)
    if gains or not report.answered or report.answered != variant_report.answered:
        return gains
    return _recorded_gains(repeats[0], report, variant_repeats[0], variant_report)


def _recorded_gains(
    reading: TaskReading,
    report: TaskReport,
    variant_reading: TaskReading,
    variant_report: TaskReport,
) -> list[Gain]:
    """Return the differences of recorded scores, which have no error."""
    main = {metric.name for metric in reading.task.metrics if metric.role is Role.MAIN}
    always_zero = _always_zero(reading, variant_reading)
    variant_estimates = {rule.name: rule.estimates for rule in variant_report.rules}
    gains = []
    for rule in report.rules:
        others = variant_estimates.get(rule.name, {})
        shared = [score for score in rule.scores if score.metric in others]
        # All main metrics that both have, else the first metric that both have.
        main_scores = [score for score in shared if score.metric in main]
        for score in main_scores or shared[:1]:
            variant_score = others[score.metric].value
            gains.append(
                Gain(
                    variant=str(variant_reading.task.variant or _DIRECT),
                    task=variant_report.name,
                    rule=rule.name,
                    metric=score.metric,
                    score=score.value,
                    variant_score=variant_score,
                    difference=score.value - variant_score,
                    low=math.nan,
                    high=math.nan,
                    p=math.nan,
                    samples=report.answered,
                    by_construction=not variant_score and score.metric in always_zero,
                )
            )
    return gains


def _always_zero(reading: TaskReading, variant_reading: TaskReading) -> set[str]:
    """Return the names of a task's metrics that are 0 under a variant whatever the model."""
    if variant_reading.task.variant not in WITHOUT_IMAGE:
        return set()
    return {metric.name for metric in reading.task.metrics if metric.zero_if_blind}


def paired_gains(
    repeats: _Repeats,
    variant_repeats: _Repeats,
    *,
    by_image: bool = False,
) -> list[Gain]:
    """Compare a task with a variant, or another task, in its main metrics on the questions that both answered.

    Degraded images are compared a second time at each severity.

    Args:
        repeats: Replies of the task, one reading per repeat of the run, at least one.
        variant_repeats: Replies of the variant or the other task, in the same way.
        by_image: Whether the two tasks ask about the same images. Then images are compared instead of samples, by the
            mean over the questions on each, so that questions may differ in language and number.

    Returns:
        Gains whose p-values are not corrected for each other yet, see :func:`corrected_gains`. There are none if the
        task has no metric with values of single samples, or replies are missing.
    """
    base = repeats[0]
    variant = variant_repeats[0]
    if not (base.task.is_computed or base.task.family.kind is AnswerKind.REPORT):
        return []
    try:
        values = _values_of_both(repeats, variant_repeats, by_image=by_image)
    except MedTasksError:
        return []
    always_zero = _always_zero(base, variant)
    name = SAME_IMAGES if by_image else variant.task.variant or _DIRECT
    gains = []
    for part, ids in _parts(variant, values).items():
        for (rule, metric), (first, second) in values.items():
            in_part = {sample: value for sample, value in first.items() if sample in ids}
            paired = paired_values(in_part, second)
            if not paired[0]:
                continue
            names = (f"{name}{part}", variant.task.name, rule, metric)
            gain = _gain(names, paired, is_zero=metric in always_zero)
            gains.append(replace(gain, same_as=same_values(values, rule, metric)))
    return gains


def _values_of_both(
    repeats: _Repeats,
    variant_repeats: _Repeats,
    *,
    by_image: bool,
) -> BothValues:
    """Return the values of the variant and of the task, by row and main metric of the task.

    The variant comes first, as the difference is the task minus its variant.
    """
    metrics = main_metrics(repeats[0].task)
    if by_image:
        full = _values_of_images(repeats, metrics)
        variant_values = _values_of_images(
            variant_repeats, main_metrics(variant_repeats[0].task)
        )
    else:
        shared = _answered_ids(repeats) & _answered_ids(variant_repeats)
        full = _values_of(repeats, shared, metrics)
        variant_values = _values_of(variant_repeats, shared, metrics)
    return {
        key: (variant_values.get(key, {}), task_values) for key, task_values in full.items()
    }


def _answered_ids(repeats: _Repeats) -> set[str]:
    """Return the ids of the samples that any repeat answered."""
    replies = itertools.chain.from_iterable(
        reading.samples.replies.items() for reading in repeats
    )
    return {name for name, reply in replies if not reply.is_failure}


def _values_of(
    repeats: _Repeats,
    ids: Collection[str],
    metrics: Sequence[AnyMetric],
) -> Mapping[TestKey, Values]:
    """Return the values of chosen samples, means over the repeats, by row and metric."""
    chosen = []
    for repeat in repeats:
        replies = {}
        for name, reply in repeat.samples.replies.items():
            if name in ids and not reply.is_failure:
                replies[name] = reply
        chosen.append(replies)
    if not any(chosen):
        return {}
    return mean_values(repeats[0].task, repeats[0].documents, chosen, metrics).values


def _values_of_images(
    repeats: _Repeats, metrics: Sequence[AnyMetric]
) -> Mapping[TestKey, Values]:
    """Return the mean value of each image's samples, by row and metric."""
    images = images_by_id(repeats[0].documents)
    by_image: dict[TestKey, Values] = {}
    for key, values in _values_of(repeats, images, metrics).items():
        values_by_image: dict[str, list[tuple[Hashable, float]]] = {}
        for name, value in values.items():
            values_by_image.setdefault(images[name], []).append(value)
        means: dict[str, tuple[Hashable, float]] = {}
        for image, image_values in values_by_image.items():
            cluster = image_values[0][0]
            means[image] = (cluster, mean([value for _, value in image_values]))
        by_image[key] = means
    return by_image


def _parts(variant: TaskReading, values: BothValues) -> dict[str, set[str]]:
    """Return the ids of all samples, or pairs, and those of degraded images by severity."""
    everything = set[str]()
    for first, _ in values.values():
        everything.update(first)
    parts = {"": everything}
    if variant.task.variant != DEGRADED:
        return parts
    for severity in SEVERITIES:
        ids = set[str]()
        for document in variant.documents:
            if document[SEVERITY] == severity:
                ids |= {str(document.get("doc_id")), str(document.get("pair_id"))}
        parts[f", severity {severity}"] = ids
    return parts


def _gain(names: tuple[str, str, str, str], paired: PairedValues, *, is_zero: bool) -> Gain:
    """Return the gain of a task over a variant, with its test.

    Args:
        names: Variant, name of its task, rule and metric.
        paired: Values of the variant and of the task, with their clusters.
        is_zero: Whether the metric is 0 under the variant for any model. Then there is no test, unless it is not 0.
    """
    result = compare_paired(*paired)
    if is_zero and not result.first:
        scores = (result.second, 0.0, result.difference, math.nan, math.nan, math.nan)
        return Gain(*names, *scores, samples=result.samples, by_construction=True)
    p = math.nan
    test = None
    if result.is_testable:
        p = result.p
        test = (result, paired)
    scores = (result.second, result.first, result.difference, result.low, result.high, p)
    return Gain(*names, *scores, samples=result.samples, test=test)


def corrected_gains(reports: Sequence[TaskReport]) -> tuple[TaskReport, ...]:
    """Correct the p-values of all gains of a run's reports together.

    Args:
        reports: Reports with the tests of their gains. Rules that read the same answers are one test.

    Returns:
        The reports with p-values corrected by Holm's method, without the tests. ``p`` itself is computed again where
        the correction needs more random signs.
    """
    tests = {}
    for report in reports:
        thinking_gains = report.thinking.gains if report.thinking else ()
        for gain in (*report.gains, *thinking_gains):
            if gain.test and not gain.same_as:
                tests[_test_key(report.name, gain)] = gain.test
    results = dict(zip(tests, correct_by_holm(list(tests.values())), strict=True))
    changed = []
    for report in reports:
        thinking = report.thinking
        if thinking:
            thinking_gains = _with_corrected_p(report.name, thinking.gains, results)
            thinking = replace(thinking, gains=thinking_gains)
        gains = _with_corrected_p(report.name, report.gains, results)
        changed.append(replace(report, gains=gains, thinking=thinking))
    return tuple(changed)


def _with_corrected_p(
    name: str,
    gains: Sequence[Gain],
    results: Mapping[tuple[str, ...], tuple[PairedResult, float]],
) -> tuple[Gain, ...]:
    """Return the gains of a report with their p-values, and corrected ones, from results by key of the test."""
    changed = []
    for gain in gains:
        key = _test_key(name, gain)
        if key in results:
            result, p_holm = results[key]
            gain = replace(gain, p=result.p, p_holm=p_holm, test=None)
        changed.append(gain)
    return tuple(changed)


def _test_key(report: str, gain: Gain) -> tuple[str, ...]:
    """Return what tells the test of a gain, or of the rule that it shares the test with, from others."""
    return (report, gain.variant, gain.task, gain.metric, gain.same_as or gain.rule)


def summarise_thinking(reading: TaskReading, gains: Sequence[Gain]) -> Thinking | None:
    """Summarise the replies to a thinking variant under its first rule.

    Args:
        reading: Replies of the variant.
        gains: Over its direct form.

    Returns:
        Lengths in tokens where all were counted, else in words. None without scores of single samples.
    """
    rule = next(iter(reading.computed), None)
    samples = {} if rule is None else reading.computed[rule].samples
    scores = {doc_id: score for doc_id, score in samples.items() if not is_failed(score)}
    if not scores:
        return None
    unit, lengths = _reply_lengths(reading, scores)
    ordered: list[float] = sorted(lengths.values()) or [math.nan]
    limit = _token_limit(reading)
    at_limit = None
    if unit == TOKENS and limit is not None:
        at_limit = sum(length >= limit for length in ordered)
    return Thinking(
        base=str(reading.task.base),
        gains=tuple(gains),
        rule=str(rule),
        answered=len(scores),
        truncated=with_interval(_TRUNCATED, _TRUNCATED.estimate(list(scores.values()))),
        unit=unit,
        mean=statistics.fmean(ordered),
        median=statistics.median(ordered),
        most=ordered[-1],
        limit=limit,
        at_limit=at_limit,
        bins=tuple(_length_bins(reading, scores, lengths)),
    )


def _reply_lengths(
    reading: TaskReading, scores: Mapping[str, Score]
) -> tuple[str, dict[str, int]]:
    """Return lengths of replies and their unit: tokens where all were counted, else words of the reasoning."""
    tokens = reading.samples.tokens
    if scores.keys() <= tokens.keys():
        return TOKENS, {doc_id: tokens[doc_id] for doc_id in scores}
    lengths = {}
    for doc_id, score in scores.items():
        if "reasoning_words" in score:
            lengths[doc_id] = int(score["reasoning_words"])
    return WORDS, lengths


def _token_limit(reading: TaskReading) -> int | None:
    """Return the most new tokens that a run allowed, or None if unknown."""
    for config in (reading.recorded.config, task_config(reading.task.name)):
        limit = mapping_in(config, "generation_kwargs").get("max_new_tokens")
        if limit:
            return int(limit) if str(limit).isdecimal() else None
    return None


def _length_bins(
    reading: TaskReading,
    scores: Mapping[str, Score],
    lengths: Mapping[str, int],
) -> list[LengthBin]:
    """Score replies by their length, in the first main metric with values of single samples.

    Returns:
        Up to four parts of ascending length; equal lengths share a part. There are none without such a metric.
    """
    order = sorted(lengths, key=lambda doc_id: (lengths[doc_id], doc_id))
    parts = max(1, min(_BINS, len(order) // _LEAST_IN_BIN))
    edges = sorted({lengths[order[len(order) * part // parts]] for part in range(1, parts)})
    by_part: dict[int, list[str]] = {}
    for doc_id in order:
        by_part.setdefault(bisect.bisect_right(edges, lengths[doc_id]), []).append(doc_id)
    documents = {str(document["doc_id"]): document for document in reading.documents}
    clusters = [(doc_id, Sample(documents[doc_id]).cluster_id) for doc_id in scores]
    metrics: Sequence[AnyMetric] = ()
    with contextlib.suppress(MedTasksError):
        metrics = main_metrics(reading.task)
    for metric in metrics:
        values = reading.task.family.sample_values(metric, list(scores.values()), clusters)
        if not values or values.keys() - scores.keys():
            continue
        bins = []
        for members in by_part.values():
            score = with_interval(
                metric, metric.estimate([scores[doc_id] for doc_id in members])
            )
            bins.append(
                LengthBin(lengths[members[0]], lengths[members[-1]], len(members), score)
            )
        return bins
    return []
