"""Report generation from images: MIMIC-CXR's chest X-rays, and CT-RATE's chest CT volumes.

MIMIC-CXR: the studies of the test split whose report has findings, each with all its images. Studies and their images
come in the order of the split table. The report is the first findings section, the indication the first indication
section, both with all their white space, as the reference compares them. Images are those of MIMIC-CXR-JPG 2.0.0. Its
reports are part of MIMIC-CXR: ``s<study>.txt`` beside the study's folder of images, in a tree of their own, or in
``mimic-cxr-reports.zip``. Source: Johnson et al., https://physionet.org/content/mimic-cxr/2.0.0/;
``multimedeval/mimic.py`` at d9ac283.

CT-RATE: volumes of the validation split, each with the findings of its report. One row per reconstructed volume, in the
order of ``validation_reports.csv``; a repeated row counts once. The volumes of one scan share its report. They stay in
the source folder. Source: Hamamci et al., https://huggingface.co/datasets/ibrahimhamamci/CT-RATE;
``multimedeval/ct_rate.py`` at d9ac283.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from medtasks.data.images.image_store import ImageStore
from medtasks.data.images.volume_files import ENDING
from medtasks.data.prepare.preparation import Recipe, Row, images_row
from medtasks.data.prepare.source_files import file_reader, required_file
from medtasks.data.prepare.table_files import SourceRow, csv_table
from medtasks.data.schema import REPORT, new_document
from medtasks.data.sources.multimedeval.chest_xrays import mimic_cxr_file, split_rows, study_folder
from medtasks.data.sources.multimedeval.report_sections import first_text, report_sections

_UNPACKED = "mimic-cxr-reports"
_ARCHIVE = f"{_UNPACKED}.zip"
_PROJECT = "mimic-cxr/*/"
_PLACES = ("", _PROJECT, f"files/{_PROJECT}", f"physionet.org/files/{_PROJECT}", "*/")
"""Where MIMIC-CXR may lie, seen from the folder of MIMIC-CXR-JPG or from the folder the user names."""
_CT_REPORTS = "radiology_text_reports/validation_reports.csv"
_CT_TOPS = ("", "dataset/", "ct_rate/dataset/", "*/dataset/")
_CT_FOLDERS = ("valid", "valid_fixed")


def _studies(source: Path) -> Iterable[list[SourceRow]]:
    """Return the images of each study of the test split, in order."""
    studies: dict[str, list[SourceRow]] = {}
    for row in split_rows(source, "test"):
        rows = studies.setdefault(row.text("study_id"), [])
        image, patient = row.text("dicom_id"), row.text("subject_id")
        if any(before.text("dicom_id") == image or before.text("subject_id") != patient for before in rows):
            raise row.error("its image stands in an earlier row, or its study belongs to two patients")
        rows.append(row)
    return studies.values()


def _mimic_cxr(source: Path, images: ImageStore) -> Iterator[Row]:
    split = mimic_cxr_file(source, "split")
    places = [(root, place) for root in dict.fromkeys([split.path.parent, source]) for place in _PLACES]
    patterns = [(root, place + below) for root, place in places for below in ("files", f"{_UNPACKED}/files")]
    folders = [files.parent for root, pattern in patterns for files in sorted(root.glob(pattern))]
    archives = [path for root, place in places for path in sorted(root.glob(place + _ARCHIVE))]
    with file_reader(folders, archives, ("", f"{_UNPACKED}/")) as read:
        yield from (_study_row(rows, split.path.parent / "files", read, images) for rows in _studies(source))


def _study_row(rows: list[SourceRow], files: Path, read: Callable[[str], bytes], images: ImageStore) -> Row:
    place, subject_id, study_id = rows[0].place, rows[0].text("subject_id"), rows[0].text("study_id")
    name = study_folder(Path("files"), subject_id, study_id).with_suffix(".txt")
    try:
        report = read(name.as_posix()).decode("utf-8")
    except FileNotFoundError:
        return Row(place, None, cause=f"the report of its study is missing ({_ARCHIVE} of MIMIC-CXR has it)")
    except UnicodeDecodeError:
        return Row(place, None, cause="the report of its study is no UTF-8 text")
    sections = report_sections(report.replace("\r\n", "\n").replace("\r", "\n"))
    findings = first_text(sections, "findings")
    if findings is None:
        return Row(place, None, cause="studies whose report has no findings section", outside=True)
    document = new_document(
        REPORT,
        study_id,
        report=findings,
        image_id=f"s{study_id}",
        patient_id=subject_id,
        indication=first_text(sections, "indication") or "",
    )
    folder = study_folder(files, subject_id, study_id)
    # No file name in messages: it holds the patient's number, and messages end up in results.
    adding = {
        f"{number} of {len(rows)}": functools.partial(images.add_file, folder / f"{row.text('dicom_id')}.jpg")
        for number, row in enumerate(rows, 1)
    }
    return images_row(place, adding.items(), document)


def _ct_rate(source: Path, images: ImageStore) -> Iterator[Row]:
    file = required_file(source, [f"{top}{_CT_REPORTS}" for top in _CT_TOPS])
    seen: set[tuple[str, str]] = set()
    for row in csv_table(file, ("VolumeName", "Findings_EN")).rows():
        name, findings = row.text("VolumeName"), row.text("Findings_EN")
        if (name, findings) in seen:
            continue
        seen.add((name, findings))
        volume = name.removesuffix(ENDING)
        parts = volume.split("_")  # split, patient, scan, reconstruction
        if not name.endswith(ENDING) or len(parts) != 4:
            raise row.error(f"VolumeName is not of the form valid_1_a_1{ENDING}")
        if not findings.strip():
            yield Row(row.place, None, cause="its report has no findings")
            continue
        patient, scan = "_".join(parts[:2]), "_".join(parts[:3])
        places = [file.path.parents[1] / folder / patient / scan / name for folder in _CT_FOLDERS]
        path = next((place for place in places if place.is_file()), places[0])
        document = new_document(REPORT, volume, report=findings, image_id=volume, patient_id=patient)
        yield images_row(row.place, [(name, functools.partial(images.add_volume, path))], document)


_MIMIC_CXR_LAYOUT = (
    f"mimic-cxr-2.0.0-split.csv.gz and the folder files/ of MIMIC-CXR-JPG 2.0.0, and beside them {_ARCHIVE} of "
    f"MIMIC-CXR 2.0.0, or what was unpacked from it"
)
_CT_RATE_LAYOUT = f"the Hub's {_CT_REPORTS} and valid/valid_1/valid_1_a/valid_1_a_1{ENDING} ..., which must stay there"

RECIPES: Mapping[str, Recipe] = {
    "mimic_cxr_report": Recipe(REPORT, _mimic_cxr, _MIMIC_CXR_LAYOUT),
    "ct_rate_report": Recipe(REPORT, _ct_rate, _CT_RATE_LAYOUT),
}
