"""Reading NIfTI volumes (versions 1 and 2) as far as showing them needs it, without a library.

Source: the format's ``nifti1.h`` and ``nifti2.h`` (https://nifti.nimh.nih.gov).
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medtasks.data.strict_pillow import UnreadableImage

_TYPES = {2: "u1", 4: "i2", 8: "i4", 16: "f4", 64: "f8", 256: "i1", 512: "u2", 768: "u4"}
HEADER_BYTES = 540  # of the longer version


@dataclass(frozen=True)
class _Layout:
    """Where a version of the format has its fields, in bytes, and how its numbers are written."""

    size: int
    magic: tuple[int, bytes]
    dimensions: tuple[int, str]
    datatype: int
    offset: tuple[int, str]
    scaling: tuple[int, str]
    spacing: tuple[int, str]
    codes: tuple[int, str]
    quaternion: tuple[int, str]
    rows: tuple[int, str]


_NIFTI_1 = _Layout(
    348, (344, b"n+1\0"), (40, "8h"), 70, (108, "f"), (112, "2f"), (76, "8f"), (252, "2h"), (256, "3f"), (280, "12f")
)
_NIFTI_2 = _Layout(
    540, (4, b"n+2\0"), (16, "8q"), 12, (168, "q"), (176, "2d"), (104, "8d"), (344, "2i"), (352, "3d"), (400, "12d")
)


@dataclass(frozen=True)
class NiftiHeader:
    """What a header says."""

    shape: tuple[int, int, int]  # voxels along the three axes
    dtype: np.dtype[Any]  # of a voxel as stored, byte order included
    offset: int  # byte at which voxels start
    slope: float  # stored values are multiplied by this ...
    intercept: float  # ... and this is added
    directions: NDArray[np.float64]  # of the axes, one column each; rows are right, front and head

    @property
    def file_bytes(self) -> int:
        """Least length of the file."""
        return self.offset + int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def read_header(data: bytes) -> NiftiHeader:
    """Read the header of a volume from the beginning of the unpacked file, ``HEADER_BYTES`` where it is so long.

    UnreadableImage says that it is no NIfTI file, holds no single volume, or voxels that are no plain numbers.
    """
    for layout in (_NIFTI_1, _NIFTI_2):
        for order in "<>":
            start, magic = layout.magic
            if data[:4] == struct.pack(f"{order}i", layout.size) and data[start : start + len(magic)] == magic:
                return _header(data, layout, order)
    raise UnreadableImage("it is no NIfTI file")


def axial(header: NiftiHeader, data: bytes, positions: list[int]) -> NDArray[np.float32]:
    """Return axial slices (slices, height, width) as printed: the front on top, the patient's right on the left.

    ``data`` is the whole unpacked file, ``positions`` count from the feet, values are scaled.
    """
    stored = np.frombuffer(data, header.dtype, int(np.prod(header.shape)), header.offset)
    order, signs = _closest_axes(header.directions)
    voxels = stored.reshape(header.shape, order="F").transpose(order)
    right, front, head = (slice(None, None, int(sign)) for sign in signs)
    chosen = voxels[right, front, head][:, :, positions].astype(np.float32)
    return (chosen * header.slope + header.intercept).astype(np.float32).transpose(2, 1, 0)[:, ::-1, ::-1]


def slice_count(header: NiftiHeader) -> int:
    """Return the number of axial slices."""
    return header.shape[_closest_axes(header.directions)[0][2]]


def _header(data: bytes, layout: _Layout, order: str) -> NiftiHeader:
    def numbers(field: tuple[int, str]) -> tuple[Any, ...]:
        return struct.unpack_from(order + field[1], data, field[0])

    try:
        dimensions = numbers(layout.dimensions)
        (kind,), (offset,) = numbers((layout.datatype, "h")), numbers(layout.offset)
        slope, intercept = numbers(layout.scaling)
        directions = _directions(
            numbers(layout.codes), numbers(layout.spacing), numbers(layout.quaternion), numbers(layout.rows)
        )
    except struct.error as error:
        raise UnreadableImage("its header is cut short") from error
    shape, more = dimensions[1:4], dimensions[4 : dimensions[0] + 1]
    if dimensions[0] not in (3, 4, 5, 6, 7) or min(shape) < 1 or any(size > 1 for size in more):
        raise UnreadableImage(f"it has the shape {dimensions[1 : dimensions[0] + 1]} and is not one volume")
    if kind not in _TYPES:
        raise UnreadableImage(f"its voxels are of type {kind} and no plain numbers")
    scaled = np.isfinite(slope) and slope != 0
    return NiftiHeader(
        shape=shape,
        dtype=np.dtype(order + _TYPES[kind]),
        offset=int(offset),
        slope=float(slope) if scaled else 1.0,
        intercept=float(intercept) if scaled and np.isfinite(intercept) else 0.0,
        directions=directions,
    )


def _directions(
    codes: tuple[int, ...], spacing: tuple[float, ...], quaternion: tuple[float, ...], rows: tuple[float, ...]
) -> NDArray[np.float64]:
    """Return the directions by the header's matrix, else by its rotation, else as files without either are meant."""
    rotation, matrix = codes
    if matrix > 0:
        return np.array(rows, dtype=np.float64).reshape(3, 4)[:, :3]
    sizes = np.array(spacing[1:4], dtype=np.float64)
    if rotation <= 0:
        return np.diag(sizes * (-1, 1, 1))
    b, c, d = quaternion
    a = max(0.0, 1 - b * b - c * c - d * d) ** 0.5
    turned = np.array(
        [
            [a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)],
            [2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)],
            [2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c],
        ]
    )
    handed = -1.0 if spacing[0] < 0 else 1.0
    return turned * sizes * (1, 1, handed)


def _closest_axes(directions: NDArray[np.float64]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return which axis of the volume runs to the right, to the front and to the head, and whether backwards (-1)."""
    lengths = np.linalg.norm(directions, axis=0)
    cosines = directions / np.where(lengths > 0, lengths, 1)
    axes, signs = [0, 0, 0], [1, 1, 1]
    free = np.abs(cosines)
    for axis in range(3):
        towards = int(np.argmax(free[:, axis]))
        axes[towards], signs[towards] = axis, -1 if cosines[towards, axis] < 0 else 1
        free[towards] = -1
    return (axes[0], axes[1], axes[2]), (signs[0], signs[1], signs[2])
