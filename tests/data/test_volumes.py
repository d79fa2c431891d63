"""Volumes as a radiologist sees them: every way to store one, compared with the places of its voxels in the patient."""

import gzip
import hashlib
import tracemalloc
from itertools import permutations, product

import nibabel
import numpy as np
import pytest

from medtasks.data.images.decoding import NEARLY_FLAT
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.images.volume_files import holds_volume, volume_digests
from medtasks.data.images.volume_reading import open_volume
from medtasks.data.images.volume_rule import Arrangement, Plane, VolumeRule
from medtasks.data.images.volume_slices import show_volume
from medtasks.errors import MedTasksError

from ..medical_files import nifti, put_dicom, put_frames, put_series
from ..tables import each_row

pydicom = pytest.importorskip("pydicom")
SIZES = (4, 5, 6)
VALUES = np.arange(120).reshape(SIZES) * 7 - 400
AXIAL = [1, 0, 0, 0, 1, 0]


def seen(voxels, affine, plane):
    """Return the slices that a viewer shows, by the place of each voxel alone, with axes along the body's.

    ``affine`` leads to millimetres towards the right, the front and the head.
    """
    indices = np.stack(np.meshgrid(*map(np.arange, voxels.shape), indexing="ij"), -1).reshape(
        -1, 3
    )
    right, front, head = np.round(indices @ affine[:3, :3].T + affine[:3, 3], 3).T
    keys = {  # of slice, row and column: the first is shown first, on top, on the left
        "axial": (head, -front, -right),
        "coronal": (-front, -head, -right),
        "sagittal": (-right, -head, -front),
    }[plane]
    order = np.lexsort(keys[::-1])
    return voxels.ravel()[order].reshape([len(np.unique(key)) for key in keys])


def shown(path, plane):
    volume = open_volume(path)
    return volume.slices(Plane(plane), range(volume.depth(Plane(plane))))


ORIENTATIONS = [
    np.array(
        [
            [sign * 1.5 * (axis == row) for axis, sign in zip(axes, signs, strict=True)]
            for row in range(3)
        ]
    )
    for axes, signs in product(permutations(range(3)), product((1, -1), repeat=3))
]


@each_row("plane", ["axial", "coronal", "sagittal"])
def test_nifti_in_all_48_orientations(tmp_path, plane):
    assert len({str(directions) for directions in ORIENTATIONS}) == 48
    for directions in ORIENTATIONS:
        affine = np.eye(4)
        affine[:3, :3] = directions * (0.7, 2.0, 5.0)
        affine[:3, 3] = (11, -7, 3)
        image = nibabel.Nifti1Image(VALUES.astype(np.int16), affine)
        image.header.set_slope_inter(2, -3)
        nibabel.save(image, tmp_path / "a.nii")
        stored = nibabel.load(tmp_path / "a.nii")
        assert (
            shown(tmp_path / "a.nii", plane) == seen(stored.get_fdata(), affine, plane)
        ).all()


@each_row("plane", ["axial", "coronal", "sagittal"])
@each_row(
    "directions",
    [
        AXIAL,
        [0, 1, 0, -1, 0, 0],
        [-1, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 0, -1],
        [0, 1, 0, 0, 0, -1],
        [0, 0, 1, 0, -1, 0],
    ],
)
def test_series_of_every_orientation(tmp_path, plane, directions):
    for spacing in ((2, 0.5, 1.5), (-2, 0.5, 1.5)):
        folder = tmp_path / f"{directions}{spacing}"
        put_series(folder, VALUES, directions, spacing)
        normal = np.cross(directions[:3], directions[3:])
        affine = np.eye(4)
        axes = [
            normal * spacing[0],
            np.array(directions[3:]) * 0.5,
            np.array(directions[:3]) * 1.5,
        ]
        affine[:3, :3] = np.stack(axes, -1)
        affine[:3, 3] = (-7, 5, 30)
        affine[:2] *= -1  # DICOM's axes run to the left and the back
        assert (shown(folder, plane) == seen(VALUES, affine, plane)).all()


@each_row("plane, ratio", [("axial", 1), ("coronal", 5), ("sagittal", 5)])
def test_pixels_are_square(tmp_path, plane, ratio):
    put_series(tmp_path / "ct", VALUES, spacing=(5, 1, 1))
    depth, rows, columns = SIZES
    size = {"axial": (columns, rows), "coronal": (columns, depth), "sagittal": (rows, depth)}[
        plane
    ]
    images = show_volume(tmp_path / "ct", VolumeRule(Plane(plane), 2)).images
    assert [image.size for image in images] == [(size[0], size[1] * ratio)] * 2


