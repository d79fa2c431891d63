"""LLaVA-Med's network: CLIP vision tower, projector, language model, put together through ``inputs_embeds``."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from loguru import logger
from torch import nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaForCausalLM, MistralForCausalLM

from medtasks.errors import AdapterArgumentError

from ..checkpoints.clip import TOWER_KEYS
from ..checkpoints.reading import CheckpointError, Stored, by_patterns, fill, on_meta
from .checkpoint import LlavaMedConfig

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
    layers = re.fullmatch(r"mlp(\d+)x_gelu", kind)
    if layers is None and kind != "linear":
        raise CheckpointError(f"config.json: mm_projector_type '{kind}' is not supported")
    if layers is None:
        return nn.Linear(inputs, outputs)
    parts: list[nn.Module] = [nn.Linear(inputs, outputs)]
    for _ in range(int(layers[1]) - 1):
        parts += [nn.GELU(), nn.Linear(outputs, outputs)]
    return nn.Sequential(*parts)


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
