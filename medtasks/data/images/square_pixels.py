"""Images with square pixels, as viewers show files whose pixels are higher than wide or wider than high."""

from PIL import Image

from medtasks.data.images.strict_pillow import UnreadableImage

_SQUARE, _MOST_STRETCHED = 1.01, 50  # ratios of the longer to the shorter side


def with_square_pixels(image: Image.Image, height: float, width: float) -> Image.Image:
    """Stretch an image along the longer side of its pixels; one with square pixels is returned as it is.

    Args:
        image: In 8 bits.
        height: Height of its pixels, in any unit.
        width: Their width.

    Raises:
        UnreadableImage: No image has such pixels.
    """
    ratio = max(height, width) / min(height, width)
    if ratio < _SQUARE:
        return image
    if ratio > _MOST_STRETCHED:
        raise UnreadableImage(f"its pixels are {height:g} high and {width:g} wide, which no image has")
    stretched = image.width * max(1, width / height), image.height * max(1, height / width)
    return image.resize((round(stretched[0]), round(stretched[1])), Image.Resampling.BILINEAR)
