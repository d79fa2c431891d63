"""Model plug-ins of the harness: what real child processes tell of them, and what is made of that."""

import pytest

from medtasks.audit.doctor.children import Told, told_by
from medtasks.audit.doctor.findings import PLUG_INS, State, findings_of
from medtasks.audit.doctor.plug_ins import plug_ins

from .conftest import expect, only, write_package

OURS = {
    "name": "medtasks",
    "distribution": "medtasks",
    "version": "0.1.0",
    "models": ["radfm", "hf_vlm"],
    "error": "",
    "warnings": [],
}
REGISTRY = {"error": "", "warnings": []}
NOISY = """
print('{"done": "registry"}')
from lmms_eval.models.registry_v2 import ModelManifest
manifests = [ModelManifest(model_id="noise", chat_class_path="other.Model")]
"""


def other(name="other", **fields):
    return {**OURS, "name": name, "distribution": f"{name}-dist", "version": "2.0", "models": ["m"], **fields}


def found_of(*in_order, autoload=True):
    steps = {f"plug-in {number}": one for number, one in enumerate(in_order)}
    return list(plug_ins(Told({"registry": REGISTRY, **steps}), autoload=autoload))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """What a real child tells of ours beside a printing one and three that are broken."""
    folder = tmp_path_factory.mktemp("site")
    write_package(folder, "aaa_noisy", NOISY, entry="noisy")
    write_package(folder, "bbb_wrecked", "import no_such_module\n", entry="wreck")
    write_package(folder, "ccc_wrong", "manifests = 'no manifests'\n", entry="wrong")
    write_package(folder, "ddd_leaving", "raise SystemExit('bye')\n", entry="leaving")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        return told_by("plug_ins")


def test_each_is_loaded_on_its_own(real):
    steps = {step["name"]: step for key, step in real.steps.items() if key.startswith("plug-in")}
    said = {"noisy": "", "wreck": "no_such_module", "wrong": "TypeError", "leaving": "SystemExit", "medtasks": ""}
    assert {name: said[name] in step["error"] and bool(step["error"]) for name, step in steps.items()} == {
        name: bool(words) for name, words in said.items()
    }
    assert len(steps["medtasks"]["models"]) == 6


def test_what_stands_in_the_way_of_ours(real):
    found = list(plug_ins(real, autoload=True))
    wreck = expect(only(found), State.PROBLEM, "'wreck' of bbb_wrecked 1.0", "no_such_module", "medtasks")
    assert wreck.fix.startswith("pip uninstall bbb_wrecked")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os\nprint('noise')\nos._exit(3)\n", "exit code 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "SIGSEGV"),
    ],
)
def test_one_that_ends_the_process(told, package, source, words):
    package("deadly", source, entry="deadly")
    expect(only(plug_ins(told("plug_ins"), autoload=True), "deadly"), State.PROBLEM, words, "every run")


def test_harness_whose_models_cannot_be_imported(told, monkeypatch):
    monkeypatch.setenv("LMMS_EVAL_PLUGINS", "no_such_plug_in")
    found = only(plug_ins(told("plug_ins"), autoload=True), "registry")
    expect(found, State.PROBLEM, "no_such_plug_in", fix="LMMS_EVAL_PLUGINS")


def test_one_that_does_not_end():
    begun = {**other("endless"), "begun": "plug-in 0"}
    told = Told({"registry": REGISTRY}, begun, "no end within 180 s")
    expect(only(plug_ins(told, autoload=True), "endless"), State.PROBLEM, "no end within 180 s")


def test_child_that_could_not_be_started():
    told = Told(how="it could not be started: no memory")
    expect(only(findings_of(PLUG_INS, "loading", lambda: plug_ins(told, autoload=True))), State.PROBLEM, "no memory")


@pytest.mark.parametrize(
    ("in_order", "name", "state", "words", "fix"),
    [
        ([OURS], "medtasks", State.OK, "2 models", ""),
        ([{**OURS, "models": [], "error": "ImportError: x"}], "medtasks", State.PROBLEM, "", "medtasks"),
        ([other()], "medtasks", State.PROBLEM, "", "pip install"),
        ([{**OURS, "models": [], "warnings": ["medtasks could not"]}], "medtasks", State.PROBLEM, "could not", ""),
        ([other(error="SystemExit: bye"), OURS], "other", State.PROBLEM, "every run", "pip uninstall other-dist"),
        ([OURS, other(error="ValueError: x"), other("third")], "other", State.WARNING, "hides third", ""),
        ([OURS, other(error="ValueError: x"), other("third")], "medtasks", State.OK, "", ""),
    ],
)
def test_what_is_made_of_it(in_order, name, state, words, fix):
    expect(only(found_of(*in_order), name), state, words, fix=fix)


def test_ours_switched_off_is_said_elsewhere():
    assert found_of({**OURS, "models": []}, autoload=False) == []
