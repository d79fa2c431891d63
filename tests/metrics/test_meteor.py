"""METEOR against NLTK; finding, checking, placing and asking WordNet."""

import os
import re
import shutil
import tarfile
import warnings
import zipfile
from types import SimpleNamespace

import nltk
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.corpus.reader.wordnet import WordNetCorpusReader
from nltk.translate import meteor_score as nltk_meteor

from medtasks.data.prepare import downloads
from medtasks.errors import MedTasksError, SourceError, WeightsMissing
from medtasks.metrics import meteor
from medtasks.metrics.meteor import (
    load_wordnet,
    meteor_score,
    prepare_wordnet,
    read_wordnet,
    wordnet_folder,
)
from medtasks.metrics.report_metrics import report_metric

from ..tables import each_row


def listed_synonyms(synonyms):
    """A list of synonyms by word with the part of a reader that METEOR asks."""

    def synsets(word):
        names = synonyms.get(word, ())
        return [
            SimpleNamespace(
                lemmas=lambda: [SimpleNamespace(name=lambda name=name: name) for name in names]
            )
        ]

    return SimpleNamespace(synsets=synsets)


SYNONYMS = {"larg": {"large", "big"}, "big": {"larg", "big"}}
SYNONYMS |= {"lung": {"x"}, "x": {"lung", "no", "y"}, "y": {"x", "lung"}}
WORDS = st.lists(
    st.sampled_from(
        ["Large", "larger", "big", "lung", "Lungs", "x", "y", "no", "No", ".", "İ"]
    ),
    max_size=14,
)


@given(WORDS, WORDS)
def test_is_nltk_to_the_bit(reference, hypothesis):
    """Whatever was cached of stems."""
    for listed in ({}, SYNONYMS):
        wordnet = listed_synonyms(listed)
        theirs = nltk_meteor.meteor_score([reference], hypothesis, wordnet=wordnet)
        assert meteor_score(reference, hypothesis, wordnet if listed else None) == theirs


# ---- WordNet: a dozen invented senses in the published file formats ----

RAYS = ("Roentgen_ray", "x-ray", "Roentgenogram")
SENSES = {
    "noun": [("lung",), ("nodule", "tubercle"), RAYS, ("leaf", "leafage"), ("opacity",)],
    "verb": [("go", "travel"), ("enlarge", "blow_up", "magnify"), ("leave", "exit")],
    "adj": [("large", "big"), ("able(p)", "capable(a)"), ("large", "declamatory")],
    "adv": [("largely", "mostly")],
}
EXCEPTIONS = {
    "noun": "leaves leaf\n",
    "verb": "went go\ngone go\n",
    "adj": "better good well\n",
    "adv": "",
}
LICENCE = "".join(
    f"  {line} {text}  \n"
    for line, text in enumerate(("Invented.", "WordNet 3.0 Copyright nobody."), 1)
)
LETTERS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}


def wordnet_files():
    """Return the files of the database by name, those that only NLTK's reader asks for included."""
    files = {"lexnames": b"00\tadj.all\t3\n", "index.sense": b"", "cntlist.rev": b""}
    for part, senses in SENSES.items():
        data = LICENCE
        places = {}
        for words in senses:
            for word in words:
                places.setdefault(word.partition("(")[0].lower(), []).append(len(data))
            listed = " ".join(f"{word} 0" for word in words)
            frames = " 01 + 02 00" if part == "verb" else ""
            data += f"{len(data):08d} 00 {LETTERS[part]} {len(words):02x} {listed} 000{frames} | invented  \n"
        index = LICENCE
        for word, found in sorted(places.items()):
            offsets = " ".join(f"{place:08d}" for place in found)
            index += f"{word} {LETTERS[part]} {len(found)} 0 {len(found)} 0 {offsets}  \n"
        files |= {f"data.{part}": data.encode(), f"index.{part}": index.encode()}
        files |= {f"{part}.exc": EXCEPTIONS[part].encode()}
    return files


