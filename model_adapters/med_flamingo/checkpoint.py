"""Loading Med-Flamingo: the trained tensors lie in one file, LLaMA-7B and CLIP ViT-L/14 in their own folders.

Key names as open_flamingo 0.0.2 saves them, see the issues 187 and 204 of that project for public listings.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig

from ..checkpoints.reading import (
    HUB_ID,
    CheckpointError,
    by_patterns,
    fill,
    from_hub,
    on_meta,
    read_json,
    stored_tensors,
)
from ..checkpoints.vision import TOWER_KEYS, tower_config
from .network import MedFlamingoNetwork, MediaAttention

WEIGHTS_FILE = "model.pt"
_BLOCKS = "lang_encoder.gated_cross_attn_layers"
_EMBEDDING = "lang_encoder.model.embed_tokens.weight"
# Every block is stored under its place in the list of blocks and again under the layer it stands before.
_BLOCK_KEY = re.compile(
    r"lang_encoder\.(?:gated_cross_attn_layers\.(\d+)|model\.layers\.(\d+)\.gated_cross_attn_layer)\.(.+)"
)
_LLAMA_LAYER = (
    r"(?:self_attn\.(?:[qkvo]_proj\.weight|rotary_emb\.inv_freq)|mlp\.(?:gate|up|down)_proj\.weight"
    r"|(?:input|post_attention)_layernorm\.weight)"
)
# Parts that were frozen in training: in full dumps only, except for the rotary tables. They come from LLaMA and CLIP.
_FROZEN = re.compile(
    r"vision_encoder\..+|lang_encoder\.(?:lm_head|model\.norm)\.weight|lang_encoder\.model\.rotary_emb\.inv_freq"
    rf"|lang_encoder\.(?:model\.layers\.\d+\.decoder_layer|old_decoder_blocks\.\d+)\.{_LLAMA_LAYER}"
)
# LLaMA's word embedding is replaced by the trained one.
_LLAMA_KEYS = (
    r"model\.embed_tokens\.weight|model\.(?:layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
    rf"lm_head\.weight|model\.norm\.weight|model\.layers\.\d+\.{_LLAMA_LAYER}",
)
_LLAMA_SHAPE = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps"),
    *("num_key_value_heads", "max_position_embeddings", "rope_theta", "rope_parameters", "rope_scaling"),
)
# With LLaMA-7B's 32 layers it is the published model: a block before every fourth layer, a resampler of depth 6.
_PUBLISHED_LAYERS, _PUBLISHED_EVERY, _PUBLISHED_DEPTH = 32, 4, 6


def canonical_key(key: str) -> str:
    """Return a stored key in the one spelling used here: no ``module.``, blocks under the list of blocks."""
    plain = key.removeprefix("module.")
    match = _BLOCK_KEY.fullmatch(plain)
    return f"{_BLOCKS}.{match[1] or match[2]}.{match[3]}" if match else plain


def trained_name(key: str) -> str | None:
    """Map a key of ``model.pt``; see :data:`~medtasks.model_adapters.checkpoints.reading.Rename`."""
    name = canonical_key(key)
    if _FROZEN.fullmatch(name):
        return None
    if name == _EMBEDDING or name.startswith(("perceiver.", f"{_BLOCKS}.")):
        return name
    raise KeyError(key)


def read_llama_config(folder: Path) -> LlamaConfig:
    """Read what decides LLaMA's computation; token ids in published configurations are partly wrong."""
    stored = _read_config(folder, ("llama",))
    shape = {key: stored[key] for key in _LLAMA_SHAPE if stored.get(key) is not None}
    return LlamaConfig(**shape, tie_word_embeddings=False, attn_implementation="sdpa")


def read_clip_config(folder: Path) -> CLIPVisionConfig:
    """Read the vision tower's configuration, alone or inside that of a whole CLIP model."""
    config = tower_config(_read_config(folder, ("clip", "clip_vision_model")))
    if config.hidden_act != "quick_gelu":
        raise CheckpointError(
            f"{folder / 'config.json'}: hidden_act is '{config.hidden_act}', but Med-Flamingo was trained on OpenAI's "
            f"CLIP with 'quick_gelu'; give openai/clip-vit-large-patch14"
        )
    return config


