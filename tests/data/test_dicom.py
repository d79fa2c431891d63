"""DICOM files through their window, and as MultiMedEval stretches them; values are made here, files with pydicom."""

import io
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pydicom = pytest.importorskip("pydicom")

from medtasks.data.catalogue import Access  # noqa: E402
from medtasks.data.document_store import load_documents  # noqa: E402
from medtasks.data.images.decoding import (  # noqa: E402
    LINEAR,
    NEARLY_FLAT,
    REFERENCE,
    Decoding,
    ImageRule,
    decode_image,
)
from medtasks.data.images.strict_pillow import UnclearRange, UnreadableImage  # noqa: E402
from medtasks.data.sources.multimedeval.x_rays import read_dicom  # noqa: E402
from medtasks.errors import SourceError  # noqa: E402
from medtasks.prompts.images import images  # noqa: E402
from medtasks.tasks.own_tasks import prepare_own  # noqa: E402

from ..medical_files import put_dicom  # noqa: E402
from ..tables import each_row  # noqa: E402
from .image_modes import HEIGHT, WIDTH, colours, in_8_bits, ramp  # noqa: E402
from .test_decoding import put  # noqa: E402

CT = {"RescaleSlope": 1, "RescaleIntercept": -1024}
STORED = ramp(4095).astype(np.uint16)
UNITS = STORED.astype(float) - 1024


def write(path, values=STORED, kind="MONOCHROME2", stored=12, **fields):
    return put_dicom(path, values, kind, stored, fields=fields)


def seen(path, decoding=LINEAR):
    found = decode_image(path, decoding)
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
        (
            {"WindowCenter": [40, -600], "WindowWidth": [400, 1500]},
            window(40, 400),
        ),  # the first of several
        (
            {"WindowCenter": 40, "WindowWidth": 400, "VOILUTFunction": "LINEAR_EXACT"},
            in_8_bits(UNITS, -160, 240),
        ),
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


def test_a_window_of_floats_has_no_steps(tmp_path):
    values = (STORED / 4095).astype("<f4")
    dataset = pydicom.dcmread(write(tmp_path / "a.dcm", WindowCenter=0.5, WindowWidth=1))
    del dataset.PixelData, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation
    dataset.FloatPixelData = values.tobytes()
    dataset.BitsAllocated = 32
    dataset.save_as(tmp_path / "a.dcm")
    assert (seen(tmp_path / "a.dcm")[0] == in_8_bits(values.astype(float), 0, 1)).all()


def test_monochrome1_is_inverted_after_its_window(tmp_path):
    path = write(tmp_path / "a.dcm", kind="MONOCHROME1", WindowCenter=2048, WindowWidth=4096)

    grey, done = seen(path)

    assert np.abs(grey - (255 - in_8_bits(STORED, 0, 4095).astype(int))).max() <= 1
    assert done == ("DICOM window applied", "MONOCHROME1 inverted")


