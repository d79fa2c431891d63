"""Planning a comparison that may stop early, and taking its looks."""

import hashlib
import math

from medtasks.data.looks import look_sizes
from medtasks.data.shards import clusters_of
from medtasks.errors import RepliesError, unknown_name
from medtasks.runs.looks import LookOutcome, LookRecord, LooksPlan, PlannedLook
from medtasks.runs.recorded_replies import read_recorded
from medtasks.runs.result_files import results_next_to
from medtasks.runs.run import Source, replies_to
from medtasks.runs.sample_counts import FailureLimit, SampleCounts
from medtasks.scores.comparing import compare_task
from medtasks.scores.comparison_checks import check_asked_alike, check_data
from medtasks.scores.planning import Assumptions, plan
from medtasks.stats.intervals import t_quantile
from medtasks.stats.paired import ALPHA, compare_paired
from medtasks.stats.sequential import boundaries
from medtasks.tasks.documents import task_documents, task_provenance
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import mapping_in
from medtasks.version import __version__

MOST_LOOKS = 10


def plan_looks(
    task: TaskFile,
    assumed: Assumptions,
    difference: float | None,
    power: float,
    count: int,
    seed: int,
    rule: str | None,
) -> LooksPlan:
    """Plan looks at a task, until as many samples as show the difference with this power, or all there are.

    Raises:
        RepliesError: A number is out of range, there is no such rule, or the clusters leave no earlier look.
    """
    if difference is None:
        raise RepliesError("--looks needs the --difference to detect, such as --difference 0.1")
    if not 2 <= count <= MOST_LOOKS or seed < 0:
        raise RepliesError(f"--looks is between 2 and {MOST_LOOKS}, and --seed not negative")
    if rule is not None and rule not in task.rows:
        raise unknown_name("rule", rule, task.rows)
    single = plan(assumed, difference, None, power)
    documents = task_documents(task)
    clusters = clusters_of(documents)
    equal_parts = boundaries([look / count for look in range(1, count + 1)])
    drift = equal_parts.drift_for(power)
    inflation = (drift / (t_quantile(1 - ALPHA / 2, None) + t_quantile(power, None))) ** 2
    share = 1.0
    if single.needed is not None:
        share = min(1.0, single.needed * inflation / assumed.samples)
    sizes = look_sizes(clusters, seed, count, max(1, round(share * len(documents))))
    if len(sizes) < 2:
        raise RepliesError(
            f"the questions of '{task.name}' belong to clusters too large for an earlier look; plan it without --looks"
        )
    limits = boundaries([size / sizes[-1] for size in sizes])
    samples = assumed.samples * sizes[-1] / len(documents) / assumed.design

    def drift_of(true: float) -> float:
        variance = max(assumed.discordance_of(true) - true**2, 1e-9)
        return abs(true) * math.sqrt(samples / variance)

    true_differences = [true for true in (0.0, difference, 2 * difference) if abs(true) <= 1]
    looks = zip(sizes, limits.levels, limits.spent, strict=True)
    return LooksPlan(
        medtasks=__version__,
        task=task.name,
        version=_version(task),
        fingerprint=task_provenance(task, documents)["fingerprint"],
        metric=assumed.metric,
        rule=rule or next(iter(task.rows)),
        difference=difference,
        seed=seed,
        questions=len(documents),
        looks=tuple(PlannedLook(questions=q, level=p, spent=s) for q, p, s in looks),
        power=limits.power(drift_of(difference)),
        expected_share={
            f"{true:g}": limits.expected_share(drift_of(true)) for true in true_differences
        },
    )


def _version(task: TaskFile) -> str:
    return str(mapping_in(task_config(task.base or task.name), "metadata").get("version", ""))


def first_record(planned: LooksPlan, other: Source, limit: FailureLimit) -> LookRecord:
    """Check the data and the other run before the first request; return the record of the first look.

    Raises:
        RepliesError: Data or version of the task are not those of the plan, or the other run lacks samples.
    """
    task = task_file(planned.task)
    documents = task_documents(task)
    fingerprint = task_provenance(task, documents)["fingerprint"]
    if (fingerprint, _version(task)) != (planned.fingerprint, planned.version):
        raise RepliesError(
            f"the looks were planned for version {planned.version} of '{task.name}' on data with fingerprint "
            f"{planned.fingerprint}, and here are version {_version(task)} and {fingerprint}; plan the looks anew"
        )
    samples = replies_to(task.name, other)
    check_data(task.name, samples, fingerprint)
    results = results_next_to(samples, lambda _: None) if samples.is_file() else None
    version = planned.version if results is None else results.of_task("versions", task.name)
    if str(version) != planned.version:
        raise RepliesError(
            f"{other.path} answered version {version} of '{task.name}', and the looks are planned for "
            f"{planned.version}; run the other model again"
        )
    replies = read_recorded(task, documents, [samples]).logged_run(task.name)
    answered = sum(not reply.failed for reply in replies.values())
    counts = SampleCounts(answered, len(documents) - answered)
    if not limit.allows(counts):
        raise RepliesError(
            f"{other.path} answered {answered} of {len(documents)} samples of '{task.name}', and --against takes a run "
            f"of the whole task; run the missing ones, or raise --max-failed {limit}"
        )
    content = sorted(f"{doc_id} {reply.text} {reply.losses}" for doc_id, reply in replies.items())
    digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:16]
    model = other.run.model if results is not None else ""
    return LookRecord(plan=planned, look=1, against=model or "the other run", against_digest=digest)


def compare_at(record: LookRecord, samples: Source, other: Source) -> LookOutcome:
    """Compare a run with the other one on all questions up to a look.

    Raises:
        RepliesError: They were asked differently, or have no value in common.
    """
    planned = record.plan
    task = task_file(planned.task)
    runs = {"the other run": other, "this run": samples}
    check_asked_alike(
        task.name,
        {name: replies_to(task.name, source) for name, source in runs.items()},
        strictly=True,
    )
    compared = compare_task(task, runs, [planned.metric], [planned.rule])
    if not compared.comparisons:
        reasons = "; ".join(compared.skipped.values())
        raise RepliesError(f"{planned.metric} of '{task.name}' cannot be compared: it {reasons}")
    (test,) = compared.comparisons
    level = planned.looks[record.look - 1].level
    result = compare_paired(*test.values, level=level)
    (overlap,) = compared.overlaps.values()
    outcome = LookOutcome(
        samples=result.samples,
        unpaired=planned.looks[record.look - 1].questions - overlap.both,
        first=result.first,
        second=result.second,
        difference=result.difference,
        test=result.test,
        p=result.p,
        level=level,
        low=_defined(result.low),
        high=_defined(result.high),
        stops=result.p <= level,
    )
    if not outcome.stops and record.look < len(planned.looks):
        return outcome
    limits = planned.boundaries
    statistic = t_quantile(1 - result.p / 2, None) if 0 < result.p < 1 else math.nan
    estimate = result.difference
    if statistic > 0:
        # The error of all questions follows from the statistic of these.
        error = abs(result.difference) / statistic * math.sqrt(limits.shares[record.look - 1])
        drift = limits.median_drift(record.look, result.p)
        estimate = math.copysign(drift * error, result.difference)
    ended = {"stagewise_p": limits.stagewise_p(record.look, result.p), "estimate": estimate}
    return outcome.model_copy(update=ended)


def _defined(number: float) -> float | None:
    return None if math.isnan(number) else number
