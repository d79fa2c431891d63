"""What a LLaVA-Med checkpoint says about itself, and how the delta of v1.0 is added to LLaMA.

transformers refuses its ``config.json`` (``llava_mistral``). What is missing, damaged or another model's is a
:class:`CheckpointError`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import CLIPVisionConfig, LlamaConfig, MistralConfig

from ..checkpoints.clip import SHAPE
from ..checkpoints.reading import CheckpointError, Stored, read_json, stored_tensors

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
