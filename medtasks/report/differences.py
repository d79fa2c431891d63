"""Gains of tasks over their variants in the same run, costs of thinking, and differences from other runs."""

import bisect
import contextlib
import itertools
import math
import statistics
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
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
from medtasks.scores.score_model import MetricScore, RuleScores
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


def gains_over(
    repeats: Sequence[TaskReading],
    report: TaskReport,
    variant_repeats: Sequence[TaskReading],
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
    gains = _tested_gains(repeats, variant_repeats)
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
        for score, of_variant in _shared_scores(
            rule, variant_estimates.get(rule.name, {}), main
        ):
            gain = Gain(
                variant=str(variant_reading.task.variant or _DIRECT),
                task=variant_report.name,
                rule=rule.name,
                metric=score.metric,
                score=score.value,
                variant_score=of_variant.value,
                difference=score.value - of_variant.value,
                low=math.nan,
                high=math.nan,
                p=math.nan,
                samples=report.answered,
                by_construction=not of_variant.value and score.metric in always_zero,
            )
            gains.append(gain)
    return gains


def _shared_scores(
    rule: RuleScores,
    others: Mapping[str, MetricScore],
    main: Collection[str],
) -> list[tuple[MetricScore, MetricScore]]:
    """Return pairs of a rule's scores and others by metric: of the main metrics that both have, else the first."""
    shared = [(score, others[score.metric]) for score in rule.scores if score.metric in others]
    return [pair for pair in shared if pair[0].metric in main] or shared[:1]


def _always_zero(reading: TaskReading, variant_reading: TaskReading) -> set[str]:
    """Return the names of a task's metrics that are 0 under a variant whatever the model."""
    if variant_reading.task.variant not in WITHOUT_IMAGE:
        return set()
    return {metric.name for metric in reading.task.metrics if metric.zero_if_blind}


def gains_on_same_images(
    repeats: Sequence[TaskReading], other_repeats: Sequence[TaskReading]
) -> list[Gain]:
    """Return the gains of a task over another one with questions on the same images, image by image.

    The value of an image is the mean over its questions, so that the questions may differ in language and number.

    Args:
        repeats: Replies of the task, one reading per repeat of the run.
        other_repeats: Replies of the other task.

    Returns:
        Gains whose p-values are not corrected for each other yet, see :func:`corrected_gains`.
    """
    if not (repeats and other_repeats):
        return []
    return _tested_gains(repeats, other_repeats, by_image=True)


def _tested_gains(
    repeats: Sequence[TaskReading],
    variant_repeats: Sequence[TaskReading],
    *,
    by_image: bool = False,
) -> list[Gain]:
    """Compare main metrics sample by sample on the questions that both answered, if the replies are here.

    Degraded images are compared a second time at each severity.
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
            of = (f"{name}{part}", variant.task.name, rule, metric)
            gain = _gain(of, paired, is_zero=metric in always_zero)
            gains.append(replace(gain, same_as=same_values(values, rule, metric)))
    return gains


def _values_of_both(
    repeats: Sequence[TaskReading],
    variant_repeats: Sequence[TaskReading],
    *,
    by_image: bool,
) -> BothValues:
    """Return the values of the variant and of the task, by row and main metric of the task.

    The variant comes first, as the difference is the task minus its variant.
    """
    metrics = main_metrics(repeats[0].task)
    if by_image:
        full = _values_of_images(repeats, metrics)
        of_variant = _values_of_images(variant_repeats, main_metrics(variant_repeats[0].task))
    else:
        shared = _answered_ids(repeats) & _answered_ids(variant_repeats)
        full = _values_of(repeats, shared, metrics)
        of_variant = _values_of(variant_repeats, shared, metrics)
    return {key: (of_variant.get(key, {}), of_task) for key, of_task in full.items()}


def _answered_ids(repeats: Sequence[TaskReading]) -> set[str]:
    """Return the ids of the samples that any repeat answered."""
    replies = itertools.chain.from_iterable(
        reading.samples.replies.items() for reading in repeats
    )
    return {name for name, reply in replies if not reply.is_failure}


def _values_of(
    repeats: Sequence[TaskReading],
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
    repeats: Sequence[TaskReading], metrics: Sequence[AnyMetric]
) -> Mapping[TestKey, Values]:
    """Return the mean value of each image's samples, by row and metric."""
    images = images_by_id(repeats[0].documents)
    by_image: dict[TestKey, Values] = {}
    for key, values in _values_of(repeats, images, metrics).items():
        of_images: dict[str, list[tuple[Hashable, float]]] = {}
        for name, value in values.items():
            of_images.setdefault(images[name], []).append(value)
        means: dict[str, tuple[Hashable, float]] = {}
        for image, of_image in of_images.items():
            cluster = of_image[0][0]
            means[image] = (cluster, mean([value for _, value in of_image]))
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


def _gain(of: tuple[str, str, str, str], paired: PairedValues, *, is_zero: bool) -> Gain:
    """Return the gain over a variant with its test, which a variant's 0 by construction (``is_zero``) does not get."""
    result = compare_paired(*paired)
    if is_zero and not result.first:
        scores = (result.second, 0.0, result.difference, math.nan, math.nan, math.nan)
        return Gain(*of, *scores, samples=result.samples, by_construction=True)
    p = result.p if result.is_testable else math.nan
    test = (result, paired) if result.is_testable else None
    scores = (result.second, result.first, result.difference, result.low, result.high, p)
    return Gain(*of, *scores, samples=result.samples, test=test)


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
            of_thinking = _with_corrected_p(report.name, thinking.gains, results)
            thinking = replace(thinking, gains=of_thinking)
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
    """Score replies by their length, in up to four parts, in the first main metric with values of single samples."""
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
        for members in _members_by_length(lengths):
            score = with_interval(
                metric, metric.estimate([scores[doc_id] for doc_id in members])
            )
            bins.append(
                LengthBin(lengths[members[0]], lengths[members[-1]], len(members), score)
            )
        return bins
    return []


def _members_by_length(lengths: Mapping[str, int]) -> Iterable[list[str]]:
    """Divide samples into up to four parts of ascending length. Equal lengths share a part."""
    order = sorted(lengths, key=lambda doc_id: (lengths[doc_id], doc_id))
    parts = max(1, min(_BINS, len(order) // _LEAST_IN_BIN))
    edges = sorted({lengths[order[len(order) * part // parts]] for part in range(1, parts)})
    members: dict[int, list[str]] = {}
    for doc_id in order:
        members.setdefault(bisect.bisect_right(edges, lengths[doc_id]), []).append(doc_id)
    return members.values()
