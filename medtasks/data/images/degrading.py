"""Degraded images: compression, blur, noise, brightness, contrast and gamma, each at three severities.

The kinds are corruptions to which medical vision-language models were found sensitive (arXiv 2505.15425). The strengths
are ours. Severity 1 is common in practice (a screenshot, a dim monitor), severity 2 is poor, and at severity 3 fine
detail is lost while large structures remain visible. Severity 0 is the identity.
"""

import io
from collections.abc import Mapping

from PIL import Image, ImageFilter

from medtasks.data.images.strict_pillow import open_image

VERSION = 1
"""Raised with every change of the pixels or of the draws; recorded with each run."""
STRENGTHS: Mapping[str, tuple[float, float, float]] = {
    "jpeg": (25, 15, 7),  # quality of 100, colours at half the resolution
    "blur": (0.004, 0.008, 0.016),  # Pillow's Gaussian radius, relative to the shorter side
    "noise": (10, 20, 40),  # standard deviation in grey levels, the same in all channels
    "brightness": (25, 50, 75),  # grey levels added
    "contrast": (75, 50, 25),  # per cent of the distance from level 128 that remain
    "gamma": (1.5, 2.0, 3.0),  # exponent of relative levels, which darkens
}
SEVERITIES = (1, 2, 3)


def degrade(image: Image.Image, kind: str, severity: int, seed: int) -> Image.Image:
    """Return a degraded copy of an image.

    Levels are changed by integer tables and rounded noise, so that pixels are the same on every machine.

    Args:
        image: An image of 8 bits (mode L or RGB).
        kind: Key of :data:`STRENGTHS`.
        severity: 0 to 3; 0 changes nothing.
        seed: Random seed of noise.

    Example:
        >>> degrade(Image.new("L", (1, 1), 100), "brightness", 1, seed=0).getpixel((0, 0))
        125
    """
    if severity == 0:
        return image.copy()
    strength = STRENGTHS[kind][severity - 1]
    if kind == "jpeg":
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=int(strength), subsampling=2)
        with open_image(stream) as packed:
            return packed.convert(image.mode)
    if kind == "blur":
        return image.filter(ImageFilter.GaussianBlur(strength * min(image.size)))
    if kind == "noise":
        import numpy as np

        generator = np.random.default_rng(seed)
        noise = (
            generator.normal(0, strength, (image.height, image.width)).round().astype(np.int16)
        )
        pixels = np.asarray(image).astype(np.int16)
        if pixels.ndim == 3:
            noise = noise[:, :, None]
        return Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))
    levels = [_changed_level(level, kind, strength) for level in range(256)]
    return image.point(levels * len(image.getbands()))


def _changed_level(level: int, kind: str, strength: float) -> int:
    """Return the level that replaces a grey level of an image of 8 bits, for kinds that change each level alone."""
    if kind == "brightness":
        return min(255, level + int(strength))
    if kind == "contrast":
        return 128 + (level - 128) * int(strength) // 100
    darkened: float = (level / 255) ** strength
    return round(255 * darkened)
