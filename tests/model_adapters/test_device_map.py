"""One model over several devices; here all are the CPU, which leaves what accelerate is told, and the results."""

import re

import pytest
import torch
from medtasks.model_adapters.base import checkpoints as reading
from medtasks.model_adapters.base.checkpoints import check_device_map, dispatch, place, planned_map
from medtasks.model_adapters.llava_med import LlavaMed
from medtasks.model_adapters.med_flamingo import MedFlamingo
from medtasks.model_adapters.radfm import RadFM

from medtasks.errors import AdapterArgumentError

from ..tables import each_row
from .test_adapter_scoring import answers

ADAPTERS = {"llava_med": LlavaMed, "radfm": RadFM, "med_flamingo": MedFlamingo}
MODELS = list(ADAPTERS)
# Beside the language model; LLaVA's is one with its tower, which the map puts on the first GPU.
SEEING = {"llava_med": set(), "radfm": {"embedding_layer"}, "med_flamingo": {"vision", "perceiver"}}
ONE_PROCESS = "spreads a model over the GPUs of one process"


def tops(names):
    return {name.split(".")[0] for name in names}


@each_row("name", MODELS)
def test_without_a_gpu_one_sentence_says_so_before_weights_are_read(name):
    with pytest.raises(
        AdapterArgumentError, match=f"{name}: device_map='auto' {ONE_PROCESS}, .* here 1 process.* on cpu"
    ):
        ADAPTERS[name](device_map="auto", device="cpu", pretrained="nowhere", journal=False)


def test_one_process_and_from_the_first_gpu_on():
    gpu = torch.device
    for first in (gpu("cuda"), gpu("cuda", 0)):
        check_device_map("auto", first, 1, "m")
    check_device_map(None, gpu("cpu"), 2, "m")
    with pytest.raises(AdapterArgumentError, match=f"{ONE_PROCESS}, .* here 2 process"):
        check_device_map("auto", gpu("cuda", 1), 2, "m")
    with pytest.raises(
        AdapterArgumentError, match=r"from the first on; here .* run on cuda:1: .* CUDA_VISIBLE_DEVICES"
    ):
        check_device_map("auto", gpu("cuda", 1), 1, "m")


@each_row("name", MODELS)
@each_row("in_parts", [False, True])
def test_a_map_changes_no_answer(build, name, in_parts):
    whole, parted = (build(name, batch_size=4, max_failed=0) for _ in range(2))  # hooks stay on a network
    language = parted.language_model
    size = sum(weight.nbytes for weight in language.parameters())
    parts = dict.fromkeys(planned_map(language, {0: size, 1: size}, name), "cpu") if in_parts else {"": "cpu"}
    assert (len(parts) > 1) == in_parts
    dispatch(language, parts)
    layers = getattr(language.model, "language_model", language.model).layers
    blocks = getattr(language, "gated_cross_attn_layers", {}).values()
    for part in (language, *layers, *blocks):
        assert part._hf_hook.skip_keys == ["past_key_values"], "keys and values stay where their layer is"
    assert answers(name, parted) == answers(name, whole)


@each_row("name", MODELS)
def test_a_layer_is_never_cut_and_words_come_first(build, name):
    language = build(name).language_model
    size = sum(weight.nbytes for weight in language.parameters())
    found = planned_map(language, {0: size, 1: size}, name)
    assert set(found.values()) == {0, 1}, "spread, although one would do"
    (words,) = (key for key, weight in language.named_parameters() if weight is language.get_input_embeddings().weight)
    seeing = [key for key, _ in language.named_parameters() if "vision_tower" in key]
    assert {gpu for part, gpu in found.items() for key in (words, *seeing) if key.startswith(f"{part}.")} == {0}
    assert not [part for part in found if re.search(r"(?:layers|gated_cross_attn_layers)\.\d+\.", part)]
    for weight, _ in language.named_parameters():
        assert sum(weight.startswith(f"{part}.") for part in found) == 1
    with pytest.raises(AdapterArgumentError, match=f"{name}: device_map='auto' finds 0.0 GiB free on 2 GPU"):
        planned_map(language, {0: size // 4, 1: size // 4}, name)


@each_row("name", MODELS)
def test_all_that_sees_images_goes_to_the_first_device_and_types_stay(build, name, monkeypatch):
    model, told = build(name), []
    network = model.network
    monkeypatch.setattr(reading, "get_max_memory", lambda: {0: 10**9, 1: 10**9, "cpu": 10**9})
    monkeypatch.setattr(reading, "dispatch", lambda language, parts: told.append((language, parts)))
    prefix = next(f"{key}." * bool(key) for key, part in network.named_modules() if part is model.language_model)
    before = {key: weight.dtype for key, weight in network.named_parameters()}
    assert place(network, model.language_model, torch.device("meta"), "auto", name) is network
    moved = {key for key, weight in network.named_parameters() if weight.is_meta}
    assert tops(moved) == SEEING[name]
    assert set(before) - moved == {f"{prefix}{key}" for key, _ in model.language_model.named_parameters()}
    assert {key: weight.dtype for key, weight in network.named_parameters()} == before
    ((language, parts),) = told
    assert language is model.language_model
    assert set(parts.values()) == {0, 1}
