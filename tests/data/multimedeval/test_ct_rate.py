"""CT-RATE: volumes are linked and checked, not copied."""

import gzip

import pytest

from medtasks.data.home import dataset_folder
from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare, verify
from medtasks.data.store import load_documents

from ...multimedeval_sources import csv_text, put
from ...nifti_files import put_nifti, scan

NAME = "multimedeval_ct_rate_report"
COLUMNS = "VolumeName,ClinicalInformation_EN,Technique_EN,Findings_EN,Impressions_EN"
TABLE = "radiology_text_reports/validation_reports.csv"


def volume(number, scan_letter="a"):
    return f"valid_{number}_{scan_letter}_1.nii.gz"


def row(number, findings=None):
    return (volume(number), "", "", f"Heart {number}.\nNo nodule." if findings is None else findings, "Normal.")


def write_table(folder, rows):
    put(folder / TABLE, csv_text(COLUMNS, rows))


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "ct_rate" / "dataset"
    for number in (1, 2):
        put_nifti(folder / "valid" / f"valid_{number}" / f"valid_{number}_a" / volume(number), scan(number))
    write_table(folder, [row(2), row(1), row(2)])
    return folder


def test_documents(source, home):
    manifest = prepare(NAME, Options(source))
    assert (manifest.rows, manifest.images, manifest.complete, manifest.access) == (2, 2, True, "gated")
    first, second = load_documents(NAME)
    assert (first["doc_id"], first["image_id"], first["patient_id"]) == ("valid_2_a_1", "valid_2_a_1", "valid_2")
    assert (first["report"], first["indication"], first["context"]) == ("Heart 2.\nNo nodule.", None, None)
    assert second["doc_id"] == "valid_1_a_1"
    (file,) = first["image_files"]
    linked = dataset_folder(NAME) / file
    assert linked.is_symlink()
    assert linked.resolve() == source / "valid" / "valid_2" / "valid_2_a" / volume(2)
    assert list(verify(NAME)) == []


def test_other_layouts_are_the_same(source, prepared):
    expected = prepared("ct_rate_report", source)[1]
    assert prepared("ct_rate_report", source.parent)[1] == expected
    assert prepared("ct_rate_report", source.parents[1])[1] == expected
    (source / "valid").rename(source / "valid_fixed")
    assert prepared("ct_rate_report", source)[1] == expected


def test_fingerprint(source, home, tmp_path):
    before = prepare(NAME, Options(source)).fingerprint
    source.rename(tmp_path / "elsewhere")
    assert prepare(NAME, Options(tmp_path / "elsewhere")).fingerprint == before
    put_nifti(tmp_path / "elsewhere" / "valid" / "valid_1" / "valid_1_a" / volume(1), scan(7))
    assert prepare(NAME, Options(tmp_path / "elsewhere")).fingerprint != before


def test_verify_sees_what_happens_to_the_source(source, home):
    prepare(NAME, Options(source))
    path = source / "valid" / "valid_1" / "valid_1_a" / volume(1)
    whole = path.read_bytes()
    put_nifti(path, scan(9))
    assert any("has changed since it was prepared" in problem for problem in verify(NAME))
    path.write_bytes(whole[:-30])
    assert any("is broken" in problem for problem in verify(NAME))
    path.unlink()
    assert any("is missing" in problem for problem in verify(NAME))
    path.write_bytes(whole)
    assert list(verify(NAME)) == []


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-30]), "is broken (it cannot be unpacked"),
        (lambda path: path.write_bytes(gzip.compress(b"no volume" * 99)), "is broken (it is no NIfTI file"),
        (
            lambda path: path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1])),
            "is broken (it holds fewer voxels than its header says",
        ),
        (lambda path: put_nifti(path, scan(1)[..., None].repeat(2, 3)), "is broken (it has the shape (10, 9, 6, 2)"),
    ],
    ids=["missing", "truncated", "no volume", "too short", "a series"],
)
def test_damaged_volumes(source, complains, damage, what):
    damage(source / "valid" / "valid_1" / "valid_1_a" / volume(1))
    wanted = f"validation_reports.csv row 2: its image {volume(1)} {what}"
    complains("ct_rate_report", source, wanted, "--allow-incomplete", allow_incomplete=False)


def test_broken_tables(source, complains):
    write_table(source, [row(1), row(2, findings=" ")])
    complains("ct_rate_report", source, "row 2: its report has no findings", allow_incomplete=False)
    write_table(source, [row(1), row(1, findings="Other.")])
    complains("ct_rate_report", source, "row 2 has the id 'valid_1_a_1' of validation_reports.csv row 1")
    write_table(source, [("../../etc/passwd", "", "", "x", "")])
    complains("ct_rate_report", source, "row 1: VolumeName is not of the form valid_1_a_1.nii.gz")
    put(source / TABLE, "VolumeName\n")
    complains("ct_rate_report", source, "validation_reports.csv lacks 'Findings_EN'")
    (source / TABLE).unlink()
    complains("ct_rate_report", source, f"holds no {TABLE}")
