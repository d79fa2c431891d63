"""``medtasks weights``: list, fetch, where, convert."""

from pathlib import Path

import huggingface_hub
import pytest

from medtasks.cli import metrics as weights_command
from medtasks.errors import WeightsMissing
from medtasks.metrics.weight_files import WEIGHTS, weights_folder


@pytest.fixture
def hub(monkeypatch):
    """A hub that has everything but the repositories added to what is returned."""
    gone = set()

    def download(hub, allow_patterns, local_dir):
        if hub in gone:
            raise ConnectionError("no route")
        Path(local_dir).mkdir(parents=True, exist_ok=True)
        for name in allow_patterns:
            (Path(local_dir) / name).touch()

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return gone


def test_list(medtasks, hub):
    first, *lines = medtasks("weights", "list").out.splitlines()
    assert first.split() == ["weights", "here", "MB", "description", "licence"]
    assert [line.split()[0] for line in lines] == [*WEIGHTS, "wordnet"]
    assert {line.split()[1] for line in lines[:-1]} == {"no"}
    medtasks("weights", "fetch", "chexbert")
    lines = medtasks("weights", "list").out.splitlines()[1:]
    assert [line.split()[0] for line in lines if line.split()[1] == "yes" and "wordnet" not in line] == ["chexbert"]


def test_fetch_several_and_all(medtasks, hub, monkeypatch, tmp_path):
    ran = medtasks("weights", "fetch", "radgraph", "pubmedbert", "radgraph")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"radgraph: {weights_folder('radgraph') / 'radgraph.tar.gz'}",
        f"pubmedbert: {weights_folder('pubmedbert')}",
    ]
    sources = []
    monkeypatch.setattr(weights_command, "prepare_wordnet", lambda source: sources.append(source) or tmp_path)
    ran = medtasks("weights", "fetch", "all")
    assert [line.split(":")[0] for line in ran.out.splitlines()] == [*WEIGHTS, "wordnet"]
    assert sources == [None]


def test_weights_that_cannot_be_had(fails, hub):
    """An unknown name stops before any download; a failing download does not stop the others."""
    ran = fails(["weights", "fetch", "radgraph", "chexbrt"], "did you mean 'chexbert'?")
    assert ran.out == ""
    assert not weights_folder("radgraph").exists()
    hub.add(WEIGHTS["radgraph"].hub)
    ran = fails(["weights", "fetch", "radgraph", "distilroberta-base"], "no route", "put radgraph.tar.gz into")
    assert ran.out.startswith("distilroberta-base: ")


def test_wordnet_from_a_source(medtasks, fails, monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(weights_command, "prepare_wordnet", lambda source: given.append(source) or tmp_path)
    ran = medtasks("weights", "fetch", "wordnet", "--source", tmp_path / "wordnet.zip")
    assert ran.out == f"wordnet: {tmp_path}\n"
    assert given == [tmp_path / "wordnet.zip"]
    assert medtasks("weights", "fetch", "wordnet", "radgraph", "--source", tmp_path).code == 2
    assert medtasks("weights", "fetch", "radgraph", "--source", tmp_path).code == 2

    def refuse(source):
        raise WeightsMissing("no WordNet in it")

    monkeypatch.setattr(weights_command, "prepare_wordnet", refuse)
    fails(["weights", "fetch", "wordnet"], "no WordNet in it")


def test_where_and_what_cannot_be_converted(medtasks, fails, hub, tmp_path):
    fails(["weights", "where", "distilroberta-base"], "medtasks weights fetch distilroberta-base")
    medtasks("weights", "fetch", "distilroberta-base")
    assert medtasks("weights", "where", "distilroberta-base").out == f"{weights_folder('distilroberta-base')}\n"
    fails(["weights", "where", "distilroberta"], "did you mean 'distilroberta-base'?")
    fails(["weights", "convert", "radgraph"], "'radgraph' needs no conversion")
    fails(["weights", "convert", "chexbrt"], "did you mean 'chexbert'?")
    fails(["weights", "convert", "chexbert"], "medtasks weights fetch chexbert")
    (tmp_path / "chexbert.pth").write_bytes(b"no checkpoint")
    fails(["weights", "convert", "chexbert", "--source", tmp_path / "chexbert.pth"], "chexbert.pth")


def test_golden_chexbert_conversion(medtasks, fails, golden, tmp_path):
    source = golden / "metrics/chexbert/chexbert.pth"
    folder = weights_folder("chexbert")
    folder.mkdir(parents=True)
    (folder / "chexbert.pth").write_bytes(source.read_bytes())
    ran = medtasks("weights", "convert", "chexbert")
    converted = folder / "chexbert.safetensors"
    assert ran.out == f"Wrote {converted} ({converted.stat().st_size / 1e6:,.0f} MB)\n"
    assert converted.stat().st_size < source.stat().st_size
    assert medtasks("weights", "where", "chexbert").out == f"{converted}\n"
    fails(["weights", "convert", "chexbert"], "is safetensors already")
    target = tmp_path / "other.safetensors"
    medtasks("weights", "convert", "chexbert", "--source", source, "--target", target)
    assert target.read_bytes() == converted.read_bytes()
