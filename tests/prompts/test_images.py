"""Images and volumes of a document: which are shown, where in the prompt, and those that cannot be."""

import shutil

import numpy as np
import pytest
from medtasks.model_adapters.radfm.network import read_volume
from PIL import Image, ImageFile

from medtasks.data.dataset_lookup import prepared_folder
from medtasks.data.document_store import load_documents
from medtasks.data.schema import DEMONSTRATIONS_FOLDER
from medtasks.data.variants import blank, blind, swapped
from medtasks.errors import DatasetNotPrepared, MedTasksError, SourceError
from medtasks.hooks import volumes
from medtasks.prompts.images import image_path, images
from medtasks.prompts.template import messages, prompt
from medtasks.tasks.prompt_settings import prompt_settings

from .. import tiny_multimedeval
from ..tables import each_row


@pytest.fixture
def picture(tmp_path):
    file = tmp_path / "picture.jpg"
    Image.effect_noise((64, 48), 60).save(file, quality=95)
    return file


def document(file, **fields):
    return {"doc_id": "q1", "image_file": str(file), **fields}


@each_row(
    "file, root",
    [("{}/picture.jpg", None), ("picture.jpg", "{}"), ("{}/picture.jpg", "/nowhere")],
)
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


def test_truncated_image_is_an_error_even_where_pillow_is_told_to_accept_it(
    picture, monkeypatch
):
    whole = picture.read_bytes()
    for content in (
        *(whole[: int(len(whole) * keep)] for keep in (0.5, 0.95, 0.02, 0.0)),
        b"<html>404</html>",
    ):
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
        (
            "x.jpg",
            {},
            SourceError,
            "q1 has a relative path; write absolute paths or set image_root",
        ),
        (
            "x.jpg",
            {"dataset": "mediconfusion"},
            DatasetNotPrepared,
            "medtasks data prepare mediconfusion",
        ),
        (
            "/x.jpg",
            {"dataset": "mediconfusion"},
            SourceError,
            "/x.jpg of sample q1 is missing.*data prepare mediconf",
        ),
    ],
)
def test_an_image_that_is_not_found(file, fields, error, complaint):
    with pytest.raises(error, match=complaint):
        images(document(file, **fields))


NFC, NFD = (
    "Ro\u0308ntgen/Thora\u0308x 1.png".replace("o\u0308", "\u00f6").replace(
        "a\u0308", "\u00e4"
    ),
    "Ro\u0308ntgen/Thora\u0308x 1.png",
)


@each_row(
    "stored, named",
    [
        (NFD, NFC),
        (NFC, NFD),
        ("a/1.png", "a/1.png "),
        (NFC, NFC.replace("/", "\\")),
        (NFD, NFC.replace("/", "\\")),
        ("a/b/1.png", "a\\b/1.png"),
    ],
)
def test_a_name_with_other_separators_or_in_another_unicode_form(tmp_path, stored, named):
    file = tmp_path / stored
    file.parent.mkdir(parents=True)
    Image.new("L", (7, 5)).save(file)
    assert images(document(named), {"image_root": str(tmp_path)})[0].size == (7, 5)
    assert images(document(tmp_path / named))[0].size == (7, 5)
    assert image_path(named, document(named), {"image_root": str(tmp_path)}) == file


@each_row(
    "stored, named",
    [
        ("thorax.png", "Thorax.PNG"),
        ("Scans/1.png", "scans/1.png"),
        ("1.PNG", "1.png"),
        ("1.2.dcm.png", "1.2.dcm"),
    ],
)
def test_a_name_in_other_capitals_or_without_ending_is_missing_and_the_near_one_named(
    tmp_path, stored, named
):
    file = tmp_path / stored
    file.parent.mkdir(exist_ok=True)
    Image.new("L", (7, 5)).save(file)
    if (tmp_path / named).exists():
        pytest.skip("the file system does not tell capitals apart")
    with pytest.raises(SourceError, match=f"{named} of sample q1 is missing; there is {file}"):
        images(document(named), {"image_root": str(tmp_path)})


