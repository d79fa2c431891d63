import base64
import io

import numpy as np
from PIL import Image, ImageFile

from medtasks.audit.report.page import LEFT_OUT, SIDES, thumbnails
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.images.decoding import LINEAR, REFERENCE, decoded

from ...tables import each_row


def opened(thumbnail):
    head, _, data = thumbnail.uri.partition(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def only(path, **options):
    return thumbnails([path], **options).by_file[path]


def saved(image, path, **options):
    image.save(path, **options)
    return path


@each_row("name", ["large.jpg", "large.png"])
def test_shades_survive_whether_or_not_the_decoder_reduces(tmp_path, name):
    ramp = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (64, 1)))
    made = only(saved(ramp.resize((2048, 512), Image.Resampling.BICUBIC), tmp_path / name))
    row = np.asarray(opened(made), dtype=int)[60]
    assert opened(made).mode == "L"
    assert np.abs(row - np.linspace(0, 255, len(row))).max() < 6


@each_row("kind", [np.uint16, np.int32, np.float32])
def test_deep_grey_values_that_no_model_would_see_are_spread_over_all_shades(tmp_path, kind):
    values = np.tile(np.linspace(1000, 4000, 256).astype(kind), (64, 1))
    made = only(saved(Image.fromarray(values), tmp_path / "deep.tif"))
    row = np.asarray(opened(made), dtype=int)[30]
    assert row[2] < 10 < 122 < row[128] < 134 < 245 < row[-3]
    assert made.remark == "scaled from its least to its largest value"
    flat = Image.fromarray(np.full((20, 20), 3000, dtype=kind))
    assert opened(only(saved(flat, tmp_path / "flat.tif"))).size == (20, 20)
    if kind is np.float32:
        values[0, 0] = np.nan
        assert only(saved(Image.fromarray(values), tmp_path / "nan.tif")).uri


def test_a_picture_is_shown_as_models_see_it(tmp_path, monkeypatch):
    """By the rule of its dataset, by that of its task, or by the careful one; never by one of the page's own."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    values = np.tile(np.linspace(0, 65535, 256).astype(np.uint16), (64, 1))
    exif = Image.Exif()
    exif[274] = 6
    folder = tmp_path / "datasets" / "published"
    folder.mkdir(parents=True)
    facts = dict.fromkeys(("source", "revision", "access", "text_sha256", "pixels_sha256"), "")
    Manifest(name="published", sample=False, complete=True, rows=1, images=1, **facts).write(folder)
    for place in (folder, tmp_path):
        saved(Image.fromarray(values), place / "deep.png", exif=exif)
    published, own = (thumbnails([place / "deep.png"]).by_file[place / "deep.png"] for place in (folder, tmp_path))
    given = thumbnails([tmp_path / "deep.png"], decodings={tmp_path / "deep.png": REFERENCE})
    for made, decoding in ((published, REFERENCE), (own, LINEAR), (given.by_file[tmp_path / "deep.png"], REFERENCE)):
        seen = decoded(tmp_path / "deep.png", decoding)
        assert (made.width, made.height) == seen.pixels.size
        assert made.remark == "; ".join(seen.conversions)
        assert np.abs(np.asarray(opened(made), dtype=int) - np.asarray(seen.pixels, dtype=int)[..., 0]).max() < 8
    assert published.remark == "more than 8 bits cut off at 255; EXIF orientation ignored"
    assert own.remark == "16 bits scaled from 0..65535; EXIF orientation applied"


def test_missing_and_broken_files_have_a_remark_and_no_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)  # as the harness leaves it
    whole = saved(Image.effect_noise((200, 200), 80), tmp_path / "whole.png")
    cut = tmp_path / "cut.png"
    cut.write_bytes(whole.read_bytes()[:-4000])
    text = tmp_path / "text.jpg"
    text.write_text("no picture")
    made = thumbnails([whole, cut, text, tmp_path, tmp_path / "gone.jpg"])
    assert [bool(one.uri) for one in made.by_file.values()] == [True, False, False, False, False]
    assert "cannot be read" in made.by_file[cut].remark
    assert "missing" in made.by_file[tmp_path / "gone.jpg"].remark
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def noisy_files(folder, number):
    files = [folder / f"{index:03}.png" for index in range(number)]
    for index, file in enumerate(files):
        saved(Image.effect_noise((400, 300), 40 + index), file)
    return files


def test_many_pictures_are_made_smaller_until_all_fit_or_left_out_from_the_end(tmp_path):
    files = noisy_files(tmp_path, 40)
    assert thumbnails(files).side == SIDES[0]
    for budget in (1_500_000, 700_000):
        made = thumbnails(files, budget=budget)
        assert SIDES[-1] < made.side < 400
        assert sum(len(one.uri) for one in made.by_file.values()) <= budget
        assert max(opened(one).width for one in made.by_file.values()) == made.side  # and all can be opened
    made = thumbnails(files, budget=60_000)
    shown = [bool(made.by_file[file].uri) for file in files]
    assert made.side == SIDES[-1]
    assert 0 < sum(shown) < 40
    assert shown == sorted(shown, reverse=True)
    assert [one.remark == LEFT_OUT for one in made.by_file.values()] == [not one for one in shown]
    assert sum(len(one.uri) for one in made.by_file.values()) <= 60_000


def test_simple_pictures_among_those_probed_do_not_let_the_rest_overflow(tmp_path):
    files = [saved(Image.new("L", (400, 300), 9), tmp_path / f"plain{index}.png") for index in range(24)]
    mixed = [file for pair in zip(files, noisy_files(tmp_path, 24), strict=True) for file in pair]
    made = thumbnails(mixed, budget=500_000)  # every second file is probed: only plain ones
    assert all(one.uri for one in made.by_file.values())
    assert SIDES[-1] < made.side < SIDES[0]
    assert sum(len(one.uri) for one in made.by_file.values()) <= 500_000
