"""LLaVA-Med's files and arguments: what is read, and one clear sentence for what is not."""

import json
import shutil
import socket

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from medtasks.model_adapters.checkpoints import reading as published
from medtasks.model_adapters.checkpoints.reading import CheckpointError, on_meta
from medtasks.model_adapters.llava_med import LlavaMed
from safetensors.torch import load_file, save_file
from transformers import MistralConfig, MistralForCausalLM

from medtasks.errors import AdapterArgumentError, MedTasksError

from .llava_med_toy import LANGUAGE, SHARDS, TOWER, V15, VISION, WIDTH, adapter
from .toys import tower


@pytest.fixture
def model(llava_med):
    return llava_med


@pytest.fixture
def copied(llava_med_folder, tmp_path):
    """A checkpoint to break."""
    shutil.copytree(llava_med_folder.parent, tmp_path / "own")
    return tmp_path / "own" / "v15"


def change(folder, shard, edit):
    """Rewrite one shard."""
    tensors = load_file(folder / SHARDS[shard])
    edit(tensors)
    (folder / SHARDS[shard]).unlink()
    save_file(tensors, folder / SHARDS[shard])


# ---- loading ----


def test_loads_without_network_and_ignores_no_weight(llava_med_folder, monkeypatch):
    def refuse(*_):
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    loaded = adapter(llava_med_folder, vision_weights="checkpoint").network
    assert torch.equal(loaded.lm_head.weight, load_file(llava_med_folder / SHARDS[0])["lm_head.weight"])
    assert torch.equal(loaded.model.vision_tower.pre_layrnorm.weight, tower(VISION, 3)["pre_layrnorm.weight"])
    assert not any(weight.is_meta for weight in (*loaded.parameters(), *loaded.buffers()))


def test_vision_weights_come_from_where_they_were_asked_from(model, llava_med_folder, log):
    name = "embeddings.patch_embedding.weight"
    assert torch.equal(dict(model.network.model.vision_tower.named_parameters())[name], tower(VISION, 7)[name])
    expected = max((tower(VISION, 7)[key] - tower(VISION, 3)[key]).abs().max().item() for key in tower(VISION, 7))
    adapter(llava_med_folder)
    assert any(f"differs by up to {expected:.3g}" in line for line in log)


def test_built_on_meta_with_real_buffers():
    network = on_meta(lambda: MistralForCausalLM(MistralConfig(**LANGUAGE)))
    assert all(weight.is_meta for weight in network.parameters())
    assert not any(buffer.is_meta for buffer in network.buffers())
    assert not network.training


def test_bfloat16_keeps_rotary_frequencies_in_float32(llava_med_folder, model):
    half = adapter(llava_med_folder, dtype="bfloat16").network
    assert {weight.dtype for weight in half.parameters()} == {torch.bfloat16}
    frequencies = half.model.language_model.rotary_emb.inv_freq
    assert torch.equal(frequencies, model.network.model.language_model.rotary_emb.inv_freq)
    assert torch.allclose(frequencies, 1e6 ** (-torch.arange(0, 16, 2) / 16))


def rename(old, new):
    return lambda tensors: tensors.update({new: tensors.pop(old)})


def twice(tensors):
    tensors["model.norm.weight"] = torch.zeros(WIDTH)  # the other shard has it too


NORM = "model.norm.weight"
BIAS = "model.mm_projector.{}.bias"
BROKEN = {
    "missing": (0, lambda t: t.pop(NORM), r"v15 lacks '\S*model\.norm\.weight'"),
    "missing in tower": (
        1,
        lambda t: t.pop(TOWER + "pre_layrnorm.bias"),
        r"v15 lacks 'vision_tower\.pre_layrn\S*bias'",
    ),
    "unknown": (0, rename("lm_head.weight", "score.weight"), r"00001\S* key 'score\.weight' is unknown"),
    "unknown layer": (1, rename(BIAS.format(2), BIAS.format(4)), r"00002\S* key '\S*4\.bias' leads to"),
    "wrong shape": (0, lambda t: t.update({NORM: torch.ones(3)}), r"00001\S* key '\S*norm\.weight' has shape \(3,\)"),
    "unequal duplicate": (1, twice, r"00002\S* keys 'model\.norm\.weight' and 'model\.norm\.weight' should be equal"),
}


@pytest.mark.parametrize(
    ("how", "weights"),
    [*((how, "checkpoint") for how in BROKEN), *((how, "openai") for how in BROKEN if how != "missing in tower")],
)
def test_refuses_a_checkpoint_that_is_not_exactly_right(copied, how, weights):
    shard, edit, message = BROKEN[how]
    change(copied, shard, edit)
    with pytest.raises(CheckpointError, match=message) as refusal:
        adapter(copied, vision_weights=weights)
    assert str(copied) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_equal_duplicates_are_fine(copied):
    weight = load_file(copied / SHARDS[0])["model.norm.weight"]
    change(copied, 1, lambda tensors: tensors.update({"model.norm.weight": weight}))
    adapter(copied)


