"""What two runs' records say: whether both asked the same, and what else differs, as candidates for a cause.

Records are the results file beside a samples file, and the manifest of ``medtasks run`` where there is one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.audit.scoring import Documents
from medtasks.errors import RepliesError, warn_once
from medtasks.harness.task_file import templates_in
from medtasks.harness.task_index import SETTINGS, mapping_in
from medtasks.runs.harness_options import HarnessOptions
from medtasks.runs.manifest import RunManifest, read_manifests
from medtasks.runs.redaction import redacted, redacted_options, without_home
from medtasks.runs.result_files import SERVED_MODEL, results_next_to, task_of
from medtasks.runs.samples import read_samples

SAMPLING = "sampling"
"""Kind of what decides how replies are drawn from a model."""
_CONFIG = {"batch_size": "batch size", "device": "device", "limit": "limit", "use_cache": "response cache"}
_SEEDS = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed")
_OPTIONS = ("model", "model_args", "tasks", "output_path", "log_samples", "seed", "config", "verbosity", *_CONFIG)
_IMAGE_MARK = "<image>"
_NOTHING = ("", "None", "unknown@unknown")
_NOT_COMPARABLE = "so that their numbers cannot be compared; run both with the same data, task file and options"


@dataclass(frozen=True)
class Difference:
    """Something that the records of two runs say differently."""

    kind: str  # version, model, hardware, setting or SAMPLING
    name: str
    first: str  # "not recorded" where it is not, as of the second
    second: str


@dataclass(frozen=True)
class Record:
    """What is recorded of one task of a run."""

    results: Mapping[str, Any]  # the harness's results file; empty if there is none
    manifest: RunManifest | None

    @classmethod
    def of(cls, samples: Path) -> "Record":
        """Read what lies beside a samples file, or in the folder above it, where the manifest of its run does."""
        found = None
        for folder in (samples.parent, samples.parent.parent):
            for manifest in read_manifests(folder, warn_once) if samples.is_file() else ():
                written = {folder / one.samples for one in manifest.tasks.values() if one.samples}
                found = manifest if samples in written else found
        results = results_next_to(samples, warn_once)
        return cls(results.content if results else {}, found)

    def config(self, task: str) -> Mapping[str, Any]:
        """Return the task's configuration as the harness wrote it; empty if it did not."""
        return mapping_in(mapping_in(self.results, "configs"), task)

    def fingerprint(self, task: str) -> str | None:
        """Return the fingerprint of the task's data as recorded; None if it is not."""
        data = mapping_in(mapping_in(self.config(task), "metadata"), "data")
        return None if data.get("fingerprint") is None else str(data["fingerprint"])

    def said(self, task: str) -> dict[tuple[str, str], str]:
        """Return all that may be a cause of other replies, by kind and name; secrets are replaced."""
        run = mapping_in(self.results, "config")
        found: dict[tuple[str, str], object] = {("version", "lmms_eval"): self.results.get("lmms_eval_version")}
        found[("model", "model")] = run.get("model")
        arguments = HarnessOptions({"model_args": run.get("model_args")}).model_arguments()
        found |= {("model", f"model argument {name}"): value for name, value in redacted_options(arguments).items()}
        served = mapping_in(self.results, SERVED_MODEL)
        found |= {("model", f"served model's {name}"): value for name, value in served.items()}
        found |= {("setting", label): run.get(name) for name, label in _CONFIG.items()}
        found |= {("setting", name.replace("_", " ")): run.get(name) for name in _SEEDS}
        generation = mapping_in(self.config(task), "generation_kwargs")
        found |= {(SAMPLING, f"generation setting {name}"): value for name, value in generation.items()}
        found[("setting", "chat template")] = self.results.get("chat_template_sha")
        if self.manifest is not None:
            found |= _of_manifest(self.manifest)
        shown = {key: without_home(redacted(str(value))) for key, value in found.items()}
        return {key: value for key, value in shown.items() if value not in _NOTHING}


