"""``llava_med``: LLaVA-Med v1.5 (and v1.0) from the published weights, read into transformers' LLaVA.

transformers refuses the published ``config.json`` (``llava_mistral``). The delta of v1.0 is added to LLaMA on reading.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import nn
from transformers import LlamaConfig, LlavaConfig, LlavaForConditionalGeneration, MistralConfig

from medtasks.errors import AdapterArgumentError, MedTasksError
from medtasks.net.journal import digest_of

from .base.adapter import MedicalAdapter
from .base.arguments import AdapterArguments, CheckpointArguments, argument
from .base.batching import Encoded, Spans
from .base.checkpoints import (
    CheckpointError,
    SentencePieceText,
    Stored,
    by_patterns,
    check_device_map,
    fill,
    on_meta,
    place,
    published_folder,
    read_json,
    stored_tensors,
)
from .base.vision import SHAPE, TOWER_KEYS, clip_batch, tower_config

MISTRAL = "llava_mistral"
"""``model_type`` of v1.5; v1.0's LLaMA has another."""
_LLAMA = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps")
# transformers' own defaults for these are not those of Mistral 7B v0.2, so they must not be left out.
_MISTRAL = (*_LLAMA, "num_key_value_heads", "rope_theta", "sliding_window")
_PASSED_ON = {*_MISTRAL, "max_position_embeddings", "hidden_act", "head_dim", "tie_word_embeddings"}
_TALLER = ("model.embed_tokens.weight", "lm_head.weight")
_STORED_PROJECTOR = "model.mm_projector."
_STORED_TOWER = "model.vision_tower.vision_tower.vision_model."


def read_fields(file: Path, names: Sequence[str], part: str = "") -> dict[str, Any]:
    """Read a ``config.json`` with all fields that decide about answers, in this part of it if there is one."""
    stored = read_json(file, "put the published config.json there")
    for name in names:
        if name not in stored.get(part, stored):
            raise CheckpointError(f"{file} lacks '{name}'; take the published config.json")
    return stored


def read_config(folder: Path) -> dict[str, Any]:
    """Return ``config.json`` of a checkpoint; a kind or variant that is not supported is a ``CheckpointError``."""
    file = folder / "config.json"
    kind = read_fields(file, ()).get("model_type")
    if kind not in (MISTRAL, "llava", "llava_llama"):
        raise CheckpointError(f"{file}: model_type '{kind}' is not LLaVA-Med's (llava_mistral; llava for v1.0)")
    fields = (*_MISTRAL, "mm_vision_select_layer") if kind == MISTRAL else _LLAMA
    stored = read_fields(file, (*fields, "mm_vision_tower", "mm_hidden_size"))
    feature, tower = stored.get("mm_vision_select_feature", "patch"), str(stored["mm_vision_tower"])
    if feature != "patch":
        raise CheckpointError(f"{file}: mm_vision_select_feature '{feature}' is not supported")
    if "biomed" in tower.lower():
        raise CheckpointError(f"{file}: the variant with the tower '{tower}' is not supported")
    return stored


