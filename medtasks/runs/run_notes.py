"""Recorded facts of a run, its tasks without results, and its damaged or superseded files, in words."""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from medtasks.runs.logged_samples import replies_folder
from medtasks.runs.redaction import HIDDEN, redact, without_home
from medtasks.runs.reply_origins import read_origins
from medtasks.runs.result_files import SERVED_MODEL
from medtasks.runs.run import RecordedRun
from medtasks.runs.run_manifest import RunManifest, TaskOutcome
from medtasks.tasks.task_files import included_option
from medtasks.tasks.task_index import Config, harness_folder, mapping_in

_OURS = "medtasks_"  # adapters of this package, which keep a journal
_ENDED = ("finished", "finished with failures")

# The last is what an installed harness records of itself
_NOTHING = None, "", "unknown@unknown"
_CONFIG = {
    "adapter": "model_backend",
    "batch size": "batch_size",
    "device": "device",
    "limit": "limit",
    "offset": "offset",
    "generation arguments": "gen_kwargs",
    "response cache": "use_cache",
    "random seed": "random_seed",
    "numpy seed": "numpy_seed",
    "torch seed": "torch_seed",
    "few-shot seed": "fewshot_seed",
}


def moment(recorded: str) -> str:
    """Return a recorded time to the second in UTC. A time without a zone stays as it is.

    Example:
        >>> moment("2026-01-31T12:00:00.25+01:00")
        '2026-01-31 11:00:00 UTC'
    """
    try:
        time = datetime.fromisoformat(recorded)
    except ValueError:
        return recorded
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if time.tzinfo else recorded


def missing_tasks(run: RecordedRun) -> dict[str, str]:
    """Return why tasks of the call have no results, and how to get them, by name."""
    newest: dict[str, RunManifest] = {}
    for manifest in run.manifests:
        newest |= dict.fromkeys(manifest.tasks, manifest)
    return {name: _why(name, last) for name, last in newest.items() if name not in run.tasks}


def _why(name: str, manifest: RunManifest) -> str:
    """Say why a task of a call has no results, and which command gives them."""
    record = manifest.tasks[name]
    if record.rows == 0:
        return f"Shard {manifest.shard} has none of its rows."
    begun = datetime.fromisoformat(manifest.started).timestamp()
    files = sorted(replies_folder(name).glob("*.jsonl"))
    saved = [str(file) for file in files if file.stat().st_mtime >= begun]
    command = f"go on with: {shlex.join(manifest.command)}"
    model = manifest.model
    if saved:
        arguments = f"{name} {shlex.join(saved)}{included_option(name)}"
        command = f"replies are kept, score them with: medtasks score {arguments}"
    elif model.name.startswith(_OURS) and "journal=false" not in model.arguments.lower():
        command += " (answers in the model's journal are not computed again)"
    if record.outcome is TaskOutcome.DONE:
        return f"It had results ({record.results}), which are gone or damaged; {command}."
    cause = record.reason.strip().rstrip(".")
    if not cause:
        standing = manifest.standing
        cause = "it left no results" if standing in _ENDED else f"the run is {standing}"
    return f"{record.outcome.capitalize()}: {cause}; {command}."


def run_notes(run: RecordedRun) -> tuple[str, ...]:
    """List damaged and superseded files, and problems of the newest run, one sentence each."""
    notes = list(run.notes)
    for name, task in run.tasks.items():
        if task.samples is not None and str(origins := read_origins(task.samples)):
            notes.append(f"{name}: {origins}.")
    if not run.manifests:
        return tuple(notes)
    last = run.manifests[-1]
    if last.primary:
        primary = "There is no primary outcome: replies are older copies."
        if run.primary:
            primary = f"Primary outcome, stated before the run: {last.primary}. All others are exploratory."
        notes.append(primary)
    notes += [f"Before the run: {notice.sentence.rstrip('.')}." for notice in last.notices]
    if last.look is not None:
        notes.append(str(last.look))
    if last.shard is not None:
        notes.append(
            f"This is shard {last.shard} of a run, so that its scores are of a part of the questions; join all "
            f"{last.shard.count} with: medtasks merge OUT SHARD..."
        )
    if last.standing not in _ENDED:
        cause = f" ({last.why.rstrip('.')})" if last.why else ""
        notes.append(
            f"The run of {moment(last.started)} did not come to its end: it is {last.standing}{cause}."
        )
    return (*notes, *_notes_on_tasks(run, last))


