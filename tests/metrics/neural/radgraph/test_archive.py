import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
import torch

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import WEIGHTS, ModelSettings
from medtasks.metrics.neural.metric_checkpoints import open_archive
from medtasks.metrics.neural.radgraph_network import Annotator

from ....tables import each_row
from .random_archive import RELATIONS, V1_LABELS, XL_LABELS, Size, pack, write_encoder


def given(path, **names):
    """Return settings that name an archive, and other weights by name."""
    named = {"radgraph": path, "radgraph-xl": path} | {
        name.replace("_", "-"): value for name, value in names.items()
    }
    return ModelSettings(named_weights=named, device="cpu", cache=None, progress=False)


@pytest.fixture
def copy(v1, tmp_path):
    """A copy of the first model's folder that a test may change."""
    return Path(shutil.copytree(v1, tmp_path / "copy"))


def change_config(archive, change):
    config = json.loads((archive / "config.json").read_text())
    change(config)
    (archive / "config.json").write_text(json.dumps(config))


def set_encoder(config, name):
    reader, model = config["dataset_reader"], config["model"]
    for bert in (
        reader["token_indexers"]["bert"],
        model["embedder"]["token_embedders"]["bert"],
    ):
        bert["model_name"] = name


def test_members_outside_the_archive_are_never_written_and_objects_not_built(copy, tmp_path):
    packed, evil = pack(copy / "radgraph"), copy / "evil.tar.gz"
    with tarfile.open(packed) as source, tarfile.open(evil, "w:gz") as tar:
        for name in (
            "../escaped.txt",
            str(tmp_path / "escaped.txt"),
            "vocabulary/../../escaped.txt",
        ):
            member = tarfile.TarInfo(name)
            member.size = 5
            tar.addfile(member, io.BytesIO(b"bytes"))
        link = tarfile.TarInfo("vocabulary/link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        for member in source:
            tar.addfile(member, source.extractfile(member) if member.isfile() else None)
    before = sorted(tmp_path.rglob("*"))
    assert open_archive("radgraph", given(evil)).read().entity_labels == V1_LABELS
    assert sorted(tmp_path.rglob("*")) == before

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "made"), "w"))

    torch.save({"weight": Evil()}, copy / "radgraph" / "weights.th")
    with pytest.raises(WeightsMissing, match=r"weights|archive"):
        open_archive("radgraph", given(copy / "radgraph")).read()
    assert not (tmp_path / "made").exists()


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def configured(change):
    return lambda folder: change_config(folder / "radgraph", change)


def labelled(content):
    return lambda folder: (
        folder / "radgraph" / "vocabulary" / "radgraph__ner_labels.txt"
    ).write_bytes(content)


def other_size(folder):
    shutil.rmtree(folder / "encoder")
    write_encoder(folder / "encoder", Size(hidden=64))


@each_row(
    "damage, told",
    [
        (lambda folder: (folder / "radgraph" / "config.json").write_text("{"), "config|JSON"),
        (
            lambda folder: (folder / "radgraph" / "config.json").write_text('{"model": 1}'),
            "dataset_reader",
        ),
        (lambda folder: (folder / "radgraph" / "weights.th").unlink(), "weights.th"),
        (lambda folder: cut(folder / "radgraph" / "weights.th"), "fetch"),
        (
            lambda folder: shutil.rmtree(folder / "radgraph" / "vocabulary"),
            "vocabularies are missing",
        ),
        (labelled(b"\nA\nB"), "labels"),
        (labelled(b"A\nB\nC\nD\nE"), "empty"),
        (
            configured(lambda config: config["dataset_reader"].update(max_span_width=9)),
            "widths",
        ),
        (configured(lambda config: config["dataset_reader"].update(max_span_width=7)), None),
        (
            configured(lambda config: config["model"]["modules"]["coref"].update(coref_prop=2)),
            "spans",
        ),
        (configured(lambda config: config["model"]["modules"].pop("coref")), None),
        (
            lambda folder: torch.save([torch.zeros(2)], folder / "radgraph" / "weights.th"),
            "tensors by name",
        ),
        (lambda folder: torch.save({}, folder / "radgraph" / "weights.th"), "do not fit"),
        (other_size, r"encoder.*size mismatch|do not fit the encoder"),
        (
            lambda folder: (folder / "encoder" / "vocab.txt").open("a").write("\nanother"),
            "301 wordpieces",
        ),
        (
            lambda folder: (folder / "encoder" / "vocab.txt").unlink(),
            "the encoder's vocabulary .*encoder",
        ),
    ],
)
def test_what_does_not_fit_is_told(v1, tmp_path, damage, told):
    copied = Path(shutil.copytree(v1, tmp_path / "copy"))
    damage(copied)
    if told is None:
        Annotator(open_archive("radgraph", given(copied)), given(copied))
        return
    with pytest.raises(WeightsMissing, match=told) as raised:
        Annotator(open_archive("radgraph", given(copied)), given(copied))
    assert "\n" not in str(raised.value)


