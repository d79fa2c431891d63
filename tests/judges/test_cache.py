import errno
import json
import os
import stat
import threading
from pathlib import Path

import platformdirs
import pytest

from medtasks.judges.cache import VerdictCache, default_cache_folder, verdict_key

QUESTION = {
    "base_url": "http://h/v1",
    "model": "m",
    "temperature": 0.0,
    "system": "s",
    "user": "u",
    "prompt_version": 1,
}
KEY = verdict_key(**QUESTION)


@pytest.fixture
def cache(tmp_path):
    return VerdictCache(tmp_path / "judge")


def test_the_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", "~/somewhere")
    assert default_cache_folder() == Path.home() / "somewhere" / "judge"
    monkeypatch.delenv("MEDTASKS_HOME")
    assert default_cache_folder() == platformdirs.user_cache_path("medtasks") / "judge"


def test_the_key_depends_on_every_part_and_survives_versions():
    others = {
        "base_url": "http://h:81/v1",
        "model": "n",
        "temperature": 0.7,
        "system": "S",
        "user": "U",
        "prompt_version": 2,
    }
    keys = {verdict_key(**(QUESTION | {name: other})) for name, other in others.items()}
    assert len(keys | {KEY}) == 7
    # A literal: a change of the key's recipe would silently empty every cache.
    assert KEY == "f5bbeb580434a991c5c80f9df30b6e6a7a72286f0a21990a483de3d1a2f11372"
    assert verdict_key(**(QUESTION | {"temperature": 0})) == KEY
    shifted = QUESTION | {"system": "su", "user": ""}
    assert verdict_key(**shifted) != KEY


def test_what_is_put_is_got_by_another_instance(cache):
    assert cache.get(KEY) is None
    cache.put(KEY, "A: 9\nB: 2 \u00e9\ud800", "m")
    assert VerdictCache(cache.folder).get(KEY) == "A: 9\nB: 2 \u00e9\ud800"
    path = cache.folder / KEY[:2] / KEY[2:4] / f"{KEY}.json"
    assert path == cache.path_of(KEY)
    assert path.is_file()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_files_are_private_and_hold_no_prompt(cache):
    key = verdict_key(**(QUESTION | {"user": "Mrs Example has a fracture"}))
    cache.put(key, "A: 1", "m")
    path = cache.path_of(key)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "Example" not in path.read_text()


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"\xff\xfe\x00", b"null", b"[]", b'"text"', b"[" * 100_000),
        *(
            json.dumps(entry).encode()
            for entry in ({"key": KEY, "text": 7}, {"key": KEY}, {"key": "k", "text": "A: 1"})
        ),
    ],
)
def test_a_corrupted_file_is_a_miss_and_is_mended(cache, content):
    path = cache.path_of(KEY)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert cache.get(KEY) is None
    cache.put(KEY, "A: 1", "m")
    assert cache.get(KEY) == "A: 1"


def test_a_folder_in_the_file_s_place_is_a_miss(cache, warnings):
    cache.path_of(KEY).mkdir(parents=True)
    assert cache.get(KEY) is None
    cache.put(KEY, "A: 1", "m")
    assert len(warnings) == 1


def test_readers_never_see_half_a_file(cache):
    text = "x" * 300_000
    cache.put(KEY, text, "m")
    wrong, done = [], threading.Event()

    def read():
        while not done.is_set():
            if cache.get(KEY) != text:
                wrong.append(1)

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=lambda: [cache.put(KEY, text, "m") for _ in range(40)]) for _ in range(2)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert not wrong


def test_a_full_disk_warns_once_and_leaves_nothing_behind(cache, monkeypatch, warnings):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    cache.put(KEY, "A: 1", "m")
    cache.put("ab" * 32, "A: 1", "m")
    assert len(warnings) == 1
    assert "No space left on device" in warnings[0]
    assert str(cache.folder) in warnings[0]
    assert [path for path in cache.folder.rglob("*") if path.is_file()] == []
