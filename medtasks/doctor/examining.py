"""Running all checks, and those of disk, memory, PyTorch and GPUs, and of the version of the harness."""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from medtasks.doctor import check_results as areas
from medtasks.doctor import metric_models, tasks_and_data
from medtasks.doctor.check_results import HARNESS, MACHINE, TORCH, CheckResult, Scope, State, findings_of
from medtasks.errors import near_match, one_line
from medtasks.home import HOME_VARIABLE, home
from medtasks.lmms.remote_models import class_path_of
from medtasks.running.recording import installed_version
from medtasks.runs.redaction import redacted
from medtasks.tasks.task_index import harness_folder

LITTLE_DISK_GB = 5.0  # free disk, in GB (10^9 bytes), below which weights and datasets may not fit
LITTLE_MEMORY_GB = 4.0  # free memory below which few models fit
_CONTAINER_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_INSTALL = "pip install --force-reinstall torch torchvision, both from one index (https://pytorch.org/get-started)"


def examine(
    names: Sequence[str] = (), *, verify: bool = False, model: str = "", model_args: str = ""
) -> list[CheckResult]:
    """Check everything, or the needs of some tasks, groups and tags; return results by area, without secrets.

    A check that fails is one of them. To ``verify``, prepared data are read completely. The ``model`` of the harness,
    if any, is imported; the served model that ``model_args`` name is asked questions about synthetic images.
    """
    scope = Scope(tuple(names), ())  # where our task files cannot be read, nothing that depends on tasks is checked

    def find_scope() -> tuple[CheckResult, ...]:
        nonlocal scope
        scope = areas.scope_of(names)
        return ()

    findings = findings_of(areas.TASKS, "task files", find_scope)
    checks: list[tuple[str, str, areas.Check]] = [
        (HARNESS, "version", harness_version),
        (areas.TASKS, "names", lambda: tasks_and_data.names(scope)),
        (areas.TASKS, "own tasks", lambda: tasks_and_data.own_tasks(scope)),
        (TORCH, "imports", torch_stack),
        (MACHINE, "disk", disks),
        (MACHINE, "memory", memory),
        (areas.CREDENTIALS, "Hub token", lambda: tasks_and_data.hub_token(scope)),
        (areas.CREDENTIALS, "replies", tasks_and_data.readable_replies),
        (areas.CREDENTIALS, "remote models", lambda: tasks_and_data.remote_models(scope)),
        (areas.DATASETS, "prepared", lambda: tasks_and_data.prepared_data(scope, verify=verify)),
        (areas.WEIGHTS, "metrics", lambda: metric_models.metric_weights(scope)),
        (areas.JUDGE, "judge", lambda: metric_models.judge(scope)),
    ]
    if model:
        checks.append((areas.MODEL, model, lambda: importable_model(model)))
    if model_args:
        from medtasks.doctor.served_model import served_model  # imports torch, which takes seconds

        checks.append((areas.MODEL, "model", lambda: served_model(scope, model_args)))
    for area, name, check in checks:
        findings += findings_of(area, name, check)
    findings.sort(key=lambda finding: areas.AREAS.index(finding.area))
    return [replace(finding, found=redacted(finding.found), fix=redacted(finding.fix)) for finding in findings]


def disks() -> Iterator[CheckResult]:
    """Check the disks of the data folder, the Hub's cache and the temporary folder."""
    from huggingface_hub.constants import HF_HOME

    folders = ((home(), HOME_VARIABLE), (Path(HF_HOME), "HF_HOME"), (Path(tempfile.gettempdir()), "TMPDIR"))
    for name, (folder, variable) in zip(("data folder", "Hub cache", "temporary folder"), folders, strict=True):
        fix = f"make room, or export {variable}=<a folder with room>"
        existing = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
        if not existing.is_dir():
            yield MACHINE.problem(name, f"{existing} is a file and should be a folder", fix)
            continue
        try:
            with tempfile.TemporaryFile(dir=existing) as file:  # it has no name
                file.write(b"\0")
        except OSError as error:
            sentence = f"{existing} cannot be written to ({error.strerror or type(error).__name__})"
            fix = f"make {existing} writable, or export {variable}=<a folder of your own>"
            yield MACHINE.problem(name, sentence, fix)
            continue
        free = shutil.disk_usage(existing).free / 1e9
        sentence = f"{free:,.1f} GB are free for {folder}"
        yield MACHINE.warning(name, sentence, fix) if free < LITTLE_DISK_GB else MACHINE.ok(name, sentence)


