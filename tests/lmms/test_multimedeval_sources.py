"""From each published format to documents: every dataset prepares and verifies, and what is missing fails alone."""

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medtasks.cli.main import app
from medtasks.data.catalogue import MULTIMEDEVAL
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.data.schema import DEMONSTRATIONS_SPLIT

from ..multimedeval_image_sources import WRITERS
from ..processes import run_here
from ..tables import each_row

SIZES = {info.name: info.rows for info in MULTIMEDEVAL}
OPTIONS = "--model medtasks_tiny --model_args journal=false,batch_size=16 --gen_kwargs max_new_tokens=4 --device cpu"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Prepare every source on the command line; return the data folder, what was expected, and what was printed."""
    pytest.importorskip("pydicom", reason="pydicom is not installed; pip install 'medtasks[dicom]'")
    home, sources = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("sources")
    expected, printed = {}, {}
    for name in SIZES:
        source, expected[name] = WRITERS[name.removeprefix("multimedeval_")](sources / name)
        command = ["data", "prepare", name, "--source", str(source), "--allow-incomplete"]
        printed[name] = CliRunner().invoke(app, command, env={"MEDTASKS_HOME": str(home)})
    return home, expected, printed


@each_row("name", SIZES)
def test_prepares_and_verifies(prepared, monkeypatch, name):
    home, expected, printed = prepared
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    wanted, ran = expected[name], printed[name]
    assert ran.exit_code == 0, ran.output
    lines = [line for line in ran.output.splitlines() if not line.startswith("Models see its images by the rule")]
    *notes, summary = lines
    assert re.fullmatch(
        f"Prepared {name}: {len(wanted.test)} questions, {wanted.images} images, fingerprint [0-9a-f]{{12}}, in .*",
        summary,
    )
    if SIZES[name] is not None:
        assert notes == [f"left out: the source holds {len(wanted.test)} rows, the evaluated set {SIZES[name]}"]
    documents, shots = load_documents(name), load_documents(name, DEMONSTRATIONS_SPLIT)
    assert [document["doc_id"] for document in documents] == list(wanted.test)
    assert [document["doc_id"] for document in shots] == list(wanted.demonstrations)
    (key,) = {"answer", "label", "labels", "report"} & documents[0].keys()
    assert [document[key] for document in documents] == list(wanted.keys)
    assert len({file for document in documents for file in document["image_files"]}) == wanted.images
    verified = CliRunner().invoke(app, ["data", "verify", name])
    assert (verified.exit_code, verified.output.startswith(f"{name} is as prepared: ")) == (0, True)


@pytest.mark.slow
def test_missing_and_damaged_datasets_fail_alone(prepared, tmp_path):
    """One lost its images, which shows in the run; one its documents, and one is not there, which shows before it."""
    home = tmp_path / "home"
    shutil.copytree(prepared[0], home, ignore=shutil.ignore_patterns("multimedeval_mednli"))
    shutil.rmtree(home / "datasets" / "multimedeval_breastmnist" / "images")
    (documents,) = Path(home, "datasets", "multimedeval_medqa", "test").glob("*.arrow")
    documents.write_bytes(documents.read_bytes()[:-900])
    tasks = ",".join(f"multimedeval_{name}" for name in ("breastmnist", "medqa", "mednli", "vqa_rad"))
    command = f"medtasks run --tasks {tasks} --output_path out --log_samples {OPTIONS}"
    ran = run_here(command.split(), tmp_path, MEDTASKS_HOME=str(home))
    assert ran.returncode == 1
    missing = f"dataset 'multimedeval_mednli' (MultiMedEval, credentialed) is not prepared in {home}; run 'medtasks"
    for sentence in (missing, f"the documents in {documents.parents[1]} are damaged"):
        assert ran.stdout.count(sentence) == 1
    last = ran.stderr.splitlines()[-1]
    assert last.startswith("medtasks: 3 of 4 tasks without results; the others are complete; ")
    assert "run 'medtasks data prepare multimedeval_breastmnist' again" in last
    (file,) = (tmp_path / "out").rglob("*_results.json")
    content, task = json.loads(file.read_text()), "multimedeval_vqa_rad"
    assert set(content["results"]) == {task}
    assert content["n-samples"][task]["effective"] == len(prepared[1][task].test)
    fingerprint = Manifest.read(home / "datasets" / task).fingerprint
    assert content["configs"][task]["metadata"]["data"]["fingerprint"] == fingerprint
