"""``medtasks plan --looks`` and ``medtasks run --looks``: comparisons that may stop early."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from medtasks.cli.output import say, write_json
from medtasks.errors import MedTasksError, join_names
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
    expected = plan.expected_share.items()
    shares = [f"{share:.0%} at {number(float(true))}" for true, share in expected]
    say(
        f"{plan.task}, {plan.metric} under {plan.rule}: {plan.looks[-1]} of {plan.questions} questions show a "
        f"difference of {number(plan.difference)} with a power of {number(plan.power)}.\n"
        f"Looks after {', '.join(looks)}.\n"
        f"Expected share of these questions, by true difference: {', '.join(shares)}.\n"
        f"{ASSUMED}\nrun: medtasks run --looks {path} --against OTHER_RUN --tasks {plan.task} ..."
    )


def read_looks(
    path: Path | None,
    against: Path | None,
    names: Sequence[str],
    others: Mapping[str, object],
) -> "LooksOfRun | None":
    """Read ``--looks`` and ``--against``, or return None without them.

    Args:
        path: File of the plan.
        against: Folder of the other run.
        names: Tasks of the command.
        others: Values of options that do not go together with a plan, by the option.

    Raises:
        MedTasksError: The tasks are not the plan's, or an option does not go together with it.
    """
    if path is None and against is None:
        return None
    if path is None or against is None:
        raise MedTasksError(
            "--looks PLAN and --against OTHER_RUN go together; to compare whole runs: medtasks compare"
        )
    excluded = [option for option, value in others.items() if value]
    if excluded:
        raise MedTasksError(
            f"--looks and {join_names(excluded)} do not go together, as the plan states rows and primary outcome"
        )
    plan = LooksPlan.read(path)
    if list(names) != [plan.task]:
        raise MedTasksError(f"{path} is a plan of {plan.task}; give --tasks {plan.task} alone")
    return LooksOfRun(plan, Source(against))


class LooksOfRun:
    """Looks of one call of ``medtasks run``: the plan and the other run."""

    def __init__(self, plan: LooksPlan, other: Source) -> None:
        self.plan = plan
        self.rows = plan.look(1)
        self.primary = f"{plan.task}:{plan.metric}"
        self._other = other

    def take(self, ask: Callable[[LookRecord], RunManifest], limit: FailureLimit) -> None:
        """Ask and compare look by look, and stop at the first that shows a difference.

        A look with a result stays as it was. One that was asked but not compared is compared now.

        Args:
            ask: Asks the questions of a look, which include those of earlier looks, unless they are answered. Returns
                the manifest of its run: with the record of the look, and with samples of all questions so far.
            limit: Most samples, a number or a percentage, that may lack a reply in the other run.

        Raises:
            MedTasksError: Before anything is asked: data or the task's version are not those of the plan, or the other
                run lacks samples. Later: the runs were not asked alike or have no value in common, or a run failed.
        """
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
