"""``med_flamingo``: Med-Flamingo 9B (Moor et al. 2023), images by cross-attention into LLaMA-7B.

CLIP patch tokens, resampler, and LLaMA with gated cross-attention blocks between its layers, see Alayrac et al. 2022
(Flamingo), sections 2.1 to 2.3. Trained tensors are in one file, LLaMA-7B and CLIP ViT-L/14 in their own folders. Key
names are those of open_flamingo 0.0.2; see the issues 187 and 204 of that project for public listings.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from huggingface_hub import hf_hub_download
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

from medtasks.errors import MedTasksError
from medtasks.version import ARCHITECTURES_NEED

from .base.adapter import MedicalAdapter
from .base.arguments import CheckpointArguments, argument
from .base.batching import KV_CACHE, Encoded, PaddedBatch, Spans
from .base.checkpoints import (
    HUB_ID,
    CheckpointError,
    SentencePieceText,
    by_patterns,
    check_device_map,
    fill,
    from_hub,
    layer_numbers,
    on_meta,
    place,
    published_folder,
    read_json,
    stored_tensors,
)
from .base.vision import (
    TOWER_KEYS,
    CrossAttention,
    PerceiverResampler,
    clip_batch,
    feed_forward,
    tower_config,
)

MARKERS = 3
"""Tokens added after LLaMA's vocabulary: ``<|endofchunk|>``, ``<image>``, ``<PAD>``, in this order."""
END_OF_CHUNK, IMAGE, PAD = "<|endofchunk|>", "<image>", "<PAD>"
STOP_STRINGS = (END_OF_CHUNK, "|endofchunk|>", IMAGE, "\nQuestion:")
"""The end marker's output row was never trained, so that the model continues with another example. The second string is
its misspelling in MediConfusion's prompts."""
_END_ID = 2
WEIGHTS_FILE = "model.pt"
_BLOCKS = "lang_encoder.gated_cross_attn_layers"
# Every block is stored in the list of blocks and again under the layer that follows it.
_BLOCK_KEY = re.compile(
    r"lang_encoder\.(?:gated_cross_attn_layers\.(\d+)|model\.layers\.(\d+)\.gated_cross_attn_layer)\.(.+)"
)
_LLAMA_LAYER = (
    r"(?:self_attn\.(?:[qkvo]_proj\.weight|rotary_emb\.inv_freq)|mlp\.(?:gate|up|down)_proj\.weight"
    r"|(?:input|post_attention)_layernorm\.weight)"
)
# Parts that were frozen in training, which only full dumps hold; they come from LLaMA and CLIP.
_FROZEN = (
    r"vision_encoder\..+|lang_encoder\.(?:lm_head|model\.norm)\.weight|lang_encoder\.model\.rotary_emb\.inv_freq"
    rf"|lang_encoder\.(?:model\.layers\.\d+\.decoder_layer|old_decoder_blocks\.\d+)\.{_LLAMA_LAYER}"
)
# LLaMA's word embedding is replaced by the trained one.
_LLAMA_KEYS = (
    r"model\.embed_tokens\.weight|model\.(?:layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
    rf"lm_head\.weight|model\.norm\.weight|model\.layers\.\d+\.{_LLAMA_LAYER}",
)
_LLAMA_SHAPE = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "rms_norm_eps",
    "num_key_value_heads",
    "max_position_embeddings",
    "rope_theta",
    "rope_parameters",
    "rope_scaling",
)


def text_time(
    ids: Tensor,
    real: Tensor,
    image_id: int,
    mode: str,
) -> Tensor:
    """Return the number of the image that each position may look at, from 1 in its row; 0 for none and on padding.

    The marker ``<image>`` looks at its own image.

    Args:
        ids: Shape (batch, length), which is the shape of the result, too.
        real: 0 on padding, shape of ``ids``.
        image_id: Id of the marker.
        mode: Under ``preceding`` (open_flamingo 2.0) text looks at the latest image before it, under ``following``
            (open_flamingo 0.0.2) at the next one after it, or at none after the last image.

    Example:
        >>> ids = torch.tensor([[5, 9, 5, 9, 5]])
        >>> [text_time(ids, ids > 0, 9, mode).tolist() for mode in ("preceding", "following")]
        [[[0, 1, 1, 2, 2]], [[1, 1, 2, 2, 0]]]
    """
    is_real = real.bool()
    markers = (ids == image_id) & is_real
    times = markers.cumsum(-1)
    if mode == "following":
        has_next = times < times[:, -1:]
        times = torch.where(markers, times, torch.where(has_next, times + 1, 0))
    return times * is_real


