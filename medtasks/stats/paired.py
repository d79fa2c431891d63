"""Two models on the same samples: tests, interval, smallest detectable difference, and correction for many tests."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from medtasks.stats.bootstrap import block_sizes
from medtasks.stats.intervals import UNDEFINED_ENDS, Ends, t_quantile
from medtasks.stats.sample_design import are_drawn, drawn_mean, mean_and_error
from medtasks.stats.standard_error import Dyad, Floats, Units, separate_units

ALPHA = 0.05
POWER = 0.80
MCNEMAR = "exact McNemar"
SIGN_FLIP = "sign flip of units"
DYADIC = "dyadic t"
DELONG = "paired DeLong t"
DRAWN_T = "t of the draw"

DRAWS = 10_000
SEED = 20261121  # of the random signs: the same runs give the same digits; written into every comparison

_EXTREME = 20  # draws that are as extreme, of a p-value at the first level of Holm
_BLOCK = 4_000_000  # random numbers held at once: 32 MB
_MOST_DRAWS = 1_000_000  # at a small level; of many units fewer:
_MOST_SIGNS = 4_000_000_000
_TIE = 1e-9  # of the sum of all sizes; sums of the same numbers in another order differ by less
_NO_SPREAD = 1e-9  # of the largest difference


PairedValues = tuple[Sequence[float], Sequence[float], Units]
"""Values of the first and of the second model, and the independent unit of each sample; shape (samples,) each."""


@dataclass(frozen=True)
class PairedResult:
    """Difference of the second of two models from the first on the same samples. Undefined numbers are NaN.

    Attributes:
        units: Number of independent units, or dyads, that the samples belong to.
        first: Mean of the first model.
        second: Mean of the second model.
        difference: Second minus first.
        low: Lower end of its 95 % interval.
        high: Upper end.
        test: DYADIC for dyads that share members, DRAWN_T for drawn units, MCNEMAR for right and wrong, one sample per
            unit, else SIGN_FLIP.
        p: Two-sided p-value of that test.
        mcnemar: P-value of McNemar's test for right and wrong, None for other scores. With several samples per unit it
            takes these for independent and may be too small.
        detectable: Smallest true difference found with about 80 % power at the level of :func:`correct_by_holm`.
        evidence: Number of units, or under McNemar's test of samples on which the models differ. None where Student's t
            needs no number.
    """

    samples: int
    units: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    test: str
    p: float
    mcnemar: float | None
    detectable: float
    evidence: int | None = None

    def lacking(self, tests: int, unit: str = "independent unit") -> str:
        """Explain why no difference could be shown. The text is empty if one could.

        Args:
            tests: Number of tests that are corrected together.
            unit: Word for one independent unit.
        """
        level = ALPHA / tests
        if self.evidence is None or mcnemar(0, self.evidence) <= level:
            return ""
        number = self.evidence
        if self.test == DYADIC:
            unit = "separate group of pairs"
        elif self.test == MCNEMAR and mcnemar(0, self.samples) <= level:
            unit = "differing sample"
        elif self.test == MCNEMAR:
            number = self.samples
        plural = "" if number == 1 else "s"
        return f"{number} {unit}{plural} cannot show any difference at this level"

    @property
    def is_testable(self) -> bool:
        """Whether the design could show a difference, whatever the replies: McNemar's test could count all samples."""
        evidence = self.samples if self.test == MCNEMAR else self.evidence
        return evidence is None or mcnemar(0, evidence) <= ALPHA


