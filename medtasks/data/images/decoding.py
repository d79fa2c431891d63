"""Decoding of image files for models, to RGB pixels of 8 bits by one of two rules, and storing them for a dataset.

==========================  =======================================  ===========================================
the file holds              ``linear``                               ``reference``
==========================  =======================================  ===========================================
grey or RGB of 8 bits       as it is                                 as it is
1 bit, palette, YCbCr, LAB  black and white; its colours             the same
CMYK                        to RGB, without its colour profile       the same
more than 8 bits            scaled, see :mod:`.deep_images`          cut off at 255; 16-bit colours lose the low byte
transparency                onto black                               dropped: hidden colours appear
EXIF orientation            turned upright                           ignored, but in TIFF
several frames              the first                                the first
DICOM                       windowed, see :mod:`.dicom_images`       not read
==========================  =======================================  ===========================================

``reference`` is Pillow's ``convert("RGB")``, with which the published toolkits read their images; the catalogue's
datasets keep it, so that their numbers and fingerprints stay what they are. ``linear`` is for everything else.

Transparency goes onto black because that is the ground of radiographs, scans and fundus images, and because most
programs write black below it, so that both rules agree on most files. Colour profiles (ICC) are ignored by both rules.
A strict decoder is part of both: a cut file is an error, whatever the process is set to.
"""

import enum
import re
import struct
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from medtasks.data.images.file_kinds import describe_file, is_bare_data_set, is_dicom, read_head
from medtasks.data.images.strict_pillow import (
    FORMATS,
    ON_BLACK,
    ConvertedImage,
    ImageSource,
    NoReader,
    Range,
    UnclearRange,
    UnreadableImage,
    open_image,
    strict_decoding,
)
from medtasks.data.images.value_ranges import central_range, is_range
from medtasks.data.named_files import MOST_MEMORY, check_kind, check_size
from medtasks.errors import MedTasksError

AS_STORED = "8 bits as stored"
"""The conversion of an image that was not changed."""
NEARLY_FLAT = "nearly flat: values span less than 32 of 255"
"""The last conversion of an image of which a model sees next to nothing."""

# Decoders of rare formats raise any of these on damaged files.
_BROKEN = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    RuntimeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    MemoryError,
    TypeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
_DEEP_COST = 45  # bytes of memory for each value of more than 8 bits
_COST = 10  # for a pixel
_COPIED_COST = 20  # for a transparent pixel, or in formats whose libraries keep copies
_COPIED = ("JPEG2000", "WEBP")
_PLAIN = ("1", "L", "RGB", "LA", "RGBA", "La", "RGBa")
_LEAST_SEEN = 32  # levels
_BITS, _ORIENTATION, _PLANAR, _FORMAT = 258, 274, 284, 339  # TIFF tags, the second of EXIF, too
_TURNED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_LYING = [_TURNED[orientation] for orientation in (5, 6, 7, 8)]


class ImageRule(enum.StrEnum):
    """Conversion of a file's pixels for models."""

    REFERENCE = "reference"
    LINEAR = "linear"


@dataclass(frozen=True)
class Decoding:
    """A rule and the user's range of the values."""

    rule: ImageRule = ImageRule.LINEAR
    value_range: Range | None = None
    """Values that are black and white in images with more than 8 bits; None: as files say."""

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "Decoding | None":
        """Read ``image_rule`` and ``image_range`` of a task or folder, or return None where it has neither.

        Raises:
            MedTasksError: A value is impossible.
        """
        rule = settings.get("image_rule")
        bounds = settings.get("image_range")
        if rule is None and bounds is None:
            return None
        if rule not in (None, *ImageRule):
            raise MedTasksError(f"image_rule is {rule!r}; it can be {' or '.join(ImageRule)}")
        chosen = ImageRule(rule or ImageRule.LINEAR)
        if bounds is None:
            return cls(chosen)
        if not is_range(bounds) or not bounds[0] < bounds[1]:
            raise MedTasksError(
                f"image_range is {bounds!r}; it must be [LOW, HIGH], the values that are black and white"
            )
        if chosen is ImageRule.REFERENCE:
            raise MedTasksError(
                "image_range is for the image_rule linear; reference cuts values off at 255"
            )
        return cls(chosen, (float(bounds[0]), float(bounds[1])))


REFERENCE = Decoding(ImageRule.REFERENCE)
LINEAR = Decoding()


@dataclass(frozen=True)
class DecodedImage:
    """An image as a model sees it."""

    pixels: Image.Image  # RGB
    size: tuple[int, int]  # width and height of the whole image; ``pixels`` may be smaller
    conversions: tuple[str, ...] = ()  # of the file's values; empty for 8 bits as stored


