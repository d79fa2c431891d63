"""Preparing MediConfusion from a local folder: what comes out, what is refused, and what an interruption leaves."""

import errno
import hashlib
import json
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
from PIL import ImageFile

from medtasks.data.catalogue import MEDICONFUSION, Access
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents, work_folder
from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.schema import PAIRED_CHOICE
from medtasks.data.sources import mediconfusion
from medtasks.errors import MedTasksError, SourceError
from medtasks.home import dataset_folder

from ..damages import row
from ..held_lock import held
from ..tables import each_row

# Computed from the published dataset.json alone.
QUESTIONS_SHA256 = "107b6970e8c027ac9efabe0a38b26cb9c6991da8afad390884aa50758e839c9c"
USED_TWICE = "90000"  # the picture of pairs 90001 and 90002
USED_ONCE = "90001"

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def options(source):
    return Options(source, sample=True)


@pytest.fixture
def manifest(options):
    return prepare("mediconfusion", options)


def test_a_manifest_says_what_was_prepared(manifest, final):
    assert manifest == Manifest.read(final)
    assert (manifest.name, manifest.revision, manifest.access) == (
        "mediconfusion",
        "sample",
        "public",
    )
    assert (manifest.sample, manifest.complete, manifest.rows, manifest.images) == (
        True,
        True,
        32,
        27,
    )
    assert manifest.source == "synthetic sample of medtasks (no patient images)"
    assert (manifest.left_out, manifest.selected_from, manifest.selection) == ((), None, {})


def test_a_manifest_says_what_was_done_with_images(manifest):
    assert (manifest.image_rule, manifest.image_range) == ("reference", None)
    assert manifest.image_conversions == {"8 bits as stored": 27}


def test_each_question_is_asked_of_both_images_of_its_pair(manifest, source):
    documents = load_documents("mediconfusion")
    assert documents[0] == {
        "doc_id": "90001/1",
        "dataset": "mediconfusion",
        "pair_id": "90001",
        "position": 1,
        "image_id": "90000",
        "image_file": "images/90000.jpg",
        "image_sha256": hashlib.sha256((source / "images/90000.jpg").read_bytes()).hexdigest(),
        "question": "Where is the bright spot in the brain of this drawn head phantom?",
        "options": ["In the left half of the picture", "In the right half of the picture"],
        "answer": "A",
        "categories": ["Cerebral"],
    }
    assert [document["doc_id"] for document in documents] == [
        f"{90001 + row // 2}/{row % 2 + 1}" for row in range(32)
    ]


def test_a_prepared_dataset_verifies_and_leaves_no_other_files(manifest, final, work):
    assert {path.name for path in final.iterdir()} == {
        "dataset_dict.json",
        "images",
        "manifest.json",
        "test",
    }
    assert len(list((final / "images").iterdir())) == 27
    assert not work.exists()
    assert list(verify("mediconfusion")) == []


def test_the_harness_opens_a_prepared_dataset(manifest, final):
    opened = datasets.load_from_disk(str(final))
    assert isinstance(opened, datasets.DatasetDict)
    assert list(opened) == ["test"]
    assert opened["test"].column_names == list(PAIRED_CHOICE)
    assert opened["test"].features["position"] == datasets.Value("int32")
    assert opened["test"].features["options"] == datasets.List(datasets.Value("string"))
    assert opened["test"].cache_files  # memory-mapped, not read into memory


@each_row(
    "spoil",
    [
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: path.write_bytes(path.read_bytes()[:-40]),
        lambda path: path.write_bytes(b""),
    ],
)
def test_an_unusable_image_is_refused_by_name_or_costs_its_pairs(
    drawn, home, tmp_path, monkeypatch, refuses, spoil
):
    monkeypatch.setattr(
        ImageFile, "LOAD_TRUNCATED_IMAGES", True
    )  # as the harness leaves Pillow
    shutil.rmtree(home, ignore_errors=True)
    options, final = (
        Options(shutil.copytree(drawn, tmp_path / "source"), sample=True),
        home / "datasets/mediconfusion",
    )

    spoil(options.source / "images" / f"{USED_TWICE}.jpg")

    with refuses(
        "1 of 27 images unusable, in 2 of 16 pairs",
        f"{USED_TWICE}.jpg is ",
        "--allow-incomplete",
    ):
        prepare("mediconfusion", options)
    assert not final.exists()

    manifest = prepare("mediconfusion", replace(options, allow_incomplete=True))
    assert (manifest.rows, manifest.images, manifest.complete) == (
        28,
        25,
        False,
    )  # another image of 90001 is left out
    assert [f"{USED_TWICE}.jpg is " in note for note in manifest.left_out] == [True]
    assert {document["pair_id"] for document in load_documents("mediconfusion")}.isdisjoint(
        {"90001", "90002"}
    )
    assert not (final / "images" / f"{USED_ONCE}.jpg").exists()
    assert list(verify("mediconfusion")) == []


WRONG_NUMBER = "the question file holds 16 pairs, the published set 176"


def test_another_number_of_pairs_is_refused(source, refuses):
    with refuses("0 of 27 images unusable, in 0 of 16 pairs", WRONG_NUMBER):
        prepare("mediconfusion", Options(source))


