"""Image side of published models: CLIP's preprocessing, the names of its tensors, and the resampler.

LLaVA-Med and Med-Flamingo use it.

CLIP preprocesses with PIL alone, to the last bit as the published stacks: transformers 5 uses torchvision by default,
which resizes differently (up to 0.015 after normalisation).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from transformers import CLIPVisionConfig

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
_FILL = (122, 116, 104)  # int(255 * MEAN)
_GREY_FILL = (114, 114, 114)  # LLaVA-Med's padding of grey images
SHAPE = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "image_size",
    "patch_size",
)
"""Fields that a tower's configuration must have."""
TOWER_KEYS = (
    r"text_model\..+|logit_scale|(?:text|visual)_projection\.weight|(?:vision_model\.)?embeddings\.position_ids",
    r"(?:vision_model\.)?((?:embeddings|encoder|pre_layrnorm|post_layernorm)\..+)",
)
"""For ``by_patterns``: keys of a whole CLIP model, or of its vision tower as transformers 5 stores it alone; the group
is the name in ``CLIPVisionModel``."""
HEAD_WIDTH = 64
INNER = 8 * HEAD_WIDTH


def tower_config(stored: Mapping[str, Any]) -> CLIPVisionConfig:
    """Return the geometry of a vision tower.

    Args:
        stored: Configuration of the tower alone, or of a whole CLIP model.
    """
    vision = stored.get("vision_config") or stored
    names = (*SHAPE, "layer_norm_eps", "hidden_act")
    shape = {name: vision[name] for name in names if vision.get(name) is not None}
    return CLIPVisionConfig(**shape, attn_implementation="sdpa")


def clip_batch(
    images: Sequence[Image.Image],
    size: int,
    *,
    pad: bool,
    crop_rounding: Literal["floor", "round"],
) -> Tensor | None:
    """Return images as CLIP gets them.

    The shorter side is resized to ``size`` (bicubic), the centre cropped and normalised with CLIP's mean and deviation.

    Args:
        images: Of any mode and size.
        size: Side of the result, in pixels.
        pad: Whether an image is first centred on a square canvas of CLIP's mean colour (LLaVA's ``image_aspect_ratio:
            pad``), so that nothing is cropped. An odd margin is smaller on the left or at the top; the published code
            draws lots.
        crop_rounding: Half a margin of the crop is rounded by ``floor`` as in transformers' CLIP processor, or by
            ``round`` (half to even) as in torchvision and open_clip.

    Returns:
        float32 of shape (images, 3, size, size); ``None`` without images.
    """
    if not images:
        return None
    mean = torch.tensor(MEAN)[:, None, None]
    deviation = torch.tensor(STD)[:, None, None]
    pixels = []
    for image in images:
        rgb = image.convert("RGB")
        if pad:
            side = max(rgb.size)
            canvas = Image.new("RGB", (side, side), _GREY_FILL if image.mode == "L" else _FILL)
            canvas.paste(rgb, ((side - rgb.width) // 2, (side - rgb.height) // 2))
            rgb = canvas
        short = min(rgb.size)
        resized = (int(size * rgb.width / short), int(size * rgb.height / short))
        rgb = rgb.resize(resized, Image.Resampling.BICUBIC)
        rounding = math.floor if crop_rounding == "floor" else round
        left = rounding((rgb.width - size) / 2)
        top = rounding((rgb.height - size) / 2)
        rgb = rgb.crop((left, top, left + size, top + size))
        values = torch.from_numpy(np.array(rgb)).permute(2, 0, 1).float() / 255
        pixels.append(((values - mean) / deviation).contiguous())
    return torch.stack(pixels)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the attention of heads of width 64.

    Args:
        queries: Shape (batch, asking tokens, INNER).
        keys: Shape (batch, tokens, INNER).
        values: Shape of ``keys``.
        mask: As in ``scaled_dot_product_attention``; ``None`` lets each query attend to all tokens.

    Returns:
        Shape of ``queries``.
    """

    def split_heads(projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:2], -1, HEAD_WIDTH).transpose(1, 2)

    attended = functional.scaled_dot_product_attention(
        split_heads(queries), split_heads(keys), split_heads(values), attn_mask=mask
    )
    return attended.transpose(1, 2).flatten(2)


class CrossAttention(nn.Module):
    """Projections of an attention with 8 heads of width 64, from width ``dim`` to a source of width ``source_dim``."""

    def __init__(self, dim: int, source_dim: int) -> None:
        super().__init__()
        self.to_q = nn.Linear(dim, INNER, bias=False)
        self.to_kv = nn.Linear(source_dim, 2 * INNER, bias=False)
        self.to_out = nn.Linear(INNER, dim, bias=False)

    def head_outputs(
        self,
        asking: Tensor,
        source: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the output of the heads, to go through ``to_out``.

        Args:
            asking: Shape (batch, asking tokens, dim).
            source: Shape (batch, tokens, source_dim).
            mask: Of positions in ``source``, see :func:`attend`; ``None`` for all of them.

        Returns:
            Shape (batch, asking tokens, INNER).
        """
        keys, values = self.to_kv(source).chunk(2, dim=-1)
        return attend(self.to_q(asking), keys, values, mask)


class LatentAttention(CrossAttention):
    """Attention of latents to media and to the latents themselves."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim)
        self.norm_media = nn.LayerNorm(dim)
        self.norm_latents = nn.LayerNorm(dim)

    def forward(self, media: Tensor, latents: Tensor) -> Tensor:
        """Return the update of the latents, to which the caller adds the latents.

        Args:
            media: Image tokens, shape (batch, tokens, dim).
            latents: Shape (batch, latents, dim), which is the shape of the result, too.
        """
        asking = self.norm_latents(latents)
        source = torch.cat((self.norm_media(media), asking), dim=1)
        updated: Tensor = self.to_out(self.head_outputs(asking, source))
        return updated


def feed_forward(dim: int) -> nn.Sequential:
    """Return the feed-forward block without biases: normalise, widen, exact GELU, narrow."""
    return nn.Sequential(
        nn.LayerNorm(dim),
        nn.Linear(dim, 4 * dim, bias=False),
        nn.GELU(),
        nn.Linear(4 * dim, dim, bias=False),
    )


class PerceiverResampler(nn.Module):
    """Fixed number of latents of any number of image tokens of width ``dim``, see Alayrac et al. 2022, A.1.1."""

    def __init__(self, dim: int, latents: int, depth: int) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.empty(latents, dim))
        self.layers = nn.ModuleList(
            nn.ModuleList((LatentAttention(dim), feed_forward(dim))) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, media: Tensor) -> Tensor:
        """Resample every image by itself.

        Args:
            media: Image tokens, shape (images, tokens, dim).

        Returns:
            Shape (images, latents, dim), layer-normalised.
        """
        latents = self.latents.expand(len(media), -1, -1)
        for attention, mlp in map(nn.ModuleList.children, self.layers):
            latents = latents + attention(media, latents)
            latents = latents + mlp(latents)
        resampled: Tensor = self.norm(latents)
        return resampled
