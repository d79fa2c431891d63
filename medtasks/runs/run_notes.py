"""Recorded facts of a run, its tasks without results, and its damaged or superseded files, in words."""

import shlex
from datetime import UTC, datetime
from typing import Any

from medtasks.runs.logged_samples import replies_folder
from medtasks.runs.redaction import HIDDEN, redacted, without_home
from medtasks.runs.reply_origins import read_origins
from medtasks.runs.result_files import SERVED_MODEL
from medtasks.runs.run import RecordedRun
from medtasks.runs.run_manifest import RunManifest, TaskOutcome, TaskRecord
from medtasks.tasks.task_files import included_option
from medtasks.tasks.task_index import harness_folder, mapping_in

_OURS = "medtasks_"  # adapters of this package, which keep a journal
_ENDED = ("finished", "finished with failures")

_NOTHING = (None, "", "unknown@unknown")  # the last is what an installed harness records of itself
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
    """Return a recorded time to the second in UTC; a time without a zone stays as it is."""
    try:
        read = datetime.fromisoformat(recorded)
    except ValueError:
        return recorded
    return f"{read.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if read.tzinfo else recorded


def missing_tasks(run: RecordedRun) -> dict[str, str]:
    """Return why tasks of the call have no results, and how to get them, by name."""
    last = {
        name: (manifest, record)
        for manifest in run.manifests
        for name, record in manifest.tasks.items()
    }
    return {name: _why(name, *newest) for name, newest in last.items() if name not in run.tasks}


def _why(name: str, manifest: RunManifest, record: TaskRecord) -> str:
    """Say why a task has no results, and which command gives them: scoring its saved replies, or running again."""
    if record.rows == 0:
        return f"Shard {manifest.shard} has none of its rows."
    begun = datetime.fromisoformat(manifest.started).timestamp()
    saved = [
        file
        for file in sorted(replies_folder(name).glob("*.jsonl"))
        if file.stat().st_mtime >= begun
    ]
    ours = (
        manifest.model.name.startswith(_OURS)
        and "journal=false" not in manifest.model.arguments.lower()
    )
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
        cause = (
            f"the run is {manifest.standing}"
            if manifest.standing not in _ENDED
            else "it left no results"
        )
    return f"{record.outcome.capitalize()}: {cause}; {command}."


def run_notes(run: RecordedRun) -> tuple[str, ...]:
    """List damaged and superseded files, and problems of the newest run, one sentence each."""
    notes = []
    for name, task in run.tasks.items():
        if task.samples is not None and str(origins := read_origins(task.samples)):
            notes.append(f"{name}: {origins}.")
    if run.manifests:
        notes += _notes_on_call(run, run.manifests[-1])
    return (*run.notes, *notes)


def _notes_on_call(run: RecordedRun, last: RunManifest) -> list[str]:
    """List warnings before the newest call, how it ended, and its tasks without results."""
    notes = []
    if last.primary:
        stated = (
            f"Primary outcome, stated before the run: {last.primary}. All others are exploratory."
        )
        notes.append(
            stated if run.primary else "There is no primary outcome: replies are older copies."
        )
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
    stale = []
    for name, record in last.tasks.items():
        if record.outcome is TaskOutcome.DONE or name not in run.tasks:
            continue
        if run.tasks[name].scores:
            stale.append(name)
        else:
            notes.append(f"{name}: {_why(name, last, record)}")
    if stale:
        notes.append(
            f"In the run of {moment(last.started)} these tasks left no results; what is shown of them is older: "
            f"{', '.join(stale)}."
        )
    return notes


def facts(run: RecordedRun) -> dict[str, str]:
    """Return recorded versions, fingerprints, seeds, hardware, times and the command, by name."""
    results = run.results[-1].content if run.results else {}
    config = mapping_in(results, "config")
    recorded = _facts_of_call(run.manifests[-1]) if run.manifests else {}
    if config.get("model_args"):
        recorded["model arguments"] = config["model_args"]
    if served := mapping_in(results, SERVED_MODEL):
        recorded["served model"] = ", ".join(
            f"{name} {value}" for name, value in served.items() if value is not None
        )
        build = f" (build {served['build']})" if served.get("build") else ""
        recorded["fingerprint of the weights"] = f"not known: the weights are on the server{build}"
    installed = harness_folder()
    if (
        installed and (installed.parents[1] / ".git").exists()
    ):  # else it records the clone around its environment
        recorded |= {
            "harness": results.get("lmms_eval_version"),
            "harness commit": results.get("git_hash"),
        }
    recorded["wall time of the harness, s"] = results.get("total_evaluation_time_seconds")
    recorded["system instruction"] = results.get("system_instruction")
    recorded |= {name: config.get(key) for name, key in _CONFIG.items()}
    texts = {name: str(value) for name, value in recorded.items() if value not in _NOTHING}
    return {
        name: without_home(redacted(text.replace("[REDACTED]", HIDDEN)))
        for name, text in texts.items()
    }


def _facts_of_call(manifest: RunManifest) -> dict[str, Any]:
    """Return the facts in a manifest, by name; None and empty texts are unknown."""
    machine = manifest.hardware
    fingerprints = {
        record.dataset: record.fingerprint for record in manifest.tasks.values() if record.dataset
    }
    gpus = [f"{gpu.name}, {gpu.memory} MiB, driver {gpu.driver}" for gpu in machine.gpus]
    facts = {
        "command": shlex.join(manifest.command),
        "started": moment(manifest.started),
        "ended": moment(manifest.ended) if manifest.ended else f"not recorded: {manifest.standing}",
        "wall time, s": manifest.seconds,
        "recipe": None,
        "model arguments": manifest.model.arguments,
        "weights": manifest.model.weights,
        "fingerprint of the weights": manifest.model.fingerprint or manifest.model.unknown,
        "fingerprints of the data": ", ".join(
            f"{name} {value or 'not known'}" for name, value in fingerprints.items()
        ),
        "versions": ", ".join(
            f"{name} {version}" for name, version in manifest.versions.items() if version
        ),
        "commit of medtasks": manifest.commit,
        "primary outcome": manifest.stated_primary,
        "seeds": ", ".join(f"{name} {seed}" for name, seed in manifest.seeds.model_dump().items()),
        "system": machine.system,
        "processor": f"{machine.cpu}, {machine.cores} cores".lstrip(", "),
        "memory, GB": machine.memory,
        "graphics processors": "; ".join(gpus),
        "settings": ", ".join(f"{name}={value}" for name, value in manifest.settings.items()),
    }
    if manifest.recipe is not None:
        recipe = manifest.recipe
        facts["recipe"] = f"{recipe.name}, backend {recipe.backend}, {recipe.digest}"
    if machine.memory:
        facts["memory, GB"] = f"{machine.memory / 1e9:.1f}"
    return facts
