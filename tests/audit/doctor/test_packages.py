"""Requirements and extras, as the installed metadata state them."""

import email
import importlib.metadata

import pytest

from medtasks.audit.doctor import packages
from medtasks.audit.doctor.findings import State

from .conftest import only

METADATA = """Metadata-Version: 2.1
Name: medtasks
Version: 0.1.0
Requires-Python: >=3.11
Requires-Dist: lmms_eval<0.8,>=0.7.3
Requires-Dist: present>=2
Requires-Dist: only-elsewhere; sys_platform == "plan9"
Provides-Extra: report
Requires-Dist: wordlist>=3; extra == "report"
Requires-Dist: sums; extra == "report"
Provides-Extra: lm_eval
Requires-Dist: lm-eval>=0.4; extra == "lm-eval"
Provides-Extra: dicom
Requires-Dist: slices; extra == "dicom"
Provides-Extra: new
Requires-Dist: novelty; extra == "new"
"""


@pytest.fixture
def installed(monkeypatch):
    """Only these distributions are installed, beside our own with the metadata above."""
    message = email.message_from_string(METADATA)

    def say(harness=(), **versions):
        def version(name):
            name = name.replace("-", "_")
            if name not in versions:
                raise importlib.metadata.PackageNotFoundError(name)
            return versions[name]

        lines = {"medtasks": message.get_all("Requires-Dist"), "lmms_eval": list(harness)}
        monkeypatch.setattr(importlib.metadata, "version", version)
        monkeypatch.setattr(importlib.metadata, "requires", lines.__getitem__)
        monkeypatch.setattr(importlib.metadata, "metadata", lambda name: message)

    return say


def test_everything_required_is_there(installed):
    installed(present="2.1rc1")
    found = only(packages.required_packages())
    assert (found.state, found.found) == (State.OK, "all 1 packages medtasks needs are installed")


@pytest.mark.parametrize(("versions", "words"), [({}, "not installed"), ({"present": "1.9"}, "installed is 1.9")])
def test_required_package(installed, versions, words):
    installed(**versions)
    found = only(packages.required_packages())
    assert (found.name, found.state, found.fix) == ("present", State.PROBLEM, "pip install 'present>=2'")
    assert words in found.found


def test_packages_of_the_harness(installed):
    installed(harness=["a>=1", "b", 'c; extra == "x"'], a="0.1", b="1")
    assert only(packages.harness_packages()).state is State.OK  # the range is the harness's own affair
    installed(harness=["a>=1", "b"], b="1")
    found = only(packages.harness_packages())
    assert (found.state, found.fix) == (State.WARNING, "pip install 'a>=1'")


def test_extras_without_tasks_are_notes(installed, everything):
    installed(wordlist="2", sums="1", lm_eval="0.4.13", slices="1")
    found = list(packages.extra_packages(everything))
    assert [(one.name, str(one.state)) for one in found] == [
        ("extra report", "note"),
        ("extra lm-eval", "ok"),
        ("extra dicom", "ok"),
        ("extra new", "note"),
    ]
    assert "wordlist>=3 (installed is 2)" in found[0].found
    assert "metrics of reports" in found[0].found
    assert "sums" not in found[0].found
    assert found[0].fix == "pip install 'medtasks[report]'"
    assert "novelty (not installed)" in found[3].found


def test_extras_of_chosen_tasks(installed, scope):
    installed()
    assert list(packages.extra_packages(scope("mediconfusion"))) == []
    found = only(packages.extra_packages(scope("multimedeval_mimic_cxr_report")))
    assert (found.name, found.state) == ("extra report", State.WARNING)
    found = only(packages.extra_packages(scope("multimedeval_vindr_mammo")))
    assert (found.name, found.state) == ("extra dicom", State.WARNING)


def test_every_extra_says_what_it_is_for(everything):
    found = list(packages.extra_packages(everything))
    assert len(found) == len(packages.extras()) >= 5
    assert [one.name for one in found if ", for " not in one.found] == []


def test_nothing_is_known_of_a_package_that_is_not_installed(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    for function in ("requires", "metadata"):
        monkeypatch.setattr(importlib.metadata, function, missing)
    assert (packages.requirements(), packages.extras(), packages.requires_python()) == ([], [], "")
    assert str(packages.harness_requirement()) == "lmms_eval"
    assert list(packages.harness_packages()) == list(packages.required_packages()) == []
