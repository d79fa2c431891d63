import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import platformdirs
import pytest

from medtasks.judges.judge_client import VerdictCache, default_cache_folder, verdict_key

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


def test_what_is_kept_is_read_by_another_instance(cache):
    assert cache.reply(KEY) is None
    cache.keep(KEY, "A: 9\nB: 2 \u00e9\ud800")
    assert VerdictCache(cache.path.parent).reply(KEY) == "A: 9\nB: 2 \u00e9\ud800"
    assert cache.reply("ab" * 32) is None


def test_the_file_is_private_and_holds_no_prompt(cache):
    key = verdict_key(**(QUESTION | {"user": "Mrs Example has a fracture"}))
    cache.keep(key, "A: 1")
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600
    assert b"Example" not in cache.path.read_bytes()


def test_a_damaged_file_is_a_miss_with_one_warning(cache, warnings):
    cache.path.parent.mkdir(parents=True)
    cache.path.write_bytes(b"no database at all" * 100)
    assert cache.reply(KEY) is None
    cache.keep(KEY, "A: 1")
    assert len(warnings) == 1
    assert str(cache.path) in warnings[0]


def test_threads_read_and_write_together(cache):
    text = "x" * 300_000
    cache.keep(KEY, text)
    with ThreadPoolExecutor(4) as workers:
        writing = [workers.submit(cache.keep, KEY, text) for _ in range(10)]
        assert set(workers.map(cache.reply, [KEY] * 20)) == {text}
    assert [write.result() for write in writing] == [None] * 10
