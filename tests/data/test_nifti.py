"""NIfTI volumes: which way the slices lie, grey values, and damaged files."""

import gzip
from itertools import permutations, product

import nibabel
import numpy as np
import pytest

from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.images.volume_files import is_volume, read_header, volume_digests
from medtasks.data.images.volume_reading import open_volume
from medtasks.data.images.volume_rule import Plane, VolumeRule
from medtasks.data.images.volume_slices import show_volume

from ..medical_files import nifti, put_nifti, scan
from ..tables import each_row

PERCENTILE = ("percentile",)
# Right, front, head.
VOXELS = np.arange(24, dtype=np.int16).reshape(2, 3, 4)


@pytest.fixture
def axial(tmp_path):
    """Return the values of all axial slices of an unpacked file."""

    def values(data):
        path = tmp_path / "v.nii"
        path.write_bytes(data)
        volume = open_volume(path)
        return volume.slices(Plane.AXIAL, range(volume.depth(Plane.AXIAL)))

    return values


def axial_slices(path, count):
    return show_volume(path, VolumeRule(slices=count, windows=PERCENTILE)).images


def printed(voxels):
    """Slices of voxels whose axes run to the right, the front and the head, as a radiologist sees them."""
    return np.stack([voxels[::-1, ::-1, level].T for level in range(voxels.shape[2])])


@each_row("axes", permutations(range(3)))
@each_row("signs", product((1, -1), repeat=3))
@each_row("order", "<>")
def test_every_way_a_volume_may_be_stored(axial, axes, signs, order):
    stored = VOXELS.transpose(axes)
    directions = np.zeros((3, 3))
    for axis, (towards, sign) in enumerate(zip(axes, signs, strict=True)):
        directions[towards, axis] = 0.7 * sign
        stored = np.flip(stored, axis) if sign < 0 else stored
    assert (axial(nifti(stored, directions, order=order)) == printed(VOXELS)).all()


@each_row(
    "axes, wanted",
    [
        (
            {"directions": [[0.9, 0.1, 0.0], [-0.1, 0.8, -0.3], [0.0, 0.3, 2.5]]},
            VOXELS,
        ),  # tilted: not resampled
        ({"rotation": (0, 0, 0)}, VOXELS),
        ({"rotation": (0, 0, 1)}, VOXELS[::-1, ::-1]),  # half a turn about the long axis
        ({"rotation": (1, 0, 0)}, VOXELS[:, ::-1, ::-1]),
        ({"rotation": (0, 0, 2**-0.5)}, VOXELS.transpose(1, 0, 2)[::-1]),  # a quarter of a turn
        ({"directions": None}, VOXELS[::-1]),  # columns run to the left
    ],
)
def test_other_ways_to_say_how_axes_run(axial, axes, wanted):
    assert np.array_equal(axial(nifti(VOXELS, **axes)), printed(wanted))


@each_row("kind", ["u1", "i2", "f4", "i8", "u8"])
def test_kinds_of_voxels_and_scaling(axial, kind):
    voxels = VOXELS.astype(kind)
    assert (axial(nifti(voxels)) == printed(VOXELS)).all()
    assert np.allclose(axial(nifti(voxels, scaling=(2, -1))), 2 * printed(VOXELS) - 1)
    assert (axial(nifti(voxels, scaling=(float("nan"), 5))) == printed(VOXELS)).all()
    assert (
        axial(nifti(voxels[..., None])) == printed(VOXELS)
    ).all()  # one more axis of length one is no series


@each_row(
    "data, what",
    [
        (b"", "it is no NIfTI file"),
        (nifti(VOXELS)[:344] + b"ni1\0" + bytes(4), "it is no NIfTI file"),
        (
            nifti(VOXELS[..., None].repeat(2, 3)),
            r"it has the shape \(2, 3, 4, 2\) and is not one volume",
        ),
        (nifti(VOXELS, np.zeros((3, 3))), "its header does not say which way its axes run"),
        (nifti(VOXELS, rotation=(1, 1, 0)), "its header does not say which way its axes run"),
        (b"\x1c\x02\0\0n+2\0", "its header is cut short"),
        (
            nifti(VOXELS)[:70] + b"\x80\0" + nifti(VOXELS)[72:],
            "its voxels are of type 128 and no plain numbers",
        ),
    ],
)
def test_what_is_no_volume(data, what):
    with pytest.raises(UnreadableImage, match=what):
        read_header(data)


