"""A run that was killed goes on where it stopped, and nothing old is served for something new; the file itself."""

import asyncio
import json
import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from medtasks.model_adapters.base.shared_scoring import CAN_SHARE
from medtasks.model_adapters.tiny import MedTasksTiny, TinyArguments
from PIL import Image

from medtasks.extract.failure import failure_cause
from medtasks.net.journal import (
    RUN_VARIABLE,
    AsyncJournal,
    Entry,
    Journal,
    current_run,
    journal_folder,
)

from ..tables import each_row
from .toys import TASK, CountingTiny


@pytest.fixture
def restart(new_bench):
    return lambda **arguments: new_bench(
        kind=CountingTiny, **{"journal": True, "batch_size": 5, **arguments}
    )


def journals():
    return sorted((Path(os.environ["MEDTASKS_HOME"]) / "journal" / "medtasks_tiny").iterdir())


@pytest.fixture
def answered(restart):
    """A run with a journal that has answered everything: the bench, replies and scores."""
    first = restart()
    replies = first.adapter.generate_until(first.generation())
    return first, replies, first.adapter.loglikelihood(first.scoring())


def test_a_restarted_run_computes_nothing_twice(restart, answered, log):
    first, replies, scores = answered
    second = restart()

    assert second.adapter.generate_until(second.generation()) == replies
    assert second.adapter.loglikelihood(second.scoring()) == scores
    assert (first.adapter.ran, second.adapter.ran) == (36, 0)
    assert "INFO 12 of 12 generate_until answers come from the journal" in "".join(log)


def test_a_run_with_a_journal_answers_as_without(answered, bench):
    _, replies, scores = answered

    assert replies == bench.adapter.generate_until(bench.generation())
    assert scores == bench.adapter.loglikelihood(bench.scoring())


def test_a_journal_is_one_file_of_its_owner(answered):
    (file,) = journals()
    assert ".rank0of1." in file.name
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_how_answers_are_batched_and_worded_does_not_make_them_others(restart, answered):
    second = restart(token_counts=True, loglikelihood_format="json", batch_size=2)
    counted = restart(token_counts=True, journal=False)

    assert second.adapter.generate_until(second.generation()) == counted.adapter.generate_until(
        counted.generation()
    )
    assert json.loads(second.adapter.loglikelihood(second.scoring())[0][0])["tokens"] == 6
    assert second.adapter.ran == 0


def test_copies_of_another_run_are_told_from_answers_of_an_earlier_attempt(
    restart, monkeypatch
):
    def copied(run, doc_ids):
        monkeypatch.setenv(RUN_VARIABLE, run)
        bench = restart()
        bench.adapter.generate_until(bench.generation(doc_ids))
        bench.adapter.loglikelihood(bench.scoring(doc_ids=doc_ids[:1]))
        assert {task for task, _ in bench.adapter.copied} <= {TASK}
        return sorted(row for _, row in bench.adapter.copied)

    assert copied("monday", [0, 1]) == []
    assert copied("monday", [0, 1, 2]) == []  # after a kill
    assert copied("tuesday", [2, 3, 1]) == [1, 2]
    assert copied("tuesday", [3]) == []
    assert copied("monday", [3, 0]) == [3]


def test_a_process_is_a_run_of_its_own_unless_it_was_started_again(monkeypatch):
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    assert current_run() != current_run()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # its agent starts workers again
    assert current_run() == current_run()


def test_sampled_repeats_are_kept_apart(restart):
    first, second = restart(), restart()
    sampled = {"do_sample": True, "temperature": 1.5}
    (request,) = first.generation([0], **sampled)
    replies = first.adapter.generate_until([request] * 4)
    (request,) = second.generation([0], **sampled)

    assert second.adapter.generate_until([request] * 4) == replies
    assert second.adapter.ran == 0
    assert len(set(replies)) == 4


def test_failed_samples_are_tried_again(restart):
    def failing(doc):
        raise OSError("gone")

    first, second, third = restart(), restart(), restart()
    (failed,) = first.adapter.generate_until(first.generation([0], visual=failing))
    assert failure_cause(failed)

    second.adapter.model_inputs = lambda batch: 1 / 0
    assert failure_cause(second.adapter.generate_until(second.generation([0]))[0])

    assert failure_cause(third.adapter.generate_until(third.generation([0]))[0]) is None
    assert third.adapter.ran == 1


def test_ranks_share_their_answers(restart):
    one, two, three = restart(), restart(), restart()
    one.adapter._rank, one.adapter._world_size = 0, 2
    two.adapter._rank, two.adapter._world_size = 1, 2

    one.adapter.generate_until(one.generation(range(0, 12, 2)))
    two.adapter.generate_until(two.generation(range(1, 12, 2)))
    assert [file.name[24:34] for file in journals()] == [".rank0of2.", ".rank1of2."]

    three.adapter.generate_until(three.generation())
    assert (one.adapter.ran, two.adapter.ran, three.adapter.ran) == (6, 6, 0)
    assert len(journals()) == 2


def put(place, value):
    def change(request):
        request.arguments = (
            *request.args[:place],
            value(request.args[place]),
            *request.args[place + 1 :],
        )

    return change


def touched(doc):
    image = doc["image"].copy()
    image.putpixel((89, 69), (image.getpixel((89, 69)) + 1) % 256)
    return [image]


