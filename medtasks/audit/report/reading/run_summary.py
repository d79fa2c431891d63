"""What results files and manifests say about a run as a whole: versions, settings, and tasks that have no results."""

import shlex
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from medtasks.audit.report.page.words import moment
from medtasks.harness.manifest import RunManifest, TaskOutcome, TaskRecord
from medtasks.harness.redaction import HIDDEN, redacted, without_home
from medtasks.harness.saved_replies import replies_folder
from medtasks.harness.task_files import included_option

_HARNESS_SECRET = "[REDACTED]"
_OURS = "medtasks_"  # adapters of this package, which keep a journal
_NO_JOURNAL = "journal=false"
_NOTHING = (None, "", "unknown@unknown")  # the last is what an installed harness records of itself
_ENDED = ("finished", "finished with failures")
_SETTINGS = {
    "harness": "lmms_eval_version",
    "harness commit": "git_hash",
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


def model_label(name: object, arguments: object) -> str:
    """Return a model with its arguments as one text without secrets, the same whoever replaced them.

    Example:
        >>> model_label("qwen", "pretrained=q,api_key=[REDACTED]"), model_label("qwen", "pretrained=q,api_key=abcdef")
        ('qwen pretrained=q,api_key=***', 'qwen pretrained=q,api_key=***')
    """
    return _shown(f"{name or ''} {arguments or ''}").strip()


def _shown(text: str) -> str:
    return without_home(redacted(text.replace(_HARNESS_SECRET, HIDDEN)))


def label_of(manifest: RunManifest, models: Mapping[Path, str]) -> str:
    """Return the model of a manifest as its own results files call it, else as it does itself.

    Args:
        manifest: A manifest.
        models: Model by results file.
    """
    folder = manifest.path.parent if manifest.path else Path()
    written = (folder / record.results for record in manifest.tasks.values() if record.results)
    own = model_label(manifest.model.name, manifest.model.arguments)
    return next((models[path] for path in written if path in models), own)


def facts(results: Mapping[str, Any], manifest: RunManifest | None) -> dict[str, str]:
    """Return what is recorded about a run as lines of a table; what is not recorded is not in it.

    Args:
        results: Content of a results file; may be empty.
        manifest: Of the same run, if there is one.
    """
    config = results.get("config")
    settings = config if isinstance(config, Mapping) else {}
    found: dict[str, Any] = {} if manifest is None else _of_manifest(manifest)
    recorded = {name: results.get(key) for name, key in _SETTINGS.items()}
    recorded |= {name: settings.get(key) for name, key in _CONFIG.items()}
    return {name: _shown(str(value)) for name, value in {**found, **recorded}.items() if value not in _NOTHING}


def _of_manifest(manifest: RunManifest) -> dict[str, Any]:
    machine = manifest.hardware
    gpus = [f"{gpu.name}, {gpu.memory} MiB, driver {gpu.driver}" for gpu in machine.gpus]
    data = {record.dataset: record.fingerprint for record in manifest.tasks.values() if record.dataset}
    seeds = manifest.seeds.model_dump()
    return {
        "command": shlex.join(manifest.command),
        "started": moment(manifest.started),
        "ended": moment(manifest.ended) if manifest.ended else f"not recorded: {manifest.standing}",
        "wall time, s": manifest.seconds,
        "weights": manifest.model.weights,
        "fingerprint of the weights": manifest.model.fingerprint or manifest.model.unknown,
        "fingerprints of the data": ", ".join(f"{name} {found or 'not known'}" for name, found in data.items()),
        "versions": ", ".join(f"{name} {version}" for name, version in manifest.versions.items() if version),
        "commit of medtasks": manifest.commit,
        "seeds": ", ".join(f"{name} {seed}" for name, seed in seeds.items()),
        "system": machine.system,
        "processor": f"{machine.cpu}, {machine.cores} cores".lstrip(", "),
        "memory, GB": machine.memory and f"{machine.memory / 1e9:.1f}",
        "graphics processors": "; ".join(gpus),
        "settings": ", ".join(f"{name}={value}" for name, value in manifest.settings.items()),
    }


def missing_tasks(manifests: Sequence[RunManifest], known: Container[str]) -> dict[str, str]:
    """Return why tasks that were asked for have no results, and how to get them, by name.

    Args:
        manifests: Of runs into one folder, the newest last; of a task the newest counts.
        known: Names of tasks that have results.
    """
    last = {name: (manifest, record) for manifest in manifests for name, record in manifest.tasks.items()}
    return {name: _why(name, *found) for name, found in last.items() if name not in known}


def _why(name: str, manifest: RunManifest, record: TaskRecord) -> str:
    if record.outcome is TaskOutcome.DONE:
        return f"It had results ({record.results}), which are gone or damaged; {_go_on(name, manifest)}."
    cause = record.reason.strip().rstrip(".")
    if not cause:
        cause = f"the run is {manifest.standing}" if manifest.standing not in _ENDED else "it left no results"
    return f"{record.outcome.capitalize()}: {cause}; {_go_on(name, manifest)}."


def _go_on(name: str, manifest: RunManifest) -> str:
    """Return what mends it: replies that are kept are scored, or the command is run again."""
    begun = datetime.fromisoformat(manifest.started).timestamp()
    kept = [file for file in sorted(replies_folder(name).glob("*.jsonl")) if file.stat().st_mtime >= begun]
    if kept:
        files = f"{shlex.join(map(str, kept))}{included_option(name)}"
        return f"replies are kept, score them with: medtasks score {name} {files}"
    again = f"go on with: {shlex.join(manifest.command)}"
    if manifest.model.name.startswith(_OURS) and _NO_JOURNAL not in manifest.model.arguments.lower():
        return f"{again} (answers in the model's journal are not computed again)"
    return again


def run_notes(manifests: Sequence[RunManifest], scored: Container[str], sampled: Container[str]) -> list[str]:
    """Return what a reader has to know about how the runs went, one sentence each.

    Args:
        manifests: Of runs into one folder, the newest last.
        scored: Names of tasks that have results.
        sampled: Names of tasks that have samples only.
    """
    if not manifests:
        return []
    last = manifests[-1]
    notes = [f"Before the run: {notice.sentence.rstrip('.')}." for notice in last.notices]
    if last.standing not in _ENDED:
        cause = f" ({last.why.rstrip('.')})" if last.why else ""
        notes.append(f"The run of {moment(last.started)} did not come to its end: it is {last.standing}{cause}.")
    lost = {name: record for name, record in last.tasks.items() if record.outcome is not TaskOutcome.DONE}
    notes += [f"{name}: {_why(name, last, record)}" for name, record in lost.items() if name in sampled]
    stale = [name for name in lost if name in scored]
    if stale:
        notes.append(
            f"In the run of {moment(last.started)} these tasks left no results; what is shown of them is older: "
            f"{', '.join(stale)}."
        )
    return notes
