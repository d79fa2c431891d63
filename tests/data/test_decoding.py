"""What a model sees of image files of every mode, through a folder of one's own and through a YAML of one's own."""

import gzip
import json
import logging
import threading
import warnings
from collections import Counter

import numpy as np
import pytest
from loguru import logger
from PIL import Image, ImageFile

from medtasks.data.catalogue import Access
from medtasks.data.dataset_lookup import prepared_folder, provenance
from medtasks.data.dataset_manifest import Manifest, described_images
from medtasks.data.document_store import load_documents
from medtasks.data.images.decoding import (
    LINEAR,
    NEARLY_FLAT,
    REFERENCE,
    Decoding,
    ImageRule,
    decode_image,
)
from medtasks.data.images.strict_pillow import UnreadableImage, strict_decoding
from medtasks.data.prepare.prepare_dataset import verify
from medtasks.data.variants import BLANK, COLUMN
from medtasks.errors import MedTasksError, SourceError
from medtasks.home import HOME_VARIABLE
from medtasks.prompts.images import _LOGGED, OPENED, images
from medtasks.tasks.own_tasks import prepare_own

from ..tables import each_row
from .image_modes import HEIGHT, WIDTH, image_cases, in_8_bits, png, ramp, saved, tiff, turned

CASES = image_cases()
FLOATS = tiff((ramp(4000) - 1000).astype("<f4"), 32)
HALF = np.arange(HEIGHT)[:, None] + 0 * ramp() < HEIGHT // 2 - 1
"""The upper part of an image, a bit less than half of it."""


def with_marker(values, level, side=4):
    """Burn a marker into a corner, by default 2 per cent of the image."""
    values = values.copy()
    values[:side, :side] = level
    return values


UNCLEAR = {
    "12 of 16 bits.png": (png(ramp(4095), 16, 0), "so that a model would see it almost flat"),
    "marker.png": (
        png(with_marker(ramp(4095), 65535), 16, 0),
        "to 65535, nearly all of them from 30",
    ),
    "dark marker.tif": (
        tiff(with_marker(61440 + ramp(4095), 0).astype("<u2"), 16),
        "from 0 to 65535, nearly all of",
    ),
    "hot pixel on a black ground.png": (
        png(np.where(HALF, with_marker(ramp(4095), 65535, 1), 0), 16, 0),
        "to 65535, ",
    ),
    "14 of 16 bits.tif": (tiff(ramp(16383).astype("<u2"), 16), "from 0 to 16383, "),
    "statistic.tif": (
        tiff(ramp(3187).astype("<u2"), 16, tags={281: ("H", [3187])}),
        "from 0 to 3187, ",
    ),
    "dark.tif": (tiff((ramp(100) / 1000).astype("<f4"), 32), "from 0 to 0.1, "),
    "offset.png": (
        png(ramp(4000) + 31768, 16, 0),
        "from 31768 to 35768, ",
    ),  # Hounsfield units, made unsigned
    "grey.tif": (tiff((ramp(100) / 1000 + 0.45).astype("<f4"), 32), "from 0.45 to 0.55, "),
    "floats.tif": (
        FLOATS,
        "its floats go from -1000 to 3000, and no bit depth gives their range",
    ),
    "signed.tif": (
        tiff((ramp(4000) - 1000).astype("<i2"), 16),
        "its signed or 32-bit values go from -1000 to 3000",
    ),
    "long.tif": (
        tiff(ramp(4000).astype("<u4"), 32),
        "its signed or 32-bit values go from 0 to 4000",
    ),
    "colours.png": (png(np.dstack([ramp(4095)] * 3), 16, 2), "from 0 to 4095, "),
}


def put(folder, files, **settings):
    """Write files and the questions on them, as ``--from-folder`` takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    samples = [
        {"question": "Which side?", "answer": "left", "images": [name]} for name in files
    ]
    content = {"taskType": "VQA", "modality": "Radiology", "samples": samples, **settings}
    (folder / "dataset.json").write_text(json.dumps(content))
    return folder


def pixels(image):
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def shown(file, **settings):
    """What a YAML of one's own shows of a file."""
    (image,) = images({"doc_id": "q", "image_file": str(file)}, settings)
    return image


@pytest.fixture(scope="module")
def every_mode(tmp_path_factory):
    """A prepared folder with all files, and the folder itself."""
    folder = put(
        tmp_path_factory.mktemp("own") / "modes",
        {name: case.data for name, case in CASES.items()},
    )
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HOME_VARIABLE, str(home))
        return folder, home, prepare_own(folder, access=Access.PUBLIC)


