"""DICOM files made with pydicom; a module of its own, because not every test needs that package."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
    dataset.SOPClassUID, dataset.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    dataset.Rows, dataset.Columns = values.shape[-2:]
    if values.ndim == 3:
        dataset.NumberOfFrames = len(values)
    dataset.SamplesPerPixel, dataset.PixelRepresentation = 1, 0
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 8 * values.itemsize, stored, stored - 1
    dataset.PhotometricInterpretation = kind
    dataset.PixelData = values.tobytes()
    for name, value in (fields or {}).items():
        setattr(dataset, name, value)
    if syntax != pydicom.uid.ExplicitVRLittleEndian:
        dataset.compress(syntax)
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return path


def noise(number: int) -> NDArray[np.uint16]:
    """Return values of 12 bits, shape (8, 6); every number has its own."""
    return np.random.default_rng(number).integers(0, 4096, (8, 6)).astype(np.uint16)
