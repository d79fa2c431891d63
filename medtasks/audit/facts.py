"""Facts about a run: versions, hardware, data and weights, without PyTorch, the harness or the network.

The fingerprint of weights is a digest of local files, or the commit of the Hub's snapshot.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import psutil

import medtasks
from medtasks.data.dataset_manifest import Manifest, file_sha256
from medtasks.errors import MedTasksError
from medtasks.home import dataset_folder, home
from medtasks.net.disk_cache import SqliteCache
from medtasks.runs.harness_options import HarnessOptions
from medtasks.runs.redaction import redacted
from medtasks.runs.run_manifest import Gpu, Hardware, ModelFacts

# Packages that load models, read images, make prompts, or compute a score.
DISTRIBUTIONS = (
    *("medtasks", "lmms_eval", "lm_eval", "torch", "torchvision", "transformers", "tokenizers", "sentencepiece"),
    *("accelerate", "safetensors", "peft", "bitsandbytes", "flash_attn", "vllm", "sglang", "openai", "qwen_vl_utils"),
    *("datasets", "huggingface_hub", "pyarrow", "numpy", "scipy", "pillow", "nibabel", "pydicom"),
    *("scikit-learn", "nltk", "sacrebleu", "rouge-score", "bert-score", "radgraph"),
)
_SECONDS = 10
# Arguments that name weights, in the harness's models and in ours; the harness's default model is "hf".
WEIGHTS = (
    *("pretrained", "model", "model_version", "model_name", "model_id", "model_path", "path", "checkpoint", "ckpt"),
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
    "radfm": {"pretrained": "chaoyi-wu/RadFM"},
}
_COMMIT = re.compile(r"[0-9a-f]{40}")
_READERS = 4


def versions() -> dict[str, str | None]:
    """Return versions by distribution, that of Python first; None for what is not installed."""
    return {"python": platform.python_version(), **{name: installed_version(name) for name in DISTRIBUTIONS}}


def installed_version(name: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """Return the git commit of this checkout, with ``-dirty`` if tracked files differ; None if it is unknown."""
    folder = Path(medtasks.__file__).parents[1]
    if not (folder / ".git").exists():
        return None
    head = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    changes = _output(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return f"{head.strip()}{'-dirty' if changes else ''}" if head and changes is not None else None


def hardware() -> Hardware:
    """Return the machine this process runs on."""
    lines = []  # neither the standard library nor psutil tells the name of the processor on Linux
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return Hardware(
        system=f"{platform.system()} {platform.machine()}",
        cpu=next(models, "") or platform.processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=psutil.virtual_memory().total,
        gpus=gpus(),
        visible_gpus=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that ``nvidia-smi`` lists; none if it is missing or fails."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    listed = []
    for line in (_output(query) or "").splitlines():
        if line.count(",") < 2:  # a complaint, which comes with exit code 0, too
            continue
        name, memory, driver = (part.strip() for part in line.rsplit(",", 2))
        listed.append(Gpu(name=name, memory=int(memory) if memory.isdigit() else None, driver=driver))
    return tuple(listed)


def data_fingerprints(datasets: Iterable[str]) -> Mapping[str, str]:
    """Return the fingerprints of prepared datasets by name, without those that are missing or damaged."""
    fingerprints = {}
    for name in datasets:
        with contextlib.suppress(OSError, MedTasksError):
            fingerprints[name] = Manifest.read(dataset_folder(name)).fingerprint
    return fingerprints


def _output(command: list[str]) -> str | None:
    """Return the output of a command; None if it is missing, fails or times out."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout if ran.returncode == 0 else None


def model_facts(options: HarnessOptions) -> ModelFacts:
    """Return the model of a run; digests of local files are kept under ``MEDTASKS_HOME`` by path, size and time."""
    name, arguments = options.text("model") or "hf", options.text("model_args")
    arguments_by_name = options.pairs("model_args")
    named = {
        **DEFAULTS.get(name, {}),
        **{key: value for key, value in arguments_by_name.items() if key in WEIGHTS and value},
    }
    fingerprints, unknown = {}, {}
    for key, value in named.items():
        try:
            fingerprints[key] = _fingerprint(value, arguments_by_name.get("revision") or "main")
        except (OSError, ValueError) as error:
            unknown[key] = f"{key}={_shown(value)}: {error}"
    if name == "medtasks_tiny":
        unknown["model"] = "medtasks_tiny is drawn from its seed and has no weights on disk"
    elif not named:
        unknown["model"] = f"the model arguments name no weights (by {', '.join(WEIGHTS[:3])} ...)"
    joined = ", ".join(
        f"{key}={fingerprint}" if len(fingerprints) > 1 else fingerprint for key, fingerprint in fingerprints.items()
    )
    return ModelFacts(
        name=name,
        arguments=redacted(arguments),
        weights=", ".join(_shown(value) for value in named.values()),
        fingerprint=None if unknown else joined,
        unknown="; ".join(unknown.values()),
    )


def _fingerprint(weights: str, revision: str) -> str:
    """Return the fingerprint of one path or name; OSError or ValueError: it is unknown, with the reason."""
    path = Path(weights).expanduser()
    if path.exists():
        try:
            return f"sha256:{files_sha256(path)}"
        except OSError as error:
            raise OSError(f"a file in it cannot be read ({error.strerror})") from error
    commit = snapshot_commit(weights, revision)
    if commit is None:
        raise ValueError(
            "it is no path on this machine, and the Hub's cache has no snapshot of it (a model behind an API has none)"
        )
    return f"commit:{commit}"


def files_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of names and contents of all files in a folder, hidden ones left out."""
    if path.is_file():
        return _contents([path])[path]
    visible = (
        file for file in path.rglob("*") if not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    files = sorted(file for file in visible if file.is_file())
    digests = _contents(files)
    lines = "".join(f"{digests[file]}  {file.relative_to(path).as_posix()}\n" for file in files)
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def snapshot_commit(repository: str, revision: str = "main") -> str | None:
    """Return the commit of a snapshot (branch, tag or commit) in this machine's Hub cache; None if it has none."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    try:
        folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")
        reference = folder / "refs" / revision
        commit = reference.read_text().strip() if reference.is_file() else revision
        return commit if _COMMIT.fullmatch(commit) and (folder / "snapshots" / commit).is_dir() else None
    except (OSError, ValueError):  # a name that no repository or no file can have is a ValueError
        return None


def _shown(value: str) -> str:
    """Return a name on the Hub, or the last part of a path on this machine."""
    path = Path(value).expanduser()
    return redacted(path.resolve().name if path.exists() or path.is_absolute() else value)


def _contents(files: Iterable[Path]) -> dict[Path, str]:
    """Return the digest of each file, from the store if it has not changed."""
    warning = "Digests of weights are not kept in {path} ({error}), so that the next run reads the files again."
    store = SqliteCache(home() / "weights_digests.sqlite", ("digests", "sha256"), warning, disposable=True)
    keys = {}
    for file in files:
        real = file.resolve()
        facts = real.stat()
        keys[file] = json.dumps([str(real), facts.st_size, facts.st_mtime_ns]).encode()
    by_key = dict(store.get(keys.values()))
    new = [file for file, key in keys.items() if key not in by_key]
    with ThreadPoolExecutor(_READERS) as pool:
        computed = {keys[file]: digest.encode() for file, digest in zip(new, pool.map(file_sha256, new), strict=True)}
    store.put(computed)
    by_key |= computed
    return {file: by_key[key].decode() for file, key in keys.items()}
