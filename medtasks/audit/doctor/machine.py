"""Checks of disk, memory, PyTorch and GPUs, and of the versions of the harness and other packages."""

import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from medtasks.audit.doctor.check_results import HARNESS, MACHINE, PACKAGES, TORCH, CheckResult, Scope, State
from medtasks.audit.facts import installed_version
from medtasks.data.dataset_manifest import FILE_NAME
from medtasks.errors import one_line
from medtasks.home import HOME_VARIABLE, dataset_folder, home
from medtasks.lmms import AUTOLOAD_VARIABLE
from medtasks.tasks.task_index import harness_folder

LITTLE_DISK_GB = 5.0  # free disk, in GB (10^9 bytes), below which weights and datasets may not fit
LITTLE_MEMORY_GB = 4.0  # free memory below which few models fit
_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_STACK = ("torch", "torchvision", "transformers")
_CPU = "the CPU"
_INSTALL = "pip install --force-reinstall torch torchvision, both from one index (https://pytorch.org/get-started)"


def disks() -> Iterator[CheckResult]:
    """Check the disks of the data folder, the Hub's cache and the temporary folder."""
    from huggingface_hub.constants import HF_HOME

    yield _disk("data folder", home(), HOME_VARIABLE)
    yield _disk("Hub cache", Path(HF_HOME), "HF_HOME")
    yield _disk("temporary folder", Path(tempfile.gettempdir()), "TMPDIR")


def _disk(name: str, folder: Path, variable: str) -> CheckResult:
    fix = f"make room, or export {variable}=<a folder with room>"
    existing = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    if not existing.is_dir():
        return MACHINE.problem(name, f"{existing} is a file and should be a folder", fix)
    try:
        with tempfile.TemporaryFile(dir=existing) as file:  # it has no name
            file.write(b"\0")
    except OSError as error:
        fix = f"make {existing} writable, or export {variable}=<a folder of your own>"
        return MACHINE.problem(name, f"{existing} cannot be written to ({error.strerror or type(error).__name__})", fix)
    free = shutil.disk_usage(existing).free / 1e9
    sentence = f"{free:,.1f} GB are free for {folder}"
    return MACHINE.warning(name, sentence, fix) if free < LITTLE_DISK_GB else MACHINE.ok(name, sentence)


def memory() -> Iterator[CheckResult]:
    """Check the free memory, at most the limit of a container."""
    limits = [
        int(text) for path in _CONTAINER_LIMITS if path.is_file() and (text := path.read_text().strip()).isdigit()
    ]
    free = min(psutil.virtual_memory().available, *limits, float("inf")) / 1e9
    sentence = f"{free:.1f} GB of memory are free"
    if free < LITTLE_MEMORY_GB:
        yield MACHINE.warning("memory", sentence, "end other programs, or use a machine with more memory")
    else:
        yield MACHINE.ok("memory", sentence)


def torch_stack() -> Iterator[CheckResult]:
    """Import torch and what is built against it, and ask torch for its devices."""
    findings = [finding for name in _STACK if (finding := _module(name)) is not None]
    yield from findings
    if findings[0].state is not State.OK:
        return
    import torch

    devices: list[tuple[str, int, int]] = []
    error = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for index in range(torch.cuda.device_count()) if torch.cuda.is_available() else ():
                devices.append((torch.cuda.get_device_name(index), *torch.cuda.mem_get_info(index)))
        except Exception as failure:  # noqa: BLE001 - drivers fail in many ways
            error = one_line(failure)
    complaints = [
        " ".join(str(warning.message).split()) for warning in caught if issubclass(warning.category, UserWarning)
    ]
    for text in complaints:
        sentence = f"torch says: {text.rstrip('.')}"
        yield TORCH.warning("GPU", sentence, "update the driver, or install a torch built for this one")
    if error:
        sentence = f"torch cannot use the GPU ({error})"
        yield TORCH.warning("GPU", sentence, "nvidia-smi; restart what occupies the GPU, or use --device cpu")
        return
    for index, (name, free, total) in enumerate(devices):
        sentence = f"{name}, {free / 1e9:.1f} of {total / 1e9:.1f} GB free"
        if free / 1e9 < LITTLE_MEMORY_GB:
            fix = "nvidia-smi shows who uses it; wait, or choose another with CUDA_VISIBLE_DEVICES"
            yield TORCH.warning(f"GPU {index}", sentence, fix)
        else:
            yield TORCH.ok(f"GPU {index}", sentence)
    if not devices and not complaints:
        other = f"ROCm {torch.version.hip}" if getattr(torch.version, "hip", None) else _CPU
        yield _no_device(f"CUDA {torch.version.cuda}" if torch.version.cuda else other)


def _module(name: str) -> CheckResult | None:
    if importlib.util.find_spec(name) is None:
        # only some models of the harness need torchvision
        problem = TORCH.problem(name, f"{name} is not installed", f"pip install {name}")
        return None if name == "torchvision" else problem
    try:
        module = importlib.import_module(name)
        is_usable = name != "transformers" or module.utils.is_torch_available()
    except Exception as error:  # noqa: BLE001 - a wrong build fails in many ways
        fix = _INSTALL if name != "transformers" else "pip install --upgrade 'transformers>=5'"
        return TORCH.problem(name, f"{name} cannot be imported ({one_line(error)})", fix)
    if not is_usable:
        sentence = f"transformers {module.__version__} does not accept the installed torch, and runs no model"
        return TORCH.problem(name, sentence, "pip install --upgrade torch torchvision")
    return TORCH.ok(name, f"{name} {module.__version__} can be imported")


