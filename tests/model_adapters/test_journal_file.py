"""The file of a journal: whole, torn, damaged, on a full disk, and written by many at once."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from medtasks.net.journal import AsyncJournal, Entry, Journal, journal_folder

from ..tables import each_row

NAME = "f" * 24


def entry(text, tokens=3):
    return Entry({"text": text}, tokens)


def opened(folder, rank=0):
    return Journal(folder, NAME, rank, 1)


def test_entries_come_back_and_what_was_just_written_does_not(tmp_path):
    journal = opened(tmp_path)
    numbers = Entry({"numbers": [0.1 + 0.2, 1e-300, 123456789.123456789, 2.0]}, 9)  # to the last bit
    journal.add({"a": entry('é\n"\u2028'), "b": numbers})
    assert journal.replay("a") is None
    again = opened(tmp_path)
    assert again.replay("a") == entry('é\n"\u2028')
    assert again.replay("b") == numbers
    assert again.replay("c") is None
    assert len(journal.path.read_bytes().splitlines()) == 2


@each_row("kept", [1, 20, -2, -1])
def test_a_torn_last_line_is_dropped_with_one_warning_and_the_next_is_whole(tmp_path, log, kept):
    journal = opened(tmp_path)
    journal.add({"a": entry("1")})
    whole = journal.path.read_bytes()
    journal.add({"b": entry("2")})
    journal.path.write_bytes(whole + journal.path.read_bytes()[len(whole) :][:kept])
    again = opened(tmp_path)
    assert (again.replay("a"), again.replay("b")) == (entry("1"), None)
    assert len([line for line in log if "cut off" in line]) == 1
    again.add({"c": entry("3"), "b": entry("2")})
    third = opened(tmp_path)
    assert [third.replay(key) for key in "abc"] == [entry("1"), entry("2"), entry("3")]


@each_row(
    "damage",
    [
        lambda line: b"nonsense",
        lambda line: b"{}",
        lambda line: b"[1]",
        lambda line: b'"text"',
        lambda line: b"[" * 100_000,
        lambda line: b"\xff\x00" + line,
        lambda line: line[:-10],
        lambda line: line.replace(b'"text": "2"', b'"text": "5"'),
        lambda line: line.replace(b'"tokens": 3', b'"tokens": 4'),
        lambda line: line.replace(b'"key": "b"', b'"key": "d"'),
    ],
)
def test_damaged_lines_are_skipped_and_counted_in_one_warning(tmp_path, log, damage):
    journal = opened(tmp_path)
    journal.add({key: entry(text) for key, text in zip("abc", "123", strict=True)})
    lines = journal.path.read_bytes().splitlines()
    journal.path.write_bytes(b"\n".join([lines[0], damage(lines[1]), damage(lines[1]), lines[2], b""]))
    again = opened(tmp_path)
    assert [again.replay(key) for key in "abcd"] == [entry("1"), None, entry("3"), None]
    (line,) = log
    assert "2 damaged line(s)" in line


def test_after_a_full_disk_the_lines_are_tried_again_and_stay_whole(tmp_path, log, monkeypatch):
    real, left = os.write, [10]

    def nearly_full(file, content):
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        count = min(left[0], len(content))
        left[0] -= count
        return real(file, content[:count])

    journal = opened(tmp_path)
    monkeypatch.setattr(os, "write", nearly_full)
    journal.add({"a": entry("1")})
    journal.add({"b": entry("2")})
    assert journal.path.read_bytes() == b"", "half a batch is none"
    assert "No space left on device" in log[0]
    assert "journal=FOLDER" in log[0]
    left[0] = 10**6
    journal.add({"c": entry("3")})
    again = opened(tmp_path)
    assert [again.replay(key) for key in "abc"] == [entry("1"), entry("2"), entry("3")]
    assert len(log) == 1


def test_a_folder_that_cannot_be_made_costs_a_warning(tmp_path, log):
    (tmp_path / "file").write_text("")
    journal = opened(tmp_path / "file" / "journal")
    journal.add({"a": entry("1")})
    assert len(log) == 1


def test_no_two_processes_write_one_file_even_as_the_same_rank(tmp_path):
    one, other = opened(tmp_path), opened(tmp_path)
    one.add({"a": entry("1")})
    other.add({"b": entry("2")})
    one.add({"c": entry("3")})
    other.path.rename(tmp_path / f"{NAME}.rank1of3.jsonl")  # of another number of processes, named as once
    again = opened(tmp_path)
    assert [again.replay(key) for key in "abc"] == [entry("1"), entry("2"), entry("3")]
    assert len(one.path.read_bytes().splitlines()) == 2


def test_batches_are_forced_to_the_disk(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(file) or real(file))
    journal = opened(tmp_path)
    journal.add({"a": entry("1"), "b": entry("2")})
    journal.add({})
    journal.add({"c": entry("3")})
    assert len(synced) == 2


def test_the_argument_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    assert journal_folder("true", "m") == journal_folder("True", "m") == tmp_path / "journal" / "m"
    assert journal_folder("false", "m") is None
    assert journal_folder(str(tmp_path / "x"), "m") == tmp_path / "x" / "m"


# ---- many at once ----


class SlowDisk:
    """A disk whose writes take until it is ``ready``."""

    def __init__(self):
        self.begun, self.ready, self.writes = threading.Event(), threading.Event(), 0

    def fsync(self, file):
        self.begun.set()
        assert self.ready.wait(300)
        self.writes += 1


@pytest.fixture
def slow_disk(monkeypatch):
    disk = SlowDisk()
    monkeypatch.setattr(os, "fsync", disk.fsync)
    return disk


def test_answers_of_many_requests_go_to_the_disk_together_while_the_loop_goes_on(tmp_path, slow_disk):
    journal = AsyncJournal(opened(tmp_path))

    async def ask(number):
        await journal.add({str(number): entry(str(number))})
        assert f'"key": "{number}"'.encode() in journal.journal.path.read_bytes(), "before the answer is handed on"

    async def run(numbers):
        first = asyncio.ensure_future(ask(numbers[0]))
        await asyncio.to_thread(slow_disk.begun.wait)
        others = asyncio.gather(*map(ask, numbers[1:]))
        while len(journal._waiting) < len(numbers) - 1:  # would never end if the loop stood still
            await asyncio.sleep(0)
        assert not first.done()
        slow_disk.ready.set()
        await asyncio.gather(first, others)

    asyncio.run(run(range(64)))
    assert slow_disk.writes == 2
    asyncio.run(run(range(64, 65)))  # a new loop
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda number: journal.submit({str(number): entry("x")}).result(), range(70, 100)))
    again = AsyncJournal(opened(tmp_path))
    assert again.replay("63") == entry("63")
    assert again.replay("64").tokens == again.replay("99").tokens == 3


def test_a_request_that_is_given_up_takes_no_other_with_it(tmp_path, slow_disk):
    journal = AsyncJournal(opened(tmp_path))

    async def run():
        first, second, third = (asyncio.ensure_future(journal.add({key: entry(key)})) for key in "abc")
        await asyncio.to_thread(slow_disk.begun.wait)
        second.cancel()
        slow_disk.ready.set()
        await asyncio.gather(first, third)

    asyncio.run(run())
    again = opened(tmp_path)
    assert [again.replay(key) for key in "abc"] == [entry("a"), entry("b"), entry("c")]
