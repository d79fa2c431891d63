"""Reading a checkpoint of LLaVA-Med into transformers' LLaVA, the delta of v1.0 added to LLaMA on its way.

transformers refuses the published ``config.json`` (``llava_mistral``).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration, MistralConfig

from medtasks.errors import AdapterArgumentError

from ..checkpoints.reading import CheckpointError, Stored, by_patterns, fill, on_meta, read_json, stored_tensors
from ..checkpoints.vision import SHAPE, TOWER_KEYS, tower_config

MISTRAL = "llava_mistral"
"""``model_type`` of v1.5; v1.0's LLaMA has another."""
_HINT = "put the published config.json there"
_LLAMA = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps")
# transformers' own defaults for these are not those of Mistral 7B v0.2, so they must not be left out.
_MISTRAL = (*_LLAMA, "num_key_value_heads", "rope_theta", "sliding_window")
_PASSED_ON = {*_MISTRAL, "max_position_embeddings", "hidden_act", "head_dim", "tie_word_embeddings"}


def read_config(folder: Path) -> dict[str, Any]:
    """Return ``config.json`` of a checkpoint, with nothing missing that decides about its answers."""
    file = folder / "config.json"
    given = read_json(file, _HINT)
    kind = given.get("model_type")
    if kind not in (MISTRAL, "llava", "llava_llama"):
        raise CheckpointError(f"{file}: model_type '{kind}' is not LLaVA-Med's (llava_mistral; llava for v1.0)")
    needed = (*_MISTRAL, "mm_vision_select_layer") if kind == MISTRAL else _LLAMA
    _demand(file, given, (*needed, "mm_vision_tower", "mm_hidden_size"))
    if given.get("mm_vision_select_feature", "patch") != "patch":
        raise CheckpointError(
            f"{file}: mm_vision_select_feature '{given['mm_vision_select_feature']}' is not supported"
        )
    if "biomed" in str(given["mm_vision_tower"]).lower():
        raise CheckpointError(f"{file}: the variant with the tower '{given['mm_vision_tower']}' is not supported")
    return given


def read_tower_config(folder: Path) -> CLIPVisionConfig:
    """Read the geometry of a CLIP vision tower from the ``config.json`` of a whole CLIP model or of a tower alone."""
    file = folder / "config.json"
    given = read_json(file, _HINT)
    _demand(file, given.get("vision_config", given), SHAPE)
    return tower_config(given)


def _demand(file: Path, given: Mapping[str, Any], names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in given]
    if missing:
        raise CheckpointError(f"{file} lacks '{missing[0]}'; take the published config.json")


def llava_config(given: Mapping[str, Any], tower: CLIPVisionConfig, attn_implementation: str) -> LlavaConfig:
    """Return a checkpoint's ``config.json`` as transformers' configuration; v1.5 is Mistral's, v1.0 LLaMA's."""
    kind = MistralConfig if given["model_type"] == MISTRAL else LlamaConfig
    return LlavaConfig(
        text_config=kind(**{name: given[name] for name in _PASSED_ON & given.keys()}),
        vision_config=tower,
        # Which hidden states are the features; v1.0's code takes the last where the file is silent.
        vision_feature_layer=int(given.get("mm_vision_select_layer", -1)),
        tie_word_embeddings=bool(given.get("tie_word_embeddings", False)),
        attn_implementation={"": attn_implementation, "text_config": attn_implementation, "vision_config": "sdpa"},
    )


_TALLER = ("model.embed_tokens.weight", "lm_head.weight")
_STORED_PROJECTOR = "model.mm_projector."


def merged_tensors(delta: Path, base: Path) -> Iterator[Stored]:
    """Yield the merged tensors of v1.0 one by one, with the files of the delta.

    The word table and the output matrix have more rows in the delta (tokens were added); the base, LLaMA-7B v1 in the
    Hugging Face layout, is added to the rows it has. The sum is computed in the delta's type, float16 as published, so
    that it is the published sum to the bit. Tensors of the base are read when they are needed.
    """
    known = {key: (file, tensor) for file, key, tensor in stored_tensors(base)}
    for file, key, tensor in stored_tensors(delta):
        if key.endswith("rotary_emb.inv_freq"):
            continue
        if key.startswith(_STORED_PROJECTOR):
            yield file, key, tensor
        elif key in known:
            base_file, start = known[key]
            is_taller = key in _TALLER and tensor.shape[1:] == start.shape[1:] and len(tensor) > len(start)
            if tensor.shape != start.shape and not is_taller:
                raise CheckpointError(
                    f"{file}: key '{key}' has shape {tuple(tensor.shape)}, but {tuple(start.shape)} in {base_file}; "
                    f"give base=<folder of LLaMA-7B v1>"
                )
            merged = tensor.clone()
            merged[: len(start)] += start.to(tensor.dtype)
            yield file, key, merged
        else:
            raise CheckpointError(
                f"{file}: key '{key}' has no counterpart in {base}; give base=<folder of LLaMA-7B v1>"
            )


