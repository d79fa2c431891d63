"""``medtasks_tiny``: a very small vision-language model, for tests and to try a task without a download.

It must never be taken for a medical model. CLIP vision tower, projector and Llama are put together as in LLaVA. The
weights in the package were trained on synthetic images by ``benchmarks/train_tiny.py``; a token is a word, and the
model knows the questions of the bundled sample, but nothing of medicine. With ``weights=random`` they are drawn from
the seed, and a token is a character. ``wording=made_up`` puts its replies into made-up sentences, to show how rules
read the words of chat models.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

from .base.adapter import MedicalAdapter
from .base.arguments import AdapterArguments, argument
from .base.batching import (
    Continuation,
    Encoded,
    GenerationSettings,
    Spans,
    before_stops,
    counted_as,
)

PAD_ID, UNKNOWN_ID, BEGIN_ID, END_ID, IMAGE_ID, SPECIAL_TOKENS = range(6)

CHARACTERS = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
WORD = re.compile(r"[^\W\d]+|\S")  # a word, a digit or a sign
WEIGHTS = Path(__file__).with_name("tiny_weights")
_HEADS = 4
_OPTION = re.compile(r"^\W*([A-Z])\W?[:.)]", re.MULTILINE)
_MADE_UP = (  # the last one gives no answer
    "{}",
    "**{}**",
    "The answer is ({}).",
    "I would say {}, because of the image.",
    "I am sorry, but I cannot interpret medical images.",
)


@dataclass(frozen=True)
class Shape:
    """Sizes of the network."""

    vocabulary: int
    image_size: int  # in pixels
    patch_size: int
    vision_width: int
    text_width: int
    vision_layers: int
    text_layers: int


RANDOM_SHAPE = Shape(SPECIAL_TOKENS + len(CHARACTERS), 32, 8, 32, 64, 2, 2)
IMAGE_TOKENS = (RANDOM_SHAPE.image_size // RANDOM_SHAPE.patch_size) ** 2
# The vocabulary is in a file next to the weights
TRAINED_SHAPE = Shape(0, 64, 16, 64, 96, 2, 3)
# Per name of a matrix, its gain; 1 for the others. With the customary initialisation the last character alone decides;
# larger weights make attention sharp, so that the image and the whole text matter.
GAINS = {"language_model.model.embed_tokens": 0.3}
for _layer in range(RANDOM_SHAPE.text_layers):
    _attention = f"language_model.model.layers.{_layer}.self_attn"
    GAINS |= {
        f"{_attention}.q_proj": 2.5,
        f"{_attention}.k_proj": 2.5,
        f"{_attention}.o_proj": 4.0,
    }


def _layer_sizes(width: int, layers: int) -> dict[str, Any]:
    """Return the sizes that the configurations of CLIP and Llama name alike."""
    return {
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": _HEADS,
        "attn_implementation": "sdpa",
    }


class TinyNetwork(nn.Module):
    """LLaVA's parts in miniature, in float64, so that rounding never changes a decision.

    Weights are not set yet.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        vision = CLIPVisionConfig(
            image_size=shape.image_size,
            patch_size=shape.patch_size,
            **_layer_sizes(shape.vision_width, shape.vision_layers),
        )
        language = LlamaConfig(
            vocab_size=shape.vocabulary,
            max_position_embeddings=32768,
            **_layer_sizes(shape.text_width, shape.text_layers),
        )
        # Building in transformers draws weights, which are replaced later. The caller's random numbers must not move.
        with torch.random.fork_rng([]):
            self.vision_tower = CLIPVisionModel(vision)
            self.projector = nn.Linear(shape.vision_width, shape.text_width)
            self.language_model = LlamaForCausalLM(language)
            self.language_model.lm_head = nn.Linear(shape.text_width, shape.vocabulary)
        self.double()
        # Llama's own norms compute in float32 whatever the weights are.
        build_norm = partial(nn.RMSNorm, shape.text_width, eps=1e-6, dtype=torch.float64)
        llama = self.language_model.model
        llama.norm = build_norm()
        for layer in llama.layers:
            layer.input_layernorm = build_norm()
            layer.post_attention_layernorm = build_norm()

    def draw_weights(self, seed: int, gains: Mapping[str, float] = GAINS) -> None:
        """Set random weights: matrices have variance gain² / inputs, norms are 1 and offsets 0.

        Args:
            seed: The same seed gives the same weights on every machine.
            gains: By name of a matrix; 1 for the others.
        """
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if weight.dim() > 1:
                    inputs = 1 if "embed_tokens" in name else weight[0].numel()
                    gain = gains.get(name.removesuffix(".weight"), 1.0)
                    weight.normal_(std=gain / math.sqrt(inputs), generator=generator)
                else:
                    weight.fill_(0.0 if name.endswith("bias") else 1.0)
            offsets = self.language_model.lm_head.bias
            # Of the special tokens only the end is ever generated
            offsets[:SPECIAL_TOKENS] = -1e4
            offsets[END_ID] = 1.0  # often enough for some replies to end by themselves

    def image_features(self, pixels: Tensor) -> Tensor:
        """Return the embeddings for the slots, shape (images, tokens, width)."""
        # Without the class token, as in LLaVA.
        features: Tensor = self.projector(self.vision_tower(pixels).last_hidden_state[:, 1:])
        return features


@dataclass(frozen=True)
class TinyArguments(AdapterArguments):
    """The arguments of every adapter, with defaults for a small model."""

    batch_size: int = argument(16, least=1)
    max_new_tokens: int = argument(32, least=1)
    weights: str = argument("trained", choices=("trained", "random"))
    wording: str = argument("plain", choices=("plain", "made_up"))


