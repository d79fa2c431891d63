"""From each published format to documents: every dataset prepares and verifies, and what is missing fails alone."""

import re

import pytest
from typer.testing import CliRunner

from medtasks.cli.main import app
from medtasks.data.catalogue import MULTIMEDEVAL
from medtasks.data.document_store import load_documents
from medtasks.data.schema import DEMONSTRATIONS_SPLIT

from ..multimedeval_sources import WRITERS
from ..tables import each_row

SIZES = {info.name: info.rows for info in MULTIMEDEVAL}


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