class GatedCrossAttention(nn.Module):
    """Block in front of a LLaMA layer.

    A position without an image still passes through its feed-forward part. ``view`` is set during a pass: all latents
    of each row, or ``None`` without any image, and where a position may look at a latent, shape (batch, length, all
    latents).
    """

    view: tuple[Tensor | None, Tensor] | None = None

    def __init__(self, dim: int, media_dim: int) -> None:
        super().__init__()
        self.attn = CrossAttention(dim, media_dim)
        self.attn.add_module("norm", nn.LayerNorm(dim))
        self.attn_gate = nn.Parameter(torch.empty(1))
        self.ff = feed_forward(dim)
        self.ff_gate = nn.Parameter(torch.empty(1))

    def forward(
        self,
        hidden: Tensor,
        latents: Tensor | None,
        visible: Tensor,
    ) -> Tensor:
        """Return the new hidden states.

        Args:
            hidden: Shape (batch, length, dim).
            latents: All latents of each row; ``None`` without any image.
            visible: Where a position may look at a latent, shape (batch, length, all latents).
        """
        if latents is not None:
            has_image = visible.any(-1, keepdim=True)
            # Softmax over nothing is NaN: positions without an image look at everything, and their result is dropped.
            mask = (visible | ~has_image)[:, None]
            normed = self.attn.get_submodule("norm")(hidden)
            attended = self.attn.head_outputs(normed, latents, mask).masked_fill(~has_image, 0)
            hidden = hidden + self.attn.to_out(attended) * self.attn_gate.tanh()
        changed: Tensor = hidden + self.ff(hidden) * self.ff_gate.tanh()
        return changed


class _Head(nn.Linear):
    """Output matrix without rows for the markers, whose logits are minus infinity: they are never generated."""

    def forward(self, hidden: Tensor) -> Tensor:
        return functional.pad(super().forward(hidden), (0, MARKERS), value=-torch.inf)


def _run_block(
    block: GatedCrossAttention,
    layer: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any]:
    """Run a block before a layer.

    It is a hook that does not refer to the model, so that the model can be freed.

    Raises:
        RuntimeError: The layer runs outside of its language model, which gives the block its view.
    """
    if block.view is None:
        raise RuntimeError("the layers of Med-Flamingo run only inside its language model")
    if args:
        return (block(args[0], *block.view), *args[1:]), kwargs
    return args, kwargs | {"hidden_states": block(kwargs["hidden_states"], *block.view)}


