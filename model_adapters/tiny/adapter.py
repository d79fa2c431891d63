"""``medtasks_tiny``: a very small vision-language model with random weights, built in memory.

For tests and for trying a task or an installation without a download. Its scores mean nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from string import ascii_uppercase
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image

from ..base.adapter import MedicalAdapter
from ..base.arguments import AdapterArguments, argument
from ..base.batching import Encoded, PaddedBatch
from ..base.generation import GenerationSettings, Reply
from ..base.scoring import Continuation
from ..prefix.cuts import Spans
from .network import BEGIN_ID, END_ID, IMAGE_ID, IMAGE_SIZE, IMAGE_TOKENS, PAD_ID, TinyNetwork, ids_to_text, text_to_ids

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
    pad_id = PAD_ID
    stop_ids = (END_ID,)

    def load(self) -> None:
        """Build the network; the same seed gives the same weights on every machine and device."""
        self.network = TinyNetwork(self.arguments.seed).to(self.device)

    def encode(self, text: str, images: Sequence[Image.Image]) -> Encoded:
        """Put all images before the text: begin of sequence, ``IMAGE_TOKENS`` slots per image, characters."""
        ids = [BEGIN_ID] + [IMAGE_ID] * (IMAGE_TOKENS * len(images)) + text_to_ids(text)
        return Encoded(ids, self.prepared(images, _pixels))

    def image_spans(self, prompt: Encoded) -> Spans:
        """Return the images' slots, which follow the begin of sequence."""
        images = 0 if prompt.pixels is None else len(prompt.pixels)
        return [(1 + IMAGE_TOKENS * number, 1 + IMAGE_TOKENS * (number + 1)) for number in range(images)]

    def model_inputs(self, batch: PaddedBatch) -> dict[str, Any]:
        """Return embeddings with the image features in their slots."""
        return batch.inputs(inputs_embeds=self.network.embed(batch.ids, self.cached_features(batch.pixels)))

    def generate_batch(self, prompts: Sequence[Encoded], settings: GenerationSettings, seed: int) -> list[str]:
        """Generate replies; one to a prompt that lists options begins with the letter the network likes best.

        Random weights spell no answers, and a task of which every reply is invalid shows nobody what its scores are.
        Where the network ends a reply before its first character, it stays empty.
        """
        replies = super().generate_batch(prompts, settings, seed)
        return [self._begun(prompt, reply, settings) for prompt, reply in zip(prompts, replies, strict=True)]

    def _begun(self, prompt: Encoded, reply: str, settings: GenerationSettings) -> str:
        letters = _letters(ids_to_text(prompt.ids))
        if not (letters and reply):
            return reply
        sequences = [replace(prompt, ids=[*prompt.ids, *text_to_ids(letter)]) for letter in letters]
        losses = [score.mean for score in self.score_batch([Continuation(sequence, 1) for sequence in sequences])]
        begun = f"{letters[losses.index(min(losses))]}. {reply[3:]}"[: len(reply)]  # as long as what was decoded
        for stop in settings.until:
            begun = begun.partition(stop)[0]
        return Reply(begun.strip(), getattr(reply, "input_tokens", None), getattr(reply, "output_tokens", None))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the characters."""
        return ids_to_text(ids)


def _letters(prompt: str) -> list[str]:
    r"""Return the letters of the options that a prompt lists one per line, from A on; none where there is no second.

    Example:
        >>> _letters("Which side?\nA. left\n(B) right\nI. e."), _letters("A: x")
        (['A', 'B'], [])
    """
    listed = set(_OPTION.findall(prompt))
    letters = list(takewhile(listed.__contains__, ascii_uppercase))
    return letters if len(letters) > 1 else []


def _pixels(images: Sequence[Image.Image]) -> torch.Tensor | None:
    """Return images as shape (images, 3, IMAGE_SIZE, IMAGE_SIZE), values in -1 to 1, aspect ratio not kept."""
    if not images:
        return None
    small = [image.convert("RGB").resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BICUBIC) for image in images]
    values = torch.stack([torch.from_numpy(np.asarray(image, dtype=np.float64)) for image in small])
    return values.permute(0, 3, 1, 2) / 127.5 - 1
