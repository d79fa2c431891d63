"""The Hub's token, and who can read replies."""

import shutil
import tempfile
from pathlib import Path

import pytest
from medtasks.model_adapters.base.journal import FOLDER_NAME as JOURNAL

from medtasks.audit.doctor.credentials import _JOURNAL, hub_token, readable_replies
from medtasks.audit.doctor.findings import State
from medtasks.data.home import home
from medtasks.harness.saved_replies import FOLDER_NAME as REPLIES
from medtasks.harness.saved_replies import save_reply

from .conftest import only

TOKEN = "hf_canary0123456789"


@pytest.fixture(autouse=True)
def no_token(monkeypatch, tmp_path):
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))


def test_token_is_never_shown(scope, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    found = only(hub_token(scope("gmai_mmbench_val")))
    assert found.state is State.OK
    assert TOKEN not in str(found)


def test_no_token(scope, everything):
    assert only(hub_token(everything)).state is State.NOTE
    found = only(hub_token(scope("gmai_mmbench_val")))
    assert found.state is State.WARNING
    assert "GMAI-MMBench" in found.found
    assert "hf auth login" in found.fix


def test_no_token_needed(scope):
    assert list(hub_token(scope("mediconfusion", "multimedeval_cbis_ddsm_mass"))) == []
    folder = home() / "datasets" / "gmai_mmbench_val"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    assert list(hub_token(scope("gmai_mmbench_val"))) == []


def test_folder_of_the_journal_is_the_adapters():
    assert _JOURNAL == JOURNAL


def test_no_replies():
    assert list(readable_replies()) == []


@pytest.fixture
def reply(monkeypatch):
    """Write one reply below a data folder with these permissions; the tests' own folders are closed to others."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    if any(parent.stat().st_mode & 0o011 != 0o011 for parent in root.parents):
        pytest.skip("the temporary folder is closed to other users")
    monkeypatch.setenv("MEDTASKS_HOME", str(root))

    def write(file, task=0o755, top=0o755, above=0o755, name=REPLIES):
        folder = root / name / "task"
        folder.mkdir(parents=True)
        path = folder / "run.jsonl"
        path.write_text("{}\n")
        for one, mode in ((path, file), (folder, task), (folder.parent, top), (root, above)):
            one.chmod(mode)

    yield write
    shutil.rmtree(root)


@pytest.mark.parametrize(
    ("modes", "open_to_others"),
    [
        ({"file": 0o644}, True),
        ({"file": 0o640}, True),
        ({"file": 0o604}, True),
        ({"file": 0o600}, False),
        ({"file": 0o644, "task": 0o700}, False),
        ({"file": 0o644, "top": 0o700}, False),
        ({"file": 0o644, "above": 0o700}, False),
        ({"file": 0o604, "top": 0o710}, False),
        ({"file": 0o640, "top": 0o710}, True),
    ],
)
@pytest.mark.parametrize("name", [REPLIES, JOURNAL])
def test_permissions(reply, modes, open_to_others, name):
    reply(**modes, name=name)
    found = only(readable_replies())
    assert found.name == name
    assert found.state is (State.WARNING if open_to_others else State.OK)
    assert not open_to_others or found.fix.startswith("chmod -R go= ")


def test_replies_as_they_are_saved():
    assert save_reply({"doc_id": "1", "dataset": "mediconfusion"}, "A")
    assert only(readable_replies()).state is State.OK