@pytest.fixture
def prepared(every_mode, monkeypatch):
    folder, home, manifest = every_mode
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    return folder, manifest


@pytest.mark.filterwarnings("ignore")  # of Pillow, which is asked here without us
@each_row("name", CASES)
def test_every_mode_through_a_folder_and_through_a_yaml(prepared, name):
    folder, manifest = prepared
    (from_folder,) = images(load_documents(manifest.name)[list(CASES).index(name)])
    for seen in (from_folder, shown(name, image_root=str(folder))):
        assert pixels(seen).shape == CASES[name].seen.shape
        assert (
            np.abs(pixels(seen) - CASES[name].seen.astype(int)).max() <= CASES[name].tolerance
        )
    with Image.open(folder / name) as image:
        expected = image.convert("RGB")
    seen = shown(folder / name, image_rule="reference")  # of published sets
    assert (seen.size, seen.tobytes()) == (expected.size, expected.tobytes())


@pytest.fixture(scope="module")
def conversions():
    """How many of all files get each treatment."""
    return dict(
        Counter(
            one for case in CASES.values() for one in case.conversions or ("8 bits as stored",)
        )
    )


def test_a_manifest_says_what_was_done_with_how_many_images(prepared, conversions):
    _, manifest = prepared
    assert (manifest.image_rule, dict(manifest.image_conversions)) == (
        ImageRule.LINEAR,
        conversions,
    )
    assert Manifest.read(prepared_folder(manifest.name)) == manifest
    assert list(verify(manifest.name)) == []


def test_results_say_what_was_done_with_how_many_images(prepared, conversions):
    _, manifest = prepared
    facts = provenance(manifest.name)
    assert (facts["image_rule"], facts["image_conversions"]) == ("linear", conversions)
    assert f"CMYK to RGB ({conversions['CMYK to RGB']}), " in described_images(facts)


@each_row(
    "name, done",
    [
        ("L.png", ()),
        ("I;16.png", ("more than 8 bits cut off at 255",)),
        ("F.tif", ("more than 8 bits cut off at 255", NEARLY_FLAT)),
        ("RGBA 16 bits.png", ("low byte of 16 bits dropped", "transparency dropped")),
        ("PA.tif", ("transparency dropped", "palette to its colours")),
        ("CMYK Adobe.jpg", ("CMYK to RGB",)),
        ("EXIF 6.jpg", ("EXIF orientation ignored",)),
    ],
)
def test_what_is_said_of_published_sets(prepared, name, done):
    assert decode_image(prepared[0] / name, REFERENCE).conversions == done


def test_a_dataset_prepared_before_there_was_a_choice_keeps_its_pixels(
    prepared, tmp_path, monkeypatch
):
    folder = put(tmp_path / "old", {"deep.png": CASES["I;16.png"].data})
    manifest = prepare_own(folder, access=Access.PUBLIC)
    place = prepared_folder(manifest.name)
    fields = {"image_rule", "image_range", "image_conversions"}
    (place / "manifest.json").write_text(manifest.model_dump_json(exclude=fields))
    old = Manifest.read(place)
    assert (old.image_rule, old.image_range, old.image_conversions) == (
        ImageRule.REFERENCE,
        None,
        {},
    )
    assert described_images(old.model_dump()) == ""
    (seen,) = images(load_documents(manifest.name)[0])
    assert np.mean(pixels(seen) == 255) > 0.98


@each_row("name", UNCLEAR)
def test_an_unclear_range_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    data, complaint = UNCLEAR[name]
    mend = "say which values are black and white with image_range: [LOW, HIGH], or save it with 8 bits"
    folder = put(tmp_path / "scans", {name: data})

    with pytest.raises(SourceError) as refused:
        prepare_own(folder)
    assert f"dataset.json sample 1: its image {name} cannot be read (" in str(refused.value)
    assert all(part in str(refused.value) for part in (complaint, mend))

    with pytest.raises(SourceError) as refused:
        shown(name, image_root=str(folder))
    assert str(refused.value).startswith(f"image {folder / name} of sample q cannot be shown: ")
    assert all(part in str(refused.value) for part in (complaint, mend))


