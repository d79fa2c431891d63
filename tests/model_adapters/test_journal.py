"""A run that was killed goes on where it stopped, and nothing old is served for something new."""

import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from lmms_eval.caching.response_cache import ResponseCache
from medtasks.model_adapters import journal as journal_module
from medtasks.model_adapters.arguments import AdapterArguments
from medtasks.model_adapters.fingerprint import files_digest, weights_digest
from medtasks.model_adapters.journal import Entry, Journal, digest_of, journal_folder
from medtasks.model_adapters.requests import Request
from medtasks.model_adapters.samples import SampleReader
from medtasks.model_adapters.tiny import MedTasksTiny
from PIL import Image

from medtasks.answers.failure import failure_cause

NAME = "f" * 24


class Counting(MedTasksTiny):
    """Counts the samples it really runs."""

    def load(self):
        super().load()
        self.ran = 0

    def generate_batch(self, prompts, settings, seed):
        self.ran += len(prompts)
        return super().generate_batch(prompts, settings, seed)

    def score_batch(self, items):
        self.ran += len(items)
        return super().score_batch(items)


@pytest.fixture
def restart(new_bench):
    """A fresh adapter, as after a restart."""
    return lambda **arguments: new_bench(kind=Counting, **{"journal": True, "batch_size": 5, **arguments})


def journals(home):
    return sorted((Path(home) / "journal" / "medtasks_tiny").iterdir())


@pytest.fixture
def home():
    return os.environ["MEDTASKS_HOME"]


# ---- through an adapter ----


def test_a_restarted_run_computes_nothing_twice_and_answers_alike(restart, bench, home, log):
    first, second = restart(), restart()
    replies, scores = first.adapter.generate_until(first.generation()), first.adapter.loglikelihood(first.scoring())
    assert second.adapter.generate_until(second.generation()) == replies
    assert second.adapter.loglikelihood(second.scoring()) == scores
    assert (first.adapter.ran, second.adapter.ran) == (36, 0)
    assert replies == bench.adapter.generate_until(bench.generation())
    assert scores == bench.adapter.loglikelihood(bench.scoring())
    (file,) = journals(home)
    assert file.name.endswith(".rank0of1.jsonl")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "INFO 12 of 12 generate_until answers come from the journal" in "".join(log)


def test_the_second_half_alone_is_computed_after_a_run_that_stopped(restart):
    first, second = restart(), restart()
    first.adapter.generate_until(first.generation(range(6)))
    second.adapter.generate_until(second.generation())
    assert second.adapter.ran == 6


def test_token_counts_and_formats_come_back_too(restart):
    first, second = restart(), restart(token_counts=True, loglikelihood_format="json", batch_size=2)
    counted = restart(token_counts=True, journal=False)
    first.adapter.generate_until(first.generation())
    first.adapter.loglikelihood(first.scoring())
    assert second.adapter.generate_until(second.generation()) == counted.adapter.generate_until(counted.generation())
    assert json.loads(second.adapter.loglikelihood(second.scoring())[0][0])["tokens"] == 6
    assert second.adapter.ran == 0, "how answers are batched and worded does not make them others"


@pytest.mark.parametrize("journal", ["false", False, "False"])
def test_without_journal_nothing_is_written(restart, home, journal):
    bench = restart(journal=journal)
    bench.adapter.generate_until(bench.generation([0]))
    assert not Path(home).exists()


def test_another_folder_can_be_named(restart, home, tmp_path):
    bench = restart(journal=tmp_path / "mine")
    bench.adapter.generate_until(bench.generation([0]))
    assert len(list((tmp_path / "mine" / "medtasks_tiny").iterdir())) == 1
    assert not Path(home).exists()


def test_one_run_that_asks_twice_computes_twice(restart):
    bench = restart()
    for _ in range(2):
        bench.adapter.generate_until(bench.generation([0, 1]))
    assert bench.adapter.ran == 4


def changed_settings(bench, change):
    requests = bench.generation([0, 1])
    for request in requests:
        change(request)
    return requests


def other_prompt(request):
    request.arguments = (request.args[0] + " ", *request.args[1:])


def other_image(request):
    pixels = Image.new("RGB", (90, 70))
    request.arguments = (*request.args[:2], lambda doc: [pixels], *request.args[3:])


def one_pixel(request):
    def touched(doc):
        image = doc["image"].copy()
        image.putpixel((89, 69), (image.getpixel((89, 69)) + 1) % 256)
        return [image]

    request.arguments = (*request.args[:2], touched, *request.args[3:])


def another_image_more(request):
    request.arguments = (*request.args[:2], lambda doc: [doc["image"]] * 2, *request.args[3:])


def more_tokens(request):
    request.args[1]["max_new_tokens"] += 1


def other_stop(request):
    request.args[1]["until"] = ["\n"]


def other_doc(request):
    request.arguments = (*request.args[:3], request.args[3] + 2, *request.args[4:])


def other_index(request):
    request.idx = 3


