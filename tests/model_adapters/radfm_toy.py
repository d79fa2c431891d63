"""A small random checkpoint in RadFM's published layout, and its vision part written a second time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from medtasks.model_adapters.radfm import RadFM
from medtasks.model_adapters.radfm.network import (
    ImageEmbedding,
    RadFMNetwork,
    VisionTransformer3D,
)
from transformers import LlamaConfig

from .toy_tokenizer import write_tokenizer
from .toys import Tensors, drawn

HIDDEN, INNER, LAYERS, HEADS = 32, 48, 2, 2
WIDTH, MLP, DEPTH, PATCH, GRID, FRAMES, LATENTS, RESAMPLERS = 24, 40, 2, 4, 4, 16, 3, 2
SIDE = GRID * PATCH
E, V, P = "embedding_layer.", "embedding_layer.vision_encoder.", "embedding_layer.perceiver."
LINES = (
    "is the left lung clear?",
    "choose one option.",
    "answer: yes",
    "a large effusion",
    "no nodule",
)
UNUSED = (
    f"{E}bert_model.embeddings.position_ids",
    f"{E}bert_projection_fc.weight",
    f"{E}transformer_decoder.layers.0.norm1.weight",
    f"{E}transformer_decoder_mlp.2.bias",
    f"{E}cls_head.weight",
    f"{E}output_upscaling.1.running_mean",
)


def write_toy(folder: Path) -> Path:
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
        patch=PATCH,
        rows=GRID,
        columns=GRID,
        frames=FRAMES,
        width=WIDTH,
        inner=MLP,
        layers=DEPTH,
    )
    state = drawn(
        RadFMNetwork(language, ImageEmbedding(vision, WIDTH, LATENTS, RESAMPLERS, HIDDEN)), 3
    )
    state |= {key: torch.ones(3) for key in UNUSED}
    state[f"{E}weight"] = state["lang_model.model.embed_tokens.weight"]
    for layer in range(LAYERS):  # wrong on purpose: the stored tables must not be used
        key = f"lang_model.model.layers.{layer}.self_attn.rotary_emb.inv_freq"
        state[key] = torch.full((HIDDEN // HEADS // 2,), 7.0)
    torch.save(state, folder / "pytorch_model.bin")
    config = {
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (folder / "Language_files" / "config.json").write_text(json.dumps(config))
    return folder


def put(key: str, value: torch.Tensor) -> Callable[[Tensors], None]:
    """Return a change that sets a tensor."""
    return lambda state: state.__setitem__(key, value)


def adapter(folder: Path, **given: Any) -> RadFM:
    given = {"device": "cpu", "dtype": "float32", "journal": False, "max_new_tokens": 6} | given
    return RadFM(**{"pretrained": str(folder)} | given)