@pytest.fixture
def of_series(tmp_path):
    """The images of three slices of a CT series."""
    put_series(tmp_path / "ct", VALUES)
    return [
        image.tobytes() for image in show_volume(tmp_path / "ct", VolumeRule(slices=3)).images
    ]


def test_frames_are_shown_as_the_series(tmp_path, of_series):
    put_frames(tmp_path / "frames.dcm", VALUES)
    put_frames(tmp_path / "backwards.dcm", VALUES[::-1], -2)
    put_series(tmp_path / "packed", VALUES, syntax="1.2.840.10008.1.2.5")
    put_frames(tmp_path / "alone" / "frames.dcm", VALUES)

    rule = VolumeRule(slices=3)
    for name in ("frames.dcm", "backwards.dcm", "alone", "packed"):
        assert holds_volume(tmp_path / name)
        shown_as = show_volume(tmp_path / name, rule).images
        assert [image.tobytes() for image in shown_as] == of_series


def test_arrays_are_shown_as_the_series_with_a_window(tmp_path, of_series):
    """They do not say that they are CT."""
    np.save(tmp_path / "a.npy", VALUES.astype(np.int16))
    np.save(tmp_path / "b.npy", np.asfortranarray(VALUES[None].astype(">f4")))

    for name in ("a.npy", "b.npy"):
        window = VolumeRule(slices=3, windows=("soft_tissue",))
        shown_as = show_volume(tmp_path / name, window).images
        assert [image.tobytes() for image in shown_as] == of_series


def test_a_flat_image_is_no_volume(tmp_path):
    assert not holds_volume(put_dicom(tmp_path / "flat.dcm", np.ones((3, 4), np.uint16)))
    assert not holds_volume(tmp_path / "none")


def test_jpeg_2000(tmp_path):
    pytest.importorskip("openjpeg")
    values = np.kron(VALUES, np.ones((1, 16, 16), int))
    put_series(tmp_path / "a", values)
    put_series(tmp_path / "b", values, syntax="1.2.840.10008.1.2.4.90")
    both = [show_volume(tmp_path / name).images for name in "ab"]
    assert [image.tobytes() for image in both[0]] == [image.tobytes() for image in both[1]]


def test_only_the_slices_shown_are_read(tmp_path):
    paths = put_series(tmp_path / "ct", VALUES)
    rule = VolumeRule(slices=1)
    before = show_volume(tmp_path / "ct", rule).images[0].tobytes()
    dataset = pydicom.dcmread(paths[0])
    dataset.PixelData = b"\0\0"
    dataset.save_as(paths[0])
    assert show_volume(tmp_path / "ct", rule).images[0].tobytes() == before
    with pytest.raises(UnreadableImage, match=f"its slice {paths[0].name}: "):
        show_volume(tmp_path / "ct")


def changed(path, **fields):
    dataset = pydicom.dcmread(path)
    for name, value in fields.items():
        setattr(dataset, name, value)
    dataset.save_as(path)


def without(name):
    def remove(folder, paths):
        dataset = pydicom.dcmread(paths[1])
        del dataset[name]
        dataset.save_as(paths[1])

    return remove


def setting(number, **fields):
    return lambda folder, paths: changed(paths[number], **fields)


def add_scout(folder, paths):
    changed(paths[2], SeriesInstanceUID="1.2.9", SeriesNumber=1, SeriesDescription="Scout")


def add_text(folder, paths):
    (folder / "notes.txt").write_text("notes")


def cut(folder, paths):
    paths[1].write_bytes(paths[1].read_bytes()[:-40])


def in_colour(folder, paths):
    put_dicom(paths[0], np.zeros((5, 6), np.uint8), "PALETTE COLOR", 8, fields=place(0))


def place(number):
    return {
        "SeriesInstanceUID": "1.2.3",
        "ImagePositionPatient": [0, 0, number],
        "ImageOrientationPatient": AXIAL,
        "PixelSpacing": [1, 1],
    }


