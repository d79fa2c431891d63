"""Names that collide, every state a dataset can be in, the Hub's token, and who may see replies and records."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_manifest import Manifest
from medtasks.doctor import tasks_and_data
from medtasks.doctor.check_results import Scope, State, scope_of
from medtasks.doctor.tasks_and_data import (
    hub_token,
    names,
    prepared_data,
    readable_replies,
    remote_models,
)
from medtasks.home import dataset_folder, own_tasks_folder
from medtasks.home import home as home_folder
from medtasks.net.journal import FOLDER_NAME as JOURNAL
from medtasks.runs.logged_samples import FOLDER_NAME as REPLIES
from medtasks.runs.logged_samples import save_reply
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_file, task_files

from ..tables import each_row
from .findings import EVERYTHING, expect, only, states

NAME = "mediconfusion"
PRIVATE, PUBLIC = "multimedeval_mimic_cxr_report", "multimedeval_vqa_rad"
TRUSTED = "MEDTASKS_TRUSTED_MODEL"

# Names of tasks


@pytest.fixture
def harness(tmp_path, monkeypatch):
    """Write task files of a harness that has no others; each text is a file of its own."""

    def write(*texts):
        tasks = tmp_path / "lmms_eval" / "tasks"
        shutil.rmtree(tasks, ignore_errors=True)
        monkeypatch.setattr(tasks_and_data, "harness_folder", lambda: tasks)
        (tasks / "deep" / "er").mkdir(parents=True)
        for number, text in enumerate(texts):
            path = tasks / "deep" / "er" / f"{number}.yaml"
            path.write_text(text)
        return path

    return write


@each_row(
    "text, name",
    [
        ("task: mediconfusion\ndataset_path: x\n", "mediconfusion"),
        ("group: multimedeval\ntask:\n- a\n- b\n", "multimedeval"),
        ("task: a\ntag:\n- b\n- multimedeval_qa\n", "multimedeval_qa"),
        ("task: medevalkit_pmc_vqa_ll\n", "medevalkit_pmc_vqa_ll"),  # of variants.yml
        ("# task: mediconfusion\ntask: a\ndescription: unlike mediconfusion\n", None),
        ("group: a\ntask: [mediconfusion]\n", None),  # selects ours and defines nothing
        ("task: a\nclass: b\ntag: multimedeval_qa\n", None),  # a Python task has no tags
        ("task: mediconfusion\n  broken: [\n", None),
    ],
)
def test_collision(harness, text, name):
    path = harness("task: mme\n", text)
    finding = only(names(EVERYTHING))
    if name is None:
        assert finding.state is State.OK
    else:
        expect(finding, State.PROBLEM, str(path), called=name, fix=str(path))


def test_collisions_of_chosen_tasks_and_of_the_users(harness, monkeypatch):
    tasks = task_files()
    ours = {*tasks, *(tag for task in tasks.values() for tag in task.tags)}
    expect(
        only(names(EVERYTHING)), State.OK, f"names of ours ({len(ours)})"
    )  # in the installed harness

    def taken(scope=EVERYTHING):
        return {finding.name for finding in names(scope) if finding.state is State.PROBLEM}

    harness("task: mediconfusion\ntag: multimedeval_qa\n", "task: multimedeval_mine\n")
    assert taken(scope_of(["mediconfusion_all"])) == {"mediconfusion"}
    assert taken(scope_of(["multimedeval_qa"])) == {"multimedeval_qa"}
    assert taken(scope_of(["iu_xray_report"])) == set()
    own_tasks_folder().mkdir(parents=True)
    (own_tasks_folder() / "mine.yaml").write_text("task: multimedeval_mine\n")
    assert taken() == {"mediconfusion", "multimedeval_qa", "multimedeval_mine"}
    harness("task: mme\n")
    for name in ("mediconfusion", "medevalkit_pmc_vqa_ll"):
        (own_tasks_folder() / "mine.yaml").write_text(f"task: {name}\n")
        expect(only(names(EVERYTHING), name), State.PROBLEM, "mine.yaml")
    monkeypatch.setattr(tasks_and_data, "harness_folder", lambda: None)
    expect(only(names(EVERYTHING)), State.PROBLEM, fix="pip install")
    # Names that are not ours.
    harness("task: mme\ntag: their_tag\n")
    findings = list(names(scope_of(["mme", "mediconfusoin", "mediconfusion", "their_tag"])))[
        -3:
    ]
    assert states(findings) == {
        "mme": State.NOTE,
        "mediconfusoin": State.PROBLEM,
        "their_tag": State.NOTE,
    }
    assert "did you mean 'mediconfusion'?" in findings[1].found


# Prepared data


@pytest.fixture
def home(sample_home, tmp_path, monkeypatch):
    shutil.copytree(sample_home, tmp_path / "home")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))


def change(folder=NAME, /, **fields):
    path = dataset_folder(folder) / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def look(name=NAME, verify=False):
    task = TaskFile(name, "task", own_tasks_folder() / f"{name}.yaml", "", dataset=name)
    return only(prepared_data(Scope((name,), (task,)), verify=verify), name)


def test_states_of_a_dataset(home):
    expect(look(), State.WARNING, "synthetic sample", fix="medtasks data prepare mediconfusion")
    change(sample=False)
    fingerprint = Manifest.read(dataset_folder(NAME)).fingerprint
    expect(look(), State.OK, "is prepared", "32 questions", fingerprint)
    expect(look(verify=True), State.OK, "is verified", "32 questions", fingerprint)
    image = next((dataset_folder(NAME) / "images").rglob("*.jpg"))
    image.write_bytes(image.read_bytes() + b"\0")
    assert look().state is State.OK
    expect(look(verify=True), State.PROBLEM, "1 difference", image.name)
    change(
        complete=False, left_out=["pair 3: no image", "pair 4: no image", "pair 5: no image"]
    )
    expect(look(), State.WARNING, "incomplete (pair 3: no image; pair 4: no image ...)")
    change(rows=352)
    expect(look(), State.PROBLEM, "holds 32 questions, and its manifest says 352")
    (table,) = (dataset_folder(NAME) / "test").glob("*.arrow")
    table.write_bytes(b"nothing of the kind")
    expect(look(), State.PROBLEM, "damaged")
    (dataset_folder(NAME) / "manifest.json").write_text("{")
    expect(look(), State.PROBLEM, "damaged", fix="medtasks data prepare mediconfusion")


def test_how_to_prepare():
    own_tasks_folder().mkdir(parents=True, exist_ok=True)
    (own_tasks_folder() / "mine.yaml").write_text("task: mine\n")
    physionet = "--source DIR, with the data from https://physionet.org"
    for name, words in (
        ("mediconfusion", "medtasks data prepare mediconfusion"),
        ("multimedeval_mednli", physionet),
        ("gmai_mmbench_val", "accept the terms on https://huggingface.co"),
        ("mine", "--from-folder DIR"),
    ):
        expect(look(name), State.PROBLEM, "is not", fix=words)


def test_private_data_show_no_name(home):
    own = "multimedeval_canaryward"
    shutil.move(dataset_folder(NAME), dataset_folder(own))
    fields = {"name": own, "sample": False, "complete": False, "access": "credentialed"}
    change(own, **fields, left_out=["canary-patient-7.jpg is gone"])
    assert "canary-patient" not in str(expect(look(own), State.WARNING, "incomplete"))
    shutil.rmtree(dataset_folder(own) / "images")
    finding = expect(
        look(own, verify=True), State.PROBLEM, "differences from what was prepared"
    )
    assert ".jpg" not in str(finding)


def test_several_datasets_and_a_part_of_one(home, monkeypatch):
    findings = list(prepared_data(EVERYTHING, verify=False))
    assert states(findings) == {NAME: State.WARNING, "not prepared": State.NOTE}
    assert (
        f"of {len(CATALOGUE)} datasets {len(CATALOGUE) - 1} are not prepared"
        in findings[1].found
    )
    shutil.copytree(dataset_folder(NAME), dataset_folder("part"))
    change("part", name="part", sample=False, selected_from=NAME)
    assert look("part").state is State.OK
    change("part", rows=5)
    assert look("part").fix == "medtasks data select mediconfusion ... --as part"

    monkeypatch.setattr(
        tasks_and_data, "open_documents", Mock(side_effect=MemoryError("canary"))
    )
    tasks = (task_file("mediconfusion"), task_file("multimedeval_medqa"))
    first, second = prepared_data(Scope(("a",), tasks), verify=False)
    assert (first.state, "MemoryError" in first.found, "canary" in first.found) == (
        State.PROBLEM,
        True,
        False,
    )
    assert "not prepared" in second.found
    shutil.rmtree(dataset_folder(NAME))
    assert expect(look("part"), State.PROBLEM, NAME).fix


# Who may see what


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, tmp_path):
    """No token, address and proxy but those a test names."""
    names = (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "OPENAI_API_BASE",
        "OPENAI_BASE_URL",
        TRUSTED,
    )
    proxies = (
        "HTTP_PROXY",
        "http_proxy",
        "ALL_PROXY",
        "all_proxy",
        "HTTPS_PROXY",
        "https_proxy",
    )
    for name in (*names, *proxies):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))


def test_hub_token(monkeypatch):
    gated, token = scope_of(["gmai_mmbench_val"]), "hf_canary0123456789"
    assert only(hub_token(EVERYTHING)).state is State.NOTE
    expect(only(hub_token(gated)), State.WARNING, "GMAI-MMBench", fix="hf auth login")
    assert list(hub_token(scope_of(["mediconfusion", "multimedeval_cbis_ddsm_mass"]))) == []
    monkeypatch.setenv("HF_TOKEN", token)
    assert token not in str(expect(only(hub_token(gated)), State.OK))
    monkeypatch.delenv("HF_TOKEN")
    dataset_folder("gmai_mmbench_val").mkdir(parents=True)
    (dataset_folder("gmai_mmbench_val") / "manifest.json").write_text("{}")
    assert list(hub_token(gated)) == []


@each_row(
    "name, file_mode, folder_mode, state",
    [
        (REPLIES, 0o644, 0o755, State.WARNING),
        (JOURNAL, 0o640, 0o710, State.WARNING),
        (f"datasets/{PRIVATE}", 0o604, 0o701, State.WARNING),
        (REPLIES, 0o600, 0o755, State.OK),
        (REPLIES, 0o644, 0o700, State.OK),
    ],
)
def test_permissions(name, file_mode, folder_mode, state):
    file = home_folder() / name / "task" / "run.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    file.chmod(file_mode)
    file.parent.chmod(folder_mode)
    file.parents[1].chmod(0o755)
    fix = "chmod -R go= " if state is State.WARNING else ""
    expect(only(readable_replies()), state, called=Path(name).name, fix=fix)
    shutil.rmtree(home_folder() / name)


def test_a_data_folder_that_others_may_list(monkeypatch, tmp_path):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "mine"))
    assert list(readable_replies()) == []
    (tmp_path / "mine").mkdir()
    for mode, others in ((0o700, 0), (0o750, 1), (0o755, 1)):
        (tmp_path / "mine").chmod(mode)
        findings = list(readable_replies())
        assert [finding.state for finding in findings] == [State.NOTE] * others
        assert all(f"has the mode {mode:o}" in finding.found for finding in findings)
        assert (tmp_path / "mine").stat().st_mode & 0o777 == mode


def test_replies_as_they_are_saved_and_public_data():
    dataset_folder(PUBLIC).mkdir(parents=True)
    (dataset_folder(PUBLIC) / "manifest.json").touch(0o644)
    assert list(readable_replies()) == []
    assert save_reply({"doc_id": "1", "dataset": "mediconfusion"}, "A")
    assert only(readable_replies()).state is State.OK


def test_models_that_may_see_credentialed_data(monkeypatch):
    private, public = scope_of([PRIVATE]), scope_of([PUBLIC])
    assert list(remote_models(private)) == []
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    assert list(remote_models(public)) == []
    proxy = "the proxy that HTTP_PROXY names"
    expect(only(remote_models(private)), State.WARNING, proxy, fix="add 127.0.0.1 to NO_PROXY")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert list(remote_models(private)) == []
    monkeypatch.setenv(TRUSTED, "http://api.vendor.invalid")
    expect(
        only(remote_models(private)),
        State.NOTE,
        "http://api.vendor.invalid:80",
        PRIVATE,
        called=TRUSTED,
    )
    for malformed in ("yes", "http://user:PLANTED@api.vendor.invalid"):
        monkeypatch.setenv(TRUSTED, malformed)
        finding = expect(
            only(remote_models(private)), State.PROBLEM, called=TRUSTED, fix="http(s)://host"
        )
        assert "PLANTED" not in str(finding)