_STORED_TOWER = "model.vision_tower.vision_tower.vision_model."


def checkpoint_name(key: str) -> str | None:
    """Translate a stored key to the name in :func:`load_network`'s tree; a key that is unknown is a ``KeyError``."""
    if key.endswith(("rotary_emb.inv_freq", "embeddings.position_ids")):
        return None
    if key.startswith(_STORED_TOWER):
        return "vision_tower." + key.removeprefix(_STORED_TOWER)
    if key.startswith(_STORED_PROJECTOR):
        return "projector." + key.removeprefix(_STORED_PROJECTOR)
    if key.startswith("model.") or key == "lm_head.weight":
        return "language_model." + key
    raise KeyError(key)


def load_network(
    config: LlavaConfig,
    given: Mapping[str, Any],
    tensors: Iterator[Stored],
    path: Path,
    tower_path: Path | None,
    dtype: torch.dtype,
) -> LlavaForConditionalGeneration:
    """Build the network and fill it; no weight is in memory twice.

    ``given`` is the ``config.json`` of the checkpoint, ``path`` its folder, for messages, and ``tower_path`` the folder
    of the CLIP model whose tower is taken, as the published loader does; ``None`` for the tower inside the checkpoint.
    """
    width = config.vision_config.hidden_size
    if width != given["mm_hidden_size"]:
        raise CheckpointError(
            f"{path / 'config.json'}: mm_hidden_size is {given['mm_hidden_size']}, but the vision tower is "
            f"{width} wide; give vision_tower=<folder of {given['mm_vision_tower']}>"
        )

    def build() -> LlavaForConditionalGeneration:
        built = LlavaForConditionalGeneration(config)
        # ``linear`` (v1.0), or ``mlpNx_gelu`` for N linear layers with GELU in between; transformers knows N = 2.
        kind, outputs = str(given.get("mm_projector_type", "linear")), config.text_config.hidden_size
        layers = re.fullmatch(r"mlp(\d+)x_gelu", kind)
        if kind != "linear" and layers is None:
            raise CheckpointError(f"config.json: mm_projector_type '{kind}' is not supported")
        projector = nn.Sequential(nn.Linear(width, outputs))
        for _ in range(1, int(layers[1]) if layers else 1):
            projector.extend((nn.GELU(), nn.Linear(outputs, outputs)))
        built.model.multi_modal_projector = projector[0] if kind == "linear" else projector
        built._no_split_modules |= {"CLIPVisionModel"}  # a device map puts all of it on the first GPU
        return built

    try:
        network = on_meta(build)
    except ImportError as error:
        raise AdapterArgumentError(f"llava_med: this attn_implementation cannot be used here: {error}") from error
    model = network.model
    language = nn.ModuleDict({"model": model.language_model, "lm_head": network.lm_head})
    tree = nn.ModuleDict({"projector": model.multi_modal_projector, "language_model": language})
    if tower_path is None:
        tree["vision_tower"] = model.vision_tower
        fill(tree, path, checkpoint_name, dtype, tensors)
    else:
        fill(model.vision_tower, tower_path, by_patterns(*TOWER_KEYS, r"\1"), dtype)
        fill(tree, path, checkpoint_name, dtype, _without_tower(tensors, model.vision_tower))
    # Layers after the one that is read are not computed; of the states, the first is the layers' input.
    layers = model.vision_tower.encoder.layers
    model.vision_tower.encoder.layers = layers[: range(len(layers) + 1)[config.vision_feature_layer]]
    return network


def _without_tower(tensors: Iterator[Stored], tower: nn.Module) -> Iterator[Stored]:
    """Leave out a checkpoint's own vision tower, which has to have the shape of the one that is used."""
    used = {f"vision_tower.{name}": weight.shape for name, weight in tower.named_parameters()}
    for file, key, tensor in tensors:
        shape = used.get(checkpoint_name(key) or "") if key.startswith(_STORED_TOWER) else None
        if shape is None:
            yield file, key, tensor
        elif shape != tensor.shape:
            raise CheckpointError(
                f"{file}: key '{key}' has shape {tuple(tensor.shape)}, the vision tower {tuple(shape)}; "
                f"give the tower that config.json names as vision_tower=<folder>"
            )