@each_row(
    "fault, message",
    [
        (lambda folder, paths: paths[2].unlink(), "are 4 mm apart and others 2 mm, .* missing"),
        (
            setting(2, ImagePositionPatient=[-7, 5, 32]),
            "IM002002 and IM003001 lie at the same place",
        ),
        (
            setting(2, ImagePositionPatient=[3, 5, 34]),
            "are 2 mm apart and others 2 mm, or lie aside",
        ),
        (setting(2, ImageOrientationPatient=[0, 1, 0, 0, 0, 1]), "differ in orientation"),
        (setting(3, Rows=3, Columns=10), r"differ in size \(\(5, 6\), \(3, 10\)\)"),
        (setting(2, PixelSpacing=[1, 2]), "differ in PixelSpacing"),
        (setting(2, Modality="PT"), r"differ in modality \(CT, PT\)"),
        (add_scout, r"holds the series 2 'Thorax' \(IM.*\) and 1 'Scout' \(IM.*\); put each"),
        (without("ImagePositionPatient"), "its slice .*1: it has no ImagePositionPatient"),
        (without("PixelSpacing"), "it has no PixelSpacing"),
        (setting(1, RescaleSlope="0"), "RescaleSlope is 0"),
        (setting(1, PixelSpacing=[0, 0]), "PixelSpacing is 0"),
        (add_text, "its notes.txt is no DICOM file; leave only"),
        (cut, "its slice IM003001: "),
        (in_colour, "in colour"),
        (
            lambda folder, paths: [path.write_bytes(b"x") for path in paths],
            "no DICOM files; list its",
        ),
        (lambda folder, paths: (folder / "more").mkdir(), "its more is no DICOM file"),
        (
            lambda folder, paths: put_frames(folder / "x", VALUES),
            "its slice x: it has several frames",
        ),
    ],
)
def test_series_that_are_not_one_volume(tmp_path, fault, message):
    paths = put_series(tmp_path / "ct", VALUES)
    fault(tmp_path / "ct", paths)
    with pytest.raises(UnreadableImage, match=message) as refused:
        show_volume(tmp_path / "ct", VolumeRule(slices=4))
    assert "\n" not in str(refused.value)


def test_hidden_files_and_the_index_of_a_medium_are_no_slices(tmp_path):
    put_series(tmp_path / "ct", VALUES)
    digests = volume_digests(tmp_path / "ct")
    for name in (".DS_Store", "DICOMDIR"):
        (tmp_path / "ct" / name).write_bytes(b"x")
    assert volume_digests(tmp_path / "ct") == digests
    assert len(show_volume(tmp_path / "ct").images) == 8


@each_row(
    "frames, message",
    [
        ({"PerFrameFunctionalGroupsSequence": []}, "no ImagePositionPatient"),
        ({"distance": 0.0}, "its slices frame 1 and frame 2 lie at the same place"),
    ],
)
def test_frames_that_are_no_volume(tmp_path, frames, message):
    path = put_frames(tmp_path / "x.dcm", VALUES, **frames)
    with pytest.raises(UnreadableImage, match=message):
        show_volume(path)


def of_array(values):
    def put(folder):
        np.save(folder / "a.npy", values)
        return folder / "a.npy"

    return put


def of_bytes(name, data):
    def put(folder):
        (folder / name).write_bytes(data)
        return folder / name

    return put


SOUND = nifti(VALUES.astype(np.int16))
DOTTED = VALUES.astype(np.float32)
DOTTED[0, 0, 0] = np.nan


@each_row(
    "put, message",
    [
        (of_array(np.zeros((2, 3, 4, 5))), r"the shape \(2, 3, 4, 5\) and is not one volume"),
        (of_array(np.zeros((3, 4))), "is not one volume"),
        (of_array(np.zeros((3, 4, 0))), "is not one volume"),
        (of_array(np.zeros((2, 3, 4), complex)), "no plain numbers"),
        (of_array(np.array([[[None]]])), "no plain array"),
        (of_array(DOTTED), "no finite numbers"),
        (of_array(np.full((2, 3, 4), np.inf)), "no finite numbers"),
        (of_bytes("a.npy", b"version https://git-lfs.github.com/spec/v1"), "a Git LFS pointer"),
        (of_bytes("a.npy", b"\x93NUMPY\1\0"), "cut short"),
        (of_bytes("a.nii", nifti(DOTTED)), "no finite numbers"),
        (
            of_bytes("a.nii", nifti(VALUES[..., None].repeat(2, 3).astype("i2"))),
            "is not one volume",
        ),
        (of_bytes("a.nii", SOUND[:-2]), "fewer voxels"),
        (of_bytes("a.nii", SOUND[:100]), "cut short|no NIfTI"),
        (of_bytes("a.nii.gz", gzip.compress(SOUND)[:-12]), "cannot be unpacked"),
        (of_bytes("a.nii.gz", gzip.compress(SOUND[:-2])), "fewer voxels"),
        (of_bytes("a.nii.gz", SOUND), "cannot be unpacked|NIfTI volume"),
    ],
)
def test_files_that_are_not_one_volume(tmp_path, put, message):
    with pytest.raises(UnreadableImage, match=message):
        show_volume(put(tmp_path))


