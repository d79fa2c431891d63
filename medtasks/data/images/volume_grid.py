"""Voxels of one volume and their place in the patient, read a few slices at a time where the file permits.

Everything is shown as a radiologist sees it: the front on top, or the head; the patient's right on the left, or the
front in sagittal slices. A volume that lies aslant is not resampled: its axes count as the closest ones of the body.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medtasks.data.images.volume_rule import Plane

Voxels = NDArray[Any]
_RIGHT, _FRONT, _HEAD = range(3)  # axes of nibabel's coordinates
_ACROSS = {Plane.AXIAL: _HEAD, Plane.CORONAL: _FRONT, Plane.SAGITTAL: _RIGHT}


@dataclass(frozen=True)
class Volume:
    """One volume, as it is stored."""

    # All planes of the first axis, or some, stored
    read: Callable[[Sequence[int] | None], Voxels]
    shape: tuple[int, int, int]
    affine: NDArray[np.float64]  # (4, 4), from voxels to mm towards right, front and head
    scaling: tuple[float, float] = (1.0, 0.0)  # slope and intercept of the stored values
    in_hounsfield_units: bool = False
    is_inverted: bool = False  # large values are dark
    facts: Mapping[str, str] = field(default_factory=dict)  # of its file, for people

    @property
    def orientation(self) -> NDArray[np.float64]:
        """Return the closest of right, front and head for each axis, and its direction: shape (3, 2)."""
        import nibabel

        axes: NDArray[np.float64] = nibabel.io_orientation(self.affine)
        return axes

    def spacing(self) -> dict[int, float]:
        """Return the size of a voxel in mm from left to right (0), back to front (1) and feet to head (2)."""
        sizes = np.linalg.norm(self.affine[:3, :3], axis=0)
        return dict(
            zip(self.orientation[:, 0].astype(int).tolist(), sizes.tolist(), strict=True)
        )

    def depth(self, plane: Plane) -> int:
        """Return the number of slices parallel to a plane."""
        return self.shape[self._stored_axis(plane)]

    def pixel_size(self, plane: Plane) -> tuple[float, float]:
        """Return height and width of a pixel of a slice in mm."""
        across = _ACROSS[plane]
        spacing = self.spacing()
        height = spacing[_FRONT if across == _HEAD else _HEAD]
        width = spacing[_FRONT if across == _RIGHT else _RIGHT]
        return height, width

    def slices(self, plane: Plane, positions: Sequence[int]) -> Voxels:
        """Return the values of slices as they are shown.

        Args:
            plane: Orientation of the slices.
            positions: Their numbers, from the feet, the front or the right.

        Returns:
            Floats of shape (slices, height, width), see above.
        """
        import nibabel

        axis = self._stored_axis(plane)
        orientation = self.orientation
        # nibabel's axes run to the right, the front and the head.
        is_reversed = (orientation[axis, 1] < 0) != (_ACROSS[plane] != _HEAD)
        last = self.shape[axis] - 1
        stored = [last - position if is_reversed else position for position in positions]
        where: tuple[Any, ...] = (*(slice(None),) * axis, stored)
        part = self.read(None)[where] if axis else self.read(stored)
        orientation[axis, 1] = 1 if _ACROSS[plane] == _HEAD else -1  # as they were asked for
        printed = _to_print(nibabel.apply_orientation(part, orientation))
        slices = np.moveaxis(printed, _HEAD - _ACROSS[plane], 0)
        slices = slices if plane is Plane.AXIAL else slices[:, ::-1]  # the head on top
        slope, intercept = self.scaling
        values = slices.astype(np.float32)
        return (
            values
            if self.scaling == (1, 0)
            else (values * slope + intercept).astype(np.float32)
        )

    def whole(self) -> Voxels:
        """Return the stored values of shape (height, width, depth): axial slices from feet to head, see above."""
        import nibabel

        voxels = nibabel.apply_orientation(self.read(None), self.orientation)
        return _to_print(voxels).transpose(1, 2, 0)

    def _stored_axis(self, plane: Plane) -> int:
        return int(np.flatnonzero(self.orientation[:, 0] == _ACROSS[plane])[0])


def _to_print(voxels: Voxels) -> Voxels:
    """Turn axes towards right, front and head into those of a print: to the head, to the back, to the left."""
    return voxels.transpose(2, 1, 0)[:, ::-1, ::-1]
