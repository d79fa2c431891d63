"""Verdicts on two runs of a task that were compared with a margin, and whether the second is not worse.

``medtasks compare --margin`` calls this. A verdict must never be clearer than its tests: where samples are too few, or
failures of one run could move a score by more than the margin, it says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from medtasks.scores.comparing import ComparedTask, Comparison
from medtasks.scores.run_values import Agreement
from medtasks.stats.paired import ALPHA


class Verdict(StrEnum):
    """A verdict on the scores of two runs, from the strongest to the weakest.

    Of the verdicts on several tasks, the weakest counts.
    """

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent within the margin"
    SAME_ANSWERS = "same answers"
    NOT_ENOUGH = "not enough samples to tell"
    DIFFERENT = "different"


class NonInferiority(StrEnum):
    """A verdict on whether the second of two runs is worse than the first by more than the margin."""

    NOT_WORSE = "not worse"
    NOT_ENOUGH = "not enough samples to tell"
    WORSE = "worse"


@dataclass(frozen=True)
class TaskVerdict:
    """Verdict on two runs of one task, which were compared with a margin."""

    verdict: Verdict
    agreement: Agreement
    explanation: str  # on replies that are all equal, failures of one run, or equal answers; empty for others
    lacking: str  # the samples that a clearer verdict takes; empty if only failures prevent it
    non_inferiority: NonInferiority
    deciding: Comparison | None  # the test that decides against "not worse", if one does


def verdict_on(task: ComparedTask, margin: float) -> TaskVerdict:
    """Return the verdict on two runs of a task.

    Args:
        task: The compared task. Equivalence requires equivalence in every main metric, under every rule.
        margin: Largest share of failed samples, or difference of scores, that does not matter.
    """
    ((runs, agreement),) = task.agreements.items()
    one_sided = agreement.failed.one_sided_failures
    # Samples that failed in one run only could move a score by more than the margin.
    failures_matter = one_sided / max(1, agreement.overlap.both) > margin
    same_scores = _has_same_scores(task, agreement)
    main = [test for test in task.comparisons if test.main]
    lacking = ""
    if agreement.all_equal and not one_sided:
        verdict = Verdict.IDENTICAL
    elif any(test.holm < ALPHA and not is_equivalent(test) for test in task.comparisons):
        verdict = Verdict.DIFFERENT
    elif main and all(map(is_equivalent, main)) and not failures_matter:
        verdict = Verdict.EQUIVALENT
    else:
        verdict = Verdict.SAME_ANSWERS if same_scores and not one_sided else Verdict.NOT_ENOUGH
        lacking = _lacking(task.comparisons)
    explanation = _explanation(
        runs, agreement, same_scores=same_scores, failures_matter=failures_matter
    )
    not_worse = _non_inferiority(task, verdict, failures_matter=failures_matter)
    return TaskVerdict(verdict, agreement, explanation, lacking, *not_worse)


def _has_same_scores(task: ComparedTask, agreement: Agreement) -> bool:
    """Return whether all answers are equal, and with them all scores. They are not if no rule reads any answer."""
    answers = agreement.answers.values()
    if not any(part.samples for part in answers):
        return False
    if any(part.equal != part.samples for part in answers):
        return False
    return not any(test.result.difference for test in task.comparisons)


def _explanation(
    runs: tuple[str, str],
    agreement: Agreement,
    *,
    same_scores: bool,
    failures_matter: bool,
) -> str:
    """Return a sentence on failures in one run, equal replies or equal answers, or an empty text if there are none.

    Args:
        runs: Names of the two runs.
        agreement: Agreement of their replies.
        same_scores: Whether all answers and scores are equal.
        failures_matter: Whether failures of one run could move a score by more than the margin.
    """
    if failures_matter or (agreement.all_equal and agreement.failed.one_sided_failures):
        effect = "too few to move a score by the margin."
        if failures_matter:
            effect = (
                "they could move a score by more than the margin, and the numbers here are of the others only; fix the "
                "failures first, then run again with --only-failed."
            )
        return f"Failures in one run ({_one_sided_failures(runs, agreement)} samples): {effect}"
    if agreement.all_equal and agreement.texts is not None:
        return "Every reply is the same to the last byte."
    if agreement.all_equal:
        return "Every likelihood is the same to the last digit."
    if same_scores:
        return "All answers are equal, so that on these samples the scores are the same."
    return ""


def _one_sided_failures(runs: tuple[str, str], agreement: Agreement) -> str:
    """Return the numbers of samples that failed in one run only, such as ``2 in first only, of 100``."""
    failed = agreement.failed
    sides = zip((failed.only_first, failed.only_second), runs, strict=True)
    counts = " and ".join(f"{number} in {run} only" for number, run in sides if number)
    return f"{counts}, of {agreement.overlap.both}"


def _lacking(tests: Sequence[Comparison]) -> str:
    """Return a sentence on the samples that a clearer verdict takes, or an empty text if the verdict is clear."""
    if not tests:
        return "No score of this task is a mean over samples, so that no test tells whether it is the same."
    unproven = [test for test in tests if test.main and not is_equivalent(test)]
    if not unproven:
        return ""
    worst = max(unproven, key=_needed_samples)
    has = f"{worst.metric} ({worst.rule}) has {_two_digits(worst.result.samples)} values"
    if worst.result.units < 2:
        return f"{has}, all of one patient, image or pair, so that no test can tell."
    samples = _needed_samples(worst)
    if not samples:
        return f"{has}; the difference seen is as large as the margin, and more samples would tell whether it is real."
    return f"{has}; equivalence takes about {_two_digits(samples)}, or a wider --margin."


def _needed_samples(test: Comparison) -> int:
    """Return the number of samples that would show equivalence, or 0 if no number would, or without a margin."""
    return (test.equivalence and test.equivalence.needed) or 0


def _two_digits(number: int) -> str:
    """Return a number with two significant digits."""
    return f"{number if number < 100 else int(float(f'{number:.2g}')):,}"


def _non_inferiority(
    task: ComparedTask,
    verdict: Verdict,
    *,
    failures_matter: bool,
) -> tuple[NonInferiority, Comparison | None]:
    """Return whether the second run is worse than the first.

    Every main metric under every rule has to show that it is not worse, by a one-sided test at 2.5 %. All of these
    tests have to reject, so that their number needs no correction.

    Args:
        task: The compared task.
        verdict: Verdict on its scores.
        failures_matter: Whether failures of one run could move a score by more than the margin.

    Returns:
        The verdict, and the test that decides against "not worse": None if it is not worse, or if only failures or the
        lack of any test prevent that verdict.
    """
    if verdict is Verdict.IDENTICAL:
        return NonInferiority.NOT_WORSE, None
    unproven = [
        test for test in task.comparisons if test.main and _loss_and_excess(test)[1] >= 0
    ]
    worse = [test for test in unproven if test.holm < ALPHA and _loss_and_excess(test)[0] > 0]
    if worse:
        return NonInferiority.WORSE, max(worse, key=_loss_and_excess)
    if unproven or failures_matter or not task.comparisons:
        return NonInferiority.NOT_ENOUGH, max(unproven, key=_loss_and_excess, default=None)
    return NonInferiority.NOT_WORSE, None


def _loss_and_excess(test: Comparison) -> tuple[float, float]:
    """Return the loss of the second run, and by how much it may exceed the margin, infinity if unknown.

    A change is a loss in both directions if neither is better.
    """
    assert test.equivalence is not None
    loss = -test.result.difference
    most, least = (-end for end in test.equivalence.ends)
    if test.higher_is_better is None:
        loss, most = abs(loss), max(most, -least)
    elif not test.higher_is_better:
        loss, most = -loss, -least
    return loss, math.inf if math.isnan(most) else most - test.equivalence.margin


def is_equivalent(test: Comparison) -> bool:
    """Return whether a test shows equivalence."""
    return test.equivalence is not None and test.equivalence.is_equivalent
