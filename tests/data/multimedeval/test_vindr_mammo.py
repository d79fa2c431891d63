"""VinDr-Mammo: one row per graded finding; DICOM files or copies of them; missing and broken ones."""

import io

import numpy as np
import pytest
from PIL import Image

pydicom = pytest.importorskip("pydicom")

from medtasks.data.preparation import Options  # noqa: E402
from medtasks.data.preparers import prepare  # noqa: E402
from medtasks.errors import SourceError  # noqa: E402

from ...dicom_files import noise, put_dicom  # noqa: E402

HEADER = (
    "study_id,series_id,image_id,laterality,view_position,height,width,breast_birads,breast_density,"
    "finding_categories,finding_birads,xmin,ymin,xmax,ymax,split"
)
FINDINGS = [
    # study, image, grade, split
    ("s1", "i1", "BI-RADS 4", "test"),
    ("s1", "i2", "", "test"),
    ("s2", "i3", "BI-RADS 3", "training"),
    ("s1", "i1", "BI-RADS 3", "test"),
    ("s3", "i4", "BI-RADS 5", "test"),
    *((f"t{number}", f"u{number}", "BI-RADS 4", "training") for number in range(9)),
]


def line(study, image, grade, split):
    return f"{study},x,{image},L,CC,3518,2800,BI-RADS 2,DENSITY C,\"['Mass', 'Asymmetry']\",{grade},1.5,2,3,4,{split}"


def shown(stored):
    grey = stored.max() - stored
    grey = grey - grey.min()
    return (grey / grey.max() * 255).astype(np.uint8)


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    for number, (study, image, *_) in enumerate(FINDINGS):
        put_dicom(folder / "images" / study / f"{image}.dicom", noise(number), "MONOCHROME1")
    write_table(folder, FINDINGS)
    return folder


def write_table(folder, findings):
    (folder / "finding_annotations.csv").write_text("\n".join([HEADER, *(line(*row) for row in findings)]) + "\n")


def test_one_row_per_graded_finding(source, prepared, home):
    manifest, documents, shots = prepared("vindr_mammo", source)
    assert manifest.left_out == ("the source holds 3 rows, the evaluated set 429",)
    assert [document["doc_id"] for document in documents] == ["i1/1", "i1/2", "i4/1"]
    assert [document["label"] for document in documents] == [3, 2, 4]
    assert [document["image_id"] for document in documents] == ["i1", "i1", "i4"]
    assert [document["patient_id"] for document in documents] == ["s1", "s1", "s3"]
    assert documents[0]["options"] == ["1", "2", "3", "4", "5"]
    assert manifest.images == 2
    assert [shot["doc_id"] for shot in shots] == ["i3/1", "u1/1", "u3/1", "u5/1", "u7/1"]
    for document, number in zip(documents, (3, 3, 4), strict=True):
        with Image.open(home / "datasets" / manifest.name / document["image_files"][0]) as image:
            assert image.mode == "L"
            assert np.array_equal(np.asarray(image), shown(noise(number)))


def test_an_image_is_read_once(source, prepared, monkeypatch):
    from medtasks.data.multimedeval import mammography

    read = []
    real = mammography.read_dicom
    monkeypatch.setattr(mammography, "read_dicom", lambda path: (read.append(path.stem), real(path))[1])
    prepared("vindr_mammo", source)
    assert read[:2] == ["i1", "i4"]


def test_the_folder_above_serves_too(source, prepared, tmp_path):
    nested = tmp_path / "above" / "physionet.org" / "files" / "vindr-mammo" / "1.0.0"
    nested.parent.mkdir(parents=True)
    source.rename(nested)
    assert prepared("vindr_mammo", tmp_path / "above")[0].rows == 3


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_eight_bit_copies(source, prepared, home, ending):
    for path in (source / "images").rglob("*.dicom"):
        Image.fromarray(np.full((5, 5), 80, np.uint8)).save(path.with_suffix(f".{ending}"))
        path.unlink()
    _, documents, shots = prepared("vindr_mammo", source)
    assert (len(documents), len(shots)) == (3, 5)
    assert documents[0]["image_files"][0].endswith(f".{ending}")


def test_a_copy_with_more_bits_is_refused(source, complains):
    path = source / "images" / "s3" / "i4.dicom"
    path.unlink()
    Image.fromarray(noise(3)).save(path.with_suffix(".png"))
    parts = ("row 5: its image images/s3/i4.dicom is broken (a copy must have 8 bits per pixel",)
    complains("vindr_mammo", source, *parts, allow_incomplete=False)


def broken(path, how):
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif how == "no DICOM file":
        path.write_bytes(b"nonsense")
    else:
        buffer = io.BytesIO()
        Image.new("L", (9, 9)).save(buffer, "PNG")
        path.unlink()
        path.with_suffix(".png").write_bytes(buffer.getvalue()[:30])


@pytest.mark.parametrize("how", ["missing", "cut", "no DICOM file", "cut copy"])
def test_images_that_cannot_be_used(source, complains, prepared, how):
    broken(source / "images" / "s1" / "i1.dicom", how)
    said = "missing" if how == "missing" else "broken ("
    parts = [f"finding_annotations.csv row {row}: its image images/s1/i1.dicom is {said}" for row in (1, 4)]
    complains("vindr_mammo", source, *parts, "--allow-incomplete", allow_incomplete=False)
    manifest, documents, _ = prepared("vindr_mammo", source)
    assert [document["doc_id"] for document in documents] == ["i4/1"]
    assert len(manifest.left_out) == 3


@pytest.mark.parametrize("grade", ["BI-RADS 0", "BI-RADS 6", "unknown"])
def test_a_grade_out_of_range(source, complains, grade):
    write_table(source, [*FINDINGS, ("s9", "i9", grade, "test")])
    complains(
        "vindr_mammo", source, "finding_annotations.csv row 15: finding_birads does not end in a grade from 1 to 5"
    )


def test_other_tables(source, complains):
    table = source / "finding_annotations.csv"
    table.write_text(table.read_text().replace("finding_birads", "grade"))
    complains("vindr_mammo", source, "finding_annotations.csv lacks 'finding_birads'; it has breast_birads")
    table.write_text("")
    complains("vindr_mammo", source, "finding_annotations.csv lacks 'study_id'", "it has nothing")
    table.unlink()
    complains("vindr_mammo", source, "holds no finding_annotations.csv")


def test_no_row_is_quoted(source, home):
    write_table(source, [("s1", "i1", "secret 9", "test")])
    with pytest.raises(SourceError, match="row 1") as refused:
        prepare("multimedeval_vindr_mammo", Options(source))
    assert "secret" not in str(refused.value)
