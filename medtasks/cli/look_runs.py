"""``medtasks plan --looks`` and ``medtasks run --looks``: comparisons that may stop early."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from medtasks.cli.output import say, say_columns
from medtasks.errors import MedTasksError
from medtasks.report.wording import number
from medtasks.runs.looks import ASSUMED, LookRecord, LooksPlan
from medtasks.runs.run import Source
from medtasks.runs.run_manifest import PrimaryOutcome, RunManifest
from medtasks.runs.sample_counts import FailureLimit
from medtasks.scores.look_plans import compare_at, first_record

TakePart = Callable[[LookRecord], RunManifest]
"""Asks the questions up to a look; returns the run's manifest."""


def print_plan(plan: LooksPlan, path: Path) -> None:
    """Print a plan that was written to a path."""
    last = plan.looks[-1].questions
    say(f"{len(plan.looks)} looks at {plan.metric} of {plan.task} under {plan.rule}:")
    rows: list[tuple[str, ...]] = [("look", "questions", "level", "spent")]
    for index, look in enumerate(plan.looks, 1):
        rows.append((str(index), str(look.questions), f"{look.level:.5f}", f"{look.spent:.5f}"))
    say_columns(rows)
    shares = [
        f"{share:.0%} at {number(float(true))}" for true, share in plan.expected_share.items()
    ]
    say(f"Total: {last} of {plan.questions} questions; power: {number(plan.power)}.")
    say(f"Expected share of these {last}, by true difference: {', '.join(shares)}.")
    say(ASSUMED)
    say(
        f"plan: {path}; run: medtasks run --looks {shlex.quote(str(path))} --against OTHER_RUN --tasks {plan.task} "
        f"--output_path FOLDER --model NAME"
    )


class LooksOfRun:
    """Looks of one call of ``medtasks run``: the plan and the other run."""

    def __init__(self, path: Path, against: Path | None, names: Sequence[str]) -> None:
        self.plan = LooksPlan.read(path)
        if against is None:
            raise MedTasksError("--looks compares with another run; name its folder with --against")
        if list(names) != [self.plan.task]:
            raise MedTasksError(
                f"{path} is the plan of {self.plan.task}; give --tasks {self.plan.task} alone"
            )
        self.other = Source(against)
        self.primary = PrimaryOutcome(
            task=self.plan.task,
            metric=self.plan.metric,
            planned={"difference": self.plan.difference, "looks": len(self.plan.looks)},
        )

    def take(self, take_part: TakePart, limit: FailureLimit) -> None:
        """Ask, compare and stop where a look shows a difference; a look that was taken before stays as it was."""
        first = first_record(self.plan, self.other, limit)
        for index in range(1, len(self.plan.looks) + 1):
            manifest = take_part(first.model_copy(update={"look": index}))
            record = manifest.look
            assert record is not None
            assert manifest.path is not None
            if record.outcome is None:
                samples = manifest.path.parent / str(manifest.tasks[self.plan.task].samples)
                outcome = compare_at(record, Source(samples), self.other)
                record = record.model_copy(update={"outcome": outcome})
                manifest.model_copy(update={"look": record}).write(manifest.path)
            say(f"{record}.")
            if record.outcome is not None and record.outcome.stops:
                break
        say(ASSUMED)
