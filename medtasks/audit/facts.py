"""What a run was made with: versions, hardware and data, found out without importing PyTorch or the harness."""

import contextlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import medtasks
from medtasks.data.home import dataset_folder
from medtasks.data.manifest import Manifest
from medtasks.errors import MedTasksError
from medtasks.harness.manifest import Gpu, Hardware

# What loads models, reads images, makes prompts, or computes a score.
DISTRIBUTIONS = (
    *("medtasks", "lmms_eval", "lm_eval", "torch", "torchvision", "transformers", "tokenizers", "sentencepiece"),
    *("accelerate", "safetensors", "peft", "bitsandbytes", "flash_attn", "vllm", "sglang", "openai", "qwen_vl_utils"),
    *("datasets", "huggingface_hub", "pyarrow", "numpy", "scipy", "pillow", "nibabel", "pydicom"),
    *("scikit-learn", "nltk", "sacrebleu", "rouge-score", "bert-score", "radgraph"),
)
_SECONDS = 10


def versions() -> dict[str, str | None]:
    """Return versions by distribution, that of Python first; None for what is not installed."""
    return {"python": platform.python_version(), **{name: installed_version(name) for name in DISTRIBUTIONS}}


def installed_version(name: str) -> str | None:
    """Return the version of an installed package; None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """Return the git commit of the checkout this package runs from, ``-dirty`` behind it where tracked files differ.

    None for an installed package, and where git cannot say.
    """
    folder = Path(medtasks.__file__).parents[1]
    if not (folder / ".git").exists():
        return None
    head = _output(["git", "-C", str(folder), "rev-parse", "HEAD"])
    changes = _output(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return f"{head.strip()}{'-dirty' if changes else ''}" if head and changes is not None else None


def hardware() -> Hardware:
    """Return the machine this process runs on."""
    return Hardware(
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=_memory(),
        gpus=gpus(),
        visible_gpus=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def gpus() -> tuple[Gpu, ...]:
    """Return the GPUs that ``nvidia-smi`` lists; none where it is missing or fails."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    found = []
    for line in (_output(query) or "").splitlines():
        if line.count(",") < 2:  # a complaint, which comes with exit code 0, too
            continue
        name, memory, driver = (part.strip() for part in line.rsplit(",", 2))
        found.append(Gpu(name=name, memory=int(memory) if memory.isdigit() else None, driver=driver))
    return tuple(found)


def data_fingerprints(datasets: Iterable[str]) -> Mapping[str, str]:
    """Return the fingerprints of prepared datasets by name, without those that are missing or damaged."""
    fingerprints = {}
    for name in datasets:
        with contextlib.suppress(OSError, MedTasksError):
            fingerprints[name] = Manifest.read(dataset_folder(name)).fingerprint
    return fingerprints


def _cpu() -> str:
    lines = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _output(command: list[str]) -> str | None:
    """Return what a command prints; None where it is missing, fails, or takes too long."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout if ran.returncode == 0 else None