@each_row(
    "model_type, entry, name",
    [
        ("radgraph", "pubmedbert", WEIGHTS["pubmedbert"].hub),
        (
            "radgraph",
            "pubmedbert",
            "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract-fulltext",
        ),
        ("radgraph-xl", "cxr-bert", WEIGHTS["cxr-bert"].hub),
    ],
)
def test_the_fetched_encoder_is_found_by_its_name_on_the_hub(
    request, tmp_path, monkeypatch, model_type, entry, name
):
    home = tmp_path / "home"
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    folder = request.getfixturevalue("v1" if model_type == "radgraph" else "xl")
    archive = Path(shutil.copytree(folder / model_type, tmp_path / model_type))
    change_config(archive, lambda config: set_encoder(config, name))
    (home / "weights" / model_type).mkdir(parents=True)
    shutil.move(pack(archive), home / "weights" / model_type)
    with pytest.raises(WeightsMissing, match=f"medtasks weights fetch {entry}"):
        open_archive(model_type, ModelSettings())
    shutil.copytree(folder / "encoder", home / "weights" / entry)
    assert open_archive(model_type, ModelSettings()).encoder == home / "weights" / entry


def test_an_encoder_of_another_name_is_never_replaced_by_the_fetched_one(
    copy, tmp_path, monkeypatch
):
    write_encoder(tmp_path / "mine", Size())
    assert (
        open_archive("radgraph", given(copy, pubmedbert=tmp_path / "mine")).encoder
        == tmp_path / "mine"
    )
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    write_encoder(tmp_path / "home" / "weights" / "pubmedbert", Size())
    change_config(copy / "radgraph", lambda config: set_encoder(config, "someone/other-bert"))
    with pytest.raises(WeightsMissing, match="other-bert"):
        open_archive("radgraph", given(copy))
    shutil.move(copy / "encoder", copy / "other-bert")
    assert open_archive("radgraph", given(copy)).encoder == copy / "other-bert"


def test_every_form_gives_the_same(copy, xl):
    state = torch.load(copy / "radgraph" / "weights.th", weights_only=True)
    pack(copy / "radgraph")
    with tarfile.open(copy / "dotted.tar.gz", "w:gz") as tar:  # in another order
        for name in ("weights.th", "vocabulary", "config.json"):
            tar.add(copy / "radgraph" / name, f"./{name}")
    for form in ("radgraph", "", "radgraph.tar.gz", "dotted.tar.gz", "packed"):
        if form == "packed":
            shutil.rmtree(copy / "radgraph")
        archive = open_archive("radgraph", given(copy / form.replace("packed", "")))
        contents = archive.read()
        assert (archive.max_length, archive.max_span_width, archive.spans_per_word) == (
            64,
            8,
            0.5,
        )
        assert archive.encoder.name == "encoder"
        assert (contents.entity_labels, contents.relation_labels) == (V1_LABELS, RELATIONS)
        assert contents.state.keys() == state.keys()
    assert open_archive("radgraph-xl", given(xl)).read()[1:] == (XL_LABELS, RELATIONS)


def test_files_that_are_no_archive_of_the_model_are_named(copy, tmp_path):
    with pytest.raises(WeightsMissing, match="does not hold the model 'radgraph-xl'"):
        open_archive("radgraph-xl", given(copy / "radgraph")).read()
    packed = pack(copy / "radgraph")
    cut(packed)
    with pytest.raises(
        WeightsMissing, match=r"radgraph\.tar\.gz.*medtasks weights fetch radgraph"
    ):
        open_archive("radgraph", given(packed)).read()
    (tmp_path / "weights.bin").write_bytes(b"no archive")
    with pytest.raises(WeightsMissing, match=r"weights\.bin"):
        open_archive("radgraph", given(tmp_path / "weights.bin"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(WeightsMissing, match=r"radgraph-xl\.tar\.gz"):
        open_archive("radgraph-xl", given(tmp_path / "empty"))


def test_a_vocabulary_cut_short_is_told(copy, warnings):
    Annotator(open_archive("radgraph", given(copy)), given(copy))
    assert not warnings
    vocabulary = copy / "encoder" / "vocab.txt"
    vocabulary.write_text("\n".join(vocabulary.read_text("utf-8").splitlines()[:200]), "utf-8")
    Annotator(open_archive("radgraph", given(copy)), given(copy))
    assert "200 wordpieces" in "".join(warnings)
