"""A run that was killed goes on where it stopped, and nothing old is served for something new."""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from medtasks.model_adapters.base.arguments import AdapterArguments
from medtasks.model_adapters.base.harness_adapter import files_digest, weights_digest
from medtasks.model_adapters.base.requests import Request, RequestReader
from medtasks.model_adapters.tiny import MedTasksTiny
from PIL import Image

from medtasks.extract.failure import failure_cause

from ..tables import each_row
from .toys import CountingTiny


@pytest.fixture
def restart(new_bench):
    """A fresh adapter, as after a restart."""
    return lambda **arguments: new_bench(kind=CountingTiny, **{"journal": True, "batch_size": 5, **arguments})


def journals(home):
    return sorted((Path(home) / "journal" / "medtasks_tiny").iterdir())


@pytest.fixture
def home():
    return os.environ["MEDTASKS_HOME"]


def test_a_restarted_run_computes_nothing_twice_and_answers_alike(restart, bench, home, log):
    first, second = restart(), restart()
    replies, scores = first.adapter.generate_until(first.generation()), first.adapter.loglikelihood(first.scoring())
    assert second.adapter.generate_until(second.generation()) == replies
    assert second.adapter.loglikelihood(second.scoring()) == scores
    assert (first.adapter.ran, second.adapter.ran) == (36, 0)
    assert replies == bench.adapter.generate_until(bench.generation())
    assert scores == bench.adapter.loglikelihood(bench.scoring())
    (file,) = journals(home)
    assert ".rank0of1." in file.name
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "INFO 12 of 12 generate_until answers come from the journal" in "".join(log)


def test_token_counts_and_formats_come_back_too(restart):
    first, second = restart(), restart(token_counts=True, loglikelihood_format="json", batch_size=2)
    counted = restart(token_counts=True, journal=False)
    first.adapter.generate_until(first.generation())
    first.adapter.loglikelihood(first.scoring())
    assert second.adapter.generate_until(second.generation()) == counted.adapter.generate_until(counted.generation())
    assert json.loads(second.adapter.loglikelihood(second.scoring())[0][0])["tokens"] == 6
    assert second.adapter.ran == 0, "how answers are batched and worded does not make them others"


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
    assert [file.name[24:34] for file in journals(home)] == [".rank0of2.", ".rank1of2."]
    three.adapter.generate_until(three.generation())
    assert (one.adapter.ran, two.adapter.ran, three.adapter.ran) == (6, 6, 0)
    assert len(journals(home)) == 2


# ---- what an answer depends on ----


def put(place, value):
    """Change one of a request's arguments."""

    def change(request):
        request.arguments = (*request.args[:place], value(request.args[place]), *request.args[place + 1 :])

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
    "more tokens": put(1, lambda given: given | {"max_new_tokens": given["max_new_tokens"] + 1}),
    "stop string": put(1, lambda given: given | {"until": ["\n"]}),
    "document": put(3, lambda doc_id: doc_id + 2),
    "index": lambda request: setattr(request, "idx", 3),
}


@each_row("change", CHANGES)
def test_a_changed_request_is_computed_anew(restart, change):
    first, second = restart(), restart()
    first.adapter.generate_until(first.generation([0, 1]))
    requests = second.generation([0, 1])
    for request in requests:
        CHANGES[change](request)
    second.adapter.generate_until(requests)
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


def test_images_differ_by_palette_and_transparency():
    def digests(image):
        documents = {"t": {"s": [image]}}
        request = Request("", {}, lambda doc: [doc], 0, "t", "s", 0, 0, False)
        return RequestReader(documents, scored=False).read(request).visuals.digests

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