def test_a_packed_file_without_gz_in_its_name(tmp_path):
    path = of_bytes("a.nii", gzip.compress(SOUND))(tmp_path)
    assert (shown(path, "axial") == shown(of_bytes("b.nii", SOUND)(tmp_path), "axial")).all()
    assert volume_digests(path).voxels == volume_digests(tmp_path / "b.nii").voxels


# ---- windows and arrangement ----


def lying(values, **options):
    """Return a NIfTI file of values of shape (slices, rows, columns), as they are printed."""
    return nifti(values.T.astype(np.int16), np.diag([-1, -1, 1]), **options)


def greys(path, **settings):
    images = show_volume(path, VolumeRule.of_settings({"slices": 1, **settings})).images
    return [np.asarray(image)[0, :, 0].tolist() for image in images]


UNITS = np.array([[[-1000, -160, 40, 240, 1000, 0]]])


@pytest.fixture
def ct(tmp_path):
    """A CT series of the units."""
    put_series(tmp_path / "ct", UNITS)
    return tmp_path / "ct"


def test_ct_is_shown_in_the_window_of_soft_tissue(ct):
    assert greys(ct) == greys(ct, window="soft_tissue") == [[0, 0, 128, 255, 255, 102]]


def test_a_window_is_named_or_given(ct):
    assert greys(ct, window=[0, 80]) == greys(ct, window="brain") == [[0, 0, 128, 255, 255, 0]]
    assert greys(ct, window=[[0, 80], "bone"]) == [
        [0, 0, 128, 255, 255, 0],
        [0, 48, 76, 105, 212, 71],
    ]


