"""Rule by which models that see images are shown a volume: plane, number of slices, windows, and their arrangement.

Settings of a task's prompts, or of the ``dataset.json`` of a folder:

=============  ========================================================================================================
setting        meaning
=============  ========================================================================================================
``plane``      ``axial`` (default), ``coronal`` or ``sagittal``
``slices``     their number, by default 8, evenly spaced over the volume: from feet to head, from front to back, or from
               the patient's right to left. 0: the model reads the volume itself (RadFM)
``window``     values that are black and white: a name of :data:`WINDOWS`, ``[LOW, HIGH]``, ``percentile`` (the 0.5th
               and the 99.5th of the slices shown), or ``auto`` (default): ``soft_tissue`` for CT, else ``percentile``;
               or a list of these
``slices_as``  ``images`` (default): one for each slice and window; ``montage``: all slices in one image for each
               window; ``channels``: three windows as red, green and blue of one image for each slice
=============  ========================================================================================================
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from medtasks.data.images.strict_pillow import Range
from medtasks.data.images.value_ranges import is_range
from medtasks.errors import MedTasksError

AUTOMATIC = "auto"
PERCENTILE = "percentile"
SOFT_TISSUE = "soft_tissue"
WINDOWS: Mapping[str, Range] = {
    SOFT_TISSUE: (-160, 240),  # level 40, width 400
    "lung": (-1350, 150),  # level -600, width 1500
    "bone": (-500, 1300),  # level 400, width 1800
    "brain": (0, 80),  # level 40, width 80
}
"""Windows of CT by name, in Hounsfield units."""
SETTINGS = ("plane", "slices", "window", "slices_as")
_NAMES = (AUTOMATIC, PERCENTILE, *WINDOWS)
_MOST_SLICES = 1000
Window = str | Range


class Plane(enum.StrEnum):
    """Orientation of the slices."""

    AXIAL = "axial"
    CORONAL = "coronal"
    SAGITTAL = "sagittal"


class Arrangement(enum.StrEnum):
    """Division of slices and windows among images."""

    IMAGES = "images"
    MONTAGE = "montage"
    CHANNELS = "channels"


@dataclass(frozen=True)
class VolumeRule:
    """Plane, slices, windows and arrangement of the images of a volume."""

    plane: Plane = Plane.AXIAL
    slices: int = 8  # 0: the volume itself
    windows: tuple[Window, ...] = (AUTOMATIC,)
    arrangement: Arrangement = Arrangement.IMAGES

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "VolumeRule | None":
        """Read the rule of a task or folder, or return None where it sets nothing.

        Raises:
            MedTasksError: A value is impossible.

        Example:
            >>> str(VolumeRule.of_settings({"slices": 4, "window": "lung"}))
            'axial, 4 slices as images, window lung'
        """
        if settings.keys().isdisjoint(SETTINGS):
            return None
        slices = settings.get("slices", cls.slices)
        if type(slices) is not int or not 0 <= slices <= _MOST_SLICES:
            raise MedTasksError(f"slices is {slices!r}; it must be 0 to {_MOST_SLICES}")
        plane = _one_of("plane", settings.get("plane", cls.plane), [*Plane])
        window = settings.get("window", AUTOMATIC)
        windows = [window] if isinstance(window, str) or is_range(window) else window
        if not isinstance(windows, list | tuple) or not windows:
            raise _wrong_window(window)
        checked_windows = tuple(map(_window, windows))
        arrangement = settings.get("slices_as", cls.arrangement)
        arrangement = _one_of("slices_as", arrangement, [*Arrangement])
        rule = cls(Plane(plane), slices, checked_windows, Arrangement(arrangement))
        if rule.arrangement is Arrangement.CHANNELS and len(rule.windows) != 3:
            raise MedTasksError(
                f"slices_as: channels needs three windows, for red, green and blue; window names {len(rule.windows)}"
            )
        return rule

    @property
    def images(self) -> int:
        """Number of images of a volume, or 1 for the volume itself."""
        if self.slices == 0:
            return 1
        if self.arrangement is Arrangement.MONTAGE:
            return len(self.windows)
        if self.arrangement is Arrangement.CHANNELS:
            return self.slices
        return self.slices * len(self.windows)

    def __str__(self) -> str:
        """Return the rule on one line, the same for equal rules."""
        if not self.slices:
            return "the volume itself"
        return (
            f"{self.plane}, {self.slices} slices as {self.arrangement}, "
            f"window {' + '.join(map(window_name, self.windows))}"
        )


def window_name(window: Window) -> str:
    """Return a window's name, or its values.

    Example:
        >>> window_name("lung"), window_name((-160, 240))
        ('lung', '-160..240')
    """
    return window if isinstance(window, str) else f"{window[0]:g}..{window[1]:g}"


def _one_of(name: str, value: Any, names: list[str]) -> str:
    if value not in names:
        raise MedTasksError(f"{name} is {value!r}; it can be {', '.join(names)}")
    return str(value)


def _window(value: Any) -> Window:
    if isinstance(value, str) and value in _NAMES:
        return value
    if not is_range(value) or not value[0] < value[1]:
        raise _wrong_window(value)
    return float(value[0]), float(value[1])


def _wrong_window(value: Any) -> MedTasksError:
    return MedTasksError(
        f"window is {value!r}; it can be {', '.join(_NAMES)}, the values [LOW, HIGH] that are black and white, or a "
        f"list of these"
    )