@each_row("name", UNCLEAR)
def test_a_range_that_is_given_is_that_of_the_image(tmp_path, monkeypatch, name):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    data, _ = UNCLEAR[name]
    folder = put(tmp_path / "scans", {name: data}, image_range=[-100, 2000])

    manifest = prepare_own(folder)

    assert manifest.image_range == (-100, 2000)
    flat = [NEARLY_FLAT] * (name in ("dark.tif", "grey.tif", "offset.png"))
    done = ["more than 8 bits scaled from -100..2000, as given", *flat]
    assert manifest.image_conversions == dict.fromkeys(done, 1)
    (from_folder,) = images(load_documents(manifest.name)[0])
    from_yaml = shown(name, image_root=str(folder), image_range=[-100, 2000])
    with Image.open(folder / name) as image:
        values = np.dstack([ramp(4095)] * 3) if name == "colours.png" else np.asarray(image)
    expected = np.floor(np.clip((values + 100.0) / 2100, 0, 1) * 255 + 0.5).astype(int)
    expected = expected if expected.ndim == 3 else expected[..., None]
    assert (pixels(from_folder) == expected).all()
    assert (pixels(from_yaml) == expected).all()
    assert list(verify(manifest.name)) == []


def test_values_that_are_no_numbers_are_black_and_a_flat_image_is_no_dark_one(tmp_path):
    values = (ramp(1000) / 1000).astype("<f4")
    values[0, 0], values[0, 1], values[0, 2] = np.nan, np.inf, -np.inf
    (tmp_path / "nan.tif").write_bytes(tiff(values, 32))
    assert pixels(decode_image(tmp_path / "nan.tif", LINEAR).pixels)[0, :3, 0].tolist() == [
        0,
        255,
        0,
    ]
    for value in (0, 7):
        (tmp_path / "flat.png").write_bytes(png(np.full((4, 5), value), 16, 0))
        assert decode_image(tmp_path / "flat.png", LINEAR).pixels.getextrema() == ((0, 0),) * 3


def test_what_pillow_misreads_is_refused_in_one_sentence(tmp_path):
    signed = tiff((ramp() - 128).astype("i1"), 8)
    planar = tiff(np.dstack([ramp(65535)] * 3).astype("<u2"), 16, 2, {284: ("H", [2])})
    for data, complaint in (
        (signed, "signed values, which Pillow misreads"),
        (planar, "in separate planes"),
    ):
        (tmp_path / "a.tif").write_bytes(data)
        with pytest.raises(
            SourceError,
            match=rf"image {tmp_path}/a.tif of sample q is broken \(it has .*{complaint}",
        ):
            shown(tmp_path / "a.tif")


def test_a_bomb_is_refused_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    (tmp_path / "a.png").write_bytes(png(np.zeros((4, 6)), 8, 0))
    with pytest.raises(
        SourceError, match=r"is broken \(it has more than 20 pixels; save it smaller\)$"
    ):
        shown(tmp_path / "a.png")


def test_the_first_of_several_frames_is_shown_and_said_to_be(tmp_path):
    frames = [Image.new("L", (5, 4), shade) for shade in (50, 100, 150)]
    for kind in ("GIF", "TIFF", "PNG"):
        (tmp_path / "a").write_bytes(
            saved(frames[0], kind, save_all=True, append_images=frames[1:])
        )
        for decoding in (LINEAR, REFERENCE):
            seen = decode_image(tmp_path / "a", decoding)
            assert seen.pixels.getextrema() == ((50, 50),) * 3
            assert seen.conversions[-2:] == ("first of several frames", NEARLY_FLAT)


@each_row(
    "settings, complaint",
    [
        ({"image_rule": "careful"}, "image_rule is 'careful'; it can be reference or linear"),
        ({"image_range": 4095}, r"image_range is 4095; it must be \[LOW, HIGH\]"),
        ({"image_range": [4095, 0]}, r"image_range is \[4095, 0\]"),
        ({"image_range": [0, float("inf")]}, "image_range is"),
        (
            {"image_rule": "reference", "image_range": [0, 4095]},
            "image_range is for the image_rule linear",
        ),
    ],
)
def test_impossible_settings(prepared, tmp_path, settings, complaint):
    assert Decoding.of_settings({"template": "x"}) is None
    with pytest.raises(MedTasksError, match=complaint):
        shown(prepared[0] / "L.png", **settings)
    if "image_rule" not in settings:
        with pytest.raises(
            SourceError, match=f"dataset.json: .*{complaint}|dataset.json.*{complaint}"
        ):
            prepare_own(
                put(
                    tmp_path / "scans",
                    {},
                    samples=[{"question": "?", "answer": "!"}],
                    **settings,
                )
            )


