"""``llava_med``: LLaVA-Med v1.5 (and v1.0) from the published weights, and their prompts as token ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image

from medtasks.errors import AdapterArgumentError, MedTasksError
from medtasks.net.journal import digest_of

from ..base.adapter import MedicalAdapter
from ..base.arguments import AdapterArguments, CheckpointArguments, argument
from ..base.batching import Encoded, Spans
from ..base.device import check_device_map, place
from ..checkpoints.reading import (
    CheckpointError,
    SentencePieceText,
    published_folder,
    read_json,
    stored_tensors,
)
from ..checkpoints.vision import clip_batch
from .checkpoint import MISTRAL, llava_config, load_network, merged_tensors, read_config, read_tower_config

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
    because the tokenizer falls back to bytes; the published code uses -200, which is no id at all.
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
    """The arguments of LLaVA-Med, see ``README.md``."""

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
        given = self.arguments
        check_device_map(given.device_map, self.device, self.accelerator.num_processes, self.model_id)
        folder = published_folder(given.pretrained, "pretrained")
        stored = read_config(folder)
        openai = given.vision_weights == "openai"
        tower_name = given.vision_tower or str(stored["mm_vision_tower"])
        tower_folder = published_folder(tower_name, "vision_tower", weights=openai)
        tower = read_tower_config(tower_folder)
        config = llava_config(stored, tower, given.attn_implementation)
        v15 = stored["model_type"] == MISTRAL
        self._side, self._pad = int(tower.image_size), stored.get("image_aspect_ratio") == "pad"
        patches = (tower.image_size // tower.patch_size) ** 2
        self._prompt: InstructPrompt | ConversationPrompt = (
            InstructPrompt(folder, patches)
            if v15
            else ConversationPrompt(folder, patches, bool(stored.get("mm_use_im_start_end", False)))
        )
        self.slot_id, self.stop_strings = self._prompt.slot_id, self._prompt.stops
        limit = int(config.text_config.max_position_embeddings)
        self._max_length = given.max_length or int(stored.get("tokenizer_model_max_length") or limit)
        if self._max_length > limit:
            raise AdapterArgumentError(
                f"llava_med: argument 'max_length' must be at most {limit}, the positions of the model, not "
                f"{self._max_length}."
            )
        self._text_files = [folder / "config.json", folder / "tokenizer.model", tower_folder / "config.json"]
        if given.base is not None and v15:
            raise AdapterArgumentError("llava_med: argument 'base' belongs to the delta of v1.0; v1.5 is complete.")
        if given.base is None and not v15 and "delta" in Path(given.pretrained).name.lower():
            raise AdapterArgumentError(
                f"llava_med: '{given.pretrained}' looks like the delta of v1.0; give base=<folder of LLaMA-7B v1> too."
            )
        base = None if given.base is None else published_folder(given.base, "base")
        tensors = stored_tensors(folder) if base is None else merged_tensors(folder, base)
        tower_weights = tower_folder if openai else None
        network = load_network(config, stored, tensors, folder, tower_weights, given.torch_dtype)
        self.network = place(network, network, self.device, given.device_map, self.model_id)

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
        """Return the images' slots; more spans than images where the text itself holds slots, so that nothing fits."""
        slots = [column for column, token in enumerate(prompt.ids) if token == self._prompt.slot_id]
        size = self._prompt.patches
        return [(slots[at], slots[at] + size) for at in range(0, len(slots), size)]

    @property
    def language_model(self) -> Any:
        """The whole network, fed with embeddings."""
        return self.network

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the contents of the slots, without the class token: shape (images * patches, width)."""
        parts = self.network.model
        seen = parts.vision_tower(pixels.to(self.network.lm_head.weight.dtype)).last_hidden_state
        features: torch.Tensor = parts.multi_modal_projector(seen[:, 1:]).flatten(0, 1)
        return features

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``."""
        return self._prompt.tokenizer.decode([token for token in ids if token > END_ID])

    def fingerprint(self) -> str:
        """Add what a hub id in the arguments does not tell: configuration and tokenizer."""
        return super().fingerprint() + digest_of([file.read_bytes().hex() for file in self._text_files])
