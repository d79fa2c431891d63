"""Image files of every mode, and what a model has to see of each, computed with NumPy alone.

Files are written by hand where Pillow cannot write them, and where it could write and read with the same mistake.
"""

import io
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, TiffImagePlugin

HEIGHT, WIDTH = 24, 36
ON_BLACK = "transparency onto black"
ORIENTATIONS: Mapping[int, Callable[[Any], Any]] = {
    1: lambda seen: seen,
    2: np.fliplr,
    3: lambda seen: np.rot90(seen, 2),
    4: np.flipud,
    5: lambda seen: seen.swapaxes(0, 1),
    6: lambda seen: np.rot90(seen, -1),
    7: lambda seen: np.rot90(seen, 2).swapaxes(0, 1),
    8: lambda seen: np.rot90(seen, 1),
}
"""What turns the stored pixels upright, by EXIF orientation (EXIF 2.32, 4.6.4)."""


@dataclass(frozen=True)
class ImageCase:
    """A file and what the rule ``linear`` makes of it."""

    data: bytes
    seen: Any  # RGB pixels, rows x columns x 3
    conversions: tuple[str, ...] = ()  # what the dataset's manifest says
    tolerance: int = 0  # by how many of 256 levels a pixel may differ


def ramp(largest: int = 255) -> Any:
    """Return values from 0 to ``largest`` that grow to the right and more so downwards; no symmetry maps them."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.rint((columns / (WIDTH - 1) + rows**2 / (HEIGHT - 1) ** 2) / 2 * largest).astype(
        np.int64
    )


def colours(largest: int = 255) -> Any:
    return np.stack([ramp(largest), ramp(largest)[::-1], ramp(largest)[:, ::-1] // 2], axis=2)


def in_8_bits(values: Any, low: float, high: float) -> Any:
    """Return RGB pixels of values scaled from a range."""
    grey = np.floor(np.clip((values - low) / (high - low), 0, 1) * 255 + 0.5).astype(np.uint8)
    return grey if grey.ndim == 3 else np.repeat(grey[..., None], 3, axis=2)


def on_black(seen: Any, opacity: Any) -> Any:
    """Return RGB pixels on a black ground; opacity is from 0 to 1."""
    return np.floor(seen * opacity[..., None] + 0.5).astype(np.uint8)


def png(
    values: Any, depth: int, colour_type: int, chunks: Sequence[tuple[bytes, bytes]] = ()
) -> bytes:
    """Return a PNG file of samples of 8 or 16 bits, with more chunks before the pixels."""
    rows = values.astype(">u2" if depth == 16 else "u1").reshape(len(values), -1)
    head = struct.pack(
        ">IIBBBBB", values.shape[1], values.shape[0], depth, colour_type, 0, 0, 0
    )
    pixels = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    parts = [(b"IHDR", head), *chunks, (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )


def tiff(
    values: Any,
    bits: int,
    photometric: int = 1,
    tags: Mapping[int, tuple[str, Sequence[float]]] | None = None,
) -> bytes:
    """Return an uncompressed TIFF file in the byte order of ``values``, rows x columns (x samples).

    ``photometric`` is 0: white is zero; 1: black is zero; 2: RGB; 3: palette; 5: CMYK; 6: YCbCr; 8: LAB; ``tags`` have
    the type as :mod:`struct` has it with the values.
    """
    order = ">" if values.dtype.byteorder == ">" else "<"
    height, width, *more = values.shape
    samples = more[0] if more else 1
    data = _packed_12_bits(values) if bits == 12 else values.tobytes()
    kind = {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    entries: dict[int, tuple[str, Sequence[float]]] = {
        256: ("L", [width]),
        257: ("L", [height]),
        258: ("H", [bits] * samples),
        259: ("H", [1]),
        262: ("H", [photometric]),
        273: ("L", [8]),
        277: ("H", [samples]),
        278: ("L", [height]),
        279: ("L", [len(data)]),
        284: ("H", [1]),
        339: ("H", [kind] * samples),
        **(tags or {}),
    }
    data += b"\0" * (len(data) % 2)
    start, behind = 8 + len(data), b""
    listed = struct.pack(f"{order}H", len(entries))
    for tag, (form, numbers) in sorted(entries.items()):
        packed = struct.pack(f"{order}{len(numbers)}{form}", *numbers)
        if len(packed) > 4:
            at = start + 2 + 12 * len(entries) + 4 + len(behind)
            behind += packed + b"\0" * (len(packed) % 2)
            packed = struct.pack(f"{order}L", at)
        code = {"B": 1, "H": 3, "L": 4, "f": 11, "d": 12}[form]
        listed += struct.pack(f"{order}HHL", tag, code, len(numbers)) + packed.ljust(4, b"\0")
    head = (b"MM" if order == ">" else b"II") + struct.pack(f"{order}HL", 42, start)
    return head + data + listed + bytes(4) + behind


def _packed_12_bits(values: Any) -> bytes:
    rows = ("".join(f"{value:012b}" for value in row) for row in values)
    return b"".join(int(row, 2).to_bytes(len(row) // 8, "big") for row in rows)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def turned(orientation: int, kind: str = "PNG") -> bytes:
    """Return a file of :func:`colours` with an EXIF orientation."""
    exif = Image.Exif()
    exif[274] = orientation
    options = {} if kind == "PNG" else {"quality": 100, "subsampling": 0}
    return saved(Image.fromarray(colours().astype(np.uint8)), kind, exif=exif, **options)


def image_cases() -> dict[str, ImageCase]:
    """Return a case for every mode, by the name of its file."""
    parts = (
        _of_8_bits(),
        _transparent(),
        _other_colours(),
        _deep_grey(),
        _deep_colours(),
        _turned(),
    )
    return {name: ImageCase(*case) for part in parts for name, case in part.items()}


_Cases = dict[str, tuple[Any, ...]]  # what a case has, by the name of its file


def _grey(values: Any) -> Any:
    return np.repeat(values.astype(np.uint8)[..., None], 3, axis=2)


def _palette() -> tuple[Image.Image, Any]:
    """Return a palette image of 8 colours, and these."""
    table = np.array(
        [
            (0, 0, 0),
            (255, 0, 0),
            (0, 255, 0),
            (0, 0, 255),
            (9, 99, 199),
            (255,) * 3,
            (77,) * 3,
            (1, 2, 3),
        ]
    )
    image = Image.frombytes("P", (WIDTH, HEIGHT), (ramp() % 8).astype(np.uint8).tobytes())
    image.putpalette(table.astype(np.uint8).tobytes())
    return image, table.astype(np.uint8)[ramp() % 8]


def _of_8_bits() -> _Cases:
    grey, rgb = ramp().astype(np.uint8), colours().astype(np.uint8)
    palette, seen = _palette()
    bits = (ramp() > 100).astype(np.uint8) * 255
    return {
        "L.png": (png(grey, 8, 0), _grey(grey)),
        "L white is zero.tif": (tiff(255 - grey, 8, 0), _grey(grey)),
        "RGB.png": (png(rgb, 8, 2), rgb),
        "1.png": (saved(Image.fromarray(bits).convert("1"), "PNG"), _grey(bits)),
        "P.png": (saved(palette, "PNG"), seen, ("palette to its colours",)),
    }


def _transparent() -> _Cases:
    grey, rgb, alpha = ramp(), colours(), ramp()[:, ::-1]
    share, black = alpha / 255, (ON_BLACK,)
    palette, seen = _palette()
    palette_black = (*black, "palette to its colours")
    one, clear = np.where(ramp() % 8 == 5, 0, 1), bytes([0, 40, 80, 120, 160, 200, 240, 255])
    several = np.frombuffer(clear, np.uint8)[ramp() % 8] / 255
    colormap = [*range(0, 65536, 256), *range(65535, 0, -256), *[257 * 200] * 256]
    table = np.stack([np.arange(256), 255 - np.arange(256), np.full(256, 200)], axis=1).astype(
        np.uint8
    )
    pa = tiff(
        np.stack([grey, alpha], 2).astype(np.uint8),
        8,
        3,
        {320: ("H", colormap), 338: ("H", [2])},
    )
    opaque = np.concatenate([rgb, np.full_like(rgb[..., :1], 255)], axis=2)
    last = rgb[-1, -1]
    rgb_clear = png(rgb, 8, 2, [(b"tRNS", struct.pack(">3H", *last))])
    return {
        "LA.png": (png(np.stack([grey, alpha], 2), 8, 4), on_black(_grey(grey), share), black),
        "RGBA.png": (png(np.dstack([rgb, alpha]), 8, 6), on_black(rgb, share), black),
        "RGBA opaque.png": (png(opaque, 8, 6), rgb.astype(np.uint8)),
        "L tRNS.png": (
            png(grey, 8, 0, [(b"tRNS", b"\0\x80")]),
            on_black(_grey(grey), grey != 128),
            black,
        ),
        "RGB tRNS.png": (rgb_clear, on_black(rgb, (rgb != last).any(axis=2)), black),
        "P one clear.png": (
            saved(palette, "PNG", transparency=5),
            on_black(seen, one),
            palette_black,
        ),
        "P many clear.png": (
            saved(palette, "PNG", transparency=clear),
            on_black(seen, several),
            palette_black,
        ),
        "P clear.gif": (
            saved(palette, "GIF", transparency=5),
            on_black(seen, one),
            palette_black,
        ),
        "PA.tif": (pa, on_black(table[grey], share), palette_black),
    }


def _other_colours() -> _Cases:
    flat = np.zeros((16, 16, 4), np.uint8)
    flat[:, 8:] = (200, 30, 90, 40)
    adobe = saved(
        Image.fromarray(flat, "CMYK"), "JPEG", quality=100
    )  # Pillow inverts the inks, as Adobe does
    seen = np.rint(
        (255 - flat[..., :3].astype(int)) * (255 - flat[..., 3:].astype(int)) / 255
    ).astype(np.uint8)
    return {"CMYK Adobe.jpg": (adobe, seen, ("CMYK to RGB",), 4)}


def _deep_grey() -> _Cases:
    deep, twelve, units = ramp(65535), ramp(4095), ramp(4000) - 1000
    of_16, of_12 = ("16 bits scaled from 0..65535",), ("12 bits scaled from 0..4095",)
    seen, seen_12, seen_units = (
        in_8_bits(deep, 0, 65535),
        in_8_bits(twelve, 0, 4095),
        in_8_bits(units, -1000, 3000),
    )
    stated = ("scaled from the SMinSampleValue..SMaxSampleValue of its file",)
    hounsfield = {340: ("f", [-1000]), 341: ("f", [3000])}
    largest = 2**32 - 1
    clear, sbit = [(b"tRNS", struct.pack(">H", deep[5, 5]))], [(b"sBIT", b"\x0c")]
    as_image = Image.fromarray(deep.astype(np.uint16))
    long = tiff(ramp(largest).astype("<u4"), 32, tags={341: ("d", [largest])})
    pgm = f"P5 {WIDTH} {HEIGHT} 4095\n".encode() + twelve.astype(">u2").tobytes()
    floats = tiff((ramp(1000) / 1000).astype("<f4"), 32)
    named = tiff(twelve.astype("<u2"), 16, tags={281: ("H", [4095])})
    return {
        "I;16.png": (png(deep, 16, 0), seen, of_16),
        "I;16.tif": (tiff(deep.astype("<u2"), 16), seen, of_16),
        "I;16B.tif": (tiff(deep.astype(">u2"), 16), seen, of_16),
        "I;16 white is zero.tif": (tiff((65535 - deep).astype("<u2"), 16, 0), seen, of_16, 1),
        "I;16 packed.tif": (saved(as_image, "TIFF", compression="tiff_lzw"), seen, of_16),
        "I;16 tRNS.png": (
            png(deep, 16, 0, clear),
            on_black(seen, deep != deep[5, 5]),
            (*of_16, ON_BLACK),
        ),
        "I;16.jp2": (saved(as_image, "JPEG2000"), seen, of_16),
        "12 bits.tif": (tiff(twelve.astype("<u2"), 12), seen_12, of_12),
        "12 of 16 bits, sBIT.png": (png(twelve, 16, 0, sbit), seen_12, of_12),
        "stretched, sBIT.png": (png(deep, 16, 0, sbit), seen, of_16),
        "12 of 16 bits, MaxSampleValue.tif": (named, seen_12, of_12),
        "I signed.tif": (tiff(units.astype("<i2"), 16, tags=hounsfield), seen_units, stated),
        "I.tif": (tiff(units.astype("<i4"), 32, tags=hounsfield), seen_units, stated),
        "I unsigned.tif": (long, in_8_bits(ramp(largest), 0, largest), stated),
        "I.pgm": (pgm, seen_12, of_16, 1),
        "F.tif": (floats, in_8_bits(ramp(1000), 0, 1000), ("floats scaled from 0..1",), 1),
        "F stated.tif": (tiff(units.astype("<f4"), 32, tags=hounsfield), seen_units, stated),
    }


def _deep_colours() -> _Cases:
    deep, alpha, twelve = colours(65535), ramp(65535)[:, ::-1], colours(4095)
    seen, share = in_8_bits(deep, 0, 65535), alpha / 65535
    of_16, of_12 = ("16 bits scaled from 0..65535",), ("12 bits scaled from 0..4095",)
    clear = (*of_16, ON_BLACK)
    rounded_once = np.floor(deep / 65535 * share[..., None] * 255 + 0.5).astype(np.uint8)
    grey_once = np.floor(ramp(65535) / 65535 * share * 255 + 0.5).astype(np.uint8)
    with_alpha = np.dstack([deep, alpha])
    sbit = png(twelve, 16, 2, [(b"sBIT", b"\x0c\x0c\x0c")])
    return {
        "RGB 16 bits.png": (png(deep, 16, 2), seen, of_16),
        "RGBA 16 bits.png": (png(with_alpha, 16, 6), rounded_once, clear),
        "LA 16 bits.png": (
            png(np.dstack([ramp(65535), alpha]), 16, 4),
            _grey(grey_once),
            clear,
        ),
        "RGB 12 of 16 bits, sBIT.png": (sbit, in_8_bits(twelve, 0, 4095), of_12),
        "RGB 16 bits.tif": (tiff(deep.astype("<u2"), 16, 2), seen, of_16),
        "RGB 16 bits big-endian.tif": (tiff(deep.astype(">u2"), 16, 2), seen, of_16),
        "RGBA 16 bits.tif": (
            tiff(with_alpha.astype("<u2"), 16, 2, {338: ("H", [2])}),
            rounded_once,
            clear,
        ),
    }


def _turned() -> _Cases:
    rgb = colours().astype(np.uint8)
    applied = ("EXIF orientation applied",)
    cases: _Cases = {
        f"EXIF {number}.png": (turned(number), turn(rgb), applied if number > 1 else ())
        for number, turn in ORIENTATIONS.items()
    }
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[274] = 6
    in_tiff = saved(
        Image.fromarray(rgb), "TIFF", tiffinfo=tags
    )  # which Pillow itself turns, and says nothing
    jpeg = (turned(6, "JPEG"), ORIENTATIONS[6](rgb), applied, 6)
    return {**cases, "EXIF 6.jpg": jpeg, "EXIF 6.tif": (in_tiff, ORIENTATIONS[6](rgb))}
