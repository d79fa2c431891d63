"""What the extras bring fits what the harness brings."""

import configparser
import contextlib
import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

import pytest
import torch
from medtasks.model_adapters.base.checkpoints import stored_tensors
from medtasks.model_adapters.hf_vlm import HfVlm
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from medtasks.errors import MedTasksError
from medtasks.metrics.neural.text_encoders import check_configuration
from medtasks.version import ARCHITECTURES_NEED

from .tables import each_row

ROOT = Path(__file__).parents[1]
SETUP = ROOT / "setup.cfg"
# The first version that keeps our promises, and what breaks them before. All bounds of setup.cfg were tested together.
LEAST = {
    "datasets": (
        "4.8",
        "files in archives of credentialed data are not found; before 4.7 mixed columns are an error",
    ),
    "filelock": (
        "3.20.3",
        "lock files follow links that others place (CVE-2025-68146, CVE-2026-22701)",
    ),
    "jinja2": ("3.1.6", "templates leave the sandbox (CVE-2025-27516)"),
    "nibabel": ("5.3", "volumes cannot be read with numpy 2"),
    "numpy": ("2", "pyarrow 26 needs it without saying so"),
    "pillow": ("12.3", "files overwrite memory (CVE-2026-25990)"),
    "pyarrow": ("14.0.1", "data files run code (CVE-2023-47248)"),
    "pydicom": ("3.0.1", "images of floats are refused"),
    "python-gdcm": ("3.2", "damaged JPEG 2000 images of DICOM files are shown as noise"),
    "requests": ("2.32.4", "passwords of .netrc go to other hosts (CVE-2024-47081)"),
    "setuptools": ("78.1.1", "packages write anywhere (CVE-2025-47273)"),
    "torch": (
        "2.6",
        "padding on the left is unknown; before 2.5 models of transformers 4.52 cannot be built",
    ),
}
# Metric packages that pull numpy below 2 or pin old versions of torch and transformers.
BREAKING = {
    "radeval",
    "f1chexbert",
    "ratescore",
    "green-score",
    "medspacy",
    "fast-bleu",
    "stanza",
}


def _requirements(name: str, extra: str = "") -> list[Requirement]:
    environment = {**default_environment(), "extra": extra}
    requirements = [Requirement(line) for line in requires(name) or []]
    return [
        item
        for item in requirements
        if item.marker is None or item.marker.evaluate(environment)
    ]


def _closure(roots: list[Requirement]) -> list[tuple[str, Requirement]]:
    """Return every requirement that ``roots`` bring, with who asks for it."""
    todo, seen, closure = [("medtasks[report]", root) for root in roots], set(), []
    while todo:
        by, requirement = todo.pop()
        closure.append((by, requirement))
        name = canonicalize_name(requirement.name)
        if name not in seen:
            seen.add(name)
            with contextlib.suppress(PackageNotFoundError):
                todo += [(name, needed) for needed in _requirements(requirement.name)]
    return closure


def test_report_extra_and_harness_agree_on_every_installed_version():
    plain = {str(item) for item in _requirements("medtasks")}
    extra = [item for item in _requirements("medtasks", "report") if str(item) not in plain]
    assert {item.name for item in extra} >= {"nltk", "sacrebleu"}
    report = _closure(extra)
    # Only what the extra shares with the harness: the harness's own contradictions are not ours.
    names = {canonicalize_name(item.name) for _, item in report}
    assert not names & BREAKING
    wrong = []
    for by, requirement in [*report, *_closure(_requirements("lmms_eval"))]:
        try:
            installed = Version(distribution(requirement.name).version)
        except PackageNotFoundError:
            if (by, requirement) in report:
                wrong.append(f"{by} needs {requirement}, which is not installed")
            continue
        shared = canonicalize_name(requirement.name) in names
        if shared and not requirement.specifier.contains(installed, prereleases=True):
            wrong.append(f"{by} needs {requirement}, installed is {installed}")
    assert not wrong, "; ".join(wrong)
    assert Version(distribution("numpy").version) >= Version("2")
    declared = SETUP.read_text(encoding="utf-8").split("[options.extras_require]")[1]
    assert not {line.strip().lower() for line in declared.splitlines()} & BREAKING


@each_row("name", LEAST)
def test_no_version_that_breaks_a_promise_is_accepted(name):
    least, reason = LEAST[name]
    setup = configparser.ConfigParser()
    setup.read(SETUP, encoding="utf-8")
    declared = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"][
        "requires"
    ]
    wanted = [Requirement(line) for line in [*"\n".join(declared).split("\n"), *build] if line]
    bounds = [one.specifier for one in wanted if canonicalize_name(one.name) == name]
    assert bounds
    for specifier in bounds:
        accepted = [
            Version(one.version) for one in specifier if one.operator in (">=", "==", "~=")
        ]
        assert max(accepted, default=Version("0")) >= Version(least), (
            f"{name}{specifier}: {reason}"
        )


def test_what_one_part_needs_is_checked_where_it_starts(tmp_path, monkeypatch):
    """Weights and configurations that may run code with old versions, and models that answer otherwise with them."""
    versions = {"torch": "2.8.0", "transformers": "4.57.6"}
    monkeypatch.setattr("medtasks.version.metadata.version", versions.__getitem__)
    torch.save({"a": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(
        '{"vision_config": {"_attn\\u005fimplementation_internal": "a/b"}}'
    )
    checks = {
        "torch 2.10 or newer, and 2.8.0": lambda: list(stored_tensors(tmp_path)),
        "transformers 5.5 or newer, and 4.57.6": lambda: check_configuration(tmp_path),
        "hf_vlm needs torch 2.10 or newer": HfVlm.check_versions,
    }
    for sentence, check in checks.items():
        with pytest.raises(MedTasksError, match=re.escape(sentence)):
            check()
    versions |= ARCHITECTURES_NEED
    for check in checks.values():
        check()
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    versions["transformers"] = "4.57.6"
    check_configuration(tmp_path)
    with pytest.raises(MedTasksError, match=re.escape("pip install 'transformers>=5.18'")):
        HfVlm.check_versions()


def test_notice_names_every_repository_whose_prompts_are_shipped():
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    prompts = (ROOT / "medtasks" / "judges" / "prompts.toml").read_text(encoding="utf-8")
    sources = set(re.findall(r"(https://github\.com/[\w-]+/[\w-]+) at (\w+)\.", prompts))
    assert len(sources) == 5
    assert [source for source, commit in sources if f"{source} at {commit}" not in notice] == []
    assert all((ROOT / path).is_file() for path in re.findall(r"medtasks/[\w/]+\.\w+", notice))
    assert SETUP.read_text(encoding="utf-8").split("license_files =")[1].split()[:2] == [
        "LICENSE",
        "NOTICE",
    ]
