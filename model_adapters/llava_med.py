"""``llava_med``: LLaVA-Med v1.5 from the published weights, read into transformers' LLaVA.

transformers refuses the published ``config.json`` (``llava_mistral``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from transformers import LlavaConfig, LlavaForConditionalGeneration, MistralConfig

from medtasks.errors import AdapterArgumentError, MedTasksError
from medtasks.net.journal import digest_of
from medtasks.version import ARCHITECTURES_NEED

from .base.adapter import MedicalAdapter
from .base.arguments import CheckpointArguments, argument
from .base.batching import Encoded, Spans
from .base.checkpoints import (
    CheckpointError,
    SentencePieceText,
    by_patterns,
    check_device_map,
    fill,
    on_meta,
    place,
    published_folder,
    read_json,
)
from .base.vision import SHAPE, TOWER_KEYS, clip_batch, tower_config

# transformers' own defaults for these are not those of Mistral 7B v0.2, so they must not be left out.
_MISTRAL = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "rms_norm_eps",
    "num_key_value_heads",
    "rope_theta",
    "sliding_window",
)
_PASSED_ON = {
    *_MISTRAL,
    "max_position_embeddings",
    "hidden_act",
    "head_dim",
    "tie_word_embeddings",
}
_SUPPORTED = {"mm_vision_select_feature": "patch", "mm_projector_type": "mlp2x_gelu"}
UNKNOWN_ID, BEGIN_ID, END_ID = range(3)


def read_fields(
    file: Path,
    names: Sequence[str],
    part: str = "",
) -> dict[str, Any]:
    """Read a ``config.json`` with all fields that decide about answers.

    Args:
        file: The file.
        names: Fields that it must have.
        part: Name of an object in it that holds the fields, if there is one.

    Raises:
        CheckpointError: The file or a field is missing.
    """
    stored = read_json(file, "put the published config.json there")
    for name in names:
        if name not in stored.get(part, stored):
            raise CheckpointError(f"{file} lacks '{name}'; take the published config.json")
    return stored


def load_network(
    config: LlavaConfig,
    path: Path,
    tower: Path | None,
    dtype: torch.dtype,
) -> LlavaForConditionalGeneration:
    """Build the network and fill it.

    Args:
        config: Sizes of all parts.
        path: File or folder of LLaVA-Med's weights.
        tower: Folder of a CLIP model to take the vision tower from; ``None`` for the one in ``path``.
        dtype: Type of all parameters.

    Raises:
        CheckpointError: A tensor is missing or does not fit.
        AdapterArgumentError: A package that ``attn_implementation`` needs is missing.
    """
    try:
        network = on_meta(lambda: LlavaForConditionalGeneration(config))
    except ImportError as error:
        raise AdapterArgumentError(
            f"llava_med: this attn_implementation cannot be used here: {error}"
        ) from error
    # So a device map puts all of it on the first GPU.
    network._no_split_modules |= {"CLIPVisionModel"}
    model = network.model
    projector = model.multi_modal_projector
    # A tree with the parameter names of the file.
    parts = dict(model.language_model.named_children())
    parts["mm_projector"] = nn.ModuleDict({"0": projector.linear_1, "2": projector.linear_2})
    parts["vision_tower"] = nn.ModuleDict(
        {"vision_tower": nn.ModuleDict({"vision_model": model.vision_tower})}
    )
    tree = nn.ModuleDict({"model": nn.ModuleDict(parts), "lm_head": network.lm_head})
    unused = r".*(?:rotary_emb\.inv_freq|embeddings\.position_ids)"
    fill(tree, path, by_patterns(unused, r"model\..+|lm_head\.weight"), dtype)
    if tower is not None:
        fill(model.vision_tower, tower, by_patterns(*TOWER_KEYS, r"\1"), dtype)
    # Layers after that of the features are removed; hidden state 0 is the input of the first layer.
    encoder = model.vision_tower.encoder
    count = range(len(encoder.layers) + 1)[config.vision_feature_layer]
    encoder.layers = encoder.layers[:count]
    return network


@dataclass(frozen=True)
class LlavaMedArguments(CheckpointArguments):
    """The arguments of LLaVA-Med, see ``model_adapters/README.md``."""

    # folder or hub id of the checkpoint
    pretrained: str = argument("microsoft/llava-med-v1.5-mistral-7b")
    vision_tower: str | None = argument(None)
    vision_weights: str = argument("openai", choices=("openai", "checkpoint"))
    max_length: int | None = argument(None, least=1)
    attn_implementation: str = argument("sdpa", choices=("sdpa", "eager", "flash_attention_2"))
    max_new_tokens: int = argument(100, least=1)


class LlavaMed(MedicalAdapter):
    """LLaVA-Med, greedy unless the task asks for sampling."""

    model_id = "llava_med"
    arguments_type = LlavaMedArguments
    least_versions = ARCHITECTURES_NEED
    arguments: LlavaMedArguments
    tokenizer: SentencePieceText
    pad_id = slot_id = UNKNOWN_ID
    stop_ids = (END_ID,)

    def load(self) -> None:
        """Read configuration, tokenizer and weights.

        Raises:
            CheckpointError: A file is missing, damaged or of another model.
            AdapterArgumentError: ``max_length`` is more than the model has positions, or the device map does not fit.
        """
        arguments = self.arguments
        check_device_map(arguments.device_map, self.device, self.world_size, self.model_id)
        folder = published_folder(arguments.pretrained, "pretrained")
        file = folder / "config.json"
        kind = read_fields(file, ()).get("model_type")
        if kind != "llava_mistral":
            raise CheckpointError(
                f"{file}: model_type '{kind}' is not that of LLaVA-Med v1.5 (llava_mistral)"
            )
        stored = read_fields(
            file, (*_MISTRAL, "mm_vision_select_layer", "mm_vision_tower", "mm_hidden_size")
        )
        for name, value in _SUPPORTED.items():
            if stored.get(name, value) != value:
                raise CheckpointError(f"{file}: {name} '{stored[name]}' is not supported")
        is_openai = arguments.vision_weights == "openai"
        tower_folder = published_folder(
            arguments.vision_tower or str(stored["mm_vision_tower"]),
            "vision_tower",
            weights=is_openai,
        )
        tower = tower_config(read_fields(tower_folder / "config.json", SHAPE, "vision_config"))
        if tower.hidden_size != stored["mm_hidden_size"]:
            raise CheckpointError(
                f"{file}: mm_hidden_size is {stored['mm_hidden_size']}, but the vision tower is "
                f"{tower.hidden_size} wide; give vision_tower=<folder of {stored['mm_vision_tower']}>"
            )
        attention = arguments.attn_implementation
        language = {name: stored[name] for name in _PASSED_ON & stored.keys()}
        config = LlavaConfig(
            text_config=MistralConfig(**language),
            vision_config=tower,
            vision_feature_layer=int(stored["mm_vision_select_layer"]),
            tie_word_embeddings=bool(stored.get("tie_word_embeddings", False)),
            attn_implementation={
                "": attention,
                "text_config": attention,
                "vision_config": "sdpa",
            },
        )
        self._side = int(tower.image_size)
        self._pad = stored.get("image_aspect_ratio") == "pad"
        self._patches = (tower.image_size // tower.patch_size) ** 2
        added = {"<s>": BEGIN_ID, "</s>": END_ID}
        self.tokenizer = SentencePieceText(folder / "tokenizer.model", added)
        limit = int(config.text_config.max_position_embeddings)
        stored_limit = int(stored.get("tokenizer_model_max_length") or limit)
        self._max_length = arguments.max_length or stored_limit
        if self._max_length > limit:
            raise AdapterArgumentError(
                f"llava_med: argument 'max_length' must be at most {limit}, the positions of the model, not "
                f"{self._max_length}."
            )
        self._text_files = [file, folder / "tokenizer.model", tower_folder / "config.json"]
        network = load_network(
            config, folder, tower_folder if is_openai else None, getattr(torch, arguments.dtype)
        )
        self.network = place(network, network, self.device, arguments.device_map, self.model_id)

    def encode(
        self,
        text: str,
        images: Sequence[Image.Image],
        reply: str = "",
    ) -> Encoded:
        """Write ``[INST]``, one line per image, text and ``[/INST]``, and the reply, after a space if it has none.

        The text on either side of an image is tokenized by itself. A slot holds the id of ``<unk>``, which no text
        yields because the tokenizer falls back to bytes; the published code uses -200.

        Raises:
            MedTasksError: The prompt takes more positions than there are.
        """
        answer = reply if not reply or reply[0].isspace() else " " + reply
        sides = ("[INST] " + "<image>\n" * len(images)).split("<image>")
        sides[-1] += f"{text} [/INST]{answer}"
        ids = [BEGIN_ID]
        for number, side in enumerate(sides):
            if number > 0:
                ids += [self.slot_id] * self._patches
            ids += self.tokenizer.encode(side)
        if len(ids) > self._max_length:
            raise MedTasksError(
                f"the prompt takes {len(ids)} positions ({len(images)} images), max_length is {self._max_length}; give "
                f"--model_args max_length={len(ids)} or more, or a shorter prompt"
            )
        prepare = partial(clip_batch, size=self._side, pad=self._pad, crop_rounding="floor")
        return Encoded(ids, self.prepared(images, prepare))

    def image_spans(self, prompt: Encoded) -> Spans:
        """Return the images' slots.

        If the text itself holds slots, there are too many spans, so that nothing is shared.
        """
        slots = [column for column, token in enumerate(prompt.ids) if token == self.slot_id]
        return [(first, first + self._patches) for first in slots[:: self._patches]]

    @property
    def language_model(self) -> Any:
        """The whole network, fed with embeddings."""
        return self.network

    def image_features(self, pixels: Tensor) -> Tensor:
        """Return the embeddings for the slots, without the class token: shape (images * patches, width)."""
        parts = self.network.model
        states = parts.vision_tower(
            pixels.to(self.network.lm_head.weight.dtype)
        ).last_hidden_state
        features: Tensor = parts.multi_modal_projector(states[:, 1:]).flatten(0, 1)
        return features

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``."""
        return self.tokenizer.decode(ids)

    def fingerprint(self) -> str:
        """Add configuration and tokenizer, which a hub id in the arguments does not name."""
        return super().fingerprint() + digest_of(
            [file.read_bytes().hex() for file in self._text_files]
        )
