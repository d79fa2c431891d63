"""Decoding images strictly: a cut file is an error, whatever the process is set to."""

import contextlib
import re
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from PIL import Image, ImageFile

_BROKEN = (OSError, EOFError, SyntaxError, ValueError, struct.error, zlib.error, Image.DecompressionBombError)
_setting = threading.Lock()
_strict: list[bool] = []  # what each block that is open found; blocks of several threads may overlap


class UnreadableImage(OSError):
    """The bytes are truncated, damaged or no image; an OSError of another kind is about the disk."""


@contextlib.contextmanager
def strict_decoding() -> Iterator[None]:
    """Make Pillow refuse truncated files within the block; importing the harness makes it accept them silently."""
    with _setting:
        _strict.append(ImageFile.LOAD_TRUNCATED_IMAGES)
        ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        yield
    finally:
        with _setting:
            # The first block found the setting of the process, later ones may have found False.
            ImageFile.LOAD_TRUNCATED_IMAGES = _strict[0] if len(_strict) == 1 else False
            _strict.pop()


def decoded(source: Path | IO[bytes]) -> Image.Image:
    """Decode an image completely.

    Returns:
        The image in RGB.

    Raises:
        FileNotFoundError: There is no such file.
        UnreadableImage: The file is truncated, damaged or no image.
    """
    try:
        with strict_decoding(), Image.open(source) as image:
            return image.convert("RGB")
    except FileNotFoundError:
        raise
    except _BROKEN as error:
        # Pillow names what it was given, and a stream by its address in memory, which differs from run to run.
        raise UnreadableImage(re.sub(r" <[^>]* object at 0x[0-9a-f]+>", "", str(error))) from error


def is_whole_image(source: Path | IO[bytes]) -> bool:
    """Return whether ``source`` decodes completely."""
    try:
        decoded(source)
    except OSError:
        return False
    return True
