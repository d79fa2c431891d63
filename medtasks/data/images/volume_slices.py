"""Images of a volume for models that see no volumes, by a rule."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from medtasks.data.images.decoding import NEARLY_FLAT, flat_mark
from medtasks.data.images.square_pixels import with_square_pixels
from medtasks.data.images.strict_pillow import Range
from medtasks.data.images.volume_files import NIFTI
from medtasks.data.images.volume_grid import Volume
from medtasks.data.images.volume_reading import open_volume
from medtasks.data.images.volume_rule import (
    AUTOMATIC,
    PERCENTILE,
    SOFT_TISSUE,
    WINDOWS,
    Arrangement,
    VolumeRule,
    Window,
    window_name,
)

_DARK, _BRIGHT = 0.5, 99.5  # per cent of the voxels shown


class ShownVolume(NamedTuple):
    """A volume as a model sees it."""

    images: list[Image.Image]  # RGB
    conversions: tuple[str, ...]
    facts: dict[str, str]  # of the file and of the slices, for people


def show_volume(path: Path, rule: VolumeRule | None = None) -> ShownVolume:
    """Return a volume's slices as images with square pixels.

    Slices that are fewer than the rule's are shown more than once. Errors are those of :func:`open_volume`.

    Args:
        path: The file or folder.
        rule: Rule by which it is shown, with at least one slice; None takes the default.
    """
    rule = rule or VolumeRule()
    volume = open_volume(path)
    depth = volume.depth(rule.plane)
    positions = [int((number + 0.5) * depth / rule.slices) for number in range(rule.slices)]
    values = volume.slices(rule.plane, positions)
    stacks = []
    windows = []
    for window in rule.windows:
        name, (dark, bright) = _bounds(
            window, values, in_hounsfield_units=volume.in_hounsfield_units
        )
        share = np.clip((values - dark) / (float(bright - dark) or 1), 0, 1)
        grey = (share * 255).round().astype(np.uint8)
        stacks.append(255 - grey if volume.is_inverted else grey)
        windows.append(name)
    images = _arrange(stacks, rule.arrangement, volume.pixel_size(rule.plane))
    conversions = [f"volume, {rule}", f"window {' + '.join(windows)}"]
    if all(flat_mark(image) for image in images):
        conversions.append(NEARLY_FLAT)
    facts = volume_facts(volume) | {
        "window": " + ".join(windows),
        "values shown": f"{values.min():g}..{values.max():g}",
        f"{rule.plane} slices shown": f"{', '.join(str(position + 1) for position in positions)} of {depth}",
    }
    return ShownVolume(images, tuple(conversions), facts)


def volume_facts(volume: Volume) -> dict[str, str]:
    """Return the facts of a volume's header by name."""
    import nibabel

    spacing = volume.spacing()
    directions = volume.affine[:3, :3] / np.linalg.norm(volume.affine[:3, :3], axis=0)
    aligned = directions[volume.orientation[:, 0].astype(int), range(3)]
    # The largest angle in degrees between an axis of the volume and the closest one of the body.
    tilt = math.degrees(math.acos(min(1.0, float(abs(aligned).min()))))
    slope, intercept = volume.scaling
    return {
        **volume.facts,
        "voxels, as stored": " x ".join(map(str, volume.shape)),
        "axes run towards": "".join(nibabel.aff2axcodes(volume.affine)),
        "voxel size": f"{spacing[0]:g} mm right-left, {spacing[1]:g} mm front-back, {spacing[2]:g} mm feet-head",
        "tilt": f"{tilt:.1f} degrees",
        "scaling": f"value = {slope:g} x stored + {intercept:g}",
        "units": "Hounsfield units" if volume.in_hounsfield_units else "not Hounsfield units",
    }


def volume_for_model(path: Path) -> Any:
    """Return a volume for models that read volumes: the name of a NIfTI file, else an array (height, width, depth).

    Raises:
        FileNotFoundError: There is no such NIfTI file. Other errors are those of :func:`open_volume`.
    """
    if path.name.lower().endswith(NIFTI):
        if not path.is_file():
            raise FileNotFoundError(path)
        return str(path)
    return open_volume(path).whole()


def grey_volume(path: Path) -> Any:
    """Return an array of the shape of a volume whose values are 0.5, which models that scale to 0 and 1 leave so."""
    return np.full(open_volume(path).whole().shape, 0.5, np.float32)


def _bounds(window: Window, values: Any, *, in_hounsfield_units: bool) -> tuple[str, Range]:
    """Return a window's name, and the values that are black and white."""
    if window == AUTOMATIC:
        window = SOFT_TISSUE if in_hounsfield_units else PERCENTILE
    if window == PERCENTILE:
        dark, bright = np.percentile(values, (_DARK, _BRIGHT))
        return f"of percentiles {_DARK} and {_BRIGHT}", (dark, bright)
    if not isinstance(window, str):
        return window_name(window), window
    return f"{window} ({window_name(WINDOWS[window])})", WINDOWS[window]


def _arrange(
    greys: Sequence[Any],
    arrangement: Arrangement,
    pixel: tuple[float, float],
) -> list[Image.Image]:
    """Return images of grey values of shape (slices, height, width) for each window."""
    if arrangement is Arrangement.CHANNELS:
        coloured = np.stack(greys, axis=-1)
        return [with_square_pixels(Image.fromarray(image), *pixel) for image in coloured]
    by_window = []
    for grey in greys:
        # Stretched in RGB: in grey, another build of Pillow may round otherwise.
        images = [Image.fromarray(image).convert("RGB") for image in grey]
        by_window.append([with_square_pixels(image, *pixel) for image in images])
    if arrangement is Arrangement.MONTAGE:
        return list(map(_montage, by_window))
    return list(itertools.chain.from_iterable(zip(*by_window, strict=True)))


def _montage(images: Sequence[Image.Image]) -> Image.Image:
    """Return images in rows and columns of one, from the upper left on."""
    columns = math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    width, height = images[0].size
    montage = Image.new("RGB", (columns * width, rows * height))
    for number, image in enumerate(images):
        montage.paste(image, (number % columns * width, number // columns * height))
    return montage
