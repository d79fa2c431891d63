"""Merging the runs of shards into the files of one run: samples, the results scored from them, and a manifest."""

import json
import os
import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from medtasks.data.samples import Documents, Sample
from medtasks.data.shards import SHARD_VARIABLE
from medtasks.errors import MedTasksError, join_names
from medtasks.families.family import FENCED, Rule
from medtasks.home import written_whole
from medtasks.metrics.metric import STDERR, Score, evaluate
from medtasks.running.recording import commit, versions, with_results
from medtasks.runs.asked_questions import QuestionIndex
from medtasks.runs.redaction import redacted_arguments, settings
from medtasks.runs.replies import SampleLine, read_replies
from medtasks.runs.result_files import RESULTS, ResultsFile, results_files
from medtasks.runs.run_manifest import (
    HarnessProcess,
    Notice,
    RunManifest,
    RunState,
    manifest_files,
    manifest_path,
    process_of,
)
from medtasks.runs.sample_counts import FailureLimit, SampleCounts
from medtasks.runs.shard_runs import ShardRun, TaskPart, read_shards
from medtasks.scores.scoring import log_notes, panel_results
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import resolve_names

Shards = Sequence[ShardRun]
Row = dict[str, Any]
"""Results of a task by key, such as ``<metric>,<filter>``."""
TaskRows = Mapping[str, Mapping[str, Any]]  # results by task
ScoresByRow = dict[int, list[Score]]
"""Scores by row of the dataset, one for each filter."""
_OTHER_RESULTS = (
    "do not give the results that its runs recorded, so that they cannot be joined: they hold too little, or this "
    "version of the code is another one"
)
_OTHER_TEXTS = "row {} of {} has other texts here than in the run; point MEDTASKS_HOME to its data and replies"
_NO_ERROR = "N/A"  # written by the harness where it computes no standard error
_BY_TASK = (
    "configs",
    "versions",
    "n-shot",
    "higher_is_better",
    "group_subtasks",
    "results",
    "groups",
)
# Parts of a results file about one process, or a shard's own samples.
_OF_PROCESS = (
    "usage",
    "throughput",
    "start_time",
    "end_time",
    "total_evaluation_time_seconds",
    "task_hashes",
    "efficiency",
)


def merge(
    output: Path,
    folders: Sequence[Path],
    limit: FailureLimit,
) -> tuple[RunManifest, dict[str, SampleCounts]]:
    """Join the shards in folders and write the files of one run.

    Nothing is written unless all shards are there, belong together (:func:`read_shards`), and their samples give the
    results that each shard recorded.

    Args:
        output: New folder for the run.
        folders: Folders of the shards.
        limit: Largest share of failed samples.

    Returns:
        The manifest of the run, and the counts of tasks that exceed the limit: none if the run is fine.

    Raises:
        MedTasksError: The output folder holds a run, shards are missing or do not belong together, only the harness
            scores a task, another version of the code made the shards, or samples do not give the recorded results.
    """
    if manifest_files(output) or results_files(output):
        raise MedTasksError(
            f"{output} holds a run already; name a new folder for what is joined"
        )
    runs = read_shards(folders)
    tasks = []
    for name in runs[0].tasks:
        task = task_file(name)
        if task.only_harness:
            raise MedTasksError(
                f"'{task.name}' {task.only_harness}, so that its shards cannot be merged; run it once without --shard, "
                "and the shards without it"
            )
        tasks.append(task)
    _check_versions(runs[0])
    made = datetime.now(UTC)
    content = _content(runs, {task.name: _task_row(task, runs) for task in tasks})
    content["date"] = f"{made:%Y%m%d_%H%M%S}"
    content["config"]["resolved_cli_args"] |= {"output_path": str(output), "timezone": "UTC"}
    folder = output / str(content.get("model_name_sanitized") or "")
    results = ResultsFile(folder / f"{content['date']}{RESULTS}", content)
    for task in tasks:
        lines = _joined_samples(task.name, runs)
        with written_whole(results.samples(task.name)) as partial:
            partial.write_text("".join(f"{line.text}\n" for line in lines), encoding="utf-8")
    results.write()
    manifest = _manifest(runs, output, results.path, content["results"])
    lost = manifest.over_limit(limit)
    state = RunState.WITH_FAILURES if lost else RunState.FINISHED
    manifest = manifest.model_copy(update={"state": state})
    manifest.write(manifest_path(output, made))
    return manifest, lost


def _check_versions(run: ShardRun) -> None:
    """Raise MedTasksError unless the code and the metrics' settings here are those of a run."""
    here = {**versions(), "commit of medtasks": commit(), **settings(os.environ)}
    there = {
        **run.manifest.versions,
        "commit of medtasks": run.manifest.commit,
        **run.manifest.settings,
    }
    of_metrics = ("MEDTASKS_METRICS_", "MEDTASKS_LABELER", "MEDTASKS_WEIGHTS")
    settings_of_metrics = sorted(
        name for name in {*here, *there} if name.startswith(of_metrics)
    )
    different = []
    for name in ("medtasks", "lmms_eval", "commit of medtasks", *settings_of_metrics):
        if here.get(name) != there.get(name):
            different.append(f"{name} ({there.get(name)} there)")
    if different:
        raise MedTasksError(
            f"the results are computed here, and {join_names(different)} differ from those of {run}; merge where they "
            "are the same"
        )


