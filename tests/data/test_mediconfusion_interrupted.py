"""Preparing survives Ctrl-C, a full disk, a crash and a second preparer: nothing is lost, the next run completes."""

import errno
import os
import shutil
from pathlib import Path

import datasets
import pytest

from medtasks.data.catalogue import Access
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents, work_folder
from medtasks.data.images.decoding import ImageStore
from medtasks.data.prepare.prepare_dataset import prepare, verify
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import MedTasksError
from medtasks.home import dataset_folder

from ..held_lock import held

STEPS = {"save": (datasets.DatasetDict, "save_to_disk"), "manifest": (Manifest, "write"), "rename": (Path, "rename")}
HALF = b"\xff\xd8 half an image"
add_file, rename = ImageStore.add_file, Path.rename

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def options(source):
    return Options(source, sample=True)


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


def test_stale_and_foreign_files_of_the_last_attempt_are_replaced(options, source, copies, final, work):
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
def test_full_disk_is_one_sentence_and_loses_nothing(options, copies, final, work, monkeypatch, refuses, step):
    def refuse(*args, **kwargs):
        raise disk_full(work / "somewhere")

    with monkeypatch.context() as patch:
        if step == "copy":
            copies.fail_after(20, disk_full(work / "images/90020.jpg"))
        else:
            patch.setattr(*STEPS[step], refuse)
        with refuses(
            "cannot prepare 'mediconfusion'", str(final.parent), "the disk is full", "run the same command again"
        ):
            prepare("mediconfusion", options)
    assert not final.exists()
    kept = identities(work / "images")
    assert len(kept) == (20 if step == "copy" else 27)
    copies.fail_after()
    assert prepare("mediconfusion", options).images == 27
    assert len(copies.names) == 27 - len(kept)
    assert identities(final / "images").items() >= kept.items()


def test_other_troubles_with_the_disk_are_named(options, copies, home, refuses):
    copies.fail_after(0, PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/locked/images"))
    with refuses("/locked/images: Permission denied", "MEDTASKS_HOME"):
        prepare("mediconfusion", options)
    shutil.rmtree(home)
    home.write_text("I was here first.")
    with refuses("cannot prepare 'mediconfusion'", str(home)):
        prepare("mediconfusion", options)


@pytest.mark.parametrize(
    ("step", "error"), [("save", disk_full("/x")), ("manifest", KeyboardInterrupt()), ("rename", disk_full("/x"))]
)
def test_old_dataset_stays_until_the_new_one_is_whole(options, records, final, monkeypatch, step, error):
    old = prepare("mediconfusion", options)
    records.change("90001", question="Something else?")

    def fail(self, *args, **kwargs):
        if step == "rename" and not self.name.startswith(".preparing-"):
            return rename(self, *args, **kwargs)
        if step != "rename":
            assert load_documents("mediconfusion")[0]["question"].startswith("Where is the bright spot")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step], fail)
        with pytest.raises((KeyboardInterrupt, MedTasksError)):
            prepare("mediconfusion", options)
    assert Manifest.read(final) == old
    assert list(verify("mediconfusion")) == []
    assert prepare("mediconfusion", options) != old
    assert load_documents("mediconfusion")[0]["question"] == "Something else?"
    assert sorted(path.name for path in final.parent.iterdir()) == [".mediconfusion.lock", "mediconfusion"]


def test_a_crash_between_the_two_renames_is_mended_by_the_next_attempt(options, records, final):
    old = prepare("mediconfusion", options)
    final.rename(final.with_name(".old-mediconfusion"))
    records.change("90001", im_1_correct="C")
    with pytest.raises(Exception, match="should be 'A' or 'B'"):
        prepare("mediconfusion", options)
    assert Manifest.read(final) == old


def test_second_preparer_is_turned_away_and_that_of_another_dataset_is_not(options, final, refuses):
    final.parent.mkdir(parents=True)
    with held(final.with_name(".mediconfusion.lock")):
        with refuses("another process is preparing 'mediconfusion'", str(final.parent), "wait for it to end"):
            prepare("mediconfusion", options)
        assert not final.exists()
    with work_folder("other", Access.PUBLIC):
        assert prepare("mediconfusion", options).rows == 32
    assert dataset_folder("other").with_name(".preparing-other").is_dir()
