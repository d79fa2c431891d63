"""RadFM's network: 3D vision transformer, resampler, projection, and a Llama that reads their output in image slots.

Written from the description in Wu et al. 2023 (RadFM) and the tensors of the published checkpoint. Only what inference
uses is here: the checkpoint's text encoder and its heads for matching and segmentation are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from ..checkpoints.vision import INNER, PerceiverResampler, join_heads, split_heads

CHANNELS = 3
FRAMES_PER_PATCH = 4
CONTEXT = 2048


@dataclass(frozen=True)
class Geometry:
    """Sizes of a checkpoint."""

    vocabulary: int  # word embeddings; also the id of the first added token
    hidden: int  # width of the language model
    intermediate: int  # inner width of its feed-forward part
    layers: int  # its number of layers
    heads: int  # its number of attention heads
    vision_width: int  # width of the vision transformer and of the resampler
    vision_inner: int  # inner width of the vision transformer's feed-forward part
    vision_layers: int  # its number of layers
    patch: int  # side of a patch in pixels; a patch is 4 frames deep
    rows: int  # rows of patches that there are positions for
    columns: int  # columns of patches that there are positions for
    frames: int  # patches along the depth that there are positions for
    latents: int  # slots per image
    resampler_layers: int  # layers of the resampler

    @property
    def side(self) -> int:
        """Height and width of an image in pixels; 512 in the published checkpoint."""
        return self.rows * self.patch


def axis_positions(count: int, table: int) -> torch.Tensor:
    """Return which rows of a position table stand for an axis of ``count`` patches, shape (count,).

    A short axis takes every ``table // count``-th row and so ends with the table's last rows.

    Example:
        >>> axis_positions(4, 8).tolist(), axis_positions(1, 128).tolist()
        ([1, 3, 5, 7], [127])
    """
    if count > table:
        raise ValueError(f"{count} patches along an axis that has positions for {table}")
    return torch.arange(1, count + 1) * (table // count) - 1


class PositionTables(nn.Module):
    """Learned positions: a third of the width each for row, column and depth."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        third = geometry.vision_width // 3
        self.row = nn.Embedding(geometry.rows, third)
        self.column = nn.Embedding(geometry.columns, third)
        self.depth = nn.Embedding(geometry.frames, third)

    def forward(self, rows: int, columns: int, depth: int) -> torch.Tensor:
        """Return the embedding of every patch of a grid, shape (rows * columns * depth, width)."""
        counts = (rows, columns, depth)
        tables = (self.row.weight, self.column.weight, self.depth.weight)
        axes = [
            table[axis_positions(count, len(table)).to(table.device)]
            for count, table in zip(counts, tables, strict=True)
        ]
        views = [axes[0][:, None, None], axes[1][None, :, None], axes[2][None, None, :]]
        return torch.cat([view.expand(*counts, -1) for view in views], dim=-1).flatten(0, 2)


class VisionLayer(nn.Module):
    """Attention with 8 heads of width 64 and a feed-forward part, each after its norm and with a residual."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * INNER, bias=False)
        self.out = nn.Linear(INNER, width)
        self.feed_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, inner)
        self.narrow = nn.Linear(inner, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return tokens of the same shape (images, tokens, width)."""
        queries, keys, values = map(split_heads, self.qkv(self.attention_norm(tokens)).chunk(3, dim=-1))
        tokens = tokens + self.out(join_heads(functional.scaled_dot_product_attention(queries, keys, values)))
        narrowed: torch.Tensor = self.narrow(functional.gelu(self.widen(self.feed_norm(tokens))))
        return tokens + narrowed


class VisionTransformer3D(nn.Module):
    """Vision transformer over patches of ``patch`` x ``patch`` x 4 voxels, without class token or last norm."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self._patch = geometry.patch
        voxels = geometry.patch**2 * FRAMES_PER_PATCH * CHANNELS
        self.patch_norm = nn.LayerNorm(voxels)
        self.patch_embed = nn.Linear(voxels, geometry.vision_width)
        self.token_norm = nn.LayerNorm(geometry.vision_width)
        self.positions = PositionTables(geometry)
        self.layers = nn.ModuleList(
            VisionLayer(geometry.vision_width, geometry.vision_inner) for _ in range(geometry.vision_layers)
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Encode volumes: shape (images, rows * columns * depth patches, width), in that order of axes.

        Pixels have the shape (images, 3, height, width, depth), values 0 to 1; sides are multiples of the patch, the
        depth is a multiple of 4.
        """
        height, width, depth = pixels.shape[2:]
        rows, columns, frames = height // self._patch, width // self._patch, depth // FRAMES_PER_PATCH
        patch = self._patch
        cut = pixels.reshape(len(pixels), CHANNELS, rows, patch, columns, patch, frames, FRAMES_PER_PATCH)
        # The grid first, then the voxels of a patch, channels last.
        patches = cut.permute(0, 2, 4, 6, 3, 5, 7, 1).flatten(4).flatten(1, 3)
        tokens: torch.Tensor = self.token_norm(self.patch_embed(self.patch_norm(patches)))
        tokens = tokens + self.positions(rows, columns, frames)
        for layer in self.layers:
            tokens = layer(tokens)
        return tokens


class RadFMNetwork(nn.Module):
    """The parts of RadFM that inference needs."""

    def __init__(self, geometry: Geometry, attention: str) -> None:
        super().__init__()
        # LLaMA v1; the published ``config.json`` names other special ids than those the model was trained with.
        language = LlamaConfig(
            vocab_size=geometry.vocabulary,
            hidden_size=geometry.hidden,
            intermediate_size=geometry.intermediate,
            num_hidden_layers=geometry.layers,
            num_attention_heads=geometry.heads,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=False,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            attn_implementation=attention,
        )
        self.vocabulary = geometry.vocabulary
        self.vision = VisionTransformer3D(geometry)
        self.resampler = PerceiverResampler(geometry.vision_width, geometry.latents, geometry.resampler_layers)
        self.projection = nn.Linear(geometry.vision_width, geometry.hidden)
        self.figure_marks = nn.Parameter(torch.empty(2, geometry.hidden))
        self.language_model = LlamaForCausalLM(language)

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return what fills the slots of each image, shape (images, latents, hidden)."""
        features: torch.Tensor = self.projection(self.resampler(self.vision(pixels.to(self.figure_marks))))
        return features

    def embed(self, ids: torch.Tensor, features: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Look up words, the two marks around an image (ids V and V + 1), and image slots (from V + 2).

        Ids of shape (batch, length) become (batch, length, hidden). A slot that its row's images, shape (images,
        latents, hidden), do not reach must not occur.
        """
        embedded: torch.Tensor = self.language_model.get_input_embeddings()(ids.clamp(max=self.vocabulary - 1))
        for row, images in enumerate(features):
            added = ids[row] >= self.vocabulary
            if images is not None and added.any():
                table = torch.cat((self.figure_marks, images.flatten(0, 1)))
                embedded[row, added] = table[ids[row, added] - self.vocabulary]
        return embedded
