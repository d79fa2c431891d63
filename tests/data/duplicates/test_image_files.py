"""Pictures in folders: what is found, how it is read, and that nothing is read twice."""

import contextlib
import os
import sqlite3
import stat

import numpy as np
import pytest
from PIL import Image

from medtasks.data.duplicates import image_copies, image_hashes
from medtasks.data.duplicates.image_copies import images_below
from medtasks.data.duplicates.image_hashes import CACHE_NAME, hash_images, read_image
from medtasks.home import home

from ...picture_sets import jpeg_bytes, texture, write_folder
from ...tables import each_row


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "training", {"b.png": texture(1), "a/c.JPG": texture(2), "a/d.tif": texture(3)})


def names(files):
    return sorted(path.name for path in files)


def test_pictures_are_found_in_all_subfolders_once_and_the_rest_is_counted(folder, tmp_path):
    for name in ("v.nii", "a/v.NII.gz", "notes.txt", "report.pdf", "table.h5", "none"):
        (folder / name).write_bytes(b"x")
    found = images_below(folder)
    assert [path.relative_to(folder).as_posix() for path in found.files] == ["b.png", "a/c.JPG", "a/d.tif"]
    assert (found.volumes, found.without_decoder, found.others) == (2, 0, 4)

    (folder / "a" / "back").symlink_to(folder)
    (folder / "again").symlink_to(folder / "a")
    (folder / "a" / "out").symlink_to(write_folder(tmp_path / "elsewhere", {"e.png": texture(4)}))
    assert names(images_below(folder).files) == ["b.png", "c.JPG", "d.tif", "e.png"]
    (tmp_path / "link").symlink_to(folder / "a")
    assert names(images_below(folder, [tmp_path / "link", tmp_path / "nowhere"]).files) == ["b.png"]


def test_folders_that_may_not_be_read_and_dicom_files_that_nothing_reads_are_counted(folder, monkeypatch):
    (folder / "x.dcm").write_bytes(b"x")
    scan = os.scandir

    def closed(path):
        if os.path.basename(path) == "a":
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", closed)
    images = images_below(folder)
    assert (names(images.files), images.closed, images.without_decoder) == (["b.png", "x.dcm"], 1, 0)
    monkeypatch.setattr(image_copies.importlib.util, "find_spec", lambda name: None)
    images = images_below(folder)
    assert (names(images.files), images.without_decoder) == (["b.png"], 1)


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


def test_equal_pixels_have_one_digest_and_what_no_model_would_see_is_spread_over_8_bits(tmp_path):
    exif = Image.Exif()
    exif[274] = 6
    texture(5).convert("RGB").save(tmp_path / "lying.png", exif=exif)
    values = np.asarray(texture(5), np.float32) * 200 + 900
    values[0, 0] = np.nan
    Image.fromarray(values).save(tmp_path / "deep.tif")
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
    assert np.asarray(read_image(tmp_path / "deep.tif")[0]).std() > 20


def test_files_that_cannot_be_read_are_named_with_the_cause(folder, monkeypatch):
    write_folder(folder, {"cut.jpg": jpeg_bytes(texture(1), 90)[:-900], "text.png": b"hello", "empty.gif": b""})
    (folder / "gone.png").symlink_to(folder / "nowhere.png")
    read = image_hashes.read_image

    def failing(path, data):  # a decoder that fails in its own way
        if path.name == "b.png":
            raise IndexError("list index out of range")
        return read(path, data)

    monkeypatch.setattr(image_hashes, "read_image", failing)
    found, causes = hash_images(images_below(folder).files)
    assert names(found) == ["c.JPG", "d.tif"]
    assert names(causes) == ["b.png", "cut.jpg", "empty.gif", "gone.png", "text.png"]
    assert causes[folder / "b.png"] == "IndexError: list index out of range"
    assert all(cause and str(folder) not in cause and "0x" not in cause for cause in causes.values())


def test_nothing_is_decoded_twice_unless_it_changed_nor_after_an_interruption(folder, monkeypatch):
    monkeypatch.setattr(image_hashes, "_CHUNK", 1)
    files = images_below(folder).files
    read, decoded, interrupting = image_hashes.read_image, [], [files[2]]

    def reading(path, data):
        if path in interrupting:
            interrupting.remove(path)
            raise KeyboardInterrupt
        decoded.append(path.name)
        return read(path, data)

    monkeypatch.setattr(image_hashes, "read_image", reading)
    with pytest.raises(KeyboardInterrupt):
        hash_images(files)
    assert sorted(decoded) == ["b.png", "c.JPG"]
    first, _ = hash_images(files)
    assert hash_images(files) == (first, {})
    assert decoded[2:] == ["d.tif"]
    texture(9).save(folder / "b.png")
    changed, _ = hash_images(files)
    assert decoded[3:] == ["b.png"]
    assert [changed[path] == first[path] for path in files] == [False, True, True]


@each_row("damage", [b"", b"no database at all" * 100, "half", 7, b"short"])
def test_a_damaged_cache_costs_only_time(folder, damage):
    files = images_below(folder).files
    expected = hash_images(files)
    cache = home() / CACHE_NAME
    if damage == "half":
        cache.write_bytes(cache.read_bytes()[: cache.stat().st_size // 2])
    elif damage in (7, b"short"):
        with contextlib.closing(sqlite3.connect(cache)) as connection, connection:
            connection.execute("UPDATE pictures SET hash = ?", (damage,))
    else:
        cache.write_bytes(damage)
    assert hash_images(files) == hash_images(files) == expected


def test_the_cache_is_its_owners_and_names_no_file_and_can_be_done_without(folder, tmp_path, monkeypatch):
    hash_images(images_below(folder).files)
    cache = home() / CACHE_NAME
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600
    assert not any(name in cache.read_bytes() for name in (b"training", b".png"))
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "file" / "home"))
    name = os.fsdecode(b"caf\xe9.png")  # a name that is no text
    (folder / "b.png").rename(folder / name)
    found, causes = hash_images(images_below(folder).files)
    assert (names(found), causes) == (sorted(["c.JPG", "d.tif", name]), {})