def test_of_two_files_that_a_name_may_mean_none_is_shown(tmp_path):
    for name in ("\u00e4\u00f6.png", "a\u0308o\u0308.png"):
        Image.new("L", (7, 5)).save(tmp_path / name)
    if len(list(tmp_path.glob("*.png"))) == 1:
        pytest.skip("the file system does not tell the forms apart")
    with pytest.raises(SourceError, match=r"is missing; there is .*\.png and .*\.png"):
        images(document("\u00e4o\u0308.png"), {"image_root": str(tmp_path)})


def test_a_folder_is_no_image(tmp_path):
    (tmp_path / "series").mkdir()
    with pytest.raises(
        SourceError,
        match="series of sample q1 is a folder that cannot be shown as a volume: it holds no DICOM files; list its",
    ):
        images(document("series"), {"image_root": str(tmp_path)})


def test_an_archive_is_no_folder_of_images(tmp_path):
    with pytest.raises(
        SourceError,
        match=r"image_root .*images\.zip is an archive; unpack it and name the folder",
    ):
        images(document("1.png"), {"image_root": str(tmp_path / "images.zip")})


INSTRUCTION = "Answer with the option's letter from the given choices directly."


@pytest.fixture
def doc(tmp_path):
    """A question with four images of the widths 1 to 4, of which it and its options name three, one of them twice."""
    files = [tmp_path / f"{width}.png" for width in range(1, 5)]
    for width, file in enumerate(files, 1):
        Image.new("RGB", (width, 1)).save(file)
    return {
        "doc_id": "q",
        "image_id": "q",
        "image_files": list(map(str, files)),
        "question": "Like <image 3>?",
        "question_type": "multiple-choice",
        "options": ["<image 2>", "<image 1> or <image 3>"],
        "option_lines": ["(A) <image 2>", "(B) <image 1> or <image 3>"],
        "answer": "A",
    }


def settings(name, family="default"):
    of_families = prompt_settings(f"medevalkit_{name}")
    return of_families.get(family, of_families["default"])


def content(doc, name):
    """Return a chat model's turn: texts, and the widths of images."""
    (turn,) = messages(doc, settings(name))
    return [part.get("text") or part["url"].width for part in turn["content"]]


def widths(doc, *setting):
    return [image.width for image in images(doc, settings(*setting))]


def test_images_at_their_names_in_the_text_or_first(doc):
    after = f"\n\n\n        {INSTRUCTION}"
    parts = [4, "\nLike ", 3, "?\n\n(A) ", 2, "\n(B) ", 1, f" or <image 3>{after}"]
    assert content(doc, "mmmu_images") == parts
    marked = "".join("<image>" if isinstance(part, int) else part for part in parts)
    assert prompt(doc, settings("mmmu_images", "llava")) == marked
    assert widths(doc, "mmmu_images", "llava") == [4, 3, 2, 1]
    # Names stay for a model that gets its images first.
    text = prompt(doc, settings("mmmu"))
    assert "Like <image 3>?\n\n(A) <image 2>\n(B) <image 1> or <image 3>\n" in text
    assert (prompt(doc, settings("mmmu_images")), widths(doc, "mmmu_images")) == (
        text,
        [1, 2, 3, 4],
    )
    assert (content(doc, "mmmu"), widths(doc, "mmmu")) == (
        [1, text],
        [1],
    )  # which shows the first image alone
    assert prompt(doc, settings("mmmu", "llava")).startswith("<image>\n\nLike <image 3>?")


def test_a_label_before_each_image(doc):
    text = "\nQuestion: Like <image 3>?\nOptions: \n" + "\n".join(
        [*doc["option_lines"], INSTRUCTION]
    )
    labels = [part for number in range(1, 5) for part in (f"<image_{number}>: ", number)]
    assert content(doc, "choice_images") == [*labels, text]
    one = {**doc, "image_files": doc["image_files"][:1]}
    assert content(one, "choice_images") == ["<image_1>: ", 1, text]
    assert prompt(one, settings("choice_images", "llava")) == f"<image_1>: <image>\n{text}"
    assert prompt(one, settings("choice_images", "vlm_server")) == f"<image_1>: <image>{text}"


