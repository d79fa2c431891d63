"""Results for others: YAML for a model's page on the Hub, and records of Every Eval Ever. Aggregates only.

Formats: https://huggingface.co/docs/hub/eval-results, and schema 0.3.0 of the package ``every-eval-ever``. Everything,
times and names of files included, comes from the run, so that exporting it again writes the same bytes.
"""

import hashlib
import json
import math
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from medtasks.audit.report.collecting import Section, section
from medtasks.audit.report.contents import RuleScores, Score
from medtasks.audit.report.wording import counted, estimate
from medtasks.data.variants import VARIANTS
from medtasks.errors import MedTasksError
from medtasks.home import written_whole
from medtasks.metrics.metric import Role
from medtasks.runs.run import Run, TaskRun
from medtasks.runs.run_manifest import RunManifest, TaskOutcome
from medtasks.runs.sample_counts import DEFAULT_LIMIT, FailureLimit, SampleCounts
from medtasks.tasks.task_index import mapping_in

_HUB = "https://huggingface.co/datasets/"
_SCHEMA = "0.3.0"
_AGAIN = "run it again with 'medtasks run', all of its questions"


@dataclass(frozen=True)
class Export:
    """One task of a run that may be published."""

    section: Section
    recorded: TaskRun
    manifest: RunManifest

    def scores(self) -> list[tuple[RuleScores, Score]]:
        """Return the main metrics that are defined, under each row."""
        reading, rules = self.section.reading, self.section.report.rules
        metrics = reading.task.metrics if reading else ()
        main = [metric.name for metric in metrics if metric.role is Role.MAIN] or [metrics[0].name]
        scores = [(rule, rule.estimates.get(name)) for rule in rules for name in main]
        return [(rule, score) for rule, score in scores if score is not None and not math.isnan(score.value)]

    def notes(self, rule: RuleScores, score: Score) -> str:
        """Describe a score: row, metric, interval, lost samples, and versions of task and data."""
        report, counts = self.section.report, rule.counts
        invalid = rule.estimates.get("invalid_rate")
        value = estimate(score.value, score.low, score.high, score.share)
        parts = (
            f"{score.metric}, row {rule.name} ({rule.rule}): {value}",
            f"95 % interval over {counted(score.clusters, 'cluster')}" if score.clusters else "",
            f"{counted(counts.scored, 'sample')} scored, {counts.lost} lost",
            f"invalid replies {estimate(invalid.value, math.nan, math.nan, True)}" if invalid else "",
            f"task {report.name} version {self.recorded.version}, data fingerprint {report.fingerprint}",
            f"medtasks {self.manifest.versions.get('medtasks')}",
        )
        return "; ".join(filter(None, parts))


def exports(run: Run, names: Sequence[str] = ()) -> list[Export]:
    """Return the tasks of a run to publish, by default all but groups, sanity variants and tasks that are not ours.

    Raises MedTasksError if a task has no results that may leave the house: of synthetic or incomplete data, of a part
    of the questions, of a run that did not end or is damaged.
    """
    if missing := [name for name in names if name not in run.tasks]:
        raise MedTasksError(f"{run.folder} has no results of {', '.join(missing)}; it has {', '.join(run.tasks)}")
    chosen = []
    for name in names or run.tasks:
        part = section(run.tasks[name])
        is_result = part.reading is not None and part.reading.task.variant not in VARIANTS
        if is_result:
            chosen.append(_checked(run, part, run.tasks[name]))
        elif names:
            raise MedTasksError(f"'{name}' is a group, a sanity variant or no task of medtasks; export other tasks")
    if not names and not chosen:
        raise MedTasksError(f"{run.folder} has no results of a task that can be exported")
    asked = {name: manifest.path for manifest in run.manifests for name in manifest.tasks if name not in run.tasks}
    if asked and not names:
        raise MedTasksError(f"the run left no results of {', '.join(asked)}; finish it, or name the others with --task")
    return chosen