CHANGES = [other_prompt, other_image, one_pixel, another_image_more, more_tokens, other_stop, other_doc, other_index]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_request_is_computed_anew(restart, change):
    first, second = restart(), restart()
    first.adapter.generate_until(changed_settings(first, lambda request: None))
    second.adapter.generate_until(changed_settings(second, change))
    assert second.adapter.ran == 2


@pytest.mark.parametrize(
    "arguments", [{"seed": 1}, {"prefix_cache": False}, {"max_new_tokens": 9}], ids=lambda given: next(iter(given))
)
def test_a_changed_model_argument_is_computed_anew(restart, home, arguments):
    first, second = restart(), restart(**arguments)
    for bench in (first, second):
        bench.adapter.loglikelihood(bench.scoring(doc_ids=[0]))
    assert second.adapter.ran == 2
    assert len(journals(home)) == 2


def test_changed_weights_are_computed_anew(restart):
    first, second = restart(), restart()
    with torch.no_grad():
        second.adapter.network.language_model.lm_head.weight.mul_(1 + 1e-12)
    for bench in (first, second):
        bench.adapter.loglikelihood(bench.scoring(doc_ids=[0]))
    assert second.adapter.ran == 2


def test_a_changed_continuation_and_a_swapped_option_are_computed_anew(restart):
    first, second = restart(), restart()
    first.adapter.loglikelihood(first.scoring(("a", "b"), [0]))
    second.adapter.loglikelihood(second.scoring(("b", "a"), [0]))
    assert second.adapter.ran == 2


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

    first, second = restart(), restart()
    (failed,) = first.adapter.generate_until(first.generation([0], visual=failing))
    assert failure_cause(failed)
    (inner,) = [second.adapter.model_inputs]
    second.adapter.model_inputs = lambda batch: 1 / 0
    assert failure_cause(second.adapter.generate_until(second.generation([0]))[0])
    second.adapter.model_inputs = inner
    third = restart()
    assert failure_cause(third.adapter.generate_until(third.generation([0]))[0]) is None
    assert third.adapter.ran == 1


def test_ranks_read_each_other_and_write_for_themselves(restart, home):
    one, two, three = restart(), restart(), restart()
    one.adapter._rank, one.adapter._world_size = 0, 2
    two.adapter._rank, two.adapter._world_size = 1, 2
    one.adapter.generate_until(one.generation(range(0, 12, 2)))
    two.adapter.generate_until(two.generation(range(1, 12, 2)))
    assert [file.name[24:] for file in journals(home)] == [".rank0of2.jsonl", ".rank1of2.jsonl"]
    three.adapter.generate_until(three.generation())
    assert (one.adapter.ran, two.adapter.ran, three.adapter.ran) == (6, 6, 0)
    assert len(journals(home)) == 2


def test_a_full_disk_costs_one_warning_and_no_answer(restart, bench, log, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal_module.os, "write", full)
    first = restart()
    assert first.adapter.generate_until(first.generation()) == bench.adapter.generate_until(bench.generation())
    warnings = [line for line in log if line.startswith("WARNING")]
    assert len(warnings) == 1
    assert "No space left on device" in warnings[0]
    assert "journal=FOLDER" in warnings[0]
    monkeypatch.undo()


def test_the_response_cache_of_the_harness_and_the_journal_get_along(restart, bench, tmp_path):
    def cache(number):
        return ResponseCache(str(tmp_path / f"{number}.db"), str(tmp_path / f"{number}.jsonl"), "model")

    expected = bench.adapter.generate_until(bench.generation()), bench.adapter.loglikelihood(bench.scoring())
    ran = []
    # A first run, one with a new response cache, and one that finds everything in the first response cache.
    for number in (0, 1, 0):
        other, kept = restart(), cache(number)
        got = kept.execute(other.adapter, "generate_until", other.generation())
        scores = kept.execute(other.adapter, "loglikelihood", other.scoring())
        kept.close()
        assert got == expected[0]
        assert [tuple(pair) for pair in scores] == expected[1]
        ran.append(other.adapter.ran)
    assert ran == [36, 0, 0]


# ---- the file ----


def entry(text, tokens=3):
    return Entry({"text": text}, tokens)


def opened(folder, rank=0):
    return Journal(folder, NAME, rank, 1)


def test_entries_come_back_and_what_was_just_written_does_not(tmp_path):
    journal = opened(tmp_path)
    journal.add({"a": entry('é\n"\u2028'), "b": entry("2", 9)})
    assert journal.replay("a") is None
    again = opened(tmp_path)
    assert again.replay("a") == entry('é\n"\u2028')
    assert again.replay("b") == entry("2", 9)
    assert again.replay("c") is None
    assert len(journal.path.read_bytes().splitlines()) == 2


def test_floats_come_back_to_the_last_bit(tmp_path):
    numbers = [0.1 + 0.2, 1e-300, 123456789.123456789, 2.0]
    opened(tmp_path).add({"a": Entry({"numbers": numbers}, 1)})
    assert opened(tmp_path).replay("a").answer["numbers"] == numbers


