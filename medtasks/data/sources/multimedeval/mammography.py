"""Mammography: BI-RADS grades of VinDr-Mammo's findings, and the pathology of CBIS-DDSM's masses and calcifications.

VinDr-Mammo: rows of ``finding_annotations.csv`` with a grade, in its order; several may show the same image, which is
stored once. Images are DICOM files, or 8-bit copies of the same name next to them. The source names no patients: the
study, four views of one exam, is the cluster. Nguyen et al., Scientific Data 10:277 (2023).

CBIS-DDSM: a mass or a calcification from its cropped mammogram, official test cases. The case tables name DICOM files
of the original archive; the JPEG copies on Kaggle are found through the series, as the reference does: an image
described as "cropped images", or one without a description. Where neither exists the reference silently shows the image
of the case before; here such a case cannot be used. Lee et al., Scientific Data 4:170177 (2017).

Source: ``VinDrMammo`` and ``CBISDDSM`` in ``multimedeval/image_classification.py`` of the reference at d9ac283.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from medtasks.data.images.deep_images import reading_dicom
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.images.strict_pillow import UnreadableImage, strict_decoding
from medtasks.data.prepare.source_files import SourceFile, physionet_file, required_file
from medtasks.data.prepare.source_recipe import PublishedRow, SourceRecipe, images_row
from medtasks.data.prepare.table_files import SourceRow, SourceTable, csv_table
from medtasks.data.schema import CLASSIFICATION, new_document

_STRETCHED = "DICOM scaled from its least to its largest value"
_ALLOCATED_BITS = 16
_GRADED_COLUMNS = ("study_id", "image_id", "finding_birads", "split")
_GRADES = "12345"
_DICOM = (".dicom", ".dcm")
_COPIES = (".png", ".jpg", ".jpeg")
PATHOLOGIES = ("BENIGN", "MALIGNANT", "BENIGN_WITHOUT_CALLBACK")
_TABLES = {
    "cbis_ddsm_mass": "mass_case_description_{}_set",
    "cbis_ddsm_calcification": "calc_case_description_{}_set",
}
_CASE_COLUMNS = ("patient_id", "pathology", "cropped image file path")
_DESCRIBED, _UNDESCRIBED = "cropped images", ""


def read_dicom(path: Path) -> Image.Image:
    """Read the image of a DICOM file as MultiMedEval shows mammograms to models: grey (mode L), rows and columns kept.

    Every bit of a stored value counts, whatever ``BitsStored`` says; ``MONOCHROME1`` is inverted, so that dense tissue
    is bright; then the least value becomes 0 and the largest 255, rounded down. No window is applied. An image of a
    single value becomes black. Source: ``VinDrMammo.format_question`` in ``multimedeval/image_classification.py`` at
    d9ac283. Errors are those of :func:`~medtasks.data.images.deep_images.reading_dicom`.
    """
    with reading_dicom(str(path)) as pydicom:
        dataset = pydicom.dcmread(path)
        dataset.BitsStored = min(_ALLOCATED_BITS, dataset.BitsAllocated)  # some files say 12 bits and use more
        values = dataset.pixel_array
        values = values.max() - values if dataset.PhotometricInterpretation == "MONOCHROME1" else values
    if values.ndim != 2 or not values.size:
        raise UnreadableImage(f"it holds values of shape {values.shape} and no single grey image")
    spread = values - values.min()
    grey = spread / (spread.max() or 1) * 255
    return Image.fromarray(grey.astype(np.uint8))


def _annotations(source: Path) -> SourceFile:
    return physionet_file(source, "vindr-mammo", "1.0.0", ("finding_annotations.csv",))


def _graded(source: Path, split: str) -> SourceTable:
    graded = {"test": "test", "train": "training"}[split]
    belongs = lambda row: row["split"] == graded and row["finding_birads"] != ""  # noqa: E731
    return csv_table(_annotations(source), _GRADED_COLUMNS, belongs)


def _with_grades(rows: Iterator[SourceRow], _split: str, source: Path, images: ImageStore) -> Iterator[PublishedRow]:
    folder = _annotations(source).path.parent / "images"

    @functools.cache
    def add(name: str) -> StoredImage:
        for path in (folder / f"{name}{ending}" for ending in (*_DICOM, *_COPIES)):
            if path.is_file() and path.suffix in _DICOM:
                return images.add_pixels(read_dicom(path), _STRETCHED)
            if path.is_file():
                _require_8_bits(path)
                return images.add_file(path)
        raise FileNotFoundError(name)

    findings: Counter[str] = Counter()  # of each image, from 1
    for row in rows:
        study, image = row.text("study_id"), row.text("image_id")
        findings[image] += 1
        grade = row.text("finding_birads")[-1:]
        if grade not in _GRADES:
            raise row.error("finding_birads does not end in a grade from 1 to 5")
        columns = {"image_id": image, "patient_id": study, "options": list(_GRADES), "label": _GRADES.index(grade)}
        document = new_document(CLASSIFICATION, f"{image}/{findings[image]}", **columns)
        adding = {f"images/{study}/{image}{_DICOM[0]}": functools.partial(add, f"{study}/{image}")}
        yield images_row(row.place, adding.items(), document)


def _require_8_bits(path: Path) -> None:
    """Refuse values that Pillow would cut off at 255 rather than scale."""
    try:
        with strict_decoding(), Image.open(path) as image:
            mode = image.mode
    except OSError as error:
        raise UnreadableImage("it is no image that can be read") from error
    if mode not in ("L", "RGB"):
        raise UnreadableImage(f"a copy must have 8 bits per pixel, grey or RGB, and this one is of mode {mode}")


def _kaggle_table(name: str, columns: Sequence[str], source: Path, split: str = "") -> SourceTable:
    file = f"{name.format(split)}.csv"
    return csv_table(required_file(source, [f"csv/{file}", file]), columns)


def _with_pathologies(
    rows: Iterator[SourceRow], _split: str, source: Path, images: ImageStore
) -> Iterator[PublishedRow]:
    # The path of the JPEG to show for each series; of several images in a series the last one counts.
    by_description: dict[str, dict[str, str]] = {_UNDESCRIBED: {}, _DESCRIBED: {}}
    for row in _kaggle_table("dicom_info", ("image_path", "SeriesDescription"), source).rows():
        parts = row.text("image_path").split("/")
        if len(parts) < 4:
            raise row.error("image_path is not like CBIS-DDSM/jpeg/<series>/<image>.jpg")
        if row.text("SeriesDescription") in by_description:
            by_description[row.text("SeriesDescription")][parts[2]] = "/".join(parts[1:])
    images_of_series = {**by_description[_UNDESCRIBED], **by_description[_DESCRIBED]}
    for row in rows:
        label = PATHOLOGIES.index(row.one_of("pathology", PATHOLOGIES, "the pathology is not one of"))
        parts = row.text("cropped image file path").strip().split("/")
        if len(parts) < 3:
            raise row.error("the cropped image file path is not like <case>/<study>/<series>/<image>.dcm")
        columns = {"label": label, "patient_id": row.text("patient_id"), "options": list(PATHOLOGIES)}
        name = images_of_series.get(parts[2])
        if name is None:
            yield PublishedRow(row.place, None, cause=f"dicom_info.csv has no image of its series {parts[2]}")
        else:
            adding = {name: functools.partial(images.add_file, source / name)}
            yield images_row(row.place, adding.items(), new_document(CLASSIFICATION, parts[0], **columns))


_VINDR_LAYOUT = (
    "finding_annotations.csv and the folder images with <study_id>/<image_id>.dicom, or .png copies of these"
)
_CBIS_LAYOUT = "the folders csv/ and jpeg/ of the Kaggle copy"

RECIPES: Mapping[str, SourceRecipe] = {
    "vindr_mammo": SourceRecipe.of_splits(CLASSIFICATION, _graded, _with_grades, _VINDR_LAYOUT),
    **{
        name: SourceRecipe.of_splits(
            CLASSIFICATION, functools.partial(_kaggle_table, table, _CASE_COLUMNS), _with_pathologies, _CBIS_LAYOUT
        )
        for name, table in _TABLES.items()
    },
}
