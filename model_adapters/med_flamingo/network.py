"""Med-Flamingo's network: CLIP patch tokens, resampler, and LLaMA with gated cross-attention blocks between its layers.

Described in Alayrac et al. 2022 (Flamingo), sections 2.1 to 2.3, and Moor et al. 2023 (Med-Flamingo). Parameter names
follow the published checkpoint wherever it stores the tensor.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

from ..checkpoints.vision import CrossAttention, PerceiverResampler, feed_forward

MediaAttention = Literal["preceding", "following"]


def text_time(ids: torch.Tensor, real: torch.Tensor, image_id: int, mode: MediaAttention) -> torch.Tensor:
    """Return k for a position that may look at the k-th image of its row, 0 for none and on padding.

    Text looks at the latest image before it under ``preceding`` (open_flamingo 2.0), under ``following`` at the next
    one after it, or at none after the last image (open_flamingo 0.0.2). The marker ``<image>`` looks at its own image
    either way. Ids, ``real`` (0 on padding) and result have the shape (batch, length).
    """
    markers = (ids == image_id) & real.bool()
    seen = markers.cumsum(-1)
    if mode == "following":
        later = seen < seen[:, -1:]
        seen = torch.where(markers, seen, torch.where(later, seen + 1, 0))
    return seen * real.bool()


@dataclass(frozen=True)
class MediaView:
    """Input of the cross-attention blocks during one call of the language model."""

    latents: torch.Tensor | None  # shape (batch, images * latents, width); ``None`` without any image in the batch
    visible: torch.Tensor  # shape (batch, length, images * latents); true where a position may look at a latent

    @classmethod
    def of(cls, media: torch.Tensor | None, times: torch.Tensor) -> "MediaView":
        """Build the view from latents of shape (batch, images, latents, width) and times of shape (batch, length)."""
        if media is None:
            return cls(None, times.new_zeros((*times.shape, 0), dtype=torch.bool))
        numbers = torch.arange(1, media.shape[1] + 1, device=times.device)
        visible = (times[..., None] == numbers).repeat_interleave(media.shape[2], dim=-1)
        return cls(media.flatten(1, 2), visible)

    def to(self, device: Any, **how: Any) -> "MediaView":
        """Return the view on a device; accelerate calls this where blocks and layers lie on different GPUs."""
        latents = None if self.latents is None else self.latents.to(device, **how)
        return MediaView(latents, self.visible.to(device, **how))


class _MediaAttention(CrossAttention):
    """Text asks, the latents of one image answer."""

    def __init__(self, dim: int, media_dim: int) -> None:
        super().__init__(dim, media_dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, hidden: torch.Tensor, latents: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        looking = visible.any(-1, keepdim=True)
        # Softmax over nothing is NaN: positions without an image look at everything, and their result is dropped.
        attended = self.attended(self.norm(hidden), latents, (visible | ~looking)[:, None])
        updated: torch.Tensor = self.to_out(attended.masked_fill(~looking, 0))
        return updated


class GatedCrossAttention(nn.Module):
    """Block in front of a LLaMA layer; a position without an image still passes through its feed-forward part."""

    def __init__(self, dim: int, media_dim: int) -> None:
        super().__init__()
        self.attn = _MediaAttention(dim, media_dim)
        self.attn_gate = nn.Parameter(torch.empty(1))
        self.ff = feed_forward(dim)
        self.ff_gate = nn.Parameter(torch.empty(1))

    def forward(self, hidden: torch.Tensor, view: MediaView) -> torch.Tensor:
        """Return the new hidden states, shape (batch, length, dim)."""
        if view.latents is not None:
            hidden = hidden + self.attn(hidden, view.latents, view.visible) * self.attn_gate.tanh()
        changed: torch.Tensor = hidden + self.ff(hidden) * self.ff_gate.tanh()
        return changed


def stack_media(rows: Iterable[torch.Tensor | None]) -> torch.Tensor | None:
    """Arrange the latents of each row, shape (images, latents, width), as one tensor, padded with zeros.

    The result has the shape (rows, most images, latents, width), or is ``None`` if no row has an image.
    """
    all_rows = list(rows)
    example = next((row for row in all_rows if row is not None), None)
    if example is None:
        return None
    return pad_sequence([example[:0] if row is None else row for row in all_rows], batch_first=True)


MARKERS = 3
"""Tokens added after LLaMA's vocabulary: ``<|endofchunk|>``, ``<image>``, ``<PAD>``, in this order."""


