"""Results for others: YAML for a model's page on the Hub, and records of Every Eval Ever. Aggregates only.

Formats: https://huggingface.co/docs/hub/eval-results, and schema 0.3.0 of the package ``every-eval-ever``. Everything,
times and names of files included, comes from the run, so that exporting it again writes the same bytes.
"""

import hashlib
import json
import math
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from medtasks.data.variants import VARIANTS
from medtasks.errors import MedTasksError, join_names
from medtasks.home import written_whole
from medtasks.metrics.metric import Role
from medtasks.report.collecting import Section, section
from medtasks.report.report_model import TaskReport
from medtasks.report.wording import clusters_in_words, number, quantity, score_text
from medtasks.runs.run import RecordedRun, TaskRun
from medtasks.runs.run_manifest import RunManifest, TaskOutcome
from medtasks.runs.sample_counts import DEFAULT_LIMIT, FailureLimit
from medtasks.scores.score_model import MetricScore, RuleScores

_Json = dict[str, Any]
_HUB = "https://huggingface.co/datasets/"
_AGAIN = "run it again with 'medtasks run', all of its questions"


@dataclass(frozen=True)
class Export:
    """One task of a run that may be published: its section, its record, and the manifest of its run."""

    section: Section
    recorded: TaskRun
    manifest: RunManifest

    def scores(self) -> list[tuple[RuleScores, MetricScore, str]]:
        """Return the main metrics that are defined.

        Returns:
            A rule, its score and a note on this score for each rule and main metric.
        """
        report = self.section.report
        reading = self.section.reading
        metrics = reading.task.metrics if reading else ()
        main = [metric.name for metric in metrics if metric.role is Role.MAIN] or [
            metrics[0].name
        ]
        task = f"task {report.name} version {self.recorded.version}, data fingerprint {report.fingerprint}"
        task += f"; medtasks {self.manifest.versions.get('medtasks')}"
        scores = []
        for rule in report.rules:
            for name in main:
                score = rule.estimates.get(name)
                if score is None or math.isnan(score.value):
                    continue
                note = f"{score.metric}, rule {rule.name} ({rule.rule}): {score_text(score)}; "
                note += f"{_size_of(rule, score)}; {task}"
                scores.append((rule, score, note))
        return scores


def _size_of(rule: RuleScores, score: MetricScore) -> str:
    """Describe the samples of a score: how many, in how many clusters, lost and invalid ones."""
    samples = quantity(rule.counts.scored, "sample")
    if score.components and score.clusters:
        samples += f" in {clusters_in_words(score)}"
    elif score.clusters:
        samples += f" in {quantity(score.clusters, 'cluster')}"
    invalid = rule.estimates.get("invalid_rate")
    share = number(invalid.value) if invalid else "uncounted"
    return f"{samples}, {rule.counts.lost} lost, {share} invalid"


def exports(run: RecordedRun, names: Iterable[str] = ()) -> list[Export]:
    """Collect the tasks of a run that are published.

    Args:
        run: The run.
        names: Tasks to publish, by default all of ours but groups and sanity variants.

    Raises:
        MedTasksError: A task has synthetic or incomplete data or a part of the samples, or the run is not whole.
    """
    results = {}
    others = []
    for name in _wanted_tasks(run, names):
        part = section(run.tasks[name])
        if part.reading and part.reading.task.variant not in VARIANTS:
            results[name] = part
        else:
            others.append(name)
    if not results or (names and others):
        raise MedTasksError(
            f"{join_names(sorted(others))}: groups, sanity variants and tasks of others are not exported"
        )
    return [_export_of(run, part, run.tasks[name]) for name, part in results.items()]


def _wanted_tasks(run: RecordedRun, names: Iterable[str]) -> Iterable[str]:
    """Return the named tasks, or all of a run, or raise a MedTasksError if one has no results."""
    wanted = dict.fromkeys(names)
    if not wanted:
        for manifest in run.manifests:
            wanted |= dict.fromkeys(manifest.tasks)
        wanted |= dict.fromkeys(run.tasks)
    missing = [name for name in wanted if name not in run.tasks]
    if missing:
        raise MedTasksError(
            f"{run.folder} has no results of {join_names(missing)}; finish the run, or choose with --task"
        )
    return wanted


