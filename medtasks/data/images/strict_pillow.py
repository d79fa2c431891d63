"""Pillow as this package uses it: a cut file is an error, and warnings about its metadata are dropped."""

import logging
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import PIL
from PIL import Image, ImageFile

ImageSource = Path | IO[bytes]
"""A file, or a stream that can be rewound."""
Range = tuple[float, float]
"""Values that are black and white."""
ConvertedImage = tuple[Image.Image, list[str]]
"""An image in grey or RGB, and the names of the conversions that made it, none for values as stored."""

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP", "JPEG2000", "AVIF")
"""Formats of medical images, besides DICOM and NIfTI; Pillow reads 30 more, one of them with another program."""
ON_BLACK = "transparency onto black"

_PILLOW = os.path.dirname(PIL.__file__) + os.sep
_setting = threading.Lock()
# Settings to restore, an entry for each block that is open. Blocks of several threads may overlap.
_undo: list[ExitStack] = []


class UnreadableImage(OSError):
    """The bytes are truncated, damaged or no image. Another OSError is about the disk."""


class NoReader(UnreadableImage):
    """The package that reads such files is not installed. The message does not name the file."""


class UnclearRange(UnreadableImage):
    """It is unknown which of an image's values are black and white.

    Args:
        fault: Beginning of the message.
        values: The least and the largest value.
    """

    def __init__(self, fault: str, values: Range) -> None:
        super().__init__(
            f"{fault}; say which values are black and white with image_range: [LOW, HIGH], or save it with 8 bits"
        )
        self.values = values


def open_image(source: ImageSource) -> Image.Image:
    """Open an image in one of ``FORMATS``.

    Raises:
        UnidentifiedImageError: It has another format.
    """
    return Image.open(source, formats=FORMATS)


@contextmanager
def strict_decoding() -> Iterator[None]:
    """Make Pillow refuse truncated files within the block.

    Importing the harness makes it accept them silently. Its warnings and log lines about metadata, size and palettes
    are dropped: they name no file that a user knows, and what matters is an error or in a dataset's manifest.
    """
    with _setting:
        # The first block keeps the settings of the process, which come back when the last one ends.
        undo = ExitStack()
        if not _undo:
            undo.callback(
                setattr, ImageFile, "LOAD_TRUNCATED_IMAGES", ImageFile.LOAD_TRUNCATED_IMAGES
            )
            ImageFile.LOAD_TRUNCATED_IMAGES = False
            # The others only log for debugging
            logger = logging.getLogger("PIL.TiffImagePlugin")
            undo.callback(setattr, logger, "disabled", logger.disabled)
            logger.disabled = True
            # Not by a filter: changing the filters makes Python give every other warning again that it had given once.
            showwarning = warnings.showwarning

            def show(
                message: Warning | str,
                category: type[Warning],
                filename: str,
                *args: Any,
                **where: Any,
            ) -> None:
                if not filename.startswith(_PILLOW):
                    showwarning(message, category, filename, *args, **where)

            undo.callback(setattr, warnings, "showwarning", showwarning)
            warnings.showwarning = show
        _undo.append(undo)
    try:
        yield
    finally:
        with _setting:
            if len(_undo) > 1:
                _undo.pop()
            else:
                _undo.pop().close()
