"""Manifest of a run while it is going on, and the facts in it: versions, hardware, data, and the model's weights.

The fingerprint of weights is a digest of local files, or the commit of the Hub's snapshot. Nothing here may stop a run
that has begun, and nothing may write a secret or the user's folders into the manifest.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from signal import Signals
from typing import Any

import psutil

from medtasks.data.dataset_manifest import Manifest
from medtasks.data.named_files import file_sha256
from medtasks.data.shards import Shard
from medtasks.errors import MedTasksError
from medtasks.extract.failure import failure_cause
from medtasks.home import dataset_folder, file_state, home
from medtasks.net.disk_cache import SqliteCache
from medtasks.running.harness_run import HarnessOutcome, wanted_tasks
from medtasks.runs.harness_options import HarnessOptions, read_options, seeds
from medtasks.runs.redaction import (
    redact,
    redacted_arguments,
    redacted_options,
    settings,
    without_home,
)
from medtasks.runs.replies import read_lines
from medtasks.runs.reply_origins import read_origins
from medtasks.runs.result_files import samples_file
from medtasks.runs.run_manifest import (
    Gpu,
    Hardware,
    ModelFacts,
    Notice,
    RecipeFacts,
    RunManifest,
    RunState,
    Seeds,
    TaskOutcome,
    TaskRecord,
    manifest_path,
    process_of,
)
from medtasks.runs.sample_counts import FailureLimit, SampleCounts, counts_of
from medtasks.tasks.documents import Selection
from medtasks.tasks.task_files import task_file, tasks_of
from medtasks.version import installed_version

# Packages that load models, read images, make prompts, or compute a score.
DISTRIBUTIONS = (
    "medtasks",
    "lmms_eval",
    "lm_eval",
    "torch",
    "torchvision",
    "transformers",
    "tokenizers",
    "sentencepiece",
    "accelerate",
    "safetensors",
    "peft",
    "bitsandbytes",
    "flash_attn",
    "vllm",
    "sglang",
    "openai",
    "qwen_vl_utils",
    "datasets",
    "huggingface_hub",
    "pyarrow",
    "numpy",
    "scipy",
    "pillow",
    "nibabel",
    "pydicom",
    "scikit-learn",
    "nltk",
    "sacrebleu",
    "rouge-score",
    "bert-score",
    "radgraph",
)
_SECONDS = 10
# Arguments that name weights, in the harness's models and in ours; the harness's default model is "hf".
WEIGHTS = (
    "pretrained",
    "model",
    "model_version",
    "model_name",
    "model_id",
    "model_path",
    "path",
    "checkpoint",
    "ckpt",
    "adapter",
    "peft",
    "delta",
    "lora",
    "base",
    "vision_tower",
    "llama",
    "clip",
)
# Weights that our adapters load by default; repeated here because their own modules take long to import.
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "llava_med": {"pretrained": "microsoft/llava-med-v1.5-mistral-7b"},
    "med_flamingo": {
        "pretrained": "med-flamingo/med-flamingo",
        "llama": "yahma/llama-7b-hf",
        "clip": "openai/clip-vit-large-patch14",
    },
    "medtasks_tiny": {"weights": str(files("medtasks.model_adapters") / "tiny_weights")},
    "radfm": {"pretrained": "chaoyi-wu/RadFM"},
}


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
        command: The user's command, which is redacted.
        arguments: Arguments passed on to the harness.
        names: Names given to ``--tasks``.
        selection: Which of their tasks can run.
        notices: Notices given before the run.
        shard: The part of the samples that is asked, None for all.
        recipe: Facts of the model's recipe, None without one.
    """
    options = read_options(arguments)
    fingerprints: dict[str, str] = {}
    records = {}
    for name in wanted_tasks(names):
        dataset = task_file(name).dataset if tasks_of(name) else None
        if dataset and dataset not in fingerprints:
            with contextlib.suppress(OSError, MedTasksError):  # missing or damaged
                fingerprints[dataset] = Manifest.read(dataset_folder(dataset)).fingerprint
        records[name] = TaskRecord(
            outcome=TaskOutcome.LEFT_OUT if name in selection.missing else TaskOutcome.NOT_RUN,
            reason=without_home(
                selection.missing.get(name, "the run has not left results of it")
            ),
            dataset=dataset,
            fingerprint=fingerprints.get(dataset or ""),
        )
    return RunManifest(
        run=secrets.token_hex(8),
        state=RunState.RUNNING,
        started=datetime.now(UTC).isoformat(),
        process=process_of(os.getpid()),
        command=redacted_arguments(command),
        arguments=redacted_arguments(arguments),
        options=redacted_options(options.given),
        asked=tuple(names),
        tasks=records,
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

    Args:
        output: Folder of the run's results.
        manifest: The manifest before the first task.
        arguments: Arguments passed on to the harness.
        limit: Number of samples that a task may lose before the run counts as one with failures.
        complain: Called with a sentence when the manifest cannot be written later. The run goes on.

    Raises:
        OSError: The manifest cannot be written before the run begins.
    """

    def __init__(
        self,
        output: Path,
        manifest: RunManifest,
        arguments: Sequence[str],
        limit: FailureLimit,
        complain: Callable[[str], None],
    ) -> None:
        self._began = time.monotonic()
        self._arguments = arguments
        self._limit = limit
        self._complain = complain
        self.path = manifest_path(output, datetime.fromisoformat(manifest.started))
        self.manifest = manifest
        manifest.write(self.path)

    @contextlib.contextmanager
    def until_its_end(self) -> Iterator[None]:
        """Write the end of the run, however the block within ends. Its error is recorded and raised again."""
        why = ""
        try:
            yield
        except KeyboardInterrupt:
            why = "Ctrl-C"
            raise
        except SystemExit as leaving:
            number = leaving.code - 128 if isinstance(leaving.code, int) else 0
            why = (
                Signals(number).name
                if number in set(Signals)
                else f"it left with {leaving.code}"
            )
            raise
        except BaseException as error:
            why = f"{type(error).__name__}: {without_home(redact(str(error)))}"
            raise
        finally:
            self._end(why)

    def _end(self, why: str) -> None:
        """Record the end of the run. ``why`` says what interrupted it, and is empty if nothing did."""
        records = self.manifest.tasks.values()
        is_whole = all(each.outcome is TaskOutcome.DONE and not each.reason for each in records)
        state = RunState.WITH_FAILURES
        if is_whole and not self.over_limit():
            state = RunState.FINISHED
        if why:
            state = RunState.INTERRUPTED
        model = self.manifest.model
        # The harness may have fetched a snapshot.
        if model.fingerprint is None or "commit:" in model.fingerprint:
            model = model_facts(read_options(self._arguments))
        self._change(
            state=state,
            why=why,
            ended=datetime.now(UTC).isoformat(),
            seconds=round(time.monotonic() - self._began, 3),
            model=model,
        )

    def note(self, outcome: HarnessOutcome) -> None:
        """Record the outcomes of the tasks so far."""
        folder = self.path.parent
        tasks = dict(self.manifest.tasks)
        for name, record in tasks.items():
            changes: dict[str, Any] = {}
            if name in outcome.files:
                row = outcome.rows.get(name, {})
                record = with_results(name, record, outcome.files[name], row, folder)
                reason = without_home(outcome.reasons.get(name, ""))
                changes = {"outcome": TaskOutcome.DONE, "reason": reason}
            elif name in outcome.failed:
                changes = {"outcome": TaskOutcome.FAILED, "reason": outcome.reasons[name]}
            if self.manifest.shard:
                changes["rows"] = outcome.asked.get(name)
            tasks[name] = record.model_copy(update=changes)
        notices = tuple(dict.fromkeys([*self.manifest.notices, *outcome.notices]))
        self._change(tasks=tasks, notices=notices, processes=tuple(outcome.processes))

    def over_limit(self) -> dict[str, SampleCounts]:
        """Return the tasks that lost more samples than may fail, with their counts."""
        return self.manifest.over_limit(self._limit)

    def losses_over_limit(self) -> str:
        """Describe the tasks that lost more samples than may fail, each with the cause of its first failure."""
        losses = []
        for name, counts in self.over_limit().items():
            loss = f"{name}: {counts}"
            if cause := self._first_cause(self.manifest.tasks[name].samples):
                loss += f", first {cause}"
            losses.append(loss)
        return "; ".join(losses)

    def _first_cause(self, samples: str | None) -> str | None:
        """Return the cause of the first failure in a file of samples, None without any."""
        if not samples:
            return None
        for line in read_lines(self.path.parent / samples):
            for reply in line.record.get("resps") or ():
                text = reply[0] if isinstance(reply, list) and reply else reply
                if isinstance(text, str) and (cause := failure_cause(text)):
                    return cause
        return None

    def _change(self, **changes: Any) -> None:
        """Change fields of the manifest and write it. If that is impossible, complain."""
        self.manifest = self.manifest.model_copy(update=changes)
        try:
            self.manifest.write(self.path)
        except OSError as error:
            self._complain(
                f"cannot write {self.path}: {error.strerror or error}; the run goes on without"
            )


def with_results(
    name: str,
    record: TaskRecord,
    results: Path,
    row: Mapping[str, Any],
    folder: Path,
) -> TaskRecord:
    """Return a task's record with the location of its results and the numbers of its samples.

    Args:
        name: Name of the task.
        record: Its record so far.
        results: Its file of results.
        row: Its row in that file.
        folder: Folder of the run, to which locations are relative.
    """
    samples = samples_file(results, name)
    changes: dict[str, Any] = {
        "results": results.relative_to(folder).as_posix(),
        "samples": None,
    }
    if samples.is_file():
        origins = read_origins(samples)
        changes["samples"] = samples.relative_to(folder).as_posix()
        changes["copied_samples"] = origins.copied
        changes["kept_samples"] = origins.kept
    if counts := counts_of(row):
        changes |= {f"{kind}_samples": number for kind, number in asdict(counts).items()}
    return record.model_copy(update=changes)


def versions() -> dict[str, str | None]:
    """Return versions by distribution, that of Python first. A version is None if it is not installed.

    Example:
        >>> list(versions())[:2]
        ['python', 'medtasks']
    """
    distributions = {name: installed_version(name) for name in DISTRIBUTIONS}
    return {"python": platform.python_version(), **distributions}


def commit() -> str | None:
    """Return the git commit of this checkout, with ``-dirty`` if tracked files differ.

    Returns:
        The commit, None for a package that is not in a checkout, or if git fails.
    """
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    head = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    changes = _output(
        ["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"]
    )
    if not head or changes is None:
        return None
    return f"{head.strip()}-dirty" if changes else head.strip()


def hardware() -> Hardware:
    """Return the machine this process runs on, with the GPUs that ``nvidia-smi`` lists. If it fails, there are none."""
    # Neither the standard library nor psutil has the name of the processor on Linux.
    text = ""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    model = re.search(r"^model name[^:\n]*:(.*)", text, re.MULTILINE)
    query = [
        "nvidia-smi",
        "--query-gpu=name,memory.total,driver_version",
        "--format=csv,noheader,nounits",
    ]
    gpus = []
    for line in (_output(query) or "").splitlines():
        if line.count(",") < 2:  # a complaint, which comes with exit code 0, too
            continue
        name, size, driver = map(str.strip, line.rsplit(",", 2))
        gpus.append(Gpu(name=name, memory=int(size) if size.isdigit() else None, driver=driver))
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    return Hardware(
        system=f"{platform.system()} {platform.machine()}",
        cpu=model[1].strip() if model else platform.processor(),
        cores=cores,
        memory=psutil.virtual_memory().total,
        gpus=tuple(gpus),
        visible_gpus=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def _output(command: list[str]) -> str | None:
    """Return the output of a command, None if it is missing, fails or times out."""
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout if ran.returncode == 0 else None


def model_facts(options: HarnessOptions) -> ModelFacts:
    """Return the model of a run, with the fingerprint of its weights or why that is unknown.

    Digests of local files are kept under ``MEDTASKS_HOME`` by path and state.
    """
    name = options.text("model") or "hf"
    arguments = options.pairs("model_args")
    weights, cause = _weights_by_argument(name, arguments)
    labels = []
    fingerprints: dict[str, str] = {}
    unknown = []
    for key, value in weights.items():
        path = Path(value).expanduser()
        is_local = path.exists() or path.is_absolute()
        label = redact(path.resolve().name if is_local else value)
        labels.append(label)
        fingerprint, problem = _weights_fingerprint(value, arguments.get("revision"))
        if problem:
            unknown.append(f"{key}={label}: {problem}")
        else:
            fingerprints[key] = fingerprint
    if cause:
        unknown.append(cause)
    joined = ", ".join(fingerprints.values())
    if len(fingerprints) > 1:
        joined = ", ".join(map("=".join, fingerprints.items()))
    return ModelFacts(
        name=name,
        arguments=redact(options.text("model_args")),
        weights=", ".join(labels),
        fingerprint=None if unknown else joined,
        unknown="; ".join(unknown),
    )


def _weights_by_argument(
    model: str, arguments: Mapping[str, str]
) -> tuple[dict[str, str], str]:
    """Return the weights that arguments name, or a model's own, and why it has none on disk or an empty text."""
    weights = {key: value for key, value in arguments.items() if key in WEIGHTS and value}
    if model == "medtasks_tiny" and arguments.get("weights") == "random":
        return (
            weights,
            "medtasks_tiny with weights=random is drawn from its seed and has no weights on disk",
        )
    weights = {**DEFAULTS.get(model, {}), **weights}
    if weights:
        return weights, ""
    return weights, f"the model arguments name no weights (by {', '.join(WEIGHTS[:3])} ...)"


def _weights_fingerprint(value: str, revision: str | None) -> tuple[str, str]:
    """Return the digest of a path or the commit of a name in the Hub's cache, and else why it is unknown.

    Args:
        value: Path on this machine, or name of a repository on the Hub.
        revision: Branch, tag or commit on the Hub, None for the main branch.

    Returns:
        The fingerprint and a problem, one of which is empty.
    """
    path = Path(value).expanduser()
    if path.exists():
        try:
            return f"sha256:{files_sha256(path)}", ""
        except OSError as error:
            return "", f"a file in it cannot be read ({error.strerror})"
    # A name that no repository or file can have is a ValueError.
    with contextlib.suppress(OSError, ValueError):
        from huggingface_hub.constants import HF_HUB_CACHE
        from huggingface_hub.file_download import repo_folder_name

        folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=value, repo_type="model")
        name = revision or "main"
        reference = folder / "refs" / name
        commit = reference.read_text().strip() if reference.is_file() else name
        if re.fullmatch("[0-9a-f]{40}", commit) and (folder / "snapshots" / commit).is_dir():
            return f"commit:{commit}", ""
    absent = "it is no path on this machine, and the Hub's cache has no snapshot of it"
    return "", f"{absent} (a model behind an API has none)"