def decode_image(
    source: ImageSource, decoding: Decoding, side: int | None = None
) -> DecodedImage:
    """Decode an image completely.

    Args:
        source: The file.
        decoding: Rule of the conversion.
        side: Pixels per side that are enough; a JPEG is decoded at down to an eighth of its size then. None decodes the
            whole size.

    Raises:
        FileNotFoundError: There is no such file.
        UnclearRange: It is unknown which values of an image with more than 8 bits are black and white.
        UnreadableImage: It is truncated, damaged or no image; the message does not name the file.
    """
    try:
        if isinstance(source, Path):
            check_size(check_kind(source).st_size)
        with strict_decoding():
            seen = _decode(source, decoding, side)
            return replace(seen, conversions=(*seen.conversions, *flat_mark(seen.pixels)))
    except (FileNotFoundError, UnreadableImage):
        raise
    except _BROKEN as error:
        raise UnreadableImage(_cause(error, source)) from error


def _cause(error: Exception, source: ImageSource) -> str:
    """Describe an error without the name of the file, which is mostly a stream or a copy."""
    if isinstance(error, UnidentifiedImageError):
        kind = describe_file(read_head(source))
        hint = f", but {kind}" if kind else f" ({', '.join(FORMATS)}, DICOM)"
        return f"it is no image that can be read{hint}"
    if isinstance(error, Image.DecompressionBombError):
        return f"it has more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels; save it smaller"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return re.sub(r" <[^>]* object at 0x[0-9a-f]+>", "", str(error)) or type(error).__name__


def decode_for_viewing(
    source: ImageSource,
    decoding: Decoding = LINEAR,
    side: int | None = None,
) -> DecodedImage:
    """Decode an image to view or compare it.

    An image whose range is unclear, which no model would see, is stretched. Arguments (also ``side=None``, for the
    whole size) and all other errors are those of :func:`decode_image`.
    """
    try:
        return decode_image(source, decoding, side)
    except UnclearRange as unclear:
        low, high = unclear.values
    white = high if high > low else low + 1
    seen = decode_image(source, Decoding(ImageRule.LINEAR, (low, white)), side)
    conversions = ("scaled from where nearly all its values are", *seen.conversions[1:])
    return replace(seen, conversions=conversions)


def fault_of_kind(error: OSError) -> str | None:
    """Return the fault of all images of one kind and how to fix it, or None where the one file is broken."""
    if isinstance(error, UnclearRange):
        return "nothing says which values of an image are black and white; save it with 8 bits"
    return str(error) if isinstance(error, NoReader) else None


def flat_mark(pixels: Image.Image) -> tuple[str, ...]:
    """Return NEARLY_FLAT for an image none of whose channels uses an eighth of the range, but for outliers.

    Example:
        >>> flat_mark(Image.new("RGB", (8, 8)))
        ('nearly flat: values span less than 32 of 255',)
    """
    for band in pixels.getbands():
        counts = pixels.getchannel(band).histogram()
        levels = [level for level, count in enumerate(counts) if count]
        low, high = central_range(levels, [counts[level] for level in levels])
        if high - low >= _LEAST_SEEN:
            return ()
    return (NEARLY_FLAT,)


def is_whole_image(source: ImageSource) -> bool:
    """Return whether an image decodes completely."""
    try:
        decode_image(source, REFERENCE)
    except OSError:
        return False
    return True


def _decode_dicom(source: ImageSource, decoding: Decoding) -> DecodedImage:
    # NumPy, which most images and commands do without.
    """Decode a DICOM file at its whole size, by the window of the file or of the user."""
    from medtasks.data.images.dicom_images import read_window

    pixels, done = read_window(source, decoding.value_range)
    return DecodedImage(pixels.convert("RGB"), pixels.size, tuple(done))


def _decode(source: ImageSource, decoding: Decoding, side: int | None) -> DecodedImage:
    """Decode a file of any format, upright where the rule asks for that.

    Arguments are those of :func:`decode_image`, which turns the errors of Pillow and pydicom into its own.
    """
    is_linear = decoding.rule is ImageRule.LINEAR
    if is_linear and is_dicom(read_head(source)):  # such a file may be a TIFF file as well
        return _decode_dicom(source, decoding)
    try:
        image = open_image(source)
    except UnidentifiedImageError:
        if is_linear and is_bare_data_set(read_head(source)):
            return _decode_dicom(source, decoding)
        raise
    with image:
        size = image.size
        raw = _layout_of(image)
        if side is not None:
            image.draft(None, (side, side))
        pixels, done = _to_rgb(image, raw, source, decoding)
        turn = _turn_of(image)
        if turn is not None and is_linear:
            done.append("EXIF orientation applied")
            size = size[::-1] if turn in _LYING else size
            pixels = pixels.transpose(turn)
        elif turn is not None:
            done.append("EXIF orientation ignored")
        return DecodedImage(pixels, size, (*done, *_other_conversions(image)))