def write_wordnet(folder, files):
    """Write files of a database into a new folder."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def synonyms(wordnet, word):
    """Return the single words that share a sense with a word in lower case, as METEOR takes them."""
    names = (lemma.name() for sense in wordnet.synsets(word) for lemma in sense.lemmas())
    return {name for name in names if "_" not in name}


FILES = wordnet_files()
INFLECTED = (
    "lungs",
    "leaves",
    "leaf",
    "went",
    "go",
    "goes",
    "larger",
    "largest",
    "enlarging",
    "enlarged",
    "tubercles",
)


@pytest.fixture(autouse=True)
def _no_other_wordnet(monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [])
    meteor.read_wordnet.cache_clear()


@pytest.fixture
def source(tmp_path):
    return write_wordnet(tmp_path / "dict", FILES)


def test_metric_with_wordnet(source):
    prepare_wordnet(source)
    references = ["They travel.", "Lungs are large.", "", "left", "Épanchement"]
    hypotheses = ["They go.", "Lungs are large.", "left", "", "Épanchement"]
    with_synonyms = report_metric("meteor")(references=references, hypotheses=hypotheses)
    without = report_metric("meteor_without_synonyms")(
        references=references, hypotheses=hypotheses
    )
    values, plain = with_synonyms.samples["meteor"], without.samples["meteor_without_synonyms"]
    assert values == [1 - 0.5 / 3**3, 1 - 0.5 / 4**3, 0, 0, 0.5]
    assert plain == [pytest.approx(2 / 3 * (1 - 0.5)), *values[1:]]
    assert (with_synonyms.settings["synonyms"], without.settings["synonyms"]) == (
        "WordNet 3.0",
        "none",
    )
    assert "NLTKWordTokenizer" in with_synonyms.settings["words"] == without.settings["words"]


def test_synonyms_are_those_of_nltk_by_path(tmp_path, monkeypatch):
    write_wordnet(tmp_path / "corpora" / "wordnet", FILES)
    os.chmod(tmp_path / "corpora", 0o755)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = WordNetCorpusReader(nltk.data.find("corpora/wordnet"), None)
    ours = read_wordnet(tmp_path)
    words = {
        word.partition("(")[0].lower()
        for senses in SENSES.values()
        for words in senses
        for word in words
    }
    assert len(words) >= 20
    for word in words | set(INFLECTED) | {"", "unknown", "s", "x-rays", "better", "Lung"}:
        assert synonyms(ours, word.lower()) == synonyms(theirs, word.lower()), word


def zipped(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in FILES.items():
            archive.writestr(f"wordnet/{name}", content)
    return path


def test_prepared_from_every_layout_or_found_in_nltk_s_folders(source, tmp_path, monkeypatch):
    folder = tmp_path / "sources"
    zipped(folder / "nltk_data" / "corpora" / "wordnet.zip")
    with tarfile.open(folder / "WNdb-3.0.tar.gz", "w:gz") as archive:
        archive.add(source, "dict")
    windows = {name: content.replace(b"\n", b"\r\n") for name, content in FILES.items()}
    above = write_wordnet(folder / "above" / "dict", FILES).parent
    layouts = [
        source,
        above,
        zipped(folder / "wordnet.zip"),
        folder / "nltk_data",
        folder / "WNdb-3.0.tar.gz",
    ]
    for layout in (*layouts, write_wordnet(folder / "windows", windows)):
        assert prepare_wordnet(layout) == wordnet_folder()
        assert {path.name: path.read_bytes() for path in wordnet_folder().iterdir()} == FILES, (
            layout
        )
        assert synonyms(load_wordnet(), "nodule") == {"nodule", "tubercle"}
    assert [path.name for path in wordnet_folder().parents[2].iterdir()] == [
        "nltk_data"
    ]  # no scratch is left
    needed = {
        name: FILES[name] for name in FILES.keys() - {"lexnames", "index.sense", "cntlist.rev"}
    }
    prepare_wordnet(write_wordnet(folder / "debian", needed))
    assert synonyms(load_wordnet(), "big") == {"large", "big"}
    shutil.rmtree(wordnet_folder())
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "none"), str(folder / "nltk_data")])
    assert synonyms(load_wordnet(), "mostly") == {"largely", "mostly"}


def without(name):
    return {other: content for other, content in FILES.items() if other != name}


@each_row(
    "files, message",
    [
        (without("index.verb"), "is not complete: index.verb missing"),
        (without("data.noun"), "no WordNet database in .*'data.noun'"),
        ({}, "no WordNet database"),
        (
            FILES | {"data.noun": b" " + FILES["data.noun"]},
            "is damaged: its index does not fit its data at 'leaf'",
        ),
        (FILES | {"data.adj": FILES["data.adj"][:-3]}, "cut short"),
        (
            FILES | {"index.noun": b"".join(FILES["index.noun"].splitlines(True)[:-5])},
            "cut short",
        ),
        (FILES | {"index.adv": b"largely r one 0 1 0 00000000\n"}, "is damaged"),
    ],
)
def test_what_is_not_usable_is_refused_and_what_was_there_stays(
    files, message, source, tmp_path
):
    prepare_wordnet(source)
    with pytest.raises(WeightsMissing, match=message):
        prepare_wordnet(write_wordnet(tmp_path / "broken", files))
    assert synonyms(load_wordnet(), "nodule") == {"nodule", "tubercle"}


def test_downloaded_from_the_data_of_nltk(source, tmp_path, monkeypatch):
    def download(published, target):
        if not source.exists():
            raise SourceError("no network")
        assert re.fullmatch("[0-9a-f]{40}", published.git_blob)
        return shutil.move(source, target.with_suffix(""))

    monkeypatch.setattr(downloads, "download", download)
    prepare_wordnet(None)
    assert synonyms(load_wordnet(), "nodule") == {"nodule", "tubercle"}
    with pytest.raises(
        WeightsMissing,
        match=r"could not be downloaded \(no network\); on a machine without network",
    ):
        prepare_wordnet(None)
    (tmp_path / "no.zip").write_text("no archive")
    with pytest.raises(WeightsMissing, match=r"WordNet cannot be read from .*no\.zip"):
        prepare_wordnet(tmp_path / "no.zip")
    for name in ("one", "two"):
        write_wordnet(tmp_path / "several" / name, FILES)
    with pytest.raises(
        WeightsMissing, match="several WordNet databases; give one of them: one/, two/"
    ):
        prepare_wordnet(tmp_path / "several")


def test_missing_and_damaged_wordnet_and_nltk_are_one_sentence_with_the_command(
    source, monkeypatch
):
    with pytest.raises(WeightsMissing) as caught:
        report_metric("meteor")(references=["a"], hypotheses=["a"])
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        str(wordnet_folder()),
        "11 MB",
        "medtasks weights fetch wordnet",
        "meteor_without_synonyms",
    ):
        assert part in message
    folder = prepare_wordnet(source)
    (folder / "data.noun").write_bytes(FILES["data.noun"][:60])
    with pytest.raises(WeightsMissing, match=r"is damaged.*medtasks weights fetch wordnet"):
        load_wordnet()
    monkeypatch.setitem(__import__("sys").modules, "nltk.data", None)
    with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[report\]'"):
        load_wordnet()
