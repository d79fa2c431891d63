"""Pictures in folders, read once, and their hashes: copies are found and different pictures are not."""

import os
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageOps

from medtasks.data.duplicates import image_hashes as ph
from medtasks.data.duplicates.image_copies import images_below
from medtasks.data.duplicates.image_hashes import CACHE_NAME, hash_images, read_image
from medtasks.home import home

from ... import synthetic_images
from ...picture_sets import jpeg, jpeg_bytes, texture, write_folder
from ...tables import each_row


@pytest.fixture
def folder(tmp_path):
    return write_folder(
        tmp_path / "training",
        {"b.png": texture(1), "a/c.JPG": texture(2), "a/d.tif": texture(3)},
    )


def names(files):
    return sorted(path.name for path in files)


def test_files_that_are_no_pictures_are_counted(folder):
    for name in ("v.nii", "a/v.NII.gz", "notes.txt", "report.pdf", "table.h5", "none"):
        (folder / name).write_bytes(b"x")

    found = images_below(folder)

    assert [path.relative_to(folder).as_posix() for path in found.files] == [
        "b.png",
        "a/c.JPG",
        "a/d.tif",
    ]
    assert (found.volumes, found.without_decoder, found.others) == (2, 0, 4)


def test_pictures_are_found_in_all_subfolders_once(folder, tmp_path):
    (folder / "a" / "back").symlink_to(folder)
    (folder / "again").symlink_to(folder / "a")
    (folder / "a" / "out").symlink_to(
        write_folder(tmp_path / "elsewhere", {"e.png": texture(4)})
    )
    assert names(images_below(folder).files) == ["b.png", "c.JPG", "d.tif", "e.png"]


def test_pictures_below_excepted_folders_are_not_found(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder / "a")
    assert names(images_below(folder, [tmp_path / "link", tmp_path / "nowhere"]).files) == [
        "b.png"
    ]


def test_a_dicom_file_is_read_as_a_picture(tmp_path):
    pytest.importorskip("pydicom")
    from medtasks.data.sources.multimedeval.x_rays import read_dicom

    from ...medical_files import noise, put_dicom

    whole = put_dicom(tmp_path / "x.dcm", noise(1), "MONOCHROME1").read_bytes()
    (tmp_path / "cut.dcm").write_bytes(whole[:-10])

    picture, digest = read_image(tmp_path / "x.dcm")
    picture.save(tmp_path / "same.png")

    assert np.array_equal(np.asarray(picture), np.asarray(read_dicom(tmp_path / "x.dcm")))
    assert read_image(tmp_path / "same.png")[1] == digest
    assert list(hash_images([tmp_path / "cut.dcm"])[1]) == [tmp_path / "cut.dcm"]


