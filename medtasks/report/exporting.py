"""Results for others: YAML for a model's page on the Hub. Aggregates only.

Format: https://huggingface.co/docs/hub/eval-results. Everything, times included, comes from the run, so that exporting
it again writes the same bytes.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import yaml

from medtasks.data.variants import VARIANTS
from medtasks.errors import MedTasksError, listed
from medtasks.metrics.metric import Role
from medtasks.report.collecting import Section, section
from medtasks.report.wording import clusters_in_words, counted, number, scored
from medtasks.runs.run import RecordedRun, TaskRun
from medtasks.runs.run_manifest import RunManifest, TaskOutcome
from medtasks.runs.sample_counts import DEFAULT_LIMIT, FailureLimit, SampleCounts
from medtasks.scores.score_model import MetricScore, RuleScores

_HUB = "https://huggingface.co/datasets/"
_AGAIN = "run it again with 'medtasks run', all of its questions"


@dataclass(frozen=True)
class Export:
    """One task of a run that may be published: its section, its record, and the manifest of its run."""

    section: Section
    recorded: TaskRun
    manifest: RunManifest

    def scores(self) -> list[tuple[RuleScores, MetricScore, str]]:
        """Return the main metrics that are defined, under each row, with a note on each."""
        report, reading = self.section.report, self.section.reading
        metrics = reading.task.metrics if reading else ()
        main = [metric.name for metric in metrics if metric.role is Role.MAIN] or [metrics[0].name]
        task = f"task {report.name} version {self.recorded.version}, data fingerprint {report.fingerprint}"
        task += f"; medtasks {self.manifest.versions.get('medtasks')}"
        scores = []
        for rule, score in [(rule, rule.estimates.get(name)) for rule in report.rules for name in main]:
            if score is not None and not math.isnan(score.value):
                words = clusters_in_words(score) if score.components else counted(score.clusters or 0, "cluster")
                clusters = f" in {words}" if score.clusters else ""
                invalid = rule.estimates.get("invalid_rate")
                unusable = f"{rule.counts.lost} lost, {number(invalid.value) if invalid else 'uncounted'} invalid"
                size = f"{counted(rule.counts.scored, 'sample')}{clusters}, {unusable}"
                scores.append(
                    (rule, score, f"{score.metric}, rule {rule.name} ({rule.rule}): {scored(score)}; {size}; {task}")
                )
        return scores


def exports(run: RecordedRun, names: Iterable[str] = ()) -> list[Export]:
    """Return the tasks of a run to publish, by default all of ours but groups and sanity variants.

    Raises MedTasksError if one has synthetic or incomplete data or a part of the samples, or the run is not whole.
    """
    wanted = names or dict.fromkeys([*(name for manifest in run.manifests for name in manifest.tasks), *run.tasks])
    if missing := [name for name in wanted if name not in run.tasks]:
        raise MedTasksError(f"{run.folder} has no results of {listed(missing)}; finish the run, or choose with --task")
    parts = {name: section(run.tasks[name]) for name in wanted}
    results = {name: part for name, part in parts.items() if part.reading and part.reading.task.variant not in VARIANTS}
    others = sorted(parts.keys() - results.keys())
    if not results or (names and others):
        raise MedTasksError(f"{listed(others)}: groups, sanity variants and tasks of others are not exported")
    return [_checked(run, part, run.tasks[name]) for name, part in results.items()]


def _checked(run: RecordedRun, part: Section, recorded: TaskRun) -> Export:
    """Return a task's export; MedTasksError says why there is none."""
    report, name = part.report, recorded.name
    manifest = next((manifest for manifest in reversed(run.manifests) if name in manifest.tasks), None)
    if manifest is None or manifest.path is None:
        raise MedTasksError(f"{name}: {run.folder} has no manifest, which holds model, times and versions; {_AGAIN}")
    record = manifest.tasks[name]
    is_whole = record.outcome is TaskOutcome.DONE and recorded.results == manifest.path.parent / str(record.results)
    lost = max((rule.counts for rule in report.rules), key=lambda counts: counts.lost, default=SampleCounts(0, 0))
    problems = {
        "its data are synthetic, so that scores say nothing about a model": report.sample_data,
        "its data are a part of the published set; prepare the whole set": not report.complete_data,
        f"it is shard {manifest.shard} of a run; join all with 'medtasks merge'": manifest.shard is not None,
        f"the run is {manifest.standing}; {_AGAIN}": not manifest.standing.startswith("finished"),
        f"its newest results are missing or damaged; {_AGAIN}": not is_whole,
        f"{report.answered} of {report.documents} samples were asked; {_AGAIN}": report.answered != report.documents,
        f"{lost}, more than {DEFAULT_LIMIT}; {_AGAIN}": not FailureLimit.parse(DEFAULT_LIMIT).allows(lost),
        f"the fingerprint of its data is not recorded; {_AGAIN}": not report.fingerprint,
        " ".join(part.notes): bool(part.notes),
    }
    if why := next((problem for problem, holds in problems.items() if holds), ""):
        raise MedTasksError(f"{name} cannot be exported: {why}")
    return Export(part, recorded, manifest)


def hub_yaml(chosen: Iterable[Export], benchmarks: Mapping[str, str]) -> str:
    """Return scores as a file for ``.eval_results/`` of a model's repository, shares in percent.

    ``benchmarks`` give ``ORG/DATASET/TASK`` by task; MedTasksError: one without has data that are not from the Hub.
    """
    entries = []
    for export in chosen:
        name, source = export.section.report.name, export.section.report.settings.get("source", "")
        named = benchmarks.get(name) or f"{source.removeprefix(_HUB)}/{name}"
        if named.count("/") != 2:
            raise MedTasksError(
                f"the data of {name} are from {source}, which is no dataset of the Hub; name the dataset and its task "
                f"with --benchmark {name}=ORG/DATASET/TASK"
            )
        dataset, _, task_id = named.rpartition("/")
        for _, score, note in export.scores():
            value, unit = (round(100 * score.value, 4), "percent; ") if score.share else (score.value, "")
            facts = {"value": value, "date": export.manifest.started[:10], "notes": unit + note}
            entries.append({"dataset": {"id": dataset, "task_id": task_id}, **facts})
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)
