"""Joining the runs of shards into what one run would have left: samples, the same results, and a manifest."""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from medtasks.audit.facts import commit, versions
from medtasks.audit.shard_runs import ShardRun, read_shards
from medtasks.data.home import written_whole
from medtasks.data.shards import SHARD_VARIABLE
from medtasks.errors import MedTasksError
from medtasks.harness.aggregating import RecordedPart, Setup, aggregate
from medtasks.harness.guarded_run import listed
from medtasks.harness.manifest import RunManifest, RunState, TaskRecord, manifest_files, manifest_path
from medtasks.harness.process import this_process
from medtasks.harness.redaction import redacted_arguments, settings
from medtasks.harness.running import RESULTS, samples_file
from medtasks.harness.sample_counts import FailureLimit, SampleCounts, counts_of

_OF_TASKS = ("configs", "versions", "n-shot", "higher_is_better", "n-samples")  # by name of a task or group
_CODE = ("medtasks", "lmms_eval", "commit of medtasks")
_OF_METRICS = ("MEDTASKS_METRICS_", "MEDTASKS_LABELER", "MEDTASKS_WEIGHTS")
_OF_A_PROCESS = ("usage", "throughput", "start_time", "end_time", "total_evaluation_time_seconds")


def merge(
    output: Path, folders: Sequence[Path], limit: FailureLimit, include: Sequence[Path] = ()
) -> tuple[RunManifest, dict[str, SampleCounts]]:
    """Join the shards in folders and write the files of one run; return its manifest, and tasks that lost too many.

    Nothing is written unless all shards are there and belong together, see :func:`read_shards` and :func:`aggregate`
    for what is refused. ``include`` are folders with tasks of the user's own.
    """
    if manifest_files(output) or any(output.rglob(f"*{RESULTS}")):
        raise MedTasksError(f"{output} holds a run already; name a new folder for what is joined")
    runs = read_shards(folders)
    _check_code_here(runs[0])
    made = datetime.now(UTC)
    samples = {name: _samples(name, runs) for name in runs[0].tasks}
    content = _content(runs, samples, include)
    content["date"] = f"{made:%Y%m%d_%H%M%S}"
    content["config"]["resolved_cli_args"] |= {"output_path": str(output), "timezone": "UTC"}
    results = output / str(content.get("model_name_sanitized") or "") / f"{content['date']}{RESULTS}"
    for name, lines in samples.items():
        with written_whole(samples_file(results, name)) as partial:
            partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with written_whole(results) as partial:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
    counts = {name: found for name, row in content["results"].items() if (found := counts_of(row))}
    lost = {name: found for name, found in counts.items() if not limit.allows(found)}
    manifest = _manifest(runs, output, results, counts)
    manifest = manifest.model_copy(update={"state": RunState.WITH_FAILURES if lost else RunState.FINISHED})
    manifest.write(manifest_path(output, made))
    return manifest, lost


def _check_code_here(run: ShardRun) -> None:
    """Refuse to compute results with other code, or other models for metrics, than the runs would have."""
    told, here = run.manifest, {**versions(), "commit of medtasks": commit(), **settings(os.environ)}
    there = {**told.versions, "commit of medtasks": told.commit, **told.settings}
    names = [*_CODE, *sorted(name for name in {*here, *there} if name.startswith(_OF_METRICS))]
    different = [f"{name} ({there.get(name)} there)" for name in names if here.get(name) != there.get(name)]
    if different:
        raise MedTasksError(
            f"the results are computed here, and {listed(different)} differ from those of {run}; merge where they are "
            f"the same"
        )


def _samples(name: str, runs: Sequence[ShardRun]) -> list[str]:
    """Return the lines of a task's samples in the order of one process: by filter, and by row."""
    lines = {row: found for run in runs for row, found in run.tasks[name].lines.items()}
    return [lines[row][place] for place in range(len(runs[0].tasks[name].filters)) for row in sorted(lines)]


def _content(runs: Sequence[ShardRun], samples: Mapping[str, Sequence[str]], include: Sequence[Path]) -> dict[str, Any]:
    """Return what stands in the results file."""
    from lmms_eval.models.model_utils.efficiency_metrics import build_efficiency_summary
    from lmms_eval.utils import handle_non_serializable, hash_string

    first = runs[0]
    parts = {name: [run.tasks[name] for run in runs] for name in first.tasks}
    contents = [part.content for of_task in parts.values() for part in of_task]
    config = contents[0]["config"]
    setup = Setup(
        first.manifest.asked,
        include,
        str(config["model"]),
        str(config["model_backend"]).rpartition("(")[2].rstrip(")"),
        config["bootstrap_iters"],
        bool(config["resolved_cli_args"].get("predict_only")),
    )
    recorded = {name: [RecordedPart(part.row, part.lines) for part in of_task] for name, of_task in parts.items()}
    filters = {name: of_task[0].filters for name, of_task in parts.items()}
    found = json.loads(json.dumps(aggregate(setup, recorded, filters), default=handle_non_serializable))
    joined = {key: {name: one for content in contents[::-1] for name, one in content[key].items()} for key in _OF_TASKS}
    joined["n-samples"] = {name: {"original": of[0].total, "effective": of[0].total} for name, of in parts.items()}
    read = {name: [json.loads(line) for line in lines] for name, lines in samples.items()}
    hashes = {
        name: hash_string("".join(f"sample_{place}{one['doc_hash']}" for place, one in enumerate(lines)))
        for name, lines in read.items()
    }
    efficiency = build_efficiency_summary({"samples": read, "configs": joined["configs"]})
    base = {key: value for key, value in contents[0].items() if key not in (*_OF_A_PROCESS, "groups", "efficiency")}
    return {**base, **joined, **found, **({"efficiency": efficiency} if efficiency else {}), "task_hashes": hashes}


def _manifest(runs: Sequence[ShardRun], output: Path, results: Path, counts: Mapping[str, SampleCounts]) -> RunManifest:
    """Return the manifest of all shards together, whose machine is that of the first."""
    first, all_of_them = runs[0].manifest, [run.manifest for run in runs]

    def joined(name: str, record: TaskRecord) -> TaskRecord:
        samples, counted = samples_file(results, name), counts.get(name)
        numbers = (
            {}
            if counted is None
            else {
                "scored_samples": counted.scored,
                "failed_samples": counted.failed,
                "unjudged_samples": counted.unjudged,
            }
        )
        places = {
            "results": results.relative_to(output).as_posix(),
            "samples": samples.relative_to(output).as_posix() if samples.is_file() else None,
        }
        return record.model_copy(update={**places, **numbers, "rows": None})

    return first.model_copy(
        update={
            "started": min(one.started for one in all_of_them),
            "ended": max(one.ended or one.started for one in all_of_them),
            "seconds": round(sum(one.seconds or 0.0 for one in all_of_them), 3),
            "process": this_process(),
            "command": redacted_arguments(["medtasks", "merge", str(output), *(str(run.folder) for run in runs)]),
            "tasks": {name: joined(name, record) for name, record in first.tasks.items()},
            "processes": tuple(process for one in all_of_them for process in one.processes),
            "notices": tuple(dict.fromkeys(notice for one in all_of_them for notice in one.notices)),
            "settings": {name: value for name, value in first.settings.items() if name != SHARD_VARIABLE},
            "shard": None,
            "merged": tuple(f"{run.shard} {run.manifest.started}" for run in runs),
        }
    )
