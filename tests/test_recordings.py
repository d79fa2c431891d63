"""Archives of recordings hold files and nothing else, and depend on names and contents alone."""

import os
import tarfile
from pathlib import Path

from . import recordings
from .recordings import ARCHIVES, UNPACKED, pack, unpack


def test_an_archive_depends_on_names_and_contents_alone(tmp_path):
    archives = []
    for number, names in enumerate((("b/c.txt", "a.bin"), ("a.bin", "b/c.txt"))):
        root = tmp_path / str(number)
        (root / "b").mkdir(parents=True)
        for name in names:
            (root / name).write_bytes(name.encode())
            (root / name).chmod(0o600 if number else 0o640)
            os.utime(root / name, (number, number))
        archives.append(tmp_path / f"{number}.tar.xz")
        pack(root.rglob("*.*"), root, archives[-1])
    assert archives[0].read_bytes() == archives[1].read_bytes()
    unpack(archives[0], tmp_path / "again")
    assert (tmp_path / "again" / "b" / "c.txt").read_bytes() == b"b/c.txt"


def test_a_session_unpacks_once_and_a_named_folder_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv(UNPACKED, str(tmp_path / "session"))
    monkeypatch.setattr(recordings, "ARCHIVES", tmp_path / "archives")
    monkeypatch.delenv("MEDTASKS_GOLDEN", raising=False)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "rule.jsonl").write_text("{}\n")
    pack(
        [tmp_path / "files" / "rule.jsonl"],
        tmp_path / "files",
        tmp_path / "archives" / "golden" / "files.tar.xz",
    )
    folder = recordings.recordings("MEDTASKS_GOLDEN", "golden")
    assert (folder / "rule.jsonl").read_text() == "{}\n"
    written = (folder / "rule.jsonl").stat()
    assert recordings.recordings("MEDTASKS_GOLDEN", "golden") == folder
    assert (folder / "rule.jsonl").stat() == written
    assert {path.name for path in tmp_path.iterdir()} == {
        "session",
        "archives",
        "files",
    }  # nothing half unpacked
    monkeypatch.setenv("MEDTASKS_GOLDEN", str(tmp_path / "elsewhere"))
    assert recordings.recordings("MEDTASKS_GOLDEN", "golden") == tmp_path / "elsewhere"


def test_the_archives_are_small_have_a_page_and_hold_nothing_of_the_machine_that_packed_them():
    archives = sorted(ARCHIVES.glob("*/*.tar.xz"))
    assert sum(archive.stat().st_size for archive in archives) < 9e6
    page = (ARCHIVES / "README.md").read_text(encoding="utf-8")
    pages = {
        name.name.partition("_")[0].removesuffix(".md") for name in ARCHIVES.glob("*/*.md")
    }
    for archive in archives:
        name = archive.name.removesuffix(".tar.xz")
        assert name in pages or f"`{archive.parent.name}/{name}" in page
        with tarfile.open(archive, "r:xz") as tar:
            for entry in tar:
                assert entry.isfile()
                assert not Path(entry.name).is_absolute()
                assert (entry.mtime, entry.uid, entry.uname, entry.mode) == (0, 0, "", 0o644)