def compare_paired(
    first: Sequence[float],
    second: Sequence[float],
    units: Units,
    smaller: int | None = None,
    level: float = ALPHA,
) -> PairedResult:
    """Compare two models on the same samples.

    With values of 0 and 1 only and one sample per unit: McNemar's test, the interval of Agresti and Min, and the
    detectable difference of Connor. Otherwise: a sign-flip test over units, the interval of values it does not reject,
    and the detectable difference from the clustered standard error. For dyads that share members: Student's t with the
    dyadic error and its degrees of freedom (a sign flip of components of connected pairs would be valid, too, but finds
    5 of 100 differences less). With values of :func:`~medtasks.stats.calibration.area_values`, of which ``smaller`` is
    the number of units in the smaller group of positives or negatives: Student's t with one degree of freedom less.
    For units that were drawn from a benchmark: Student's t with the error of the draw, for the difference on all of the
    benchmark. The result does not depend on the order of the samples.

    Args:
        first: Finite values of the first model, shape (samples,), at least one.
        second: Values of the second model, in the same order.
        units: Independent unit of each sample, such as its patient, or its
            :class:`~medtasks.stats.standard_error.Dyad`.
        smaller: Number of units in the smaller group of positives or negatives, see above. None for all values but
            those of :func:`~medtasks.stats.calibration.area_values`.
        level: The interval has a confidence of 1 - ``level``. For a small one a sign-flip test draws as many more signs
            as it takes to pass.

    Example:
        >>> result = compare_paired([0, 0, 0, 0, 0, 1], [1, 1, 1, 1, 1, 1], range(6))
        >>> result.test, result.p
        ('exact McNemar', 0.0625)
    """
    units = separate_units(units)
    differences = paired_differences(first, second)
    number = len(set(units))
    samples = len(differences)
    right_or_wrong = {*first, *second} <= {0.0, 1.0}
    gained = sum(difference > 0 for difference in differences)
    lost = sum(difference < 0 for difference in differences)
    evidence: int | None = number
    test = _fitting_test(units, smaller, right_or_wrong)
    if test == MCNEMAR:
        low, high = UNDEFINED_ENDS
        if samples > 1:
            low, high = agresti_min_interval(lost, gained, samples, level)
        p = mcnemar(lost, gained)
        evidence = lost + gained
    elif test == SIGN_FLIP:
        draws = draws_at(level, number)
        low, high = sign_flip_interval(differences, units, draws, level=level)
        p = sign_flip_test(differences, units, draws)
    else:
        low, high, p = _student_test(differences, units, smaller, level)
        evidence = 1 if math.isnan(low) else None
    if min(*first, *second) >= 0 and max(*first, *second) <= 1:
        low = max(low, -1.0)
        high = min(high, 1.0)
    result = PairedResult(
        samples=samples,
        units=number,
        first=_mean(first, units),
        second=_mean(second, units),
        difference=_mean(differences, units),
        low=low,
        high=high,
        test=test,
        p=p,
        mcnemar=mcnemar(lost, gained) if right_or_wrong else None,
        detectable=math.nan,
        evidence=evidence,
    )
    return replace(result, detectable=_detectable(result, differences, units, 1))


def _fitting_test(units: Units, smaller: int | None, right_or_wrong: bool) -> str:
    """Return the name of the test for two models on samples of these units.

    Args:
        units: Independent unit of each sample.
        smaller: As of :func:`compare_paired`, None for values that are not of an area.
        right_or_wrong: Whether all values are 0 or 1.
    """
    if are_drawn(units):
        return DRAWN_T
    if smaller is not None:
        return DELONG
    if any(isinstance(unit, Dyad) for unit in units):
        return DYADIC
    has_one_each = len(set(units)) == len(units)
    return MCNEMAR if right_or_wrong and has_one_each else SIGN_FLIP


