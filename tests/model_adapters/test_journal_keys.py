"""What an answer in the journal depends on: nothing old is served for something new."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from medtasks.model_adapters.base.arguments import AdapterArguments
from medtasks.model_adapters.base.fingerprint import files_digest, weights_digest
from medtasks.model_adapters.base.journal import digest_of
from medtasks.model_adapters.base.requests import Request
from medtasks.model_adapters.base.samples import SampleReader
from medtasks.model_adapters.tiny import MedTasksTiny
from PIL import Image

from .counting_tiny import Counting


@pytest.fixture
def restart(new_bench):
    """A fresh adapter, as after a restart."""
    return lambda **arguments: new_bench(kind=Counting, **{"journal": True, "batch_size": 5, **arguments})


def journals(home):
    return sorted((Path(home) / "journal" / "medtasks_tiny").iterdir())


@pytest.fixture
def home():
    return os.environ["MEDTASKS_HOME"]


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


def test_images_differ_by_palette_and_transparency():
    def digests(image):
        documents = {"t": {"s": [image]}}
        request = Request("", {}, lambda doc: [doc], 0, "t", "s", 0, 0, False)
        return SampleReader(documents, scored=False).read(request).visuals.digests

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
