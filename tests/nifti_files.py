"""Small NIfTI volumes."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import nibabel
import numpy as np
from numpy.typing import NDArray


def nifti(
    voxels: NDArray[np.generic],
    directions: Sequence[Sequence[float]] | None = ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    *,
    order: Literal["<", ">"] = "<",
    scaling: tuple[float, float] = (0, 0),
    rotation: Sequence[float] | None = None,
) -> bytes:
    """Return an unpacked file of version 1; its axes point as ``directions`` say, or as the quaternion ``rotation``.

    With neither, it does not say how.
    """
    header = nibabel.Nifti1Header(endianness=order)
    header.set_data_dtype(voxels.dtype)
    header.set_data_shape(voxels.shape)
    header["vox_offset"] = 352
    header["scl_slope"], header["scl_inter"] = scaling
    if rotation is not None:
        header["qform_code"], header["quatern_b"], header["quatern_c"], header["quatern_d"] = 1, *rotation
    elif directions is not None:
        affine = np.eye(4)
        affine[:3, :3] = directions
        header.set_sform(affine, code=1)
    stored = voxels.astype(voxels.dtype.newbyteorder(order))
    return bytes(header.binaryblock).ljust(352, b"\0") + stored.tobytes(order="F")


def put_nifti(path: Path, voxels: NDArray[np.generic]) -> Path:
    """Write a packed file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(nifti(voxels), mtime=0))
    return path


def scan(number: int) -> NDArray[np.int16]:
    """Return voxels of a drawn scan: a bright block in the dark; every number has its own."""
    voxels = np.full((10, 9, 6), -1000, np.int16)
    voxels[2:5, 3:7, 1:4] = 40 + number
    return voxels