def paired_differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Return the differences of two models sample by sample, second minus first.

    Example:
        >>> paired_differences([0.0, 1.0], [1.0, 1.0])
        [1.0, 0.0]
    """
    return [after - before for before, after in zip(first, second, strict=True)]


def _mean(values: Sequence[float], units: Units) -> float:
    """Return the mean of values, or the estimated mean of the benchmark from which their units were drawn."""
    if are_drawn(units):
        return drawn_mean(values, units)[0]
    return math.fsum(values) / len(values)


def _student_test(
    differences: Sequence[float],
    units: Units,
    smaller: int | None,
    level: float,
) -> tuple[float, float, float]:
    """Return the ends of the interval of the mean difference, and its two-sided p-value.

    Source: Aronow, Samii and Assenova (2015), Political Analysis 23. Simulated type I error on MediConfusion's graph:
    at most 6 % (``benchmarks/intervals.py``).

    Args:
        differences: Second model minus first, shape (samples,).
        units: Dyad, cluster or drawn unit of each sample.
        smaller: As of :func:`compare_paired`, None for values that are not of an area.
        level: The interval has a confidence of 1 - ``level``.

    Returns:
        NaN, NaN and 1 if the standard error is undefined, as for a single unit or if all dyads share members.
    """
    mean, error = mean_and_error(differences, units)
    if error.effective == math.inf:  # all of the benchmark
        return mean, mean, 0.0 if mean else 1.0
    if smaller is not None:
        error = replace(error, degrees=smaller - 1.0)
    if error.error > _NO_SPREAD * max(map(abs, differences)):
        half = t_quantile(1 - level / 2, error.degrees) * error.error
        p = min(1.0, 2 * exceeding(abs(mean) / error.error, error.degrees))
        return mean - half, mean + half, p
    if math.isnan(error.error) or not error.degrees > 0:
        return *UNDEFINED_ENDS, 1.0
    # Equal differences show nothing of their spread: they count as independent samples.
    size = error.effective if are_drawn(units) else error.degrees + 1
    lost = size * max(-mean, 0.0)
    gained = size * max(mean, 0.0)
    low, high = agresti_min_interval(lost, gained, size, level)
    return low, high, 0.5**error.degrees if mean else 1.0


def correct_by_holm(
    tests: Sequence[tuple[PairedResult, PairedValues]],
) -> list[tuple[PairedResult, float]]:
    """Return the results of one family of tests, each with its p-value corrected by Holm's procedure.

    The detectable difference is that of a test at ``ALPHA / number of tests``, the level of Holm's first step, so that
    the power is no smaller whatever the other tests find. More random signs are drawn if the test alone rejects: with
    :data:`DRAWS` no p-value could pass among more than 500 tests.

    Args:
        tests: Results of :func:`compare_paired`, each with its arguments.

    Returns:
        For each test, in the same order, the result with its uncorrected p-value, and the corrected p-value.
    """
    results = []
    draws = draws_for(len(tests))
    for result, (first, second, units) in tests:
        differences = paired_differences(first, second)
        units = separate_units(units)
        p = result.p
        if result.test == SIGN_FLIP and draws > DRAWS and p <= ALPHA:
            p = sign_flip_test(differences, units, draws)
        detectable = _detectable(result, differences, units, len(tests))
        results.append(replace(result, p=p, detectable=detectable))
    corrected = holm([result.p for result in results])
    return list(zip(results, corrected, strict=True))


def draws_for(tests: int) -> int:
    """Return the number of drawn signs with which tests that are corrected together can pass.

    Example:
        >>> draws_for(10), draws_for(1000)
        (10000, 400000)
    """
    return max(DRAWS, math.ceil(_EXTREME * tests / ALPHA))


def draws_at(level: float, units: int) -> int:
    """Return the number of drawn signs of as many units with which a test at a small level can pass.

    Example:
        >>> draws_at(0.05, 100), draws_at(0.0001, 100)
        (10000, 200000)
    """
    most = max(DRAWS, min(_MOST_DRAWS, _MOST_SIGNS // units))
    return min(most, max(DRAWS, math.ceil(_EXTREME / level)))


def _detectable(
    result: PairedResult,
    differences: Sequence[float],
    units: Units,
    tests: int,
) -> float:
    """Return the smallest true difference found with 80 % power.

    Of McNemar's test: Connor (1987), Biometrics 43, ``n d^2 = (z_a sqrt(s) + z_b sqrt(s - d^2))^2`` with the observed
    discordance ``s``, solved for ``d``; NaN if that would be above ``s``. The formula is for the asymptotic test: the
    exact one has 2 to 4 points less power. Of others: Bloom (1995), Evaluation Review 19, ``(t_a + t_b) se`` with the
    standard error of the observed differences; NaN for one unit and for equal differences, which show nothing of their
    spread.

    Args:
        result: Result of the test.
        differences: Second model minus first, shape (samples,).
        units: Independent unit of each sample.
        tests: Number of tests that are corrected together.

    Returns:
        NaN also if no difference could be shown, see :meth:`PairedResult.lacking`.
    """
    if result.lacking(tests):
        return math.nan
    level = ALPHA / tests
    if result.test != MCNEMAR:
        _, error = mean_and_error(differences, units)
        if not error.error > _NO_SPREAD * max(map(abs, differences)):
            return math.nan
        quantile = t_quantile(1 - level / 2, error.degrees)
        return (quantile + t_quantile(POWER, error.degrees)) * error.error
    samples = len(differences)
    discordance = sum(map(bool, differences)) / samples
    normal = t_quantile(1 - level / 2, None)
    power = t_quantile(POWER, None)
    scaled = samples * discordance
    enlarged = samples + power**2
    root = normal**2 * scaled - enlarged * discordance * (normal**2 - power**2)
    if root < 0 or not discordance:
        return math.nan
    difference = (normal * math.sqrt(scaled) + math.sqrt(root)) / enlarged
    return difference if difference <= discordance else math.nan


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p-value of McNemar's test.

    Source: McNemar (1947), as a binomial test of the samples that exactly one model got right; 1 without any.

    Args:
        only_first: Number of samples that only the first model got right.
        only_second: Number of samples that only the second model got right.

    Example:
        >>> mcnemar(1, 7)
        0.0703125
    """
    from scipy.special import betainc  # type: ignore[import-untyped]  # scipy.stats takes half a second to import

    fewer, more = sorted((only_first, only_second))
    # The tail is half of the distribution or more, and betainc may return a little less.
    if more - fewer <= 1:
        return 1.0
    return min(1.0, 2 * float(betainc(more, fewer + 1, 0.5)))