class _Head(nn.Linear):
    """Output matrix without rows for the markers, whose logits are minus infinity: they are never generated."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return functional.pad(super().forward(hidden), (0, MARKERS), value=-torch.inf)


class _BlockHook:
    """Runs a block before a layer. It refers to neither the layer nor the model, so that the model can be freed."""

    def __init__(self, block: GatedCrossAttention) -> None:
        self.block = block
        self.view: MediaView | None = None

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
        if self.view is None:
            raise RuntimeError("the layers of Med-Flamingo run only inside its language model")
        if args:
            return (self.block(args[0], self.view), *args[1:]), kwargs
        return args, kwargs | {"hidden_states": self.block(kwargs["hidden_states"], self.view)}


class MedFlamingoLanguageModel(LlamaForCausalLM):  # type: ignore[misc]  # transformers is not analysed
    """LLaMA that is also given media, ``media_dim`` wide; some ``layers``, from 0, have a block in front.

    LLaMA's ``vocab_size`` does not count the markers. For the mode see :func:`text_time`.
    """

    _no_split_modules: ClassVar[list[str]] = ["LlamaDecoderLayer", "GatedCrossAttention"]

    def __init__(self, config: LlamaConfig, layers: Iterable[int], media_dim: int, mode: MediaAttention) -> None:
        super().__init__(config)
        self.mode = mode
        self.model.embed_tokens = nn.Embedding(config.vocab_size + MARKERS, config.hidden_size)
        self.lm_head = _Head(config.hidden_size, config.vocab_size, bias=False)
        blocks = {layer: GatedCrossAttention(config.hidden_size, media_dim) for layer in layers}
        self.gated_cross_attn_layers = nn.ModuleDict({str(layer): block for layer, block in blocks.items()})
        self._block_hooks = [_BlockHook(block) for block in blocks.values()]
        for layer, hook in zip(blocks, self._block_hooks, strict=True):
            self.model.layers[layer].register_forward_pre_hook(hook, with_kwargs=True)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        logits_to_keep: int | torch.Tensor = 0,
        media: torch.Tensor | None = None,
        text_time: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run LLaMA with the blocks.

        Media are latents, shape (batch, images, latents, media_dim); rows with fewer images are padded. For the
        times see :func:`text_time`; their shape is (batch, length) of the whole prompt: the size of the cache shows
        where ``input_ids`` begin. Without times no position has an image.
        """
        start = past_key_values.get_seq_length() if past_key_values is not None else 0
        view = MediaView.of(media, self._times(text_time, input_ids, start))
        for hook in self._block_hooks:
            hook.view = view
        try:
            return super().forward(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                past_key_values=past_key_values,
                logits_to_keep=logits_to_keep,
                **kwargs,
            )
        finally:
            for hook in self._block_hooks:
                hook.view = None

    def _times(self, prompt: torch.Tensor | None, ids: torch.Tensor, start: int) -> torch.Tensor:
        """Return the times of the columns of ``ids``; a reply looks at the last image, or at none."""
        if prompt is None:
            return torch.zeros_like(ids)
        reply = max(start + ids.shape[1] - prompt.shape[1], 0)
        last = prompt[:, -1:] if self.mode == "preceding" else torch.zeros_like(prompt[:, -1:])
        return torch.cat((prompt, last.expand(-1, reply)), dim=1)[:, start : start + ids.shape[1]]


class MedFlamingoNetwork(nn.Module):
    """The whole model, without weights; see :class:`MedFlamingoLanguageModel`.

    With ``post_norm`` patch tokens pass through CLIP's last layer norm, as under open_clip 2.23 and newer; the model
    was trained without.
    """

    def __init__(
        self,
        vision: CLIPVisionConfig,
        language: LlamaConfig,
        layers: Iterable[int],
        latents: int,
        depth: int,
        mode: MediaAttention,
        post_norm: bool,
    ) -> None:
        super().__init__()
        self.post_norm = post_norm
        self.vision = CLIPVisionModel(vision)
        self.perceiver = PerceiverResampler(vision.hidden_size, latents, depth)
        self.language_model = MedFlamingoLanguageModel(language, layers, vision.hidden_size, mode)

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the latents of images, shape (images, latents, width), for pixels of shape (images, 3, size, size)."""
        # The class token is left out; the last hidden state has not passed the tower's last norm.
        tokens = self.vision(pixels.to(self.perceiver.latents)).last_hidden_state[:, 1:]
        resampled: torch.Tensor = self.perceiver(self.vision.post_layernorm(tokens) if self.post_norm else tokens)
        return resampled