class MedTasksTiny(MedicalAdapter):
    """LLaVA in miniature, whose reply and every likelihood depend on the images and on the text."""

    model_id = "medtasks_tiny"
    arguments_type = TinyArguments
    arguments: TinyArguments
    tokens: Sequence[str]  # texts of the ids after the special ones
    pad_id = PAD_ID
    slot_id = IMAGE_ID
    stop_ids = (END_ID,)

    def load(self) -> None:
        """Read the trained weights, or draw them: the same seed gives the same ones on every machine and device."""
        if self.arguments.weights == "trained":
            self.tokens = (WEIGHTS / "words.txt").read_text(encoding="utf-8").split("\n")
            self.pattern = WORD
            self.separator = " "
            self.shape = replace(TRAINED_SHAPE, vocabulary=SPECIAL_TOKENS + len(self.tokens))
            self.network = TinyNetwork(self.shape)
            stored = load_file(WEIGHTS / "model.safetensors")
            weights = {}
            for name, _ in self.network.named_parameters():
                # Versions of transformers name the parts of the vision tower with this level or without.
                weights[name] = stored[name.replace("vision_model.", "")]
            self.network.load_state_dict(weights)
        else:
            self.tokens = CHARACTERS
            self.pattern = re.compile(".", re.DOTALL)
            self.separator = ""
            self.shape = RANDOM_SHAPE
            self.network = TinyNetwork(self.shape)
            self.network.draw_weights(self.arguments.seed)
        numbered = enumerate(self.tokens, SPECIAL_TOKENS)
        self.ids_by_token = {token: number for number, token in numbered}
        is_made_up = self.arguments.wording == "made_up"
        self.remark = "MADE-UP WORDING" if is_made_up else ""  # of all results
        self.image_tokens = (self.shape.image_size // self.shape.patch_size) ** 2
        self.network.eval().requires_grad_(False).to(self.device)

    def encode(
        self,
        text: str,
        images: Sequence[Image.Image],
        reply: str = "",
    ) -> Encoded:
        """Put all images before the text: begin of sequence, ``image_tokens`` slots per image, words or characters.

        What the vocabulary lacks becomes the unknown token.
        """
        ids = [BEGIN_ID] + [IMAGE_ID] * (self.image_tokens * len(images))
        for token in self.pattern.findall(text + reply):
            ids.append(self.ids_by_token.get(token, UNKNOWN_ID))
        prepare = partial(pixels_of, size=self.shape.image_size)
        return Encoded(ids, self.prepared(images, prepare))

    def image_spans(self, prompt: Encoded) -> Spans:
        """Return the images' slots, which follow the begin of sequence."""
        images = 0 if prompt.pixels is None else len(prompt.pixels)
        starts = [1 + self.image_tokens * number for number in range(images)]
        return [(start, start + self.image_tokens) for start in starts]

    def generate_batch(
        self,
        prompts: Sequence[Encoded],
        settings: GenerationSettings,
        seed: int,
    ) -> list[str]:
        """Generate replies.

        Random weights spell no letter, so their replies to listed options begin with the likeliest one. With
        ``wording=made_up`` a made-up sentence is put around each reply, or a refusal in its place.
        """
        replies = []
        generated = super().generate_batch(prompts, settings, seed)
        for prompt, reply in zip(prompts, generated, strict=True):
            if self.arguments.weights == "random":
                reply = self._begin_with_letter(prompt, reply, settings)
            if self.arguments.wording == "made_up":
                # The prompt chooses the words, the same on every machine.
                digest = hashlib.sha256(str(list(prompt.ids)).encode()).digest()
                reply = counted_as(reply, _MADE_UP[digest[0] % len(_MADE_UP)].format(reply))
            replies.append(reply)
        return replies

    def _begin_with_letter(
        self, prompt: Encoded, reply: str, settings: GenerationSettings
    ) -> str:
        """Let a reply to listed options begin with the likeliest letter."""
        listed = set(_OPTION.findall(self.decode(prompt.ids)))
        letters = list(takewhile(listed.__contains__, ascii_uppercase))
        if len(letters) < 2 or not reply:
            return reply
        items = []
        for letter in letters:
            sequence = replace(prompt, ids=[*prompt.ids, self.ids_by_token[letter]])
            items.append(Continuation(sequence, 1))
        losses = [score.mean for score in self.score_batch(items)]
        likeliest = letters[losses.index(min(losses))]
        text = f"{likeliest}. {reply[3:]}"[: len(reply)]  # with the reply's length
        return counted_as(reply, before_stops(text, settings.until).strip())

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without special tokens and without a blank before a sign that ends a phrase."""
        text = self.separator.join(
            self.tokens[token - SPECIAL_TOKENS] for token in ids if token >= SPECIAL_TOKENS
        )
        return re.sub(r" (?=[.,:;?!)])", "", text) if self.separator else text


def pixels_of(images: Sequence[Image.Image], size: int) -> Tensor | None:
    """Return images as pixels, aspect ratio not kept.

    Args:
        images: Of any mode and size.
        size: Side of the result, in pixels.

    Returns:
        Shape (images, 3, size, size), values in -1 to 1; ``None`` without images.
    """
    if not images:
        return None
    rows = []
    for image in images:
        small = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
        rows.append(torch.from_numpy(np.asarray(small, dtype=np.float64)))
    return torch.stack(rows).permute(0, 3, 1, 2) / 127.5 - 1