def test_another_number_of_pairs_makes_an_incomplete_set(source):
    manifest = prepare("mediconfusion", Options(source, allow_incomplete=True))

    assert (manifest.complete, manifest.revision, manifest.source) == (
        False,
        "local",
        str(source),
    )
    assert manifest.left_out == (WRONG_NUMBER,)


def test_the_published_number_of_pairs_makes_a_complete_set(source, monkeypatch):
    monkeypatch.setattr(mediconfusion, "MEDICONFUSION", replace(MEDICONFUSION, rows=32))
    assert prepare("mediconfusion", Options(source)).complete


def test_of_many_unusable_images_a_few_are_named(source, refuses, monkeypatch):
    monkeypatch.setattr(mediconfusion, "MEDICONFUSION", replace(MEDICONFUSION, rows=32))
    for image_id in range(90000, 90005):
        (source / f"images/{image_id}.jpg").unlink()

    with refuses(
        "5 of 27 images unusable, in 5 of 16 pairs",
        "90000.jpg",
        "90002.jpg",
        " and 2 more",
        "--fetch-images",
    ):
        prepare("mediconfusion", Options(source))


def test_wrong_source(tmp_path, source, refuses, home):
    for folder, what in {
        tmp_path / "nowhere": "nowhere holds no dataset.json",
        source / "dataset.json": "dataset.json holds no dataset.json",
        source / "images": "images holds no dataset.json",
    }.items():
        with refuses(what):
            prepare("mediconfusion", Options(folder))
    assert not home.exists()  # nothing is written for a source that cannot be read


def test_demonstrations_are_copied_and_files_may_be_in_a_data_folder(
    options, source, final, tmp_path
):
    (source / "few_shot_prompts").mkdir()
    shutil.copy(source / "images/90000.jpg", source / "few_shot_prompts/PMC1_F1.jpg")
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "data").symlink_to(source)
    assert prepare("mediconfusion", replace(options, source=tmp_path / "clone")).images == 27
    assert (final / "few_shot_prompts/PMC1_F1.jpg").read_bytes() == (
        source / "images/90000.jpg"
    ).read_bytes()


def test_golden_mediconfusion_prepare(test_data, home, final):
    source = test_data / "mediconfusion"

    manifest = prepare("mediconfusion", Options(source))

    assert (manifest.rows, manifest.images, manifest.complete, manifest.sample) == (
        352,
        228,
        True,
        False,
    )
    assert manifest.revision == "a3045b03a0a2b5e9f051842e3fd088ed0861f2b6"
    assert manifest.left_out == ()
    documents = load_documents("mediconfusion")
    assert Counter(document["answer"] for document in documents) == {"A": 176, "B": 176}
    assert len({document["pair_id"] for document in documents}) == 176
    assert Counter(
        category for document in documents for category in document["categories"]
    ) == json.loads((source / "statistics.json").read_text())
    assert {path.name for path in (final / "few_shot_prompts").iterdir()} == {
        "PMC1064097_F2.jpg",
        "PMC1065025_F1.jpg",
        "PMC1087855_F3.jpg",
    }

    own = [
        {name: value for name, value in row.items() if name != "image_sha256"}
        for row in documents
    ]
    assert hashlib.sha256(json.dumps(own).encode()).hexdigest() == QUESTIONS_SHA256


PAIR = {
    "question": "Where?",
    "option_A": "Here, there",
    "option_B": 'The "other" side',
    "im_1_correct": "A",
    "im_2_correct": "B",
    "im_1_local": 1,
    "im_2_local": 2,
    "category_1": ["Cerebral"],
    "category_2": ["Cerebral", "Vascular"],
}


@each_row(
    "contents, parts",
    [
        *(
            (contents, ["Invalid JSON"])
            for contents in ("", '{"1": {"question": "Wh', b"\x89PNG\x00", "[" * 100_000)
        ),
        ("[]", ["should be an object"]),
        ({"10001": "text"}, ["pair '10001'"]),
        ({}, ["holds no pairs"]),
        *(({"1": {**PAIR, name: None}}, [f"pair '1', field '{name}': "]) for name in PAIR),
        ({"1": {"question": "?"}}, ["pair '1', field 'option_A': Field"]),
        *(
            (
                {"10001": PAIR, "10002": PAIR | {field: value}},
                [f"pair '10002', field '{field}'"],
            )
            for field, value in [
                ("im_1_correct", "C"),
                ("question", " \n"),
                ("category_1", []),
                ("category_2", [""]),
                ("im_1_local", "../../etc/passwd"),
                ("im_2_local", "²"),
            ]
        ),
    ],
)
def test_malformed_questions_are_named(tmp_path, refuses, contents, parts):
    path = tmp_path / "dataset.json"
    if not isinstance(contents, bytes | str):
        contents = json.dumps(contents)
    path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    with refuses("dataset.json", *parts, kind=SourceError):
        mediconfusion.read_pairs(path)


