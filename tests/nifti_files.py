"""Small NIfTI volumes, written by hand so that tests need no library."""

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

KINDS = {"u1": 2, "i2": 4, "f4": 16}
STRAIGHT = ((1, 0, 0), (0, 1, 0), (0, 0, 1))


def nifti(
    voxels: NDArray[np.generic],
    directions: Sequence[Sequence[float]] = STRAIGHT,
    *,
    order: Literal["<", ">"] = "<",
    scaling: tuple[float, float] = (0, 0),
    rotation: Sequence[float] | None = None,
    spacing: Sequence[float] = (1, 1, 1),
) -> bytes:
    """Return an unpacked file of version 1; its axes point as ``directions`` say, or as the quaternion ``rotation``."""
    header = bytearray(352)
    kind = voxels.dtype.str[1:]
    struct.pack_into(f"{order}i", header, 0, 348)
    struct.pack_into(f"{order}8h", header, 40, voxels.ndim, *voxels.shape, *[1] * (7 - voxels.ndim))
    struct.pack_into(f"{order}2h", header, 70, KINDS[kind], 8 * voxels.dtype.itemsize)
    struct.pack_into(f"{order}4f", header, 76, 1, *spacing)
    struct.pack_into(f"{order}3f", header, 108, 352, *scaling)
    if rotation is None:
        struct.pack_into(f"{order}2h", header, 252, 0, 1)
        struct.pack_into(f"{order}12f", header, 280, *(value for row in directions for value in (*row, 0)))
    else:
        struct.pack_into(f"{order}2h3f", header, 252, 1, 0, *rotation)
    header[344:348] = b"n+1\0"
    return bytes(header) + voxels.astype(voxels.dtype.newbyteorder(order)).tobytes(order="F")


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
