"""Images with square pixels, as viewers show files whose pixels are higher than wide or wider than high."""

from PIL import Image

from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.named_files import MOST_MEMORY, check_size

_COST = 10  # bytes of memory for a pixel
_SQUARE, _MOST_STRETCHED = 1.01, 50  # ratios of the longer to the shorter side


def with_square_pixels(image: Image.Image, height: float, width: float) -> Image.Image:
    """Stretch an image along the longer side of its pixels.

    Args:
        image: In 8 bits; one with square pixels is returned as it is.
        height: Height of its pixels, in any unit.
        width: Their width.

    Raises:
        UnreadableImage: No image has such pixels.
        UnusableFile: The result would fill the memory.
    """
    ratio = max(height, width) / min(height, width)
    if ratio < _SQUARE:
        return image
    if ratio > _MOST_STRETCHED:
        raise UnreadableImage(
            f"its pixels are {height:g} high and {width:g} wide, which no image has"
        )
    columns = round(image.width * max(1, width / height))
    rows = round(image.height * max(1, height / width))
    check_size(_COST * columns * rows, MOST_MEMORY)
    return image.resize((columns, rows), Image.Resampling.BILINEAR)
