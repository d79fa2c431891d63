"""A comparison that may stop early: its plan (``looks.json``), and what a run's look found."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from medtasks.data.looks import Look
from medtasks.errors import MedTasksError
from medtasks.stats.sequential import Boundaries, boundaries

ASSUMED = (
    "Assumed: metric, rule and looks were chosen before the run; clusters are asked in a random order and are "
    "independent of each other; a share of the questions is the same share of the information."
)


class Record(BaseModel):
    """Base of records in JSON files: no unknown fields, no changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LooksPlan(Record):
    """Plan of a comparison.

    The seed and the data, which the fingerprint names, give the order of the clusters.
    """

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
    looks: tuple[int, ...]  # questions asked by each look
    # two-sided, of the p-value at each look; only for readers, as they follow from the looks
    levels: tuple[float, ...]
    power: float  # for the difference
    expected_share: Mapping[str, float]  # of the last look's questions, by true difference

    @property
    def boundaries(self) -> Boundaries:
        """Limits of the looks, computed anew."""
        return boundaries([questions / self.looks[-1] for questions in self.looks])

    def look(self, index: int) -> Look:
        """Return the rows of a look, from 1."""
        return Look(index, len(self.looks), self.seed, self.looks[index - 1])

    @classmethod
    def read(cls, path: Path) -> "LooksPlan":
        """Read a plan. Raises MedTasksError for another file."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise MedTasksError(
                f"{path} is not from 'medtasks plan TASK --looks'; give such a file"
            ) from error


class LookRecord(Record):
    """A look in a run's manifest."""

    plan: LooksPlan
    index: int  # from 1
    against: str  # model of the other run
    against_digest: str  # of its replies
    # A PairedResult, this run's score minus that of the other, with the interval at the look's level; None before. An
    # undefined number in it is None.
    result: Mapping[str, Any] | None = None
    # p-value in case the comparison ends at this look; set with the result, None before.
    stagewise_p: float | None = None
    unpaired: int = 0  # questions asked by then that failed in one of the runs

    @property
    def rows(self) -> Look:
        """The rows that are asked."""
        return self.plan.look(self.index)

    @property
    def level(self) -> float:
        """Level of the look."""
        return self.plan.boundaries.levels[self.index - 1]

    @property
    def shows_difference(self) -> bool:
        """Whether the models differ at this look, which ends the comparison."""
        return self.result is not None and self.result["p"] <= self.level

    def __str__(self) -> str:
        """Describe the look: its state and, once compared, both scores, their difference and the verdict."""
        share = self.rows.size / self.plan.questions
        is_last = self.index == self.rows.count
        state = "ended" if is_last else "going on"
        if self.shows_difference and not is_last:
            state = "stopped"
        text = (
            f"{state} at look {self.index} of {self.rows.count}: {share:.0%} of the questions"
        )
        if share < 1:
            text = f"PARTIAL, {text}; a score of this part"
        if state == "stopped":
            text += ", and optimistic after an early stop"
        if self.result is None:
            return f"{text}; not compared yet."
        result = self.result
        interval = "n/a"
        if result["low"] is not None:
            interval = f"[{100 * result['low']:+.1f} to {100 * result['high']:+.1f}]"
        text += (
            f". {self.plan.metric} under {self.plan.rule}: {result['second']:.1%}, against {result['first']:.1%} of "
            f"{self.against} on {result['samples']} samples; difference {100 * result['difference']:+.1f} pts, "
            f"repeated 95 % interval {interval}; p = {result['p']:.2g} at a level of {self.level:.2g}, "
            f"stagewise-ordered p = {self.stagewise_p:.2g}"
        )
        if self.unpaired:
            text += f"; {self.unpaired} questions failed in a run and are not compared"
        verdict = "a difference is shown" if self.shows_difference else "no difference is shown"
        return f"{text}: {verdict}."
