"""Pictures and volumes as RadFM takes them."""

import random

import nibabel
import numpy as np
import pytest
import torch
from medtasks.model_adapters.radfm.network import (
    image_volume,
    random_crop_box,
    read_volume,
    stack_volumes,
)
from PIL import Image

from medtasks.errors import MedTasksError

from ..tables import each_row
from .toys import noise

SIDE = 8


def test_target_depth_is_the_closest_multiple_of_four():
    table = {1: 4, 4: 4, 5: 4, 6: 4, 7: 8, 10: 8, 11: 12, 30: 28, 31: 32, 62: 60, 63: 64, 64: 64, 500: 64}
    volumes = {depth: torch.zeros(3, 2, 2, depth) for depth in table}
    assert {depth: stack_volumes([volume], 2).shape[-1] for depth, volume in volumes.items()} == table
    assert stack_volumes([torch.zeros(3, 2, 2, depth) for depth in (1, 23, 4)], 2).shape[-1] == 24


def test_images_are_brought_to_one_size_by_the_nearest_voxel():
    flat, deep = torch.rand(3, SIDE, SIDE, 1), torch.rand(3, 4, 16, 14)
    stacked = stack_volumes([flat, deep], SIDE)
    assert stacked.shape == (2, 3, SIDE, SIDE, 12)
    assert torch.equal(stacked[0], flat.expand(-1, -1, -1, 12))
    rows = torch.arange(SIDE) // 2
    columns = torch.arange(SIDE) * 2
    slices = torch.arange(12) * 14 // 12
    assert torch.equal(stacked[1], deep[:, rows][:, :, columns][..., slices])


def test_no_image_is_a_black_volume():
    assert torch.equal(stack_volumes([], SIDE), torch.zeros(1, 3, SIDE, SIDE, 4))


@each_row("mode", ["RGB", "L", "RGBA", "P"])
def test_the_whole_picture_is_resized_and_not_normalised(mode):
    picture = noise(mode=mode)
    got = image_volume(picture, SIDE)
    expected = np.asarray(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)) / 255
    assert got.shape == (3, SIDE, SIDE, 1)
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got[..., 0].permute(1, 2, 0).numpy(), expected, atol=1e-7)


def test_crop_depends_on_seed_and_content_alone():
    torch.manual_seed(0)
    random.seed(0)
    first = image_volume(noise(), SIDE, 0)
    torch.manual_seed(1)
    random.seed(1)
    untouched = random.getstate()
    assert torch.equal(image_volume(noise(), SIDE, 0), first)
    assert random.getstate() == untouched
    assert not torch.equal(image_volume(noise(), SIDE, 1), first)
    assert not torch.equal(first, image_volume(noise(), SIDE))
    other = noise()
    other.putpixel((0, 0), (1, 2, 3))
    assert (image_volume(other, SIDE, 0) - first).abs().mean() > 0.01  # another part, not another pixel


def test_crops_cover_the_range_that_training_drew_from():
    generator = random.Random(0)
    boxes = [random_crop_box(400, 300, generator) for _ in range(500)]
    shares, aspects, lefts = [], [], set()
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= 400
        assert 0 <= top < bottom <= 300
        shares.append((right - left) * (bottom - top) / 120000)
        aspects.append((right - left) / (bottom - top))
        lefts.add(left)
    assert 0.795 < min(shares) < 0.82
    assert 0.95 < max(shares) <= 1
    assert 0.745 < min(aspects) < 1.1
    assert 1.3 < max(aspects) < 1.345
    assert len(lefts) > 20


@each_row("size, box", [((100, 10), (43, 0, 56, 10)), ((10, 100), (0, 43, 10, 56))])
def test_very_long_pictures_give_the_largest_centred_part(size, box):
    assert random_crop_box(*size, random.Random(0)) == box


@each_row("channels", [None, 1, 3])
def test_arrays_and_files_give_the_same_volume(tmp_path, channels):
    voxels = np.random.default_rng(0).random((5, 6, 7) if channels is None else (channels, 5, 6, 7))
    np.save(tmp_path / "a.npy", voxels)
    np.savez(tmp_path / "a.npz", scan=voxels)
    expected = torch.from_numpy(np.broadcast_to(voxels, (3, 5, 6, 7)).astype(np.float32))
    for source in (voxels, tmp_path / "a.npy", str(tmp_path / "a.npz")):
        assert torch.equal(read_volume(source, SIDE), expected)


