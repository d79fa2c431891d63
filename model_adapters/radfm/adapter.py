"""``radfm``: RadFM from the published weights, for images and volumes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from loguru import logger
from PIL import Image

from medtasks.errors import MedTasksError

from ..base.adapter import MedicalAdapter
from ..base.arguments import AdapterArguments, CheckpointArguments, argument
from ..base.batching import Continuation, Encoded, PaddedBatch, Spans, split_continuation
from ..base.device import check_device_map, place
from ..base.requests import VOLUMES
from ..checkpoints.reading import SentencePieceText
from .checkpoint import FIRST_ID, MAX_IMAGES, load_network, locate, read_tokenizer, slot_token
from .network import CONTEXT
from .voxels import Volume, image_volume, read_volume, stack_volumes

_UNKNOWN_ID = 0


@dataclass(frozen=True)
class RadFMArguments(CheckpointArguments):
    """The arguments of RadFM, see ``README.md``."""

    pretrained: str = argument("chaoyi-wu/RadFM")
    image_position: str = argument("front", choices=("front", "before_last_character"))
    several_images: str = argument("separate", choices=("separate", "slices"))
    crop: str = argument("none", choices=("none", "random"))
    # longest prompt in positions, image slots included; the end of a longer one is cut off, as by the published code
    max_length: int = argument(CONTEXT, least=2, most=CONTEXT)
    attn_implementation: str = argument("sdpa", choices=("sdpa", "eager", "flash_attention_2"))
    max_new_tokens: int = argument(200, least=1)  # length limit of a reply where the task sets none, in tokens


class RadFM(MedicalAdapter):
    """RadFM: every image, of whatever depth, becomes 32 embeddings between two marks in the text."""

    model_id: ClassVar[str] = "radfm"
    arguments_type: ClassVar[type[AdapterArguments]] = RadFMArguments
    visual_types: ClassVar[tuple[type, ...]] = VOLUMES
    arguments: RadFMArguments
    tokenizer: SentencePieceText
    pad_id = _UNKNOWN_ID
    stop_ids = (2, 1)  # end of sequence, and what the published configuration takes for it

    def load(self) -> None:
        """Read weights and tokenizer."""
        check_device_map(self.arguments.device_map, self.device, self.accelerator.num_processes, self.model_id)
        weights, texts = locate(self.arguments.pretrained)
        network = load_network(weights, texts, self.arguments.torch_dtype, self.arguments.attn_implementation)
        self.network = place(network, network.lang_model, self.device, self.arguments.device_map, self.model_id)
        images, vocabulary = network.embedding_layer, network.lang_model.config.vocab_size
        self._latents, self._side = len(images.perceiver.latents), images.vision_encoder.side
        self.tokenizer = read_tokenizer(texts, vocabulary, self._latents)
        self._warned = False

    def encode(self, text: str, images: Sequence[Image.Image | Volume], reply: str = "") -> Encoded:
        """Put the images' slots into the text and preprocess the images, which may be volumes.

        Pixels have the shape (images, 3, side, side, depth), values 0 to 1. Without images, RadFM still expects one
        black volume, which no slot refers to. An image mark of the text that fits no image, or a volume that cannot be
        read, is a ``MedTasksError``.
        """
        ids = self._ids(text, images, reply)
        if len(ids) > self.arguments.max_length:
            self._warn(len(ids))
        return Encoded(ids[: self.arguments.max_length], self.prepared(images, self._pixels))

    def encode_pair(self, context: str, continuation: str, images: Sequence[Image.Image | Volume]) -> Continuation:
        """Encode prompt and continuation.

        Where both are too long together, the end of the prompt is cut off and the continuation stays whole; one that
        holds an image mark, or is too long by itself, is a ``MedTasksError``.
        """
        ids = self._ids(context, images, continuation)
        tokens = split_continuation(Encoded(self._ids(context, images), None), Encoded(ids, None)).tokens
        cut, room = len(ids) - tokens, self.arguments.max_length - tokens
        if max(ids[cut:]) >= self.tokenizer.vocabulary:
            raise MedTasksError("a continuation holds an image mark, which cannot be scored; remove it from the task")
        if room < 1:
            raise MedTasksError(f"a continuation of {tokens} tokens; max_length={self.arguments.max_length}")
        if cut > room:
            self._warn(len(ids))
        return Continuation(Encoded([*ids[:cut][:room], *ids[cut:]], self.prepared(images, self._pixels)), tokens)

    def image_spans(self, prompt: Encoded) -> Spans:
        """Return the images' slots; those of the first image with the marks before them, which need an image too."""
        first = self.tokenizer.vocabulary + 2  # after the two marks
        marked = [column for column, token in enumerate(prompt.ids) if token >= self.tokenizer.vocabulary]
        spans = []
        for number in range(0 if prompt.pixels is None else len(prompt.pixels)):
            own = range(first + number * self._latents, first + (number + 1) * self._latents)
            columns = [column for column in marked if prompt.ids[column] in own]
            start = min(marked if number == 0 else columns, default=0)
            spans.append((start, columns[-1] + 1) if columns else (0, 0))
        return spans

    def model_inputs(self, batch: PaddedBatch, before: PaddedBatch | None = None) -> dict[str, Any]:
        """Return embeddings; a slot's id counts from the prompt's first image, so all of its images are given."""
        features = self.cached_features((before or batch).pixels)
        return batch.inputs(inputs_embeds=self.network.embed(batch.ids, features))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text, without special tokens and, as in the published code, without unknown ones."""
        return self.tokenizer.decode([token for token in ids if token != _UNKNOWN_ID])

    def _ids(self, text: str, images: Sequence[Image.Image | Volume], reply: str = "") -> list[int]:
        """Return the ids of prompt and reply; the images' place depends on the prompt alone."""
        count = min(len(images), 1) if self.arguments.several_images == "slices" else len(images)
        placed = place_images(text, count, self._latents, self.arguments.image_position)
        return [FIRST_ID, *self.tokenizer.encode(placed + reply)]

    def _pixels(self, images: Sequence[Image.Image | Volume]) -> torch.Tensor:
        visuals = list(images)
        if self.arguments.several_images == "slices" and images:
            slices = [image for image in images if isinstance(image, Image.Image)]
            if len(slices) != len(images):
                raise MedTasksError("several_images=slices takes pictures; leave it out for prompts that hold volumes")
            visuals = [slices]
        seed = self.arguments.seed if self.arguments.crop == "random" else None
        volumes = [
            image_volume(visual, self._side, seed)
            if isinstance(visual, Image.Image)
            else read_volume(visual, self._side)
            for visual in visuals
        ]
        return stack_volumes(volumes, self._side)

    def _warn(self, length: int) -> None:
        if not self._warned:
            exceeds = f"a prompt of {length} positions exceeds {self.arguments.max_length}"
            logger.warning("radfm: {}, its end was cut off; further ones are not reported", exceeds)
        self._warned = True