def test_settings_do_not_change_what_a_prepared_dataset_shows(prepared):
    assert Decoding.of_settings({"image_range": [0, 4095]}) == Decoding(
        ImageRule.LINEAR, (0.0, 4095.0)
    )
    document = load_documents(prepared[1].name)[0]
    assert images(document, {"image_rule": "linear"})
    with pytest.raises(
        SourceError,
        match="were prepared with image_rule linear; leave image_rule and image_range out",
    ):
        images(document, {"image_rule": "reference"})


def test_a_task_of_ones_own_is_told_once_what_is_done_with_its_images(prepared):
    told = []
    handler = logger.add(told.append, format="{message}")
    OPENED.clear()
    _LOGGED.clear()
    for name in ("EXIF 6.png", "EXIF 8.png", "L.png", "I;16.png", "EXIF 6.png"):
        shown(name, image_root=str(prepared[0]))
    logger.remove(handler)
    told = [line.strip().partition(": ") for line in told]
    assert {before for before, _, _ in told} == {
        "Some images are not shown to the model as they are stored (image_rule linear)"
    }
    first = f"; the first is {prepared[0]}"
    assert [done for _, _, done in told] == [
        f"EXIF orientation applied{first}/EXIF 6.png of sample q",
        f"16 bits scaled from 0..65535{first}/I;16.png of sample q",
    ]


DARK = ramp(15)
DOTS = (np.indices(DARK.shape) % 5 == 0).all(axis=0)  # every 25th pixel


@each_row(
    "grey, is_flat",
    [
        ([[100, 131]], True),
        ([[100, 132]], False),
        ([[0, 255]], False),
        ([[7, 7]], True),
        (with_marker(DARK, 255), True),
        (with_marker(255 - DARK, 0), True),
        (
            np.where(HALF, with_marker(DARK, 255, 3), 0),
            True,
        ),  # the marker is 2 per cent of what is not ground
        (np.where(HALF, with_marker(DARK, 255, 6), 0), False),  # and here 9
        (with_marker(np.full((60, 60), 7), 255, 1), True),
        (with_marker(np.full(DARK.shape, 0), 255), False),  # a mask
        (np.where(DOTS, 250, 2 + ramp(9)), False),  # stained cells
        (np.where(DOTS & HALF, 0, 255), False),  # text, a drawing
        (np.where(HALF, ramp(200), 0), False),  # a slice in the air
    ],
)
def test_an_image_of_which_next_to_nothing_is_seen_is_marked_and_counted(
    tmp_path, grey, is_flat
):
    folder = put(tmp_path, {"a.png": png(np.array(grey), 8, 0)})
    assert decode_image(folder / "a.png", REFERENCE).conversions == (NEARLY_FLAT,) * is_flat
    manifest = prepare_own(folder, access=Access.PUBLIC)
    assert manifest.image_conversions == {
        "8 bits as stored": 1,
        **({NEARLY_FLAT: 1} if is_flat else {}),
    }


@each_row(
    "values",
    [
        with_marker(np.zeros(DARK.shape), 65535),
        np.where(DOTS, 60000, 500 + ramp(2000)),
        np.where(DOTS & HALF, 0, 65535),
        with_marker(ramp(40000), 65535),
        np.where(HALF, ramp(60000), 0),
    ],
)
def test_16_bits_of_which_something_is_seen_are_not_refused(tmp_path, values):
    (tmp_path / "a.png").write_bytes(png(values, 16, 0))
    seen = decode_image(tmp_path / "a.png", LINEAR)
    assert seen.conversions == ("16 bits scaled from 0..65535",)
    assert (pixels(seen.pixels) == in_8_bits(values, 0, 65535)).all()


def test_a_turned_jpeg_has_a_blank_of_its_upright_size(tmp_path):
    (tmp_path / "a.jpg").write_bytes(turned(6, "JPEG"))
    document = {"doc_id": "q", "image_file": str(tmp_path / "a.jpg")}

    (seen,) = images(document)
    (blank,) = images({**document, COLUMN: BLANK})

    assert blank.size == seen.size == decode_image(tmp_path / "a.jpg", LINEAR).size
    assert seen.size[1] == WIDTH


