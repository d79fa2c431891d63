"""Manifest of a run while it is going on, and the facts in it: versions, hardware, data, and the model's weights.

The fingerprint of weights is a digest of local files, or the commit of the Hub's snapshot.
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
from itertools import chain
from pathlib import Path
from signal import Signals
from typing import Any

import psutil

from medtasks.data.dataset_manifest import Manifest, file_sha256
from medtasks.data.shards import Shard
from medtasks.errors import MedTasksError
from medtasks.extract.failure import failure_cause
from medtasks.home import dataset_folder, file_state, home
from medtasks.net.disk_cache import SqliteCache
from medtasks.running.harness_run import HarnessOutcome, wanted_tasks
from medtasks.runs.harness_options import HarnessOptions, read_options, seeds
from medtasks.runs.redaction import (
    redacted,
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
    *(
        "medtasks",
        "lmms_eval",
        "lm_eval",
        "torch",
        "torchvision",
        "transformers",
        "tokenizers",
        "sentencepiece",
    ),
    *(
        "accelerate",
        "safetensors",
        "peft",
        "bitsandbytes",
        "flash_attn",
        "vllm",
        "sglang",
        "openai",
        "qwen_vl_utils",
    ),
    *("datasets", "huggingface_hub", "pyarrow", "numpy", "scipy", "pillow", "nibabel", "pydicom"),
    *("scikit-learn", "nltk", "sacrebleu", "rouge-score", "bert-score", "radgraph"),
)
_SECONDS = 10
# Arguments that name weights, in the harness's models and in ours; the harness's default model is "hf".
WEIGHTS = (
    *(
        "pretrained",
        "model",
        "model_version",
        "model_name",
        "model_id",
        "model_path",
        "path",
        "checkpoint",
        "ckpt",
    ),
    *("adapter", "peft", "delta", "lora", "base", "vision_tower", "llama", "clip"),
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

    ``arguments`` are passed on to the harness, ``names`` given to ``--tasks``, ``notices`` given before the run.
    """
    options = read_options(arguments)
    datasets = {
        name: task_file(name).dataset if tasks_of(name) else None for name in wanted_tasks(names)
    }
    fingerprints = {}
    for dataset in {dataset for dataset in datasets.values() if dataset}:
        with contextlib.suppress(OSError, MedTasksError):  # missing or damaged
            fingerprints[dataset] = Manifest.read(dataset_folder(dataset)).fingerprint
    tasks = {
        name: TaskRecord(
            outcome=TaskOutcome.LEFT_OUT if name in selection.missing else TaskOutcome.NOT_RUN,
            reason=without_home(selection.missing.get(name, "the run has not left results of it")),
            dataset=dataset,
            fingerprint=fingerprints.get(dataset or ""),
        )
        for name, dataset in datasets.items()
    }
    return RunManifest(
        run=secrets.token_hex(8),
        state=RunState.RUNNING,
        started=datetime.now(UTC).isoformat(),
        process=process_of(os.getpid()),
        command=redacted_arguments(command),
        arguments=redacted_arguments(arguments),
        options=redacted_options(options.given),
        asked=tuple(names),
        tasks=tasks,
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
        self._began, self._arguments, self._limit, self._complain = (
            time.monotonic(),
            arguments,
            limit,
            complain,
        )
        self.path = manifest_path(output, datetime.fromisoformat(manifest.started))
        self.manifest = manifest
        manifest.write(self.path)

    @contextlib.contextmanager
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
            lost = any(
                record.outcome is not TaskOutcome.DONE or record.reason for record in records
            )
            end = RunState.WITH_FAILURES if lost or self.over_limit() else RunState.FINISHED
            model = self.manifest.model
            if (
                model.fingerprint is None or "commit:" in model.fingerprint
            ):  # the harness may have fetched a snapshot
                model = model_facts(read_options(self._arguments))
            self._change(
                state=RunState.INTERRUPTED if why else end,
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
            if name in outcome.files:
                done = with_results(
                    name, record, outcome.files[name], outcome.rows.get(name, {}), folder
                )
                reason = without_home(outcome.reasons.get(name, ""))
                tasks[name] = done.model_copy(
                    update={"outcome": TaskOutcome.DONE, "reason": reason}
                )
            elif name in outcome.failed:
                changes = {"outcome": TaskOutcome.FAILED, "reason": outcome.reasons[name]}
                tasks[name] = record.model_copy(update=changes)
            if self.manifest.shard:
                tasks[name] = tasks[name].model_copy(update={"rows": outcome.asked.get(name)})
        notices = tuple(dict.fromkeys([*self.manifest.notices, *outcome.notices]))
        self._change(tasks=tasks, notices=notices, processes=tuple(outcome.processes))

    def over_limit(self) -> dict[str, SampleCounts]:
        """Return the tasks that lost more samples than may fail, with their counts."""
        by_task = {
            name: counts
            for name, record in self.manifest.tasks.items()
            if (counts := record.counts)
        }
        return {name: counts for name, counts in by_task.items() if not self._limit.allows(counts)}

    def losses_over_limit(self) -> str:
        """Describe the tasks that lost more samples than may fail, each with the cause of its first failure."""
        losses = []
        for name, counts in self.over_limit().items():
            samples = self.manifest.tasks[name].samples
            lines = read_lines(self.path.parent / samples) if samples else ()
            nested = chain.from_iterable(line.record.get("resps") or () for line in lines)
            replies = (reply[0] if isinstance(reply, list) and reply else reply for reply in nested)
            causes = (failure_cause(reply) for reply in replies if isinstance(reply, str))
            cause = next(filter(None, causes), None)
            losses.append(
                f"{name}: {counts}" if cause is None else f"{name}: {counts}, first {cause}"
            )
        return "; ".join(losses)

    def _change(self, **changes: Any) -> None:
        self.manifest = self.manifest.model_copy(update=changes)
        try:
            self.manifest.write(self.path)
        except OSError as error:
            self._complain(
                f"cannot write {self.path}: {error.strerror or error}; the run goes on without"
            )


def with_results(
    name: str, record: TaskRecord, results: Path, row: Mapping[str, Any], folder: Path
) -> TaskRecord:
    """Return a task's record with the location of its results below a folder, and the counts in their row."""
    samples = samples_file(results, name)
    changes: dict[str, Any] = {
        "results": results.relative_to(folder).as_posix(),
        "samples": None,
    }
    if samples.is_file():
        origins = read_origins(samples)
        changes |= {
            "samples": samples.relative_to(folder).as_posix(),
            "copied_samples": origins.copied,
            "kept_samples": origins.kept,
        }
    if counts := counts_of(row):
        changes |= {f"{kind}_samples": number for kind, number in asdict(counts).items()}
    return record.model_copy(update=changes)


def versions() -> dict[str, str | None]:
    """Return versions by distribution, that of Python first; None for what is not installed."""
    return {
        "python": platform.python_version(),
        **{name: installed_version(name) for name in DISTRIBUTIONS},
    }


def commit() -> str | None:
    """Return the git commit of this checkout, with ``-dirty`` if tracked files differ; None if it is unknown."""
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    head = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    changes = _output(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return f"{head.strip()}{'-dirty' if changes else ''}" if head and changes is not None else None


def hardware() -> Hardware:
    """Return the machine this process runs on, with the GPUs that ``nvidia-smi`` lists; none if it fails."""
    text = ""  # neither the standard library nor psutil tells the name of the processor on Linux
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
        name, size, driver = (part.strip() for part in line.rsplit(",", 2))
        gpus.append(Gpu(name=name, memory=int(size) if size.isdigit() else None, driver=driver))
    return Hardware(
        system=f"{platform.system()} {platform.machine()}",
        cpu=model[1].strip() if model else platform.processor(),
        cores=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        memory=psutil.virtual_memory().total,
        gpus=tuple(gpus),
        visible_gpus=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def _output(command: list[str]) -> str | None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout if ran.returncode == 0 else None


def model_facts(options: HarnessOptions) -> ModelFacts:
    """Return the model of a run; digests of local files are kept under ``MEDTASKS_HOME`` by path and state."""
    name = options.text("model") or "hf"
    arguments = options.text("model_args")
    by_name = options.pairs("model_args")
    random_weights = name == "medtasks_tiny" and by_name.get("weights") == "random"
    defaults = {} if random_weights else DEFAULTS.get(name, {})
    named = {
        **defaults,
        **{key: value for key, value in by_name.items() if key in WEIGHTS and value},
    }
    labels = {key: _weights_label(value) for key, value in named.items()}
    fingerprints: dict[str, str] = {}
    unknown: dict[str, str] = {}
    for key, value in named.items():
        fingerprint, problem = _weights_fingerprint(value, by_name.get("revision"))
        if problem:
            unknown[key] = f"{key}={labels[key]}: {problem}"
        else:
            fingerprints[key] = fingerprint
    if random_weights:
        unknown["model"] = (
            "medtasks_tiny with weights=random is drawn from its seed and has no weights on disk"
        )
    elif not named:
        unknown["model"] = f"the model arguments name no weights (by {', '.join(WEIGHTS[:3])} ...)"
    by_key = [f"{key}={fingerprint}" for key, fingerprint in fingerprints.items()]
    joined = ", ".join(by_key if len(by_key) > 1 else fingerprints.values())
    return ModelFacts(
        name=name,
        arguments=redacted(arguments),
        weights=", ".join(labels.values()),
        fingerprint=None if unknown else joined,
        unknown="; ".join(unknown.values()),
    )


def _weights_label(value: str) -> str:
    """Return a name on the Hub, or the last part of a path on this machine."""
    path = Path(value).expanduser()
    return redacted(path.resolve().name if path.exists() or path.is_absolute() else value)


def _weights_fingerprint(value: str, revision: str | None) -> tuple[str, str]:
    """Return the digest of a path or the commit of a name in the Hub's cache, and else why it is unknown."""
    path = Path(value).expanduser()
    if path.exists():
        try:
            return f"sha256:{files_sha256(path)}", ""
        except OSError as error:
            return "", f"a file in it cannot be read ({error.strerror})"
    with contextlib.suppress(
        OSError, ValueError
    ):  # a name that no repository or file can have is a ValueError
        from huggingface_hub.constants import HF_HUB_CACHE
        from huggingface_hub.file_download import repo_folder_name

        folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=value, repo_type="model")
        name = revision or "main"  # a branch, tag or commit
        reference = folder / "refs" / name
        commit = reference.read_text().strip() if reference.is_file() else name
        if re.fullmatch("[0-9a-f]{40}", commit) and (folder / "snapshots" / commit).is_dir():
            return f"commit:{commit}", ""
    absent = "it is no path on this machine, and the Hub's cache has no snapshot of it"
    return "", f"{absent} (a model behind an API has none)"


def files_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of names and contents of all files in a folder, hidden ones left out.

    The digest of each file comes from the store if the file has not changed.
    """
    inside = ((file, file.relative_to(path).parts) for file in sorted(path.rglob("*")))
    visible = [
        file
        for file, parts in inside
        if file.is_file() and not any(part.startswith(".") for part in parts)
    ]
    files = [path] if path.is_file() else visible
    warning = "Digests of weights are not kept in {path} ({error}), so that the next run reads the files again."
    store = SqliteCache(
        home() / "weights_digests.sqlite", ("digests", "sha256"), warning, disposable=True
    )
    keys = {}
    for file in files:
        keys[file] = json.dumps([str(file.resolve()), *file_state(file)]).encode()
    digests = dict(store.get(keys.values()))
    new = [file for file, key in keys.items() if key not in digests]
    with ThreadPoolExecutor(4) as pool:
        computed = {
            keys[file]: digest.encode()
            for file, digest in zip(new, pool.map(file_sha256, new), strict=True)
        }
    store.put(computed)
    digests |= computed
    if path.is_file():
        return digests[keys[path]].decode()
    lines = "".join(
        f"{digests[keys[file]].decode()}  {file.relative_to(path).as_posix()}\n" for file in files
    )
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
