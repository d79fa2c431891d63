"""The harness: its version, the places of it this package relies on, and the command that starts it."""

import ast
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.specifiers import SpecifierSet

from medtasks import __version__
from medtasks.audit.doctor.child_process import Told
from medtasks.audit.doctor.findings import HARNESS, Finding
from medtasks.audit.doctor.packages import HARNESS_PACKAGE, harness_requirement, requires_python
from medtasks.audit.facts import installed_version
from medtasks.errors import MedTasksError
from medtasks.harness import AUTOLOAD_VARIABLE

COMMAND = "lmms_eval"
_COMMAND_TARGET = "lmms_eval.cli.dispatch:main"
_INTERPRETER = re.compile(r"^(?:#!\s*|'''exec' \"?)(/[^\s\"]*python[^\s\"/]*)", re.MULTILINE)

# What this package takes from the harness beyond its documented interface: name, file, parameters, what for.
SEAMS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "TaskManager.initialize_tasks": ("tasks/__init__.py", ("include_path", "include_defaults"), "our tasks are found"),
    "TaskManager.match_tasks": ("tasks/__init__.py", (), "our tasks are found"),
    "TaskManager._get_config": ("tasks/__init__.py", ("name",), "sanity variants of our tasks are found"),
    "ConfigurableTask.override_metric": ("api/task.py", (), "patients' text stays out of logs with --predict_only"),
    "ModelManifest": ("models/registry_v2.py", (), "our model adapters are found"),
    "lmms": ("api/model.py", (), "our model adapters are accepted"),
    "GenerationResult": ("api/instance.py", (), "our model adapters can answer"),
}


