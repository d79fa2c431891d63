"""Planning of a paired comparison of two models: the samples it takes, and the differences that samples can show.

Two shares on the same samples, such as two accuracies, are compared by McNemar's exact test, whose power is summed over
all outcomes. Non-inferiority is Tango's score test at the margin (:mod:`medtasks.stats.equivalence`), whose power is
simulated with a fixed seed. Samples that share a patient or image count as fewer: their number is divided by the design
effect (Kish, "Survey Sampling", 1965; Obuchowski, 1998, Statistics in Medicine 17, for paired clustered samples).
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from medtasks.stats.equivalence import tango_statistic
from medtasks.stats.intervals import t_quantile
from medtasks.stats.paired import SEED
from medtasks.stats.standard_error import Dyad

WORKING_CORRELATION = 0.2
"""Assumed correlation of samples that share a patient or image, without a run to estimate it."""
DRAWS = 4000
LARGEST = 10_000_000
"""Samples beyond which none are planned."""
_UNLIKELY = 1e-10  # outcomes left out on either side
_STEP = 1e-4  # in which detectable differences are found


def design_effect(units: Sequence[Hashable], correlation: float = WORKING_CORRELATION) -> float:
    """Return the ratio of the variance of a mean to that of independent samples.

    ``units`` are the cluster or :class:`~medtasks.stats.standard_error.Dyad` of each sample, shape (samples,), at least
    one; samples that share a cluster or a member of dyads have the ``correlation``.

    Example:
        >>> design_effect(["p1", "p1", "p2", "p2"])
        1.2
    """
    dyads = [frozenset((unit.first, unit.second)) if isinstance(unit, Dyad) else frozenset((unit,)) for unit in units]
    uses, alike = Counter(member for dyad in dyads for member in dyad), Counter(dyads)
    sharing = sum(sum(uses[member] for member in dyad) - (alike[dyad] if len(dyad) > 1 else 0) for dyad in dyads)
    return 1 + correlation * (sharing / len(dyads) - 1)


def independent_discordance(first: float, second: float) -> float:
    """Return the share of samples that one model alone gets right if the answers of both are independent."""
    return first * (1 - second) + second * (1 - first)


def mcnemar_power(samples: int, difference: float, discordance: float, level: float) -> float:
    """Return the power of McNemar's exact two-sided test to show a difference, in its direction.

    ``difference`` and ``discordance`` are the true shares of samples: second minus first model, and those that exactly
    one model gets right, which is at least the absolute difference. ``samples`` are independent.

    Example:
        >>> round(mcnemar_power(100, 0.2, 0.3, 0.05), 3)
        0.961
    """
    from scipy.stats import binom  # type: ignore[import-untyped]  # it has no types

    size = abs(difference)
    if discordance <= 0 or size > discordance + 1e-12:
        return 0.0
    low, high = binom.ppf([_UNLIKELY, 1 - _UNLIKELY], samples, discordance)
    numbers = np.arange(int(low), int(high) + 1)
    critical = binom.ppf(level / 2, numbers, 0.5)
    critical = np.where(binom.cdf(critical, numbers, 0.5) > level / 2, critical - 1, critical)
    lost = (discordance - size) / 2 / discordance
    return float(binom.pmf(numbers, samples, discordance) @ binom.cdf(critical, numbers, lost))


def non_inferiority_power(samples: int, difference: float, discordance: float, margin: float, level: float) -> float:
    """Return the power to show that the second model is worse by less than the ``margin``, simulated.

    The test is Tango's with the normal quantile, one-sided; arguments are those of :func:`mcnemar_power`.
    """
    gained, lost = max(0.0, (discordance + difference) / 2), max(0.0, (discordance - difference) / 2)
    random = np.random.default_rng(SEED)
    drawn = random.multinomial(samples, [gained, lost, max(0.0, 1 - gained - lost)], size=DRAWS)
    kinds, numbers = np.unique(drawn[:, :2], axis=0, return_counts=True)
    limit = t_quantile(1 - level, None)
    rejected = [tango_statistic(float(more), float(less), samples, -margin) > limit for more, less in kinds]
    return float(numbers @ np.array(rejected) / DRAWS)


def samples_needed(power_of: Callable[[int], float], power: float) -> int | None:
    """Return the number of independent samples that have a power, None beyond :data:`LARGEST`.

    The power of an exact test is not quite monotonic: some smaller number may have the power, too.
    """
    low, high = 1, 2
    while power_of(high) < power:
        low, high = high, 2 * high
        if high > LARGEST:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle) >= power else (middle, high)
    return high


def detectable_difference(power_of: Callable[[float], float], power: float, largest: float) -> float:
    """Return the smallest difference, up to a ``largest``, that has a power; NaN if none has."""
    low, high = 0, math.floor(largest / _STEP)
    if high < 1 or power_of(high * _STEP) < power:
        return math.nan
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power_of(middle * _STEP) >= power else (middle, high)
    return high * _STEP
