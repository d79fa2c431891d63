"""Finding, checking, placing and asking WordNet."""

import os
import tarfile
import warnings
import zipfile
from pathlib import Path

import nltk
import pytest
from nltk.corpus.reader.wordnet import WordNetCorpusReader

from medtasks.errors import MedTasksError, WeightsMissing
from medtasks.metrics import meteor
from medtasks.metrics.meteor import load_wordnet, prepare_wordnet, read_wordnet, wordnet_folder
from medtasks.metrics.report_metrics import report_metric

from ..tables import each_row
from .wordnet_sources import SENSES, synonyms, wordnet_files, write_wordnet

FILES = wordnet_files()
INFLECTED = ("lungs", "leaves", "leaf", "went", "go", "goes", "larger", "largest", "enlarging", "enlarged", "tubercles")


@pytest.fixture(autouse=True)
def _no_other_wordnet(monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [])
    meteor._read.cache_clear()


@pytest.fixture
def source(tmp_path):
    return write_wordnet(tmp_path / "dict", FILES)


def test_synonyms_are_those_of_nltk_by_path(tmp_path, monkeypatch):
    write_wordnet(tmp_path / "corpora" / "wordnet", FILES)
    os.chmod(tmp_path / "corpora", 0o755)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = WordNetCorpusReader(nltk.data.find("corpora/wordnet"), None)
    ours = read_wordnet(tmp_path)
    words = {word.partition("(")[0].lower() for senses in SENSES.values() for words in senses for word in words}
    assert len(words) >= 20
    for word in words | set(INFLECTED) | {"", "unknown", "s", "x-rays", "better", "Lung"}:
        assert synonyms(ours, word.lower()) == synonyms(theirs, word.lower()), word


def test_synonyms(source):
    known = read_wordnet(source)
    assert known.get_version() == "3.0"
    for word, wanted in {
        "tubercles": {"nodule", "tubercle"},
        "x-ray": {"x-ray", "Roentgenogram"},
        "leaves": {"leaf", "leafage", "leave", "exit"},
        "large": {"large", "big", "declamatory"},
        "able": {"able", "capable"},
        "pneumothorax": set(),
    }.items():
        assert synonyms(known, word) == wanted


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"wordnet/{name}", content)
    return path


def tarred(path, source):
    with tarfile.open(path, "w:gz") as archive:
        archive.add(source, "dict")
    return path


def layouts(folder, source):
    """Write the database in the layouts that it comes in; yield what a user would name."""
    yield source
    yield source.parent
    yield zipped(folder / "wordnet.zip")
    (folder / "nltk_data" / "corpora").mkdir(parents=True)
    zipped(folder / "nltk_data" / "corpora" / "wordnet.zip")
    yield folder / "nltk_data"
    yield tarred(folder / "WNdb-3.0.tar.gz", source)
    yield write_wordnet(folder / "windows", {name: content.replace(b"\n", b"\r\n") for name, content in FILES.items()})


def test_prepared_from_every_layout(source, tmp_path):
    (tmp_path / "sources").mkdir()
    for layout in layouts(tmp_path / "sources", source):
        assert prepare_wordnet(layout) == wordnet_folder()
        assert {path.name: path.read_bytes() for path in wordnet_folder().iterdir()} == FILES, layout
        assert synonyms(load_wordnet(), "nodule") == {"nodule", "tubercle"}
    assert [path.name for path in wordnet_folder().parents[2].iterdir()] == ["nltk_data"]  # no scratch is left


def test_nltk_accepts_the_folder_whatever_the_umask(source, monkeypatch):
    before = os.umask(0)
    try:
        prepare_wordnet(source)
    finally:
        os.umask(before)
    monkeypatch.setattr(nltk.data, "path", [str(wordnet_folder().parents[1])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(nltk.data.find("corpora/wordnet")) == str(wordnet_folder())


def test_files_that_only_nltk_asks_for_may_be_missing(tmp_path):
    needed = {
        name: content for name, content in FILES.items() if name.startswith(("data.", "index.")) or ".exc" in name
    }
    del needed["index.sense"]
    prepare_wordnet(write_wordnet(tmp_path / "debian", needed))
    assert synonyms(load_wordnet(), "big") == {"large", "big"}


def test_found_in_the_folders_of_nltk(tmp_path, monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "none"), str(tmp_path)])
    (tmp_path / "corpora").mkdir()
    zipped(tmp_path / "corpora" / "wordnet.zip")
    assert synonyms(load_wordnet(), "mostly") == {"largely", "mostly"}