def _notes_on_tasks(run: RecordedRun, last: RunManifest) -> list[str]:
    """List the tasks of the run that the newest call left without results. Of some the run has older ones."""
    notes = []
    stale = []
    for name, record in last.tasks.items():
        if record.outcome is TaskOutcome.DONE or name not in run.tasks:
            continue
        if run.tasks[name].scores:
            stale.append(name)
        else:
            notes.append(f"{name}: {_why(name, last)}")
    if stale:
        notes.append(
            f"In the run of {moment(last.started)} these tasks left no results; what is shown of them is older: "
            f"{', '.join(stale)}."
        )
    return notes


def facts(run: RecordedRun) -> dict[str, str]:
    """Return recorded versions, fingerprints, seeds, hardware, times and the command, by name."""
    recorded = _facts_of_call(run.manifests[-1]) if run.manifests else {}
    recorded |= _facts_of_results(run.results[-1].content if run.results else {})
    texts = {}
    for name, value in recorded.items():
        if value not in _NOTHING:
            texts[name] = without_home(redact(str(value).replace("[REDACTED]", HIDDEN)))
    return texts


def _facts_of_results(results: Config) -> dict[str, Any]:
    """Return the facts in a results file, by name. Unknown ones are None or an empty text."""
    recorded = {}
    config = mapping_in(results, "config")
    if config.get("model_args"):
        recorded["model arguments"] = config["model_args"]
    if served := mapping_in(results, SERVED_MODEL):
        build = f" (build {served['build']})" if served.get("build") else ""
        described = {name: value for name, value in served.items() if value is not None}
        recorded["served model"] = _in_words(described)
        recorded["fingerprint of the weights"] = (
            f"not known: the weights are on the server{build}"
        )
    installed = harness_folder()
    # Elsewhere the harness records the clone around its environment.
    if installed and (installed.parents[1] / ".git").exists():
        recorded["harness"] = results.get("lmms_eval_version")
        recorded["harness commit"] = results.get("git_hash")
    recorded["wall time of the harness, s"] = results.get("total_evaluation_time_seconds")
    recorded["system instruction"] = results.get("system_instruction")
    return recorded | {name: config.get(key) for name, key in _CONFIG.items()}


def _in_words(values: Mapping[str, Any], between: str = " ") -> str:
    return ", ".join(f"{name}{between}{value}" for name, value in values.items())


def _facts_of_call(manifest: RunManifest) -> dict[str, Any]:
    """Return the facts in a manifest, by name. Unknown ones are None or an empty text."""
    machine = manifest.hardware
    fingerprints = {}
    for record in manifest.tasks.values():
        if record.dataset:
            fingerprints[record.dataset] = record.fingerprint or "not known"
    versions = {name: version for name, version in manifest.versions.items() if version}
    return {
        "command": shlex.join(manifest.command),
        "started": moment(manifest.started),
        "ended": moment(manifest.ended)
        if manifest.ended
        else f"not recorded: {manifest.standing}",
        "wall time, s": manifest.seconds,
        "recipe": manifest.recipe,
        "model arguments": manifest.model.arguments,
        "weights": manifest.model.weights,
        "fingerprint of the weights": manifest.model.fingerprint or manifest.model.unknown,
        "fingerprints of the data": _in_words(fingerprints),
        "versions": _in_words(versions),
        "commit of medtasks": manifest.commit,
        "primary outcome": manifest.stated_primary,
        "seeds": _in_words(manifest.seeds.model_dump()),
        "system": machine.system,
        "processor": f"{machine.cpu}, {machine.cores} cores".lstrip(", "),
        "memory, GB": f"{machine.memory / 1e9:.1f}" if machine.memory else None,
        "graphics processors": "; ".join(map(str, machine.gpus)),
        "settings": _in_words(manifest.settings, "="),
    }