def _of_manifest(manifest: RunManifest) -> dict[tuple[str, str], object]:
    machine, recipe = manifest.hardware, manifest.recipe
    gpus = "; ".join(f"{gpu.name}, {gpu.memory} MiB, driver {gpu.driver}" for gpu in machine.gpus)
    found: dict[tuple[str, str], object] = {("version", name): found for name, found in manifest.versions.items()}
    found |= {
        ("version", "commit of medtasks"): manifest.commit,
        ("model", "fingerprint of the weights"): manifest.model.fingerprint,
        ("model", "recipe"): recipe and f"{recipe.name}, {recipe.digest}",
        ("hardware", "system"): machine.system,
        ("hardware", "processor"): f"{machine.cpu}, {machine.cores} cores".lstrip(", "),
        ("hardware", "graphics processors"): gpus,
        ("hardware", "visible graphics processors"): machine.visible_gpus,
    }
    found |= {("setting", f"option {name}"): one for name, one in manifest.options.items() if name not in _OPTIONS}
    return found | {("setting", name): value for name, value in manifest.settings.items()}


def differences(first: Record, second: Record, task: str) -> tuple[Difference, ...]:
    """Return what the records of a task say differently, sampling and model first."""
    before, after = first.said(task), second.said(task)
    order = (SAMPLING, "model", "version", "setting", "hardware")
    keys = sorted({**before, **after}, key=lambda key: order.index(key[0]))
    missing = "not recorded"
    return tuple(
        Difference(*key, before.get(key, missing), after.get(key, missing))
        for key in keys
        if before.get(key) != after.get(key)
    )


def draws(record: Record, task: str) -> bool:
    """Return whether replies are drawn at random, so that no two runs are the same."""
    settings = mapping_in(record.config(task), "generation_kwargs")
    try:
        return bool(settings.get("do_sample")) or float(settings.get("temperature") or 0) > 0
    except (TypeError, ValueError):
        return False


# ---- whether both asked the same ----


def check_same_task(first: Record, second: Record, task: str) -> None:
    """Check that both runs asked one version of a task on the same data, as far as it is recorded.

    RepliesError: they did not.
    """
    both = (first, second)
    told = [repr(one.results.get("system_instruction")) if one.results else None for one in both]
    shots = [one.config(task).get("num_fewshot") for one in both]
    _check("were asked on different data", [one.fingerprint(task) for one in both])
    _check("asked different versions of the task", [mapping_in(one.results, "versions").get(task) for one in both])
    _check("had different numbers of few-shot examples", shots)
    if None not in told and told[0] != told[1]:
        raise RepliesError(f"the runs had different system instructions, {_NOT_COMPARABLE}")


def _check(how: str, values: Sequence[object]) -> None:
    first, second = values
    if None not in values and first != second:
        raise RepliesError(f"the runs {how} ({first} in A, {second} in B), {_NOT_COMPARABLE}")


def check_same_templates(first: Record, second: Record, task: str) -> None:
    """Check what prompts were made from, where they are not at hand themselves; RepliesError: it differs."""
    templates = [sorted(templates_in(mapping_in(one.config(task), SETTINGS))) for one in (first, second)]
    if all(templates) and templates[0] != templates[1]:
        raise RepliesError(f"the runs made their prompts from different templates, {_NOT_COMPARABLE}")


def check_same_prompts(
    first: Path, second: Path, documents: Documents, shown: Callable[[str], str]
) -> tuple[str, bool]:
    """Check that two samples files of a task hold the same prompts; return a note, and whether there are any.

    Models that find an image's place by a mark in the text have it in their prompts, which is no other question.
    RepliesError: words differ; the sentence names a document as ``shown`` writes its id.
    """
    before, after = (read_samples(path, documents).prompts if task_of(path) else {} for path in (first, second))
    shared = [doc_id for doc_id in before if doc_id in after]
    other = [doc_id for doc_id in shared if _words(before[doc_id]) != _words(after[doc_id])]
    if other:
        raise RepliesError(
            f"the runs gave different prompts to {len(other)} of {len(shared)} questions, such as {shown(other[0])} "
            f"(some tasks have other prompts for some models), {_NOT_COMPARABLE}"
        )
    if not shared:
        return "the prompts are not recorded or withheld, so that they could not be compared", False
    spaced = sum(before[doc_id] != after[doc_id] for doc_id in shared)
    return f"{spaced} prompts differ in white space or in the mark of an image" if spaced else "", True


def _words(prompt: str) -> list[str]:
    return prompt.replace(_IMAGE_MARK, " ").split()