def test_equal_pixels_have_one_digest(tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    texture(5).convert("RGB").save(tmp_path / "lying.png", exif=exif)
    images = {
        "upright.png": texture(5).transpose(Image.Transpose.ROTATE_270).convert("RGBA"),
        "grey.png": texture(6),
        "colour.png": texture(6).convert("RGB"),
        "reshaped.png": Image.fromarray(np.asarray(texture(6)).reshape(120, 100)),
    }
    write_folder(tmp_path, images)

    digests = {name: read_image(tmp_path / name)[1] for name in ("lying.png", *images)}

    assert digests["lying.png"] == digests["upright.png"]
    assert digests["grey.png"] == digests["colour.png"]
    assert len(set(digests.values())) == 3


def test_what_no_model_would_see_is_spread_over_8_bits(tmp_path):
    values = np.asarray(texture(5), np.float32) * 200 + 900
    values[0, 0] = np.nan
    Image.fromarray(values).save(tmp_path / "deep.tif")

    assert np.asarray(read_image(tmp_path / "deep.tif")[0]).std() > 20


def test_files_that_cannot_be_read_are_named_with_the_cause(folder, monkeypatch):
    write_folder(
        folder,
        {"cut.jpg": jpeg_bytes(texture(1), 90)[:-900], "text.png": b"hello", "empty.gif": b""},
    )
    (folder / "gone.png").symlink_to(folder / "nowhere.png")
    read = ph.read_image

    def failing(path, data):  # a decoder that fails in its own way
        if path.name == "b.png":
            raise IndexError("list index out of range")
        return read(path, data)

    monkeypatch.setattr(ph, "read_image", failing)

    found, causes = hash_images(images_below(folder).files)

    assert names(found) == ["c.JPG", "d.tif"]
    assert names(causes) == ["b.png", "cut.jpg", "empty.gif", "gone.png", "text.png"]
    assert causes[folder / "b.png"] == "IndexError: list index out of range"
    assert all(
        cause and str(folder) not in cause and "0x" not in cause for cause in causes.values()
    )


@pytest.fixture
def reads(monkeypatch):
    """Names of the pictures that were decoded, and paths at which reading is interrupted once."""
    monkeypatch.setattr(ph, "_CHUNK", 1)
    read, decoded, interrupting = ph.read_image, [], []

    def reading(path, data):
        if path in interrupting:
            interrupting.remove(path)
            raise KeyboardInterrupt
        decoded.append(path.name)
        return read(path, data)

    monkeypatch.setattr(ph, "read_image", reading)
    return decoded, interrupting


def test_nothing_is_decoded_twice_after_an_interruption(folder, reads):
    decoded, interrupting = reads
    files = images_below(folder).files
    interrupting.append(files[2])

    with pytest.raises(KeyboardInterrupt):
        hash_images(files)
    assert sorted(decoded) == ["b.png", "c.JPG"]

    first, _ = hash_images(files)
    assert hash_images(files) == (first, {})
    assert decoded[2:] == ["d.tif"]


def test_only_what_changed_is_decoded_again(folder, reads):
    decoded, _ = reads
    files = images_below(folder).files
    first, _ = hash_images(files)
    decoded.clear()
    texture(9).save(folder / "b.png")

    changed, _ = hash_images(files)

    assert decoded == ["b.png"]
    assert [changed[path] == first[path] for path in files] == [False, True, True]


def test_the_cache_is_its_owners_and_names_no_file(folder):
    hash_images(images_below(folder).files)

    cache = home() / CACHE_NAME
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600
    assert not any(name in cache.read_bytes() for name in (b"training", b".png"))


def test_the_cache_can_be_done_without(folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "file" / "home"))
    name = os.fsdecode(b"caf\xe9.png")  # a name that is no text
    (folder / "b.png").rename(folder / name)

    found, causes = hash_images(images_below(folder).files)

    assert (names(found), causes) == (sorted(["c.JPG", "d.tif", name]), {})


def bits_between(first, second):
    return (int(first, 16) ^ int(second, 16)).bit_count()


def alike(first, second):
    """Whether two pictures pass both checks in any of their views, the sign of the correlation left aside."""
    side = ph.sketch_side(first.size, second.size)
    for one in ph.sketches(first):
        for two in ph.sketches(second):
            bits = bits_between(ph.perceptual_hash(one), ph.perceptual_hash(two))
            correlation = abs(float(np.dot(ph.details(one, side), ph.details(two, side))))
            if min(bits, ph.BITS - bits) <= ph.DISTANCE and correlation >= ph.LIKENESS[side]:
                return True
    return False


def brighter(picture, factor, offset):
    return Image.fromarray(
        np.clip(np.asarray(picture, float) * factor + offset, 0, 255).astype(np.uint8)
    )


def with_text(picture):
    picture = picture.copy()
    ImageDraw.Draw(picture).text((6, 4), "L  PORTABLE", fill=255, font_size=12)
    return picture


SIZE = (260, 220)


def drawn(draw, seed, **changes):
    sheet = synthetic_images.Sheet(SIZE)
    draw(sheet, **changes)
    return sheet.finished(seed)


