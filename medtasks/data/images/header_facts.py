"""Facts about an image from its file's header, for people who wonder what was done with it."""

import contextlib
from pathlib import Path
from typing import Any

from PIL import UnidentifiedImageError

from medtasks.data.images.file_kinds import describe_file, is_bare_data_set, is_dicom, read_head
from medtasks.data.images.strict_pillow import open_image, strict_decoding

_BITS = {"1": 1, "I;16": 16, "I": 32, "F": 32}  # of a value, by Pillow's mode; 8 in others
_PNG_DEPTH = 24  # place of the byte in the file
_TIFF_DEPTH, _ORIENTATION = 258, 274  # tags


def header_facts(path: Path) -> dict[str, str]:
    """Return what the header of an image file says about its pixels, by name of the fact.

    What cannot be read is left out: the caller shows why.
    """
    # NumPy, which most images and commands do without.
    from medtasks.data.images.dicom_images import add_dicom_facts

    facts: dict[str, str] = {}
    # Decoders of rare formats raise anything on damaged files.
    with contextlib.suppress(Exception):
        head = read_head(path)
        if is_dicom(head) or not _add_plain_facts(path, head, facts):
            add_dicom_facts(path, facts)
    return facts


def _add_plain_facts(path: Path, head: bytes, facts: dict[str, str]) -> bool:
    """Add the facts of a file that Pillow reads, and return whether it is no DICOM file without preamble."""
    try:
        with strict_decoding(), open_image(path) as image:
            facts["kind"] = str(image.format)
            facts["size"] = f"{image.width} x {image.height}"
            tags: Any = getattr(image, "tag_v2", {})
            depth = max(tags.get(_TIFF_DEPTH, (_BITS.get(image.mode, 8),)))
            if image.format == "PNG":
                depth = head[_PNG_DEPTH]
            channels = len(image.getbands())
            facts["bits"] = f"{depth}, {channels} channel{'' if channels == 1 else 's'}"
            turn = image.getexif().get(_ORIENTATION, 1)
            if turn != 1:
                facts["orientation"] = f"EXIF {int(turn)}"
            if image.mode != "P":
                extrema: Any = image.getextrema()
                # A pair for each channel, or one pair for the only channel.
                ends = extrema if isinstance(extrema[0], tuple) else (extrema,)
                low = min(least for least, _ in ends)
                high = max(largest for _, largest in ends)
                facts["values"] = f"{low:g} to {high:g}"
    except UnidentifiedImageError:
        facts["kind"] = describe_file(head).partition(";")[0] or "unknown"
        return not is_bare_data_set(head)
    return True