def place_images(text: str, images: int, latents: int, position: str) -> str:
    """Write the blocks of slots into a text, in ``front`` of it or ``before_last_character``.

    Where the text holds ``<image>``, each one stands for the next image and is replaced by its block; where it holds
    blocks with slots already, it stays as it is. Marks that do not fit the images are a ``MedTasksError``.

    Example:
        >>> place_images("Is it?", 1, 2, "before_last_character")
        'Is it<image><image0><image1></image>?'
    """
    if images > MAX_IMAGES:
        raise MedTasksError(f"{images} images in one prompt; RadFM has slots for {MAX_IMAGES}")
    slots = [slot_token(number) for number in range(images * latents)]
    blocks = ["<image>" + "".join(slots[i : i + latents]) + "</image>" for i in range(0, len(slots), latents)]
    written = re.findall(r"<image\d+>", text)
    if written:
        if sorted(written) != sorted(slots):
            raise MedTasksError(f"the prompt's own image slots do not fit its {images} images of {latents} slots each")
        return text
    marks = text.count("<image>")
    if marks:
        if marks != images:
            raise MedTasksError(f"the prompt has {marks} marks <image> for {images} images; make them equally many")
        pieces = text.split("<image>")
        return pieces[0] + "".join(block + piece for block, piece in zip(blocks, pieces[1:], strict=True))
    place = max(len(text) - 1, 0) if position == "before_last_character" else 0
    return text[:place] + "".join(blocks) + text[place:]
