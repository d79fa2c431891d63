"""Tasks that a run has no results of, and its damaged or superseded files, in sentences."""

import shlex
from datetime import UTC, datetime

from medtasks.runs.logged_samples import replies_folder
from medtasks.runs.reply_origins import read_origins
from medtasks.runs.run import RecordedRun
from medtasks.runs.run_manifest import RunManifest, TaskOutcome, TaskRecord
from medtasks.tasks.task_files import included_option

_OURS = "medtasks_"  # adapters of this package, which keep a journal
_ENDED = ("finished", "finished with failures")


def moment(recorded: str) -> str:
    """Return a recorded time to the second in UTC; a time without a zone stays as it is."""
    try:
        read = datetime.fromisoformat(recorded)
    except ValueError:
        return recorded
    return f"{read.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if read.tzinfo else recorded


def missing_tasks(run: RecordedRun) -> dict[str, str]:
    """Return why tasks of the call have no results, and how to get them, by name."""
    last = {name: (manifest, record) for manifest in run.manifests for name, record in manifest.tasks.items()}
    return {name: _why(name, *newest) for name, newest in last.items() if name not in run.tasks}


def _why(name: str, manifest: RunManifest, record: TaskRecord) -> str:
    """Say why a task has no results, and which command gives them: scoring its saved replies, or running again."""
    if record.rows == 0:
        return f"Shard {manifest.shard} has none of its rows."
    begun = datetime.fromisoformat(manifest.started).timestamp()
    saved = [file for file in sorted(replies_folder(name).glob("*.jsonl")) if file.stat().st_mtime >= begun]
    ours = manifest.model.name.startswith(_OURS) and "journal=false" not in manifest.model.arguments.lower()
    if saved:
        files = f"{shlex.join(map(str, saved))}{included_option(name)}"
        command = f"replies are kept, score them with: medtasks score {name} {files}"
    else:
        command = f"go on with: {shlex.join(manifest.command)}"
        if ours:
            command += " (answers in the model's journal are not computed again)"
    if record.outcome is TaskOutcome.DONE:
        return f"It had results ({record.results}), which are gone or damaged; {command}."
    cause = record.reason.strip().rstrip(".")
    if not cause:
        cause = f"the run is {manifest.standing}" if manifest.standing not in _ENDED else "it left no results"
    return f"{record.outcome.capitalize()}: {cause}; {command}."


def run_notes(run: RecordedRun) -> tuple[str, ...]:
    """List damaged and superseded files, and problems of the newest run, one sentence each."""
    notes = []
    for name, task in run.tasks.items():
        if task.samples is not None and str(origins := read_origins(task.samples)):
            notes.append(f"{name}: {origins}.")
    if not run.manifests:
        return (*run.notes, *notes)
    last = run.manifests[-1]
    if last.primary:
        stated = f"Primary outcome, stated before the run: {last.primary}. All others are exploratory."
        notes.append(stated if run.primary else "There is no primary outcome: replies are older copies.")
    notes += [f"Before the run: {notice.sentence.rstrip('.')}." for notice in last.notices]
    if last.shard is not None:
        notes.append(
            f"This is shard {last.shard} of a run, so that its scores are of a part of the questions; join all "
            f"{last.shard.count} with: medtasks merge OUT SHARD..."
        )
    if last.standing not in _ENDED:
        cause = f" ({last.why.rstrip('.')})" if last.why else ""
        notes.append(f"The run of {moment(last.started)} did not come to its end: it is {last.standing}{cause}.")
    lost = {name: record for name, record in last.tasks.items() if record.outcome is not TaskOutcome.DONE}
    is_scored = {name: bool(task.scores) for name, task in run.tasks.items()}
    notes += [f"{name}: {_why(name, last, record)}" for name, record in lost.items() if is_scored.get(name) is False]
    stale = [name for name in lost if is_scored.get(name)]
    if stale:
        notes.append(
            f"In the run of {moment(last.started)} these tasks left no results; what is shown of them is older: "
            f"{', '.join(stale)}."
        )
    return (*run.notes, *notes)
