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

from medtasks.stats.intervals import LEVEL, EstimatedValue, interval, ratio_of_shares, t_quantile
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
_ADJUSTED = {
    "ppv": "positive",
    "npv": "negative",
}  # predictive values, and the ratios from which they follow


class Decision(NamedTuple):
    """Whether a sample has a class, and whether its reply says so."""

    cluster: Hashable
    present: bool
    called: bool | None  # None for a reply without a valid answer
    failed: bool = False  # whether there is no reply, or none that a judge or labeler could read


@dataclass(frozen=True)
class Calls:
    """Numbers of samples by the answer that was read: one row of a cross table."""

    positive: int
    negative: int
    invalid: int
    failed: int


@dataclass(frozen=True)
class ClassNumbers:
    """Clinical numbers of one class; undefined ones are NaN."""

    name: str  # text or letter of an option, or Yes
    present: Calls  # of samples that have the class
    absent: Calls
    numbers: Mapping[
        str, EstimatedValue
    ]  # sensitivity, specificity, ppv, npv, lr_positive, lr_negative, by name
    undefined: Mapping[str, str]  # why a number is not defined, or infinite, by its name
    prevalence: float | None = (
        None  # for which ppv_adjusted and npv_adjusted hold, if they are there
    )


def class_numbers(name: str, decisions: Sequence[Decision]) -> ClassNumbers:
    """Return the numbers of one class from the decisions about all samples."""
    present = _calls([decision for decision in decisions if decision.present])
    absent = _calls([decision for decision in decisions if not decision.present])
    answered = [decision for decision in decisions if not decision.failed]
    parts = _parts(answered)
    shares: dict[str, EstimatedValue] = {}
    degrees: dict[str, float] = {}
    for metric, part in parts.items():
        shares[metric], degrees[metric] = _share(part)
    of_parts = degrees["sensitivity"], degrees["specificity"]  # NaN for no or one cluster
    fewest = math.nan if any(map(math.isnan, of_parts)) else min(of_parts)
    reasons = _reasons(bool(parts["sensitivity"]), bool(parts["specificity"]))
    numbers = {
        **shares,
        "lr_positive": _ratio(answered, True, fewest),
        "lr_negative": _ratio(answered, False, fewest),
    }
    undefined = {
        metric: why for metric, why in reasons.items() if not math.isfinite(numbers[metric].value)
    }
    return ClassNumbers(name, present, absent, numbers, undefined)


def _parts(answered: Sequence[Decision]) -> dict[str, list[tuple[bool, Decision]]]:
    """Return the decisions that each share is about, and whether they count in it."""
    return {
        "sensitivity": [
            (decision.called is True, decision) for decision in answered if decision.present
        ],
        "specificity": [
            (decision.called is False, decision) for decision in answered if not decision.present
        ],
        "ppv": [(decision.present, decision) for decision in answered if decision.called],
        "npv": [
            (not decision.present, decision) for decision in answered if decision.called is False
        ],
    }


def _reasons(has_present: bool, has_absent: bool) -> dict[str, str]:
    """Return why a number is not defined, if it is not."""
    reasons = {"sensitivity": ABSENT, "specificity": PRESENT, "ppv": NEVER, "npv": ALWAYS}
    if has_present and has_absent:
        return {**reasons, "lr_positive": NO_FALSE_POSITIVE, "lr_negative": NO_TRUE_NEGATIVE}
    one_sided = PRESENT if has_present else ABSENT
    return {**reasons, "lr_positive": one_sided, "lr_negative": one_sided}


def _calls(decisions: Sequence[Decision]) -> Calls:
    counts = Counter(decision.called for decision in decisions if not decision.failed)
    return Calls(counts[True], counts[False], counts[None], len(decisions) - counts.total())


def _share(part: Sequence[tuple[bool, Decision]]) -> tuple[EstimatedValue, float]:
    """Return the share of decisions for which something holds, and the degrees of freedom of its error."""
    values = [float(holds) for holds, _ in part]
    error = clustered_error(values, [decision.cluster for _, decision in part])
    value = math.fsum(values) / len(values) if values else math.nan
    ends = interval(value, error.error, error.degrees, True, error.effective)
    return EstimatedValue(value, error.error, *ends), error.degrees


