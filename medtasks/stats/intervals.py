"""The 95 % interval of a score, from its value and its standard error at the unit that was sampled.

A share gets the interval of Wilson (1927) for the number of independent answers that would have the same standard
error, the *effective sample size* ``p (1 - p) / error ** 2`` (Kish, "Survey Sampling", 1965). Survey statistics uses it
for shares of clustered samples: Korn and Graubard (1998), Survey Methodology 24, who also correct for the few units of
the error; Dean and Pagano (2015), Journal of Survey Statistics and Methodology 3, who find Wilson's the most reliable
of seven such intervals. It never leaves [0, 1], and is defined also if every answer is right.

Any other score gets Student's interval, ``value +- t * error``. Degrees of freedom and bounds of the effective size
come from :mod:`medtasks.stats.standard_error`.

Simulated coverage (``benchmarks/intervals.py``) is 93 to 98 % for set accuracy, confusion and individual accuracy on
MediConfusion's graph of shared images, and at least 91 % for shares of clusters of very unequal size; it is about 90 %
for 40 very skewed values, such as log-normal ones (``tests/stats/test_intervals.py``).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

Pair = tuple[float, float]  # of two shares, or of their samples
Ends = tuple[float, float]
"""Lower and upper end of an interval."""

LEVEL = 0.95
UNDEFINED_ENDS: Ends = (math.nan, math.nan)
FEW_CLUSTERS = 10
"""Effective clusters, degrees of freedom plus one, below which tables note that an interval rests on few of them."""
_NO_SPREAD = 1e-9  # relative to the score: a standard error of nothing but rounding
_LARGEST_LOGARITHM = 20.0  # of a ratio of shares
_HALVINGS = 60


@dataclass(frozen=True)
class EstimatedValue:
    """A value with its standard error and the ends of its 95 % interval. Undefined numbers are NaN."""

    value: float
    error: float = math.nan
    low: float = math.nan
    high: float = math.nan


def without_noise(value: float) -> float:
    """Return a computed number without its rounding errors, to compare it with a limit or make it whole.

    Example:
        >>> without_noise(19.999999999999993)
        20.0
    """
    return round(value, 9)


def interval(
    value: float,
    error: float,
    degrees: float | None,
    share: bool,
    effective: float | None = None,
    level: float = LEVEL,
) -> Ends:
    """Return the ends of the interval of a score, by default that of 95 %.

    Args:
        value: The score.
        error: Its standard error.
        degrees: Degrees of freedom of Student's t. If None, the quantile is the normal one.
        share: Whether the score is a fraction of samples, or a mean of values between 0 and 1.
        effective: Effective sample size of a share. If None, it is computed from the error. If it is infinite, the
            score is known exactly, and both ends are its value; this holds for other scores, too, for which a finite
            size has no effect.
        level: Confidence.

    Returns:
        Ends are NaN for an undefined value or error, without a degree of freedom, and for an error of 0, except for
        shares with ``effective``.

    Raises:
        ValueError: A share is not between 0 and 1, or an error is negative.

    Example:
        >>> low, high = interval(0.9, 0.0, None, True, effective=100)
        >>> round(low, 3), round(high, 3)
        (0.826, 0.945)
    """
    if error < 0 or (share and (value < -_NO_SPREAD or value > 1 + _NO_SPREAD)):
        raise ValueError(
            f"expected a share between 0 and 1 and an error of at least 0, but got {value} and {error}"
        )
    if effective == math.inf:
        return value, value
    if not (math.isfinite(value) and math.isfinite(error)) or (
        degrees is not None and not degrees > 0
    ):
        return UNDEFINED_ENDS
    quantile = t_quantile((1 + level) / 2, degrees)
    if share:
        return _wilson_ends(min(max(value, 0.0), 1.0), error, effective, quantile)
    if error <= _NO_SPREAD * abs(value):
        return UNDEFINED_ENDS
    return value - quantile * error, value + quantile * error


def _wilson_ends(
    value: float,
    error: float,
    effective: float | None,
    quantile: float,
) -> Ends:
    """Return Wilson's ends of the interval of a share.

    Args:
        value: The share, 0 to 1.
        error: Its standard error, which counts only without ``effective``.
        effective: Number of independent answers with that error. If None, it is computed from the error.
        quantile: Quantile of Student's t, or of the normal distribution, for the confidence.

    Returns:
        Ends are NaN without ``effective`` if the error is 0, or the share 0 or 1.
    """
    spread = value * (1 - value)
    if effective is None:
        if error <= _NO_SPREAD or spread <= 0:
            return UNDEFINED_ENDS
        effective = spread / error**2
    # Student's quantile in place of the normal one is the same as Korn and Graubard's factor on the size.
    square = quantile**2
    total = effective + square
    middle = (value * effective + square / 2) / total
    half = quantile * math.sqrt(spread * effective + square / 4) / total
    low = min(value, middle - half)
    high = max(value, middle + half)
    return max(0.0, low), min(1.0, high)


def difference_of_shares(
    shares: Pair,
    sizes: Pair,
    degrees: float | None,
    correlation: float = 0.0,
) -> float:
    """Return the two-sided p-value of the difference of two shares of different samples.

    The score test with the error of equal shares, of which Wilson's interval is the one-sample form (Newcombe, 1998,
    Statistics in Medicine 17), for effective sample sizes and with Student's t.

    Args:
        shares: Both shares.
        sizes: Effective sample sizes.
        degrees: Degrees of freedom of Student's t. If None, the quantile is the normal one.
        correlation: Correlation of the two shares, if their samples have patients or images in common.

    Returns:
        NaN if a share is undefined, a size is not above 0 and finite, or the degrees of freedom are not above 0. 1 if
        the difference has no error, as for two shares of 0.
    """
    if (
        not all(map(math.isfinite, (*shares, *sizes)))
        or min(sizes) <= 0
        or (degrees is not None and not degrees > 0)
    ):
        return math.nan
    first, second = shares
    first_size, second_size = sizes
    pooled = (first * first_size + second * second_size) / (first_size + second_size)
    shared = 2 * correlation / math.sqrt(first_size * second_size)
    spread = 1 / first_size + 1 / second_size - shared
    error = math.sqrt(max(0.0, pooled * (1 - pooled) * spread))
    if error <= _NO_SPREAD:
        return 1.0
    statistic = abs(first - second) / error
    if degrees is None:
        return 2 * NormalDist().cdf(-statistic)
    from scipy.special import stdtr  # type: ignore[import-untyped]  # scipy.stats takes seconds to import

    return float(2 * stdtr(degrees, -statistic))


def ratio_of_shares(
    shares: Pair,
    sizes: Pair,
    degrees: float | None,
) -> Ends:
    """Return the ends of the 95 % interval of the first of two shares of different samples over the second.

    Koopman (1984), Biometrics 40: all ratios that the score test does not reject. Unlike that of the logarithm it is
    defined if a share is 0 or 1. The lower end is 0 for a ratio of 0, the upper one infinite for a second share of 0.

    Args:
        shares: Both shares, of which at least one is above 0.
        sizes: Effective sample sizes.
        degrees: Degrees of freedom of Student's t. If None, the quantile is the normal one.

    Returns:
        Ends are NaN if a size is not finite.

    Example:
        >>> low, high = ratio_of_shares((36 / 40, 16 / 80), (40, 80), None)
        >>> round(low, 2), round(high, 2)
        (2.94, 7.15)
    """
    if not all(map(math.isfinite, sizes)):
        return UNDEFINED_ENDS
    first, second = shares
    first_size, second_size = sizes
    total = first_size + second_size
    called = first * first_size + second * second_size

    def statistic(logarithm: float) -> float:
        """Return the score of a ratio, standardised at the likeliest shares that have it."""
        ratio = math.exp(logarithm)
        linear = ratio * (first_size + second * second_size) + first * first_size + second_size
        root = math.sqrt(max(0.0, linear**2 - 4 * ratio * total * called))
        of_second = (linear - root) / (2 * ratio * total)
        of_first = ratio * of_second
        not_first = max(1 - of_first, _NO_SPREAD)
        not_second = max(1 - of_second, _NO_SPREAD)
        # Both parts have the same score; that of the larger share may be 0 / 0.
        if ratio < 1:
            score = first_size * (first - of_first) / not_first
        else:
            score = second_size * (of_second - second) / not_second
        variance = not_first / (first_size * of_first) + not_second / (second_size * of_second)
        return score * math.sqrt(variance)

    def end(target: float) -> float:
        """Return the ratio whose score is the target."""
        low, _ = bisect(
            lambda logarithm: statistic(logarithm) > target,
            -_LARGEST_LOGARITHM,
            _LARGEST_LOGARITHM,
        )
        return math.exp(low)

    quantile = t_quantile((1 + LEVEL) / 2, degrees)
    low = end(quantile) if first else 0.0
    return low, end(-quantile) if second else math.inf


def bisect(holds: Callable[[float], bool], inside: float, outside: float) -> Pair:
    """Narrow down where a condition ends.

    Args:
        holds: The condition, which holds at ``inside`` and up to somewhere before ``outside``.
        inside: Where it holds, above or below ``outside``.
        outside: Where it does not.

    Returns:
        Two numbers as near as 60 halvings bring them: the last one where it holds, and the first where it does not.

    Example:
        >>> bisect(lambda root: root**2 < 9, 0.0, 10.0)
        (2.9999999999999996, 3.0)
    """
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return inside, outside


def difference_of_values(
    first: EstimatedValue,
    second: EstimatedValue,
    correlation: float = 0.0,
) -> EstimatedValue:
    """Return the first minus the second of two values of different samples, with the interval that follows from theirs.

    Its ends are as far from the difference as those of both intervals together (Newcombe, 1998, Statistics in Medicine
    17, method 10, for Wilson's; Zou and Donner, 2008, Statistics in Medicine 27, for any).

    Args:
        first: The value from which the other one is subtracted.
        second: The other value.
        correlation: Correlation of the values, if samples of both share patients or images.

    Example:
        >>> difference = difference_of_values(EstimatedValue(0.5, 0.3), EstimatedValue(0.25, 0.4))
        >>> difference.value, difference.error
        (0.25, 0.5)
    """

    def combine(length: float, other: float) -> float:
        """Return the length for a difference, from those of both values."""
        squared = length**2 + other**2 - 2 * correlation * length * other
        return math.sqrt(max(0.0, squared))

    value = first.value - second.value
    below = combine(first.value - first.low, second.high - second.value)
    above = combine(first.high - first.value, second.value - second.low)
    return EstimatedValue(
        value, combine(first.error, second.error), value - below, value + above
    )


def t_quantile(probability: float, degrees: float | None) -> float:
    """Return the quantile of Student's t, or of the normal distribution if the degrees of freedom are None.

    Example:
        >>> round(t_quantile(0.975, None), 2), round(t_quantile(0.975, 9), 2)
        (1.96, 2.26)
    """
    if degrees is None:
        return NormalDist().inv_cdf(probability)
    from scipy.special import stdtrit  # scipy.stats takes seconds to import

    return float(stdtrit(degrees, probability))
