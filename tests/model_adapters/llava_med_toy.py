"""Small random LLaVA-Med checkpoints in the published layout, and documents to ask them about."""

import json
from pathlib import Path
from typing import Any

import torch
from medtasks.model_adapters.llava_med import LlavaMed
from PIL import Image
from safetensors.torch import save_file
from transformers import MistralConfig, MistralForCausalLM

from . import toys
from .toy_tokenizer import write_tokenizer
from .toys import drawn, noise

WIDTH, SEEN, PATCHES, VOCABULARY = 64, 32, 4, 360
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
TOWER = "model.vision_tower.vision_tower.vision_model."
LANGUAGE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
    "sliding_window": None,
    "max_position_embeddings": 512,
}
VISION = {
    "hidden_size": SEEN,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
MULTIMODAL: dict[str, Any] = {
    "mm_hidden_size": SEEN,
    "mm_vision_select_layer": -2,
    "mm_vision_select_feature": "patch",
    "mm_vision_tower": "openai/clip-vit-large-patch14-336",
    "tokenizer_model_max_length": 256,
}
V15 = LANGUAGE | MULTIMODAL | {
    "model_type": "llava_mistral",
    "mm_projector_type": "mlp2x_gelu",
    "image_aspect_ratio": "pad",
}  # fmt: skip


LINES = (
    "is the left lung clear?",
    "choose one option.",
    "answer: yes",
    "a large effusion",
    "no nodule",
    "Human: Hi",
)


def write_tower(folder: Path, seed: int = 7) -> Path:
    return toys.write_tower(folder, VISION, seed)


def write_v15(folder: Path, seed: int = 1) -> Path:
    folder.mkdir()
    write_tokenizer(folder, LINES, 330)
    (folder / "config.json").write_text(json.dumps(V15))
    language = drawn(MistralForCausalLM(MistralConfig(**LANGUAGE)), seed)
    halves = torch.nn.Sequential(
        torch.nn.Linear(SEEN, WIDTH), torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH)
    )
    projector = drawn(halves, seed + 1, "model.mm_projector.")
    inside = {TOWER + name: weight for name, weight in toys.tower(VISION, seed + 2).items()}
    positions = {TOWER + "embeddings.position_ids": torch.arange(PATCHES + 1)[None]}
    shards = [language, projector | inside | positions]
    index: dict[str, str] = {}
    for name, shard in zip(SHARDS, shards, strict=True):
        save_file(shard, folder / name)
        index |= dict.fromkeys(shard, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


def adapter(folder: Path, **given: Any) -> LlavaMed:
    defaults = {
        "vision_tower": str(folder.parent / "clip"),
        "dtype": "float32",
        "device": "cpu",
        "journal": "false",
    }
    return LlavaMed(pretrained=str(folder), **(defaults | given))


def photo(seed: int = 0, size: tuple[int, int] = (50, 40)) -> Image.Image:
    return noise(seed, (4, 5)).resize(size)