def merged_tensors(delta: Path, base: Path) -> Iterator[Stored]:
    """Yield the merged tensors of v1.0 one by one, with the files of the delta.

    The word table and the output matrix have more rows in the delta (tokens were added); the base, LLaMA-7B v1 in the
    Hugging Face layout, is added to its own rows. The sum in the delta's type, float16 as published, is the published
    one to the bit.
    """
    base_tensors = {key: (file, tensor) for file, key, tensor in stored_tensors(base)}
    for file, key, tensor in stored_tensors(delta):
        if key.endswith("rotary_emb.inv_freq"):
            continue
        if key.startswith(_STORED_PROJECTOR):
            yield file, key, tensor
            continue
        if key not in base_tensors:
            raise CheckpointError(
                f"{file}: key '{key}' has no counterpart in {base}; give base=<folder of LLaMA-7B v1>"
            )
        base_file, start = base_tensors[key]
        is_taller = key in _TALLER and tensor.shape[1:] == start.shape[1:] and len(tensor) > len(start)
        if tensor.shape != start.shape and not is_taller:
            raise CheckpointError(
                f"{file}: key '{key}' has shape {tuple(tensor.shape)}, but {tuple(start.shape)} in {base_file}; "
                f"give base=<folder of LLaMA-7B v1>"
            )
        merged = tensor.clone()
        merged[: len(start)] += start.to(tensor.dtype)
        yield file, key, merged


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
    stored: Mapping[str, Any],
    tensors: Iterator[Stored],
    path: Path,
    tower_path: Path | None,
    dtype: torch.dtype,
) -> LlavaForConditionalGeneration:
    """Build the network and fill it; no weight is in memory twice.

    ``stored`` is the ``config.json`` of the checkpoint, ``path`` its folder, for messages, and ``tower_path`` the
    folder of a CLIP model with the tower, as in the published loader; ``None`` for the tower inside the checkpoint.
    """
    width = config.vision_config.hidden_size
    if width != stored["mm_hidden_size"]:
        raise CheckpointError(
            f"{path / 'config.json'}: mm_hidden_size is {stored['mm_hidden_size']}, but the vision tower is "
            f"{width} wide; give vision_tower=<folder of {stored['mm_vision_tower']}>"
        )
    # ``linear`` (v1.0), or ``mlpNx_gelu`` for N linear layers with GELU in between; transformers knows N = 2.
    kind, outputs = str(stored.get("mm_projector_type", "linear")), config.text_config.hidden_size
    layers = re.fullmatch(r"mlp(\d+)x_gelu", kind)
    if kind != "linear" and layers is None:
        raise CheckpointError(f"config.json: mm_projector_type '{kind}' is not supported")

    def build() -> LlavaForConditionalGeneration:
        built = LlavaForConditionalGeneration(config)
        projector = nn.Sequential(nn.Linear(width, outputs))
        for _ in range(1, int(layers[1]) if layers else 1):
            projector.extend((nn.GELU(), nn.Linear(outputs, outputs)))
        built.model.multi_modal_projector = projector if layers else projector[0]
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
    else:
        fill(model.vision_tower, tower_path, by_patterns(*TOWER_KEYS, r"\1"), dtype)
        tensors = _without_tower(tensors, model.vision_tower)
    fill(tree, path, checkpoint_name, dtype, tensors)
    # Layers after that of the features are removed; hidden state 0 is the input of the first layer.
    blocks = model.vision_tower.encoder.layers
    model.vision_tower.encoder.layers = blocks[: range(len(blocks) + 1)[config.vision_feature_layer]]
    return network


def _without_tower(tensors: Iterator[Stored], tower: nn.Module) -> Iterator[Stored]:
    """Leave out a checkpoint's own vision tower, which has to have the shapes of ``tower``."""
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


UNKNOWN_ID, BEGIN_ID, END_ID = 0, 1, 2
_SPECIAL = {"<s>": BEGIN_ID, "</s>": END_ID}
_PATCH, _START, _END = "<im_patch>", "<im_start>", "<im_end>"
# The conversation "simple" of v1.0's evaluation.
_OPENING = (
    "A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the human's questions.###Human: Hi!###Assistant: Hi there!  How can I help you today?\n###"
)


