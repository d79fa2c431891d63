"""A comparison that may stop early: its plan (``looks.json``), and what a run's look found."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from medtasks.data.looks import Look
from medtasks.data.named_files import MOST_TEXT, read_named
from medtasks.errors import MedTasksError
from medtasks.home import written_whole
from medtasks.stats.sequential import Boundaries, boundaries

ASSUMED = (
    "Assumed: metric, rule and looks were chosen before the run; clusters are asked in a random order and are "
    "independent of each other; a share of the questions is the same share of the information."
)
_ROUNDING = 1e-6  # of levels that another machine computed


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedLook(_Record):
    """One look."""

    questions: int  # asked by then
    level: float  # two-sided, of the p-value at this look
    spent: float  # probability of having stopped by then if the models are equal


class LooksPlan(_Record):
    """A plan; the seed and the data, which the fingerprint names, give the order of the clusters."""

    schema_version: Literal[1] = 1
    medtasks: str  # version
    task: str
    version: str  # of the task
    fingerprint: str  # of its data
    metric: str
    rule: str
    difference: float  # to detect
    seed: int
    questions: int  # of the task, of which the last look may ask a part
    looks: tuple[PlannedLook, ...]
    power: float  # for the difference
    expected_share: Mapping[str, float]  # of the last look's questions, by true difference

    @property
    def digest(self) -> str:
        """Digest of the whole plan."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]

    @property
    def boundaries(self) -> Boundaries:
        """Limits of the looks, computed anew."""
        return boundaries([look.questions / self.looks[-1].questions for look in self.looks])

    def look(self, index: int) -> Look:
        """Return the rows of a look, from 1."""
        return Look(index, len(self.looks), self.seed, self.looks[index - 1].questions)

    def write(self, path: Path) -> None:
        """Write the plan."""
        with written_whole(path) as partial:
            partial.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "LooksPlan":
        """Read a plan. Raises MedTasksError if the file is none, or its levels are not those of its looks."""
        try:
            plan = cls.model_validate_json(read_named(path, most=MOST_TEXT).decode())
            levels = plan.boundaries.levels
        except (OSError, ValueError, ArithmeticError, IndexError) as error:
            raise MedTasksError(
                f"{path} is not from 'medtasks plan TASK --looks'; give such a file"
            ) from error
        for look, level in zip(plan.looks, levels, strict=True):
            if abs(look.level - level) > _ROUNDING:
                raise MedTasksError(
                    f"{path} states a level of {look.level:g} after {look.questions} questions, where its looks give "
                    f"{level:.3g}; plan the looks anew"
                )
        return plan


class LookOutcome(_Record):
    """Comparison at a look; differences are this run's score minus that of the other. None is undefined."""

    samples: int  # with a value in both runs
    unpaired: int  # questions asked by then that failed in one of the runs
    first: float  # score of the other run on these samples
    second: float
    difference: float
    test: str
    p: float
    level: float
    low: float | None  # of the interval at this level, as is high
    high: float | None
    stops: bool  # whether the models differ at this look
    stagewise_p: float | None = None  # of an ended comparison, as is the estimate
    estimate: float | None = None  # of the difference, median-unbiased


class LookRecord(_Record):
    """A look in a run's manifest."""

    plan: LooksPlan
    look: int  # from 1
    against: str  # model of the other run
    against_digest: str  # of its replies
    outcome: LookOutcome | None = None  # None until the runs have been compared

    @property
    def rows(self) -> Look:
        """The rows that are asked."""
        return self.plan.look(self.look)

    def __str__(self) -> str:
        plan = self.plan
        planned = plan.looks[self.look - 1]
        count = len(plan.looks)
        questions = f"{planned.questions} of {plan.questions} questions ({planned.questions / plan.questions:.0%})"
        outcome = self.outcome
        if outcome is None:
            return f"PARTIAL: look {self.look} of {count} at {questions} has not been compared yet"
        ends = "n/a"
        if outcome.low is not None and outcome.high is not None:
            ends = f"[{100 * outcome.low:+.1f} to {100 * outcome.high:+.1f}]"
        numbers = (
            f"{plan.metric} under {plan.rule} {outcome.second:.1%}, {outcome.first:.1%} of {self.against} "
            f"on {outcome.samples} samples: difference {100 * outcome.difference:+.1f} pts, "
            f"repeated 95 % interval {ends}, "
            f"p = {outcome.p:.2g} at a level of {outcome.level:.2g}"
        )
        if outcome.unpaired:
            numbers += f"; {outcome.unpaired} questions failed in a run and are not compared"
        place = f"look {self.look} of {count}: {questions}"
        if outcome.stagewise_p is None:
            return f"PARTIAL, going on after {place}. {numbers}"
        numbers += f"; stagewise-ordered p = {outcome.stagewise_p:.2g}"
        if outcome.estimate is not None:
            numbers += f", median-unbiased difference {100 * outcome.estimate:+.1f} pts"
        part = ""
        if planned.questions < plan.questions:
            part = "; its score is of this part"
        if self.look < count:
            return (
                f"PARTIAL, stopped at {place}{part}, and optimistic after an early stop. {numbers}"
            )
        found = "shows a difference" if outcome.stops else "shows no difference"
        lead = "PARTIAL, ended" if part else "Ended"
        return f"{lead} at {place}{part}. {numbers}: the last look {found}"
