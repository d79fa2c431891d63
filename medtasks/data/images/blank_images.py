"""Uniform grey stand-ins of the same size as an image, for the ``_blank`` variant."""

import gzip
import hashlib
import math
from pathlib import Path

import numpy as np
from PIL import Image

from medtasks.data.images.volume_files import HEADER_BYTES, read_header, unpacked_volume
from medtasks.errors import MedTasksError
from medtasks.home import home, written_whole

GREY = (128, 128, 128)
FOLDER_NAME = "blank_volumes"
_VOXELS_AT = 352  # bytes
_PIECE = 1 << 20  # bytes


def blank_image(image: Image.Image) -> Image.Image:
    """Return a grey RGB image of the same size."""
    return Image.new("RGB", image.size, GREY)


def blank_volume(path: Path) -> Path:
    """Return a grey volume of the same size and orientation, written once below ``MEDTASKS_HOME``.

    Its voxels are 0.5, which models that scale volumes to 0 and 1 leave as it is. Nothing else of the original's file
    is in it, and nothing of its name in that of the new one. An OSError is about the original, a MedTasksError about
    the new one.
    """
    with unpacked_volume(path) as plain:
        header = read_header(plain.read(HEADER_BYTES))
    import nibabel

    affine = header.get_best_affine()
    affine[:3, 3] = 0
    made = nibabel.Nifti1Header()  # of bytes that are 1 and mean 0.5
    made.set_data_dtype(np.uint8)
    made.set_data_shape(header["dim"][1:4])
    made["pixdim"] = [1, *np.linalg.norm(affine[:3, :3], axis=0), 0, 0, 0, 0]
    made["vox_offset"], made["scl_slope"] = _VOXELS_AT, 0.5
    made.set_sform(affine, code=1)
    beginning = bytes(made.binaryblock).ljust(_VOXELS_AT, b"\0")
    blank = home() / FOLDER_NAME / f"{hashlib.sha256(beginning).hexdigest()[:16]}.nii.gz"
    if not blank.is_file():
        try:
            with (
                written_whole(blank) as partial,
                partial.open("wb") as stream,
                gzip.GzipFile("", "wb", mtime=0, fileobj=stream) as packed,
            ):
                packed.write(beginning)
                voxels = math.prod(header["dim"].tolist()[1:4])
                for start in range(0, voxels, _PIECE):
                    packed.write(b"\1" * min(_PIECE, voxels - start))
        except OSError as error:
            raise MedTasksError(
                f"cannot write a grey volume in {blank.parent} ({error.strerror or error}); make room there, or set "
                f"MEDTASKS_HOME to another folder"
            ) from error
    return blank
