"""``radfm``: RadFM from the published weights, for images and volumes.

A prompt whose slots do not fit its images is refused, never repaired.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig

from medtasks.errors import MedTasksError, warn_once
from medtasks.prompts.messages import image_parts
from medtasks.version import ARCHITECTURES_NEED

from ..base.adapter import MedicalAdapter
from ..base.arguments import CheckpointArguments, argument
from ..base.batching import Continuation, Encoded, PaddedBatch, Spans, split_continuation
from ..base.checkpoints import (
    CheckpointError,
    SentencePieceText,
    check_device_map,
    fill,
    layer_numbers,
    on_meta,
    place,
    published_folder,
    read_json,
    refuse_missing,
    stored_tensors,
)
from ..base.requests import VOLUMES
from .network import (
    CHANNELS,
    CONTEXT,
    FRAMES_PER_PATCH,
    ImageEmbedding,
    RadFMNetwork,
    VisionTransformer3D,
    Volume,
    image_volume,
    read_volume,
)

ImagesAndVolumes = Sequence[Image.Image | Volume]
"""Visuals of a prompt, in the order of their marks."""
MAX_IMAGES = 100  # images that the published tokenizer has slots for
_LLAMA = "lang_model."
_VISION = "embedding_layer.vision_encoder."
_RESAMPLER = "embedding_layer.perceiver."
_WORDS = _LLAMA + "model.embed_tokens.weight"
_UNUSED = re.compile(
    r"embedding_layer\.(?:bert_model|bert_projection_fc|transformer_decoder(?:_mlp)?|cls_head|output_upscaling)\..*"
    r"|lang_model\.model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    re.DOTALL,
)
"""Text encoder and heads that only training and other tasks use, and rotary frequencies."""
_PUBLISHED_HEAD = 128
_DEPTHS = range(4, 65, 4)
_UNKNOWN_ID = 0


def load_network(
    weights: Path,
    config_folder: Path,
    dtype: torch.dtype,
    attention: str,
) -> RadFMNetwork:
    """Build the network with the sizes of the stored tensors, and fill it.

    Args:
        weights: File or folder of the published weights.
        config_folder: Folder that may hold LLaMA's ``config.json``.
        dtype: Type of the parameters; rotary frequencies stay float32.
        attention: ``attn_implementation`` of transformers.

    Raises:
        CheckpointError: A tensor is missing or does not fit.
    """
    shapes = {key: tuple(tensor.shape) for _, key, tensor in stored_tensors(weights)}
    sizes = _Sizes(weights, shapes)
    language = sizes.language(config_folder / "config.json", attention)
    patch_key = f"{_VISION}to_patch_embedding.1.weight"
    voxels = sizes.of(patch_key, axes=1)
    patch = math.isqrt(voxels // (FRAMES_PER_PATCH * CHANNELS))
    if patch**2 * FRAMES_PER_PATCH * CHANNELS != voxels:
        raise CheckpointError(
            f"{weights}: key '{patch_key}' has shape {shapes[patch_key]}, which is no square patch"
        )
    width = sizes.of(f"{_VISION}to_patch_embedding.2.weight")
    positions = f"{_VISION}pos_embedding."
    tower = {
        "patch": patch,
        "width": width,
        "rows": sizes.of(f"{positions}row_embed.weight"),
        "columns": sizes.of(f"{positions}col_embed.weight"),
        "frames": sizes.of(f"{positions}dep_embed.weight"),
        "inner": sizes.of(f"{_VISION}transformer.layers.0.1.fn.net.0.weight"),
        "layers": sizes.count(f"{_VISION}transformer.layers."),
    }
    resampler = {
        "width": width,
        "latents": sizes.of(f"{_RESAMPLER}latents"),
        "layers": sizes.count(f"{_RESAMPLER}layers."),
        "hidden": language.hidden_size,
    }
    network = on_meta(
        lambda: RadFMNetwork(
            language, ImageEmbedding(VisionTransformer3D(**tower), **resampler)
        )
    )
    names = dict(network.named_parameters())
    refuse_missing(weights, set(names) - set(shapes), "more keys")

    def rename(key: str) -> str | None:
        """Return the name of the parameter for a stored key, None for one that inference does not use."""
        if _UNUSED.fullmatch(key):
            return None
        name = _WORDS if key == "embedding_layer.weight" else key
        if name not in names:
            raise KeyError(key)
        return name

    fill(network, weights, rename, dtype)
    return network


@dataclass(frozen=True)
class _Sizes:
    """Sizes of the network, as its stored tensors have them."""

    weights: Path
    shapes: Mapping[str, tuple[int, ...]]

    def of(
        self,
        key: str,
        axis: int = 0,
        axes: int = 2,
    ) -> int:
        """Return the size of a stored tensor along an axis.

        Raises:
            CheckpointError: The tensor is missing or has another number of axes.
        """
        if key not in self.shapes:
            raise CheckpointError(
                f"{self.weights} lacks '{key}'; is this RadFM's checkpoint, and complete?"
            )
        if len(self.shapes[key]) != axes:
            raise CheckpointError(
                f"{self.weights}: key '{key}' has shape {self.shapes[key]}; is this another model's checkpoint?"
            )
        return self.shapes[key][axis]

    def count(self, prefix: str) -> int:
        """Return the number of layers, whose numbers follow a prefix in the keys of tensors."""
        return max(layer_numbers(prefix, self.shapes), default=-1) + 1

    def language(self, config: Path, attention: str) -> LlamaConfig:
        """Return LLaMA's configuration. The width of a head is that of the rotary frequencies, or as published.

        Args:
            config: LLaMA's ``config.json``, which need not exist.
            attention: ``attn_implementation`` of transformers.

        Raises:
            CheckpointError: The file has another number of layers, or the width does not fit the heads.
        """
        hidden = self.of(_WORDS, axis=1)
        layers = self.count(f"{_LLAMA}model.layers.")
        stored = read_json(config, "") if config.is_file() else {}
        named = stored.get("num_hidden_layers", layers)
        if named != layers:
            raise CheckpointError(
                f"{config} has num_hidden_layers {named}, the weights have {layers}; which is damaged?"
            )
        frequencies = self.shapes.get(
            f"{_LLAMA}model.layers.0.self_attn.rotary_emb.inv_freq", ()
        )
        head = max(1, 2 * frequencies[0]) if frequencies else _PUBLISHED_HEAD
        if hidden % head:
            raise CheckpointError(
                f"{self.weights}: width {hidden} is no multiple of the attention heads' {head}; download it again"
            )
        return LlamaConfig(
            vocab_size=self.of(_WORDS),
            hidden_size=hidden,
            intermediate_size=self.of(f"{_LLAMA}model.layers.0.mlp.gate_proj.weight"),
            num_hidden_layers=layers,
            num_attention_heads=hidden // head,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=False,
            # The model was trained with these special ids; the published ``config.json`` names others.
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            attn_implementation=attention,
        )


@dataclass(frozen=True)
class RadFMArguments(CheckpointArguments):
    """The arguments of RadFM, see ``model_adapters/README.md``."""

    pretrained: str = argument("chaoyi-wu/RadFM")
    image_position: str = argument("front", choices=("front", "before_last_character"))
    several_images: str = argument("separate", choices=("separate", "slices"))
    crop: str = argument("none", choices=("none", "random"))
    # longest prompt in positions, image slots included; the end of a longer one is cut off, as by the published code
    max_length: int = argument(CONTEXT, least=2, most=CONTEXT)
    attn_implementation: str = argument("sdpa", choices=("sdpa", "eager", "flash_attention_2"))
    # length limit of a reply where the task sets none, in tokens
    max_new_tokens: int = argument(200, least=1)


class RadFM(MedicalAdapter):
    """RadFM, in which every image, of any depth, becomes 32 embeddings between two marks in the text."""

    model_id = "radfm"
    arguments_type = RadFMArguments
    least_versions = ARCHITECTURES_NEED
    visual_types = VOLUMES
    arguments: RadFMArguments
    tokenizer: SentencePieceText
    pad_id = _UNKNOWN_ID
    stop_ids = (2, 1)  # end of sequence, and the end that the published configuration names

    def load(self) -> None:
        """Read weights and tokenizer.

        Raises:
            CheckpointError: A file is missing, damaged or of another model.
            AdapterArgumentError: The device map does not fit.
        """
        arguments = self.arguments
        check_device_map(arguments.device_map, self.device, self.world_size, self.model_id)
        weights = Path(arguments.pretrained).expanduser()
        if not weights.exists():
            try:
                weights = published_folder(arguments.pretrained, "pretrained")
            except CheckpointError as error:
                raise CheckpointError(
                    f"{error}; the published RadFM is a split archive, to be joined first: "
                    f"`cat RadFM.z* > joined.zip && unzip joined.zip`"
                ) from error
        texts = weights if weights.is_dir() else weights.parent
        texts = texts if (texts / "tokenizer.model").is_file() else texts / "Language_files"
        network = load_network(
            weights,
            texts,
            getattr(torch, arguments.dtype),
            arguments.attn_implementation,
        )
        self.network = place(
            network, network.lang_model, self.device, arguments.device_map, self.model_id
        )
        vocabulary = network.lang_model.config.vocab_size
        self._latents = len(network.embedding_layer.perceiver.latents)
        self._side = network.embedding_layer.vision_encoder.side
        # The marks around an image, and the slots, numbered through all images.
        slots = [f"<image{number}>" for number in range(MAX_IMAGES * self._latents)]
        names = ["<image>", "</image>", *slots]
        added = {name: number for number, name in enumerate(names, vocabulary)}
        self.tokenizer = SentencePieceText(
            texts / "tokenizer.model", added, strip_around_added=True
        )
        if self.tokenizer.vocabulary != vocabulary:
            raise CheckpointError(
                f"{texts / 'tokenizer.model'} has {self.tokenizer.vocabulary} pieces, '{_WORDS}' has {vocabulary} "
                f"rows; put the tokenizer of this checkpoint there"
            )

    def encode(
        self,
        text: str,
        images: ImagesAndVolumes,
        reply: str = "",
    ) -> Encoded:
        """Put the images' slots into the text and preprocess the images.

        Args:
            text: Prompt of the task, which may mark the places of its images.
            images: Images or volumes, in the order of their marks. Without any, RadFM expects one black volume without
                slots.
            reply: Text to score after the prompt.

        Returns:
            Pixels have the shape (images, 3, side, side, depth), values 0 to 1.

        Raises:
            MedTasksError: An image mark fits no image, or a volume cannot be read.
        """
        ids = self._ids(text, images, reply)
        return Encoded(ids[: self.arguments.max_length], self.prepared(images, self._pixels))

    def encode_pair(
        self,
        context: str,
        continuation: str,
        images: ImagesAndVolumes,
    ) -> Continuation:
        """Encode prompt and continuation.

        Args:
            context: Prompt of the task. The end of too long a one is cut off.
            continuation: Text to score.
            images: Images or volumes, in the order of their marks.

        Raises:
            MedTasksError: The continuation is too long, or holds an image mark.
        """
        ids = self._ids(context, images, continuation)
        prompt = Encoded(self._ids(context, images), None)
        tokens = split_continuation(prompt, Encoded(ids, None)).tokens
        before = ids[:-tokens]
        targets = ids[-tokens:]
        if max(targets) >= self.tokenizer.vocabulary:
            raise MedTasksError(
                "a continuation holds an image mark, which cannot be scored; remove it from the task"
            )
        room = self.arguments.max_length - tokens
        if room < 1:
            raise MedTasksError(
                f"a continuation of {tokens} tokens; max_length={self.arguments.max_length}"
            )
        pixels = self.prepared(images, self._pixels)
        return Continuation(Encoded(before[:room] + targets, pixels), tokens)

    def image_spans(self, prompt: Encoded) -> Spans:
        """Return the columns of the images' slots, those of the first image with the marks before them."""
        vocabulary = self.tokenizer.vocabulary
        marked = [column for column, token in enumerate(prompt.ids) if token >= vocabulary]
        count = 0 if prompt.pixels is None else len(prompt.pixels)
        spans = []
        for number in range(count):
            first = vocabulary + 2 + number * self._latents  # after the two marks
            slots = range(first, first + self._latents)
            columns = [column for column in marked if prompt.ids[column] in slots]
            if not columns:
                spans.append((0, 0))
                continue
            start = marked[0] if number == 0 else columns[0]
            spans.append((start, columns[-1] + 1))
        return spans

    def model_inputs(
        self, batch: PaddedBatch, before: PaddedBatch | None = None
    ) -> dict[str, Any]:
        """Return embeddings, with all images of each prompt, because a slot's id counts from the first one."""
        features = self.cached_features(before or batch)
        return batch.inputs(inputs_embeds=self.network.embed(batch.ids, features))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text without special tokens and, as in the published code, without unknown ones."""
        return self.tokenizer.decode(ids)

    def _ids(
        self,
        text: str,
        images: ImagesAndVolumes,
        reply: str = "",
    ) -> list[int]:
        """Return the ids of prompt and reply. The images' place depends on the prompt alone."""
        count = len(images)
        if self.arguments.several_images == "slices":
            count = min(count, 1)
        placed = place_images(text, count, self._latents, self.arguments.image_position)
        ids = [1, *self.tokenizer.encode(placed + reply)]  # after the begin of sequence
        if len(ids) > self.arguments.max_length:
            warn_once(
                f"radfm: the end of prompts longer than max_length={self.arguments.max_length} is cut off"
            )
        return ids

    def _pixels(self, images: ImagesAndVolumes) -> Tensor:
        """Resize all images of a prompt by the nearest voxel: shape (images, 3, side, side, depth).

        Of 4, 8, ..., 64, the depth is the one closest to the deepest image, the smaller of two that are equally close;
        a flat image counts as one slice. Without images it is one black volume, as in RadFM's training on text alone.
        """
        side = self._side
        volumes = self._volumes(images)
        if not volumes:
            return torch.zeros(1, CHANNELS, side, side, _DEPTHS[0])
        deepest = max(volume.shape[-1] for volume in volumes)
        size = (side, side, min(_DEPTHS, key=lambda depth: abs(depth - deepest)))
        if all(volume.shape[1:] == (side, side, 1) for volume in volumes):
            # The nearest of one slice is that slice.
            return torch.stack(volumes).expand(-1, -1, -1, -1, size[-1])
        resized = []
        for volume in volumes:
            resized.append(functional.interpolate(volume[None], size=size, mode="nearest"))
        return torch.cat(resized)

    def _volumes(self, images: ImagesAndVolumes) -> list[Tensor]:
        """Return each image or volume as voxels, or all images as the slices of one volume.

        Raises:
            MedTasksError: A volume cannot be read, or is among images that are slices.
        """
        visuals = list(images)
        if self.arguments.several_images == "slices" and images:
            slices = [image for image in images if isinstance(image, Image.Image)]
            if len(slices) != len(images):
                raise MedTasksError(
                    "several_images=slices takes images; leave it out for prompts that hold volumes"
                )
            visuals = [slices]
        seed = self.arguments.seed if self.arguments.crop == "random" else None
        volumes = []
        for visual in visuals:
            if isinstance(visual, Image.Image):
                volumes.append(image_volume(visual, self._side, seed))
            else:
                volumes.append(read_volume(visual, self._side))
        return volumes


