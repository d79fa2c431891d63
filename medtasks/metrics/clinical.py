"""Sensitivity, specificity, predictive values and likelihood ratios of one class, with clustered errors.

An invalid reply calls nothing: it counts as wrong in sensitivity and specificity, as in accuracy, and is in no
predictive value. A failed one is in the cross table only. A likelihood ratio compares how often images with and without
the class are called; its interval is that of its logarithm, whose error is linearised (Simel, Samsa and Matchar, 1991,
Journal of Clinical Epidemiology 44, for independent samples) and clustered by patient or image as all others. Where the
logarithm has no error, as at a sensitivity or specificity of 100 %, the interval is Koopman's for a ratio of shares, as
Marill et al. (2017), Statistical Methods in Medical Research 26, advise.
"""

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from medtasks.metrics.metric import mean
from medtasks.stats.intervals import (
    LEVEL,
    EstimatedValue,
    interval,
    ratio_of_shares,
    t_quantile,
)
from medtasks.stats.standard_error import clustered_error

ABSENT = "no answered sample has the class"
PRESENT = "no answered sample is without the class"
NEVER = "no sample is called positive"
ALWAYS = "no sample is called negative"
NO_FALSE_POSITIVE = (
    "no sample without the class is called positive, so that the ratio has no upper bound"
)
NO_TRUE_NEGATIVE = (
    "no sample without the class is called negative, so that the ratio has no upper bound"
)

_NO_SPREAD = 1e-9
# predictive values, and the ratios from which they follow
_ADJUSTED = {"ppv": "positive", "npv": "negative"}


class Decision(NamedTuple):
    """Whether a sample has a class, and whether its reply says so."""

    cluster: Hashable
    present: bool
    called: bool | None  # None for a reply without a valid answer
    # whether there is no reply, or none that a judge or labeler could read
    failed: bool = False


@dataclass(frozen=True)
class Calls:
    """Numbers of samples by the answer that was read: one row of a cross table."""

    positive: int
    negative: int
    invalid: int
    failed: int


@dataclass(frozen=True)
class ClassNumbers:
    """Clinical numbers of one class, NaN where undefined."""

    name: str  # text or letter of an option, or Yes
    present: Calls  # of samples that have the class
    absent: Calls
    # sensitivity, specificity, ppv, npv, lr_positive, lr_negative, by name
    numbers: Mapping[str, EstimatedValue]
    undefined: Mapping[str, str]  # why a number is not defined, or infinite, by its name
    # for which ppv_adjusted and npv_adjusted hold; None if these are not in ``numbers``
    prevalence: float | None = None


def class_numbers(name: str, decisions: Sequence[Decision]) -> ClassNumbers:
    """Return the numbers of one class.

    With TP, FP, FN and TN counted over the answered samples::

        sensitivity = TP / (TP + FN)        ppv = TP / (TP + FP)
        specificity = TN / (TN + FP)        npv = TN / (TN + FN)
        lr_positive = sensitivity / (1 - specificity)
        lr_negative = (1 - sensitivity) / specificity

    Args:
        name: Text or letter of an option, or ``Yes``.
        decisions: Decisions about all samples, in any order.

    Returns:
        A number without a denominator is NaN, or for a ratio infinite, and ``undefined`` has the reason.
    """
    present = _calls(decisions, True)
    absent = _calls(decisions, False)
    answered = [decision for decision in decisions if not decision.failed]
    parts = _parts(answered)
    numbers = {}
    degrees = {}
    for metric, part in parts.items():
        values = [float(holds) for holds, _ in part]
        error = clustered_error(values, [decision.cluster for _, decision in part])
        value = mean(values)
        ends = interval(value, error.error, error.degrees, True, error.effective)
        numbers[metric] = EstimatedValue(value, error.error, *ends)
        degrees[metric] = error.degrees
    # NaN if samples with the class, or those without it, are of fewer than two clusters.
    fewest = float(np.minimum(degrees["sensitivity"], degrees["specificity"]))
    numbers["lr_positive"] = _ratio(answered, True, fewest)
    numbers["lr_negative"] = _ratio(answered, False, fewest)
    positive_ratio = NO_FALSE_POSITIVE
    negative_ratio = NO_TRUE_NEGATIVE
    if not (parts["sensitivity"] and parts["specificity"]):
        positive_ratio = negative_ratio = PRESENT if parts["sensitivity"] else ABSENT
    reasons = {
        "sensitivity": ABSENT,
        "specificity": PRESENT,
        "ppv": NEVER,
        "npv": ALWAYS,
        "lr_positive": positive_ratio,
        "lr_negative": negative_ratio,
    }
    undefined = {}
    for metric, reason in reasons.items():
        if not math.isfinite(numbers[metric].value):
            undefined[metric] = reason
    return ClassNumbers(name, present, absent, numbers, undefined)


def _parts(answered: Sequence[Decision]) -> dict[str, list[tuple[bool, Decision]]]:
    """Return the decisions that each share is about, and whether they count in it."""
    parts: dict[str, list[tuple[bool, Decision]]] = {
        "sensitivity": [],
        "specificity": [],
        "ppv": [],
        "npv": [],
    }
    for decision in answered:
        called = decision.called
        if decision.present:
            parts["sensitivity"].append((called is True, decision))
        else:
            parts["specificity"].append((called is False, decision))
        if called:
            parts["ppv"].append((decision.present, decision))
        elif called is False:
            parts["npv"].append((not decision.present, decision))
    return parts


