"""DICOM files become the grey images the reference shows, or a cause; files are made here with pydicom."""

import numpy as np
import pytest

pydicom = pytest.importorskip("pydicom")
uid = pydicom.uid

from medtasks.data.images.strict_pillow import UnreadableImage  # noqa: E402
from medtasks.data.sources.multimedeval.x_rays import read_dicom  # noqa: E402

from ...dicom_files import put_dicom  # noqa: E402
from ...tables import each_row  # noqa: E402


def reference(values, kind):
    """MultiMedEval's arithmetic, at d9ac283, on values whose bits all count."""
    if kind == "MONOCHROME1":
        values = np.amax(values) - values
    values = values - np.min(values)
    return (values / np.max(values) * 255).astype(np.uint8)


def noise(least, most, shape=(96, 80)):
    return np.random.default_rng(most).integers(least, most, shape).astype(np.uint16)


def pixels(path):
    image = read_dicom(path)
    assert image.mode == "L"
    return np.asarray(image)


@each_row(
    "syntax, kind, most, stored",
    [
        (uid.ExplicitVRLittleEndian, "MONOCHROME1", 4096, 12),
        (uid.RLELossless, "MONOCHROME2", 65536, 16),
        (uid.JPEG2000Lossless, "MONOCHROME1", 65536, 16),
        (uid.ExplicitVRLittleEndian, "MONOCHROME2", 65536, 12),  # more bits than the header says
    ],
)
def test_grey_values(tmp_path, syntax, kind, most, stored):
    if syntax == uid.JPEG2000Lossless:
        pytest.importorskip("openjpeg")
    values = noise(37, most)
    path = put_dicom(tmp_path / "a.dicom", values, kind, stored, syntax)
    assert np.array_equal(pixels(path), reference(values, kind))


@pytest.mark.filterwarnings("error")
def test_by_hand_eight_bits_and_a_single_value(tmp_path):
    values = np.array([[100, 150, 300]], np.uint16)
    assert pixels(put_dicom(tmp_path / "c.dicom", values, "MONOCHROME1")).tolist() == [[255, 191, 0]]
    values = np.array([[3, 7], [5, 3]], np.uint8)
    assert pixels(put_dicom(tmp_path / "a.dicom", values, stored=8)).tolist() == [[0, 255], [127, 0]]
    assert pixels(put_dicom(tmp_path / "b.dicom", np.full((4, 4), 9, np.uint16))).max() == 0


def test_broken_files(tmp_path):
    path = put_dicom(tmp_path / "a.dicom", noise(0, 4096))
    whole = path.read_bytes()
    for length, cause in [
        (len(whole) - 100, "The number of bytes of pixel data is less than expected"),
        (400, "it is truncated or holds no image"),
        (0, "it is no DICOM file"),
    ]:
        path.write_bytes(whole[:length])
        with pytest.raises(UnreadableImage, match=cause):
            read_dicom(path)
    with pytest.raises(FileNotFoundError):
        read_dicom(tmp_path / "missing.dicom")


def test_files_that_are_no_single_image(tmp_path):
    path = put_dicom(tmp_path / "a.dicom", noise(0, 4096, (2, 8, 8)))
    with pytest.raises(UnreadableImage, match=r"shape \(2, 8, 8\) and no single grey image"):
        read_dicom(path)
    path = put_dicom(path, noise(0, 4096))
    dataset = pydicom.dcmread(path)
    del dataset.PixelData
    dataset.save_as(path)
    with pytest.raises(UnreadableImage, match="it is truncated or holds no image"):
        read_dicom(path)
