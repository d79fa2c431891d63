"""Planning a comparison that may stop early, and comparing at its looks.

``medtasks plan --looks`` and ``medtasks run --looks`` call this. No look may test at another level than planned.
"""

import hashlib
import math
from pathlib import Path

from medtasks.data.looks import look_sizes
from medtasks.data.shards import clusters_of
from medtasks.errors import RepliesError
from medtasks.home import as_json
from medtasks.metrics.metric import CorpusMetric
from medtasks.runs.looks import LookRecord, LooksPlan
from medtasks.runs.recorded_replies import read_recorded
from medtasks.runs.run import Source, model_of, replies_to
from medtasks.runs.sample_counts import FailureLimit, SampleCounts
from medtasks.scores.comparing import compare_task
from medtasks.scores.comparison_checks import check_data
from medtasks.scores.planning import Assumptions, chosen_rule, plan
from medtasks.scores.run_values import main_metrics, without_failures
from medtasks.stats.paired import compare_paired
from medtasks.stats.sequential import Boundaries, boundaries
from medtasks.tasks.documents import task_documents, task_provenance
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import mapping_in
from medtasks.version import __version__

_MOST_LOOKS = 10
_INFLATION = 1.03  # of the samples of a single test with the same power (Jennison and Turnbull, 2000, table 2.4)


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

    Args:
        task: The task.
        assumed: Assumptions about it.
        difference: Difference of the second model from the first, as a fraction. None, if it is not given, is an error.
        power: Power of a test on all samples of the plan.
        count: Number of looks, which clusters may make smaller.
        seed: Seed of the order in which clusters are asked.
        rule: Rule under which runs are compared, named as the row of the task's results, such as ``robust``. None for
            the task's first.

    Raises:
        RepliesError: A number is out of range, the metric is no mean over samples, or the clusters leave no earlier
            look.
        UnknownName: There is no such rule.
    """
    if difference is None or not 2 <= count <= _MOST_LOOKS or seed < 0:
        raise RepliesError(
            f"--looks is between 2 and {_MOST_LOOKS}, and takes a --difference and a --seed that is not negative, such "
            "as --difference 0.1 --looks 4"
        )
    rule = chosen_rule(rule, task.rows)
    documents = task_documents(task)
    data = task_provenance(task, documents)
    if isinstance(main_metrics(task)[0], CorpusMetric) or data.get("draw"):
        raise RepliesError(
            f"{assumed.metric} of '{task.name}' is no mean over samples, which --looks needs"
        )
    clusters = clusters_of(documents)
    single = plan(assumed, difference, None, power)
    share = min(1.0, _INFLATION * (single.needed or math.inf) / assumed.samples)
    looks = look_sizes(clusters, seed, count, round(share * len(documents)))
    if len(looks) < 2:
        raise RepliesError(
            f"the clusters of '{task.name}' are too large for an earlier look; plan it without --looks"
        )
    limits = boundaries([questions / looks[-1] for questions in looks])
    samples = assumed.samples * looks[-1] / len(documents) / assumed.design
    return LooksPlan(
        medtasks=__version__,
        task=task.name,
        version=_version(task),
        fingerprint=data["fingerprint"],
        metric=assumed.metric,
        rule=rule,
        difference=difference,
        seed=seed,
        questions=len(documents),
        looks=tuple(looks),
        levels=tuple(limits.levels),
        power=min(power, single.reached or 0.0),
        expected_share=_expected_shares(limits, assumed, samples, difference),
    )


def _expected_shares(
    limits: Boundaries,
    assumed: Assumptions,
    samples: float,
    difference: float,
) -> dict[str, float]:
    """Return the share of samples that a plan is expected to take before it stops.

    Args:
        limits: Boundaries of the looks.
        assumed: Assumptions about the task.
        samples: Effective number of independent samples at the last look.
        difference: Planned difference, as a fraction.

    Returns:
        Shares by true difference, as text: 0, the planned one, and twice that, without those that cannot occur.
    """
    shares = {}
    for true in (0.0, difference, 2 * difference):
        variance = assumed.discordance_of(true) - true**2
        if variance > 0:
            effect = abs(true) * math.sqrt(samples / variance)
            shares[f"{true:g}"] = limits.expected_share(effect)
    return shares


def _version(task: TaskFile) -> str:
    """Return the version in a task's file, or an empty text if it has none."""
    return str(mapping_in(task_config(task.name), "metadata").get("version", ""))


def first_record(planned: LooksPlan, other: Source, limit: FailureLimit) -> LookRecord:
    """Check the data and the other run before the first request, and return the record of the first look.

    Args:
        planned: The plan.
        other: Run of the other model on the whole task.
        limit: Most samples that may lack a reply of it.

    Raises:
        RepliesError: Data or version of the task are not those of the plan, or the other run lacks samples.
    """
    task = task_file(planned.task)
    documents = task_documents(task)
    fingerprint = task_provenance(task, documents)["fingerprint"]
    if (fingerprint, _version(task)) != (planned.fingerprint, planned.version):
        raise RepliesError(
            f"the looks are planned for version {planned.version} of '{task.name}' on data with fingerprint "
            f"{planned.fingerprint}, and here are version {_version(task)} and {fingerprint}; plan the looks anew"
        )
    samples = replies_to(task.name, other)
    check_data(task.name, samples, fingerprint)
    replies = read_recorded(task, documents, [samples]).logged_run(task.name)
    answered = len(without_failures(replies))
    if not limit.allows(SampleCounts(answered, len(documents) - answered)):
        raise RepliesError(
            f"{other.path} answered {answered} of {len(documents)} samples of '{task.name}', and --against takes a run "
            "of the whole task; run it on the missing ones, too"
        )
    digest = hashlib.sha256(repr(sorted(replies.items())).encode()).hexdigest()
    return LookRecord(
        plan=planned,
        index=1,
        against=model_of(other) or "the other run",
        against_digest=digest[:16],
    )


def compare_at(record: LookRecord, samples: Path, other: Source) -> LookRecord:
    """Compare a run with the other one on all questions up to a look, and add the result to the record.

    Args:
        record: Record of the look, without a result.
        samples: Samples file of this run.
        other: Run of the other model.

    Raises:
        RepliesError: They were asked differently, or have no value in common.
    """
    task = task_file(record.plan.task)
    runs = {"the other run": other, "this run": Source(samples)}
    compared = compare_task(task, runs, [record.plan.metric], [record.plan.rule])
    if not compared.comparisons:
        raise RepliesError(f"{record.plan.metric} {'; '.join(compared.skipped.values())}")
    result = compare_paired(*compared.comparisons[0].values, level=record.level)
    (overlap,) = compared.overlaps.values()
    return record.model_copy(
        update={
            "result": as_json(result),
            "stagewise_p": record.plan.boundaries.stagewise_p(record.index, result.p),
            "unpaired": record.rows.size - overlap.both,
        }
    )
