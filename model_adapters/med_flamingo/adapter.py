"""``med_flamingo``: Med-Flamingo 9B (Moor et al. 2023), images by cross-attention into LLaMA-7B."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast, get_args

from PIL import Image

from medtasks.errors import MedTasksError

from ..base.adapter import MedicalAdapter
from ..base.arguments import AdapterArguments, CheckpointArguments, argument
from ..base.batching import Encoded, PaddedBatch, Spans
from ..base.device import check_device_map, place
from ..checkpoints.reading import SentencePieceText, published_folder
from ..checkpoints.vision import clip_batch
from .checkpoint import load_network, locate_weights, read_llama_config
from .network import MedFlamingoNetwork, MediaAttention, stack_media, text_time

END_OF_CHUNK, IMAGE, PAD = "<|endofchunk|>", "<image>", "<PAD>"
STOP_STRINGS = (END_OF_CHUNK, "|endofchunk|>", IMAGE, "\nQuestion:")
"""The model cannot say its end marker, whose output row was never
trained, and goes on with another example. The second is how MediConfusion's prompts misspell it."""
_UNKNOWN_ID, _END_ID = 0, 2


@dataclass(frozen=True)
class MedFlamingoArguments(CheckpointArguments):
    """The arguments of Med-Flamingo, see ``README.md``."""

    pretrained: str = argument("med-flamingo/med-flamingo")  # ``model.pt``, its folder, or a hub id
    llama: str = argument("yahma/llama-7b-hf")  # LLaMA-7B v1: folder in transformers' layout, or a hub id
    clip: str = argument("openai/clip-vit-large-patch14")
    media_attention: str = argument("preceding", choices=get_args(MediaAttention))
    vision_post_norm: bool = argument(False)
    bos_id: int = argument(1, least=0, most=1)
    max_new_tokens: int = argument(32, least=1)  # length limit of a reply where the task sets none, in tokens


class MedFlamingo(MedicalAdapter):
    """Few-shot model: the prompt holds one ``<image>`` per image, demonstrations first."""

    model_id: ClassVar[str] = "med_flamingo"
    arguments_type: ClassVar[type[AdapterArguments]] = MedFlamingoArguments
    arguments: MedFlamingoArguments
    stop_strings = STOP_STRINGS
    network: MedFlamingoNetwork

    def load(self) -> None:
        """Read tokenizer and weights."""
        given = self.arguments
        check_device_map(given.device_map, self.device, self.accelerator.num_processes, self.model_id)
        llama, clip = published_folder(given.llama, "llama"), published_folder(given.clip, "clip")
        vocabulary = read_llama_config(llama).vocab_size
        self._markers = {text: vocabulary + place for place, text in enumerate((END_OF_CHUNK, IMAGE, PAD))}
        self.pad_id, self.stop_ids = self._markers[PAD], (_END_ID, self._markers[END_OF_CHUNK])
        self._text = SentencePieceText(llama / "tokenizer.model", self._markers)
        if self._text.vocabulary != vocabulary:
            raise MedTasksError(
                f"{llama / 'tokenizer.model'} has {self._text.vocabulary} pieces, but config.json beside it says "
                f"vocab_size {vocabulary}; put LLaMA's own tokenizer.model there"
            )
        weights = locate_weights(given.pretrained)
        self._mode = cast(MediaAttention, given.media_attention)
        network = load_network(weights, llama, clip, given.torch_dtype, self._mode, given.vision_post_norm)
        self.network = place(network, network.language_model, self.device, given.device_map, self.model_id)

    def encode(self, text: str, images: Sequence[Image.Image], reply: str = "") -> Encoded:
        """Put one ``<image>`` into the text per image; those that the text lacks come first.

        More markers than images, a marker in the reply, for which the model has no probability, or a text longer than
        the model's context, are a ``MedTasksError``.
        """
        for marker in self._markers:
            if marker in reply:
                raise MedTasksError(f"the continuation holds '{marker}', which the model cannot say")
        missing = len(images) - text.count(IMAGE)
        if missing < 0:
            raise MedTasksError(
                f"the prompt has more {IMAGE} markers ({text.count(IMAGE)}) than there are images ({len(images)})"
            )
        ids = [self.arguments.bos_id, *self._text.encode(IMAGE * missing + text + reply)]
        limit = self.language_model.config.max_position_embeddings
        if len(ids) > limit:
            raise MedTasksError(f"the prompt has {len(ids)} tokens; the model was trained on at most {limit}")
        size = self.network.vision.config.image_size
        return Encoded(ids, self.prepared(images, partial(clip_batch, size=size, pad=False, crop_rounding="round")))

    def image_spans(self, prompt: Encoded) -> Spans:
        """Return the markers; where text looks at the following image, each with the text between it and the last."""
        marker = self._markers[IMAGE]
        ends = [column + 1 for column, token in enumerate(prompt.ids) if token == marker]
        if self._mode == "following":
            return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []
        return [(end - 1, end) for end in ends]

    def model_inputs(self, batch: PaddedBatch, before: PaddedBatch | None = None) -> dict[str, Any]:
        """Return ids, latents of the prompts' images, and which image every position of the prompts looks at.

        Text may look at an image before it; the language model sees from the cache where the ids stand.
        """
        prompts = before or batch
        media = stack_media(self.cached_features(prompts.pixels))
        times = text_time(prompts.ids, prompts.attention_mask, self._markers[IMAGE], self._mode)
        return batch.inputs(input_ids=batch.ids, media=media, text_time=times)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text without markers and without the unknown piece, which the official demo removes too."""
        return self._text.decode([token for token in ids if token != _UNKNOWN_ID])
