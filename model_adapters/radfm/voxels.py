"""Images and volumes as input of a 3D vision transformer; an image becomes a volume one slice deep."""

import hashlib
import math
import random
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from medtasks.errors import MedTasksError

Volume = str | Path | NDArray[Any] | Sequence[Image.Image]
"""A file (``.nii``, ``.nii.gz``, ``.npy``, ``.npz``), voxels (height, width, depth) or (channels, ...), or slices."""

DEPTHS = range(4, 65, 4)
_CHANNELS = 3


class VolumeFileError(MedTasksError):
    """The file of a volume cannot be used; ``loggable`` lacks its name, which may identify the patient."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.loggable = message.replace(str(path), "the file of a volume")


def target_depth(depths: Sequence[int]) -> int:
    """Return the common number of slices for the images of a prompt; a flat image counts as one slice.

    It is, among 4, 8, ..., 64, the one closest to the deepest image; the smaller of two that are equally close.

    Example:
        >>> target_depth([1]), target_depth([1, 6]), target_depth([31]), target_depth([300])
        (4, 4, 32, 64)
    """
    return min(DEPTHS, key=lambda depth: abs(depth - max(depths)))


def stack_volumes(volumes: Sequence[torch.Tensor], side: int) -> torch.Tensor:
    """Resize all images of a prompt by the nearest voxel: shape (images, 3, side, side, depth).

    The depth is :func:`target_depth`. Without images it is one black volume, as in RadFM's training on text alone.
    """
    if not volumes:
        return torch.zeros(1, _CHANNELS, side, side, DEPTHS[0])
    size = (side, side, target_depth([volume.shape[-1] for volume in volumes]))
    if all(volume.shape[1:] == (side, side, 1) for volume in volumes):  # the nearest of one slice is that slice
        return torch.stack(list(volumes)).expand(-1, -1, -1, -1, size[-1])
    return torch.cat([functional.interpolate(volume[None], size=size, mode="nearest") for volume in volumes])


def image_volume(image: Image.Image, side: int, crop_seed: int | None = None) -> torch.Tensor:
    """Return an image as a volume of one slice, shape (3, side, side, 1), values 0 to 1.

    The whole image is resized (bicubic, aspect ratio not kept) and not normalised. With a ``crop_seed`` a random part
    is cut out first, see :func:`random_crop_box`; it depends on this seed and the image's content alone.
    """
    rgb = image.convert("RGB")
    if crop_seed is not None:
        digest = hashlib.blake2b(f"{crop_seed}|{rgb.size}|".encode() + rgb.tobytes(), digest_size=8).digest()
        generator = random.Random(int.from_bytes(digest, "big"))
        rgb = rgb.crop(random_crop_box(rgb.width, rgb.height, generator))
    resized = np.asarray(rgb.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32)
    return (torch.from_numpy(resized) / 255).permute(2, 0, 1)[..., None]


def random_crop_box(width: int, height: int, generator: random.Random) -> tuple[int, int, int, int]:
    """Draw a part of an image as RadFM's training and demo do: 80 to 100 % of the area, aspect 3:4 to 4:3.

    After ten draws that do not fit, the largest centred part of an allowed aspect is taken. The box is left, upper,
    right and lower border in pixels.
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


def read_volume(source: Volume, side: int) -> torch.Tensor:
    """Read a volume: shape (3, height, width, depth), values 0 to 1.

    8-bit integers are divided by 255; fractions between 0 and 1 stay as they are; other values (Hounsfield units) are
    scaled by the volume's minimum and maximum. Slices of NIfTI files are axial, from feet to head, as they are printed
    (front on top, the patient's right on the left). Slices as images are resized to ``side``. An unreadable volume,
    another shape or values that are not finite are a ``MedTasksError``, for files a :class:`VolumeFileError`.
    """
    if isinstance(source, np.ndarray):
        return _from_voxels(source, "the array")
    if isinstance(source, str | Path):
        path = Path(source)
        try:
            return _from_voxels(_read_file(path), str(path))
        except MedTasksError as error:
            raise VolumeFileError(str(error), path) from error
    if not source:
        raise MedTasksError("a volume without slices; give at least one image")
    return torch.cat([image_volume(image, side) for image in source], dim=-1)


def _read_file(path: Path) -> NDArray[Any]:
    name = path.name.lower()
    if not path.is_file():
        raise MedTasksError(f"{path} does not exist; give the file of a volume")
    if name.endswith((".nii", ".nii.gz")):
        import nibabel

        try:
            image = nibabel.as_closest_canonical(nibabel.load(path))
            voxels = np.asarray(image.dataobj, dtype=np.float32)
        except Exception as error:
            raise MedTasksError(f"{path} is damaged or no NIfTI file; write it again") from error
        if voxels.ndim == 4 and voxels.shape[3] == 1:
            voxels = voxels[..., 0]
        if voxels.ndim != 3:
            raise MedTasksError(f"{path} has shape {voxels.shape}; give one volume (x, y, z), not a series")
        # Axes point to the right, the front and the head; rows run backwards from the front, columns from the right.
        return np.ascontiguousarray(voxels.transpose(1, 0, 2)[::-1, ::-1])
    if not name.endswith((".npy", ".npz")):
        raise MedTasksError(f"{path} is no volume this can read; give a .nii, .nii.gz, .npy or .npz file")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            names = sorted(loaded.files)
            if len(names) == 1:
                return np.asarray(loaded[names[0]])
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise MedTasksError(f"{path} is damaged or holds no plain array; write it again with numpy.save") from error
    raise MedTasksError(f"{path} holds {len(names)} arrays ({', '.join(names)}); save one alone")


def _from_voxels(voxels: NDArray[Any], name: str) -> torch.Tensor:
    shaped = voxels[None] if voxels.ndim == 3 else voxels
    if shaped.ndim != 4 or shaped.shape[0] not in (1, _CHANNELS) or 0 in shaped.shape:
        raise MedTasksError(
            f"{name} has shape {voxels.shape}; a volume is (height, width, depth), or has 1 or 3 channels in front"
        )
    if voxels.dtype.kind not in "buif":
        raise MedTasksError(f"{name} holds values of type {voxels.dtype}; give numbers")
    values = shaped.astype(np.float32)
    if not np.isfinite(values).all():
        raise MedTasksError(f"{name} holds values that are no finite numbers; replace them")
    low, high = values.min(), values.max()
    if voxels.dtype == np.uint8:
        values /= np.float32(255)
    elif not (voxels.dtype.kind == "f" and low >= 0 and high <= 1):
        values = (values - low) / (high - low if high > low else np.float32(1))
    return torch.from_numpy(values).expand(_CHANNELS, -1, -1, -1)