def test_slices_are_stacked_in_their_order():
    pictures = [noise(1), noise(2, (9, 40)), noise(3)]
    volume = read_volume(pictures, SIDE)
    assert volume.shape == (3, SIDE, SIDE, 3)
    for place, picture in enumerate(pictures):
        assert torch.equal(volume[..., place], image_volume(picture, SIDE)[..., 0])
    with pytest.raises(MedTasksError, match="a volume without slices"):
        read_volume([], SIDE)


def test_values_are_brought_to_0_to_1():
    ramp = np.arange(8).reshape(2, 2, 2)
    assert read_volume((ramp * 30).astype(np.uint8), SIDE)[0].flatten().tolist() == pytest.approx(
        [30 * n / 255 for n in range(8)]
    )
    assert torch.equal(read_volume(ramp / 10, SIDE)[1], torch.from_numpy((ramp / 10).astype(np.float32)))
    for values in (ramp * 400 - 1000, ramp * 1.5):  # Hounsfield units; fractions above 1
        assert read_volume(values, SIDE)[2].flatten().tolist() == pytest.approx([n / 7 for n in range(8)])
    assert not read_volume(np.full((2, 2, 2), 40.0), SIDE).any()


@each_row(
    "voxels, message",
    [
        (np.zeros((4, 4)), r"the array has shape \(4, 4\); a volume is"),
        (np.zeros((2, 4, 4, 4)), r"shape \(2, 4, 4, 4\)"),
        (np.zeros((4, 4, 0)), r"shape \(4, 4, 0\)"),
        (np.full((2, 2, 2), np.nan), "no finite numbers"),
        (np.full((2, 2, 2), "a"), "values of type <U1; give numbers"),
    ],
)
def test_impossible_arrays_are_refused(voxels, message):
    with pytest.raises(MedTasksError, match=message):
        read_volume(voxels, SIDE)


def test_impossible_files_are_refused(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY no")
    (tmp_path / "a.npz").write_bytes(b"PK no")
    (tmp_path / "b.nii").write_bytes(b"no")
    (tmp_path / "a.dcm").touch()
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    for name, message in {
        "a.npy": "is damaged",
        "a.npz": "is damaged",
        "objects.npy": "is damaged or holds no plain array",
        "a.dcm": r"give a \.nii, \.nii\.gz, \.npy or \.npz",
        "two.npz": r"holds 2 arrays \(a, b\)",
        "none.nii.gz": "does not exist",
        "b.nii": "is damaged or no NIfTI file",
    }.items():
        with pytest.raises(MedTasksError, match=message) as refusal:
            read_volume(tmp_path / name, SIDE)
        assert str(tmp_path / name) in str(refusal.value)


def test_nifti_is_seen_as_it_is_printed(tmp_path):
    voxels = np.zeros((4, 5, 6), dtype=np.int16)
    voxels[3, 4, 5] = 1000  # rightmost, foremost, topmost
    for turned, affine in ((voxels, np.eye(4)), (voxels[..., None], np.eye(4)), (voxels[::-1], np.diag([-1, 1, 1, 1]))):
        nibabel.save(nibabel.Nifti1Image(turned, affine), tmp_path / "a.nii.gz")
        volume = read_volume(tmp_path / "a.nii.gz", SIDE)
        assert volume.shape == (3, 5, 4, 6)
        assert volume[0].nonzero().tolist() == [[0, 0, 5]]
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 5, 6, 2)), np.eye(4)), tmp_path / "series.nii")
    with pytest.raises(MedTasksError, match=r"series\.nii has shape \(4, 5, 6, 2\); give one volume"):
        read_volume(tmp_path / "series.nii", SIDE)


@each_row("count", [1, 3])
def test_flat_images_are_stacked_as_the_nearest_voxels_would_be(count):
    flat = [image_volume(noise(seed, (20, 31)), 16) for seed in range(count)]
    stacked = stack_volumes(flat, 16)
    nearest = [torch.nn.functional.interpolate(one[None], size=(16, 16, 4), mode="nearest") for one in flat]
    assert torch.equal(stacked, torch.cat(nearest))
    assert stacked.untyped_storage().nbytes() == count * flat[0].nbytes, "slices that are equal are held once"