def test_slices_are_spread_over_the_volume(tmp_path):
    path = put_nifti(tmp_path / "a.nii.gz", scan(0))

    pictures = axial_slices(path, 3)

    assert [(picture.mode, picture.size) for picture in pictures] == [("RGB", (10, 9))] * 3
    grey = [np.asarray(picture)[..., 0] for picture in pictures]
    # Levels 1, 3 and 5 of six; the bright block is in levels 1 to 3, its right edge on the picture's left.
    assert [level.max() for level in grey] == [255, 255, 0]
    assert (grey[0] == np.where(scan(0)[::-1, ::-1, 1].T > 0, 255, 0)).all()
    assert np.asarray(axial_slices(path, 1)[0]).max() == 255


def test_more_slices_than_there_are_repeat_some(tmp_path):
    path = put_nifti(tmp_path / "a.nii.gz", scan(0))
    assert len(axial_slices(path, 20)) == 20


def test_a_volume_of_one_value_is_black(tmp_path):
    path = put_nifti(tmp_path / "a.nii.gz", np.full((3, 3, 3), 7, np.int16))
    assert {picture.getextrema() for picture in axial_slices(path, 2)} == {((0, 0),) * 3}


def test_one_bright_voxel_does_not_make_the_rest_black(tmp_path):
    voxels = np.full((20, 20, 2), -1000, np.int16)
    voxels[5:15] = 0
    voxels[0, 0, 0] = 30_000

    (picture,) = axial_slices(put_nifti(tmp_path / "a.nii.gz", voxels), 1)

    assert np.asarray(picture)[10, 10, 0] == 255


@each_row(
    "sizes, pixels",
    [
        ((1, 1, 5), (10, 20)),
        ((1, 2, 5), (10, 40)),
        ((3, 2, 1), (15, 20)),
        ((0.7, 0.7001, 1), (10, 20)),
    ],
)
def test_slices_have_square_pixels(tmp_path, sizes, pixels):
    voxels = np.zeros((10, 20, 3), np.int16)
    voxels[:5] = 9
    turned = voxels.transpose(2, 0, 1)  # feet to head is the first axis
    directions = np.zeros((4, 4))
    directions[[0, 1, 2, 3], [1, 2, 0, 3]] = [*sizes, 1]
    for array, affine in ((voxels, np.diag([*sizes, 1.0])), (turned, directions)):
        nibabel.save(nibabel.Nifti1Image(array, affine), tmp_path / "a.nii.gz")
        (image,) = axial_slices(tmp_path / "a.nii.gz", 1)
        assert image.size == pixels
        assert abs((np.asarray(image)[..., 0] > 127).mean() - 0.5) < 0.05


def test_a_pointer_in_place_of_a_volume_is_named(tmp_path):
    path = tmp_path / "a.nii.gz"
    for data, what in (
        (b"version https://git-lfs.github.com/spec/v1", "it is a Git LFS pointer"),
        (b"no gzip", "a text file"),
    ):
        path.write_bytes(data)
        with pytest.raises(UnreadableImage, match=what):
            volume_digests(path)


READERS = (volume_digests, lambda file: axial_slices(file, 2))


def test_a_volume_packed_anew_has_the_same_voxels(tmp_path):
    path = put_nifti(tmp_path / "a.nii.gz", scan(0))
    whole, before = path.read_bytes(), volume_digests(path)
    path.write_bytes(gzip.compress(gzip.decompress(whole), compresslevel=1, mtime=5))

    after = volume_digests(path)

    assert (after.voxels, after.file != before.file) == (before.voxels, True)


def test_a_damaged_volume_is_refused(tmp_path):
    path = put_nifti(tmp_path / "a.nii.gz", scan(0))
    whole = path.read_bytes()
    for damaged in (
        b"",
        whole[:-9],
        whole[:40],
        b"no gzip",
        gzip.compress(gzip.decompress(whole)[:-2]),
    ):
        path.write_bytes(damaged)
        for read in READERS:
            with pytest.raises(UnreadableImage):
                read(path)


def test_a_missing_volume_is_called_missing(tmp_path):
    for read in READERS:
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "a.nii.gz")


def test_a_volume_is_known_by_its_name():
    assert [is_volume(name) for name in ("a/b.nii.gz", "B.NII.GZ", "a.png")] == [
        True,
        True,
        False,
    ]


def test_the_same_as_nibabel(tmp_path, axial):
    noise = np.random.default_rng(1)
    directions = noise.normal(size=(3, 3)) * 0.2 + np.eye(3)[[2, 0, 1]]
    path = tmp_path / "a.nii.gz"
    for image in (nibabel.Nifti1Image, nibabel.Nifti2Image):
        affine = np.eye(4)
        affine[:3, :3] = directions
        nibabel.save(image(noise.normal(size=(4, 5, 6)).astype(np.float32), affine), path)
        canonical = nibabel.as_closest_canonical(nibabel.load(path)).get_fdata()
        assert np.allclose(
            axial(gzip.decompress(path.read_bytes())), printed(canonical), atol=1e-6
        )
