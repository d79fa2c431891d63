"""Pillow as this package uses it: a cut file is an error, and remarks about its inside stay out of the terminal."""

import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import PIL
from PIL import ImageFile

Source = Path | IO[bytes]
"""A file, or a stream that can be rewound."""
Range = tuple[float, float]
"""Values that are black and white."""

ON_BLACK = "transparency onto black"

_PILLOW = os.path.dirname(PIL.__file__) + os.sep
_LOGGERS = ("PIL.TiffImagePlugin",)  # the others only log for debugging
_setting = threading.Lock()
_undo: list[contextlib.ExitStack] = []  # one for each block that is open; blocks of several threads may overlap


class UnreadableImage(OSError):
    """The bytes are truncated, damaged or no image; an OSError of another kind is about the disk."""


class NoReader(UnreadableImage):
    """The package that reads files of its kind is not installed; its message says so and nothing of the file."""


class UnclearRange(UnreadableImage):
    """Nothing says which of an image's values, ``found`` from least to largest, are black and white."""

    def __init__(self, what: str, found: Range) -> None:
        super().__init__(
            f"{what}; say which values are black and white with image_range: [LOW, HIGH], or save it with 8 bits"
        )
        self.found = found


@contextlib.contextmanager
def strict_decoding() -> Iterator[None]:
    """Make Pillow refuse truncated files within the block; importing the harness makes it accept them silently.

    Its warnings and log lines about metadata, size and palettes are dropped within the block: they name no file that a
    user knows, and what matters of them is an error or in a dataset's manifest.
    """
    with _setting:
        # The first block found the settings of the process and gives them back when the last one ends.
        undo = contextlib.ExitStack()
        if not _undo:
            undo.callback(setattr, ImageFile, "LOAD_TRUNCATED_IMAGES", ImageFile.LOAD_TRUNCATED_IMAGES)
            ImageFile.LOAD_TRUNCATED_IMAGES = False
            for logger in map(logging.getLogger, _LOGGERS):
                undo.callback(setattr, logger, "disabled", logger.disabled)
                logger.disabled = True
            # Not by a filter: changing the filters makes Python give every other warning again that it had given once.
            given = warnings.showwarning

            def show(message: Warning | str, category: type[Warning], filename: str, *args: Any, **where: Any) -> None:
                if not filename.startswith(_PILLOW):
                    given(message, category, filename, *args, **where)

            undo.callback(setattr, warnings, "showwarning", given)
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
