"""A small random checkpoint in RadFM's published layout, and its vision part written a second time."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from medtasks.model_adapters.radfm import RadFM
from medtasks.model_adapters.radfm.network import ImageEmbedding, RadFMNetwork, VisionTransformer3D
from transformers import LlamaConfig

from .toys import Tensors, drawn, write_tokenizer

HIDDEN, INNER, LAYERS, HEADS = 32, 48, 2, 2
WIDTH, MLP, DEPTH, PATCH, GRID, FRAMES, LATENTS, RESAMPLERS = 24, 40, 2, 4, 4, 16, 3, 2
SIDE = GRID * PATCH
E, V, P = "embedding_layer.", "embedding_layer.vision_encoder.", "embedding_layer.perceiver."
LINES = ("is the left lung clear?", "choose one option.", "answer: yes", "a large effusion", "no nodule")
UNUSED = (
    f"{E}bert_model.embeddings.position_ids",
    f"{E}bert_projection_fc.weight",
    f"{E}transformer_decoder.layers.0.norm1.weight",
    f"{E}transformer_decoder_mlp.2.bias",
    f"{E}cls_head.weight",
    f"{E}output_upscaling.1.running_mean",
)


def write_toy(folder: Path) -> Path:
    """Write the files of a checkpoint as they are published; returns the folder."""
    (folder / "Language_files").mkdir()
    words = write_tokenizer(folder / "Language_files", LINES, 310)
    language = LlamaConfig(
        vocab_size=words,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
    )
    vision = VisionTransformer3D(
        patch=PATCH, rows=GRID, columns=GRID, frames=FRAMES, width=WIDTH, inner=MLP, layers=DEPTH
    )
    state = drawn(RadFMNetwork(language, ImageEmbedding(vision, WIDTH, LATENTS, RESAMPLERS, HIDDEN)), 3)
    state |= {key: torch.ones(3) for key in UNUSED}
    state[f"{E}weight"] = state["lang_model.model.embed_tokens.weight"]
    for layer in range(LAYERS):  # wrong on purpose: the stored tables must not be used
        key = f"lang_model.model.layers.{layer}.self_attn.rotary_emb.inv_freq"
        state[key] = torch.full((HIDDEN // HEADS // 2,), 7.0)
    torch.save(state, folder / "pytorch_model.bin")
    config = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "bos_token_id": 0, "eos_token_id": 1}
    (folder / "Language_files" / "config.json").write_text(json.dumps(config))
    return folder


def put(key: str, value: torch.Tensor) -> Callable[[Tensors], None]:
    """Return a change that sets a tensor."""
    return lambda state: state.__setitem__(key, value)


def adapter(folder: Path, **given: Any) -> RadFM:
    given = {"device": "cpu", "dtype": "float32", "journal": False, "max_new_tokens": 6} | given
    return RadFM(**{"pretrained": str(folder)} | given)


def layer_norm(x: torch.Tensor, state: Mapping[str, torch.Tensor], key: str) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
    return scaled * state[f"{key}.weight"] + state[f"{key}.bias"]


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Eight heads of width 64, written with loops."""
    heads = []
    for head in range(8):
        q, k, v = (x[:, 64 * head : 64 * head + 64] for x in (queries, keys, values))
        heads.append((q @ k.T / 8).softmax(-1) @ v)
    return torch.cat(heads, dim=-1)


def plain_features(state: Mapping[str, torch.Tensor], volume: torch.Tensor) -> torch.Tensor:
    """The vision part from its description: one volume (3, height, width, depth), no module of the adapter."""
    height, width, depth = (size // patch for size, patch in zip(volume.shape[1:], (PATCH, PATCH, 4), strict=True))
    tokens = []
    for r in range(height):
        for c in range(width):
            for d in range(depth):
                cube = volume[:, r * PATCH :, c * PATCH :, d * 4 :][:, :PATCH, :PATCH, :4]
                place = [
                    state[f"{V}pos_embedding.{axis}_embed.weight"][(at + 1) * (size // n) - 1]
                    for axis, at, n, size in (
                        ("row", r, height, GRID),
                        ("col", c, width, GRID),
                        ("dep", d, depth, FRAMES),
                    )
                ]
                flat = layer_norm(cube.permute(1, 2, 3, 0).reshape(-1), state, f"{V}to_patch_embedding.1")
                token = flat @ state[f"{V}to_patch_embedding.2.weight"].T + state[f"{V}to_patch_embedding.2.bias"]
                tokens.append(layer_norm(token, state, f"{V}to_patch_embedding.3") + torch.cat(place))
    x = torch.stack(tokens)
    for layer in range(DEPTH):
        at = f"{V}transformer.layers.{layer}."
        q, k, v = (layer_norm(x, state, f"{at}0.norm") @ state[f"{at}0.fn.to_qkv.weight"].T).chunk(3, dim=-1)
        x = x + attend(q, k, v) @ state[f"{at}0.fn.to_out.0.weight"].T + state[f"{at}0.fn.to_out.0.bias"]
        inner = layer_norm(x, state, f"{at}1.norm") @ state[f"{at}1.fn.net.0.weight"].T + state[f"{at}1.fn.net.0.bias"]
        active = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        x = x + active @ state[f"{at}1.fn.net.3.weight"].T + state[f"{at}1.fn.net.3.bias"]
    latents = state[f"{P}latents"]
    for layer in range(RESAMPLERS):
        at = f"{P}layers.{layer}."
        asking = layer_norm(latents, state, f"{at}0.norm_latents")
        known = torch.cat([layer_norm(x, state, f"{at}0.norm_media"), asking]) @ state[f"{at}0.to_kv.weight"].T
        answers = attend(asking @ state[f"{at}0.to_q.weight"].T, known[:, :512], known[:, 512:])
        latents = latents + answers @ state[f"{at}0.to_out.weight"].T
        inner = layer_norm(latents, state, f"{at}1.0") @ state[f"{at}1.1.weight"].T
        latents = latents + (inner * (1 + torch.erf(inner / math.sqrt(2))) / 2) @ state[f"{at}1.3.weight"].T
    return layer_norm(latents, state, f"{P}norm") @ state[f"{E}fc.weight"].T + state[f"{E}fc.bias"]