def harness_folder() -> Path:
    """Return the folder of the harness that Python would import, without importing it; MedTasksError: there is none."""
    spec = importlib.util.find_spec(HARNESS_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    if not folders:
        raise MedTasksError(f"lmms-eval is not installed for {sys.executable}; pip install '{harness_requirement()}'")
    return Path(folders[0])


def python_version() -> Iterator[Finding]:
    """Look at the version of Python."""
    wanted = requires_python()
    version = platform.python_version()
    if SpecifierSet(wanted).contains(version, prereleases=True):
        yield HARNESS.ok("Python", f"Python {version} of {sys.executable}")
        return
    found = f"Python {version} of {sys.executable} does not fit {wanted}, which medtasks {__version__} needs"
    yield HARNESS.problem(
        "Python", found, f"make a virtual environment with a Python {wanted} and install medtasks there"
    )


def own_version() -> Iterator[Finding]:
    """Look at whether the installed package is the one that runs."""
    installed = installed_version("medtasks")
    if installed is None:
        found = f"medtasks {__version__} is not installed for {sys.executable}, so that the harness cannot find it"
        yield HARNESS.problem("medtasks", found, "pip install medtasks, or in a clone: pip install -e .")
        return
    if installed == __version__:
        yield HARNESS.ok("medtasks", f"medtasks {__version__} is installed")
    else:
        fix = "pip install --force-reinstall --no-deps medtasks, or in a clone: pip install -e ."
        yield HARNESS.warning("medtasks", f"medtasks {__version__} runs, but {installed} is the installed version", fix)


def harness_version() -> Iterator[Finding]:
    """Look at whether the harness is there, in a version this package was made for."""
    folder = harness_folder()
    wanted = harness_requirement()
    fix = f"pip install '{wanted}'"
    installed = installed_version(HARNESS_PACKAGE)
    if installed is None:
        found = f"lmms-eval in {folder} is not installed as a package, so that its version is not known"
        yield HARNESS.warning("version", found, fix)
        return
    if wanted.specifier.contains(installed, prereleases=True):
        yield HARNESS.ok("version", f"lmms-eval {installed} in {folder} fits {wanted.specifier}")
    else:
        found = f"lmms-eval {installed} in {folder} does not fit {wanted.specifier}, for which medtasks was made"
        yield HARNESS.problem("version", found, fix)


def seams() -> Iterator[Finding]:
    """Look for what this package takes from the harness, in its source: importing it would take ten seconds."""
    folder = harness_folder()
    lost = False
    for name, (file, parameters, purpose) in SEAMS.items():
        lacking = _lacking(folder / file, name, parameters)
        if lacking:
            lost = True
            found = f"lmms-eval in {folder} has no {lacking} in {file}, by which {purpose}"
            yield HARNESS.problem("seams", found, f"pip install '{harness_requirement()}'")
    if not lost:
        yield HARNESS.ok("seams", f"the {len(SEAMS)} places this package relies on are there")


def command() -> Iterator[Finding]:
    """Look at which ``lmms_eval`` a shell would start, and with which Python."""
    name = f"command {COMMAND}"
    path = shutil.which(COMMAND)
    if path is None:
        beside = Path(sys.executable).with_name(COMMAND)
        fix = f'export PATH="{beside.parent}:$PATH"' if beside.exists() else "pip install --force-reinstall medtasks"
        python = Path(sys.executable).name
        found = f"there is no {COMMAND} on PATH; 'medtasks run' and '{python} -m lmms_eval' do without"
        yield HARNESS.warning(name, found, fix)
        return
    interpreter = _interpreter(Path(path))
    if interpreter and _folder(interpreter) != _folder(sys.executable):
        found = f"{path} starts {interpreter}, not {sys.executable}, for which this medtasks is installed"
        yield HARNESS.warning(name, found, f'export PATH="{Path(sys.executable).parent}:$PATH"')
        return
    owners = {
        point.dist.name if point.dist else "an unknown package": point.value
        for point in importlib.metadata.entry_points(group="console_scripts", name=COMMAND)
    }
    strange = [f"{owner} ({target})" for owner, target in owners.items() if target != _COMMAND_TARGET]
    if strange:
        found = f"{path} may be the command of {', '.join(strange)}, which does not start lmms-eval"
        yield HARNESS.warning(name, found, "use 'medtasks run', or python -m lmms_eval")
        return
    owner = " and ".join(sorted(owners)) or "no installed package"
    yield HARNESS.ok(name, f"{path} is the command of {owner}")


def autoloads() -> bool:
    """Return whether the user lets our plug-in register anything."""
    return os.environ.get(AUTOLOAD_VARIABLE, "1") != "0"


def autoload() -> Iterator[Finding]:
    """Look at whether the user has switched the plug-in off."""
    if not autoloads():
        found = f"{AUTOLOAD_VARIABLE}=0 hides our tasks and models from the harness"
        yield HARNESS.warning(AUTOLOAD_VARIABLE, found, f"unset {AUTOLOAD_VARIABLE}")


def started(told: Told, tasks: int) -> Iterator[Finding]:
    """Look at which of our ``tasks``, groups and tags the harness's own index held, as the child ``harness`` told."""
    index = told.step("index")
    if index["error"]:
        fix = f"install what it names, or all anew: pip install --force-reinstall '{harness_requirement()}'"
        yield HARNESS.problem("start", f"the harness does not start ({index['error']})", fix)
        return
    missing: list[str] = index["missing"]
    if missing:
        few = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        found = f"{len(missing)} of {tasks} names of ours are not in the harness's task index ({few})"
        fix = 'mend the other findings, or name our tasks with --include_path "$(medtasks path)"'
        yield HARNESS.problem("start", found, fix)
    else:
        yield HARNESS.ok("start", f"the harness starts and finds all {tasks} names of ours")


def _lacking(path: Path, name: str, parameters: tuple[str, ...]) -> str:
    """Return what a source file lacks of a class, of its method and of the method's parameters; empty if nothing."""
    outer, _, inner = name.partition(".")
    tree = ast.parse(path.read_bytes()) if path.is_file() else ast.Module([], [])
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if outer not in classes or not inner:
        return "" if outer in classes else outer
    method = _method(classes, outer, inner)
    if method is None:
        return name
    known = {argument.arg for argument in (*method.args.args, *method.args.kwonlyargs)}
    missing = [parameter for parameter in parameters if parameter not in known]
    return f"{name}({', '.join(missing)})" if missing else ""


def _method(classes: Mapping[str, ast.ClassDef], name: str, method: str) -> ast.FunctionDef | None:
    """Return a method of a class, or of one it inherits from in the same file."""
    if name not in classes:
        return None
    own = [node for node in classes[name].body if isinstance(node, ast.FunctionDef) and node.name == method]
    bases = [base.id for base in classes[name].bases if isinstance(base, ast.Name)]
    found = (inherited for base in bases if (inherited := _method(classes, base, method)))
    return own[-1] if own else next(found, None)


def _interpreter(path: Path) -> str | None:
    """Return the Python a console script names in its first lines, if it names one."""
    with path.open("rb") as stream:
        head = stream.read(500).decode(errors="replace")
    found = _INTERPRETER.search(head)
    return found[1] if found else None


def _folder(path: str) -> str:
    return os.path.realpath(os.path.dirname(path))  # not that of the file: all virtual environments link to one Python
