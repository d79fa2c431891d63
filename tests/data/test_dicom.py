"""DICOM files through their window, and as MultiMedEval stretches them; values are made here, files with pydicom."""

import sys
from pathlib import Path

import numpy as np
import pytest

pydicom = pytest.importorskip("pydicom")

from medtasks.data.catalogue import Access  # noqa: E402
from medtasks.data.document_store import load_documents  # noqa: E402
from medtasks.data.images.decoding import LINEAR, NEARLY_FLAT, REFERENCE, Decoding, ImageRule, decoded  # noqa: E402
from medtasks.data.images.strict_pillow import UnclearRange, UnreadableImage  # noqa: E402
from medtasks.data.sources.multimedeval.x_rays import read_dicom  # noqa: E402
from medtasks.errors import SourceError  # noqa: E402
from medtasks.prompts.images import images  # noqa: E402
from medtasks.tasks.own_tasks import prepare_own  # noqa: E402

from ..medical_files import put_dicom  # noqa: E402
from ..tables import each_row  # noqa: E402
from .image_modes import colours, in_8_bits, ramp  # noqa: E402
from .test_decoding import put  # noqa: E402

CT = {"RescaleSlope": 1, "RescaleIntercept": -1024}
STORED = ramp(4095).astype(np.uint16)
UNITS = STORED.astype(float) - 1024


def write(path, values=STORED, kind="MONOCHROME2", stored=12, **fields):
    return put_dicom(path, values, kind, stored, fields=fields)


def seen(path, decoding=LINEAR):
    found = decoded(path, decoding)
    return np.asarray(found.pixels).astype(int), found.conversions


def window(center, width, values=UNITS):
    """DICOM PS3.3 C.11.2.1.2.1, to the letter, for grey values from 0 to 255."""
    grey = ((values - (center - 0.5)) / (width - 1) + 0.5) * 255
    grey[values <= center - 0.5 - (width - 1) / 2] = 0
    grey[values > center - 0.5 + (width - 1) / 2] = 255
    return np.repeat(np.floor(grey + 0.5).astype(int)[..., None], 3, axis=2)


@each_row(
    "fields, expected",
    [
        ({"WindowCenter": 40, "WindowWidth": 400}, window(40, 400)),
        ({"WindowCenter": -600, "WindowWidth": 1500}, window(-600, 1500)),
        ({"WindowCenter": 40.5, "WindowWidth": 1}, np.where(UNITS > 40, 255, 0)[..., None]),
        ({"WindowCenter": [40, -600], "WindowWidth": [400, 1500]}, window(40, 400)),  # the first of several
        ({"WindowCenter": 40, "WindowWidth": 400, "VOILUTFunction": "LINEAR_EXACT"}, in_8_bits(UNITS, -160, 240)),
        (
            {"WindowCenter": 40, "WindowWidth": 400, "VOILUTFunction": "SIGMOID"},
            np.floor(255 / (1 + np.exp(-4 * (UNITS - 40) / 400)) + 0.5)[..., None],
        ),
    ],
)
def test_a_window(tmp_path, fields, expected):
    grey, done = seen(write(tmp_path / "a.dcm", **CT, **fields))
    assert (grey == expected).all()
    assert done == ("DICOM window applied",)