def _joined_samples(name: str, runs: Shards) -> list[SampleLine]:
    """Return the samples of a task in all shards, in the order of one process: by filter, and by row."""
    rows: dict[int, Sequence[SampleLine]] = {}
    for run in runs:
        rows |= run.tasks[name].lines
    by_row = [rows[row] for row in sorted(rows)]
    samples = []
    for index in range(len(runs[0].tasks[name].filters)):
        samples += [lines[index] for lines in by_row]
    return samples


def _task_row(task: TaskFile, runs: Shards) -> Row:
    """Score the samples of all shards, and return the task's row of a results file.

    Metrics that compare texts or write a file are computed once, and not for each shard to check its results.

    Raises:
        MedTasksError: The task's data are not here, or the samples of a shard do not give the results that it recorded.
    """
    parts = [run.tasks[task.name] for run in runs]
    largest = max(parts, key=lambda part: part.asked)
    if largest.results.content["config"]["resolved_cli_args"].get("predict_only"):
        return dict(largest.row)
    documents = task_documents(task)
    scores: ScoresByRow = {}
    for part in parts:
        part_scores = _recorded_scores(task, part, documents)
        scores |= part_scores
        if part.lines and task.family.scores_suffice:
            _check_row(task, part, part_scores)
    for by_filter in zip(*(scores[row] for row in sorted(scores)), strict=True):
        sentences = (metric.warning(by_filter) for metric in task.metrics if metric.warning)
        log_notes(filter(None, sentences), panel_results(task.metrics, by_filter))
    return _scored_row(task, largest, scores)


def _scored_row(task: TaskFile, part: TaskPart, scores: ScoresByRow) -> Row:
    """Return the row of a shard in which all values and standard errors are those of scores.

    Empty lists, the harness's mark of unlisted metrics, stay.
    """
    cleared = dict(part.row)
    for key, value in part.row.items():
        if "," in key and value != []:
            cleared[key] = _NO_ERROR
    values: Row = {}
    for index, name in enumerate(part.filters):
        by_row = [scores[row][index] for row in sorted(scores)]
        for metric, estimate in evaluate(task.metrics, by_row).items():
            values[f"{metric},{name}"] = estimate.value
            if estimate.clusters is not None:
                values[f"{metric}{STDERR},{name}"] = estimate.error
    text = json.dumps(values, default=lambda number: number.item())  # numbers of numpy's types
    cleared |= json.loads(text)
    return cleared


def _check_row(task: TaskFile, part: TaskPart, scores: ScoresByRow) -> None:
    """Raise MedTasksError if a shard's scores, by row and filter, do not give the results that it recorded."""
    computed = _scored_row(task, part, scores)
    if repr(computed) != repr(dict(part.row)):
        raise MedTasksError(f"the samples of {task.name} {_OTHER_RESULTS}")


def _recorded_scores(
    task: TaskFile,
    part: TaskPart,
    documents: Documents,
) -> ScoresByRow:
    """Return the scores in a shard's samples by row and filter, with the texts that metrics compare.

    Raises:
        MedTasksError: A sample has no score, or the data here are not those of the run.
    """
    scores: ScoresByRow = {}
    index = QuestionIndex(documents, {})
    for row, lines in part.lines.items():
        for line in lines:
            line.document_in_row(index)
            score = line.score
            if score is None:
                raise MedTasksError(f"the samples of {task.name} {_OTHER_RESULTS}")
            score.pop("schema_version", None)
            scores.setdefault(row, []).append(score)
    if not scores or task.family.scores_suffice:
        return scores
    replies = read_replies(part.samples, documents)
    for row, by_filter in scores.items():
        document = documents[row]
        reply = replies.get(document["doc_id"])
        if reply is None:  # the question is another one
            raise MedTasksError(_OTHER_TEXTS.format(row, task.name))
        for score in by_filter:
            rule = str(score.get("rule", "")).removesuffix(FENCED)
            texts = task.family.texts(Sample(document), reply, Rule(rule))
            # A samples file has digests of the texts, as ``str`` of a text is here.
            if any(str(text) != score.get(field) for field, text in texts.items()):
                raise MedTasksError(_OTHER_TEXTS.format(row, task.name))
            score |= texts
    return scores