@pytest.mark.parametrize("kept", [1, 20, -2, -1])
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


@pytest.mark.parametrize(
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
    monkeypatch.setattr(journal_module.os, "write", nearly_full)
    journal.add({"a": entry("1")})
    journal.add({"b": entry("2")})
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


def test_an_answer_is_not_written_twice(tmp_path):
    journal = opened(tmp_path)
    for _ in range(2):
        journal.add({"a": entry("1")})
    again = opened(tmp_path)
    again.add({"a": entry("1")})
    assert len(journal.path.read_bytes().splitlines()) == 1


def test_batches_are_forced_to_the_disk(tmp_path, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(journal_module.os, "fsync", lambda file: synced.append(file) or real(file))
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


# ---- what an answer depends on ----


def test_images_differ_by_palette_and_transparency():
    def digests(image):
        documents = {"t": {"s": [image]}}
        request = Request("", {}, lambda doc: [doc], 0, "t", "s", 0, 0, False)
        return SampleReader(documents, scored=False).read(request).pictures.digests

    red, blue = Image.new("P", (2, 2)), Image.new("P", (2, 2))
    red.putpalette([255, 0, 0])
    blue.putpalette([0, 0, 255])
    assert digests(red) != digests(blue)
    assert digests(Image.new("L", (2, 4))) != digests(Image.new("L", (4, 2)))
    assert digests(Image.new("RGB", (2, 2))) == digests(Image.new("RGB", (2, 2)))


def test_weights_and_files_are_told_apart(tmp_path):
    one, same, other = (MedTasksTiny(device="cpu", seed=seed) for seed in (0, 0, 1))
    assert weights_digest(one) == weights_digest(same) != weights_digest(other)

    @dataclass(frozen=True)
    class Arguments(AdapterArguments):
        pretrained: str = ""

    def digest(**given):
        return files_digest(Arguments(**given))

    (tmp_path / "tokenizer.json").write_text("a")
    before = digest(pretrained=str(tmp_path))
    assert digest(pretrained=str(tmp_path)) == before != digest()
    (tmp_path / "tokenizer.json").write_text("b")
    assert digest(pretrained=str(tmp_path)) != before
    assert digest(journal=str(tmp_path)) == digest(), "where the journal lies changes no answer"


def test_digests_tell_parts_apart():
    assert (
        len({digest_of("a", "b"), digest_of("ab"), digest_of(["a", "b"]), digest_of("a", 1), digest_of("a", "1")}) == 5
    )
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})


# ---- killed ----

SCRIPT = """
import json, os, random, signal, sys, time
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from conftest import Bench, make_docs
from medtasks.model_adapters.tiny import MedTasksTiny

class Noting(MedTasksTiny):
    noted = None
    def note(self):
        with open(self.noted, "a") as file:
            file.write("x")
        time.sleep(0.02)  # so that few batches pass between two looks at the file
    def generate_batch(self, *given):
        self.note()
        return super().generate_batch(*given)
    def score_batch(self, items):
        self.note()
        return super().score_batch(items)

docs = make_docs(14)
def answer(name):
    bench = Bench(docs, kind=Noting, batch_size=2, journal=os.path.abspath(name))
    bench.adapter.noted = name + ".batches"
    replies = bench.adapter.generate_until(bench.generation())
    scores = bench.adapter.loglikelihood(bench.scoring())
    json.dump([replies, scores], open(name + ".json", "w"))

def run(name, killed_after=None):
    batches = lambda: os.path.getsize(name + ".batches") if os.path.exists(name + ".batches") else 0
    goal = None if killed_after is None else batches() + killed_after
    child = os.fork()
    if child == 0:
        try:
            answer(name)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if goal is not None:
        while batches() < goal and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            time.sleep(0.001)
        time.sleep(random.random() * 0.02)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

random.seed(int(sys.argv[2]))
codes = [run("calm")] + [run("killed", random.randint(1, 2)) for _ in range(5)] + [run("killed")]
print(json.dumps([codes, os.path.getsize("calm.batches"), os.path.getsize("killed.batches")]))
"""


@pytest.mark.slow
def test_a_run_killed_five_times_ends_like_an_undisturbed_one(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    seed = str(int.from_bytes(os.urandom(2), "big"))
    run = subprocess.run(
        [sys.executable, "script.py", str(Path(__file__).parent), seed], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-3000:]
    codes, calm, killed = json.loads(run.stdout.splitlines()[-1])
    assert codes == [0, *[-9] * 5, 0], f"seed {seed}: {run.stderr[-2000:]}"
    assert (tmp_path / "killed.json").read_bytes() == (tmp_path / "calm.json").read_bytes(), f"seed {seed}"
    assert calm == 7 + 14
    assert calm <= killed <= calm + 5, f"seed {seed}: at most the batch under way is repeated per kill"
