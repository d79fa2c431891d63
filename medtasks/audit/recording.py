"""Writing the manifest of a run while it is going on."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from signal import Signals
from typing import Any

from medtasks.audit.facts import commit, data_fingerprints, hardware, model_facts, versions
from medtasks.data.shards import Shard
from medtasks.running.harness_run import Outcome, wanted_tasks
from medtasks.runs.harness_options import read_options, seeds
from medtasks.runs.redaction import redacted, redacted_arguments, redacted_options, settings, without_home
from medtasks.runs.result_files import samples_file
from medtasks.runs.run_manifest import (
    Notice,
    RecipeFacts,
    RunManifest,
    RunState,
    Seeds,
    TaskOutcome,
    TaskRecord,
    manifest_path,
    this_process,
)
from medtasks.runs.sample_counts import FailureLimit, SampleCounts, counts_of
from medtasks.tasks.documents import Selection
from medtasks.tasks.task_files import task_file, tasks_of

_NOT_YET = "the run has not left results of it"


def first_manifest(
    command: Sequence[str],
    arguments: Sequence[str],
    names: Sequence[str],
    selection: Selection,
    notices: Sequence[Notice],
    shard: Shard | None = None,
    recipe: RecipeFacts | None = None,
) -> RunManifest:
    """Return the manifest of a run before its first task.

    Args:
        command: The whole command.
        arguments: Those passed on to the harness.
        names: Names given to ``--tasks``.
        selection: Those of their tasks that can run.
        notices: Warnings given before the run.
        shard: Part of the rows, if not all.
        recipe: Recipe that named the model, if one did.
    """
    options = read_options(arguments)
    return RunManifest(
        state=RunState.RUNNING,
        started=datetime.now(UTC).isoformat(),
        process=this_process(),
        command=redacted_arguments(command),
        arguments=redacted_arguments(arguments),
        options=redacted_options(options.given),
        asked=tuple(names),
        tasks=_before(names, selection),
        notices=tuple(notices),
        seeds=Seeds(**dict(zip(Seeds.model_fields, seeds(options), strict=True))),
        versions=versions(),
        commit=commit(),
        model=model_facts(options),
        recipe=recipe,
        hardware=hardware(),
        settings=settings({**os.environ, **options.environment}),
        shard=shard,
    )


class RunRecording:
    """The ``manifest`` of a run at its ``path``, rewritten whenever something has changed.

    OSError: it cannot be written before the run begins. When that fails later, ``complain`` is called with a sentence
    and the run goes on. ``arguments`` are those passed on to the harness; where a task loses more samples than
    ``limit``, the run counts as one with failures.
    """

    def __init__(
        self,
        output: Path,
        manifest: RunManifest,
        arguments: Sequence[str],
        limit: FailureLimit,
        complain: Callable[[str], None],
    ) -> None:
        self._began, self._arguments, self._limit, self._complain = time.monotonic(), arguments, limit, complain
        self.path = manifest_path(output, datetime.fromisoformat(manifest.started))
        self.manifest = manifest
        manifest.write(self.path)

    @contextmanager
    def until_its_end(self) -> Iterator[None]:
        """Write the end of the run, however the block within ends."""
        why = ""
        try:
            yield
        except KeyboardInterrupt:
            why = "Ctrl-C"
            raise
        except SystemExit as leaving:
            number = leaving.code - 128 if isinstance(leaving.code, int) else 0
            why = Signals(number).name if number in set(Signals) else f"it left with {leaving.code}"
            raise
        except BaseException as error:
            why = f"{type(error).__name__}: {without_home(redacted(str(error)))}"
            raise
        finally:
            records = self.manifest.tasks.values()
            lost = any(record.outcome is not TaskOutcome.DONE or record.reason for record in records)
            end = RunState.WITH_FAILURES if lost or self.over_limit() else RunState.FINISHED
            model = self.manifest.model
            if model.fingerprint is None or "commit:" in model.fingerprint:  # the harness may have fetched a snapshot
                model = model_facts(read_options(self._arguments))
            self._change(
                state=RunState.INTERRUPTED if why else end,
                why=why,
                ended=datetime.now(UTC).isoformat(),
                seconds=round(time.monotonic() - self._began, 3),
                model=model,
            )

    def note(self, outcome: Outcome) -> None:
        """Record the outcomes of the tasks so far."""
        folder = self.path.parent
        tasks = dict(self.manifest.tasks)
        for name, record in tasks.items():
            if name in outcome.files:
                done = with_results(name, record, outcome.files[name], outcome.rows.get(name, {}), folder)
                reason = without_home(outcome.reasons.get(name, ""))
                tasks[name] = done.model_copy(update={"outcome": TaskOutcome.DONE, "reason": reason})
            elif name in outcome.failed:
                changes = {"outcome": TaskOutcome.FAILED, "reason": outcome.reasons[name]}
                tasks[name] = record.model_copy(update=changes)
        if self.manifest.shard:
            tasks = {
                name: record.model_copy(update={"rows": outcome.asked.get(name)}) for name, record in tasks.items()
            }
        self._change(tasks=tasks, processes=tuple(outcome.processes))

    def over_limit(self) -> dict[str, SampleCounts]:
        """Return the tasks that lost more samples than may fail, with their counts."""
        by_task = {name: counts for name, record in self.manifest.tasks.items() if (counts := record.counts)}
        return {name: counts for name, counts in by_task.items() if not self._limit.allows(counts)}

    def _change(self, **changes: Any) -> None:
        self.manifest = self.manifest.model_copy(update=changes)
        try:
            self.manifest.write(self.path)
        except OSError as error:
            self._complain(f"cannot write {self.path}: {error.strerror or error}; the run goes on without")


def _before(task_names: Sequence[str], selection: Selection) -> Mapping[str, TaskRecord]:
    names = wanted_tasks(task_names)
    datasets = {name: task_file(name).dataset if tasks_of(name) else None for name in names}
    fingerprints = data_fingerprints({dataset for dataset in datasets.values() if dataset})
    return {
        name: TaskRecord(
            outcome=TaskOutcome.LEFT_OUT if name in selection.missing else TaskOutcome.NOT_RUN,
            reason=without_home(selection.missing.get(name, _NOT_YET)),
            dataset=dataset,
            fingerprint=fingerprints.get(dataset or ""),
        )
        for name, dataset in datasets.items()
    }


def with_results(name: str, record: TaskRecord, results: Path, row: Mapping[str, Any], folder: Path) -> TaskRecord:
    """Return a task's record with the location of its results below a folder, and the counts in their row."""
    samples = samples_file(results, name)
    changes: dict[str, Any] = {
        "results": results.relative_to(folder).as_posix(),
        "samples": samples.relative_to(folder).as_posix() if samples.is_file() else None,
    }
    if counts := counts_of(row):
        changes |= {f"{kind}_samples": number for kind, number in asdict(counts).items()}
    return record.model_copy(update=changes)
