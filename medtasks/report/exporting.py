"""Results for others: YAML for a model's page on the Hub, and records of Every Eval Ever. Aggregates only.

Formats: https://huggingface.co/docs/hub/eval-results, and schema 0.3.0 of the package ``every-eval-ever``. Everything,
times and names of files included, comes from the run, so that exporting it again writes the same bytes.
"""

import hashlib
import json
import math
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from medtasks.data.variants import VARIANTS
from medtasks.errors import MedTasksError, listed
from medtasks.home import written_whole
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
        for rule, score in [
            (rule, rule.estimates.get(name)) for rule in report.rules for name in main
        ]:
            if score is not None and not math.isnan(score.value):
                words = (
                    clusters_in_words(score)
                    if score.components
                    else counted(score.clusters or 0, "cluster")
                )
                clusters = f" in {words}" if score.clusters else ""
                invalid = rule.estimates.get("invalid_rate")
                unusable = f"{rule.counts.lost} lost, {number(invalid.value) if invalid else 'uncounted'} invalid"
                size = f"{counted(rule.counts.scored, 'sample')}{clusters}, {unusable}"
                scores.append(
                    (
                        rule,
                        score,
                        f"{score.metric}, rule {rule.name} ({rule.rule}): {scored(score)}; {size}; {task}",
                    )
                )
        return scores


def exports(run: RecordedRun, names: Iterable[str] = ()) -> list[Export]:
    """Return the tasks of a run to publish, by default all of ours but groups and sanity variants.

    Raises MedTasksError if one has synthetic or incomplete data or a part of the samples, or the run is not whole.
    """
    wanted = names or dict.fromkeys(
        [*(name for manifest in run.manifests for name in manifest.tasks), *run.tasks]
    )
    if missing := [name for name in wanted if name not in run.tasks]:
        raise MedTasksError(
            f"{run.folder} has no results of {listed(missing)}; finish the run, or choose with --task"
        )
    parts = {name: section(run.tasks[name]) for name in wanted}
    results = {
        name: part
        for name, part in parts.items()
        if part.reading and part.reading.task.variant not in VARIANTS
    }
    others = sorted(parts.keys() - results.keys())
    if not results or (names and others):
        raise MedTasksError(
            f"{listed(others)}: groups, sanity variants and tasks of others are not exported"
        )
    return [_checked(run, part, run.tasks[name]) for name, part in results.items()]


def _checked(run: RecordedRun, part: Section, recorded: TaskRun) -> Export:
    """Return a task's export; MedTasksError says why it has none."""
    report, name = part.report, recorded.name
    manifest = next(
        (manifest for manifest in reversed(run.manifests) if name in manifest.tasks), None
    )
    if manifest is None or manifest.path is None:
        raise MedTasksError(
            f"{name}: {run.folder} has no manifest, which holds model, times and versions; {_AGAIN}"
        )
    record = manifest.tasks[name]
    is_whole = (
        record.outcome is TaskOutcome.DONE
        and recorded.results == manifest.path.parent / str(record.results)
    )
    lost = max(
        (rule.counts for rule in report.rules),
        key=lambda counts: counts.lost,
        default=SampleCounts(0, 0),
    )
    problems = {
        "its data are synthetic, so that scores say nothing about a model": report.sample_data,
        "its data are a part of the published set; prepare the whole set": not report.complete_data,
        f"it is shard {manifest.shard} of a run; join all with 'medtasks merge'": manifest.shard
        is not None,
        f"the run is {manifest.standing}; {_AGAIN}": not manifest.standing.startswith("finished"),
        f"its newest results are missing or damaged; {_AGAIN}": not is_whole,
        f"{report.answered} of {report.documents} samples were asked; {_AGAIN}": report.answered
        != report.documents,
        f"{lost}, more than {DEFAULT_LIMIT}; {_AGAIN}": not FailureLimit.parse(
            DEFAULT_LIMIT
        ).allows(lost),
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
            value, unit = (
                (round(100 * score.value, 4), "percent; ") if score.share else (score.value, "")
            )
            facts = {"value": value, "date": export.manifest.started[:10], "notes": unit + note}
            entries.append({"dataset": {"id": dataset, "task_id": task_id}, **facts})
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)