class MedFlamingoLanguageModel(LlamaForCausalLM):  # type: ignore[misc]  # transformers is not analysed
    """LLaMA that is also given media, ``media_dim`` wide.

    Some ``layers``, counted from 0, have a block in front. LLaMA's ``vocab_size`` does not count the markers. For the
    mode see :func:`text_time`.
    """

    _no_split_modules: ClassVar[list[str]] = ["LlamaDecoderLayer", "GatedCrossAttention"]

    def __init__(
        self,
        config: LlamaConfig,
        layers: Iterable[int],
        media_dim: int,
        mode: str,
    ) -> None:
        super().__init__(config)
        self.mode = mode
        self.model.embed_tokens = nn.Embedding(config.vocab_size + MARKERS, config.hidden_size)
        self.lm_head = _Head(config.hidden_size, config.vocab_size, bias=False)
        self._blocks: list[GatedCrossAttention] = []
        self.gated_cross_attn_layers = nn.ModuleDict()
        for layer in layers:
            block = GatedCrossAttention(config.hidden_size, media_dim)
            self._blocks.append(block)
            self.gated_cross_attn_layers[str(layer)] = block
            self.model.layers[layer].register_forward_pre_hook(
                partial(_run_block, block), with_kwargs=True
            )

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        logits_to_keep: int | Tensor = 0,
        media: Tensor | None = None,
        text_time: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run LLaMA with the blocks.

        Args:
            input_ids: Shape (batch, length): columns after those in the cache.
            attention_mask: As in LLaMA.
            position_ids: As in LLaMA.
            logits_to_keep: As in LLaMA.
            media: Latents, shape (batch, images, latents, media_dim); rows with fewer images are padded.
            text_time: Result of :func:`text_time` for the whole prompt: the size of the cache shows where ``input_ids``
                begin. ``None``: no position has an image.
            **kwargs: As in LLaMA.
        """
        times = torch.zeros_like(input_ids)
        if text_time is not None:
            cached = kwargs.get(KV_CACHE)
            start = cached.get_seq_length() if cached is not None else 0
            end = start + input_ids.shape[1]
            # A reply looks at the last image, or at none.
            last = text_time[:, -1:]
            if self.mode == "following":
                last = torch.zeros_like(last)
            reply = last.expand(-1, max(end - text_time.shape[1], 0))
            times = torch.cat((text_time, reply), dim=1)[:, start:end]
        images, latents = (0, 0) if media is None else media.shape[1:3]
        numbers = torch.arange(1, images + 1, device=times.device)
        visible = (times[..., None] == numbers).repeat_interleave(latents, dim=-1)
        flat = None if media is None else media.flatten(1, 2)
        for block in self._blocks:
            block.view = flat, visible
        try:
            return super().forward(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                logits_to_keep=logits_to_keep,
                **kwargs,
            )
        finally:
            for block in self._blocks:
                block.view = None


class MedFlamingoNetwork(nn.Module):
    """The whole model, without weights.

    ``layers`` and ``mode`` are those of :class:`MedFlamingoLanguageModel`. With ``post_norm`` patch tokens pass through
    CLIP's last layer norm, as under open_clip 2.23 and newer; the model was trained without.
    """

    def __init__(
        self,
        vision: CLIPVisionConfig,
        language: LlamaConfig,
        layers: Iterable[int],
        latents: int,
        depth: int,
        mode: str,
        post_norm: bool,
    ) -> None:
        super().__init__()
        self.post_norm = post_norm
        self.vision = CLIPVisionModel(vision)
        self.perceiver = PerceiverResampler(vision.hidden_size, latents, depth)
        self.language_model = MedFlamingoLanguageModel(
            language, layers, vision.hidden_size, mode
        )

    def image_features(self, pixels: Tensor) -> Tensor:
        """Return the latents of images, shape (images, latents, width).

        Args:
            pixels: Shape (images, 3, size, size).
        """
        # The class token is left out; the last hidden state has not passed the tower's last norm.
        tokens = self.vision(pixels.to(self.perceiver.latents)).last_hidden_state[:, 1:]
        if self.post_norm:
            tokens = self.vision.post_layernorm(tokens)
        resampled: Tensor = self.perceiver(tokens)
        return resampled


# ---- checkpoints ----


def canonical_key(key: str) -> str:
    """Return a stored key in the one spelling used here: no ``module.``, blocks under the list of blocks.

    Example:
        >>> canonical_key("module.lang_encoder.model.layers.3.gated_cross_attn_layer.ff_gate")
        'lang_encoder.gated_cross_attn_layers.3.ff_gate'
    """
    plain = key.removeprefix("module.")
    match = _BLOCK_KEY.fullmatch(plain)
    return f"{_BLOCKS}.{match[1] or match[2]}.{match[3]}" if match else plain


def _read_config(folder: Path, kinds: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the configuration of a model in a folder.

    Args:
        folder: Folder of the model.
        kinds: Values of ``model_type`` that are allowed; messages name the first.

    Raises:
        CheckpointError: The file is missing, damaged or of another kind of model.
    """
    file = folder / "config.json"
    stored = read_json(file, f"give the folder of the downloaded {kinds[0]} model")
    if (kind := stored.get("model_type")) not in kinds:
        raise CheckpointError(
            f"{file}: model_type is '{kind}', expected '{kinds[0]}'; give another folder"
        )
    return stored