class InstructPrompt:
    """v1.5: ``[INST] <image>``, a new line, ``{text} [/INST]``; several images one below the other.

    The text on either side of an image is tokenized by itself. A slot holds the id of ``<unk>``, which no text yields
    because the tokenizer falls back to bytes; the published code uses -200.
    """

    slot_id = UNKNOWN_ID
    stops: tuple[str, ...] = ()

    def __init__(self, folder: Path, patches: int) -> None:
        self.tokenizer = SentencePieceText(folder / "tokenizer.model", _SPECIAL)
        self.patches = patches

    def ids(self, text: str, images: int, answer: str = "") -> list[int]:
        """Return the ids of a prompt and of the beginning of its answer, which begins with white space."""
        sides = ("[INST] " + "<image>\n" * images).split("<image>")
        sides[-1] += f"{text} [/INST]{answer}"
        ids = [BEGIN_ID]
        for number, side in enumerate(sides):
            ids += [self.slot_id] * (self.patches if number else 0) + self.tokenizer.encode(side)
        return ids


class ConversationPrompt:
    """v1.0: a conversation ``simple`` with ``###`` between the turns, and the images after the question."""

    stops: tuple[str, ...] = ("###",)

    def __init__(self, folder: Path, patches: int, image_ends: bool) -> None:
        file = folder / "added_tokens.json"
        stored = read_json(file, "LLaVA-Med v1.0 needs the ids of its image tokens from there")
        try:
            added = {name: int(stored[name]) for name in ([_PATCH, _START, _END] if image_ends else [_PATCH])}
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{file} is damaged; download it again") from error
        except KeyError as error:
            raise CheckpointError(f"{file} lacks {error}; take the file that was published with the delta") from error
        self.slot_id, self.patches = added[_PATCH], patches
        self.tokenizer = SentencePieceText(folder / "tokenizer.model", _SPECIAL | added, strip_around_added=True)
        block = _PATCH * patches
        self._image = "\n" + (_START + block + _END if image_ends else block)

    def ids(self, text: str, images: int, answer: str = "") -> list[int]:
        """As :meth:`InstructPrompt.ids`."""
        turn = f"Human: {text.strip()}{self._image * images}###Assistant:{answer}"
        return [BEGIN_ID, *self.tokenizer.encode(_OPENING + turn)]


@dataclass(frozen=True)
class LlavaMedArguments(CheckpointArguments):
    """The arguments of LLaVA-Med, see ``model_adapters/README.md``."""

    pretrained: str = argument("microsoft/llava-med-v1.5-mistral-7b")  # folder or hub id of the checkpoint
    base: str | None = argument(None)  # folder or hub id of LLaMA-7B v1, if ``pretrained`` is the delta of v1.0
    vision_tower: str | None = argument(None)
    vision_weights: str = argument("openai", choices=("openai", "checkpoint"))
    max_length: int | None = argument(None, least=1)
    attn_implementation: str = argument("sdpa", choices=("sdpa", "eager", "flash_attention_2"))
    max_new_tokens: int = argument(100, least=1)


