"""LLaVA-Med's network (CLIP vision tower, projector, language model), and how a checkpoint of it is read.

transformers refuses its ``config.json`` (``llava_mistral``). The delta of v1.0 is added to LLaMA.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from loguru import logger
from torch import nn
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from medtasks.errors import AdapterArgumentError

from ..checkpoints.reading import CheckpointError, Stored, by_patterns, fill, on_meta, read_json, stored_tensors
from ..checkpoints.vision import SHAPE, TOWER_KEYS

_HINT = "put the published config.json there"
_LANGUAGE = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
# transformers' own defaults for these are not those of Mistral 7B v0.2, so they must not be left out.
_MISTRAL = (*_LANGUAGE, "num_key_value_heads", "rms_norm_eps", "rope_theta", "sliding_window", "mm_vision_select_layer")
_LLAMA = (*_LANGUAGE, "rms_norm_eps")
_PASSED_ON = (
    *_LANGUAGE,
    *("num_key_value_heads", "rms_norm_eps", "rope_theta", "sliding_window", "max_position_embeddings"),
    *("hidden_act", "head_dim", "tie_word_embeddings"),
)


@dataclass(frozen=True)
class LlavaMedConfig:
    """The shape of a checkpoint."""

    language: MistralConfig | LlamaConfig  # ``MistralConfig`` (v1.5) or ``LlamaConfig`` (v1.0)
    tower: str  # vision tower the checkpoint was trained with, a hub id
    tower_width: int  # width of its features
    select_layer: int  # which of its hidden states are the features; -2 is the output of the last layer but one
    projector: str  # ``linear``, or ``mlpNx_gelu`` for N linear layers with GELU in between
    pad: bool  # whether images are padded to a square before the tower sees them
    max_length: int  # longest prompt in positions, images included
    image_ends: bool  # whether the images of a v1.0 prompt stand between ``<im_start>`` and ``<im_end>``

    @property
    def is_mistral(self) -> bool:
        """True for v1.5, false for v1.0."""
        return isinstance(self.language, MistralConfig)


def read_config(folder: Path, attn_implementation: str) -> LlavaMedConfig:
    """Read ``config.json`` of a checkpoint."""
    file = folder / "config.json"
    given = read_json(file, _HINT)
    kind = given.get("model_type")
    if kind not in ("llava_mistral", "llava", "llava_llama"):
        raise CheckpointError(f"{file}: model_type '{kind}' is not LLaVA-Med's (llava_mistral; llava for v1.0)")
    mistral = kind == "llava_mistral"
    _demand(file, given, (*(_MISTRAL if mistral else _LLAMA), "mm_vision_tower", "mm_hidden_size"))
    if given.get("mm_vision_select_feature", "patch") != "patch":
        raise CheckpointError(
            f"{file}: mm_vision_select_feature '{given['mm_vision_select_feature']}' is not supported"
        )
    if "biomed" in str(given["mm_vision_tower"]).lower():
        raise CheckpointError(f"{file}: the variant with the tower '{given['mm_vision_tower']}' is not supported")
    passed = {name: given[name] for name in _PASSED_ON if name in given}
    language = (MistralConfig if mistral else LlamaConfig)(**passed, attn_implementation=attn_implementation)
    return LlavaMedConfig(
        language=language,
        tower=str(given["mm_vision_tower"]),
        tower_width=int(given["mm_hidden_size"]),
        select_layer=int(given.get("mm_vision_select_layer", -1)),  # v1.0's code takes -1 where the file is silent
        projector=str(given.get("mm_projector_type", "linear")),
        pad=given.get("image_aspect_ratio") == "pad",
        max_length=int(given.get("tokenizer_model_max_length") or language.max_position_embeddings),
        image_ends=bool(given.get("mm_use_im_start_end", False)),
    )


def read_tower_config(folder: Path) -> CLIPVisionConfig:
    """Read the geometry of a CLIP vision tower from the ``config.json`` of a whole CLIP model or of a tower alone."""
    file = folder / "config.json"
    given = read_json(file, _HINT)
    vision = given.get("vision_config", given)
    _demand(file, vision, SHAPE)
    optional = [name for name in ("hidden_act", "layer_norm_eps") if name in vision]
    return CLIPVisionConfig(**{name: vision[name] for name in (*SHAPE, *optional)}, attn_implementation="sdpa")


def _demand(file: Path, given: Mapping[str, Any], names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in given]
    if missing:
        raise CheckpointError(f"{file} lacks '{missing[0]}'; take the published config.json")


_TALLER = ("model.embed_tokens.weight", "lm_head.weight")
_DELTA_ONLY = "model.mm_projector."


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
        if key.startswith(_DELTA_ONLY):
            yield file, key, tensor
        elif key in known:
            yield file, key, _added(file, key, tensor, *known[key])
        else:
            raise CheckpointError(
                f"{file}: key '{key}' has no counterpart in {base}; give base=<folder of LLaMA-7B v1>"
            )


def _added(file: Path, key: str, delta: torch.Tensor, base_file: Path, base: torch.Tensor) -> torch.Tensor:
    fits = delta.shape == base.shape
    taller = key in _TALLER and delta.shape[1:] == base.shape[1:] and delta.shape[0] > base.shape[0]
    if not fits and not taller:
        raise CheckpointError(
            f"{file}: key '{key}' has shape {tuple(delta.shape)}, but {tuple(base.shape)} in {base_file}; give "
            f"base=<folder of LLaMA-7B v1>"
        )
    merged = delta.clone()
    merged[: base.shape[0]] += base.to(delta.dtype)
    return merged


_STORED_TOWER = "model.vision_tower.vision_tower.vision_model."
_STORED_PROJECTOR = "model.mm_projector."


class LlavaMedNetwork(nn.Module):
    """The network, v1.5 (Mistral, two-layer projector, 336 pixels) or v1.0 (LLaMA, one linear layer, 224 pixels)."""

    def __init__(self, config: LlavaMedConfig, tower: CLIPVisionConfig) -> None:
        super().__init__()
        self.vision_tower = CLIPVisionModel(tower)
        self.projector = _projector(config.projector, config.tower_width, config.language.hidden_size)
        self.language_model = (MistralForCausalLM if config.is_mistral else LlamaForCausalLM)(config.language)
        self._select_layer = config.select_layer

    def drop_unread_layers(self) -> None:
        """Give up the layers of the tower behind the one that is read; to be called once the weights are there."""
        layers = self.vision_tower.encoder.layers
        # Of the states, the first is the layers' input.
        self.vision_tower.encoder.layers = layers[: range(len(layers) + 1)[self._select_layer]]

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return what the language model is given for images of shape (images, 3, side, side), without the class token.

        The shape is (images * patches, width of the language model).
        """
        seen = self.vision_tower(pixels.to(self.language_model.get_input_embeddings().weight)).last_hidden_state
        features: torch.Tensor = self.projector(seen[:, 1:]).flatten(0, 1)
        return features

    def embed(self, ids: torch.Tensor, slots: torch.Tensor, features: Sequence[torch.Tensor]) -> torch.Tensor:
        """Embed a batch and put the image features in their slots: shape (batch, length, width).

        In ``slots``, shape (batch, length), it is true where a feature belongs; there are as many features as slots.
        """
        embedded: torch.Tensor = self.language_model.get_input_embeddings()(ids)
        return embedded.masked_scatter(slots[..., None], torch.cat(list(features))) if features else embedded


