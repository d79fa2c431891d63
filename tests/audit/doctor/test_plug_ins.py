"""Model plug-ins of the harness, in real child processes: broken ones, deadly ones, and those with our names."""

import pytest

from medtasks.audit.doctor.children import Told
from medtasks.audit.doctor.findings import State
from medtasks.audit.doctor.plug_ins import plug_ins

from .conftest import expect, only

OURS = {
    "name": "medtasks",
    "distribution": "medtasks",
    "version": "0.1.0",
    "models": ["radfm", "hf_vlm"],
    "error": "",
    "warnings": [],
}
REGISTRY = {"error": "", "built_in": ["llava"], "warnings": []}
CLASSES = {"radfm": "medtasks.model_adapters.radfm.RadFM", "hf_vlm": "medtasks.model_adapters.hf_vlm.HfVlm"}
MANIFEST = """
from lmms_eval.models.registry_v2 import ModelManifest
manifests = [ModelManifest(model_id="{name}", chat_class_path="other.Model")]
"""


def looked_at(*plug_ins_in_order, classes=CLASSES, registry=REGISTRY):
    steps = {f"plug-in {number}": one for number, one in enumerate(plug_ins_in_order)}
    return Told({"registry": registry, **steps, "together": {"error": "", "classes": classes}})


def other(name="other", **fields):
    return {**OURS, "name": name, "distribution": f"{name}-dist", "version": "2.0", "models": ["m"], **fields}


def test_only_ours(told):
    expect(only(plug_ins(told("plug_ins"), autoload=True)), State.OK, "5 models", called="medtasks")


def test_broken_one_in_front_of_ours_is_named_with_its_distribution(told, package):
    package("wrecked", "import no_such_module\n", entry="wreck")
    found = expect(
        only(plug_ins(told("plug_ins"), autoload=True)),
        State.PROBLEM,
        "'wreck' of wrecked 1.0",
        "no_such_module",
        "hides medtasks",
        called="wreck",
    )
    assert found.fix.startswith("pip uninstall wrecked")


def test_each_is_loaded_on_its_own(told, package):
    package("aaa_fine", MANIFEST.format(name="fine_model"), entry="fine")
    package("bbb_wrecked", "import no_such_module\n", entry="wreck")
    steps = told("plug_ins").steps
    errors = {step["name"]: bool(step["error"]) for key, step in steps.items() if key.startswith("plug-in")}
    assert errors == {"fine": False, "wreck": True, "medtasks": False}


def test_payload_of_the_wrong_kind_is_broken_as_well(told, package):
    package("wrong", "manifests = 'no manifests'\n", entry="wrong")
    assert "TypeError" in only(plug_ins(told("plug_ins"), autoload=True)).found


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os\nprint('noise')\nos._exit(3)\n", "exit code 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "SIGSEGV"),
        ("raise SystemExit('bye')\n", "SystemExit"),
    ],
)
def test_one_that_ends_the_process(told, package, source, words):
    package("deadly", source, entry="deadly")
    expect(only(plug_ins(told("plug_ins"), autoload=True), "deadly"), State.PROBLEM, words, "every run")


def test_one_that_does_not_end():
    begun = {**other("endless"), "begun": "plug-in 0"}
    told = Told({"registry": REGISTRY}, begun, "no end within 180 s")
    found = only(plug_ins(told, autoload=True))
    assert (found.name, found.state, "no end within 180 s" in found.found) == ("endless", State.PROBLEM, True)


def test_printing_plug_ins_do_not_disturb(told, package):
    package("noisy", 'print(\'{"done": "registry"}\')\n' + MANIFEST.format(name="noisy_model"), entry="noisy")
    assert only(plug_ins(told("plug_ins"), autoload=True)).state is State.OK


def test_model_of_ours_that_another_plug_in_takes(told, package):
    package("taker", MANIFEST.format(name="radfm"), entry="taker")
    findings = list(plug_ins(told("plug_ins"), autoload=True))
    found = only(findings, "radfm")
    assert found.state is State.PROBLEM  # the harness prefers a chat model, whoever comes last
    assert "taker and by medtasks" in found.found
    assert "other.Model" in found.found
    assert "taker" in found.fix
    assert only(findings, "medtasks").state is State.OK


def test_harness_whose_models_cannot_be_imported(told, package, monkeypatch):
    monkeypatch.setenv("LMMS_EVAL_PLUGINS", "no_such_plug_in")
    expect(
        only(plug_ins(told("plug_ins"), autoload=True)),
        State.PROBLEM,
        "no_such_plug_in",
        called="registry",
        fix="LMMS_EVAL_PLUGINS",
    )


def test_broken_one_behind_ours_hides_others_only():
    found = list(plug_ins(looked_at(OURS, other(error="ValueError: x"), other("third")), autoload=True))
    assert only(found, "other").state is State.WARNING
    assert "hides third" in only(found, "other").found
    assert only(found, "medtasks").state is State.OK


@pytest.mark.parametrize(
    ("looked", "words", "fix"),
    [
        ({**OURS, "models": [], "error": "ImportError: x"}, "", "medtasks"),
        (other(), "", "pip install"),
        ({**OURS, "models": [], "warnings": ["medtasks could not register itself"]}, "could not register", ""),
    ],
    ids=["broken", "missing", "does not fit the harness"],
)
def test_ours_in_trouble(looked, words, fix):
    expect(only(plug_ins(looked_at(looked), autoload=True)), State.PROBLEM, words, fix=fix)


def test_ours_switched_off_is_said_elsewhere(told, monkeypatch):
    monkeypatch.setenv("MEDTASKS_AUTOLOAD", "0")
    assert list(plug_ins(told("plug_ins"), autoload=False)) == []


def test_shared_name_that_ours_wins_is_a_warning():
    found = list(plug_ins(looked_at(other(models=["radfm"]), OURS), autoload=True))
    assert only(found, "radfm").state is State.WARNING


def test_name_that_the_harness_has_itself():
    registry = {**REGISTRY, "built_in": ["radfm"]}
    classes = {**CLASSES, "radfm": "lmms_eval.models.chat.radfm.RadFM"}
    expect(
        only(plug_ins(looked_at(OURS, registry=registry, classes=classes), autoload=True), "radfm"),
        State.PROBLEM,
        "lmms-eval itself and by medtasks",
    )


def test_child_that_could_not_be_started():
    from medtasks.audit.doctor.findings import PLUG_INS, findings_of

    told = Told(how="it could not be started: no memory")
    expect(only(findings_of(PLUG_INS, "loading", lambda: plug_ins(told, autoload=True))), State.PROBLEM, "no memory")
