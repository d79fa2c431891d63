"""The resampler of RadFM and Med-Flamingo: any number of image tokens becomes a fixed number of latents.

Described in Alayrac et al. 2022 (Flamingo), appendix A.1.1. Parameter names are those both published checkpoints use,
so that a loader only strips the prefix in front of ``latents``, ``layers`` and ``norm``.
"""

import torch
from torch import nn
from torch.nn import functional

HEADS = 8
HEAD_WIDTH = 64
INNER = HEADS * HEAD_WIDTH


def split_heads(projected: torch.Tensor) -> torch.Tensor:
    """Turn shape (batch, tokens, heads * head width) into (batch, heads, tokens, head width)."""
    return projected.view(*projected.shape[:2], -1, HEAD_WIDTH).transpose(1, 2)


def join_heads(attended: torch.Tensor) -> torch.Tensor:
    """Undo :func:`split_heads`."""
    return attended.transpose(1, 2).flatten(2)


class CrossAttention(nn.Module):
    """Projections of an attention with 8 heads of width 64: tokens ``dim`` wide ask others, ``source_dim`` wide."""

    def __init__(self, dim: int, source_dim: int) -> None:
        super().__init__()
        self.to_q = nn.Linear(dim, INNER, bias=False)
        self.to_kv = nn.Linear(source_dim, 2 * INNER, bias=False)
        self.to_out = nn.Linear(INNER, dim, bias=False)

    def attended(self, asking: torch.Tensor, source: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return what the heads found, shape (batch, asking, INNER), to go through ``to_out``."""
        keys, values = self.to_kv(source).chunk(2, dim=-1)
        queries, keys, values = map(split_heads, (self.to_q(asking), keys, values))
        return join_heads(functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask))


class LatentAttention(CrossAttention):
    """Latents ask; media and the latents themselves answer."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim, dim)
        self.norm_media = nn.LayerNorm(dim)
        self.norm_latents = nn.LayerNorm(dim)

    def forward(self, media: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
        """Return the update of the latents, shape (batch, latents, dim); the residual is the caller's."""
        asking = self.norm_latents(latents)
        updated: torch.Tensor = self.to_out(self.attended(asking, torch.cat((self.norm_media(media), asking), dim=1)))
        return updated


def feed_forward(dim: int) -> nn.Sequential:
    """Return the feed-forward block without biases: normalise, widen, exact GELU, narrow."""
    return nn.Sequential(
        nn.LayerNorm(dim), nn.Linear(dim, 4 * dim, bias=False), nn.GELU(), nn.Linear(4 * dim, dim, bias=False)
    )


class PerceiverResampler(nn.Module):
    """Resampler with 8 heads of width 64 for media of any width ``dim``, without embeddings of frame or time."""

    def __init__(self, dim: int, latents: int, depth: int) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.empty(latents, dim))
        self.layers = nn.ModuleList(nn.ModuleList((LatentAttention(dim), feed_forward(dim))) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, media: torch.Tensor) -> torch.Tensor:
        """Resample every image by itself: shape (images, tokens, dim) to (images, latents, dim), layer-normalised."""
        latents = self.latents.expand(len(media), -1, -1)
        for attention, mlp in map(nn.ModuleList.children, self.layers):
            latents = latents + attention(media, latents)
            latents = latents + mlp(latents)
        resampled: torch.Tensor = self.norm(latents)
        return resampled