def test_refuses_unknown_keys_in_the_ignored_tower(copied):
    change(copied, 1, rename(TOWER + "pre_layrnorm.bias", TOWER + "pre_norm.bias"))
    with pytest.raises(CheckpointError, match=r"00002\S* key '\S*pre_norm\.bias'"):
        adapter(copied)


@pytest.mark.parametrize("file", SHARDS)
def test_refuses_a_truncated_file(copied, file):
    content = (copied / file).read_bytes()
    (copied / file).write_bytes(content[:-100])
    with pytest.raises(CheckpointError, match=rf"{file} is truncated"):
        adapter(copied)


@pytest.mark.parametrize("file", ["tokenizer.model", "config.json", SHARDS[1]])
def test_refuses_without(copied, file):
    (copied / file).unlink()
    with pytest.raises(MedTasksError, match=rf"{file} is missing"):
        adapter(copied)


@pytest.mark.parametrize("name", ["rope_theta", "sliding_window", "mm_vision_select_layer"])
def test_refuses_a_config_that_leaves_a_value_to_chance(copied, name):
    (copied / "config.json").write_text(json.dumps({key: value for key, value in V15.items() if key != name}))
    with pytest.raises(CheckpointError, match=rf"config\.json lacks '{name}'"):
        adapter(copied)


@pytest.mark.parametrize("weights", ["openai", "checkpoint"])
def test_refuses_a_missing_vision_tower(llava_med_folder, weights, monkeypatch):
    with pytest.raises(CheckpointError, match=r"/nowhere is no folder; give vision_tower="):
        adapter(llava_med_folder, vision_tower="/nowhere", vision_weights=weights)

    def nothing(name, **_):
        raise LocalEntryNotFoundError(f"no {name} here")

    monkeypatch.setattr(published, "snapshot_download", nothing)
    with pytest.raises(CheckpointError, match=r"openai/clip-vit-large-patch14-336 is neither .* vision_tower="):
        adapter(llava_med_folder, vision_tower=None, vision_weights=weights)


def test_hub_ids_are_resolved_at_load(llava_med_folder, model, monkeypatch):
    """The tower has no safetensors on the hub: the second request asks for the torch file."""
    asked = []

    def deliver(name, allow_patterns):
        asked.append((name, allow_patterns[-1]))
        return str(llava_med_folder if "llava" in name else llava_med_folder.parent / "clip")

    monkeypatch.setattr(published, "snapshot_download", deliver)
    loaded = LlavaMed(dtype="float32", device="cpu", journal="false")
    assert asked == [
        ("microsoft/llava-med-v1.5-mistral-7b", "*.safetensors"),
        ("openai/clip-vit-large-patch14-336", "*.safetensors"),
    ]
    pairs = zip(loaded.network.parameters(), model.network.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_hub_weights_in_torch_format_are_the_second_choice(tmp_path, monkeypatch):
    asked = []

    def deliver(name, allow_patterns):
        asked.append(allow_patterns[-1])
        if "*.bin" in allow_patterns:
            (tmp_path / "pytorch_model.bin").touch()
        return str(tmp_path)

    monkeypatch.setattr(published, "snapshot_download", deliver)
    assert published.published_folder("openai/clip", "vision_tower") == tmp_path
    assert asked == ["*.safetensors", "*.bin"]


# ---- arguments ----


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vision_weight": "openai"}, r"no argument 'vision_weight'; did you mean 'vision_weights'\?"),
        ({"vision_weights": "hub"}, r"'vision_weights' must be openai or checkpoint, not 'hub'"),
        ({"dtype": "int8"}, r"'dtype' must be bfloat16 or float16 or float32, not 'int8'"),
        ({"max_length": 0}, r"'max_length' must be .*at least 1"),
        ({"max_length": 513}, r"'max_length' must be at most 512"),
        ({"base": "/llama"}, r"'base' belongs to the delta of v1\.0"),
    ],
)
def test_arguments_are_checked(llava_med_folder, given, message):
    with pytest.raises(AdapterArgumentError, match=message):
        adapter(llava_med_folder, **given)


def test_attention_implementation_is_passed_on(llava_med_folder, model):
    eager = adapter(llava_med_folder, attn_implementation="eager")
    assert eager.language_model.config._attn_implementation == "eager"
    assert model.language_model.config._attn_implementation == "sdpa"