def _calls(decisions: Sequence[Decision], present: bool) -> Calls:
    """Count the samples with the class, or with ``present=False`` those without it, by their reply."""
    of_class = [decision for decision in decisions if decision.present == present]
    counts = Counter(decision.called for decision in of_class if not decision.failed)
    failed = len(of_class) - counts.total()
    return Calls(counts[True], counts[False], counts[None], failed)


def _ratio(
    decisions: Sequence[Decision],
    called: bool,
    degrees: float,
) -> EstimatedValue:
    """Return a likelihood ratio: how much likelier a call is if the class is present.

    Args:
        decisions: Decisions about all answered samples.
        called: The call, True for positive and False for negative.
        degrees: Degrees of freedom of the error of the ratio's logarithm: those of the samples with the class or of
            those without it, whichever are fewer. May be NaN.

    Returns:
        NaN if all samples have the class, none has it, or no reply makes the call.
    """
    sizes = Counter(decision.present for decision in decisions)
    calls = Counter(decision.present for decision in decisions if decision.called is called)
    if len(sizes) < 2 or not calls:
        return EstimatedValue(math.nan)
    if len(calls) < 2:
        return _ratio_without_error(decisions, called, degrees)
    value = calls[True] / sizes[True] / (calls[False] / sizes[False])
    totals: dict[Hashable, float] = {}
    numbers: Counter[Hashable] = Counter()
    cells = Counter(
        (decision.cluster, decision.present, decision.called is called)
        for decision in decisions
    )
    for (cluster, present, is_call), number in cells.items():
        # Influence of a sample on log(p1 / p0), times the number of samples; all together are 0.
        sign = 1 if present else -1
        influence = sign * len(decisions) * (is_call / calls[present] - 1 / sizes[present])
        totals[cluster] = totals.get(cluster, 0.0) + number * influence
        numbers[cluster] += number
    means = [total / numbers[cluster] for cluster, total in totals.items()]
    # The error of the ratio's logarithm, from the influences.
    error = clustered_error(means, list(totals), list(numbers.values())).error
    if not error > _NO_SPREAD:
        return _ratio_without_error(decisions, called, degrees)
    half = t_quantile((1 + LEVEL) / 2, degrees) * error
    low = value * math.exp(-half)
    high = value * math.exp(half)
    return EstimatedValue(value, value * error, low, high)


def _ratio_without_error(
    decisions: Sequence[Decision],
    called: bool,
    degrees: float,
) -> EstimatedValue:
    """Return a likelihood ratio whose logarithm has no error, as a share is 0, or both are 1.

    Args:
        decisions: Decisions about all answered samples, with the class and without it.
        called: The call, True for positive and False for negative.
        degrees: Degrees of freedom for the interval of samples that are not independent.

    Returns:
        The ratio, infinite if no sample without the class is called so. Its error is NaN.
    """
    shares = []
    sizes = []
    for present in (True, False):
        part = [decision for decision in decisions if decision.present == present]
        values = [float(decision.called is called) for decision in part]
        shares.append(mean(values))
        sizes.append(clustered_error(values, [decision.cluster for decision in part]).effective)
    are_independent = len({decision.cluster for decision in decisions}) == len(decisions)
    ends = ratio_of_shares(
        (shares[0], shares[1]),
        (sizes[0], sizes[1]),
        None if are_independent else degrees,
    )
    value = shares[0] / shares[1] if shares[1] else math.inf
    return EstimatedValue(value, math.nan, *ends)


def at_prevalence(of_class: ClassNumbers, prevalence: float) -> ClassNumbers:
    """Add the predictive values for another prevalence.

    Predictive values follow from the likelihood ratios: the logit of a predictive value is the logit of the prevalence
    plus the logarithm of a ratio, so that their interval follows from that of the ratio.

    Args:
        of_class: Numbers at the prevalence of the samples.
        prevalence: Share of patients with the class, above 0 and below 1.

    Returns:
        All numbers of ``of_class``, and ``ppv_adjusted`` and ``npv_adjusted``.
    """
    odds = prevalence / (1 - prevalence)
    ppv = _probability_after_call(of_class.numbers["lr_positive"], odds)
    # After a negative call it is the probability that the class is there all the same.
    missed = _probability_after_call(of_class.numbers["lr_negative"], odds)
    npv = EstimatedValue(1 - missed.value, missed.error, 1 - missed.high, 1 - missed.low)
    numbers = {**of_class.numbers, "ppv_adjusted": ppv, "npv_adjusted": npv}
    undefined = dict(of_class.undefined)
    for name, call in _ADJUSTED.items():
        if math.isnan(numbers[f"{name}_adjusted"].value):
            undefined[f"{name}_adjusted"] = of_class.undefined[f"lr_{call}"]
    return replace(of_class, numbers=numbers, undefined=undefined, prevalence=prevalence)


def _probability_after_call(
    ratio: EstimatedValue,
    odds: float,
) -> EstimatedValue:
    """Return the probability of the class after a call, with the error that follows from the ratio's.

    Args:
        ratio: Likelihood ratio of the call.
        odds: Odds of the class before the call.
    """

    def probability(of_ratio: float) -> float:
        """Return the probability for a likelihood ratio, which may be infinite."""
        return 1.0 if of_ratio == math.inf else odds * of_ratio / (1 + odds * of_ratio)

    value = probability(ratio.value)
    error = math.nan
    if ratio.value:
        error = value * (1 - value) * ratio.error / ratio.value
    return EstimatedValue(value, error, probability(ratio.low), probability(ratio.high))