def _no_device(built_for: str) -> CheckResult:
    sentence = f"torch, built for {built_for}, finds no GPU"
    if shutil.which("nvidia-smi") is None:
        fix = "use a machine with a GPU for models of billions of parameters"
        return TORCH.note("GPU", f"{sentence}, so that models run on the CPU", fix)
    if built_for == _CPU:
        return TORCH.warning("GPU", f"{sentence}, but this machine has an NVIDIA driver", _INSTALL)
    if (hidden := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return TORCH.warning("GPU", f"{sentence}; CUDA_VISIBLE_DEVICES is '{hidden}'", "unset CUDA_VISIBLE_DEVICES")
    fix = "nvidia-smi; ask for a GPU where a queue gives them out"
    return TORCH.warning("GPU", f"{sentence}, but this machine has an NVIDIA driver", fix)


_HARNESS = "lmms_eval"
_DICOM_DATASET = "multimedeval_vindr_mammo"


def required(extra: str = "") -> list[Requirement]:
    """Return the requirements of this package on this machine, with an extra or without; none if unknown."""
    try:
        requirements = map(Requirement, importlib.metadata.requires("medtasks") or [])
    except importlib.metadata.PackageNotFoundError:
        return []
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
    ]


def harness_requirement() -> Requirement:
    """Return the requirement of the harness."""
    return next(filter(_is_harness, required()), Requirement(_HARNESS))


def _is_harness(requirement: Requirement) -> bool:
    return canonicalize_name(requirement.name) == canonicalize_name(_HARNESS)


def harness_version() -> Iterator[CheckResult]:
    """Check that the harness is installed in a version this package was made for."""
    requirement, tasks, installed = harness_requirement(), harness_folder(), installed_version(_HARNESS)
    fix = f"pip install '{requirement}'"
    if tasks is None:
        yield HARNESS.problem("version", f"lmms-eval is not installed for {sys.executable}", fix)
    elif installed is None:
        sentence = f"lmms-eval in {tasks.parent} is not installed as a package, so that its version is not known"
        yield HARNESS.warning("version", sentence, fix)
    elif requirement.specifier.contains(installed, prereleases=True):
        yield HARNESS.ok("version", f"lmms-eval {installed} in {tasks.parent} fits {requirement.specifier}")
    else:
        sentence = (
            f"lmms-eval {installed} in {tasks.parent} does not fit {requirement.specifier}, for which medtasks was made"
        )
        yield HARNESS.problem("version", sentence, fix)


def started(names: Collection[str]) -> Iterator[CheckResult]:
    """Import the harness as a run does, and check that its task index holds our tasks, groups and tags."""
    fix = f"install what it names, or all anew: pip install --force-reinstall '{harness_requirement()}'"
    try:
        importlib.import_module("lmms_eval.models")  # loads the plug-ins, ours among them
        index = importlib.import_module("lmms_eval.tasks").TaskManager().all_tasks
    except (Exception, SystemExit) as error:  # noqa: BLE001 - plug-ins of others are imported, too
        yield HARNESS.problem("start", f"the harness does not start ({one_line(error)})", fix)
        return
    missing = sorted(set(names) - set(index))
    if missing and os.environ.get(AUTOLOAD_VARIABLE, "1") != "0":
        few = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        sentence = f"{len(missing)} of {len(names)} names of ours are not in the harness's task index ({few})"
        fix = 'fix the other findings, or name our tasks with --include_path "$(medtasks path)"'
        yield HARNESS.problem("start", sentence, fix)
    else:
        yield HARNESS.ok("start", f"the harness starts and finds all {len(names)} names of ours")


def packages(scope: Scope) -> Iterator[CheckResult]:
    """Check the required packages, and those of the extras that a chosen task needs."""
    extras = ["report"] if scope.chosen and scope.metrics else []
    if scope.chosen and _DICOM_DATASET in scope.datasets and not (dataset_folder(_DICOM_DATASET) / FILE_NAME).is_file():
        extras.append("dicom")
    plain = required()
    yield from _packages(
        "required", "medtasks", State.PROBLEM, [requirement for requirement in plain if not _is_harness(requirement)]
    )
    for extra in extras:
        added = [requirement for requirement in required(extra) if requirement not in plain]
        yield from _packages(f"extra {extra}", f"medtasks[{extra}]", scope.state, added)


def _packages(name: str, who: str, state: State, requirements: Sequence[Requirement]) -> Iterator[CheckResult]:
    wrong: dict[str, str] = {}
    for requirement in requirements:
        version = installed_version(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            trouble = "not installed" if version is None else f"installed is {version}"
            wrong[f"{requirement.name}{requirement.specifier}"] = trouble
    if wrong:
        sentence = f"{who} needs {', '.join(f'{package} ({words})' for package, words in wrong.items())}"
        yield CheckResult(PACKAGES, name, state, sentence, f"pip install {' '.join(map(repr, wrong))}")
    elif requirements:
        yield PACKAGES.ok(name, f"all {len(requirements)} packages that {who} needs are installed")
