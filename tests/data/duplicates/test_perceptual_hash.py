"""Copies are found and different pictures are not: hashes, details, and the quick comparison of all with all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageOps

from medtasks.data.duplicates import image_hashes as ph
from medtasks.data.sources import bundled_sample as synthetic_images

from ...picture_sets import jpeg, texture
from ...tables import each_row


def bits_between(first, second):
    """The obvious comparison of two hashes."""
    return (int(first, 16) ^ int(second, 16)).bit_count()


def alike(first, second):
    """Whether two pictures pass both checks in any of their views, the sign of the correlation left aside."""
    side = ph.side_compared(first.size, second.size)
    for one in ph.sketches(first):
        for two in ph.sketches(second):
            bits = bits_between(ph.perceptual_hash(one), ph.perceptual_hash(two))
            correlation = abs(float(np.dot(ph.details(one, side), ph.details(two, side))))
            if min(bits, ph.BITS - bits) <= ph.DISTANCE and correlation >= ph.LIKENESS[side]:
                return True
    return False


def brighter(picture, factor, offset):
    return Image.fromarray(np.clip(np.asarray(picture, float) * factor + offset, 0, 255).astype(np.uint8))


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
    "a quarter": lambda one: one.resize((one.width // 4, one.height // 4), Image.Resampling.BICUBIC),
    "half, nearest": lambda one: one.resize((one.width // 2, one.height // 2), Image.Resampling.NEAREST),
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


def test_pictures_of_one_kind_are_not_alike(originals):
    chests = [
        drawn(synthetic_images.chest, seed, large_heart=heart, catheter=catheter)
        for seed, heart, catheter in ((1, False, False), (2, True, False), (3, False, True), (4, True, True))
    ]
    assert not any(alike(chests[one], chests[two]) for two in range(4) for one in range(two))
    assert not alike(originals["chest"], originals["head"])
    assert not any(alike(texture(one), texture(two)) for two in range(12) for one in range(two))


def test_a_picture_of_one_grey_has_no_sketch_and_the_smallest_have_one():
    for grey in (0, 128, 255):
        noise = np.random.default_rng(0).integers(-2, 3, (80, 90))
        assert ph.sketches(Image.new("RGB", (50, 40), (grey,) * 3)) == []
        assert ph.sketches(Image.fromarray(np.clip(noise + grey, 0, 255).astype(np.uint8))) == []
    for size in ((1, 1), (1, 300), (300, 1), (2, 2), (28, 28)):
        picture = Image.new("L", size, 0)
        picture.putpixel((size[0] - 1, size[1] - 1), 255)
        shown = ph.sketches(picture)
        assert {(sketch.shape, len(ph.perceptual_hash(sketch)) * 4) for sketch in shown} <= {((64, 64), ph.BITS)}
        assert (shown == []) == (size == (1, 1))


def test_only_a_plain_border_is_cut_off():
    picture = texture(4, (100, 80))
    black = np.zeros((120, 140), np.uint8)
    black[20:100, 10:110] = np.asarray(picture)
    (alone,), (whole, inside) = ph.sketches(picture), ph.sketches(Image.fromarray(black))
    assert np.array_equal(inside, alone)
    assert not np.array_equal(whole, inside)
    # What is inside the border would be nothing but the line, stretched.
    line = Image.new("L", (100, 100), 0)
    ImageDraw.Draw(line).line((10, 50, 90, 50), fill=255, width=3)
    assert len(ph.sketches(line)) == 1


def test_details_are_those_of_the_smaller_picture_and_of_unit_length():
    for size, side in (((28, 28), 28), ((500, 55), 28), ((56, 56), 64), ((512, 600), 64)):
        assert ph.side_compared(size, (300, 300)) == ph.side_compared((300, 300), size) == side
    for side in ph.LIKENESS:
        vector, nothing = (
            ph.details(sketch, side) for sketch in (ph.sketches(texture(6))[0], np.zeros((64, 64), np.uint8))
        )
        assert (vector.shape, float(vector @ vector)) == ((side * side,), pytest.approx(1, abs=1e-5))
        assert vector @ nothing == pytest.approx(0, abs=1e-6)


hashes = st.lists(st.binary(min_size=32, max_size=32).map(bytes.hex), max_size=12)


@settings(max_examples=60)
@given(hashes, hashes, st.integers(0, 64), st.randoms(use_true_random=False))
def test_the_quick_comparison_finds_what_a_loop_finds(first, second, distance, draw):
    """Random hashes hardly ever meet, so some of the second ones are made from the first by turning bits.

    The sets are compared in small parts, as large ones are in larger ones.
    """
    for made in first:
        flipped = bytearray.fromhex(made)
        for bit in draw.sample(range(256), draw.choice([distance, distance + 1, 256 - distance, 255 - distance])):
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
        for end, *arrays in ph.close_pairs(ph.stacked(first), ph.stacked(second), distance):
            pairs.update(zip(*(array.tolist() for array in arrays), strict=True))
            ends.append(end)
    assert pairs == expected
    assert ends == [min(start + 5, len(second)) for start in range(0, len(second), 5)]