def files_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of names and contents of all files in a folder, hidden ones left out.

    The digest of each file comes from the store if the file has not changed.

    Raises:
        OSError: A file cannot be read.
    """
    if path.is_file():
        return _digests_of([path])[0]
    files = []
    for file in sorted(path.rglob("*")):
        parts = file.relative_to(path).parts
        if file.is_file() and not any(part.startswith(".") for part in parts):
            files.append(file)
    lines = ""
    for file, digest in zip(files, _digests_of(files), strict=True):
        lines += f"{digest}  {file.relative_to(path).as_posix()}\n"
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def _digests_of(files: Sequence[Path]) -> list[str]:
    """Return the SHA-256 of each file, shape (files,)."""
    warning = "Digests of weights are not kept in {path} ({error}), so that the next run reads the files again."
    location = home() / "weights_digests.sqlite"
    store = SqliteCache(location, ("digests", "sha256"), warning, disposable=True)
    keys = {}
    for file in files:
        keys[file] = json.dumps([str(file.resolve()), *file_state(file)]).encode()
    digests = dict(store.get(keys.values()))
    new = {file: key for file, key in keys.items() if key not in digests}
    computed = {}
    with ThreadPoolExecutor(4) as pool:
        for key, digest in zip(new.values(), pool.map(file_sha256, new), strict=True):
            computed[key] = digest.encode()
    store.put(computed)
    digests |= computed
    return [digests[key].decode() for key in keys.values()]
