"""Runs of shards in folders: complete, of one kind, and together covering all rows.

Missing or contradicting parts are refused with a message; nothing is averaged over what is missing.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from medtasks.data.shards import SHARD_VARIABLE, Shard
from medtasks.errors import MedTasksError, RepliesError, join_names
from medtasks.runs.harness_options import HarnessOptions, asked_options
from medtasks.runs.replies import WRITTEN_TWICE, SampleLine, read_lines
from medtasks.runs.reply_origins import ORIGIN
from medtasks.runs.result_files import SERVED_MODEL, ResultsFile, read_results, samples_in_place
from medtasks.runs.run import NO_RESULTS, NO_SAMPLES
from medtasks.runs.run_manifest import RunManifest, TaskOutcome, read_manifests
from medtasks.tasks.task_index import Config, mapping_in, mappings_in

_ACCESS = re.compile(  # settings of where something is and how it is reached
    rf"{SHARD_VARIABLE}|MEDTASKS_HOME|MEDTASKS_TRUSTED_\w+|MEDTASKS_\w+_API_KEY"
    r"|MEDTASKS_JUDGE_(?:BASE_URL|ALLOW_REMOTE|TIMEOUT|CONCURRENCY|ATTEMPTS)"
)
_LOCATIONS = ("include_path", "config", "output_path")  # options that name files, not questions
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_IMAGE_ROOT = re.compile(r'"image_root": "(?:[^"\\]|\\.)*"')


@dataclass(frozen=True)
class TaskPart:
    """One run's record of a task."""

    results: ResultsFile
    samples: Path
    row: Config  # values by ``<metric>,<filter>``, and its title
    filters: Sequence[str]  # names, in order
    total: int  # number of rows of its data
    asked: int  # number of rows that the run asked
    # of its samples file by row of the data, one for each filter
    lines: Mapping[int, Sequence[SampleLine]]

    def facts(self, name: str) -> dict[str, Any]:
        """Return the version, data and settings of the task, without locations on one machine or in its memory."""
        config = dict(self.results.config(name))
        config["metadata"] = dict(mapping_in(config, "metadata"))
        config["metadata"].pop("data", None)
        config.pop("dataset_path", None)
        config.pop("dataset_kwargs", None)
        settings = json.dumps(config, sort_keys=True)
        served = mapping_in(self.results.content, SERVED_MODEL)
        return {
            f"version of {name}": self.results.of_task("versions", name),
            **_with_prefix("served model's ", served),
            f"number of rows of {name}": self.total,
            f"settings of {name}": _IMAGE_ROOT.sub("", _ADDRESS.sub("", settings)),
        }


@dataclass(frozen=True)
class ShardRun:
    """A complete run of one shard."""

    folder: Path
    manifest: RunManifest
    shard: Shard
    tasks: Mapping[str, TaskPart]  # by name, including members of foreign groups

    def __str__(self) -> str:
        return f"shard {self.shard} in {self.folder}"

    @cached_property
    def facts(self) -> dict[str, str]:
        """Settings, data, versions and model by name, which must be the same in all shards."""
        manifest = self.manifest
        model = manifest.model
        options = asked_options(HarnessOptions(manifest.options))
        for name in _LOCATIONS:
            options.pop(name, None)
        facts: dict[str, Any] = {
            "--tasks": ",".join(manifest.asked),
            "--primary": manifest.primary or "",
            **_with_prefix("--", options),
            "name of the weights": model.weights,
            # or why it is unknown
            "fingerprint of the model": model.fingerprint or model.unknown,
            **_with_prefix("seed of ", manifest.seeds.model_dump()),
            **_with_prefix("version of ", manifest.versions),
            "commit of medtasks": manifest.commit,
            **manifest.settings,
        }
        for name, record in manifest.tasks.items():
            facts[f"data of {name}"] = record.fingerprint
        for name, part in self.tasks.items():
            facts |= part.facts(name)
        return {
            name: str(value) for name, value in facts.items() if not _ACCESS.fullmatch(name)
        }


def _with_prefix(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}{name}": value for name, value in values.items()}


class _Unfinished(Exception):
    """A run is not complete."""