def load_network(
    language: LlamaConfig,
    weights: Path,
    llama: Path,
    clip: Path,
    dtype: torch.dtype,
    mode: str,
    post_norm: bool,
) -> MedFlamingoNetwork:
    """Build the network and fill every parameter.

    Args:
        language: Sizes of LLaMA-7B.
        weights: File with the trained tensors.
        llama: Folder of LLaMA-7B, in transformers' layout.
        clip: Folder of CLIP ViT-L/14, in transformers' layout.
        dtype: Type of all parameters.
        mode: See :func:`text_time`.
        post_norm: See :class:`MedFlamingoNetwork`.

    Raises:
        CheckpointError: A file is missing, damaged or of another model.
    """
    vision = tower_config(_read_config(clip, ("clip", "clip_vision_model")))
    if vision.hidden_act != "quick_gelu":
        raise CheckpointError(
            f"{clip / 'config.json'}: hidden_act is '{vision.hidden_act}', but Med-Flamingo was trained on OpenAI's "
            f"CLIP with 'quick_gelu'; give openai/clip-vit-large-patch14"
        )
    layers, latents, depth = _trained_sizes(weights, language.num_hidden_layers)
    network = on_meta(
        lambda: MedFlamingoNetwork(vision, language, layers, latents, depth, mode, post_norm)
    )
    model = network.language_model
    # Trees with the parameter names of the files, for messages.
    words = nn.ModuleDict({"embed_tokens": model.model.embed_tokens})
    blocks = model.gated_cross_attn_layers
    encoder = nn.ModuleDict({"model": words, "gated_cross_attn_layers": blocks})
    tree = nn.ModuleDict({"perceiver": network.perceiver, "lang_encoder": encoder})
    trained = (
        rf"lang_encoder\.model\.embed_tokens\.weight|perceiver\..+|{re.escape(_BLOCKS)}\..+"
    )
    rename = by_patterns(_FROZEN, trained)
    fill(tree, weights, lambda key: rename(canonical_key(key)), dtype)
    decoder = nn.ModuleDict({"layers": model.model.layers, "norm": model.model.norm})
    llama_tree = nn.ModuleDict({"model": decoder, "lm_head": model.lm_head})
    fill(llama_tree, llama, by_patterns(*_LLAMA_KEYS), dtype)
    clip_tree = nn.ModuleDict({"vision_model": network.vision})
    fill(clip_tree, clip, by_patterns(*TOWER_KEYS, r"vision_model.\1"), dtype)
    return network


def _trained_sizes(weights: Path, total: int) -> tuple[range, int, int]:
    """Return the sizes that only the trained tensors show: layers with a block, latents, depth of the resampler.

    Of LLaMA's ``total`` layers every n-th has a block.

    Raises:
        CheckpointError: Blocks or latents are missing.
    """
    shapes = {
        canonical_key(key): tuple(tensor.shape) for _, key, tensor in stored_tensors(weights)
    }
    before = layer_numbers(f"{_BLOCKS}.", shapes)
    levels = layer_numbers("perceiver.layers.", shapes)
    if not before or min(before) >= total:
        raise CheckpointError(
            f"{weights} lacks '{_BLOCKS}.N' for N below LLaMA's {total} layers; is it Med-Flamingo's?"
        )
    if len(shapes.get("perceiver.latents", ())) != 2:
        raise CheckpointError(
            f"{weights} lacks 'perceiver.latents' of shape (latents, width); is it Med-Flamingo's?"
        )
    every = min(before) + 1
    depth = 0
    while depth in levels:
        depth += 1
    if total == 32:  # LLaMA-7B's, for which the published model has these sizes
        every = 4
        depth = 6
    return range(every - 1, total, every), shapes["perceiver.latents"][0], depth


@dataclass(frozen=True)
class MedFlamingoArguments(CheckpointArguments):
    """The arguments of Med-Flamingo, see ``model_adapters/README.md``."""

    # ``model.pt``, its folder, or a hub id
    pretrained: str = argument("med-flamingo/med-flamingo")
    # LLaMA-7B v1: folder in transformers' layout, or a hub id
    llama: str = argument("yahma/llama-7b-hf")
    clip: str = argument("openai/clip-vit-large-patch14")
    media_attention: str = argument("preceding", choices=("preceding", "following"))
    vision_post_norm: bool = argument(False)
    bos_id: int = argument(1, least=0, most=1)
    # length limit of a reply where the task sets none, in tokens
    max_new_tokens: int = argument(32, least=1)


def _weights_file(name: str) -> Path:
    """Return ``model.pt``, which a file, a folder or a hub id names.

    Raises:
        CheckpointError: There is no such file, or the download failed.
    """
    path = Path(name).expanduser()
    if not path.exists() and HUB_ID.fullmatch(name):
        fetch = partial(hf_hub_download, name, WEIGHTS_FILE)
        return from_hub(fetch, name, "file", f"its {WEIGHTS_FILE}", "pretrained")
    if path.is_dir():
        path = path / WEIGHTS_FILE
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing; give pretrained=<{WEIGHTS_FILE}, its folder or a hub id>"
        )
    return path


