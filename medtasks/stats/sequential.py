"""Group-sequential tests: levels of several looks at growing data, and what follows from where one stopped.

Levels are those of O'Brien and Fleming (1979), Biometrics 35: the statistic at a look has to exceed ``C`` over the root
of the look's share of the information. They hold for unequal shares, too, as the level that is spent by a look depends
on shares up to it (Lan and DeMets, 1983, Biometrika 70). Probabilities are integrals over a Brownian motion (Armitage,
McPherson and Rowe, 1969, JRSS A 132), which sums of independent clusters approach.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from medtasks.stats.paired import ALPHA

_NODES = 100  # points of the integration by Gauss and Legendre
_HALVINGS = 50
_LARGEST = 8.0  # larger normal statistics count as this one
_LEAST_P = 1e-15  # smaller p-values count as this one, whose statistic is beyond the largest


@dataclass(frozen=True)
class Boundaries:
    """Two-sided limits of a normal statistic at each look, and the shares of the information there.

    Attributes:
        shares: Rising, the last is 1.
        limits: Limit of the absolute statistic at each look.
    """

    shares: Sequence[float]
    limits: Sequence[float]

    @property
    def levels(self) -> list[float]:
        """Nominal two-sided level of each look's own p-value."""
        return [math.erfc(limit / math.sqrt(2)) for limit in self.limits]

    def expected_share(self, drift: float) -> float:
        """Return the expected share of the questions that are asked.

        Args:
            drift: Mean of the statistic of all questions.
        """
        stops = np.asarray(stopping(self.limits, self.shares, drift))
        return float(1 - stops @ (1 - np.asarray(self.shares)))

    def stagewise_p(self, look: int, p: float) -> float:
        """Return the two-sided p-value of a test that ended at a look, from 1, with a nominal p-value there.

        An earlier stop is more extreme than a later one, and at the same look the larger statistic is (Tsiatis, Rosner
        and Mehta, 1984, Biometrics 40). At a look's level it is what has been spent by then.
        """
        statistic = -NormalDist().inv_cdf(max(p, _LEAST_P) / 2)
        limits = [*self.limits[: look - 1], statistic]
        return min(1.0, sum(stopping(limits, self.shares[:look])))


def boundaries(shares: Sequence[float]) -> Boundaries:
    """Return limits that equal models exceed at any look with a probability of 5 %.

    Example:
        >>> [round(level, 4) for level in boundaries([0.25, 0.5, 0.75, 1.0]).levels]
        [0.0001, 0.0042, 0.0194, 0.0429]
    """
    low = 0.0
    high = _LARGEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        limits = [middle / math.sqrt(share) for share in shares]
        if sum(stopping(limits, shares)) > ALPHA:
            low = middle
        else:
            high = middle
    return Boundaries(shares, limits)


def stopping(
    limits: Sequence[float], shares: Sequence[float], drift: float = 0.0
) -> list[float]:
    """Return the probability of first exceeding the limit, upwards or downwards, at each look.

    Args:
        limits: Limit of the absolute normal statistic at each look.
        shares: Share of the information at each look, rising.
        drift: Mean of the statistic at a share of 1, by default that of equal models.
    """
    from scipy.special import ndtr  # type: ignore[import-untyped]  # takes a while to import

    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    # Values of the Brownian motion if no limit was exceeded before, and their probabilities.
    places = np.zeros(1)
    mass = np.ones(1)
    before = 0.0
    stops = []
    for limit, share in zip(limits, shares, strict=True):
        edge = min(limit, _LARGEST) * math.sqrt(share)
        centres = places + drift * (share - before)
        spread = math.sqrt(share - before)
        above = ndtr((centres - edge) / spread)
        below = ndtr((-edge - centres) / spread)
        outside = above + below
        stops.append(float(mass @ outside))
        places = edge * nodes
        scaled = (places[:, np.newaxis] - centres) / spread
        width = spread * math.sqrt(2 * math.pi)
        density = np.exp(-(scaled**2) / 2) / width
        mass = edge * weights * (density @ mass)
        before = share
    return stops
