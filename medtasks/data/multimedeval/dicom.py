"""Mammograms from DICOM files to 8-bit grey images, as MultiMedEval shows them to models."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from medtasks.data.dicom import reading_dicom
from medtasks.data.strict_pillow import UnreadableImage

STRETCHED = "DICOM scaled from its least to its largest value"
_ALLOCATED_BITS = 16


def read_dicom(path: Path) -> Image.Image:
    """Read the image of a DICOM file.

    Every bit of a stored value counts, whatever ``BitsStored`` says; ``MONOCHROME1`` is inverted, so that dense tissue
    is bright; then the least value becomes 0 and the largest 255, rounded down. No window is applied. An image of a
    single value becomes black. Source: ``VinDrMammo.format_question`` in ``multimedeval/image_classification.py`` at
    d9ac283.

    Returns:
        A grey image (mode L) of the file's rows and columns.

    Raises:
        FileNotFoundError: There is no such file.
        UnreadableImage: The file is no DICOM file, is truncated, holds no single grey image, or is compressed in a
            way that no installed package decodes.
        MedTasksError: ``pydicom`` is not installed.
    """
    values = _stored_values(path)
    if values.ndim != 2 or not values.size:
        raise UnreadableImage(f"it holds values of shape {values.shape} and no single grey image")
    spread = values - values.min()
    grey = spread / (spread.max() or 1) * 255
    return Image.fromarray(grey.astype(np.uint8))


def _stored_values(path: Path) -> Any:
    """Return the values of all pixels, ``MONOCHROME1`` inverted."""
    with reading_dicom(str(path)) as pydicom:
        dataset = pydicom.dcmread(path)
        # Some files say 12 bits and use more.
        dataset.BitsStored = min(_ALLOCATED_BITS, dataset.BitsAllocated)
        values = dataset.pixel_array
        return values.max() - values if dataset.PhotometricInterpretation == "MONOCHROME1" else values