def test_an_inverted_image_a_lookup_table_and_a_range_of_ones_own(tmp_path):
    path = write(tmp_path / "a.dcm", kind="MONOCHROME1", WindowCenter=2048, WindowWidth=4096)
    grey, done = seen(path)
    assert np.abs(grey - (255 - in_8_bits(STORED, 0, 4095).astype(int))).max() <= 1
    assert done == ("DICOM window applied", "MONOCHROME1 inverted")
    table = pydicom.Dataset()
    table.LUTDescriptor = [4096, 0, 8]
    table.LUTData = ((np.arange(4096) // 16) ^ 255).astype("<u2").tobytes()
    write(path, WindowCenter=40, WindowWidth=400, VOILUTSequence=pydicom.Sequence([table]))
    grey, done = seen(path)
    assert (grey == ((STORED // 16) ^ 255)[..., None]).all()
    assert done == ("DICOM VOI table applied",)  # before the window
    write(path, **CT, WindowCenter=40, WindowWidth=400)
    grey, done = seen(path, Decoding(ImageRule.LINEAR, (-160.0, 240.0)))
    assert (grey == in_8_bits(UNITS, -160, 240)).all()
    assert done == ("DICOM scaled from -160..240, as given",)
    for center, width in ((5000, 100), (1000, 60000)):
        assert seen(write(path, WindowCenter=center, WindowWidth=width))[1] == ("DICOM window applied", NEARLY_FLAT)


SIGNED = (STORED - 1024).astype(np.int16)
SCALED = ("DICOM without a window scaled from its least to its largest value",)


@each_row(
    "fields, padding",
    [
        ({}, None),
        ({"PixelPaddingValue": -2000}, -2000),  # as CT scanners fill up what is outside of their circle
        ({"PixelPaddingValue": -2000, "PixelPaddingRangeLimit": -3000}, -2500),
    ],
)
def test_without_a_window_the_values_are_the_range(tmp_path, fields, padding):
    values = SIGNED.copy()
    if padding is not None:
        values[5, :5] = padding
    expected = in_8_bits(values, -1024, 3071)  # padding is black
    blank = {"WindowCenter": None, "WindowWidth": None}
    grey, done = seen(write(tmp_path / "a.dcm", values, stored=16, PixelRepresentation=1, **blank, **fields))
    assert (grey == expected).all()
    assert done == SCALED


def test_without_a_window_8_bits_are_as_stored_and_one_value_is_refused(tmp_path):
    grey, done = seen(Path(pydicom.data.get_testdata_file("CT_small.dcm", download=False)))
    assert (grey.min(), grey.max(), grey.std() > 30, done) == (0, 255, True, SCALED)
    grey, done = seen(write(tmp_path / "a.dcm", (ramp() // 2).astype(np.uint8), stored=8))
    assert (grey == (ramp() // 2)[..., None]).all()
    assert done == ("DICOM without a window scaled from the 8 bits stored",)
    with pytest.raises(UnclearRange, match=r"no window, and all its values are 7; say .* image_range: \[LOW, HIGH\]"):
        seen(write(tmp_path / "a.dcm", np.full_like(STORED, 7)))
    with pytest.raises(OSError, match="all of its pixels are padding"):
        seen(write(tmp_path / "a.dcm", np.full_like(STORED, 7), PixelPaddingValue=7))


@each_row("stored", [8, 12])
def test_colours(tmp_path, stored):
    rgb = colours(2**stored - 1).astype(np.uint8 if stored == 8 else np.uint16)
    path = write(tmp_path / "a.dcm", rgb[..., 0], stored=stored)
    dataset = pydicom.dcmread(path)
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation, dataset.PlanarConfiguration = 3, "RGB", 0
    dataset.PixelData = rgb.tobytes()
    dataset.save_as(path)
    grey, done = seen(path)
    assert (grey == in_8_bits(rgb, 0, 2**stored - 1)).all()
    assert done == ("DICOM colours",)


def test_through_a_folder_and_through_a_yaml(tmp_path):
    data = write(tmp_path / "a.dcm", **CT, WindowCenter=40, WindowWidth=400).read_bytes()
    folder = put(tmp_path / "scans", {"scan.dcm": data, "cut": data[:-40]})
    with pytest.raises(SourceError, match=r"sample 2: its image cut is broken \(.*"):
        prepare_own(folder, access=Access.PUBLIC)
    manifest = prepare_own(folder, access=Access.PUBLIC, allow_incomplete=True)
    assert manifest.image_conversions == {"DICOM window applied": 1}
    (document,) = load_documents(manifest.name)
    assert document["image_files"][0].endswith(".dcm")
    (from_folder,) = images(document)
    (from_yaml,) = images({"doc_id": "q", "image_file": "scan.dcm"}, {"image_root": str(folder)})
    assert (np.asarray(from_folder) == window(40, 400)).all()
    assert from_yaml.tobytes() == from_folder.tobytes()


def test_what_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path / "a.dcm", **CT, WindowCenter=40, WindowWidth=400, VOILUTFunction="CUBIC")
    with pytest.raises(OSError, match=r"its window \(CUBIC, width 400.0\) is none that DICOM knows"):
        seen(path)
    write(path, np.stack([STORED, STORED]))
    with pytest.raises(OSError, match="it holds 2 frames; save the one to show by itself"):
        seen(path)
    with pytest.raises(OSError, match="it is no image that can be read"):
        seen(path, REFERENCE)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(SourceError, match=r"a\.dcm of sample q is broken \(a DICOM file needs pydicom; install it"):
        images({"doc_id": "q", "image_file": str(path)})


def noise(least, most, shape=(96, 80)):
    return np.random.default_rng(most).integers(least, most, shape).astype(np.uint16)


@each_row(
    "syntax, kind, most, stored",
    [
        (pydicom.uid.ExplicitVRLittleEndian, "MONOCHROME1", 4096, 12),
        (pydicom.uid.RLELossless, "MONOCHROME2", 65536, 16),
        (pydicom.uid.JPEG2000Lossless, "MONOCHROME1", 65536, 16),
        (pydicom.uid.ExplicitVRLittleEndian, "MONOCHROME2", 65536, 12),  # more bits than the header says
    ],
)
def test_grey_as_multimedeval_has_it(tmp_path, syntax, kind, most, stored):
    if syntax == pydicom.uid.JPEG2000Lossless:
        pytest.importorskip("openjpeg")
    values = noise(37, most)
    image = read_dicom(put_dicom(tmp_path / "a.dicom", values, kind, stored, syntax))
    values = np.amax(values) - values if kind == "MONOCHROME1" else values  # its arithmetic, at d9ac283
    values = values - np.min(values)
    assert image.mode == "L"
    assert np.array_equal(np.asarray(image), (values / np.max(values) * 255).astype(np.uint8))


@pytest.mark.filterwarnings("error")
def test_grey_as_multimedeval_has_it_by_hand_and_what_it_cannot_show(tmp_path):
    path = tmp_path / "a.dicom"
    for values, grey, kind, stored in (
        (np.array([[100, 150, 300]], np.uint16), [[255, 191, 0]], "MONOCHROME1", 12),
        (np.array([[3, 7], [5, 3]], np.uint8), [[0, 255], [127, 0]], "MONOCHROME2", 8),
        (np.full((1, 2), 9, np.uint16), [[0, 0]], "MONOCHROME2", 12),
    ):
        assert np.asarray(read_dicom(put_dicom(path, values, kind, stored))).tolist() == grey
    frames = put_dicom(path, noise(0, 4096, (2, 8, 8))).read_bytes()
    whole = put_dicom(path, noise(0, 4096)).read_bytes()
    dataset = pydicom.dcmread(path)
    del dataset.PixelData
    dataset.save_as(path)
    for data, cause in [
        (frames, r"shape \(2, 8, 8\) and no single grey image"),
        (path.read_bytes(), "it is truncated or holds no image"),
        (whole[:-100], "The number of bytes of pixel data is less than expected"),
        (whole[:400], "it is truncated or holds no image"),
        (b"", "it is no DICOM file"),
    ]:
        path.write_bytes(data)
        with pytest.raises(UnreadableImage, match=cause):
            read_dicom(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_dicom(path)
