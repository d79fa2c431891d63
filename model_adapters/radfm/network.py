"""RadFM's network, and images and volumes as its input. An image becomes a volume one slice deep.

A 3D vision transformer, resampler, projection, and a Llama that reads their output in image slots. Written from Wu et
al. 2023 (RadFM) and the tensors of the published checkpoint, whose names its parameters have. Its text encoder and its
heads for matching and segmentation are not here, because inference does not use them.
"""

import hashlib
import itertools
import math
import random
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from medtasks.errors import MedTasksError

from ..base.vision import INNER, PerceiverResampler, attend

CHANNELS = 3
FRAMES_PER_PATCH = 4
CONTEXT = 2048
Volume = str | Path | NDArray[Any] | Sequence[Image.Image]
"""A file (``.nii``, ``.nii.gz``, ``.npy``, ``.npz``), voxels (height, width, depth) or (channels, ...), or slices."""


class PositionTables(nn.Module):
    """Learned positions of patches: a third of the width each for row, column and depth.

    Args:
        rows: The most patches along an image's height.
        columns: The most patches along its width.
        frames: The most patches along its depth.
        width: Of the embedding of a patch.
    """

    def __init__(self, rows: int, columns: int, frames: int, width: int) -> None:
        super().__init__()
        self.row_embed = nn.Embedding(rows, width // 3)
        self.col_embed = nn.Embedding(columns, width // 3)
        self.dep_embed = nn.Embedding(frames, width // 3)

    def forward(self, rows: int, columns: int, depth: int) -> Tensor:
        """Return the embedding of every patch of a grid, shape (rows * columns * depth, width).

        Args:
            rows: Number of patches along the height.
            columns: Number of patches along the width.
            depth: Number of patches along the depth.

        Raises:
            ValueError: An axis has more patches than positions.
        """
        counts = (rows, columns, depth)
        tables = (self.row_embed.weight, self.col_embed.weight, self.dep_embed.weight)
        axes = []
        for count, table in zip(counts, tables, strict=True):
            if count > len(table):
                raise ValueError(
                    f"{count} patches along an axis that has positions for {len(table)}"
                )
            # Every ``step``-th row, such as 1, 3, 5 and 7.
            step = len(table) // count
            axes.append(table[torch.arange(1, count + 1, device=table.device) * step - 1])
        views = [axes[0][:, None, None], axes[1][None, :, None], axes[2][None, None, :]]
        return torch.cat([view.expand(*counts, -1) for view in views], dim=-1).flatten(0, 2)


class _Residual(nn.Module):
    """Adds to tokens, shape (images, tokens, width), what ``fn`` makes of them after a norm."""

    def __init__(self, width: int, fn: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fn = fn

    def forward(self, tokens: Tensor) -> Tensor:
        changed: Tensor = tokens + self.fn(self.norm(tokens))
        return changed


class _SelfAttention(nn.Module):
    """Attention with 8 heads of width 64."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_qkv = nn.Linear(width, 3 * INNER, bias=False)
        self.to_out = nn.Sequential(nn.Linear(INNER, width))

    def forward(self, tokens: Tensor) -> Tensor:
        projected: Tensor = self.to_out(attend(*self.to_qkv(tokens).chunk(3, dim=-1)))
        return projected


class VisionTransformer3D(nn.Module):
    """Vision transformer over patches of voxels, without class token or last norm.

    Args:
        patch: Height and width of a patch in voxels. Its depth is 4.
        rows: The most patches along the height.
        columns: The most patches along the width.
        frames: The most patches along the depth.
        width: Of the embeddings.
        inner: Inner width of the feed-forward parts.
        layers: Number of layers.
    """

    def __init__(
        self,
        *,
        patch: int,
        rows: int,
        columns: int,
        frames: int,
        width: int,
        inner: int,
        layers: int,
    ) -> None:
        super().__init__()
        self._patch = patch
        # Height and width of an image in pixels, 512 in the published checkpoint.
        self.side = rows * patch
        voxels = patch**2 * FRAMES_PER_PATCH * CHANNELS
        # At index 0 the published code cuts the patches, see :meth:`forward`.
        self.to_patch_embedding = nn.Sequential(
            nn.Identity(), nn.LayerNorm(voxels), nn.Linear(voxels, width), nn.LayerNorm(width)
        )
        self.pos_embedding = PositionTables(rows, columns, frames, width)
        parts = []
        for _ in range(layers):
            # At index 2 the published code has a dropout.
            mlp = nn.Sequential(
                nn.Linear(width, inner), nn.GELU(), nn.Identity(), nn.Linear(inner, width)
            )
            feed_forward = nn.Sequential(OrderedDict(net=mlp))
            parts.append(
                nn.Sequential(
                    _Residual(width, _SelfAttention(width)), _Residual(width, feed_forward)
                )
            )
        self.transformer = nn.Sequential(OrderedDict(layers=nn.Sequential(*parts)))

    def forward(self, pixels: Tensor) -> Tensor:
        """Encode volumes.

        Args:
            pixels: Shape (images, 3, height, width, depth), values 0 to 1. Sides are multiples of the patch, the depth
                is a multiple of 4.

        Returns:
            Shape (images, rows * columns * depth patches, width), in that order of axes.
        """
        patch = self._patch
        height, width, depth = pixels.shape[2:]
        rows = height // patch
        columns = width // patch
        frames = depth // FRAMES_PER_PATCH
        cut = pixels.reshape(
            len(pixels), CHANNELS, rows, patch, columns, patch, frames, FRAMES_PER_PATCH
        )
        # Shape (images, patches, voxels of a patch, channels last).
        patches = cut.permute(0, 2, 4, 6, 3, 5, 7, 1).flatten(4).flatten(1, 3)
        positions = self.pos_embedding(rows, columns, frames)
        encoded: Tensor = self.transformer(self.to_patch_embedding(patches) + positions)
        return encoded


class ImageEmbedding(nn.Module):
    """Parts that embed each volume for the language model.

    Args:
        vision: The encoder.
        width: Of its output.
        latents: Number of embeddings of each volume.
        layers: Number of layers of the resampler.
        hidden: Width of the embeddings of the language model.
    """

    def __init__(
        self,
        vision: VisionTransformer3D,
        width: int,
        latents: int,
        layers: int,
        hidden: int,
    ) -> None:
        super().__init__()
        self.vision_encoder = vision
        self.perceiver = PerceiverResampler(width, latents, layers)
        self.fc = nn.Linear(width, hidden)
        # The marks around an image
        self.figure_token_weight = nn.Parameter(torch.empty(2, hidden))


class RadFMNetwork(nn.Module):
    """The parts of RadFM that inference needs."""

    def __init__(self, language: LlamaConfig, images: ImageEmbedding) -> None:
        super().__init__()
        self.embedding_layer = images
        self.lang_model = LlamaForCausalLM(language)

    @property
    def language_model(self) -> LlamaForCausalLM:
        """The language model, whose words have the ids below those of marks and slots."""
        return self.lang_model

    def image_features(self, pixels: Tensor) -> Tensor:
        """Return the embeddings for the slots of each image, shape (images, latents, hidden).

        Args:
            pixels: As of :meth:`VisionTransformer3D.forward`.
        """
        images = self.embedding_layer
        tokens = images.vision_encoder(pixels.to(images.figure_token_weight))
        features: Tensor = images.fc(images.perceiver(tokens))
        return features

    def embed(self, ids: Tensor, features: Sequence[Tensor | None]) -> Tensor:
        """Look up words, the two marks around an image (ids V and V + 1), and image slots (from V + 2).

        Args:
            ids: Shape (batch, length). A slot that the images of its row do not reach must not occur.
            features: Of the images of each row, shape (images, latents, hidden), None for a row without.

        Returns:
            Shape (batch, length, hidden).
        """
        vocabulary = self.lang_model.config.vocab_size
        words: Tensor = self.lang_model.get_input_embeddings()(ids.clamp(max=vocabulary - 1))
        # One table for all rows, the marks first, so that no value has to be read back from a GPU.
        marks = self.embedding_layer.figure_token_weight
        latents = [marks[:0] if images is None else images.flatten(0, 1) for images in features]
        starts = torch.tensor(
            [0, *itertools.accumulate(map(len, latents))][:-1], device=ids.device
        )[:, None]
        row = (ids - vocabulary).clamp(min=0)
        row = torch.where(row < len(marks), row, row + starts)
        return torch.where(
            (ids >= vocabulary)[..., None], torch.cat((marks, *latents))[row], words
        )


# ---- images and volumes ----


class VolumeFileError(MedTasksError):
    """The file of a volume cannot be used. ``loggable`` lacks its name, which may identify the patient."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.loggable = message.replace(str(path), "the file of a volume")


def image_volume(image: Image.Image, side: int, crop_seed: int | None = None) -> Tensor:
    """Return an image as a volume of one slice, shape (3, side, side, 1), values 0 to 1.

    The whole image is resized (bicubic, aspect ratio not kept) and not normalised.

    Args:
        image: The image.
        side: Height and width of the volume in pixels.
        crop_seed: If given, a random part is cut out first, see :func:`random_crop_box`. It depends on this seed and
            the content of the image alone.
    """
    rgb = image.convert("RGB")
    if crop_seed is not None:
        content = f"{crop_seed}|{rgb.size}|".encode() + rgb.tobytes()
        digest = hashlib.blake2b(content, digest_size=8).digest()
        generator = random.Random(int.from_bytes(digest, "big"))
        rgb = rgb.crop(random_crop_box(rgb.width, rgb.height, generator))
    resized = np.asarray(rgb.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32)
    return (torch.from_numpy(resized) / 255).permute(2, 0, 1)[..., None]


def random_crop_box(
    width: int, height: int, generator: random.Random
) -> tuple[int, int, int, int]:
    """Draw a part of an image as RadFM's training and demo do: 80 to 100 % of the area, aspect 3:4 to 4:3.

    After ten draws that do not fit, the largest centred part of an allowed aspect is taken.

    Args:
        width: Of the image in pixels.
        height: Of the image in pixels.
        generator: Source of the draws.

    Returns:
        Left, upper, right and lower border in pixels.
    """
    narrowest, widest = 3 / 4, 4 / 3
    for _ in range(10):
        area = width * height * generator.uniform(0.8, 1.0)
        aspect = math.exp(generator.uniform(math.log(narrowest), math.log(widest)))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            left, top = generator.randint(0, width - wide), generator.randint(0, height - high)
            return left, top, left + wide, top + high
    wide, high = min(width, round(height * widest)), min(height, round(width / narrowest))
    left, top = (width - wide) // 2, (height - high) // 2
    return left, top, left + wide, top + high


def read_volume(source: Volume, side: int) -> Tensor:
    """Read a volume, shape (3, height, width, depth), values 0 to 1.

    8-bit integers are divided by 255. Fractions between 0 and 1 stay as they are. Other values (Hounsfield units) are
    scaled by the volume's minimum and maximum. Slices of NIfTI files are axial, from feet to head, as they are printed
    (front on top, the patient's right on the left).

    Args:
        source: The volume.
        side: Height and width in pixels to which slices that are images are resized.

    Raises:
        VolumeFileError: A file cannot be read, has another shape, or holds values that are not finite.
        MedTasksError: An array has another shape or holds values that are not finite, or there are no slices.
    """
    if isinstance(source, np.ndarray):
        values = _fractions(source, "the array")
    elif isinstance(source, str | Path):
        path = Path(source)
        try:
            values = _fractions(_read_file(path), str(path))
        except MedTasksError as error:
            raise VolumeFileError(str(error), path) from error
    elif source:
        return torch.cat([image_volume(image, side) for image in source], dim=-1)
    else:
        raise MedTasksError("a volume without slices; give at least one image")
    return torch.from_numpy(values).expand(CHANNELS, -1, -1, -1)


def _fractions(voxels: NDArray[Any], name: str) -> NDArray[np.float32]:
    """Scale voxels to 0 to 1, shape (1 or 3 channels, height, width, depth).

    Args:
        voxels: With or without an axis of channels in front.
        name: Noun for messages.

    Raises:
        MedTasksError: The shape is another one, or the values are no finite numbers.
    """
    shaped = voxels[None] if voxels.ndim == 3 else voxels
    if shaped.ndim != 4 or shaped.shape[0] not in (1, CHANNELS) or 0 in shaped.shape:
        raise MedTasksError(
            f"{name} has shape {voxels.shape}; a volume is (height, width, depth), or has 1 or 3 channels in front"
        )
    if voxels.dtype.kind not in "buif":
        raise MedTasksError(f"{name} holds values of type {voxels.dtype}; give numbers")
    values = shaped.astype(np.float32)
    if not np.isfinite(values).all():
        raise MedTasksError(f"{name} holds values that are no finite numbers; replace them")
    low = values.min()
    high = values.max()
    if voxels.dtype == np.uint8:
        values /= np.float32(255)
    elif voxels.dtype.kind != "f" or not 0 <= low <= high <= 1:
        values = (values - low) / (high - low if high > low else np.float32(1))
    return values


def _read_file(path: Path) -> NDArray[Any]:
    """Return the voxels of a file as it holds them, those of a NIfTI file as axial slices.

    Raises:
        MedTasksError: The file is missing, damaged, of an unknown kind, or holds more than one volume.
    """
    name = path.name.lower()
    if not path.is_file():
        raise MedTasksError(f"{path} does not exist; give the file of a volume")
    if name.endswith((".nii", ".nii.gz")):
        import nibabel

        try:
            image = nibabel.as_closest_canonical(nibabel.load(path))
            voxels = np.asarray(image.dataobj, dtype=np.float32)
        except Exception as error:
            raise MedTasksError(
                f"{path} is damaged or no NIfTI file; write it again"
            ) from error
        if voxels.ndim == 4 and voxels.shape[3] == 1:
            voxels = voxels[..., 0]
        if voxels.ndim != 3:
            raise MedTasksError(
                f"{path} has shape {voxels.shape}; give one volume (x, y, z), not a series"
            )
        # Axes point to the right, the front and the head; rows run backwards from the front, columns from the right.
        return np.ascontiguousarray(voxels.transpose(1, 0, 2)[::-1, ::-1])
    if not name.endswith((".npy", ".npz")):
        raise MedTasksError(
            f"{path} is no volume this can read; give a .nii, .nii.gz, .npy or .npz file"
        )
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            names = sorted(loaded.files)
            if len(names) == 1:
                return np.asarray(loaded[names[0]])
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise MedTasksError(
            f"{path} is damaged or holds no plain array; write it again with numpy.save"
        ) from error
    raise MedTasksError(
        f"{path} holds {len(names)} arrays ({', '.join(names)}); save one alone"
    )
