"""The Hub's token, who can read replies, and models on other machines and data that must not go there."""

import shutil
from pathlib import Path

import pytest

from medtasks.audit.doctor.check_results import State
from medtasks.audit.doctor.datasets import hub_token, readable_replies, remote_models
from medtasks.home import home
from medtasks.net.journal import FOLDER_NAME as JOURNAL
from medtasks.runs.logged_samples import FOLDER_NAME as REPLIES
from medtasks.runs.logged_samples import save_reply

from ...tables import each_row
from .conftest import expect, only

TOKEN = "hf_canary0123456789"
PRIVATE, PUBLIC = "multimedeval_mimic_cxr_report", "multimedeval_vqa_rad"
TRUSTED = "MEDTASKS_TRUSTED_MODEL"


@pytest.fixture(autouse=True)
def no_token(monkeypatch, tmp_path):
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))


def test_token_is_never_shown(scope, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    found = expect(only(hub_token(scope("gmai_mmbench_val"))), State.OK)
    assert TOKEN not in str(found)


def test_no_token(scope, everything):
    assert only(hub_token(everything)).state is State.NOTE
    expect(only(hub_token(scope("gmai_mmbench_val"))), State.WARNING, "GMAI-MMBench", fix="hf auth login")


def test_no_token_needed(scope):
    assert list(hub_token(scope("mediconfusion", "multimedeval_cbis_ddsm_mass"))) == []
    folder = home() / "datasets" / "gmai_mmbench_val"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    assert list(hub_token(scope("gmai_mmbench_val"))) == []


def test_no_replies():
    assert list(readable_replies()) == []


MODES = (
    (0o644, 0o755, State.WARNING),
    (0o640, 0o710, State.WARNING),
    (0o604, 0o701, State.WARNING),
    (0o600, 0o755, State.OK),
    (0o644, 0o700, State.OK),
)


@each_row(
    "name, file_mode, folder_mode, state",
    [(name, *modes) for name in (REPLIES, JOURNAL, f"datasets/{PRIVATE}") for modes in MODES],
)
def test_permissions(name, file_mode, folder_mode, state):
    file = home() / name / "task" / "run.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    file.chmod(file_mode)
    file.parent.chmod(folder_mode)
    file.parents[1].chmod(0o755)
    expect(
        only(readable_replies()), state, called=Path(name).name, fix="chmod -R go= " if state is State.WARNING else ""
    )
    shutil.rmtree(home() / name)


def test_public_data_may_be_open():
    (home() / "datasets" / PUBLIC).mkdir(parents=True)
    (home() / "datasets" / PUBLIC / "manifest.json").touch(0o644)
    assert list(readable_replies()) == []


def test_replies_as_they_are_saved():
    assert save_reply({"doc_id": "1", "dataset": "mediconfusion"}, "A")
    assert only(readable_replies()).state is State.OK


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    """No address and no proxy but those a test names."""
    told = ("OPENAI_API_BASE", "OPENAI_BASE_URL", "MEDTASKS_TRUSTED_MODEL")
    for name in [*told, "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"]:
        monkeypatch.delenv(name, raising=False)


def test_data_that_may_go_anywhere_or_stays_here(scope, monkeypatch):
    assert list(remote_models(scope(PRIVATE))) == []
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    assert list(remote_models(scope(PUBLIC))) == []


def test_a_trusted_server(scope, monkeypatch):
    monkeypatch.setenv(TRUSTED, "http://api.vendor.invalid")
    trusted = only(remote_models(scope(PRIVATE)))
    assert (trusted.name, trusted.state) == (TRUSTED, State.NOTE)
    assert "http://api.vendor.invalid:80" in trusted.found
    assert PRIVATE in trusted.found


@each_row("malformed", ["yes", "api.vendor.invalid", "http://user:PLANTED@api.vendor.invalid"])
def test_a_trusted_server_that_is_none(scope, monkeypatch, malformed):
    monkeypatch.setenv(TRUSTED, malformed)
    found = only(remote_models(scope(PRIVATE)))
    assert (found.name, found.state) == (TRUSTED, State.PROBLEM)
    assert "http(s)://host" in found.fix
    assert "PLANTED" not in found.found + found.fix


def test_a_proxy_on_the_way_to_this_machine(scope, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    proxy = only(remote_models(scope(PRIVATE)))
    assert proxy.state is State.WARNING
    assert "the proxy that HTTP_PROXY names" in proxy.found
    assert "add 127.0.0.1 to NO_PROXY" in proxy.fix
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert list(remote_models(scope(PRIVATE))) == []
