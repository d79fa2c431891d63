"""Group-sequential tests: levels of several looks at growing data, and what follows from where one stopped.

Levels are those of O'Brien and Fleming (1979), Biometrics 35: the statistic at a look has to exceed ``C`` over the root
of the look's share of the information. They hold for unequal shares, too, and spend the level as a spending function of
Lan and DeMets (1983), Biometrika 70. Probabilities are integrals over a Brownian motion (Armitage, McPherson and Rowe,
1969, JRSS A 132), which sums of independent clusters approach.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from medtasks.stats.intervals import t_quantile
from medtasks.stats.paired import ALPHA

_NODES = 120  # of Gauss and Legendre's integration
_HALVINGS = 50
_LARGEST = 8.0  # normal statistic; its probability is 1e-15


@dataclass(frozen=True)
class Boundaries:
    """Two-sided limits of a normal statistic at each look, and the shares of the information there."""

    shares: tuple[float, ...]  # rising, the last is 1
    limits: tuple[float, ...]

    @property
    def levels(self) -> tuple[float, ...]:
        """Nominal two-sided level of each look's own p-value."""
        return tuple(2 * _above(limit) for limit in self.limits)

    @property
    def spent(self) -> tuple[float, ...]:
        """Probability of having stopped by each look if the models are equal."""
        stops = stopping(self.limits, self.shares)
        return tuple(math.fsum(map(sum, stops[:look])) for look in range(1, len(stops) + 1))

    def expected_share(self, drift: float) -> float:
        """Return the expected share of the questions; ``drift`` is the mean of the statistic of all questions."""
        stops = [sum(of_look) for of_look in stopping(self.limits, self.shares, drift)[:-1]]
        early = math.fsum(stop * share for stop, share in zip(stops, self.shares, strict=False))
        return early + 1 - math.fsum(stops)

    def power(self, drift: float) -> float:
        """Return the probability of stopping at some look in the direction of a positive ``drift``."""
        return math.fsum(upper for upper, _ in stopping(self.limits, self.shares, drift))

    def stagewise_p(self, look: int, p: float) -> float:
        """Return the two-sided p-value of a test that ended at a look, from 1, with a nominal p-value there.

        An earlier stop is more extreme than a later one, and at the same look the larger statistic is (Tsiatis, Rosner
        and Mehta, 1984, Biometrics 40). At a look's level it is what has been spent by then.
        """
        return min(1.0, math.fsum(map(sum, self._until(look, p))))

    def median_drift(self, look: int, p: float) -> float:
        """Return the drift, not negative, under which an end at least as extreme upwards has a probability of 1/2."""
        return _first(
            lambda drift: math.fsum(upper for upper, _ in self._until(look, p, drift)) >= 0.5,
            2 * _LARGEST / math.sqrt(self.shares[0]),
        )

    def drift_for(self, power: float) -> float:
        """Return the drift that is found with a power."""
        return _first(lambda drift: self.power(drift) >= power, 2 * _LARGEST)

    def _until(self, look: int, p: float, drift: float = 0.0) -> list[tuple[float, float]]:
        limits = [*self.limits[: look - 1], _statistic(p)]
        return stopping(limits, self.shares[:look], drift)


def boundaries(shares: Sequence[float], alpha: float = ALPHA) -> Boundaries:
    """Return limits that equal models exceed at any look with probability ``alpha``.

    Example:
        >>> [round(level, 4) for level in boundaries([0.25, 0.5, 0.75, 1.0]).levels]
        [0.0001, 0.0042, 0.0194, 0.043]
    """
    roots = np.sqrt(shares)
    constant = _first(
        lambda limit: math.fsum(map(sum, stopping((limit / roots).tolist(), shares))) <= alpha,
        _LARGEST,
    )
    return Boundaries(tuple(shares), tuple((constant / roots).tolist()))


def stopping(
    limits: Sequence[float], shares: Sequence[float], drift: float = 0.0
) -> list[tuple[float, float]]:
    """Return the probabilities of first exceeding the limit at each look, upwards and downwards.

    Args:
        limits: Of the absolute normal statistic, by look.
        shares: Of the information, rising.
        drift: Mean of the statistic at a share of 1.
    """
    from scipy.special import ndtr  # type: ignore[import-untyped]  # takes a while to import

    nodes, weights = _integration()
    places, mass = np.zeros(1), np.ones(1)  # of the Brownian motion while it goes on
    before = 0.0
    stops = []
    for limit, share in zip(limits, shares, strict=True):
        edge = min(limit, _LARGEST) * math.sqrt(share)
        centres = places + drift * (share - before)
        spread = math.sqrt(share - before)
        upper = mass @ ndtr((centres - edge) / spread)
        lower = mass @ ndtr((-edge - centres) / spread)
        stops.append((float(upper), float(lower)))
        places = edge * nodes
        scaled = (places[:, np.newaxis] - centres) / spread
        density = np.exp(-(scaled**2) / 2) / (spread * math.sqrt(2 * math.pi))
        mass = edge * weights * (density @ mass)
        before = share
    return stops


@cache
def _integration() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and weights between -1 and 1."""
    return np.polynomial.legendre.leggauss(_NODES)


def _first(is_enough: Callable[[float], bool], largest: float) -> float:
    """Return the least positive number that is enough, at most ``largest``."""
    low = 0.0
    high = largest
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high


def _above(limit: float) -> float:
    return math.erfc(limit / math.sqrt(2)) / 2


def _statistic(p: float) -> float:
    """Return the absolute normal statistic of a two-sided p-value."""
    return min(_LARGEST, max(0.0, t_quantile(1 - p / 2, None))) if p < 1 else 0.0