def test_a_smaller_copy_of_a_turned_jpeg_is_upright(tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    large = Image.fromarray(ramp().astype(np.uint8)).resize((1600, 800))
    (tmp_path / "a.jpg").write_bytes(saved(large, "JPEG", exif=exif, quality=95))

    whole, small = (decode_image(tmp_path / "a.jpg", LINEAR, side) for side in (None, 200))

    assert whole.size == small.size == whole.pixels.size == (800, 1600)
    assert small.pixels.size == (200, 400)
    assert np.abs(pixels(whole.pixels.resize((200, 400))) - pixels(small.pixels)).max() < 12


@each_row("decoding", [LINEAR, REFERENCE])
def test_pillow_keeps_its_remarks_to_itself(tmp_path, monkeypatch, caplog, decoding):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    caplog.set_level(logging.WARNING)
    (tmp_path / "large.png").write_bytes(saved(Image.new("L", (50, 30)), "PNG"))  # a warning
    (tmp_path / "samples.tif").write_bytes(
        tiff(ramp().astype("u1"), 8, tags={277: ("H", [99])})
    )  # a log line

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decode_image(tmp_path / "large.png", decoding)
        with pytest.raises(UnreadableImage):
            decode_image(tmp_path / "samples.tif", decoding)
        assert ([str(warning.message) for warning in caught], caplog.records) == ([], [])
        warnings.warn("ours", UserWarning, stacklevel=1)
        Image.open(tmp_path / "large.png").close()  # and that there was something to keep
        with pytest.raises(OSError):
            Image.open(tmp_path / "samples.tif")

    assert len(caught) == 2
    assert [record.name for record in caplog.records] == ["PIL.TiffImagePlugin"]


@each_row("data", [b"", b"nonsense", CASES["RGB.png"].data[:200], b"\xff\xd8\xff\xe0nonsense"])
def test_messages_name_the_users_file(tmp_path, data):
    folder = put(tmp_path / "scans", {"scan.png": data})
    with pytest.raises(SourceError) as refused:
        prepare_own(folder)
    assert "its image scan.png is broken (" in str(refused.value)
    with pytest.raises(SourceError) as broken:
        shown("scan.png", image_root=str(folder))
    assert str(broken.value).count(str(folder / "scan.png")) == 1
    for error in (refused, broken):
        assert not any(
            part in str(error.value) for part in ("BytesIO", "0x", "identify", "preparing")
        )


@each_row(
    "data, kind",
    [
        (b"", "an empty file; copy it again"),
        (bytes(5000), "only zero bytes; copy it again"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n",
            "a Git LFS pointer; run `git lfs pull`",
        ),
        (b"\n<!DOCTYPE html><title>Sign in", "a web page; download the image again"),
        (b"<!-- x --><HTML lang='de'>", "a web page; download the image again"),
        ('{"cause": "größer"}'.encode(), "a text file; put the image in its place"),
        (b"PK\x03\x04\0\0", "a ZIP archive; unpack it"),
        (gzip.compress(bytes(9)), "a gzip archive; unpack it"),
        (bytes(344) + b"n+1\0", "a NIfTI volume; name it .nii"),
        (b"\xff\xd8\xff\xe0nonsense", ""),
        (b"\x07\x05\xff\xfe", ""),
    ],
)
def test_a_message_says_what_a_file_is_that_is_no_image(tmp_path, data, kind):
    folder = put(tmp_path / "scans", {"scan.png": data})
    with pytest.raises(SourceError) as refused:
        prepare_own(folder)
    with pytest.raises(SourceError) as broken:
        shown("scan.png", image_root=str(folder))
    for error in (refused, broken):
        assert f"scan.png{' of sample q' if error is broken else ''} is broken (" in str(
            error.value
        )
        assert (f"(it is no image that can be read, but {kind}" in str(error.value)) == bool(
            kind
        )


def test_the_settings_of_the_process_come_back_whatever_blocks_overlap(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    before, pillows = warnings.showwarning, logging.getLogger("PIL.TiffImagePlugin")
    opened, close = threading.Event(), threading.Event()

    def other():
        with strict_decoding():
            opened.set()
            close.wait(300)

    thread = threading.Thread(target=other)
    with strict_decoding():
        thread.start()
        assert opened.wait(300)

    assert (ImageFile.LOAD_TRUNCATED_IMAGES, pillows.disabled) == (False, True)
    close.set()

    thread.join()
    assert (ImageFile.LOAD_TRUNCATED_IMAGES, pillows.disabled, warnings.showwarning) == (
        True,
        False,
        before,
    )