def read_shards(folders: Sequence[Path]) -> list[ShardRun]:
    """Return the newest complete run of every shard, by index.

    Args:
        folders: Each is the ``--output_path`` of some of the runs.

    Raises:
        MedTasksError: A folder holds none, shards are missing or differ in settings or model, two runs of one shard
            gave different replies, or rows are in no shard or in two.
    """
    runs: list[ShardRun] = []
    unfinished: dict[Shard, str] = {}
    for folder in dict.fromkeys(folders):
        _read_folder(folder, runs, unfinished)
    by_count: dict[int, Shard] = {}
    for shard in (*(run.shard for run in runs), *unfinished):
        by_count.setdefault(shard.count, shard)
    if len(by_count) > 1:
        names = join_names(list(map(str, by_count.values())))
        raise MedTasksError(
            f"{names} are shards of different numbers of parts; give the folders of one number"
        )
    count = next(iter(by_count), 0)
    by_index: dict[int, ShardRun] = {}
    for run in runs:
        _check_same_settings(runs[0], run)
        _check_same_replies(by_index.setdefault(run.shard.index, run), run)
    _check_none_missing(count, by_index, unfinished)
    ordered = sorted(by_index.values(), key=lambda run: run.shard.index)
    _check_rows(ordered)
    return ordered


def _check_none_missing(
    count: int,
    indices: Collection[int],
    unfinished: Mapping[Shard, str],
) -> None:
    """Raise MedTasksError if shards have no complete run.

    Args:
        count: Number of shards.
        indices: Indices of the shards that have one, from 1.
        unfinished: Folder and fault of an incomplete run, by shard.
    """
    shards = [Shard(index, count) for index in range(1, count + 1)]
    missing = [shard for shard in shards if shard.index not in indices]
    if not missing:
        return
    causes = [f"; of {shard}, {unfinished[shard]}" for shard in missing if shard in unfinished]
    raise MedTasksError(
        f"of {count} shards these are missing: {join_names(list(map(str, missing)))}{''.join(causes)}; run each with "
        f"'medtasks run --shard', and name the folders of all"
    )


def _check_same_settings(first: ShardRun, other: ShardRun) -> None:
    """Raise MedTasksError if two runs differ in a recorded fact."""
    different = []
    for name in first.facts | other.facts:
        expected = first.facts.get(name, "")
        value = other.facts.get(name, "")
        if value != expected:
            is_short = max(len(expected), len(value)) <= 24
            different.append(f"{name} ('{expected}' and '{value}')" if is_short else name)
    if different:
        raise MedTasksError(
            f"{first} and {other} differ in {join_names(different)}, so that they are no parts of one run; run one of "
            f"them again with the settings of the other"
        )


def _check_same_replies(first: ShardRun, other: ShardRun) -> None:
    """Raise MedTasksError if two runs of one shard have different samples."""
    for name, part in other.tasks.items():
        if _records(part) != _records(first.tasks[name]):
            raise MedTasksError(
                f"shard {other.shard} is in {first.folder} and in {other.folder} with different samples of {name}; "
                f"name the folder of one of them"
            )


def _records(part: TaskPart) -> dict[int, list[dict[str, Any]]]:
    """Return the recorded samples by row, without the origin of their replies."""
    records = {}
    for row, by_filter in part.lines.items():
        records[row] = [{**line.record, ORIGIN: None} for line in by_filter]
    return records


def _check_rows(runs: Sequence[ShardRun]) -> None:
    """Raise MedTasksError if a row of a task is in no shard or in two."""
    for name, task in runs[0].tasks.items():
        owner: dict[int, ShardRun] = {}
        for run in runs:
            for row in run.tasks[name].lines:
                if owner.setdefault(row, run) is not run:
                    raise MedTasksError(
                        f"row {row} of {name} is in {owner[row]} and in {run}; their data are not the same"
                    )
        if absent := [str(row) for row in range(task.total) if row not in owner]:
            raise MedTasksError(
                f"rows {join_names(absent)} of {name} are in no shard; their data are not the same"
            )