def test_a_scan_with_the_values_of_air_is_ct(tmp_path, ct):
    scan = of_bytes("a.nii", lying(UNITS))(tmp_path)
    assert greys(scan) == greys(ct)
    scan = of_bytes("c.nii", lying(UNITS // 2, scaling=(2, 0)))(tmp_path)
    assert greys(scan) == greys(ct)


def test_a_scan_without_the_values_of_air_is_shown_by_percentiles(tmp_path):
    scan = of_bytes("b.nii", lying(np.maximum(UNITS, -500)))(tmp_path)
    assert greys(scan) == greys(scan, window="percentile") != greys(scan, window="soft_tissue")


def test_a_series_that_is_no_ct_is_shown_by_percentiles(tmp_path):
    for fields in ({"Modality": "MR"}, {"RescaleType": "US"}, {"RescaleIntercept": ""}):
        put_series(tmp_path / str(fields), UNITS, **fields)
        assert greys(tmp_path / str(fields)) == greys(
            tmp_path / str(fields), window="percentile"
        )


def test_monochrome1_is_inverted(tmp_path, ct):
    put_series(tmp_path / "mono", UNITS, PhotometricInterpretation="MONOCHROME1")
    assert greys(tmp_path / "mono") == [[255 - grey for grey in greys(ct)[0]]]


def test_padding_counts_in_no_percentile(tmp_path):
    padded = np.where(UNITS == -1000, 3000, UNITS)
    put_series(tmp_path / "padded", padded, PixelPaddingValue=4024)
    assert greys(tmp_path / "padded", window="percentile")[0][0] == 0


@pytest.fixture
def arranged(tmp_path):
    """Show three slices in three windows, as the settings say."""
    put_series(tmp_path / "ct", VALUES)
    three = {"window": ["lung", [-135, 215], "brain"], "slices": 3}

    def show(**settings):
        rule = VolumeRule.of_settings(three | settings)
        shown_as = show_volume(tmp_path / "ct", rule).images
        assert len(shown_as) == rule.images
        return [np.asarray(image) for image in shown_as]

    return show


def test_slices_are_shown_once_in_each_window(arranged):
    assert len(arranged()) == 9


def test_windows_are_the_channels_of_an_image(arranged):
    separate = arranged()

    channels = arranged(slices_as="channels")

    assert len(channels) == 3
    for number, image in enumerate(channels):
        for channel in range(3):
            assert (image[..., channel] == separate[3 * number + channel][..., 0]).all()


def test_slices_are_the_tiles_of_a_montage(arranged):
    separate = arranged()

    montages = arranged(slices_as="montage")

    assert len(montages) == 3
    for number, montage in enumerate(montages):
        assert montage.shape == (10, 12, 3)
        tiles = montage[:5, :6], montage[:5, 6:], montage[5:, :6], montage[5:, 6:]
        wanted = [separate[number], separate[3 + number], separate[6 + number]]
        assert all((tile == image).all() for tile, image in zip(tiles, wanted, strict=False))
        assert not tiles[3].any()


def test_a_dark_volume_is_told(tmp_path):
    path = of_array(np.zeros((3, 20, 20), np.float32))(tmp_path)
    assert show_volume(path).conversions[-1] == NEARLY_FLAT
    values = np.zeros((3, 20, 20), np.float32)
    values[:, 5:15] = 3e-9
    image = show_volume(of_array(values)(tmp_path), VolumeRule(slices=1)).images[0]
    assert image.getextrema()[0] == (0, 255)


@each_row(
    "settings, message",
    [
        ({"plane": "oblique"}, "plane is 'oblique'; it can be axial, coronal, sagittal"),
        ({"slices": -1}, "slices is -1"),
        ({"slices": "8"}, "slices is '8'"),
        ({"slices": True}, "slices is True"),
        ({"window": "liver"}, "window is 'liver'; it can be auto, percentile"),
        ({"window": [400, 40]}, r"window is \[400, 40\]"),
        ({"window": [float("nan"), 1]}, "window is"),
        ({"window": [[0, 80], "x"]}, "window is"),
        ({"window": []}, "window is"),
        ({"window": 40}, "window is 40"),
        ({"slices_as": "video"}, "slices_as is 'video'; it can be images, montage, channels"),
        (
            {"slices_as": "channels"},
            "needs three windows, for red, green and blue; window names 1",
        ),
    ],
)
def test_impossible_rules(settings, message):
    with pytest.raises(MedTasksError, match=message):
        VolumeRule.of_settings(settings)


def test_a_rule_on_one_line():
    rule = VolumeRule.of_settings(
        {"plane": "coronal", "slices": 4, "window": ["lung", [0, 80]], "slices_as": "montage"}
    )
    assert rule == VolumeRule(Plane.CORONAL, 4, ("lung", (0, 80)), Arrangement.MONTAGE)
    assert str(rule) == "coronal, 4 slices as montage, window lung + 0..80"
    assert str(VolumeRule(slices=0, plane=Plane.CORONAL)) == "the volume itself"
    assert VolumeRule.of_settings({"template": "x"}) is None


def test_the_slices_of_ct_rate_are_those_of_earlier_versions(tmp_path):
    """Digests of the pixels by the code that had a rule for CT-RATE alone."""
    voxels = np.random.default_rng(5).integers(-1000, 1500, (11, 14, 19)).astype(np.int16)
    affine = np.array([[0, -0.8, 0, 1], [0, 0, 2.5, 2], [0.9, 0, 0, 3], [0, 0, 0, 1]])
    image = nibabel.Nifti1Image(voxels, affine)
    image.header.set_slope_inter(2, -3)
    nibabel.save(image, tmp_path / "a.nii.gz")
    digests = {1: "6887ac21f31e8bff", 3: "27d51b604d93abc9", 8: "e49c1648b4f6c5c7"}
    for count, digest in digests.items():
        rule = VolumeRule(slices=count, windows=("percentile",))
        pixels = b"".join(
            image.tobytes() for image in show_volume(tmp_path / "a.nii.gz", rule).images
        )
        assert hashlib.sha256(pixels).hexdigest()[:16] == digest


@each_row("name", ["a.nii", "a.nii.gz", "ct"])
@each_row("plane", ["axial", "sagittal"])
def test_a_volume_is_in_memory_once(tmp_path, name, plane):
    values = np.zeros((320, 128, 128), np.int16)
    path = tmp_path / name
    if name == "ct":
        put_series(path, values)
    else:
        data = nifti(values)
        path.write_bytes(gzip.compress(data, 1) if name.endswith("gz") else data)
    rule = VolumeRule(Plane(plane), 1)
    show_volume(path, rule)  # what it imports

    tracemalloc.start()
    show_volume(path, rule)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    is_part = name == "ct" and plane == "axial"
    assert peak < (0.2 if is_part else 1.2) * values.nbytes + 6e6
