"""``medtasks data``: list, prepare, verify, where, sample."""

import os
import shutil

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    monkeypatch.setenv("MEDTASKS_HOME", str(folder))
    return folder


@pytest.fixture
def final(home):
    return home / "datasets" / "mediconfusion"


@pytest.fixture
def source(sample_home, tmp_path):
    return shutil.copytree(sample_home / "source" / "mediconfusion", tmp_path / "source")


def state(ran):
    (line,) = [line for line in ran.out.splitlines() if line.startswith("mediconfusion ")]
    return line.split()[1]


def test_list(medtasks, home):
    ran = medtasks("data", "list")
    assert (ran.code, ran.err) == (0, "")
    first, *lines = ran.out.splitlines()
    assert first.split() == ["dataset", "prepared", "access", "questions", "description"]
    assert lines[0].split()[:4] == ["mediconfusion", "no", "public", "352"]
    assert [line.split()[0] for line in lines[:-1]] == list(CATALOGUE)
    assert lines[-1] == f"Data folder: {home}"
    assert medtasks("data", "where").out == f"{home}\n"
    assert not home.exists()


def test_show(medtasks, fails):
    ran = medtasks("data", "show", "mediconfusion")
    assert ran.out.splitlines() == [
        "mediconfusion: MediConfusion, 176 confusing pairs of radiology images, one two-option question per pair",
        "  prepared: no",
        "  access:   public",
        "  size:     352 questions, 228 images, 26 MB",
        "  licence:  questions and labels MIT; images under the licence of each PubMed Central article",
        "  source:   https://github.com/AIF4S/MediConfusion at a3045b03a0a2b5e9f051842e3fd088ed0861f2b6",
        "  --source: dataset.json and images/<number>.jpg",
    ]
    layout = "  --source: the Hub's MM/test.jsonl, and images.zip or"
    assert layout in medtasks("data", "show", "medevalkit_medxpertqa_mm").out
    fails(["data", "show", "mediconfuson"], "did you mean 'mediconfusion'?")


def test_list_knows_sample_incomplete_and_damaged(medtasks, fails, source, home, final):
    medtasks("data", "sample", home)
    assert state(medtasks("data", "list")) == "sample"
    shutil.rmtree(final)
    command = ["data", "prepare", "mediconfusion", "--source", source]
    fails(command, "holds 16 pairs, the published set 176", "--allow-incomplete")
    assert not final.exists()
    ran = medtasks(*command, "--allow-incomplete")
    fingerprint = f"fingerprint {Manifest.read(final).fingerprint}"
    assert ran.out.splitlines() == [
        "left out: the question file holds 16 pairs, the published set 176",
        f"Prepared mediconfusion: 32 questions, 27 images, {fingerprint}, in {final}",
    ]
    verified = medtasks("data", "verify", "mediconfusion")
    assert verified.out == f"mediconfusion is as prepared: 32 questions, incomplete, {fingerprint}\n"
    assert state(medtasks("data", "list")) == "incomplete"
    (final / "manifest.json").write_text("{")
    assert state(medtasks("data", "list")) == "damaged"


def test_verify(medtasks, fails, home, final):
    fails(["data", "verify", "mediconfusion"], "is not prepared", "medtasks data prepare mediconfusion")
    medtasks("data", "sample", home)
    fine = medtasks("data", "verify", "mediconfusion")
    assert (fine.code, fine.err) == (0, "")
    assert "as prepared: 32 questions, synthetic sample" in fine.out
    (final / "images/90000.jpg").unlink()
    ran = fails(["data", "verify", "mediconfusion"], "1 problem in 'mediconfusion'", "data prepare mediconfusion")
    assert ran.out == f"{final / 'images/90000.jpg'} is missing\n"
    shutil.rmtree(final / "test")
    fails(["data", "verify", "mediconfusion"], "are damaged", "data prepare mediconfusion")


def test_sample(medtasks, fails, tmp_path, monkeypatch, home, final):
    folder = tmp_path / "try it"
    ran = medtasks("data", "sample", folder)
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == f"Use it with: export MEDTASKS_HOME='{folder}'"
    assert not home.exists()  # the user's own data folder is not touched
    assert os.environ["MEDTASKS_HOME"] == str(home)
    monkeypatch.delenv("MEDTASKS_HOME")
    assert medtasks("data", "sample", folder).out == ran.out
    assert "MEDTASKS_HOME" not in os.environ
    monkeypatch.setenv("MEDTASKS_HOME", str(folder))
    assert len(load_documents("mediconfusion")) == 32


def test_sample_does_not_replace_real_data_or_files(medtasks, fails, source, home, final, tmp_path):
    medtasks("data", "prepare", "mediconfusion", "--source", source, "--allow-incomplete")
    before = Manifest.read(final)
    fails(["data", "sample", home], "holds the real MediConfusion", "choose another folder")
    assert Manifest.read(final) == before
    (final / "manifest.json").write_text("{")
    fails(["data", "sample", home], "choose another folder")
    (tmp_path / "file").touch()
    fails(["data", "sample", tmp_path / "file"], f"cannot write the sample to {tmp_path / 'file'}")


def test_golden_mediconfusion_data_commands(medtasks, test_data, final, write):
    ran = medtasks("data", "prepare", "mediconfusion", "--source", test_data / "mediconfusion")
    assert ran.code == 0
    assert ran.out.startswith("Prepared mediconfusion: 352 questions, 228 images, fingerprint ")
    assert ran.err == ""  # progress bars are for terminals
    assert "352 questions, complete, " in medtasks("data", "verify", "mediconfusion").out
    replies = write({"doc_id": 0, "reply": "A"})
    assert "DATA:" not in medtasks("score", "mediconfusion", replies).out
    assert state(medtasks("data", "list")) == "yes"