def without(name):
    return {other: content for other, content in FILES.items() if other != name}


@each_row(
    "files, message",
    [
        (without("index.verb"), "is not complete: index.verb missing"),
        (without("data.noun"), "no WordNet database in .*'data.noun'"),
        ({}, "no WordNet database"),
        (FILES | {"data.noun": b" " + FILES["data.noun"]}, "is damaged: its index does not fit its data at 'leaf'"),
        (FILES | {"data.adj": FILES["data.adj"][:40]}, "is damaged"),
        (FILES | {"data.adj": FILES["data.adj"][:-3]}, "cut short"),
        (FILES | {"index.noun": b"".join(FILES["index.noun"].splitlines(True)[:-5])}, "cut short"),
        (FILES | {"index.adv": b"largely r\n"}, "is damaged"),
        (FILES | {"index.adv": b"largely r one 0 1 0 00000000\n"}, "is damaged"),
    ],
)
def test_what_is_not_usable_is_refused_and_what_was_there_stays(files, message, source, tmp_path):
    prepare_wordnet(source)
    with pytest.raises(WeightsMissing, match=message):
        prepare_wordnet(write_wordnet(tmp_path / "broken", files))
    assert synonyms(load_wordnet(), "nodule") == {"nodule", "tubercle"}


def test_sources_that_are_none(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("WordNet")
    for path in (tmp_path / "nowhere", text):
        with pytest.raises(WeightsMissing, match="cannot be read from"):
            prepare_wordnet(path)
    write_wordnet(tmp_path / "both" / "wordnet-3.0", FILES)
    write_wordnet(tmp_path / "both" / "wordnet-3.3", FILES)
    with pytest.raises(WeightsMissing, match=r"several WordNet databases.*wordnet-3\.0/, wordnet-3\.3/"):
        prepare_wordnet(tmp_path / "both")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(WeightsMissing, match="no WordNet database"):
        prepare_wordnet(tmp_path / "empty.zip")


def test_downloaded_by_nltk(monkeypatch):
    def download(name, folder, **_):
        corpora = Path(folder, "corpora")
        corpora.mkdir()
        zipped(corpora / f"{name}.zip")
        nltk.data.path.append(folder)

    monkeypatch.setattr(nltk, "download", download)
    prepare_wordnet()
    assert synonyms(load_wordnet(), "exit") == {"leave", "exit"}
    assert nltk.data.path == []


def test_without_network(monkeypatch):
    def download(*_, **__):
        raise ValueError("Error loading wordnet: no route to host")

    monkeypatch.setattr(nltk, "download", download)
    with pytest.raises(WeightsMissing, match=r"no route to host.*--source FILE' with Princeton's WNdb-3\.0\.tar\.gz"):
        prepare_wordnet()
    assert not wordnet_folder().exists()


def test_a_home_that_cannot_be_written(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "file"))
    with pytest.raises(WeightsMissing, match=r"cannot be written to .*set MEDTASKS_HOME"):
        prepare_wordnet(source)


def test_missing_wordnet_is_one_sentence_before_any_scoring():
    with pytest.raises(WeightsMissing) as caught:
        report_metric("meteor")(references=["a"], hypotheses=["a"])
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(wordnet_folder()), "11 MB", "medtasks weights fetch wordnet", "meteor_without_synonyms"):
        assert part in message


def test_damaged_wordnet_names_the_command(source):
    folder = prepare_wordnet(source)
    (folder / "data.noun").write_bytes(FILES["data.noun"][:60])
    with pytest.raises(WeightsMissing, match=r"is damaged.*medtasks weights fetch wordnet"):
        load_wordnet()


def test_nltk_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "nltk.data", None)
    with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[report\]'"):
        load_wordnet()
