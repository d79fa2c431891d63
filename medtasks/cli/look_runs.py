"""``medtasks plan --looks`` and ``medtasks run --looks``: comparisons that may stop early."""

from collections.abc import Callable, Sequence
from pathlib import Path

from medtasks.cli.output import say, write_json
from medtasks.errors import MedTasksError
from medtasks.report.wording import number
from medtasks.runs.looks import ASSUMED, LookRecord, LooksPlan
from medtasks.runs.run import Source
from medtasks.runs.run_manifest import RunManifest
from medtasks.runs.sample_counts import FailureLimit
from medtasks.scores.look_plans import compare_at, first_record


def write_plan(plan: LooksPlan, path: Path) -> None:
    """Write and print a plan."""
    write_json(path, plan.model_dump())
    looks = [f"{n} (p <= {p:.5f})" for n, p in zip(plan.looks, plan.levels, strict=True)]
    shares = [
        f"{share:.0%} at {number(float(true))}" for true, share in plan.expected_share.items()
    ]
    say(
        f"{plan.task}, {plan.metric} under {plan.rule}: {plan.looks[-1]} of {plan.questions} questions show a "
        f"difference of {number(plan.difference)} with a power of {number(plan.power)}.\n"
        f"Looks after {', '.join(looks)}.\n"
        f"Expected share of these questions, by true difference: {', '.join(shares)}.\n"
        f"{ASSUMED}\nrun: medtasks run --looks {path} --against OTHER_RUN --tasks {plan.task} ..."
    )


class LooksOfRun:
    """Looks of one call of ``medtasks run``: the plan and the other run."""

    def __init__(self, path: Path | None, against: Path | None, names: Sequence[str]) -> None:
        if path is None or against is None:
            raise MedTasksError(
                "--looks PLAN and --against OTHER_RUN go together; to compare whole runs: medtasks compare"
            )
        self.plan = LooksPlan.read(path)
        self._other = Source(against)
        self.rows = self.plan.look(1)
        if list(names) != [self.plan.task]:
            raise MedTasksError(
                f"{path} is a plan of {self.plan.task}; give --tasks {self.plan.task} alone"
            )
        self.primary = f"{self.plan.task}:{self.plan.metric}"

    def take(self, ask: Callable[[LookRecord], RunManifest], limit: FailureLimit) -> None:
        """Ask, compare and stop where a look shows a difference; a look that was taken before stays as it was."""
        first = first_record(self.plan, self._other, limit)
        for index in range(1, len(self.plan.looks) + 1):
            manifest = ask(first.model_copy(update={"index": index}))
            record = manifest.look
            assert record is not None
            assert manifest.path is not None
            if record.result is None:
                samples = manifest.path.parent / str(manifest.tasks[self.plan.task].samples)
                record = compare_at(record, samples, self._other)
                manifest.model_copy(update={"look": record}).write(manifest.path)
            say(str(record))
            if record.shows_difference:
                break
        say(ASSUMED)