def _export_of(run: RecordedRun, part: Section, recorded: TaskRun) -> Export:
    """Return the export of a task, or raise a MedTasksError that says why it has none."""
    name = recorded.name
    manifest = None
    for made in run.manifests:
        if name in made.tasks:
            manifest = made
    if manifest is None or manifest.path is None:
        raise MedTasksError(
            f"{name}: {run.folder} has no manifest, which holds model, times and versions; {_AGAIN}"
        )
    problem = next(_problems(part, recorded, manifest, manifest.path.parent), "")
    if problem:
        raise MedTasksError(f"{name} cannot be exported: {problem}")
    return Export(part, recorded, manifest)


def _problems(
    part: Section,
    recorded: TaskRun,
    manifest: RunManifest,
    folder: Path,
) -> Iterator[str]:
    """Yield what forbids to publish a task, the gravest first."""
    report = part.report
    if report.sample_data:
        yield "its data are synthetic, so that scores say nothing about a model"
    if not report.complete_data:
        yield "its data are a part of the published set; prepare the whole set"
    if manifest.shard is not None:
        yield f"it is shard {manifest.shard} of a run; join all with 'medtasks merge'"
    if not manifest.standing.startswith("finished"):
        yield f"the run is {manifest.standing}; {_AGAIN}"
    record = manifest.tasks[recorded.name]
    is_newest = recorded.results == folder / str(record.results)
    if record.outcome is not TaskOutcome.DONE or not is_newest:
        yield f"its newest results are missing or damaged; {_AGAIN}"
    if report.answered != report.documents:
        yield f"{report.answered} of {report.documents} samples were asked; {_AGAIN}"
    loss = report.largest_loss
    if loss and not FailureLimit.parse(DEFAULT_LIMIT).allows(loss):
        yield f"{loss}, more than {DEFAULT_LIMIT}; {_AGAIN}"
    if not report.fingerprint:
        yield f"the fingerprint of its data is not recorded; {_AGAIN}"
    if part.notes:
        yield " ".join(part.notes)


def hub_yaml(chosen: Iterable[Export], benchmarks: Mapping[str, str]) -> str:
    """Return scores as a file for ``.eval_results/`` of a model's repository, shares in percent.

    Args:
        chosen: Tasks to publish.
        benchmarks: ``ORG/DATASET/TASK`` by task, needed where the data are not from the Hub.

    Raises:
        MedTasksError: A task has no entry in ``benchmarks``, and its data are not from the Hub.
    """
    entries = []
    for export in chosen:
        report = export.section.report
        source = report.settings.get("source", "")
        benchmark = benchmarks.get(report.name) or f"{source.removeprefix(_HUB)}/{report.name}"
        if benchmark.count("/") != 2:
            raise MedTasksError(
                f"the data of {report.name} are from {source}, which is no dataset of the Hub; name the dataset and "
                f"its task with --benchmark {report.name}=ORG/DATASET/TASK"
            )
        dataset, _, task_id = benchmark.rpartition("/")
        for _, score, note in export.scores():
            value = score.value
            if score.share:
                value = round(100 * value, 4)
                note = f"percent; {note}"
            entries.append(
                {
                    "dataset": {"id": dataset, "task_id": task_id},
                    "value": value,
                    "date": export.manifest.started[:10],
                    "notes": note,
                }
            )
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)


