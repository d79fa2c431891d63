"""Opening of volumes, see :mod:`medtasks.data.images.volume_files`."""

from math import inf, isfinite, prod
from pathlib import Path

import numpy as np

from medtasks.data.images.dicom_series import read_series
from medtasks.data.images.file_kinds import fault_of_content, read_head
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.images.volume_files import (
    ARRAY,
    HEADER_BYTES,
    NIFTI,
    bytes_of_volume,
    read_header,
    unpacked_volume,
)
from medtasks.data.images.volume_grid import Volume, Voxels
from medtasks.data.named_files import MOST_MEMORY, check_kind, check_size

_LEAST_OF_OTHERS = -500  # values below are of air in CT; other scanners have hardly any
_ARRAY_MARK = b"\x93NUMPY"
_PIECE = 1 << 20  # bytes, or values
# Axes from feet to head, front to back, and right to left, in nibabel's coordinates.
_PRINTED = np.array([[0, 0, -1, 0], [0, -1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]], np.float64)


def open_volume(path: Path) -> Volume:
    """Open a volume.

    Raises:
        FileNotFoundError: There is no such file.
        NoReader: The package that reads such files is not installed.
        UnreadableImage: It is damaged, not one volume, or holds values that are no numbers.
        UnusableFile: It would fill the memory.
    """
    check_kind(path)
    name = path.name.lower()
    if path.is_dir() or not name.endswith((*NIFTI, ARRAY)):
        return read_series(path)
    return _nifti(path) if name.endswith(NIFTI) else _array(path)


def _nifti(path: Path) -> Volume:
    """Open a NIfTI file, whose voxels are read into the memory. Errors are those of :func:`open_volume`."""
    with unpacked_volume(path) as plain:
        beginning = plain.read(HEADER_BYTES)
        header = read_header(beginning)
        data = np.empty(max(bytes_of_volume(header), len(beginning)), np.uint8)
        data[: len(beginning)] = np.frombuffer(beginning, np.uint8)
        length = len(beginning)
        while length < len(data) and (piece := plain.read(min(_PIECE, len(data) - length))):
            data[length : length + len(piece)] = np.frombuffer(piece, np.uint8)
            length += len(piece)
        plain.read(1)  # the end of a packed file has a check sum
    read_header(beginning, length)
    shape: tuple[int, int, int] = tuple(header["dim"].tolist()[1:4])
    kind = header.get_data_dtype()
    start = int(header["vox_offset"])
    values = data[start : start + prod(shape) * kind.itemsize].view(kind)
    slope = float(header["scl_slope"])
    intercept = float(header["scl_inter"])
    scaling = (1.0, 0.0)
    if isfinite(slope) and slope != 0:
        scaling = slope, intercept if isfinite(intercept) else 0.0
    low, high = _value_range(values)
    # The least value tells CT from other modalities.
    least = min(low * scaling[0], high * scaling[0]) + scaling[1]
    coordinates = "none: columns are taken to run to the left"
    for name in ("qform", "sform"):  # the latter counts
        if int(header[f"{name}_code"]):
            coordinates = name
    return _in_memory(
        values.reshape(shape, order="F"),
        header.get_best_affine(),
        scaling,
        least,
        {"file": "NIfTI", "coordinates": coordinates},
    )


def _array(path: Path) -> Volume:
    """Open a NumPy array, whose voxels stay on the disk.

    Raises:
        UnreadableImage: It is damaged, no array of numbers, of another shape, or holds values that are no numbers.
    """
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, SyntaxError) as error:
        fault = fault_of_content(
            read_head(path), _ARRAY_MARK, "it is cut short or no plain array"
        )
        raise UnreadableImage(fault) from error
    shape = stored.shape
    voxels = stored[0] if len(shape) == 4 and shape[0] == 1 else stored
    if voxels.ndim != 3 or 0 in shape:
        raise UnreadableImage(
            f"it has the shape {shape} and is not one volume (slices, rows, columns)"
        )
    if voxels.dtype.kind not in "buif":
        raise UnreadableImage(f"its values are of type {voxels.dtype} and no plain numbers")
    check_size(voxels.nbytes, MOST_MEMORY)
    voxels = voxels.view(np.uint8) if voxels.dtype.kind == "b" else voxels
    least, _ = _value_range(voxels.ravel(order="K"))
    return _in_memory(
        voxels, _PRINTED, (1.0, 0.0), least, {"file": "NumPy array, without header"}
    )


def _in_memory(
    voxels: Voxels,
    affine: Voxels,
    scaling: tuple[float, float],
    least: float,
    facts: dict[str, str],
) -> Volume:
    """Return the volume of voxels that any part can be read of at once.

    Args:
        voxels: Stored values, shape of the volume.
        affine: From voxels to mm, shape (4, 4).
        scaling: Slope and intercept of the stored values.
        least: Least value after scaling, by which CT is known.
        facts: Of the file, for people.
    """
    shape: tuple[int, int, int] = voxels.shape
    return Volume(
        lambda planes: voxels if planes is None else voxels[list(planes)],
        shape,
        affine,
        scaling,
        least < _LEAST_OF_OTHERS,
        facts=facts | {"type": str(voxels.dtype)},
    )


def _value_range(values: Voxels) -> tuple[float, float]:
    """Return the least and the largest of values of shape (voxels,).

    Raises:
        UnreadableImage: One is no finite number.
    """
    low = inf
    high = -inf
    for start in range(0, len(values), _PIECE):
        piece = values[start : start + _PIECE]
        low = min(low, float(piece.min()))
        high = max(high, float(piece.max()))
        if not isfinite(low) or not isfinite(high):  # one that is no number is both
            raise UnreadableImage("it holds values that are no finite numbers; replace them")
    return low, high