def memory() -> Iterator[CheckResult]:
    """Check the free memory, at most the limit of a container."""
    texts = [path.read_text().strip() for path in _CONTAINER_LIMITS if path.is_file()]
    limits = [int(text) for text in texts if text.isdigit()]
    free = min(psutil.virtual_memory().available, *limits, float("inf")) / 1e9
    sentence, fix = f"{free:.1f} GB of memory are free", "end other programs, or use a machine with more memory"
    yield MACHINE.ok("memory", sentence) if free >= LITTLE_MEMORY_GB else MACHINE.warning("memory", sentence, fix)


def torch_stack() -> Iterator[CheckResult]:
    """Import torch and what is built against it, and ask torch for its devices."""
    modules = map(_module, ("torch", "torchvision", "transformers"))
    findings = [finding for finding in modules if finding is not None]
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
    complaints = [warning.message for warning in caught if issubclass(warning.category, UserWarning)]
    for complaint in complaints:
        sentence = f"torch says: {' '.join(str(complaint).split()).rstrip('.')}"
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
    if devices or complaints:
        return
    without_cuda = f"ROCm {torch.version.hip}" if getattr(torch.version, "hip", None) else "the CPU"
    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else without_cuda
    sentence = f"torch, built for {built_for}, finds no GPU"
    if shutil.which("nvidia-smi") is None:
        fix = "use a machine with a GPU for models of billions of parameters"
        yield TORCH.note("GPU", f"{sentence}, so that models run on the CPU", fix)
    elif (hidden := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None and built_for != "the CPU":
        yield TORCH.warning("GPU", f"{sentence}; CUDA_VISIBLE_DEVICES is '{hidden}'", "unset CUDA_VISIBLE_DEVICES")
    else:
        fix = _INSTALL if built_for == "the CPU" else "nvidia-smi; ask for a GPU where a queue gives them out"
        yield TORCH.warning("GPU", f"{sentence}, but this machine has an NVIDIA driver", fix)


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


def importable_model(name: str) -> Iterator[CheckResult]:
    """Check that a model of the harness exists, and that the packages it imports are installed."""
    path = class_path_of(name)
    if not path:
        from lmms_eval.models import MODEL_REGISTRY_V2

        hint = near_match(name, MODEL_REGISTRY_V2.list_model_names())
        yield areas.MODEL.problem(name, f"there is no model '{name}'{hint}", "lmms-eval models lists all")
        return
    module, _, class_name = path.rpartition(".")
    try:
        getattr(importlib.import_module(module), class_name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        sentence = f"the model '{name}' needs the package '{package}', which is not installed"
        yield areas.MODEL.problem(name, sentence, f"pip install {package}")
    except Exception as error:  # noqa: BLE001 - a model's module can fail in any way
        sentence = f"the model '{name}' cannot be imported ({one_line(error)})"
        yield areas.MODEL.problem(name, sentence, "install what its page in lmms-eval asks for")
    else:
        yield areas.MODEL.ok(name, f"the model '{name}' can be imported ({path})")


def harness_version() -> Iterator[CheckResult]:
    """Check that the harness is installed in a version this package was made for."""
    requirement = Requirement("lmms_eval")
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        ours = map(Requirement, importlib.metadata.requires("medtasks") or [])
        requirement = next((own for own in ours if canonicalize_name(own.name) == "lmms-eval"), requirement)
    tasks, installed, fix = harness_folder(), installed_version("lmms_eval"), f"pip install '{requirement}'"
    if tasks is None:
        yield HARNESS.problem("version", f"lmms-eval is not installed for {sys.executable}", fix)
    elif installed is None:
        sentence = f"lmms-eval in {tasks.parent} is not installed as a package, so that its version is not known"
        yield HARNESS.warning("version", sentence, fix)
    elif requirement.specifier.contains(installed, prereleases=True):
        yield HARNESS.ok("version", f"lmms-eval {installed} in {tasks.parent} fits {requirement.specifier}")
    else:
        unfit = f"lmms-eval {installed} in {tasks.parent} does not fit {requirement.specifier}"
        yield HARNESS.problem("version", f"{unfit}, for which medtasks was made", fix)