def _group_row(
    name: str,
    members: Sequence[str],
    rows: TaskRows,
    parts: Mapping[str, TaskPart],
) -> Row:
    """Aggregate the rows of a group's tasks as its file says. Reports compute the standard errors.

    Args:
        name: Name of the group.
        members: Its tasks, also those of groups in it.
        rows: Rows of all tasks, with the numbers of all shards.
        parts: Parts of the tasks in any shard, for the sizes of the whole tasks.

    Returns:
        Values by ``<metric>,<filter>``, without numbers for their errors; empty if the file declares no aggregation.
    """
    keys = dict.fromkeys(chain(*map(rows.__getitem__, members)))
    row: Row = {}
    declared = resolve_names(task_config(name).get("aggregate_metric_list")) or []
    for metric in [declared] if isinstance(declared, Mapping) else declared:
        aggregation = metric.get("aggregation")
        # Else "mean": the harness refuses others
        aggregate = aggregation if callable(aggregation) else _mean
        is_weighted = metric.get("weight_by_size", False)
        for key in keys:
            if not _is_value_of(metric["metric"], key):
                continue
            numbers = [
                (rows[task][key], parts[task].total) for task in members if key in rows[task]
            ]
            values, sizes = zip(*numbers, strict=True)
            row[key] = aggregate(list(values), list(sizes), is_weighted)
            row[f"{STDERR},".join(key.split(","))] = _NO_ERROR
    return row


def _is_value_of(metric: str, key: str) -> bool:
    """Return whether a key of results is of values of a metric. As in the harness, a part of its name suffices."""
    return "," in key and STDERR not in key and metric in key


def _mean(values: Sequence[float], sizes: Sequence[int], is_weighted: bool) -> float:
    """Return the mean of tasks' values, weighted by their numbers of samples if ``is_weighted``."""
    weights = sizes if is_weighted else [1] * len(sizes)
    return sum(value * weight for value, weight in zip(values, weights, strict=True)) / sum(
        weights
    )


def _tasks_within(name: str, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the tasks of a group and of the groups in it, or only the name if it is that of a task."""
    tasks = []
    for member in groups.get(name, ()):
        tasks += _tasks_within(member, groups)
    return tasks or [name]


def _content(runs: Shards, rows: TaskRows) -> dict[str, Any]:
    """Return the content of the results file, in which tasks have their ``rows``."""
    parts = runs[0].tasks
    contents = []
    for name in rows:
        contents += [run.tasks[name].results.content for run in runs]
    joined: dict[str, Row] = {}
    for key in _BY_TASK:
        joined[key] = dict(ChainMap(*[content.get(key, {}) for content in contents]))
    joined["n-samples"] = {}
    for name, part in parts.items():
        joined["n-samples"][name] = {"original": part.total, "effective": part.total}
    for column in ("results", "groups"):
        joined[column] = _merged_rows(joined[column], joined["group_subtasks"], rows, parts)
    if not joined["groups"]:
        del joined["groups"]
    kept = dict(contents[0])
    for key in _OF_PROCESS:
        kept.pop(key, None)
    return kept | joined


def _merged_rows(
    shard_rows: TaskRows,
    groups: Mapping[str, Sequence[str]],
    rows: TaskRows,
    parts: Mapping[str, TaskPart],
) -> dict[str, Row]:
    """Return the rows of tasks and groups of a shard with the numbers of all shards.

    Args:
        shard_rows: The rows of one shard.
        groups: Members of each group.
        rows: Rows of the tasks with the numbers of all shards.
        parts: Parts of the tasks in the first shard, which know the sizes of the whole tasks.
    """
    merged_rows = {}
    for name, row in shard_rows.items():
        if name in rows:
            merged = dict(rows[name])
        else:
            merged = {key: value for key, value in row.items() if "," not in key}
            merged |= _group_row(name, _tasks_within(name, groups), rows, parts)
        merged["alias"] = re.sub(r" \[SHARD \d+/\d+\]", "", row["alias"])
        merged_rows[name] = merged
    return merged_rows


def _manifest(runs: Shards, output: Path, results: Path, rows: TaskRows) -> RunManifest:
    """Return the manifest of all shards together, whose machine is that of the first."""
    first = runs[0].manifest
    manifests = [run.manifest for run in runs]
    tasks = {}
    for name, record in first.tasks.items():
        merged = with_results(name, record, results, rows.get(name, {}), output)
        tasks[name] = merged.model_copy(update={"rows": None})
    command = ["medtasks", "merge", str(output)]
    notices: dict[Notice, None] = {}
    processes: list[HarnessProcess] = []
    merged_shards = []
    for run in runs:
        command.append(str(run.folder))
        notices |= dict.fromkeys(run.manifest.notices)
        processes += run.manifest.processes
        merged_shards.append(f"{run.shard} {run.manifest.started}")
    settings_of_all = dict(first.settings)
    settings_of_all.pop(SHARD_VARIABLE, None)
    return first.model_copy(
        update={
            "started": min(manifest.started for manifest in manifests),
            "ended": max(manifest.ended or manifest.started for manifest in manifests),
            "seconds": round(sum(manifest.seconds or 0.0 for manifest in manifests), 3),
            "process": process_of(os.getpid()),
            "command": redacted_arguments(command),
            "tasks": tasks,
            "processes": tuple(processes),
            "notices": tuple(notices),
            "settings": settings_of_all,
            "shard": None,
            "merged": tuple(merged_shards),
        }
    )
