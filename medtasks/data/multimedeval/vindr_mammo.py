"""VinDr-Mammo: the BI-RADS grade of mammography findings, one row per graded finding.

Rows of ``finding_annotations.csv`` with a grade, in its order; several may show the same image, which is stored once.
Images are DICOM files (see :mod:`medtasks.data.multimedeval.dicom`), or 8-bit copies of the same name beside them.
The source names no patients: the study, four views of one exam, stands for the patient.

Source: Nguyen et al., Scientific Data 10:277 (2023); ``VinDrMammo`` in ``multimedeval/image_classification.py`` at
d9ac283.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from PIL import Image

from medtasks.data.decoding import UnreadableImage, strict_decoding
from medtasks.data.image_store import ImageStore, StoredImage
from medtasks.data.multimedeval.csv_table import CsvTable
from medtasks.data.multimedeval.dicom import STRETCHED, read_dicom
from medtasks.data.multimedeval.image_rows import image_row
from medtasks.data.multimedeval.physionet import physionet_file
from medtasks.data.multimedeval.source_files import SourceFile
from medtasks.data.multimedeval.source_rows import SourceRow
from medtasks.data.preparation import Recipe, Row
from medtasks.data.schema import CLASSIFICATION

_COLUMNS = ("study_id", "image_id", "finding_birads", "split")
_GRADES = "12345"
_DICOM = (".dicom", ".dcm")
_COPIES = (".png", ".jpg", ".jpeg")


def _graded(annotations: SourceFile, split: str) -> CsvTable:
    return CsvTable(annotations, _COLUMNS, lambda row: row["split"] == split and row["finding_birads"] != "")


def _annotations(source: Path) -> SourceFile:
    return physionet_file(source, "vindr-mammo", "1.0.0", ("finding_annotations.csv",))


def _test(source: Path, images: ImageStore) -> Iterator[Row]:
    annotations = _annotations(source)
    return _rows(_graded(annotations, "test").rows(), annotations.path.parent / "images", images)


def _demonstrations(source: Path, images: ImageStore) -> Iterator[Row]:
    annotations = _annotations(source)
    return _rows(_graded(annotations, "training").spread(), annotations.path.parent / "images", images)


def _rows(rows: Iterable[SourceRow], folder: Path, images: ImageStore) -> Iterator[Row]:
    add = functools.cache(functools.partial(_add, folder, images))
    findings: Counter[str] = Counter()
    for row in rows:
        findings[row.text("image_id")] += 1
        yield _row(row, findings[row.text("image_id")], add)


def _row(row: SourceRow, finding: int, add: Callable[[str], StoredImage]) -> Row:
    """Build a row; ``finding`` counts the graded findings of its image, from 1."""
    study, image = row.text("study_id"), row.text("image_id")
    grade = row.text("finding_birads")[-1:]
    if grade not in _GRADES:
        raise row.error("finding_birads does not end in a grade from 1 to 5")
    document = {
        "doc_id": f"{image}/{finding}",
        "image_id": image,
        "patient_id": study,
        "details": None,
        "options": list(_GRADES),
        "label": _GRADES.index(grade),
    }
    return image_row(row.place, f"images/{study}/{image}{_DICOM[0]}", lambda: add(f"{study}/{image}"), document)


def _add(folder: Path, images: ImageStore, name: str) -> StoredImage:
    for ending in _DICOM:
        path = folder / f"{name}{ending}"
        if path.is_file():
            return images.add_pixels(read_dicom(path), STRETCHED)
    for ending in _COPIES:
        path = folder / f"{name}{ending}"
        if path.is_file():
            _require_8_bits(path)
            return images.add_file(path)
    raise FileNotFoundError(name)


def _require_8_bits(path: Path) -> None:
    """Refuse what Pillow would cut off at 255 rather than scale."""
    try:
        with strict_decoding(), Image.open(path) as image:
            mode = image.mode
    except OSError as error:
        raise UnreadableImage("it is no image that can be read") from error
    if mode not in ("L", "RGB"):
        raise UnreadableImage(f"a copy must have 8 bits per pixel, grey or RGB, and this one is of mode {mode}")


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "vindr_mammo": Recipe(
            CLASSIFICATION,
            _test,
            "finding_annotations.csv and the folder images with <study_id>/<image_id>.dicom, or .png copies of these",
            _demonstrations,
        )
    }
)
