"""What the extras bring fits what the harness brings."""

import configparser
import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from .tables import each_row

ROOT = Path(__file__).parents[1]
SETUP = ROOT / "setup.cfg"
# The first version that keeps our promises, and what breaks them before. All bounds of setup.cfg were tested together.
LEAST = {
    "filelock": ("3.20.3", "lock files follow links that others place (CVE-2025-68146, CVE-2026-22701)"),
    "jinja2": ("3.1.6", "templates leave the sandbox (CVE-2025-27516)"),
    "nibabel": ("5.3", "volumes cannot be read with numpy 2"),
    "openai": ("3.5", "prompts stand in logs of level DEBUG"),
    "pillow": (
        "13",
        "resizes to other values; before 12.3 files overwrite memory (CVE-2026-25990)",
    ),
    "pyarrow": ("14.0.1", "data files run code (CVE-2023-47248)"),
    "requests": ("2.32.4", "passwords of .netrc go to other hosts (CVE-2024-47081)"),
    "setuptools": ("78.1.1", "packages write anywhere (CVE-2025-47273)"),
    "torch": ("2.10", "weights run code despite weights_only=True (CVE-2025-32434, CVE-2026-24747)"),
    "transformers": ("5.18", "beam search fails; before 5.5 config.json runs code (CVE-2026-4372, CVE-2026-5241)"),
}
# Metric packages that pull numpy below 2 or pin old versions of torch and transformers.
BREAKING = {"radeval", "f1chexbert", "ratescore", "green-score", "medspacy", "fast-bleu", "stanza"}


def _requirements(name: str, extra: str = "") -> list[Requirement]:
    environment = {**default_environment(), "extra": extra}
    found = [Requirement(line) for line in requires(name) or []]
    return [one for one in found if one.marker is None or one.marker.evaluate(environment)]


def _closure(roots: list[Requirement]) -> list[tuple[str, Requirement]]:
    """Return every requirement that ``roots`` bring, with who asks for it."""
    todo, seen, found = [("medtasks[report]", root) for root in roots], set(), []
    while todo:
        by, requirement = todo.pop()
        found.append((by, requirement))
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            todo += [(name, needed) for needed in _requirements(requirement.name)]
        except PackageNotFoundError:
            continue
    return found


@pytest.fixture(scope="module")
def report() -> list[tuple[str, Requirement]]:
    everything = _requirements("medtasks", "report")
    plain = {str(one) for one in _requirements("medtasks")}
    extra = [one for one in everything if str(one) not in plain]
    assert {one.name for one in extra} >= {"nltk", "sacrebleu"}
    return _closure(extra)


def test_report_extra_and_harness_agree_on_every_installed_version(report):
    wanted = [*report, *_closure(_requirements("lmms_eval"))]
    installed = {}
    wrong = []
    for by, requirement in wanted:
        try:
            installed[requirement.name] = Version(distribution(requirement.name).version)
        except PackageNotFoundError:
            if (by, requirement) in report:
                wrong.append(f"{by} needs {requirement}, which is not installed")
            continue
        # Only what the extra shares with the harness: the harness's own contradictions are not ours.
        shared = requirement.name.lower() in {one.name.lower() for _, one in report}
        if shared and not requirement.specifier.contains(installed[requirement.name], prereleases=True):
            wrong.append(f"{by} needs {requirement}, installed is {installed[requirement.name]}")
    assert not wrong, "; ".join(wrong)
    assert installed["numpy"] >= Version("2")
    assert installed["transformers"] >= Version("5")


def test_report_extra_brings_no_package_that_breaks_the_harness(report):
    assert not {re.sub(r"[-_.]+", "-", one.name).lower() for _, one in report} & BREAKING
    declared = SETUP.read_text(encoding="utf-8").split("[options.extras_require]")[1]
    assert not {line.strip().lower() for line in declared.splitlines()} & BREAKING


@each_row("name", LEAST)
def test_no_version_that_breaks_a_promise_is_accepted(name):
    least, reason = LEAST[name]
    setup = configparser.ConfigParser()
    setup.read(SETUP, encoding="utf-8")
    declared = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    wanted = [Requirement(line) for line in [*"\n".join(declared).split("\n"), *build] if line]
    bounds = [one.specifier for one in wanted if canonicalize_name(one.name) == name]
    assert bounds
    for specifier in bounds:
        accepted = [Version(one.version) for one in specifier if one.operator in (">=", "==", "~=")]
        assert max(accepted, default=Version("0")) >= Version(least), f"{name}{specifier}: {reason}"


def test_extras_are_called_what_the_pip_of_python_3_11_looks_for():
    """A wheel names its extras in normal form, and pip 23.2 looks for what it is asked for letter by letter."""
    setup = configparser.ConfigParser()
    setup.read(SETUP, encoding="utf-8")
    declared = set(setup["options.extras_require"])
    assert declared == {str(canonicalize_name(extra)) for extra in declared}
    rooms = [ROOT / name for name in ("medtasks", "model_adapters", "tasks_yaml", "tests")]
    pages = [ROOT / "README.md", *(page for room in rooms for page in room.rglob("*") if page.suffix in (".md", ".py"))]
    told = {
        extra
        for page in pages
        for extras in re.findall(r"""install (?:-e )?['"](?:\.|medtasks)\[([\w,.-]+)\]""", page.read_text("utf-8"))
        for extra in extras.split(",")
    }
    assert {"dev", "report", "lm-eval"} <= told <= declared
