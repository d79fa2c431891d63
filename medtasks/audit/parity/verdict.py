"""From how far two runs agree to a verdict, and to a sentence on what kind of difference it looks like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from medtasks.audit.comparing import Overlap
from medtasks.audit.parity.agreement import NEAR_TIE, AnswerAgreement, LikelihoodAgreement, TextAgreement
from medtasks.audit.parity.records import Difference
from medtasks.stats.equivalence import Equivalence
from medtasks.stats.paired import ALPHA, PairedResult

_ROUNDING = NEAR_TIE / 2  # nats per token, for nine of ten options
_SHIFT = 0.02  # nats per token; what is below moves a choice only at a tie, whatever made it
_MOSTLY = 0.5


class Verdict(StrEnum):
    """What a person may say of two runs."""

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent within the margin"
    DIFFERENT = "different"
    SAME_ANSWERS = "same answers"
    NOT_ENOUGH = "not enough samples to tell"


class Kind(StrEnum):
    """What a difference looks like."""

    NONE = "none"
    SPACES = "white space"
    ROUNDING = "rounding"
    SYSTEMATIC = "systematic"
    ENDINGS = "one run stops earlier"
    FAILURES = "failures in one run"
    SCATTERED = "scattered"


@dataclass(frozen=True)
class Failures:
    """Samples that gave no reply, of those in both runs; they are in no other number."""

    only_first: int
    only_second: int
    both: int

    @property
    def one_sided(self) -> int:
        """How many failed in one run only."""
        return self.only_first + self.only_second


@dataclass(frozen=True)
class MetricParity:
    """One metric under one rule."""

    rule: str
    metric: str
    main: bool  # whether the verdict needs equivalence in it
    paired: PairedResult
    equivalence: Equivalence
    share: bool  # whether the means are fractions
    p_holm: float = 1.0  # the p-value of the paired test, corrected for all tests of the call

    @property
    def differs(self) -> bool:
        """Whether the paired test rejects, and the interval does not lie within the margin."""
        return self.p_holm < ALPHA and not self.equivalence.shown


@dataclass(frozen=True)
class TaskParity:
    """One task of two runs."""

    task: str
    overlap: Overlap
    failed: Failures
    margin: float
    texts: TextAgreement | None
    likelihoods: LikelihoodAgreement | None
    answers: Mapping[str, AnswerAgreement]  # by name of the row
    rules: Mapping[str, str]  # name and version of each rule by name of the row
    metrics: Sequence[MetricParity]
    not_compared: Mapping[tuple[str, str], str]  # why a metric was not compared, by name of the row and metric
    examples: Sequence[str]  # ids of a few samples that differ most, hashed for credentialed data
    differences: Sequence[Difference]  # between the records of the two runs
    without_manifest: Sequence[str]  # those of A and B of which only what the harness recorded is known
    data: Mapping[str, Any]  # provenance of the dataset
    warnings: Sequence[str] = field(default=())  # one sentence each

    @property
    def compared(self) -> int:
        """How many samples have a reply in both runs."""
        return self.overlap.both - self.failed.only_first - self.failed.only_second - self.failed.both

    @property
    def all_equal(self) -> bool:
        """Whether every reply is the same to the last byte, and every likelihood to the last digit."""
        parts = [one for one in (self.texts, self.likelihoods) if one is not None]
        return sum(one.equal for one in parts) == self.compared

    @property
    def all_answers_equal(self) -> bool:
        """Whether every rule reads the same from every reply; False where none reads an answer."""
        found = self.answers.values()
        return any(one.samples for one in found) and all(one.equal == one.samples for one in found)

    @property
    def scores_are_same(self) -> bool:
        """Whether all answers are equal, and with them the scores of these samples."""
        return self.all_answers_equal and not any(one.paired.difference for one in self.metrics)

    @property
    def failures_matter(self) -> bool:
        """Whether samples that failed in one run only could move a score by more than the margin."""
        return self.failed.one_sided > self.margin * self.overlap.both

    @property
    def verdict(self) -> Verdict:
        """The verdict; that runs are equivalent takes that they are in every main metric, under every rule."""
        if self.all_equal and not self.failed.one_sided:
            return Verdict.IDENTICAL
        if any(one.differs for one in self.metrics):
            return Verdict.DIFFERENT
        main = [one for one in self.metrics if one.main]
        shown = bool(main) and all(one.equivalence.shown for one in main)
        if shown and not self.failures_matter:
            return Verdict.EQUIVALENT
        return Verdict.SAME_ANSWERS if self.scores_are_same and not self.failed.one_sided else Verdict.NOT_ENOUGH

    @property
    def kind(self) -> Kind:
        """What the difference looks like."""
        if self.failures_matter:
            return Kind.FAILURES
        if self.all_equal:
            return Kind.FAILURES if self.failed.one_sided else Kind.NONE
        if self.likelihoods is not None:
            return _kind_of_likelihoods(self.likelihoods)
        if self.texts is not None:
            return _kind_of_texts(self.texts, systematic=any(one.differs for one in self.metrics))
        return Kind.SCATTERED


def _kind_of_likelihoods(found: LikelihoodAgreement) -> Kind:
    if found.absolute is None:
        return Kind.SCATTERED
    if abs(found.mean_signed) >= max(_SHIFT, _MOSTLY * found.mean_absolute):
        return Kind.SYSTEMATIC
    small = found.absolute.q90 <= _ROUNDING and found.near_ties == len(found.flips)
    return Kind.ROUNDING if small else Kind.SCATTERED


def _kind_of_texts(found: TextAgreement, *, systematic: bool) -> Kind:
    if not found.different:
        return Kind.SPACES
    if max(found.first_is_beginning, found.second_is_beginning) >= _MOSTLY * found.different:
        return Kind.ENDINGS
    if systematic:
        return Kind.SYSTEMATIC
    return Kind.SCATTERED if found.at_first_word >= _MOSTLY * found.samples else Kind.ROUNDING


def overall(tasks: Sequence[TaskParity]) -> Verdict:
    """Return the verdict on all tasks: different if any is, else the weakest of them."""
    found = {one.verdict for one in tasks}
    order = (Verdict.DIFFERENT, Verdict.NOT_ENOUGH, Verdict.SAME_ANSWERS, Verdict.EQUIVALENT, Verdict.IDENTICAL)
    return next(one for one in order if one in found)


# ---- in words ----


_LOOK_AT = {
    Kind.SPACES: "White space: replies differ in nothing else.",
    Kind.ROUNDING: "Rounding: small differences, to both sides.",
    Kind.SYSTEMATIC: "Systematic: likelihoods or scores move to one side. Look at chat template, special tokens and "
    "image preprocessing.",
    Kind.ENDINGS: "One run stops earlier: {shorter} mostly gives the beginning of the other run's reply. Look at the "
    "length limit and at what ends a reply.",
    Kind.SCATTERED: "Scattered: larger differences than rounding, to both sides. Look for prompts, images or weights "
    "that reached the model differently.",
}


def explanation(task: TaskParity) -> str:
    """Describe the kind of difference in one or two sentences, without the numbers, which stand in the task's facts."""
    if task.kind is Kind.NONE:
        what = (
            "likelihood is the same to the last digit" if task.texts is None else "reply is the same to the last byte"
        )
        return f"Every {what}."
    if task.kind is Kind.FAILURES:
        return _of_failures(task)
    same = " All answers are equal, so that on these samples the scores are the same." * task.scores_are_same
    shorter = "B" if task.texts and task.texts.second_is_beginning > task.texts.first_is_beginning else "A"
    return f"{_LOOK_AT[task.kind].format(shorter=shorter)}{same}"


