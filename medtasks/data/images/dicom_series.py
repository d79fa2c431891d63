"""Volumes in DICOM: the slices of one series in a folder, or the frames of one file.

Slices are sorted by their places in the patient (``ImagePositionPatient``, ``ImageOrientationPatient``), whatever their
names and numbers. All must have one size, orientation and spacing, and lie equally far apart. Anything else is refused
in one sentence that names two slices: a viewer would show it as several series, or with anatomy missing.

CT with ``RescaleIntercept``, and without another ``RescaleType`` than HU, is in Hounsfield units.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medtasks.data.images.dicom_images import (
    is_padding,
    numbers_of,
    reading_dicom,
    rescaling_of,
)
from medtasks.data.images.file_kinds import is_bare_data_set, is_dicom, read_head
from medtasks.data.images.strict_pillow import NoReader, UnreadableImage
from medtasks.data.images.volume_files import is_slice
from medtasks.data.images.volume_grid import Volume, Voxels
from medtasks.data.named_files import MOST_MEMORY, check_kind, check_size
from medtasks.errors import MedTasksError, UnusableFile

_FRAME_MACROS = (
    "PlanePositionSequence",
    "PlaneOrientationSequence",
    "PixelMeasuresSequence",
    "PixelValueTransformationSequence",
)
_ODD = 0.1  # difference of direction cosines from those of an image
_SAME_DIRECTION = 1e-3  # difference of direction cosines
_SAME_SPACING = 1e-3  # of the larger
_SAME_PLACE = 1e-2  # mm
_UNEVEN = 0.25  # of the distance of most slices; scanners round positions to 0.1 mm
_TO_NIBABEL = np.array([-1, -1, 1])  # DICOM's axes run to the left, the back and the head
_LARGEST = np.iinfo(np.int16)


@dataclass(frozen=True)
class _Slice:
    """One slice: a file, or a frame of one."""

    name: str
    file: Path
    frame: int | None
    series: str  # its identifier
    series_name: str  # number and description
    kind: Mapping[str, Any]  # what all slices of a volume share, by its name in messages
    directions: NDArray[np.float64]  # of columns and rows, shape (2, 3)
    spacing: tuple[float, float]  # height and width of a pixel
    place: NDArray[np.float64]  # of the first pixel
    rescaling: tuple[float, float]  # slope and intercept
    stored_range: tuple[int, int]


def read_series(path: Path) -> Volume:
    """Open the volume of a folder or of a multi-frame file.

    Raises:
        NoReader: pydicom is not installed.
        UnreadableImage: It is damaged, or not one volume.
        UnusableFile: It would fill the memory.
    """
    try:
        slices = _in_order(_check_alike(_slices_of(path)))
    except UnusableFile:
        raise
    except MedTasksError as missing:
        raise NoReader(str(missing)) from missing
    first = slices[0]
    step = np.cross(*first.directions)
    if len(slices) > 1:
        step = (slices[-1].place - first.place) / (len(slices) - 1)
    affine = np.eye(4)
    axes = [
        step,
        first.directions[1] * first.spacing[0],
        first.directions[0] * first.spacing[1],
    ]
    affine[:3, :3] = np.stack(axes, axis=-1) * _TO_NIBABEL[:, None]
    affine[:3, 3] = first.place * _TO_NIBABEL
    kind = _type_of(slices)
    rows, columns = first.kind["size"]
    check_size(kind.itemsize * len(slices) * rows * columns, MOST_MEMORY)

    def read(planes: Sequence[int] | None) -> Voxels:
        chosen = slices if planes is None else [slices[plane] for plane in planes]
        voxels = np.empty((len(chosen), rows, columns), kind)
        for number, values in enumerate(_values(chosen)):
            voxels[number] = values
        return voxels

    return Volume(
        read,
        (len(slices), rows, columns),
        affine,
        in_hounsfield_units=first.kind["units"] == "HU",
        is_inverted=first.kind["photometric interpretation"] == "MONOCHROME1",
        facts={"file": "DICOM", "modality": first.kind["modality"], "type": str(kind)},
    )


@contextlib.contextmanager
def _name_in_errors(name: str) -> Iterator[None]:
    """Name a slice in errors about it."""
    try:
        yield
    except UnreadableImage as error:
        raise UnreadableImage(f"its slice {name}: {error}") from error


def _slices_of(path: Path) -> list[_Slice]:
    """Return the slices of a folder or file without their pixels: one per file, or the frames of a single file.

    Raises:
        UnreadableImage: A file is no DICOM file, is damaged, or is no slice of a volume.
        MedTasksError: As of :func:`reading_dicom`.
    """
    files = sorted(filter(is_slice, path.iterdir())) if path.is_dir() else [path]
    if len(files) == 1 and _is_dicom(files[0]):
        with reading_dicom(files[0], force=True, headers_only=True) as read:
            pydicom, dataset = read
            frames = range(int(dataset.get("NumberOfFrames") or 1))
            return [
                _slice(files[0], _of_frame(pydicom, dataset, frame), frame) for frame in frames
            ]
    others = list(itertools.filterfalse(_is_dicom, files))
    if len(others) == len(files):
        raise UnreadableImage("it holds no DICOM files; list its images in 'image_files'")
    if others:
        raise UnreadableImage(
            f"its {others[0].name} is no DICOM file; leave only the slices of one series in the folder"
        )
    return list(map(_slice_in, files))


def _is_dicom(file: Path) -> bool:
    check_kind(file)
    if file.is_dir():
        return False
    head = read_head(file)
    return is_dicom(head) or is_bare_data_set(head)


def _slice_in(file: Path) -> _Slice:
    """Return the slice in a file that is one of several, without its pixels.

    Raises:
        UnreadableImage: The file holds several frames, is damaged, or is no slice of a volume. The message names the
            file, and continues a sentence about its folder.
        MedTasksError: As of :func:`reading_dicom`.
    """
    with (
        _name_in_errors(file.name),
        reading_dicom(file, force=True, headers_only=True) as (
            _,
            dataset,
        ),
    ):
        if int(dataset.get("NumberOfFrames") or 1) > 1:
            raise UnreadableImage("it has several frames; name this file alone")
        return _slice(file, dataset, None)


def _of_frame(pydicom: Any, dataset: Any, frame: int) -> Any:
    """Return a data set in which the values of one frame are where other objects have them."""
    lifted = pydicom.Dataset()
    lifted.update(dataset)
    shared = list(dataset.get("SharedFunctionalGroupsSequence") or ())
    own = list(dataset.get("PerFrameFunctionalGroupsSequence") or ())
    for group in shared[:1] + own[frame : frame + 1]:
        for macro in _FRAME_MACROS:
            for item in group.get(macro) or ():
                lifted.update(item)
    return lifted


def _slice(file: Path, dataset: Any, frame: int | None) -> _Slice:
    """Return a slice of a data set.

    Args:
        file: Of the slice.
        dataset: With the values of the slice where files of one slice have them.
        frame: Position in the file, from 0, or None for a file of one slice.

    Raises:
        UnreadableImage: Its place, orientation or spacing is missing or none of an image.
    """
    directions = np.array(_vector(dataset, "ImageOrientationPatient", 6)).reshape(2, 3)
    height, width = _vector(dataset, "PixelSpacing", 2)
    lengths = np.linalg.norm(directions, axis=1)
    if abs(lengths - 1).max() > _ODD or abs(directions[0] @ directions[1]) > _ODD:
        raise UnreadableImage("its ImageOrientationPatient is none of an image")
    if min(height, width) <= 0:
        raise UnreadableImage("its PixelSpacing is 0")
    modality = str(dataset.get("Modality", "unknown"))
    is_scaled = bool(numbers_of(dataset, "RescaleIntercept"))
    units = ""
    if modality == "CT" and is_scaled:
        units = str(dataset.get("RescaleType") or "HU")
    kind = {
        "modality": modality,
        "size": (int(dataset.Rows), int(dataset.Columns)),
        "photometric interpretation": str(dataset.get("PhotometricInterpretation", "")),
        "units": "HU" if units.startswith("HU") else units,
    }
    return _Slice(
        file.name if frame is None else f"frame {frame + 1}",
        file,
        frame,
        str(dataset.get("SeriesInstanceUID")),
        f"{dataset.get('SeriesNumber', '?')} '{dataset.get('SeriesDescription', '')}'",
        kind,
        directions / lengths[:, None],
        (height, width),
        np.array(_vector(dataset, "ImagePositionPatient", 3)),
        rescaling_of(dataset),
        _stored_range(dataset),
    )


def _stored_range(dataset: Any) -> tuple[int, int]:
    bits = int(dataset.get("BitsStored", 16))
    if dataset.get("PixelRepresentation"):
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


def _vector(dataset: Any, name: str, length: int) -> list[float]:
    """Return the numbers of an attribute that every slice of a volume has.

    Raises:
        UnreadableImage: There are more or fewer than ``length`` numbers, or none.
    """
    numbers = numbers_of(dataset, name)
    if len(numbers) != length:
        raise UnreadableImage(
            f"it has no {name}, so that it is no slice of a volume; save the image to show by itself"
        )
    return numbers


def _check_alike(slices: list[_Slice]) -> list[_Slice]:
    """Return slices, unchanged, that are of one volume but for their places.

    Raises:
        UnreadableImage: They are in colour, of several series, or differ in kind, orientation or spacing.
    """
    first = slices[0]
    if not first.kind["photometric interpretation"].startswith("MONOCHROME"):
        raise UnreadableImage(f"its slice {first.name} is in colour, which no volume is")
    for other in slices[1:]:
        if other.series != first.series:
            raise UnreadableImage(
                f"it holds the series {first.series_name} ({first.name}) and {other.series_name} ({other.name}); put "
                f"each into a folder of its own"
            )
        names = f"its slices {first.name} and {other.name}"
        for fact, value in first.kind.items():
            if other.kind[fact] != value:
                raise UnreadableImage(f"{names} differ in {fact} ({value}, {other.kind[fact]})")
        if abs(other.directions - first.directions).max() > _SAME_DIRECTION:
            raise UnreadableImage(
                f"{names} differ in orientation; they are no slices of one volume"
            )
        if not np.allclose(other.spacing, first.spacing, rtol=_SAME_SPACING, atol=0):
            raise UnreadableImage(f"{names} differ in PixelSpacing")
    return slices


def _in_order(slices: list[_Slice]) -> list[_Slice]:
    """Return slices sorted along their normal.

    Raises:
        UnreadableImage: They do not lie equally far apart.
    """
    normal = np.cross(*slices[0].directions)
    ordered = sorted(slices, key=lambda one_slice: float(one_slice.place @ normal))
    pairs = list(itertools.pairwise(ordered))
    steps = [after.place - before.place for before, after in pairs]
    distances = [float(step @ normal) for step in steps]
    for (before, after), distance in zip(pairs, distances, strict=True):
        if distance < _SAME_PLACE:
            raise UnreadableImage(
                f"its slices {before.name} and {after.name} lie at the same place; leave one volume in it, without "
                f"copies and other points of time"
            )
    if not pairs:
        return ordered
    usual = sorted(range(len(pairs)), key=distances.__getitem__)[(len(pairs) - 1) // 2]
    for (before, after), step, distance in zip(pairs, steps, distances, strict=True):
        if np.linalg.norm(step - steps[usual]) > _UNEVEN * distances[usual]:
            raise UnreadableImage(
                f"its slices {before.name} and {after.name} are {distance:g} mm apart and others "
                f"{distances[usual]:g} mm, or lie aside: slices are missing, or of several volumes"
            )
    return ordered


def _type_of(slices: Sequence[_Slice]) -> np.dtype[Any]:
    """Return int16 if it holds the values of all slices, else float32."""
    for one_slice in slices:
        slope, intercept = one_slice.rescaling
        ends = [slope * end + intercept for end in one_slice.stored_range]
        is_whole = slope.is_integer() and intercept.is_integer()
        if not is_whole or min(ends) < _LARGEST.min or max(ends) > _LARGEST.max:
            return np.dtype(np.float32)
    return np.dtype(np.int16)


def _values(slices: Sequence[_Slice]) -> Iterator[Voxels]:
    """Yield the values of slices, those of one file without reading it again."""
    for file, of_file in itertools.groupby(slices, key=lambda one_slice: one_slice.file):
        chosen = list(of_file)
        with (
            _name_in_errors(chosen[0].name),
            reading_dicom(file, force=True, cost=2) as (pydicom, dataset),
        ):
            for one_slice in chosen:
                stored = pydicom.pixels.pixel_array(dataset, index=one_slice.frame)
                yield _of_modality(pydicom.pixels, dataset, stored, one_slice.rescaling)


def _of_modality(
    pixels: Any,
    dataset: Any,
    stored: Voxels,
    rescaling: tuple[float, float],
) -> Voxels:
    """Return the modality's values of a slice. Padding, which is no part of the body, has the least of the others."""
    if dataset.get("ModalityLUTSequence"):
        values: Voxels = pixels.apply_modality_lut(stored, dataset).astype(np.float32)
    else:
        values = stored.astype(np.float64) * rescaling[0] + rescaling[1]
    padding = is_padding(dataset, stored)
    if padding.any() and not padding.all():
        values[padding] = values[~padding].min()
    return values