def _read_folder(folder: Path, runs: list[ShardRun], unfinished: dict[Shard, str]) -> None:
    """Add the newest complete run of each shard in a folder.

    Args:
        folder: The ``--output_path`` of the runs.
        runs: Gets the complete runs.
        unfinished: Gets the reason why a shard has no complete run.

    Raises:
        MedTasksError: There is no such folder, it holds no run of a shard, or one of its manifests is damaged.
    """
    if not folder.is_dir():
        raise MedTasksError(
            f"there is no folder {folder}; give those named with --output_path of 'medtasks run --shard'"
        )
    by_shard: dict[Shard, list[RunManifest]] = {}
    for manifest in reversed(read_manifests(folder)):
        if manifest.shard is not None:
            by_shard.setdefault(manifest.shard, []).append(manifest)
    if not by_shard:
        raise MedTasksError(
            f"{folder} holds no run of a shard; give folders that 'medtasks run --shard' wrote"
        )
    for shard in sorted(by_shard, key=lambda shard: (shard.index, shard.count)):
        causes = []
        for manifest in by_shard[shard]:  # the newest first
            try:
                runs.append(ShardRun(folder, manifest, shard, _parts(folder, manifest)))
                break
            except _Unfinished as error:
                causes.append(str(error).rstrip("."))
        else:
            unfinished[shard] = f"{folder} holds no complete run of it ({causes[0]})"


def _parts(folder: Path, manifest: RunManifest) -> dict[str, TaskPart]:
    """Return the records of a run's tasks by name. Raises _Unfinished if a task has none, or a damaged one."""
    undone = [
        name
        for name, record in manifest.tasks.items()
        if record.outcome is not TaskOutcome.DONE
    ]
    if undone:
        raise _Unfinished(
            f"the newest is {manifest.standing} and has no results of {join_names(undone)}"
        )
    parts: dict[str, TaskPart] = {}
    for recorded in dict.fromkeys(str(record.results) for record in manifest.tasks.values()):
        parts |= _parts_in(folder / recorded)
    return parts


def _parts_in(path: Path) -> dict[str, TaskPart]:
    """Return the records of the tasks in a results file. Raises _Unfinished for a missing or damaged one."""
    if not path.is_file():
        raise _Unfinished(NO_RESULTS)
    damage: list[str] = []
    results = read_results(path, damage.append)
    if results is None:
        raise _Unfinished(" ".join(damage))
    try:
        return {name: _part(results, name, damage) for name in results.content["configs"]}
    except (KeyError, TypeError) as error:
        raise _Unfinished(f"{path} is no results file of the harness") from error
    except RepliesError as error:
        raise _Unfinished(str(error)) from error


def _part(results: ResultsFile, name: str, damage: list[str]) -> TaskPart:
    """Return the record of a task in a results file. Raises _Unfinished for damage, also of the file itself."""
    counts = results.content["n-samples"][name]
    samples = results.samples(name)
    effective = int(counts["effective"])
    pipelines = mappings_in(results.config(name), "filter_list")
    # The harness's name without a filter is "none".
    filters = [str(pipeline["name"]) for pipeline in pipelines] or ["none"]
    is_there = samples_in_place(samples, damage.append)
    if effective and not is_there:
        raise _Unfinished(NO_SAMPLES)
    lines = _lines_by_row(samples, damage) if is_there else {}
    if damage:
        raise _Unfinished(" ".join(damage))
    whole = sum(len(by_filter) == len(filters) for by_filter in lines.values())
    if not whole == len(lines) == effective:
        raise _Unfinished(
            f"{samples} holds {whole} whole samples of the {effective} that were asked"
        )
    row = mapping_in(results.content, "results", name)
    return TaskPart(results, samples, row, filters, int(counts["original"]), effective, lines)


def _lines_by_row(samples: Path, damage: list[str]) -> dict[int, list[SampleLine]]:
    """Return the lines of a samples file, and add its faults to ``damage``."""
    lines: dict[int, list[SampleLine]] = {}
    for line in read_lines(samples, note=damage.append):
        lines.setdefault(line.row, []).append(line)
    contradicting = 0
    for by_filter in lines.values():
        replies = [line.record.get("resps") for line in by_filter]
        contradicting += sum(reply != replies[0] for reply in replies)
    if contradicting:
        damage.append(WRITTEN_TWICE.format(contradicting, samples))
    return lines
