"""``medtasks merge``: join the runs of shards into one run."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from medtasks.cli.output import IncludePath, MaxFailed, look_into, out, say
from medtasks.errors import MedTasksError
from medtasks.runs.sample_counts import DEFAULT_LIMIT, FailureLimit
from medtasks.tasks.task_files import included_option


def merge(
    context: typer.Context,
    output: Annotated[Path, typer.Argument(help="New folder for the joined run.")],
    shards: Annotated[list[Path], typer.Argument(help="Folders (--output_path) of 'medtasks run --shard'.")],
    max_failed: MaxFailed = DEFAULT_LIMIT,
    include_path: IncludePath = None,
) -> None:
    """Join the runs of all shards; samples and results equal those of a single run, to the last digit.

    The newest complete run of each shard counts. If shards are missing, or differ in settings, data, code or model,
    they are named and nothing is written. The exit code is 1 if more samples of a task than --max-failed lack a reply
    or a verdict.
    """
    from medtasks.audit.merging import merge as merged

    limit = FailureLimit.parse(max_failed)
    look_into(context, include_path, shards)
    with out.status("Joining ..."):
        manifest, lost = merged(output, shards, limit)
    for results in dict.fromkeys(record.results for record in manifest.tasks.values() if record.results):
        say(f"results: {output / results}")
    for name, record in manifest.tasks.items():
        if record.counts is not None and record.counts.lost:
            say(f"in no score: {name}: {record.counts}")
    say(f"report: medtasks report {shlex.quote(str(output))}{included_option()}")
    if lost:
        counted = "; ".join(f"{name}: {counts}" for name, counts in lost.items())
        raise MedTasksError(
            f"more samples than --max-failed {limit} lack a reply or a verdict and are in no score ({counted}); run "
            f"the shards that lost them once more with --only-failed, and merge them again into another folder"
        )
