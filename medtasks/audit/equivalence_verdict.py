"""Verdict on two runs of one task: identical, equivalent within a margin, different, or not enough samples to tell."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from medtasks.audit.comparing import ComparedTask, Comparison
from medtasks.audit.run_agreement import Agreement
from medtasks.stats.paired import ALPHA


class Verdict(StrEnum):
    """A verdict on the scores of two runs, from the strongest to the weakest; a difference outweighs all."""

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent within the margin"
    SAME_ANSWERS = "same answers"
    NOT_ENOUGH = "not enough samples to tell"
    DIFFERENT = "different"


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on all tasks: different if any is, else the weakest of them."""
    return max(verdicts, key=list(Verdict).index)


@dataclass(frozen=True)
class TaskVerdict:
    """Verdict on two runs of one task, which were compared with a margin."""

    task: ComparedTask
    margin: float

    @property
    def agreement(self) -> Agreement:
        """Agreement of the two runs."""
        (agreement,) = self.task.agreements.values()
        return agreement

    @property
    def verdict(self) -> Verdict:
        """The verdict; equivalence requires equivalence in every main metric, under every rule."""
        failed = self.agreement.failed.one_sided
        if self.agreement.all_equal and not failed:
            return Verdict.IDENTICAL
        if any(test.holm < ALPHA and not is_equivalent(test) for test in self.task.comparisons):
            return Verdict.DIFFERENT
        main = [test for test in self.task.comparisons if test.main]
        if main and all(map(is_equivalent, main)) and not self.failures_matter:
            return Verdict.EQUIVALENT
        return Verdict.SAME_ANSWERS if self.scores_are_same and not failed else Verdict.NOT_ENOUGH

    @property
    def failures_matter(self) -> bool:
        """Whether samples that failed in one run only could move a score by more than the margin."""
        return self.agreement.failed.one_sided > self.margin * self.agreement.overlap.both

    @property
    def scores_are_same(self) -> bool:
        """Whether all answers are equal, and with them the scores of these samples."""
        return self.agreement.all_answers_equal and not any(test.result.difference for test in self.task.comparisons)

    @property
    def explanation(self) -> str:
        """One sentence on replies that are all equal, failures of one run, or equal answers; empty for others."""
        failed, samples = self.agreement.failed, self.agreement.overlap.both
        if self.failures_matter or (self.agreement.all_equal and failed.one_sided):
            ((first, second),) = self.task.agreements
            sides = ((failed.only_first, first), (failed.only_second, second))
            counts = " and ".join(f"{number} in {run} only" for number, run in sides if number)
            return f"Failures in one run ({counts}, of {samples} samples): " + (
                "they could move a score by more than the margin, and the numbers here are of the others only; fix "
                "the failures first, then run again with --only-failed."
                if self.failures_matter
                else "too few to move a score by the margin."
            )
        if self.agreement.all_equal:
            of_texts = self.agreement.texts is not None
            what = "reply is the same to the last byte" if of_texts else "likelihood is the same to the last digit"
            return f"Every {what}."
        return "All answers are equal, so that on these samples the scores are the same." * self.scores_are_same

    @property
    def lacking(self) -> str:
        """One sentence on the samples that a clearer verdict takes; empty if only failures prevent it."""
        if self.verdict not in (Verdict.NOT_ENOUGH, Verdict.SAME_ANSWERS):
            return ""
        if not self.task.comparisons:
            return "No score of this task is a mean over samples, so that no test tells whether it is the same."
        not_shown = [
            (test, (test.equivalence and test.equivalence.needed) or 0)
            for test in self.task.comparisons
            if test.main and not is_equivalent(test)
        ]
        if not not_shown:
            return ""
        worst, number = max(not_shown, key=lambda pair: pair[1])
        has = f"{worst.metric} ({worst.rule}) has {_counted(worst.result.samples)} values"
        if worst.result.units < 2:
            return f"{has}, all of one patient, image or pair, so that no test can tell."
        if not number:
            return (
                f"{has}; the difference seen is as large as the margin, and more samples would tell whether it is real."
            )
        return f"{has}; equivalence takes about {_counted(number)}, or a wider --margin."


def is_equivalent(test: Comparison) -> bool:
    """Return whether a test shows equivalence."""
    return test.equivalence is not None and test.equivalence.shown


def _counted(number: int) -> str:
    """Return a number of samples with two significant digits.

    Example:
        >>> _counted(5353), _counted(32)
        ('5,400', '32')
    """
    return f"{number if number < 100 else int(float(f'{number:.2g}')):,}"
