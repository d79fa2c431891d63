"""Description of a run for a report: facts, tasks without results, and problems."""

import shlex
from datetime import datetime
from typing import Any

from medtasks.audit.report.wording import moment
from medtasks.runs.logged_samples import replies_folder
from medtasks.runs.redaction import HIDDEN, redacted, without_home
from medtasks.runs.result_files import SERVED_MODEL
from medtasks.runs.run import Run
from medtasks.runs.run_manifest import RunManifest, TaskOutcome, TaskRecord
from medtasks.tasks.task_files import included_option
from medtasks.tasks.task_index import harness_folder, mapping_in

_OURS = "medtasks_"  # adapters of this package, which keep a journal
_NOTHING = (None, "", "unknown@unknown")  # the last is what an installed harness records of itself
_ENDED = ("finished", "finished with failures")
_SETTINGS = {
    "wall time of the harness, s": "total_evaluation_time_seconds",
    "system instruction": "system_instruction",
}
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


def facts(run: Run) -> dict[str, str]:
    """Return recorded versions, fingerprints, seeds, hardware, times and the command, by name."""
    results = run.results[-1].content if run.results else {}
    manifest = run.manifests[-1] if run.manifests else None
    config = mapping_in(results, "config")
    recorded: dict[str, Any] = {} if manifest is None else _of_manifest(manifest)
    recorded |= {"model arguments": config["model_args"]} if config.get("model_args") else {}
    if served := mapping_in(results, SERVED_MODEL):
        recorded["served model"] = ", ".join(f"{name} {value}" for name, value in served.items() if value is not None)
        build = f" (build {served['build']})" if served.get("build") else ""
        recorded["fingerprint of the weights"] = f"not known: the weights are on the server{build}"
    installed = harness_folder()
    if installed and (installed.parents[1] / ".git").exists():  # else it records the clone around its environment
        recorded |= {"harness": results.get("lmms_eval_version"), "harness commit": results.get("git_hash")}
    recorded |= {name: results.get(key) for name, key in _SETTINGS.items()}
    recorded |= {name: config.get(key) for name, key in _CONFIG.items()}
    texts = {name: str(value) for name, value in recorded.items() if value not in _NOTHING}
    return {name: without_home(redacted(text.replace("[REDACTED]", HIDDEN))) for name, text in texts.items()}


def _of_manifest(manifest: RunManifest) -> dict[str, Any]:
    machine, recipe = manifest.hardware, manifest.recipe
    gpus = [f"{gpu.name}, {gpu.memory} MiB, driver {gpu.driver}" for gpu in machine.gpus]
    known = {record.dataset: record.fingerprint for record in manifest.tasks.values() if record.dataset}
    data = (f"{name} {fingerprint or 'not known'}" for name, fingerprint in known.items())
    seeds = manifest.seeds.model_dump()
    return {
        "command": shlex.join(manifest.command),
        "started": moment(manifest.started),
        "ended": moment(manifest.ended) if manifest.ended else f"not recorded: {manifest.standing}",
        "wall time, s": manifest.seconds,
        "recipe": recipe and f"{recipe.name}, backend {recipe.backend}, {recipe.digest}",
        "model arguments": manifest.model.arguments,
        "weights": manifest.model.weights,
        "fingerprint of the weights": manifest.model.fingerprint or manifest.model.unknown,
        "fingerprints of the data": ", ".join(data),
        "versions": ", ".join(f"{name} {version}" for name, version in manifest.versions.items() if version),
        "commit of medtasks": manifest.commit,
        "seeds": ", ".join(f"{name} {seed}" for name, seed in seeds.items()),
        "system": machine.system,
        "processor": f"{machine.cpu}, {machine.cores} cores".lstrip(", "),
        "memory, GB": machine.memory and f"{machine.memory / 1e9:.1f}",
        "graphics processors": "; ".join(gpus),
        "settings": ", ".join(f"{name}={value}" for name, value in manifest.settings.items()),
    }


def missing_tasks(run: Run) -> dict[str, str]:
    """Return why tasks of the call have no results, and how to get them, by name."""
    last = {name: (manifest, record) for manifest in run.manifests for name, record in manifest.tasks.items()}
    return {name: _why(name, *newest) for name, newest in last.items() if name not in run.tasks}


def _why(name: str, manifest: RunManifest, record: TaskRecord) -> str:
    if record.rows == 0:
        return f"Shard {manifest.shard} has none of its rows."
    if record.outcome is TaskOutcome.DONE:
        return f"It had results ({record.results}), which are gone or damaged; {_go_on(name, manifest)}."
    cause = record.reason.strip().rstrip(".")
    if not cause:
        cause = f"the run is {manifest.standing}" if manifest.standing not in _ENDED else "it left no results"
    return f"{record.outcome.capitalize()}: {cause}; {_go_on(name, manifest)}."


def _go_on(name: str, manifest: RunManifest) -> str:
    """Return the command that gives a lost task its results: score its saved replies, or run again."""
    begun = datetime.fromisoformat(manifest.started).timestamp()
    saved = [file for file in sorted(replies_folder(name).glob("*.jsonl")) if file.stat().st_mtime >= begun]
    if saved:
        files = f"{shlex.join(map(str, saved))}{included_option(name)}"
        return f"replies are kept, score them with: medtasks score {name} {files}"
    ours = manifest.model.name.startswith(_OURS) and "journal=false" not in manifest.model.arguments.lower()
    kept = " (answers in the model's journal are not computed again)" if ours or "--journal" in manifest.command else ""
    return f"go on with: {shlex.join(manifest.command)}{kept}"


def run_notes(run: Run) -> tuple[str, ...]:
    """List damaged and superseded files, and problems of the newest run, one sentence each."""
    if not run.manifests:
        return run.notes
    last = run.manifests[-1]
    notes = [f"Before the run: {notice.sentence.rstrip('.')}." for notice in last.notices]
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
