"""Which earlier run the failed samples of a run are taken from (``--only-failed``)."""

from collections.abc import Sequence
from pathlib import Path

from medtasks.errors import MedTasksError
from medtasks.harness.harness_options import read_options
from medtasks.harness.manifest import RunManifest, manifest_files
from medtasks.harness.redaction import redacted_arguments

KEPT_VARIABLE = "MEDTASKS_KEEP_REPLIES_OF"
"""Environment variable by which the harness's process learns of the manifest of the earlier run."""

_HOW = frozenset(  # how requests are sent, not what is asked
    {
        *("api_base", "api_key", "base_url", "batch_size", "timeout", "max_retries", "retry_backoff_s", "max_failed"),
        *("num_concurrent", "num_cpus", "adaptive_concurrency", "adaptive_max_concurrency", "adaptive_min_concurrency"),
    }
)
_FREE = frozenset({"model_args", "batch_size", "verbosity", "log_samples", "device"})
_VERSIONS = ("lmms_eval", "medtasks")


def earlier_run(output: Path, current: RunManifest, arguments: Sequence[str]) -> RunManifest:
    """Return the newest run whose replies may stand beside those of a run that is about to begin.

    It asked the same model for the same, by the same versions, on the same data; only how requests are sent may differ.

    Args:
        output: Folder for results, in which both runs lie.
        current: Manifest of the run that is about to begin.
        arguments: Its arguments for the harness.

    Raises:
        MedTasksError: There is no such run.
    """
    wanted = _what(redacted_arguments(arguments))
    for path in reversed(manifest_files(output)):
        try:
            found = RunManifest.read(path)
        except MedTasksError:
            continue
        kept = any(record.samples for record in found.tasks.values())
        if kept and path != current.path and _what(found.arguments) == wanted and _same(found, current):
            return found
    raise MedTasksError(
        f"--only-failed found no run in {output} that asked the same model for the same tasks and kept its samples "
        f"(--log_samples); leave the option out to ask all samples"
    )


def _what(arguments: Sequence[str]) -> tuple[object, ...]:
    options = read_options(arguments)
    model = {name: value for name, value in options.pairs("model_args").items() if name not in _HOW}
    others = {name: str(value) for name, value in options.given.items() if name not in _FREE}
    return model, others


def _same(found: RunManifest, current: RunManifest) -> bool:
    shared = found.tasks.keys() & current.tasks.keys()
    return (
        bool(shared)
        and all(found.versions.get(name) == current.versions.get(name) for name in _VERSIONS)
        and found.commit == current.commit
        and all(found.tasks[name].fingerprint == current.tasks[name].fingerprint for name in shared)
    )