def agresti_min_interval(
    only_first: float,
    only_second: float,
    samples: float,
    level: float = ALPHA,
) -> Ends:
    """Return the interval of the difference of two paired shares (second minus first).

    Source: Agresti and Min (2005), Statistics in Medicine 24: Wald's interval after half a sample is added to each of
    the four cells. Unlike Wald's, it has a width if the models differ on no sample.

    Args:
        only_first: Number of samples that only the first model got right. As all numbers, it may be a fraction.
        only_second: Number of samples that only the second model got right.
        samples: Number of all samples.
        level: The interval has a confidence of 1 - ``level``.
    """
    total = samples + 2
    lost = only_first + 0.5
    gained = only_second + 0.5
    gain = gained - lost
    centre = gain / total
    spread = math.sqrt((gained + lost) - gain**2 / total)
    half = t_quantile(1 - level / 2, None) * spread / total
    return max(-1.0, centre - half), min(1.0, centre + half)


def exceeding(statistic: float, degrees: float) -> float:
    """Return the probability that Student's t exceeds a value, NaN if that or the degrees are undefined.

    Example:
        >>> round(exceeding(2.262, 9), 3)
        0.025
    """
    from scipy.special import stdtr  # scipy.stats takes seconds to import

    return float(stdtr(degrees, -statistic)) if degrees > 0 else math.nan


def sign_flip_test(
    differences: Sequence[float],
    clusters: Units,
    draws: int = DRAWS,
    seed: int = SEED,
) -> float:
    """Return the two-sided p-value of the mean difference when the signs of whole units are exchanged.

    Source: Fisher's randomisation test for pairs (The Design of Experiments, 1935) with units as blocks. If the models
    are equally good, the total difference of a unit is as likely to be its negative. All signs are tried if there are
    at most ``draws`` combinations, else ``draws`` are drawn, and the observed one counts as one of them (Phipson and
    Smyth, 2010), so that p is never 0.

    Args:
        differences: Second model minus first, shape (samples,).
        clusters: Unit of each sample.
        draws: Number of combinations of signs, see above.
        seed: Seed of the random signs.

    Example:
        >>> sign_flip_test([0.1, 0.2, 0.3, 0.4], range(4))
        0.125
    """
    totals = _units(differences, clusters)[:, 0]
    sizes = np.sort(np.abs(totals[totals != 0]))
    whole = sizes.sum()
    limit = abs(math.fsum(totals)) - _TIE * float(whole)
    extreme = []
    for positive in unit_choices(len(sizes), draws, seed):
        flipped = 2 * (positive @ sizes) - whole
        extreme.append(np.abs(flipped) >= limit)
    return float(np.mean(np.concatenate(extreme)))