def test_a_lookup_table_goes_before_the_window(tmp_path):
    table = pydicom.Dataset()
    table.LUTDescriptor = [4096, 0, 8]
    table.LUTData = ((np.arange(4096) // 16) ^ 255).astype("<u2").tobytes()
    voi = pydicom.Sequence([table])
    path = write(tmp_path / "a.dcm", WindowCenter=40, WindowWidth=400, VOILUTSequence=voi)

    grey, done = seen(path)

    assert (grey == ((STORED // 16) ^ 255)[..., None]).all()
    assert done == ("DICOM VOI table applied",)


def test_a_range_of_ones_own_goes_before_the_window(tmp_path):
    path = write(tmp_path / "a.dcm", **CT, WindowCenter=40, WindowWidth=400)

    grey, done = seen(path, Decoding(ImageRule.LINEAR, (-160.0, 240.0)))

    assert (grey == in_8_bits(UNITS, -160, 240)).all()
    assert done == ("DICOM scaled from -160..240, as given",)


@each_row("center, width", [(5000, 100), (1000, 60000)])
def test_an_image_that_its_window_makes_flat_is_marked(tmp_path, center, width):
    path = write(tmp_path / "a.dcm", WindowCenter=center, WindowWidth=width)
    assert seen(path)[1] == ("DICOM window applied", NEARLY_FLAT)


SIGNED = (STORED - 1024).astype(np.int16)
SCALED = ("DICOM without a window scaled from its least to its largest value",)


@each_row(
    "fields, padding",
    [
        ({}, None),
        (
            {"PixelPaddingValue": -2000},
            -2000,
        ),  # as CT scanners fill up what is outside of their circle
        ({"PixelPaddingValue": -2000, "PixelPaddingRangeLimit": -3000}, -2500),
    ],
)
def test_without_a_window_the_values_are_the_range(tmp_path, fields, padding):
    values = SIGNED.copy()
    if padding is not None:
        values[5, :5] = padding
    expected = in_8_bits(values, -1024, 3071)  # padding is black
    blank = {"WindowCenter": None, "WindowWidth": None}
    grey, done = seen(
        write(tmp_path / "a.dcm", values, stored=16, PixelRepresentation=1, **blank, **fields)
    )
    assert (grey == expected).all()
    assert done == SCALED


def test_without_a_window_the_whole_range_is_shown():
    grey, done = seen(Path(pydicom.data.get_testdata_file("CT_small.dcm", download=False)))
    assert (grey.min(), grey.max(), grey.std() > 30, done) == (0, 255, True, SCALED)


def test_without_a_window_8_bits_are_as_stored(tmp_path):
    grey, done = seen(write(tmp_path / "a.dcm", (ramp() // 2).astype(np.uint8), stored=8))
    assert (grey == (ramp() // 2)[..., None]).all()
    assert done == ("DICOM without a window scaled from the 8 bits stored",)


def test_without_a_window_an_image_of_one_value_is_refused(tmp_path):
    with pytest.raises(
        UnclearRange,
        match=r"no window, and all its values are 7; say .* image_range: \[LOW, HIGH\]",
    ):
        seen(write(tmp_path / "a.dcm", np.full_like(STORED, 7)))
    with pytest.raises(OSError, match="all of its pixels are padding"):
        seen(write(tmp_path / "a.dcm", np.full_like(STORED, 7), PixelPaddingValue=7))


@each_row("stored", [8, 12])
def test_colours(tmp_path, stored):
    rgb = colours(2**stored - 1).astype(np.uint8 if stored == 8 else np.uint16)
    path = write(tmp_path / "a.dcm", rgb[..., 0], stored=stored)
    dataset = pydicom.dcmread(path)
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation, dataset.PlanarConfiguration = (
        3,
        "RGB",
        0,
    )
    dataset.PixelData = rgb.tobytes()
    dataset.save_as(path)
    grey, done = seen(path)
    assert (grey == in_8_bits(rgb, 0, 2**stored - 1)).all()
    assert done == ("DICOM colours",)


def test_a_file_that_is_a_tiff_image_too_is_a_dicom_file(tmp_path):
    path = write(tmp_path / "a.dcm", **CT, WindowCenter=40, WindowWidth=400)
    data = path.read_bytes()
    height, width = STORED.shape
    tags = [
        (256, width),
        (257, height),
        (258, 16),
        (259, 1),
        (262, 1),
        (273, data.rindex(STORED.tobytes())),
    ]
    tags += [(277, 1), (278, height), (279, STORED.nbytes)]
    entries = b"".join(struct.pack("<HHLL", tag, 4, 1, value) for tag, value in tags)
    preamble = struct.pack("<2sHLH", b"II", 42, 8, len(tags)) + entries
    path.write_bytes(preamble.ljust(128, b"\0") + data[128:])

    with Image.open(path) as image:
        assert (image.format, image.size) == ("TIFF", (width, height))

    for source in (path, io.BytesIO(path.read_bytes())):
        grey, done = seen(source)
        assert (grey == window(40, 400)).all()
        assert done == ("DICOM window applied",)


def group(**fields):
    """Return functional groups of one frame, from the fields of their sequences."""
    item = pydicom.Dataset()
    for name, values in fields.items():
        macro = pydicom.Dataset()
        macro.update(values)
        setattr(item, f"{name}Sequence", pydicom.Sequence([macro]))
    return pydicom.Sequence([item])


WINDOW = {"WindowCenter": 40, "WindowWidth": 400}
OTHER = {"WindowCenter": -600, "WindowWidth": 1500}


@each_row(
    "shared, frame, fields",
    [
        ({"FrameVOILUT": WINDOW, "PixelValueTransformation": CT}, {}, {}),
        ({}, {"FrameVOILUT": WINDOW, "PixelValueTransformation": CT}, {}),
        ({"PixelValueTransformation": CT}, {"FrameVOILUT": WINDOW}, OTHER),
        ({"PixelValueTransformation": CT, "FrameVOILUT": OTHER}, {"FrameVOILUT": WINDOW}, {}),
        ({"FrameVOILUT": WINDOW}, {}, CT),
    ],
)
def test_functional_groups_of_one_frame(tmp_path, shared, frame, fields):
    groups = {
        "SharedFunctionalGroupsSequence": group(**shared),
        "PerFrameFunctionalGroupsSequence": group(**frame),
    }
    path = write(tmp_path / "a.dcm", NumberOfFrames=1, **groups, **fields)
    grey, done = seen(path)
    assert (grey == window(40, 400)).all()
    assert done == ("DICOM window applied",)
    grey, _ = seen(path, Decoding(ImageRule.LINEAR, (-160.0, 240.0)))
    assert (grey == in_8_bits(UNITS, -160, 240)).all()
    groups["SharedFunctionalGroupsSequence"] = group(PixelMeasures={"PixelSpacing": [1, 2]})
    assert seen(write(path, **groups))[0].shape == (HEIGHT, 2 * WIDTH, 3)


@each_row(
    "field, text, values",
    [
        ("WindowCenter", "40,0", UNITS),
        ("WindowWidth", "400,", UNITS),
        ("RescaleSlope", "2,00", UNITS + STORED),
        ("RescaleSlope", "    ", UNITS),
        ("RescaleIntercept", "    ", UNITS + 1024),
        (
            "WindowCenter",
            "nan ",
            "its WindowCenter is nan and no number; say which values are black and white",
        ),
        (
            "WindowWidth",
            "wide",
            "its WindowWidth is wide and no number; say which values are black and white",
        ),
        (
            "WindowWidth",
            "0.00",
            r"its window \(LINEAR, WindowWidth 0\) is none that DICOM knows; say which values",
        ),
        ("RescaleSlope", "0.00", "its RescaleSlope is 0"),
        ("RescaleSlope", "-inf", "its RescaleSlope is -inf and no number"),
        ("PixelSpacing", "9,x ", "its PixelSpacing is 9,x and no number"),
    ],
)
def test_odd_numbers(tmp_path, field, text, values):
    marks = {
        "RescaleSlope": "1111",
        "RescaleIntercept": "2222",
        **dict.fromkeys(WINDOW, "3333"),
        "PixelSpacing": "4444",
    }
    path = write(tmp_path / "a.dcm", **{**CT, **WINDOW, field: marks[field]})
    before = path.read_bytes()
    assert before.count(marks[field].encode()) == 1
    path.write_bytes(before.replace(marks[field].encode(), text.encode()))
    if isinstance(values, str):
        with pytest.raises(UnreadableImage, match=values):
            seen(path)
        if field in WINDOW:
            grey, _ = seen(path, Decoding(ImageRule.LINEAR, (-160.0, 240.0)))
            assert (grey == in_8_bits(UNITS, -160, 240)).all()
    else:
        assert (seen(path)[0] == window(40, 400, values)).all()


@each_row(
    "kind, shape, inverted, said",
    [
        ("MONOCHROME2", "INVERSE", True, ["inverted by PresentationLUTShape"]),
        ("MONOCHROME2", "IDENTITY", False, []),
        ("MONOCHROME1", "INVERSE", True, ["MONOCHROME1 inverted"]),
        ("MONOCHROME1", "IDENTITY", False, []),
        ("MONOCHROME1", "LIN OD", True, ["MONOCHROME1 inverted"]),
    ],
)
def test_presentation_shapes(tmp_path, kind, shape, inverted, said):
    grey, done = seen(
        write(tmp_path / "a.dcm", kind=kind, **CT, **WINDOW, PresentationLUTShape=shape)
    )
    expected = window(40, 400)
    assert np.abs(grey - (255 - expected if inverted else expected)).max() <= inverted
    assert done == ("DICOM window applied", *said)


@each_row(
    "kind, fields, padding, said",
    [
        ("MONOCHROME1", {}, 0, True),
        ("MONOCHROME1", {"WindowCenter": 2048, "WindowWidth": 4096}, 0, True),
        ("MONOCHROME1", {"PixelPaddingRangeLimit": 4095}, 4000, False),  # black in any case
        ("MONOCHROME2", {}, 4095, True),
        ("MONOCHROME2", {"WindowCenter": 2048, "WindowWidth": 4096}, 0, False),
    ],
)
def test_padding_is_black(tmp_path, kind, fields, padding, said):
    values = np.clip(STORED, 100, 3900)
    values[:, :3] = padding
    grey, done = seen(
        write(tmp_path / "a.dcm", values, kind, PixelPaddingValue=padding, **fields)
    )
    assert not grey[:, :3].any()
    assert (done[-1] == "padding black") == said
    low, high = (0, 4095) if "WindowWidth" in fields else (values[:, 3:].min(), 3900)
    expected = in_8_bits(values, low, high).astype(int)[:, 3:]
    assert (
        np.abs(grey[:, 3:] - (255 - expected if kind == "MONOCHROME1" else expected)).max() <= 1
    )


@each_row(
    "fields, size",
    [
        ({"PixelSpacing": [2, 1]}, (2 * HEIGHT, WIDTH)),
        ({"ImagerPixelSpacing": [0.1, 0.25]}, (HEIGHT, 5 * WIDTH // 2)),
        ({"PixelAspectRatio": [4, 3]}, (HEIGHT * 4 // 3, WIDTH)),
        (
            {"PixelSpacing": [0.5, 0.5], "PixelAspectRatio": [2, 1]},
            (HEIGHT, WIDTH),
        ),  # as DCMTK, the first
        ({"PixelSpacing": [0.703125, 0.7031]}, (HEIGHT, WIDTH)),
        ({"PixelSpacing": [0, 0]}, (HEIGHT, WIDTH)),
        ({"PixelSpacing": 2}, (HEIGHT, WIDTH)),
    ],
)
def test_pixels_become_square(tmp_path, fields, size):
    values = np.zeros_like(STORED)
    values[6:12, 9:18] = 4000  # a quarter of both sides

    grey, done = seen(write(tmp_path / "a.dcm", values, **fields))

    assert grey.shape == (*size, 3)
    rows, columns = (np.flatnonzero((grey[..., 0] > 127).any(axis=axis)) for axis in (1, 0))
    assert abs(len(rows) - size[0] / 4) <= 1
    assert abs(len(columns) - size[1] / 4) <= 1
    assert abs(rows[0] - size[0] / 4) <= 1
    name = [f"pixels made square by {next(iter(fields))}"]
    assert list(done[1:]) == ([] if size == (HEIGHT, WIDTH) else name)


def test_pixels_that_no_image_has_are_refused(tmp_path):
    path = write(tmp_path / "a.dcm", PixelSpacing=[1000, 1])
    with pytest.raises(
        UnreadableImage, match="its pixels are 1000 high and 1 wide, which no image has"
    ):
        seen(path)


@each_row("little, bits", [(True, 16), (False, 16), (True, 8), (False, 8)])
def test_palettes_in_both_byte_orders(tmp_path, little, bits):
    indices = (ramp() // 4).astype(np.uint8)
    table = np.stack([np.arange(64), 63 - np.arange(64), np.full(64, 9)]) * (2**bits // 64) + 3
    dataset = pydicom.Dataset()
    dataset.update(pydicom.dcmread(write(tmp_path / "a.dcm", indices, "PALETTE COLOR", 8)))
    for colour, entries in zip(("Red", "Green", "Blue"), table, strict=True):
        name = f"{colour}PaletteColorLookupTable"
        dataset.add_new(f"{name}Descriptor", "US", [64, 0, bits])
        dataset.add_new(
            f"{name}Data", "OW", entries.astype("<u2" if little else ">u2").tobytes()
        )
    dataset.add_new("PixelData", "OB", indices.tobytes())
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = (
        "1.2.840.10008.1.2.1" if little else "1.2.840.10008.1.2.2"
    )
    dataset.save_as(tmp_path / "b.dcm", enforce_file_format=True)

    grey, done = seen(tmp_path / "b.dcm")

    assert (grey == in_8_bits(table.T[indices], 0, 2**bits - 1)).all()
    assert done == ("DICOM colours",)


@pytest.fixture
def scans(tmp_path):
    """A folder with a DICOM file, and with one that is cut short."""
    data = write(tmp_path / "a.dcm", **CT, WindowCenter=40, WindowWidth=400).read_bytes()
    return put(tmp_path / "scans", {"scan.dcm": data, "cut": data[:-40]})


def test_a_cut_file_of_a_folder_is_named(scans):
    with pytest.raises(SourceError, match=r"sample 2: its image cut is broken \(.*"):
        prepare_own(scans, access=Access.PUBLIC)


def test_a_file_is_seen_alike_through_a_folder_and_through_a_yaml(scans):
    manifest = prepare_own(scans, access=Access.PUBLIC, allow_incomplete=True)

    assert manifest.image_conversions == {"DICOM window applied": 1}
    (document,) = load_documents(manifest.name)
    assert document["image_files"][0].endswith(".dcm")
    (from_folder,) = images(document)
    (from_yaml,) = images({"doc_id": "q", "image_file": "scan.dcm"}, {"image_root": str(scans)})
    assert (np.asarray(from_folder) == window(40, 400)).all()
    assert from_yaml.tobytes() == from_folder.tobytes()


@each_row("implicit, little", [(True, True), (False, True), (False, False)])
def test_files_without_preamble(tmp_path, implicit, little):
    path = write(tmp_path / "a.dcm", **CT, **WINDOW)
    (tmp_path / "meta").write_bytes(path.read_bytes()[132:])
    dataset = pydicom.Dataset()
    dataset.update(pydicom.dcmread(path))
    dataset.PixelData = STORED.astype("<u2" if little else ">u2").tobytes()
    dataset.save_as(tmp_path / "bare", implicit_vr=implicit, little_endian=little)

    for name in ("meta", "bare"):
        grey, done = seen(tmp_path / name)
        assert (grey == window(40, 400)).all()
        assert done == ("DICOM window applied",)

    (tmp_path / "bare").write_bytes((tmp_path / "bare").read_bytes()[:200])
    with pytest.raises(UnreadableImage, match="it is truncated or holds no image"):
        seen(tmp_path / "bare")


def data_of_pydicom(name):
    return Path(pydicom.data.get_testdata_file(name, download=False))


@each_row(
    "packed, plain",
    [("MR_small_jpeg_ls_lossless", "MR_small"), ("SC_rgb_jpeg_gdcm", "SC_rgb_rle")],
)
def test_jpeg_lossless_and_jpeg_ls_are_as_unpacked(packed, plain):
    pytest.importorskip("gdcm")
    expected, _ = seen(data_of_pydicom(f"{plain}.dcm"))
    grey, _ = seen(data_of_pydicom(f"{packed}.dcm"))
    assert (grey == expected).all()


def test_a_cut_jpeg_ls_is_refused(tmp_path):
    pytest.importorskip("gdcm")
    whole = data_of_pydicom("MR_small_jpeg_ls_lossless.dcm").read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableImage):
        seen(tmp_path / "cut")


def test_decoders_that_fail_say_why():
    path = Path(pydicom.data.get_testdata_file("JPGExtended.dcm", download=False))

    with pytest.raises(UnreadableImage) as refused:
        seen(path)

    assert (
        "pillow: Pillow does not support 'JPEG Extended' for samples with 12-bit precision"
        in str(refused.value)
    )
    assert str(refused.value).endswith(
        "; `pip install pylibjpeg-libjpeg`, whose licence is the GPL, installs a decoder"
    )
    assert "\n" not in str(refused.value)


def test_decoders_that_are_missing_are_named(monkeypatch):
    path = Path(pydicom.data.get_testdata_file("JPGExtended.dcm", download=False))
    lost = (
        "Unable to decompress 'JPEG' pixel data because all plugins are missing dependencies:"
    )
    lost += "\n\tgdcm - requires gdcm"
    monkeypatch.setattr(
        pydicom.FileDataset,
        "pixel_array",
        property(lambda _: (_ for _ in ()).throw(RuntimeError(lost))),
    )

    with pytest.raises(
        UnreadableImage,
        match=r"missing dependencies; `pip install 'medtasks\[dicom\]'` installs decoders$",
    ):
        seen(path)


def test_an_unknown_window_is_refused(tmp_path):
    path = write(
        tmp_path / "a.dcm", **CT, WindowCenter=40, WindowWidth=400, VOILUTFunction="CUBIC"
    )
    with pytest.raises(
        OSError,
        match=r"its window \(CUBIC, WindowWidth 400\) is none that DICOM knows; say which values",
    ):
        seen(path)


def test_several_frames_are_refused(tmp_path):
    path = write(tmp_path / "a.dcm", np.stack([STORED, STORED]))
    with pytest.raises(OSError, match="it holds 2 frames; save the one to show by itself"):
        seen(path)


def test_the_rule_of_the_reference_reads_no_dicom_file(tmp_path):
    path = write(tmp_path / "a.dcm")
    with pytest.raises(
        OSError,
        match="it is no image that can be read, but a DICOM file; only the image_rule linear",
    ):
        seen(path, REFERENCE)


def test_without_pydicom_a_sentence_says_how_to_install_it(tmp_path, monkeypatch):
    path = write(tmp_path / "a.dcm")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(
        SourceError,
        match=r"a\.dcm of sample q is broken \(a DICOM file needs pydicom; install it",
    ):
        images({"doc_id": "q", "image_file": str(path)})


def noise(least, most, shape=(96, 80)):
    return np.random.default_rng(most).integers(least, most, shape).astype(np.uint16)


@each_row(
    "syntax, kind, most, stored",
    [
        (pydicom.uid.ExplicitVRLittleEndian, "MONOCHROME1", 4096, 12),
        (pydicom.uid.RLELossless, "MONOCHROME2", 65536, 16),
        (pydicom.uid.JPEG2000Lossless, "MONOCHROME1", 65536, 16),
        (
            pydicom.uid.ExplicitVRLittleEndian,
            "MONOCHROME2",
            65536,
            12,
        ),  # more bits than the header says
    ],
)
def test_grey_as_multimedeval_has_it(tmp_path, syntax, kind, most, stored):
    if syntax == pydicom.uid.JPEG2000Lossless:
        pytest.importorskip("openjpeg")
    values = noise(37, most)
    image = read_dicom(put_dicom(tmp_path / "a.dicom", values, kind, stored, syntax))
    values = (
        np.amax(values) - values if kind == "MONOCHROME1" else values
    )  # its arithmetic, at d9ac283
    values = values - np.min(values)
    assert image.mode == "L"
    assert np.array_equal(np.asarray(image), (values / np.max(values) * 255).astype(np.uint8))


@pytest.mark.filterwarnings("error")
def test_grey_as_multimedeval_has_it_by_hand(tmp_path):
    path = tmp_path / "a.dicom"
    for values, grey, kind, stored in (
        (np.array([[100, 150, 300]], np.uint16), [[255, 191, 0]], "MONOCHROME1", 12),
        (np.array([[3, 7], [5, 3]], np.uint8), [[0, 255], [127, 0]], "MONOCHROME2", 8),
        (np.full((1, 2), 9, np.uint16), [[0, 0]], "MONOCHROME2", 12),
    ):
        assert np.asarray(read_dicom(put_dicom(path, values, kind, stored))).tolist() == grey


@pytest.mark.filterwarnings("error")
def test_what_has_no_grey_for_multimedeval_is_refused(tmp_path):
    path = tmp_path / "a.dicom"
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


def test_a_missing_file_is_called_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_dicom(tmp_path / "a.dicom")