STEPS = {
    "save": (datasets.DatasetDict, "save_to_disk"),
    "manifest": (Manifest, "write"),
    "rename": (Path, "rename"),
}
HALF = b"\xff\xd8 half an image"
add_file, rename = ImageStore.add_file, Path.rename


class Copies:
    """Images that were written; ``fail_after(n, error)`` makes every one after the n-th raise."""

    def fail_after(self, limit=27, error=None):
        self.names, self.limit, self.error = [], limit, error

    def add(self, store, path, name):
        target = store.folder / "images" / name
        if self.error and len(self.names) >= self.limit:
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(HALF)
            raise self.error
        before = identities(target.parent)
        added = add_file(store, path, name)
        if identities(target.parent) != before:
            self.names.append(name)
        return added


@pytest.fixture
def copies(monkeypatch):
    copies = Copies()
    copies.fail_after()
    monkeypatch.setattr(ImageStore, "add_file", lambda *args: copies.add(*args))
    return copies


def identities(folder):
    whole = [path for path in folder.glob("*.jpg") if path.read_bytes() != HALF]
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in whole}


def disk_full(place):
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place))


def test_stale_and_foreign_files_of_the_last_attempt_are_replaced(
    options, source, copies, final, work
):
    copies.fail_after(10, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        prepare("mediconfusion", options)

    (work / "images/90000.jpg").write_bytes(b"changed here")
    (source / "images/90001.jpg").write_bytes((source / "images/90002.jpg").read_bytes())
    (work / "images/12345.jpg").write_bytes(b"of another source")
    (work / "test").mkdir()
    (work / "test/data-00000-of-00002.arrow").write_bytes(b"of a former save")
    copies.fail_after()

    prepare("mediconfusion", options)

    assert {"90000.jpg", "90001.jpg"} <= set(copies.names)
    assert len(copies.names) == 19
    for name in ("90000.jpg", "90001.jpg"):
        assert (final / "images" / name).read_bytes() == (source / "images" / name).read_bytes()
    assert len(list((final / "images").iterdir())) == 27
    assert not (final / "test/data-00000-of-00002.arrow").exists()
    assert not work.exists()
    assert list(verify("mediconfusion")) == []


@pytest.mark.parametrize("step", ["copy", *STEPS])
def test_a_full_disk_loses_nothing(options, copies, final, work, monkeypatch, refuses, step):
    def refuse(*args, **kwargs):
        raise disk_full(work / "somewhere")

    with monkeypatch.context() as patch:
        if step == "copy":
            copies.fail_after(20, disk_full(work / "images/90020.jpg"))
        else:
            patch.setattr(*STEPS[step], refuse)
        with refuses(
            "cannot prepare 'mediconfusion'",
            str(final.parent),
            "the disk is full",
            "run the same command again",
        ):
            prepare("mediconfusion", options)

    assert not final.exists()
    kept = identities(work / "images")
    assert len(kept) == (20 if step == "copy" else 27)
    copies.fail_after()

    assert prepare("mediconfusion", options).images == 27
    assert len(copies.names) == 27 - len(kept)
    assert identities(final / "images").items() >= kept.items()


@pytest.mark.parametrize(
    ("step", "error"),
    [("save", disk_full("/x")), ("manifest", KeyboardInterrupt()), ("rename", disk_full("/x"))],
)
def test_old_dataset_stays_until_the_new_one_is_whole(
    options, source, final, monkeypatch, step, error
):
    old = prepare("mediconfusion", options)
    row("dataset.json", "90001", question="Something else?")(source)

    def fail(self, *args, **kwargs):
        if step == "rename" and not self.name.startswith(".preparing-"):
            return rename(self, *args, **kwargs)
        if step != "rename":
            assert load_documents("mediconfusion")[0]["question"].startswith(
                "Where is the bright spot"
            )
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step], fail)
        with pytest.raises((KeyboardInterrupt, MedTasksError)):
            prepare("mediconfusion", options)

    assert Manifest.read(final) == old
    assert list(verify("mediconfusion")) == []

    assert prepare("mediconfusion", options) != old
    assert load_documents("mediconfusion")[0]["question"] == "Something else?"
    assert sorted(path.name for path in final.parent.iterdir()) == [
        ".mediconfusion.lock",
        "mediconfusion",
    ]


def test_a_crash_between_the_two_renames_is_mended_by_the_next_attempt(options, source, final):
    old = prepare("mediconfusion", options)
    final.rename(final.with_name(".old-mediconfusion"))
    row("dataset.json", "90001", im_1_correct="C")(source)
    with pytest.raises(Exception, match="should be 'A' or 'B'"):
        prepare("mediconfusion", options)
    assert Manifest.read(final) == old


def test_second_preparer_is_turned_away_and_that_of_another_dataset_is_not(
    options, final, refuses
):
    final.parent.mkdir(parents=True)
    with held(final.with_name(".mediconfusion.lock")):
        with refuses(
            "another process is preparing 'mediconfusion'",
            str(final.parent),
            "wait for it to end",
        ):
            prepare("mediconfusion", options)
        assert not final.exists()
    with work_folder("other", Access.PUBLIC):
        assert prepare("mediconfusion", options).rows == 32
    assert dataset_folder("other").with_name(".preparing-other").is_dir()