def sign_flip_interval(
    differences: Sequence[float],
    clusters: Units,
    draws: int = DRAWS,
    level: float = ALPHA,
) -> Ends:
    """Return the interval of the mean difference: all true values that the sign-flip test does not reject.

    Source: Hartigan (1969), Journal of the American Statistical Association 64. With the signs of some units exchanged,
    a value fits as well as the observed one exactly if it lies between the mean of these units and that of the others.
    Unlike the clustered standard error it holds for few units of very different sizes.

    Args:
        differences: Second model minus first, shape (samples,).
        clusters: Unit of each sample.
        draws: As of :func:`sign_flip_test`.
        level: The interval has a confidence of 1 - ``level``.

    Returns:
        NaN for five units and less, which can reject nothing, and for equal differences.
    """
    units = _units(differences, clusters)
    whole = units.sum(axis=0)
    lower = []
    upper = []
    for chosen in unit_choices(len(units), draws, SEED):
        sums = chosen @ units
        parts = np.stack((sums, whole - sums))
        totals = parts[..., 0]
        numbers = parts[..., 1]
        means = np.where(numbers, totals / np.maximum(numbers, 1), np.nan)
        lower.append(np.nan_to_num(means.min(axis=0), nan=-np.inf))
        upper.append(np.nan_to_num(means.max(axis=0), nan=np.inf))
    rejected = int(level * sum(map(len, lower)))
    low = float(np.sort(np.concatenate(lower))[rejected])
    highest_first = np.sort(np.concatenate(upper))[::-1]
    high = float(highest_first[rejected])
    is_finite = math.isfinite(low) and math.isfinite(high)
    if not is_finite or max(differences) - min(differences) < _TIE:
        return UNDEFINED_ENDS
    return low, high


def _units(differences: Sequence[float], clusters: Units) -> Floats:
    """Return the sum and the number of differences of each unit, sorted by its name, shape (units, 2)."""
    members: dict[str, list[float]] = defaultdict(list)
    for cluster, difference in sorted(zip(map(str, clusters), differences, strict=True)):
        members[cluster].append(difference)
    return np.asarray([(math.fsum(values), len(values)) for values in members.values()])


def unit_choices(units: int, draws: int, seed: int) -> Iterator[Floats]:
    """Yield blocks of choices of units, 1 for a chosen unit and 0 for any other, shape (block, units).

    Args:
        units: Number of units.
        draws: All possible choices are yielded if there are at most as many. Otherwise the choice of all units comes
            first, and then as many random choices.
        seed: Seed of the random choices.

    Example:
        >>> next(unit_choices(2, 10, 0)).tolist()
        [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    if 2**units <= draws:
        choices = np.arange(2**units)[:, np.newaxis] >> np.arange(units) & 1
        yield choices.astype(np.float64)
        return
    yield np.ones((1, units))
    random = np.random.default_rng(seed)
    for block in block_sizes(draws, units, _BLOCK):
        signs = random.integers(0, 2, size=(block, units), dtype=np.int8)
        yield signs.astype(np.float64)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for all tests of a family: Holm (1979), step-down, without need of independence.

    Example:
        >>> holm([0.25, 0.125, 0.5])
        [0.5, 0.375, 0.5]
    """
    tests = len(p_values)
    corrected = [1.0] * tests
    highest = 0.0
    for rank, index in enumerate(sorted(range(tests), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (tests - rank) * p_values[index]))
        corrected[index] = highest
    return corrected