def write_eee(
    chosen: Iterable[Export],
    folder: Path,
    organization: str,
    relationship: str,
) -> list[Path]:
    """Write a record of Every Eval Ever for each task.

    Args:
        chosen: Tasks to publish.
        folder: Records go to ``data/medtasks/DEVELOPER/MODEL/UUID.json`` below it.
        organization: Who ran the evaluation.
        relationship: Of this organization to the model, in the words of the schema.

    Returns:
        The files. Weights without an organisation on the Hub have the developer ``local``.
    """
    paths = []
    for export in chosen:
        manifest = export.manifest
        model = _eee_model(manifest)
        ended = datetime.fromisoformat(manifest.ended or manifest.started)
        retrieved = str(int(ended.timestamp()))
        versions = {
            name: str(version) for name, version in manifest.versions.items() if version
        }
        record = {
            "schema_version": "0.3.0",
            "evaluation_id": f"{export.section.report.name}/{model['id']}/{retrieved}",
            "evaluation_timestamp": manifest.started,
            "retrieved_timestamp": retrieved,
            "source_metadata": {
                "source_name": "medtasks",
                "source_type": "evaluation_run",
                "source_organization_name": organization,
                "evaluator_relationship": relationship,
            },
            "eval_library": {
                "name": "medtasks",
                "version": versions.get("medtasks", "unknown"),
                "additional_details": versions,
            },
            "model_info": model,
            "evaluation_results": [_eee_result(export, *scores) for scores in export.scores()],
        }
        text = json.dumps(record, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)
        text += "\n"
        name = uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4)
        developer, _, weights = model["id"].replace(":", "_").partition("/")
        folder_of_model = folder / "data" / "medtasks" / developer / weights.replace("/", "_")
        folder_of_model.mkdir(parents=True, exist_ok=True)
        path = folder_of_model / f"{name}.json"
        with written_whole(path) as partial:
            partial.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def _eee_model(manifest: RunManifest) -> _Json:
    """Return the model of a run in the words of the schema."""
    facts = manifest.model
    named_weights = (facts.weights or facts.name).partition(", ")[0]
    weights = re.sub(r"[^\w./:-]", "_", named_weights).strip("./")
    fingerprint = facts.fingerprint or facts.unknown
    return {
        "name": weights,
        "id": weights if "/" in weights else f"local/{weights}",
        "additional_details": {
            "adapter": facts.name,
            "weights": facts.weights,
            "fingerprint": fingerprint,
            "deployment_type": "self_deployed" if facts.fingerprint else "unknown",
            "model_availability": "open_weights" if "commit:" in fingerprint else "unknown",
        },
    }


def _eee_result(export: Export, rule: RuleScores, score: MetricScore, note: str) -> _Json:
    """Return one score as a result of Every Eval Ever, with source of the data, metric, uncertainty and decoding."""
    report = export.section.report
    settings = report.settings
    metric: _Json = {
        "metric_id": score.metric,
        "lower_is_better": score.higher_is_better is False,
        "additional_details": {
            "row": rule.name,
            "rule": rule.rule,
            "remarks": " ".join(rule.remarks),
        },
    }
    if score.share:
        metric |= {"score_type": "continuous", "min_score": 0.0, "max_score": 1.0}
    spread: _Json = {"num_samples": rule.counts.scored}
    if not math.isnan(score.error):
        method = (
            f"clustered over {score.clusters} clusters" if score.clusters else "as recorded"
        )
        spread["standard_error"] = {"value": score.error, "method": method}
    if math.isfinite(score.low) and math.isfinite(score.high):
        spread["confidence_interval"] = {
            "lower": score.low,
            "upper": score.high,
            "confidence_level": 0.95,
        }
    decoding = {name: settings[name] for name in ("decoding", "prompt") if name in settings}
    return {
        "evaluation_result_id": f"{report.name}/{rule.name}/{score.metric}",
        "evaluation_name": report.name,
        "source_data": _eee_source(report),
        "metric_config": metric,
        "score_details": {
            "score": score.value,
            "details": {"notes": note},
            "uncertainty": spread,
        },
        "generation_config": {"additional_details": decoding},
    }


def _eee_source(report: TaskReport) -> _Json:
    """Return the source of a task's data in the words of the schema."""
    source = report.settings.get("source", "")
    data: _Json = {
        "dataset_name": report.dataset or report.name,
        "additional_details": {
            "fingerprint": report.fingerprint,
            "access": report.access or "unknown",
        },
    }
    if source.startswith(_HUB):
        data["source_type"] = "hf_dataset"
        data["hf_repo"] = source.removeprefix(_HUB)
        data["samples_number"] = report.documents
    elif "://" in source:
        data["source_type"] = "url"
        data["url"] = [source]
    else:
        data["source_type"] = "other"
    return data