COPIES = {
    "jpeg 50": lambda one: jpeg(one, 50),
    "a quarter": lambda one: one.resize(
        (one.width // 4, one.height // 4), Image.Resampling.BICUBIC
    ),
    "half, nearest": lambda one: one.resize(
        (one.width // 2, one.height // 2), Image.Resampling.NEAREST
    ),
    "twice": lambda one: one.resize((one.width * 2, one.height * 2), Image.Resampling.BICUBIC),
    "colour": lambda one: one.convert("RGB"),
    "more contrast": lambda one: brighter(one, 1.3, -38),
    "inverted": ImageOps.invert,
    "text": with_text,
    "black border": lambda one: ImageOps.expand(one, 24, 0),
    "made square": lambda one: ImageOps.pad(one, (320, 320)),
    "crop by 1 %": lambda one: one.crop((2, 1, one.width - 1, one.height - 2)),
}


@pytest.fixture(scope="module")
def originals():
    return {
        "chest": drawn(synthetic_images.chest, 1, nodule="left"),
        "head": drawn(synthetic_images.head, 2, spot="right"),
        "texture": texture(3, SIZE),
    }


@each_row("change", COPIES)
@each_row("name", ["chest", "head", "texture"])
def test_a_copy_is_alike(originals, name, change):
    original = originals[name]
    assert alike(original, COPIES[change](original))


@each_row("grey", [0, 128, 255])
def test_a_picture_of_one_grey_has_no_sketch(grey):
    noise = np.random.default_rng(0).integers(-2, 3, (80, 90))
    assert ph.sketches(Image.new("RGB", (50, 40), (grey,) * 3)) == []
    assert ph.sketches(Image.fromarray(np.clip(noise + grey, 0, 255).astype(np.uint8))) == []


@each_row("size", [(1, 1), (1, 300), (300, 1), (2, 2), (28, 28)])
def test_the_smallest_pictures_have_a_sketch(size):
    picture = Image.new("L", size, 0)
    picture.putpixel((size[0] - 1, size[1] - 1), 255)

    shown = ph.sketches(picture)

    assert {(sketch.shape, len(ph.perceptual_hash(sketch)) * 4) for sketch in shown} <= {
        ((64, 64), ph.BITS)
    }
    assert (shown == []) == (size == (1, 1))


def test_a_plain_border_is_cut_off():
    picture = texture(4, (100, 80))
    black = np.zeros((120, 140), np.uint8)
    black[20:100, 10:110] = np.asarray(picture)

    (alone,), (whole, inside) = ph.sketches(picture), ph.sketches(Image.fromarray(black))

    assert np.array_equal(inside, alone)
    assert not np.array_equal(whole, inside)


def test_details_of_both_sizes_are_of_unit_length():
    (alone,) = ph.sketches(texture(4, (100, 80)))
    for side in ph.LIKENESS:
        vector = ph.details(alone, side)
        assert (vector.shape, float(vector @ vector)) == (
            (side * side,),
            pytest.approx(1, abs=1e-5),
        )


def test_a_border_around_nothing_but_a_line_is_not_cut_off():
    """What is inside would be nothing but the line, stretched."""
    line = Image.new("L", (100, 100), 0)
    ImageDraw.Draw(line).line((10, 50, 90, 50), fill=255, width=3)
    assert len(ph.sketches(line)) == 1


hashes = st.lists(st.binary(min_size=32, max_size=32).map(bytes.hex), max_size=12)


@settings(max_examples=60)
@given(hashes, hashes, st.integers(0, 64), st.randoms(use_true_random=False))
def test_the_quick_comparison_finds_what_a_loop_finds(first, second, distance, draw):
    """Random hashes hardly ever meet, so some of the second ones are made from the first by turning bits.

    The sets are compared in small parts, as large ones are in larger ones.
    """
    for made in first:
        flipped = bytearray.fromhex(made)
        for bit in draw.sample(
            range(256), draw.choice([distance, distance + 1, 256 - distance, 255 - distance])
        ):
            flipped[bit // 8] ^= 1 << bit % 8
        second = [*second, flipped.hex()]

    expected = set()
    for one, left in enumerate(first):
        for two, right in enumerate(second):
            bits = bits_between(left, right)
            if min(bits, 256 - bits) <= distance:
                expected.add((one, two, min(bits, 256 - bits), bits > 128))

    pairs, ends = set(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ph, "_ROWS", 2)
        patch.setattr(ph, "_BLOCK", 5)
        for end, *arrays in ph.close_pairs(
            ph.stack_hashes(first), ph.stack_hashes(second), distance
        ):
            pairs.update(zip(*(array.tolist() for array in arrays), strict=True))
            ends.append(end)

    assert pairs == expected
    assert ends == [min(start + 5, len(second)) for start in range(0, len(second), 5)]