def test_sanity_variants(doc):
    other = {**doc, "doc_id": "r", "image_id": "r", "image_files": doc["image_files"][::-1]}
    for file in other["image_files"]:
        Image.open(file).resize((9, 9)).save(moved := file.replace(".png", "9.png"))
        other["image_files"][other["image_files"].index(file)] = moved
    (hidden,), (grey,), (shown, _) = blind([doc]), blank([doc]), swapped([doc, other])
    assert content(hidden, "choice_images") == content(hidden, "choice")
    assert (
        content(hidden, "mmmu_images")
        == content(hidden, "mmmu")
        == [prompt(doc, settings("mmmu"))]
    )
    assert content(grey, "mmmu_images") == content(doc, "mmmu_images")
    assert [part for part in content(shown, "mmmu_images") if isinstance(part, int)] == [9] * 4
    assert content(shown, "mmmu")[0] == 9


TEXT = "Report on: {{ images }} please"


@pytest.fixture
def ct_doc(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    tiny_multimedeval.prepare("ct_rate_report")
    return load_documents("multimedeval_ct_rate_report")[0]


def test_a_model_that_reads_volumes_gets_the_file_and_others_slices_that_lie_as_in_it(
    ct_doc, tmp_path
):
    settings = {"template": TEXT, "image_mark": "<image>", "slices": 0}
    assert volumes.prompt(ct_doc, settings) == "Report on: <image> please"
    (file,) = volumes.volumes(ct_doc, settings)
    assert isinstance(file, str)
    assert file.startswith(str(tmp_path / "datasets"))
    assert file.endswith(".nii.gz")
    whole = read_volume(file, 8)[0].numpy()
    shown = [
        np.asarray(picture)[..., 0] / 255
        for picture in volumes.volumes(ct_doc, {"slices": 6, "window": "percentile"})
    ]
    assert np.allclose(np.stack(shown, axis=-1), whole, atol=1e-2)
    settings = {"template": TEXT, "image_mark": "<image>", "slices": 3, "images_joined_by": " "}
    assert volumes.prompt(ct_doc, settings) == "Report on: <image> <image> <image> please"
    pictures = volumes.volumes(ct_doc, settings)
    assert [(picture.mode, picture.size) for picture in pictures] == [("RGB", (10, 9))] * 3
    assert volumes.prompt(ct_doc, {"template": TEXT}) == "Report on: please"
    assert len(volumes.volumes(ct_doc)) == 8
    assert (
        volumes.prompt(ct_doc, {"template": TEXT, "image_mark": "+"})
        == f"Report on: {8 * '+'} please"
    )
    (turn,) = volumes.messages(ct_doc, settings)
    assert [part["type"] for part in turn["content"]] == [
        "text",
        "image",
        "text",
        "image",
        "text",
        "image",
        "text",
    ]
    assert turn["content"][1]["url"].size == (10, 9)


def test_volumes_that_cannot_be_shown(ct_doc, tmp_path):
    with pytest.raises(
        MedTasksError, match="chat models take no files of volumes; set slices under"
    ):
        volumes.messages(ct_doc, {"template": TEXT, "slices": 0})
    files = list((tmp_path / "volumes").iterdir())
    for file in files:
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(
        SourceError, match=r"image .*0\.nii\.gz of sample 0 is broken \(it cannot be unpacked"
    ):
        volumes.volumes(ct_doc, {"slices": 2})
    for file in files:
        file.unlink()
    for slices in (0, 8):
        gone = r"image .*volumes/.*0\.nii\.gz of sample 0 is missing; run 'medtasks"
        with pytest.raises(SourceError, match=gone):
            volumes.volumes(ct_doc, {"slices": slices})