def _projector(kind: str, inputs: int, outputs: int) -> nn.Module:
    if kind == "linear":
        return nn.Linear(inputs, outputs)
    layers = re.fullmatch(r"mlp(\d+)x_gelu", kind)
    if layers is None:
        raise CheckpointError(f"config.json: mm_projector_type '{kind}' is not supported")
    further = [part for _ in range(int(layers[1]) - 1) for part in (nn.GELU(), nn.Linear(outputs, outputs))]
    return nn.Sequential(nn.Linear(inputs, outputs), *further)


def checkpoint_name(key: str) -> str | None:
    """Translate a key of LLaVA-Med's checkpoint to a name in :class:`LlavaMedNetwork`, or raise a ``KeyError``."""
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
    config: LlavaMedConfig,
    tower: CLIPVisionConfig,
    tensors: Iterator[Stored],
    path: Path,
    tower_path: Path | None,
    dtype: torch.dtype,
) -> LlavaMedNetwork:
    """Build the network and fill it; no weight is in memory twice.

    ``path`` is the checkpoint, for messages, and ``tower_path`` the folder of the CLIP model whose tower is taken, as
    the published loader does; ``None`` for the tower inside the checkpoint.
    """
    if tower.hidden_size != config.tower_width:
        raise CheckpointError(
            f"{path / 'config.json'}: mm_hidden_size is {config.tower_width}, but the vision tower is "
            f"{tower.hidden_size} wide; give vision_tower=<folder of {config.tower}>"
        )
    try:
        network = on_meta(lambda: LlavaMedNetwork(config, tower))
    except ImportError as error:
        raise AdapterArgumentError(f"llava_med: this attn_implementation cannot be used here: {error}") from error
    if tower_path is None:
        fill(network, path, checkpoint_name, dtype, tensors)
    else:
        fill(network.vision_tower, tower_path, by_patterns(*TOWER_KEYS, r"\1"), dtype)
        _fill_beside_tower(network, tensors, path, dtype)
    network.drop_unread_layers()
    return network


def _fill_beside_tower(network: LlavaMedNetwork, tensors: Iterator[Stored], path: Path, dtype: torch.dtype) -> None:
    """Fill projector and language model; the checkpoint's own tower is checked, measured and left aside."""
    used = {f"vision_tower.{name}": weight for name, weight in network.vision_tower.named_parameters()}
    differences: list[float] = []

    def measured() -> Iterator[Stored]:
        for file, key, tensor in tensors:
            ours = used.get(checkpoint_name(key) or "") if key.startswith(_STORED_TOWER) else None
            if ours is not None and ours.shape != tensor.shape:
                raise CheckpointError(
                    f"{file}: key '{key}' has shape {tuple(tensor.shape)}, the vision tower {tuple(ours.shape)}; "
                    f"give the tower that config.json names as vision_tower=<folder>"
                )
            if ours is not None:
                differences.append((ours.float() - tensor.float()).abs().max().item())
            yield file, key, tensor

    def without_tower(key: str) -> str | None:
        name = checkpoint_name(key)
        return None if name in used else name

    rest = nn.ModuleDict({"projector": network.projector, "language_model": network.language_model})
    fill(rest, path, without_tower, dtype, measured())
    if differences:
        logger.info(
            "vision tower from vision_tower; the checkpoint's own differs by up to {:.3g} "
            "(vision_weights=checkpoint takes that)",
            max(differences),
        )