CHANGES = {
    "prompt": put(0, lambda text: f"{text} "),
    "image": put(2, lambda _: lambda doc: [Image.new("RGB", (90, 70))]),
    "one pixel": put(2, lambda _: touched),
    "another image more": put(2, lambda _: lambda doc: [doc["image"]] * 2),
    "more tokens": put(
        1, lambda given: given | {"max_new_tokens": given["max_new_tokens"] + 1}
    ),
    "stop string": put(1, lambda given: given | {"until": ["\n"]}),
    "document": put(3, lambda doc_id: doc_id + 2),
    "index": lambda request: setattr(request, "idx", 3),
}


def test_a_changed_request_is_computed_anew(restart):
    first, second = restart(), restart()
    first.adapter.generate_until(first.generation([0, 1]))
    for name, change in CHANGES.items():
        requests, before = second.generation([0, 1]), second.adapter.ran
        for request in requests:
            change(request)
        second.adapter.generate_until(requests)
        assert second.adapter.ran == before + 2, name


def test_a_changed_model_argument_is_computed_anew(restart):
    changes = [{}, {"seed": 1}, {"max_new_tokens": 9}]
    if CAN_SHARE:
        changes.append({"prefix_cache": False})
    for number, arguments in enumerate(changes, start=1):
        bench = restart(**arguments)
        bench.adapter.loglikelihood(bench.scoring(doc_ids=[0]))
        assert (bench.adapter.ran, len(journals())) == (2, number), arguments


@dataclass(frozen=True)
class PublishedArguments(TinyArguments):
    pretrained: str = ""


class Published(MedTasksTiny):
    """A model with files of its own."""

    arguments_type = PublishedArguments


def digest(**given):
    return Published(device="cpu", weights="random", **given).fingerprint()


def test_models_of_other_weights_are_told_apart(tmp_path):
    (tmp_path / "tokenizer.json").write_text("a")
    before = digest(pretrained=str(tmp_path))
    assert digest(pretrained=str(tmp_path)) == before
    assert len({before, digest(), digest(seed=1)}) == 3


def test_models_of_changed_files_are_told_apart(tmp_path):
    (tmp_path / "tokenizer.json").write_text("a")
    before = digest(pretrained=str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("b")
    assert digest(pretrained=str(tmp_path)) != before


def test_where_the_journal_lies_changes_no_answer(tmp_path):
    assert digest(journal=str(tmp_path)) == digest()


NAME = "f" * 24


def entry(text, tokens=3):
    return Entry({"text": text}, tokens)


def opened(folder, rank=0):
    return Journal(folder, NAME, rank, 1)


def test_entries_come_back_to_the_last_bit(tmp_path):
    journal = opened(tmp_path)
    numbers = Entry({"numbers": [0.1 + 0.2, 1e-300, 123456789.123456789, 2.0]}, 9)
    journal.add({"a": entry('é\n"\u2028'), "b": numbers})
    assert journal.replay("a") is None

    again = opened(tmp_path)

    assert again.replay("a") == entry('é\n"\u2028')
    assert again.replay("b") == numbers
    assert again.replay("c") is None
    assert len(journal.path.read_bytes().splitlines()) == 2


def test_a_folder_that_cannot_be_made_costs_a_warning(tmp_path, log):
    (tmp_path / "file").write_text("")
    journal = opened(tmp_path / "file" / "journal")

    journal.add({"a": entry("1")})

    assert len(log) == 1


def test_a_journal_lies_in_the_folder_that_the_argument_names(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    assert (
        journal_folder("true", "m") == journal_folder("True", "m") == tmp_path / "journal" / "m"
    )
    assert journal_folder("false", "m") is None
    assert journal_folder(str(tmp_path / "x"), "m") == tmp_path / "x" / "m"


@each_row("kept", [1, 20, -2, -1])
def test_a_torn_last_line_is_dropped_with_one_warning(tmp_path, log, kept):
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
    journal.path.write_bytes(
        b"\n".join([lines[0], damage(lines[1]), damage(lines[1]), lines[2], b""])
    )
    again = opened(tmp_path)
    assert [again.replay(key) for key in "abcd"] == [entry("1"), None, entry("3"), None]
    (line,) = log
    assert "2 damaged line(s)" in line


def test_after_a_full_disk_the_lines_are_tried_again(tmp_path, log, monkeypatch):
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


def test_every_process_has_a_file_of_its_own(tmp_path):
    one, other = opened(tmp_path), opened(tmp_path)
    one.add({"a": entry("1")})
    other.add({"b": entry("2")})
    one.add({"c": entry("3")})
    # Of another number of processes, named as once.
    other.path.rename(tmp_path / f"{NAME}.rank1of3.jsonl")

    again = opened(tmp_path)

    assert [again.replay(key) for key in "abc"] == [entry("1"), entry("2"), entry("3")]
    assert len(one.path.read_bytes().splitlines()) == 2


def test_each_batch_is_forced_to_the_disk(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(file) or real(file))
    journal = opened(tmp_path / "synced")

    journal.add({"a": entry("1"), "b": entry("2")})
    journal.add({})
    journal.add({"c": entry("3")})

    assert len(synced) == 2


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


def test_a_request_that_is_given_up_takes_no_other_with_it(tmp_path, slow_disk):
    journal = AsyncJournal(opened(tmp_path))

    async def run():
        first, second, third = (
            asyncio.ensure_future(journal.add({key: entry(key)})) for key in "abc"
        )
        await asyncio.to_thread(slow_disk.begun.wait)
        second.cancel()
        slow_disk.ready.set()
        await asyncio.gather(first, third)

    asyncio.run(run())
    again = opened(tmp_path)
    assert [again.replay(key) for key in "abc"] == [entry("a"), entry("b"), entry("c")]