def _of_failures(task: TaskParity) -> str:
    both = ((task.failed.only_first, "A"), (task.failed.only_second, "B"))
    sides = " and ".join(f"{number} in {name} only" for number, name in both if number)
    consequence = (
        "they could move a score by more than the margin, and the numbers here are of the others only; mend the "
        "failures first, then run again with --only-failed"
        if task.failures_matter
        else "too few to move a score by the margin"
    )
    return f"Failures in one run ({sides}, of {task.overlap.both} samples): {consequence}."


def lacking(task: TaskParity) -> str:
    """Return what a verdict would take where there are not enough samples; empty for another verdict."""
    if task.verdict not in (Verdict.NOT_ENOUGH, Verdict.SAME_ANSWERS):
        return ""
    open_metrics = [one for one in task.metrics if one.main and not one.equivalence.shown]
    if not task.metrics:
        return "No score of this task is a mean over samples, so that no test tells whether it is the same."
    if not open_metrics:
        return ""  # failures stand in the way, which is said already
    worst = max(open_metrics, key=lambda one: one.equivalence.needed or 0)
    has = f"{worst.metric} ({worst.rule}) has {_counted(worst.paired.samples)} values"
    if worst.paired.units < 2:
        return f"{has}, all of one patient, image or pair, so that no test can tell."
    if worst.equivalence.needed is None:
        return f"{has}; the difference seen is as large as the margin, and more samples would tell whether it is real."
    return f"{has}; equivalence takes about {_counted(worst.equivalence.needed)}, or a wider --margin."


def _counted(number: int) -> str:
    """Return a number of samples with two digits that mean something.

    Example:
        >>> _counted(5353), _counted(32)
        ('5,400', '32')
    """
    return f"{number if number < 100 else int(float(f'{number:.2g}')):,}"
