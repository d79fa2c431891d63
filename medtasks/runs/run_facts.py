"""Recorded facts of a run: versions, fingerprints, seeds, hardware, times and the command."""

import shlex
from typing import Any

from medtasks.runs.redaction import HIDDEN, redacted, without_home
from medtasks.runs.result_files import SERVED_MODEL
from medtasks.runs.run import RecordedRun
from medtasks.runs.run_notes import moment
from medtasks.tasks.task_index import harness_folder, mapping_in

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


def facts(run: RecordedRun) -> dict[str, str]:
    """Return recorded versions, fingerprints, seeds, hardware, times and the command, by name."""
    results = run.results[-1].content if run.results else {}
    config = mapping_in(results, "config")
    recorded: dict[str, Any] = {}
    if run.manifests:
        manifest = run.manifests[-1]
        machine, recipe = manifest.hardware, manifest.recipe
        gpus = [f"{gpu.name}, {gpu.memory} MiB, driver {gpu.driver}" for gpu in machine.gpus]
        known = {record.dataset: record.fingerprint for record in manifest.tasks.values() if record.dataset}
        recorded = {
            "command": shlex.join(manifest.command),
            "started": moment(manifest.started),
            "ended": moment(manifest.ended) if manifest.ended else f"not recorded: {manifest.standing}",
            "wall time, s": manifest.seconds,
            "recipe": recipe and f"{recipe.name}, backend {recipe.backend}, {recipe.digest}",
            "model arguments": manifest.model.arguments,
            "weights": manifest.model.weights,
            "fingerprint of the weights": manifest.model.fingerprint or manifest.model.unknown,
            "fingerprints of the data": ", ".join(f"{name} {value or 'not known'}" for name, value in known.items()),
            "versions": ", ".join(f"{name} {version}" for name, version in manifest.versions.items() if version),
            "commit of medtasks": manifest.commit,
            "primary outcome": run.primary,
            "seeds": ", ".join(f"{name} {seed}" for name, seed in manifest.seeds.model_dump().items()),
            "system": machine.system,
            "processor": f"{machine.cpu}, {machine.cores} cores".lstrip(", "),
            "memory, GB": machine.memory and f"{machine.memory / 1e9:.1f}",
            "graphics processors": "; ".join(gpus),
            "settings": ", ".join(f"{name}={value}" for name, value in manifest.settings.items()),
        }
    if config.get("model_args"):
        recorded["model arguments"] = config["model_args"]
    if served := mapping_in(results, SERVED_MODEL):
        recorded["served model"] = ", ".join(f"{name} {value}" for name, value in served.items() if value is not None)
        build = f" (build {served['build']})" if served.get("build") else ""
        recorded["fingerprint of the weights"] = f"not known: the weights are on the server{build}"
    installed = harness_folder()
    if installed and (installed.parents[1] / ".git").exists():  # else it records the clone around its environment
        recorded |= {"harness": results.get("lmms_eval_version"), "harness commit": results.get("git_hash")}
    recorded["wall time of the harness, s"] = results.get("total_evaluation_time_seconds")
    recorded["system instruction"] = results.get("system_instruction")
    recorded |= {name: config.get(key) for name, key in _CONFIG.items()}
    texts = {name: str(value) for name, value in recorded.items() if value not in _NOTHING}
    return {name: without_home(redacted(text.replace("[REDACTED]", HIDDEN))) for name, text in texts.items()}