def write_eee(
    chosen: Iterable[Export], folder: Path, organization: str, relationship: str
) -> list[Path]:
    """Write a record of Every Eval Ever per task below a folder, ``data/medtasks/DEVELOPER/MODEL/UUID.json``.

    Weights without an organisation on the Hub are called ``local``.
    """
    paths, ran_by = (
        [],
        {"source_organization_name": organization, "evaluator_relationship": relationship},
    )
    for export in chosen:
        manifest, facts, task = export.manifest, export.manifest.model, export.section.report.name
        weights = re.sub(r"[^\w./:-]", "_", (facts.weights or facts.name).partition(", ")[0]).strip(
            "./"
        )
        model = weights if "/" in weights else f"local/{weights}"
        made = str(int(datetime.fromisoformat(manifest.ended or manifest.started).timestamp()))
        versions = {name: str(version) for name, version in manifest.versions.items() if version}
        library = {"name": "medtasks", "version": versions.get("medtasks", "unknown")}
        details = {
            "adapter": facts.name,
            "weights": facts.weights,
            "fingerprint": facts.fingerprint or facts.unknown,
        }
        details["deployment_type"] = "self_deployed" if facts.fingerprint else "unknown"
        details["model_availability"] = (
            "open_weights" if "commit:" in details["fingerprint"] else "unknown"
        )
        record = {
            "schema_version": "0.3.0",
            "evaluation_id": f"{task}/{model}/{made}",
            "evaluation_timestamp": manifest.started,
            "retrieved_timestamp": made,
            "source_metadata": {
                "source_name": "medtasks",
                "source_type": "evaluation_run",
                **ran_by,
            },
            "eval_library": {**library, "additional_details": versions},
            "model_info": {"name": weights, "id": model, "additional_details": details},
            "evaluation_results": [_eee_result(export, *scores) for scores in export.scores()],
        }
        text = (
            json.dumps(record, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"
        )
        name = uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4)
        developer, _, model = model.replace(":", "_").partition("/")
        paths.append(
            folder / "data" / "medtasks" / developer / model.replace("/", "_") / f"{name}.json"
        )
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        with written_whole(paths[-1]) as partial:
            partial.write_text(text, encoding="utf-8")
    return paths


def _eee_result(export: Export, rule: RuleScores, score: MetricScore, note: str) -> dict[str, Any]:
    """Return one score as a result of Every Eval Ever, with source of the data, metric, uncertainty and decoding."""
    report, settings = export.section.report, export.section.report.settings
    source, name = settings.get("source", ""), report.dataset or report.name
    data: dict[str, Any] = (
        {"source_type": "url", "url": [source]} if "://" in source else {"source_type": "other"}
    )
    if source.startswith(_HUB):
        data = {
            "source_type": "hf_dataset",
            "hf_repo": source.removeprefix(_HUB),
            "samples_number": report.documents,
        }
    known = {"fingerprint": report.fingerprint, "access": report.access or "unknown"}
    bounds = {"score_type": "continuous", "min_score": 0.0, "max_score": 1.0} if score.share else {}
    row = {"row": rule.name, "rule": rule.rule, "remarks": " ".join(rule.remarks)}
    lower = score.higher_is_better is False
    spread: dict[str, Any] = {"num_samples": rule.counts.scored}
    if not math.isnan(score.error):
        method = f"clustered over {score.clusters} clusters" if score.clusters else "as recorded"
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
        "source_data": {"dataset_name": name, **data, "additional_details": known},
        "metric_config": {
            "metric_id": score.metric,
            "lower_is_better": lower,
            **bounds,
            "additional_details": row,
        },
        "score_details": {"score": score.value, "details": {"notes": note}, "uncertainty": spread},
        "generation_config": {"additional_details": decoding},
    }