class LlavaMed(MedicalAdapter):
    """LLaVA-Med; greedy unless the task asks for sampling."""

    model_id: ClassVar[str] = "llava_med"
    arguments_type: ClassVar[type[AdapterArguments]] = LlavaMedArguments
    arguments: LlavaMedArguments
    pad_id = UNKNOWN_ID
    stop_ids = (END_ID,)

    def load(self) -> None:
        """Read configuration, tokenizer and weights."""
        arguments = self.arguments
        check_device_map(arguments.device_map, self.device, self.accelerator.num_processes, self.model_id)
        folder = published_folder(arguments.pretrained, "pretrained")
        stored = read_config(folder)
        is_v15, is_openai = stored["model_type"] == MISTRAL, arguments.vision_weights == "openai"
        tower_name = arguments.vision_tower or str(stored["mm_vision_tower"])
        tower_folder = published_folder(tower_name, "vision_tower", weights=is_openai)
        tower = tower_config(read_fields(tower_folder / "config.json", SHAPE, "vision_config"))
        text_kind, attention = MistralConfig if is_v15 else LlamaConfig, arguments.attn_implementation
        config = LlavaConfig(
            text_config=text_kind(**{name: stored[name] for name in _PASSED_ON & stored.keys()}),
            vision_config=tower,
            # Layer of the features; v1.0's code takes the last by default.
            vision_feature_layer=int(stored.get("mm_vision_select_layer", -1)),
            tie_word_embeddings=bool(stored.get("tie_word_embeddings", False)),
            attn_implementation={"": attention, "text_config": attention, "vision_config": "sdpa"},
        )
        self._side, self._pad = int(tower.image_size), stored.get("image_aspect_ratio") == "pad"
        patches = (tower.image_size // tower.patch_size) ** 2
        self._prompt: InstructPrompt | ConversationPrompt = (
            InstructPrompt(folder, patches)
            if is_v15
            else ConversationPrompt(folder, patches, bool(stored.get("mm_use_im_start_end", False)))
        )
        self.slot_id, self.stop_strings = self._prompt.slot_id, self._prompt.stops
        limit = int(config.text_config.max_position_embeddings)
        self._max_length = arguments.max_length or int(stored.get("tokenizer_model_max_length") or limit)
        if self._max_length > limit:
            raise AdapterArgumentError(
                f"llava_med: argument 'max_length' must be at most {limit}, the positions of the model, not "
                f"{self._max_length}."
            )
        self._text_files = [folder / "config.json", folder / "tokenizer.model", tower_folder / "config.json"]
        if arguments.base is not None and is_v15:
            raise AdapterArgumentError("llava_med: argument 'base' belongs to the delta of v1.0; v1.5 is complete.")
        if arguments.base is None and not is_v15 and "delta" in Path(arguments.pretrained).name.lower():
            raise AdapterArgumentError(
                f"llava_med: '{arguments.pretrained}' looks like the delta of v1.0; give base=<folder of LLaMA-7B v1> "
                f"too."
            )
        base = None if arguments.base is None else published_folder(arguments.base, "base")
        tensors = stored_tensors(folder) if base is None else merged_tensors(folder, base)
        tower_weights = tower_folder if is_openai else None
        network = load_network(config, stored, tensors, folder, tower_weights, arguments.torch_dtype)
        self.network = place(network, network, self.device, arguments.device_map, self.model_id)

    def encode(self, text: str, images: Sequence[Image.Image], reply: str = "") -> Encoded:
        """Put text, images and the reply in the template, the reply after a space if it does not bring its own."""
        answer = reply if not reply or reply[0].isspace() else " " + reply
        ids = self._prompt.ids(text, len(images), answer)
        if len(ids) > self._max_length:
            raise MedTasksError(
                f"the prompt takes {len(ids)} positions ({len(images)} images), max_length is {self._max_length}; give "
                f"--model_args max_length={len(ids)} or more, or a shorter prompt"
            )
        prepare = partial(clip_batch, size=self._side, pad=self._pad, crop_rounding="floor")
        return Encoded(ids, self.prepared(images, prepare))

    def image_spans(self, prompt: Encoded) -> Spans:
        """Return the images' slots; too many spans, so that nothing is shared, if the text itself holds slots."""
        slots = [column for column, token in enumerate(prompt.ids) if token == self._prompt.slot_id]
        size = self._prompt.patches
        return [(slots[at], slots[at] + size) for at in range(0, len(slots), size)]

    @property
    def language_model(self) -> Any:
        """The whole network, fed with embeddings."""
        return self.network

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the embeddings for the slots, without the class token: shape (images * patches, width)."""
        parts = self.network.model
        states = parts.vision_tower(pixels.to(self.network.lm_head.weight.dtype)).last_hidden_state
        features: torch.Tensor = parts.multi_modal_projector(states[:, 1:]).flatten(0, 1)
        return features

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``."""
        return self._prompt.tokenizer.decode([token for token in ids if token > END_ID])

    def fingerprint(self) -> str:
        """Add configuration and tokenizer, which a hub id in the arguments does not name."""
        return super().fingerprint() + digest_of([file.read_bytes().hex() for file in self._text_files])