def _layout_of(image: Image.Image) -> str:
    """Return Pillow's name for the layout of the values in a file that is opened and not decoded yet."""
    tiles = getattr(image, "tile", None)
    args = tiles[0].args if tiles else ""
    return str(args[0] if isinstance(args, tuple) and args else args or "")


def _turn_of(image: Image.Image) -> Image.Transpose | None:
    """Return the turn that puts an image upright. TIFF files have been turned when they are decoded."""
    try:
        return _TURNED.get(image.getexif().get(_ORIENTATION, 1))
    except _BROKEN:
        return None


def _other_conversions(image: Image.Image) -> list[str]:
    """Name the conversions of a decoded image that have nothing to do with the depth of its values."""
    conversions = []
    if image.mode in ("P", "PA"):
        conversions.append("palette to its colours")
    elif image.mode not in _PLAIN and not image.mode.startswith(("I", "F")):
        conversions.append(f"{image.mode} to RGB")
    with suppress(*_BROKEN):
        if getattr(image, "is_animated", False):
            conversions.append("first of several frames")
    return conversions


def _to_rgb(
    image: Image.Image,
    raw: str,
    source: ImageSource,
    decoding: Decoding,
) -> ConvertedImage:
    """Decode an opened image by a rule, without turning it, and name the conversions.

    Args:
        image: The image, not decoded yet.
        raw: Pillow's name for the layout of the values in its file.
        source: Its file.
        decoding: The rule.

    Raises:
        UnreadableImage: By the rule ``linear``, its values are stored in a way that Pillow misreads.
        UnclearRange: See :func:`~medtasks.data.images.deep_images.scale_to_8_bits`.
        UnusableFile: It would fill the memory.
    """
    # More than 8 bits per value that reach Python, or could.
    deep = image.mode.startswith(("I", "F")) or (image.mode in ("RGB", "RGBA") and ";16" in raw)
    cost = _COST  # bytes for a pixel, as measured
    if deep and decoding.rule is ImageRule.LINEAR:
        cost = _DEEP_COST * len(image.getbands())
    elif image.has_transparency_data or image.format in _COPIED:
        cost = _COPIED_COST
    check_size(cost * image.width * image.height, MOST_MEMORY)
    if decoding.rule is ImageRule.REFERENCE:
        return _as_reference(image, deep)
    tags = getattr(image, "tag_v2", {})
    if tags.get(_PLANAR) == 2 and max(tags.get(_BITS, (8,))) > 8:
        raise UnreadableImage(
            "it has 16 bits in separate planes, which Pillow misreads; save the colours interleaved"
        )
    if deep:
        from medtasks.data.images.deep_images import scale_to_8_bits

        pixels, done = scale_to_8_bits(image, raw, source, decoding.value_range)
        return pixels.convert("RGB"), done
    if tags.get(_FORMAT, (1,))[0] == 2:  # signed
        raise UnreadableImage(
            "it has signed values, which Pillow misreads; save it with unsigned ones of 8 bits"
        )
    return _on_black(image)


def _as_reference(image: Image.Image, deep: bool) -> ConvertedImage:
    """Decode an opened image by the rule ``reference``. ``deep`` says whether its values have more than 8 bits."""
    pixels = image.convert("RGB")
    done = []
    if image.mode.startswith(("I", "F")):
        done.append("more than 8 bits cut off at 255")
    elif deep:
        done.append("low byte of 16 bits dropped")
    # Nothing below changes pixels, and damaged metadata do not make a file unreadable.
    with suppress(*_BROKEN):
        if image.has_transparency_data:
            alpha = image.convert("RGBA").getchannel("A")
            if alpha.getextrema()[0] != 255:
                done.append("transparency dropped")
    return pixels, done


def _on_black(image: Image.Image) -> ConvertedImage:
    """Return an opened image in RGB, on black where it is transparent, and the conversions: none if it is not."""
    if not image.has_transparency_data:
        return image.convert("RGB"), []
    transparent = image.convert("RGBA")
    alpha = transparent.getchannel("A")
    colours = transparent.convert("RGB")
    if alpha.getextrema()[0] == 255:
        return colours, []
    ground = Image.new("RGB", image.size)
    ground.paste(colours, mask=alpha)
    return ground, [ON_BLACK]