def _ratio(decisions: Sequence[Decision], called: bool, degrees: float) -> EstimatedValue:
    """Return a likelihood ratio: how much likelier a call is if the class is present.

    The error of its logarithm has the degrees of freedom of the smaller part, those with or without the class.
    """
    sizes = Counter(decision.present for decision in decisions)
    calls = Counter(decision.present for decision in decisions if decision.called is called)
    if not (sizes[True] and sizes[False] and calls):
        return EstimatedValue(math.nan)
    if not (calls[True] and calls[False]):
        return _ratio_without_error(decisions, called, degrees)
    value = calls[True] / sizes[True] / (calls[False] / sizes[False])
    error = _log_ratio_error(decisions, called, calls, sizes)
    if not error > _NO_SPREAD:
        return _ratio_without_error(decisions, called, degrees)
    half = t_quantile((1 + LEVEL) / 2, degrees) * error
    return EstimatedValue(value, value * error, value * math.exp(-half), value * math.exp(half))


def _log_ratio_error(
    decisions: Sequence[Decision],
    called: bool,
    calls: Mapping[bool, int],
    sizes: Mapping[bool, int],
) -> float:
    totals: dict[Hashable, float] = {}
    numbers: Counter[Hashable] = Counter()
    cells = Counter(
        (decision.cluster, decision.present, decision.called is called) for decision in decisions
    )
    for (cluster, present, is_call), number in cells.items():
        # Influence of a sample on log(p1 / p0), times the number of samples; all together are 0.
        sign = 1 if present else -1
        influence = sign * len(decisions) * (is_call / calls[present] - 1 / sizes[present])
        totals[cluster] = totals.get(cluster, 0.0) + number * influence
        numbers[cluster] += number
    means = [total / numbers[cluster] for cluster, total in totals.items()]
    return clustered_error(means, list(totals), list(numbers.values())).error


def _ratio_without_error(
    decisions: Sequence[Decision], called: bool, degrees: float
) -> EstimatedValue:
    """Return a likelihood ratio whose logarithm has no error, as a share is 0, or both are 1."""
    shares, sizes = [], []
    for present in (True, False):
        part = [decision for decision in decisions if decision.present == present]
        values = [float(decision.called is called) for decision in part]
        shares.append(math.fsum(values) / len(values))
        sizes.append(clustered_error(values, [decision.cluster for decision in part]).effective)
    are_independent = len({decision.cluster for decision in decisions}) == len(decisions)
    ends = ratio_of_shares(
        (shares[0], shares[1]), (sizes[0], sizes[1]), None if are_independent else degrees
    )
    return EstimatedValue(shares[0] / shares[1] if shares[1] else math.inf, math.nan, *ends)


def at_prevalence(of_class: ClassNumbers, prevalence: float) -> ClassNumbers:
    """Add the predictive values for another prevalence, between 0 and 1.

    They follow from the likelihood ratios: the logit of a predictive value is that of the prevalence plus the
    logarithm of a ratio, so that the interval of the ratio is theirs as well.
    """
    odds = prevalence / (1 - prevalence)

    def predictive(ratio: float) -> float:
        return 1.0 if ratio == math.inf else odds * ratio / (1 + odds * ratio)

    def adjusted(ratio: EstimatedValue) -> EstimatedValue:
        value, low, high = map(predictive, (ratio.value, ratio.low, ratio.high))
        error = value * (1 - value) * ratio.error / ratio.value if ratio.value else math.nan
        return EstimatedValue(value, error, low, high)

    ppv, after = (adjusted(of_class.numbers[f"lr_{call}"]) for call in _ADJUSTED.values())
    # After a negative call it is the probability that the class is there all the same.
    npv = EstimatedValue(1 - after.value, after.error, 1 - after.high, 1 - after.low)
    numbers = {**of_class.numbers, "ppv_adjusted": ppv, "npv_adjusted": npv}
    undefined = dict(of_class.undefined)
    for name, call in _ADJUSTED.items():
        if math.isnan(numbers[f"{name}_adjusted"].value):
            undefined[f"{name}_adjusted"] = of_class.undefined[f"lr_{call}"]
    return replace(of_class, numbers=numbers, undefined=undefined, prevalence=prevalence)