def _checked(run: Run, part: Section, recorded: TaskRun) -> Export:
    """Return a task's export; MedTasksError says why there is none."""
    report, name = part.report, recorded.name
    manifests = [manifest for manifest in run.manifests if name in manifest.tasks]
    if not manifests:
        raise MedTasksError(f"{name}: {run.folder} has no manifest, which holds model, times and versions; {_AGAIN}")
    manifest = manifests[-1]
    record = manifest.tasks[name]
    newest = [file.path for file in run.results if name in file.rows()][-1:]
    is_whole = record.outcome is TaskOutcome.DONE and bool(manifest.path) and bool(record.results)
    lost = max((rule.counts for rule in report.rules), key=lambda counts: counts.lost, default=SampleCounts(0, 0))
    problems = {
        "its data are synthetic, so that scores say nothing about a model": report.sample_data,
        "its data are a part of the published set; prepare the whole set": not report.complete_data,
        f"it is shard {manifest.shard} of a run; join all with 'medtasks merge'": manifest.shard is not None,
        f"the run is {manifest.standing}; {_AGAIN}": not manifest.standing.startswith("finished"),
        f"its newest results are missing or damaged; {_AGAIN}": not is_whole
        or newest != [Path(manifest.path or "").parent / str(record.results)],
        f"{report.answered} of {report.documents} samples were asked; {_AGAIN}": report.answered != report.documents,
        f"{lost}, more than {DEFAULT_LIMIT}; {_AGAIN}": not FailureLimit.parse(DEFAULT_LIMIT).allows(lost),
        f"the fingerprint of its data is not recorded; {_AGAIN}": not report.fingerprint,
        " ".join(part.notes): bool(part.notes),
    }
    if why := next((problem for problem, holds in problems.items() if holds), ""):
        raise MedTasksError(f"{name} cannot be exported: {why}")
    return Export(part, recorded, manifest)


def hub_yaml(chosen: Sequence[Export], benchmarks: Mapping[str, str]) -> str:
    """Return scores as a file for ``.eval_results/`` of a model's repository, shares in percent.

    ``benchmarks`` name Hub dataset and its task, ``ORG/DATASET/TASK``, of tasks that are not published there under
    their own name. Raises MedTasksError for another task whose data are not from the Hub.
    """
    entries = []
    for export in chosen:
        report = export.section.report
        source = report.settings.get("source", "")
        named = benchmarks.get(report.name) or f"{source.removeprefix(_HUB)}/{report.name}"
        if not (report.name in benchmarks or source.startswith(_HUB)) or named.count("/") != 2:
            raise MedTasksError(
                f"the data of {report.name} are from {source}, which is no dataset of the Hub; name the dataset and "
                f"its task with --benchmark {report.name}=ORG/DATASET/TASK"
            )
        dataset, _, task_id = named.rpartition("/")
        revision = str(export.recorded.data.get("revision"))
        pinned = {"revision": revision} if re.fullmatch("[0-9a-f]{40}", revision) and source.endswith(dataset) else {}
        for rule, score in export.scores():
            value = round(100 * score.value, 4) if score.share else score.value
            notes = f"{'percent; ' * score.share}{export.notes(rule, score)}"
            dated = {"value": value, "date": export.manifest.started[:10], "notes": notes}
            entries.append({"dataset": {"id": dataset, "task_id": task_id, **pinned}, **dated})
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100)


def write_eee(chosen: Sequence[Export], folder: Path, organization: str, relationship: str) -> list[Path]:
    """Write a record of Every Eval Ever per task below a folder, ``data/medtasks/DEVELOPER/MODEL/UUID.json``."""
    paths = []
    for export in chosen:
        record = _eee_record(export, organization, relationship)
        text = json.dumps(record, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"
        name = uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4)
        developer, _, model = record["model_info"]["id"].partition("/")
        path = folder / "data" / "medtasks" / developer / re.sub("[/:]", "_", model) / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial:
            partial.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


