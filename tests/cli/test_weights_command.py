"""``medtasks weights``: list, fetch, where."""

from pathlib import Path

import huggingface_hub
import pytest

from medtasks.cli import metrics as weights_command
from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import WEIGHTS, weights_folder


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


def test_where(medtasks, fails, hub):
    fails(["weights", "where", "distilroberta-base"], "medtasks weights fetch distilroberta-base")
    medtasks("weights", "fetch", "distilroberta-base")
    assert medtasks("weights", "where", "distilroberta-base").out == f"{weights_folder('distilroberta-base')}\n"
    fails(["weights", "where", "distilroberta"], "did you mean 'distilroberta-base'?")
