"""One model over several devices; here all are the CPU: the map that accelerate gets, and the results."""

import re
from types import SimpleNamespace

import pytest
import torch
from medtasks.model_adapters.base import checkpoints
from medtasks.model_adapters.base.batching import KV_CACHE
from medtasks.model_adapters.base.checkpoints import check_device_map, place

from medtasks.errors import AdapterArgumentError

from ..tables import each_row
from .test_adapter_scoring import answers

# Parts beside the language model; LLaVA's is one with its tower, which the map puts on the first GPU.
SEEING = {
    "llava_med": set(),
    "radfm": {"embedding_layer"},
    "med_flamingo": {"vision", "perceiver"},
}
ONE_PROCESS = "spreads a model over the GPUs of one process"


@pytest.fixture
def gpus(monkeypatch):
    """Two GPUs of ``free`` bytes; ``parts`` is the map of the model that was placed last, all of it on the CPU."""
    machine, dispatch = SimpleNamespace(free=0, parts={}), checkpoints.dispatch_model

    def on_cpu(language, parts, **more):
        machine.parts = parts
        dispatch(language, dict.fromkeys(parts, "cpu"), **more)

    monkeypatch.setattr(
        checkpoints, "get_max_memory", lambda: {0: machine.free, 1: machine.free, "cpu": 10**9}
    )
    monkeypatch.setattr(checkpoints, "dispatch_model", on_cpu)
    return machine


@pytest.fixture
def spread(build, gpus):
    """Place a model on two GPUs of which one would do; return it."""

    def run(name):
        model = build(name, batch_size=4, max_failed=0)  # hooks stay on a network
        network, language = model.network, model.language_model
        gpus.free = sum(weight.nbytes for weight in language.parameters())
        types = {key: weight.dtype for key, weight in network.named_parameters()}
        assert place(network, language, torch.device("cpu"), "auto", name) is network
        assert {key: weight.dtype for key, weight in network.named_parameters()} == types
        return model

    return run


@each_row("name", SEEING)
def test_a_map_spreads_a_model_over_all_gpus(spread, name, gpus):
    language = spread(name).language_model

    assert set(gpus.parts.values()) == {0, 1}
    (words,) = (
        key
        for key, weight in language.named_parameters()
        if weight is language.get_input_embeddings().weight
    )
    seeing = [key for key, _ in language.named_parameters() if "vision_tower" in key]
    assert {
        gpu
        for part, gpu in gpus.parts.items()
        for key in (words, *seeing)
        if key.startswith(f"{part}.")
    } == {0}


@each_row("name", SEEING)
def test_a_map_cuts_no_layer(spread, name, gpus):
    language = spread(name).language_model

    assert not [
        part
        for part in gpus.parts
        if re.search(r"(?:layers|gated_cross_attn_layers)\.\d+\.", part)
    ]
    for weight, _ in language.named_parameters():
        assert sum(weight.startswith(f"{part}.") for part in gpus.parts) == 1


@each_row("name", SEEING)
def test_keys_and_values_stay_where_their_layer_is(spread, name):
    language = spread(name).language_model

    layers = getattr(language.model, "language_model", language.model).layers
    blocks = getattr(language, "gated_cross_attn_layers", {}).values()
    for part in (language, *layers, *blocks):
        assert part._hf_hook.skip_keys == [KV_CACHE]


@each_row("name", SEEING)
def test_a_map_changes_no_answer(build, spread, name):
    expected = answers(name, build(name, batch_size=4, max_failed=0))
    assert answers(name, spread(name)) == expected


@each_row("name", SEEING)
def test_a_model_that_fits_on_no_gpu_is_refused(build, name, gpus):
    model = build(name, batch_size=4, max_failed=0)
    network, language = model.network, model.language_model
    gpus.free = sum(weight.nbytes for weight in language.parameters()) // 4
    with pytest.raises(
        AdapterArgumentError, match=f"{name}: device_map='auto' finds 0.0 GiB free on 2 GPU"
    ):
        place(network, language, torch.device("cpu"), "auto", name)


@each_row("name", SEEING)
def test_all_that_sees_images_goes_to_the_first_device(build, name, gpus, monkeypatch):
    model, gpus.free = build(name), 10**9
    network, dispatched = model.network, []
    monkeypatch.setattr(
        checkpoints, "dispatch_model", lambda language, *_, **__: dispatched.append(language)
    )
    place(network, model.language_model, torch.device("meta"), "auto", name)
    moved = {key for key, weight in network.named_parameters() if weight.is_meta}
    assert {key.split(".")[0] for key in moved} == SEEING[name]
    stayed = {id(weight) for weight in network.parameters() if not weight.is_meta}
    assert stayed == {id(weight) for weight in model.language_model.parameters()}
    assert dispatched == [model.language_model]


def test_a_device_map_is_of_one_process_from_the_first_gpu_on():
    gpu = torch.device
    for first in (gpu("cuda"), gpu("cuda", 0)):
        check_device_map("auto", first, 1, "m")
    check_device_map(None, gpu("cpu"), 2, "m")
    with pytest.raises(AdapterArgumentError, match=f"{ONE_PROCESS}, .* here 2 process"):
        check_device_map("auto", gpu("cuda", 1), 2, "m")
    words = r"from the first on; here .* run on cuda:1: .* CUDA_VISIBLE_DEVICES"
    with pytest.raises(AdapterArgumentError, match=words):
        check_device_map("auto", gpu("cuda", 1), 1, "m")


def test_a_device_map_on_the_cpu_is_refused_before_weights_are_read(build):
    for name in SEEING:
        kind = type(build(name))
        with pytest.raises(
            AdapterArgumentError,
            match=f"{name}: device_map='auto' {ONE_PROCESS}, .* here 1 .* on cpu",
        ):
            kind(device_map="auto", device="cpu", pretrained="nowhere", journal=False)
