"""RadFM's network: 3D vision transformer, resampler, projection, and a Llama that reads their output in image slots.

Written from the description in Wu et al. 2023 (RadFM) and the tensors of the published checkpoint, whose names its
parameters have. Only what inference uses is here: the checkpoint's text encoder and its heads for matching and
segmentation are not.
"""

import itertools
from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from ..checkpoints.vision import INNER, PerceiverResampler, join_heads, split_heads

CHANNELS = 3
FRAMES_PER_PATCH = 4
CONTEXT = 2048


def axis_positions(count: int, table: int) -> torch.Tensor:
    """Return the rows of a position table for ``count`` patches: every ``table // count``-th, shape (count,).

    Example:
        >>> axis_positions(4, 8).tolist(), axis_positions(1, 128).tolist()
        ([1, 3, 5, 7], [127])
    """
    if count > table:
        raise ValueError(f"{count} patches along an axis that has positions for {table}")
    return torch.arange(1, count + 1) * (table // count) - 1


class PositionTables(nn.Module):
    """Learned positions, up to so many patches per axis: a third of the width each for row, column and depth."""

    def __init__(self, rows: int, columns: int, frames: int, width: int) -> None:
        super().__init__()
        self.row_embed = nn.Embedding(rows, width // 3)
        self.col_embed = nn.Embedding(columns, width // 3)
        self.dep_embed = nn.Embedding(frames, width // 3)

    def forward(self, rows: int, columns: int, depth: int) -> torch.Tensor:
        """Return the embedding of every patch of a grid, shape (rows * columns * depth, width)."""
        counts = (rows, columns, depth)
        tables = (self.row_embed.weight, self.col_embed.weight, self.dep_embed.weight)
        axes = [
            table[axis_positions(count, len(table)).to(table.device)]
            for count, table in zip(counts, tables, strict=True)
        ]
        views = [axes[0][:, None, None], axes[1][None, :, None], axes[2][None, None, :]]
        return torch.cat([view.expand(*counts, -1) for view in views], dim=-1).flatten(0, 2)


class _Residual(nn.Module):
    """Adds to tokens, shape (images, tokens, width), what ``fn`` makes of them after a norm."""

    def __init__(self, width: int, fn: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fn = fn

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = tokens + self.fn(self.norm(tokens))
        return changed


class _SelfAttention(nn.Module):
    """Attention with 8 heads of width 64."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_qkv = nn.Linear(width, 3 * INNER, bias=False)
        self.to_out = nn.Sequential(nn.Linear(INNER, width))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        queries, keys, values = map(split_heads, self.to_qkv(tokens).chunk(3, dim=-1))
        attended = functional.scaled_dot_product_attention(queries, keys, values)
        projected: torch.Tensor = self.to_out(join_heads(attended))
        return projected


class VisionTransformer3D(nn.Module):
    """Vision transformer over patches of ``patch`` x ``patch`` x 4 voxels, without class token or last norm.

    There are positions for so many ``rows``, ``columns`` and ``frames`` of patches. ``inner`` is the inner width of the
    feed-forward parts.
    """

    def __init__(
        self, *, patch: int, rows: int, columns: int, frames: int, width: int, inner: int, layers: int
    ) -> None:
        super().__init__()
        self._patch = patch
        self.side = rows * patch  # height and width of an image in pixels; 512 in the published checkpoint
        voxels = patch**2 * FRAMES_PER_PATCH * CHANNELS
        # At index 0 the published code cuts the patches, see :meth:`cut`.
        self.to_patch_embedding = nn.Sequential(
            nn.Identity(), nn.LayerNorm(voxels), nn.Linear(voxels, width), nn.LayerNorm(width)
        )
        self.pos_embedding = PositionTables(rows, columns, frames, width)
        parts = []
        for _ in range(layers):
            # At index 2 the published code has a dropout.
            mlp = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Identity(), nn.Linear(inner, width))
            feed_forward = nn.Sequential(OrderedDict(net=mlp))
            parts.append(nn.Sequential(_Residual(width, _SelfAttention(width)), _Residual(width, feed_forward)))
        self.transformer = nn.Sequential(OrderedDict(layers=nn.Sequential(*parts)))

    def cut(self, pixels: torch.Tensor) -> torch.Tensor:
        """Cut volumes into patches: shape (images, rows, columns, frames, voxels of a patch, channels last)."""
        patch = self._patch
        height, width, depth = pixels.shape[2:]
        rows, columns, frames = height // patch, width // patch, depth // FRAMES_PER_PATCH
        cut = pixels.reshape(len(pixels), CHANNELS, rows, patch, columns, patch, frames, FRAMES_PER_PATCH)
        return cut.permute(0, 2, 4, 6, 3, 5, 7, 1).flatten(4)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Encode volumes: shape (images, rows * columns * depth patches, width), in that order of axes.

        Pixels have the shape (images, 3, height, width, depth), values 0 to 1; sides are multiples of the patch, the
        depth is a multiple of 4.
        """
        patches = self.cut(pixels)
        tokens = self.to_patch_embedding(patches.flatten(1, 3)) + self.pos_embedding(*patches.shape[1:4])
        encoded: torch.Tensor = self.transformer(tokens)
        return encoded


class ImageEmbedding(nn.Module):
    """Embeds each volume as ``latents`` embeddings of the language model, ``hidden`` wide."""

    def __init__(self, vision: VisionTransformer3D, width: int, latents: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.vision_encoder = vision
        self.perceiver = PerceiverResampler(width, latents, layers)
        self.fc = nn.Linear(width, hidden)
        self.figure_token_weight = nn.Parameter(torch.empty(2, hidden))  # the marks around an image


class RadFMNetwork(nn.Module):
    """The parts of RadFM that inference needs."""

    def __init__(self, language: LlamaConfig, images: ImageEmbedding) -> None:
        super().__init__()
        self.embedding_layer = images
        self.lang_model = LlamaForCausalLM(language)

    @property
    def language_model(self) -> LlamaForCausalLM:
        """The language model; its words have the ids below those of marks and slots."""
        return self.lang_model

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the embeddings for the slots of each image, shape (images, latents, hidden)."""
        images = self.embedding_layer
        tokens = images.vision_encoder(pixels.to(images.figure_token_weight))
        features: torch.Tensor = images.fc(images.perceiver(tokens))
        return features

    def embed(self, ids: torch.Tensor, features: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Look up words, the two marks around an image (ids V and V + 1), and image slots (from V + 2).

        Ids of shape (batch, length) become (batch, length, hidden). A slot that its row's images, shape (images,
        latents, hidden), do not reach must not occur.
        """
        vocabulary = self.lang_model.config.vocab_size
        words: torch.Tensor = self.lang_model.get_input_embeddings()(ids.clamp(max=vocabulary - 1))
        latents = [images.flatten(0, 1) for images in features if images is not None]
        if not latents:
            return words
        # One table for all rows, the marks first, so that no value has to be read back from a GPU.
        marks, sizes = self.embedding_layer.figure_token_weight, iter([len(images) for images in latents])
        starts = itertools.accumulate((0 if images is None else next(sizes) for images in features), initial=0)
        start = torch.tensor([*starts][:-1], device=ids.device)[:, None]
        has_images = torch.tensor([images is not None for images in features], device=ids.device)[:, None]
        row = (ids - vocabulary).clamp(min=0)
        row = torch.where(row < len(marks), row, row + start)
        table = torch.cat((marks, *latents))
        return torch.where((has_images & (ids >= vocabulary))[..., None], table[row * has_images], words)
