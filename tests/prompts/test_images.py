"""Images of a document."""

import shutil

import pytest
from PIL import Image, ImageFile

from medtasks.data.dataset_lookup import prepared_folder
from medtasks.data.schema import DEMONSTRATIONS_FOLDER
from medtasks.errors import DatasetNotPrepared, SourceError
from medtasks.prompts.images import images

from ..tables import each_row


@pytest.fixture
def picture(tmp_path):
    file = tmp_path / "picture.jpg"
    Image.effect_noise((64, 48), 60).save(file, quality=95)
    return file


def document(file, **fields):
    return {"doc_id": "q1", "image_file": str(file), **fields}


@each_row("file, root", [("{}/picture.jpg", None), ("picture.jpg", "{}"), ("{}/picture.jpg", "/nowhere")])
def test_where_an_image_is(picture, file, root):
    settings = {"image_root": root.format(picture.parent)} if root else None
    [image] = images(document(file.format(picture.parent)), settings)
    assert (image.mode, image.size) == ("RGB", (64, 48))


def test_demonstrations_come_first(sample_home, picture, tmp_path, monkeypatch):
    home = tmp_path / "home"
    shutil.copytree(sample_home / "datasets", home / "datasets")
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    folder = prepared_folder("mediconfusion") / DEMONSTRATIONS_FOLDER
    folder.mkdir(exist_ok=True)
    for width in (11, 12):
        Image.new("L", (width, 9)).save(folder / f"{width}.jpg")
    settings = {"demonstrations": ["12.jpg", "11.jpg"], "template": "not looked at"}
    opened = images(document(picture, dataset="mediconfusion"), settings)
    assert [image.width for image in opened] == [12, 11, 64]
    with pytest.raises(SourceError, match=r"13\.jpg of sample q1 is missing"):
        images(document(picture, dataset="mediconfusion"), {"demonstrations": ["13.jpg"]})


def test_several_images_in_their_order(tmp_path):
    for width in (5, 4, 3):
        Image.new("L", (width, 9)).save(tmp_path / f"{width}.png")
    doc = {"doc_id": "q1", "image_files": [str(tmp_path / "4.png"), "3.png", "5.png"]}
    shown = images(doc, {"image_root": str(tmp_path)})
    assert [(image.mode, image.width) for image in shown] == [("RGB", 4), ("RGB", 3), ("RGB", 5)]
    assert images({"doc_id": "q1", "image_files": []}) == []
    with pytest.raises(SourceError, match=r"image .*6\.png of sample q1 is missing"):
        images({**doc, "image_files": ["3.png", "6.png"]}, {"image_root": str(tmp_path)})
    with pytest.raises(SourceError, match=r"image 3\.png of sample q1 has a relative path"):
        images(doc)


def test_truncated_image_is_an_error_even_where_pillow_is_told_to_accept_it(picture, monkeypatch):
    whole = picture.read_bytes()
    for content in (*(whole[: int(len(whole) * keep)] for keep in (0.5, 0.95, 0.02, 0.0)), b"<html>404</html>"):
        picture.write_bytes(content)
        for lenient in (True, False):
            monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", lenient)
            with pytest.raises(SourceError) as caught:
                images(document(picture))
            assert str(caught.value).startswith(f"image {picture} of sample q1 is broken")
            assert ImageFile.LOAD_TRUNCATED_IMAGES is lenient


@each_row(
    "file, fields, error, complaint",
    [
        ("x.jpg", {}, SourceError, "q1 has a relative path; write absolute paths or set image_root"),
        ("x.jpg", {"dataset": "mediconfusion"}, DatasetNotPrepared, "medtasks data prepare mediconfusion"),
        ("/x.jpg", {"dataset": "mediconfusion"}, SourceError, "/x.jpg of sample q1 is missing.*data prepare mediconf"),
    ],
)
def test_an_image_that_is_not_found(file, fields, error, complaint):
    with pytest.raises(error, match=complaint):
        images(document(file, **fields))