class MedFlamingo(MedicalAdapter):
    """Few-shot model: the prompt holds one ``<image>`` per image, demonstrations first."""

    model_id = "med_flamingo"
    arguments_type = MedFlamingoArguments
    least_versions = ARCHITECTURES_NEED
    arguments: MedFlamingoArguments
    stop_strings = STOP_STRINGS
    network: MedFlamingoNetwork

    def load(self) -> None:
        """Read tokenizer and weights.

        Raises:
            CheckpointError: A file is missing, damaged or of another model.
            MedTasksError: The tokenizer is not that of the model.
        """
        arguments = self.arguments
        check_device_map(arguments.device_map, self.device, self.world_size, self.model_id)
        llama = published_folder(arguments.llama, "llama")
        clip = published_folder(arguments.clip, "clip")
        # LLaMA's sizes only: token ids in published configurations are partly wrong.
        stored = _read_config(llama, ("llama",))
        shape = {key: stored[key] for key in _LLAMA_SHAPE if stored.get(key) is not None}
        language = LlamaConfig(**shape, tie_word_embeddings=False, attn_implementation="sdpa")
        vocabulary = language.vocab_size
        markers = (END_OF_CHUNK, IMAGE, PAD)
        self._markers = {text: number for number, text in enumerate(markers, vocabulary)}
        self.pad_id = self._markers[PAD]
        self.stop_ids = (_END_ID, self._markers[END_OF_CHUNK])
        self._text = SentencePieceText(llama / "tokenizer.model", self._markers)
        if self._text.vocabulary != vocabulary:
            raise MedTasksError(
                f"{llama / 'tokenizer.model'} has {self._text.vocabulary} pieces, but config.json next to it has "
                f"vocab_size {vocabulary}; put LLaMA's own tokenizer.model there"
            )
        weights = _weights_file(arguments.pretrained)
        self._mode = arguments.media_attention
        network = load_network(
            language,
            weights,
            llama,
            clip,
            getattr(torch, arguments.dtype),
            self._mode,
            arguments.vision_post_norm,
        )
        self.network = place(
            network, network.language_model, self.device, arguments.device_map, self.model_id
        )

    def encode(
        self,
        text: str,
        images: Sequence[Image.Image],
        reply: str = "",
    ) -> Encoded:
        """Put one ``<image>`` into the text per image.

        Args:
            text: Prompt of the task. Markers that it lacks come first.
            images: In the order of the markers.
            reply: Text to score, without markers.

        Raises:
            MedTasksError: There are more markers than images, a marker is in the reply, or the text is longer than the
                model's context.
        """
        for marker in self._markers:
            if marker in reply:
                raise MedTasksError(
                    f"the continuation holds '{marker}', which the model cannot generate"
                )
        missing = len(images) - text.count(IMAGE)
        if missing < 0:
            raise MedTasksError(
                f"the prompt has more {IMAGE} markers ({text.count(IMAGE)}) than there are images ({len(images)})"
            )
        ids = [self.arguments.bos_id, *self._text.encode(IMAGE * missing + text + reply)]
        limit = self.language_model.config.max_position_embeddings
        if len(ids) > limit:
            raise MedTasksError(
                f"the prompt has {len(ids)} tokens; the model was trained on at most {limit}"
            )
        prepare = partial(
            clip_batch,
            size=self.network.vision.config.image_size,
            pad=False,
            crop_rounding="round",
        )
        return Encoded(ids, self.prepared(images, prepare))

    def image_spans(self, prompt: Encoded) -> Spans:
        """Return the columns of the markers. If text looks at the following image, each has the text before it, too."""
        marker = self._markers[IMAGE]
        ends = [column + 1 for column, token in enumerate(prompt.ids) if token == marker]
        if self._mode == "following":
            return list(zip([0, *ends], ends, strict=False))
        return [(end - 1, end) for end in ends]

    def model_inputs(
        self, batch: PaddedBatch, before: PaddedBatch | None = None
    ) -> dict[str, Any]:
        """Return ids, latents of the prompts' images, and the number of the image that every position looks at.

        Args:
            batch: Columns to read.
            before: The whole prompts with all of their images, if ``batch`` continues cached ones; else ``None``.
        """
        prompts = before or batch
        rows = self.cached_features(prompts)
        example = next((row for row in rows if row is not None), None)
        media = None
        if example is not None:
            padded = [example[:0] if row is None else row for row in rows]
            # (batch, most images, latents, width)
            media = pad_sequence(padded, batch_first=True)
        times = text_time(prompts.ids, prompts.attention_mask, self._markers[IMAGE], self._mode)
        return batch.inputs(input_ids=batch.ids, media=media, text_time=times)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text without markers and without the unknown piece, which the official demo removes too."""
        return self._text.decode(ids)