def _eee_record(export: Export, organization: str, relationship: str) -> dict[str, Any]:
    """Return a task as a record of schema 0.3.0; weights without an organisation on the Hub are called ``local``."""
    manifest, report = export.manifest, export.section.report
    facts = manifest.model
    weights = re.sub(r"[^\w./:-]", "_", (facts.weights or facts.name).partition(", ")[0]).strip("./")
    model = weights if "/" in weights else f"local/{weights}"
    made = str(int(datetime.fromisoformat(manifest.ended or manifest.started).timestamp()))
    details = {
        "deployment_type": "self_deployed" if facts.fingerprint else "unknown",
        "model_availability": "open_weights" if "commit:" in (facts.fingerprint or "") else "unknown",
        "adapter": facts.name,
        "weights": facts.weights or facts.name,
        "weights_fingerprint": facts.fingerprint or f"unknown: {facts.unknown}",
    }
    library = {name: str(manifest.versions.get(name)) for name in ("lmms_eval", "torch", "transformers")}
    return {
        "schema_version": _SCHEMA,
        "evaluation_id": f"{report.name}/{model}/{made}",
        "evaluation_timestamp": manifest.started,
        "retrieved_timestamp": made,
        "source_metadata": {
            "source_name": "medtasks",
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": relationship,
        },
        "eval_library": {
            "name": "medtasks",
            "version": str(manifest.versions.get("medtasks")),
            "additional_details": {**library, "commit": str(manifest.commit)},
        },
        "model_info": {"name": weights, "id": model, "additional_details": details},
        "evaluation_results": [_eee_result(export, rule, score) for rule, score in export.scores()],
    }


def _eee_result(export: Export, rule: RuleScores, score: Score) -> dict[str, Any]:
    """Return one score as a result of Every Eval Ever, with source of the data, metric, uncertainty and decoding."""
    report, settings = export.section.report, export.section.report.settings
    source, generation = settings.get("source", ""), mapping_in(export.recorded.config, "generation_kwargs")
    if source.startswith(_HUB):
        data: dict[str, Any] = {"source_type": "hf_dataset", "hf_repo": source.removeprefix(_HUB)}
        data["samples_number"] = report.documents
    else:
        data = {"source_type": "url", "url": [source]} if source.startswith("http") else {"source_type": "other"}
    named = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_new_tokens": "max_tokens"}
    numbers = {
        to: value for name, to in named.items() if isinstance(value := generation.get(name), int | float) and value >= 0
    }
    spread: dict[str, Any] = {"num_samples": rule.counts.scored}
    if not math.isnan(score.error):
        clusters = f"clustered over {score.clusters} clusters" if score.clusters else "as recorded"
        spread["standard_error"] = {"value": score.error, "method": clusters}
    if math.isfinite(score.low) and math.isfinite(score.high):
        spread["confidence_interval"] = {"lower": score.low, "upper": score.high, "confidence_level": 0.95}
    bounds = {"score_type": "continuous", "min_score": 0.0, "max_score": 1.0, "metric_unit": "proportion"}
    return {
        "evaluation_result_id": f"{report.name}/{rule.name}/{score.metric}",
        "evaluation_name": report.name,
        "source_data": {
            "dataset_name": report.dataset or report.name,
            **data,
            "additional_details": {"fingerprint": report.fingerprint, "access": report.access or "unknown"},
        },
        "metric_config": {
            "evaluation_description": report.describes,
            "metric_id": score.metric,
            "metric_name": f"{score.metric} ({rule.name})",
            "lower_is_better": score.higher_is_better is False,
            **(bounds if score.share else {}),
            "additional_details": {"row": rule.name, "rule": rule.rule, "remarks": " ".join(rule.remarks)},
        },
        "score_details": {
            "score": score.value,
            "details": {"notes": export.notes(rule, score), "task_version": export.recorded.version},
            "uncertainty": spread,
        },
        "generation_config": {
            "generation_args": numbers,
            "additional_details": {name: settings[name] for name in ("decoding", "prompt") if name in settings},
        },
    }