def place_images(
    text: str,
    images: int,
    latents: int,
    position: str,
) -> str:
    """Write the blocks of slots into a text.

    Args:
        text: Prompt. Each ``<image>`` in it is replaced by the block of the next image; a text with slots stays as it
            is.
        images: Number of images.
        latents: Number of slots per image.
        position: Where a text without marks gets the blocks: ``front`` or ``before_last_character``.

    Raises:
        MedTasksError: Marks do not fit the images, or there are too many images.

    Example:
        >>> place_images("Normal?", 1, 2, "front")
        '<image><image0><image1></image>Normal?'
    """
    if images > MAX_IMAGES:
        raise MedTasksError(f"{images} images in one prompt; RadFM has slots for {MAX_IMAGES}")
    slots = [f"<image{number}>" for number in range(images * latents)]
    blocks = []
    for first in range(0, len(slots), latents):
        blocks.append(f"<image>{''.join(slots[first : first + latents])}</image>")
    written = re.findall(r"<image\d+>", text)
    if written:
        if sorted(written) != sorted(slots):
            raise MedTasksError(
                f"the prompt's own image slots do not fit its {images} images of {latents} slots each"
            )
        return text
    if "<image>" in text:
        remaining = iter(blocks)
        parts = image_parts(text, images, "<image>")
        return "".join(next(remaining) if part is None else part for part in parts)
    start = max(len(text) - 1, 0) if position == "before_last_character" else 0
    return text[:start] + "".join(blocks) + text[start:]
