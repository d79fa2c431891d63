"""Small NIfTI volumes and DICOM files; pydicom is imported when one is written, as not every test needs it."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

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
        header["qform_code"], header["quatern_b"], header["quatern_c"], header["quatern_d"] = (
            1,
            *rotation,
        )
    elif directions is not None:
        affine = np.eye(4)
        affine[:3, :3] = directions
        header.set_sform(affine, code=1)
    stored = voxels.astype(voxels.dtype.newbyteorder(order))
    return bytes(header.binaryblock).ljust(352, b"\0") + stored.tobytes(order="F")


def put_nifti(path: Path, voxels: NDArray[np.generic]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(nifti(voxels), mtime=0))
    return path


def scan(number: int) -> NDArray[np.int16]:
    """Return voxels of a drawn scan: a bright block in the dark; every number has its own."""
    voxels = np.full((10, 9, 6), -1000, np.int16)
    voxels[2:5, 3:7, 1:4] = 40 + number
    return voxels


def put_dicom(
    path: Path,
    values: NDArray[Any],
    kind: str = "MONOCHROME2",
    stored: int = 12,
    syntax: str = "1.2.840.10008.1.2.1",
    fields: Mapping[str, Any] | None = None,
) -> Path:
    """Write one image, or frames of one, in a transfer syntax (by default uncompressed).

    Args:
        path: Where to; its folder is created.
        values: Shape (rows, columns) or (frames, rows, columns), unsigned.
        kind: Photometric interpretation.
        stored: Bits stored.
        syntax: UID of the transfer syntax.
        fields: More fields of the header.
    """
    import pydicom

    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.UID("1.2.840.10008.5.1.4.1.1.1.2")
    meta.MediaStorageSOPInstanceUID = pydicom.uid.UID("1.2.3.4")
    dataset = pydicom.dataset.FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    dataset.SOPClassUID, dataset.SOPInstanceUID = (
        meta.MediaStorageSOPClassUID,
        meta.MediaStorageSOPInstanceUID,
    )
    dataset.Rows, dataset.Columns = values.shape[-2:]
    if values.ndim == 3:
        dataset.NumberOfFrames = len(values)
    dataset.SamplesPerPixel, dataset.PixelRepresentation = 1, 0
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = (
        8 * values.itemsize,
        stored,
        stored - 1,
    )
    dataset.PhotometricInterpretation = kind
    dataset.PixelData = values.tobytes()
    for name, value in (fields or {}).items():
        setattr(dataset, name, value)
    if syntax != pydicom.uid.ExplicitVRLittleEndian:
        dataset.compress(syntax)
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return path


def put_series(
    folder: Path,
    values: NDArray[Any],
    directions: Sequence[float] = (1, 0, 0, 0, 1, 0),
    spacing: tuple[float, float, float] = (2, 1, 1),
    syntax: str = "1.2.840.10008.1.2.1",
    **fields: Any,
) -> list[Path]:
    """Write a CT series, one file for each slice, of values of shape (slices, rows, columns) from -1024 on.

    Slices follow each other along the normal of ``directions``, ``spacing`` (between slices, rows, columns) apart; the
    names of the files say nothing about their order.
    """
    normal = np.cross(directions[:3], directions[3:])
    paths = []
    for number, slice_values in enumerate(values):
        place = [float(part) for part in number * spacing[0] * normal + (-7, 5, 30)]
        header = {
            "Modality": "CT",
            "RescaleSlope": "1",
            "RescaleIntercept": "-1024",
            "SeriesInstanceUID": "1.2.3",
            "SeriesNumber": 2,
            "SeriesDescription": "Thorax",
            "ImagePositionPatient": place,
            "ImageOrientationPatient": list(directions),
            "PixelSpacing": list(spacing[1:]),
        }
        path = folder / f"IM{number * 7 % len(values):03}{number:03}"
        stored = (slice_values + 1024).astype(np.uint16)
        paths.append(put_dicom(path, stored, stored=12, syntax=syntax, fields=header | fields))
    return paths


def put_frames(path: Path, values: NDArray[Any], distance: float = 2.0, **frame: Any) -> Path:
    """Write an enhanced CT of axial frames, of values of shape (frames, rows, columns), ``distance`` mm apart."""
    import pydicom

    def item(**content: Any) -> Any:
        dataset = pydicom.Dataset()
        for name, value in content.items():
            setattr(dataset, name, value)
        return dataset

    groups = [
        item(PlanePositionSequence=[item(ImagePositionPatient=[0.0, 0.0, distance * number])])
        for number in range(len(values))
    ]
    shared = item(
        PlaneOrientationSequence=[item(ImageOrientationPatient=[1, 0, 0, 0, 1, 0])],
        PixelMeasuresSequence=[item(PixelSpacing=[1, 1])],
        PixelValueTransformationSequence=[
            item(RescaleSlope="1", RescaleIntercept="-1024", RescaleType="HU")
        ],
    )
    fields = {
        "Modality": "CT",
        "SharedFunctionalGroupsSequence": [shared],
        "PerFrameFunctionalGroupsSequence": groups,
    }
    return put_dicom(path, (values + 1024).astype(np.uint16), stored=12, fields=fields | frame)


def noise(number: int) -> NDArray[np.uint16]:
    """Return values of 12 bits, shape (8, 6); every number has its own."""
    return np.random.default_rng(number).integers(0, 4096, (8, 6)).astype(np.uint16)