def _read_config(folder: Path, kinds: tuple[str, ...]) -> Mapping[str, Any]:
    file = folder / "config.json"
    stored = read_json(file, f"give the folder of the downloaded {kinds[0]} model")
    if (kind := stored.get("model_type")) not in kinds:
        raise CheckpointError(f"{file}: model_type is '{kind}', expected '{kinds[0]}'; give another folder")
    return stored


def read_trained_shape(file: Path, layers: int) -> tuple[int, int, int]:
    """Read from the keys of the trained tensors the sizes that no configuration file holds.

    One block stands before every so many layers of LLaMA; the depth of the resampler; the latents per image.
    """
    trained = {canonical_key(key): tuple(tensor.shape) for _, key, tensor in stored_tensors(file)}
    before = {int(match[1]) for name in trained if (match := re.match(rf"{re.escape(_BLOCKS)}\.(\d+)\.", name))}
    levels = {int(match[1]) for name in trained if (match := re.match(r"perceiver\.layers\.(\d+)\.", name))}
    if not before or min(before) >= layers:
        raise CheckpointError(f"{file} lacks '{_BLOCKS}.N' for N below LLaMA's {layers} layers; is it Med-Flamingo's?")
    if len(trained.get("perceiver.latents", ())) != 2:
        raise CheckpointError(f"{file} lacks 'perceiver.latents' of shape (latents, width); is it Med-Flamingo's?")
    latents = trained["perceiver.latents"][0]
    if layers == _PUBLISHED_LAYERS:
        return _PUBLISHED_EVERY, _PUBLISHED_DEPTH, latents
    return min(before) + 1, next(n for n in range(len(levels) + 1) if n not in levels), latents


def load_network(
    weights: Path, llama: Path, clip: Path, dtype: torch.dtype, mode: MediaAttention, post_norm: bool
) -> MedFlamingoNetwork:
    """Build the network and fill every parameter; LLaMA-7B and CLIP ViT-L/14 lie in folders in transformers' layout."""
    language, vision = read_llama_config(llama), read_clip_config(clip)
    every, depth, latents = read_trained_shape(weights, language.num_hidden_layers)
    layers = range(every - 1, language.num_hidden_layers, every)
    network = on_meta(lambda: MedFlamingoNetwork(vision, language, layers, latents, depth, mode, post_norm))
    model = network.language_model
    # Trees whose parameters are named as the files name them, so that messages name keys that the files hold.
    blocks = nn.ModuleDict(
        {
            "model": nn.ModuleDict({"embed_tokens": model.model.embed_tokens}),
            "gated_cross_attn_layers": model.gated_cross_attn_layers,
        }
    )
    fill(nn.ModuleDict({"perceiver": network.perceiver, "lang_encoder": blocks}), weights, trained_name, dtype)
    decoder = nn.ModuleDict({"layers": model.model.layers, "norm": model.model.norm})
    llama_tree = nn.ModuleDict({"model": decoder, "lm_head": model.lm_head})
    fill(llama_tree, llama, by_patterns(*_LLAMA_KEYS), dtype)
    fill(nn.ModuleDict({"vision_model": network.vision}), clip, by_patterns(*TOWER_KEYS, r"vision_model.\1"), dtype)
    return network


def locate_weights(name: str) -> Path:
    """Find ``model.pt``: a file, a folder that holds it, or a hub id to download it from."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if path.is_dir() and (path / WEIGHTS_FILE).is_file():
        return path / WEIGHTS_FILE
    if path.is_dir() or not HUB_ID.fullmatch(name):
        missing = path / WEIGHTS_FILE if path.is_dir() else path
        raise CheckpointError(f"{missing} is missing; give pretrained=<{WEIGHTS_FILE}, its folder or a hub id>")
    return from_hub(lambda: hf_hub_download(name, WEIGHTS_FILE), name, "file", f"its {WEIGHTS_FILE}", "pretrained")
