"""``medtasks_tiny``: a very small vision-language model with random weights, built in memory.

For tests and for trying a task or an installation without a download. Its scores mean nothing. CLIP vision tower,
projector and Llama are put together as in LLaVA; a token is a character, so that the replies can be read.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from string import ascii_uppercase
from typing import ClassVar

import numpy as np
import torch
from PIL import Image
from torch import nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

from .base.adapter import MedicalAdapter
from .base.arguments import AdapterArguments, argument
from .base.batching import Continuation, CountedReply, Encoded, GenerationSettings, Spans, before_stops

PAD_ID, UNKNOWN_ID, BEGIN_ID, END_ID, IMAGE_ID, SPECIAL_TOKENS = range(6)

CHARACTERS = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
VOCABULARY_SIZE = SPECIAL_TOKENS + len(CHARACTERS)
_IDS = {character: SPECIAL_TOKENS + place for place, character in enumerate(CHARACTERS)}


def text_to_ids(text: str) -> list[int]:
    """Return one id per character; what is not printable ASCII or a new line becomes the unknown token."""
    return [_IDS.get(character, UNKNOWN_ID) for character in text]


IMAGE_SIZE = 32
PATCH_SIZE = 8
IMAGE_TOKENS = (IMAGE_SIZE // PATCH_SIZE) ** 2
_VISION_WIDTH, _TEXT_WIDTH, _LAYERS, _HEADS = 32, 64, 2, 4
# Per name of a matrix, its gain; 1 for the others.
_GAINS = {"language_model.model.embed_tokens": 0.3} | {
    f"language_model.model.layers.{layer}.self_attn.{part}_proj": gain
    for layer in range(_LAYERS)
    for part, gain in {"q": 2.5, "k": 2.5, "o": 4.0}.items()
}


class TinyNetwork(nn.Module):
    """Vision-language model of some 100 000 parameters in float64, so that rounding never changes a decision."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        layers = {"num_hidden_layers": _LAYERS, "num_attention_heads": _HEADS, "attn_implementation": "sdpa"}
        vision_sizes, text_sizes = (
            {"hidden_size": width, "intermediate_size": 2 * width, **layers} for width in (_VISION_WIDTH, _TEXT_WIDTH)
        )
        vision = CLIPVisionConfig(image_size=IMAGE_SIZE, patch_size=PATCH_SIZE, **vision_sizes)
        language = LlamaConfig(vocab_size=VOCABULARY_SIZE, max_position_embeddings=32768, **text_sizes)
        with torch.random.fork_rng([]):  # building in transformers draws weights, which are replaced below
            self.vision_tower = CLIPVisionModel(vision)
            self.projector = nn.Linear(_VISION_WIDTH, _TEXT_WIDTH)
            self.language_model = LlamaForCausalLM(language)
            self.language_model.lm_head = nn.Linear(_TEXT_WIDTH, VOCABULARY_SIZE)
        self.double()
        # Llama's own norms compute in float32 whatever the weights are.
        norms = [(self.language_model.model, "norm")]
        for layer in self.language_model.model.layers:
            norms += [(layer, "input_layernorm"), (layer, "post_attention_layernorm")]
        for owner, name in norms:
            setattr(owner, name, nn.RMSNorm(_TEXT_WIDTH, eps=1e-6, dtype=torch.float64))
        # Matrices have variance gain² / inputs, norms are 1 and offsets 0. With the customary initialisation the last
        # character alone decides; larger weights make attention sharp, so that the image and the whole text matter.
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if weight.dim() > 1:
                    inputs = 1 if "embed_tokens" in name else weight[0].numel()
                    gain = _GAINS.get(name.removesuffix(".weight"), 1.0)
                    weight.normal_(std=gain / math.sqrt(inputs), generator=generator)
                else:
                    weight.fill_(0.0 if name.endswith("bias") else 1.0)
            offsets = self.language_model.lm_head.bias
            offsets[:SPECIAL_TOKENS] = -1e4  # of the special tokens only the end is ever generated
            offsets[END_ID] = 1.0  # often enough for some replies to end by themselves
        self.eval().requires_grad_(False)

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the embeddings for the slots, shape (images, IMAGE_TOKENS, width)."""
        # Without the class token, as in LLaVA.
        features: torch.Tensor = self.projector(self.vision_tower(pixels.double()).last_hidden_state[:, 1:])
        return features


_OPTION = re.compile(r"^\W*([A-Z])\W?[:.)]", re.MULTILINE)


@dataclass(frozen=True)
class TinyArguments(AdapterArguments):
    """The arguments of every adapter, with defaults for a small model."""

    batch_size: int = argument(16, least=1)
    max_new_tokens: int = argument(32, least=1)


class MedTasksTiny(MedicalAdapter):
    """LLaVA in miniature; the reply and every likelihood depend on the images and on the text."""

    model_id: ClassVar[str] = "medtasks_tiny"
    arguments_type: ClassVar[type[AdapterArguments]] = TinyArguments
    pad_id, slot_id, stop_ids = PAD_ID, IMAGE_ID, (END_ID,)

    def load(self) -> None:
        """Build the network; the same seed gives the same weights on every machine and device."""
        self.network = TinyNetwork(self.arguments.seed).to(self.device)

    def encode(self, text: str, images: Sequence[Image.Image], reply: str = "") -> Encoded:
        """Put all images before the text: begin of sequence, ``IMAGE_TOKENS`` slots per image, characters."""
        ids = [BEGIN_ID] + [IMAGE_ID] * (IMAGE_TOKENS * len(images)) + text_to_ids(text + reply)
        return Encoded(ids, self.prepared(images, _pixels))

    def image_spans(self, prompt: Encoded) -> Spans:
        """Return the images' slots, which follow the begin of sequence."""
        images = 0 if prompt.pixels is None else len(prompt.pixels)
        return [(1 + IMAGE_TOKENS * number, 1 + IMAGE_TOKENS * (number + 1)) for number in range(images)]

    def generate_batch(self, prompts: Sequence[Encoded], settings: GenerationSettings, seed: int) -> list[str]:
        """Generate replies; one to listed options begins with its likeliest letter, as random weights spell none."""
        replies = super().generate_batch(prompts, settings, seed)
        for row, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
            listed = set(_OPTION.findall(self.decode(prompt.ids)))
            letters = list(takewhile(listed.__contains__, ascii_uppercase))
            if len(letters) > 1 and reply:
                sequences = [replace(prompt, ids=[*prompt.ids, *text_to_ids(letter)]) for letter in letters]
                scores = self.score_batch([Continuation(sequence, 1) for sequence in sequences])
                losses = [score.mean for score in scores]
                text = f"{letters[losses.index(min(losses))]}. {reply[3:]}"[: len(reply)]  # with the reply's length
                text = before_stops(text, settings.until).strip()
                counts = getattr(reply, "input_tokens", None), getattr(reply, "output_tokens", None)
                replies[row] = CountedReply(text, *counts)
        return replies

    def decode(self, ids: Sequence[int]) -> str:
        """Return the characters, special tokens left out."""
        return "".join(CHARACTERS[token - SPECIAL_TOKENS] for token in ids if token >= SPECIAL_TOKENS)


def _pixels(images: Sequence[Image.Image]) -> torch.Tensor | None:
    """Return images as shape (images, 3, IMAGE_SIZE, IMAGE_SIZE), values in -1 to 1, aspect ratio not kept."""
    if not images:
        return None
    small = [image.convert("RGB").resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BICUBIC) for image in images]
    values = torch.stack([torch.from_numpy(np.asarray(image, dtype=np.float64)) for image in small])
    return values.permute(0, 3, 1, 2) / 127.5 - 1
