"""Chest X-rays: findings of ChestX-ray14 and MIMIC-CXR-JPG 2.0.0, and Medical-Diff-VQA's questions on the latter.

- ChestX-ray14: frontal images with fourteen findings, the official test list. Wang et al., CVPR 2017; published by the
  NIH and at https://www.kaggle.com/datasets/nih-chest-xrays/data.
- MIMIC-CXR-JPG: images with five findings, one row per image of the test split. Rows come in the order of the findings
  table, the images of one study in the order of the split table, as a join of the two gives them. Of the labels only
  1.0 counts as positive: 0.0 (negative), -1.0 (uncertain) and none do not. Johnson et al.,
  https://physionet.org/content/mimic-cxr-jpg/2.0.0/; five findings after Irvin et al. (2019).
- Medical-Diff-VQA 1.0.0: as in MultiMedEval, a question shows the images of the current study only, whatever it asks
  about the earlier one. The reference takes them in the order in which the file system lists them; here they come in
  the order of their names. Hu et al., https://physionet.org/content/medical-diff-vqa/1.0.0/.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from medtasks.data.image_store import ImageStore, StoredImage
from medtasks.data.preparation import Recipe, Row, image_row
from medtasks.data.schema import MULTILABEL, OPEN_QUESTION, Document, new_document
from medtasks.data.source_files import SourceFile, not_found, physionet_file, required_file
from medtasks.data.strict_pillow import UnreadableImage
from medtasks.data.tables import CsvTable, ListedTable, ReadValues, SourceRow, Table

FOURTEEN_FINDINGS = (
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax"),
    *("Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia"),
)
FIVE_FINDINGS = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")
_NONE = "No Finding"
_IMAGES = ("images*/images/*.png", "images*/*.png")  # the archives of the source unpack into folders of their own
_LISTS = {"test": "test_list.txt", "train": "train_val_list.txt"}
_VALUES = {"1.0": 1, "1": 1, "0.0": 0, "0": 0, "-1.0": 0, "-1": 0, "": 0}
_QUESTIONS = "mimic_pair_questions.csv"
_QUESTION_COLUMNS = ("study_id", "subject_id", "question_type", "question", "answer", "split")
_MIMIC_IMAGES = ("files", "mimic-cxr-jpg/2.0.0/files", "physionet.org/files/mimic-cxr-jpg/2.0.0/files")


def _listed(source: Path, split: str) -> Table:
    """Return the rows of ChestX-ray14's findings table whose image a list names, in the table's order."""
    if not any(path for pattern in _IMAGES for path in source.glob(pattern)):
        raise not_found(source, _IMAGES[0])
    with required_file(source, [_LISTS[split]]).open() as stream:
        names = {line.strip() for line in stream.read().decode("utf-8", "replace").splitlines()}
    tables = ("Data_Entry_2017.csv", "Data_Entry_2017_v2020.csv")
    table = required_file(source, tables, " or ".join(tables))
    return CsvTable(table, ("Image Index", "Finding Labels", "Patient ID"), lambda row: row["Image Index"] in names)


def _with_fourteen(rows: Iterator[SourceRow], _split: str, source: Path, images: ImageStore) -> Iterator[Row]:
    paths = {path.name: path for pattern in _IMAGES for path in source.glob(pattern)}
    for row in rows:
        name = row.text("Image Index")
        if name not in paths:
            yield Row(row.place, None, cause=f"its image {name} is missing")
            continue
        known = {"options": list(FOURTEEN_FINDINGS), "labels": _fourteen_labels(row)}
        document = new_document(MULTILABEL, name, patient_id=row.text("Patient ID"), **known)
        yield image_row(row.place, name, functools.partial(images.add_file, paths[name]), document)


def _fourteen_labels(row: SourceRow) -> list[int]:
    named = row.text("Finding Labels").split("|")
    unknown = [name for name in named if name not in (*FOURTEEN_FINDINGS, _NONE)]
    if unknown:
        raise row.error(f"unknown finding {unknown[0]!r}; known: {', '.join(FOURTEEN_FINDINGS)}, {_NONE}")
    if _NONE in named and len(named) > 1:
        raise row.error(f"{_NONE!r} stands beside findings")
    return [int(finding in named) for finding in FOURTEEN_FINDINGS]


class LabelledImages(ListedTable):
    """Images of one split of MIMIC-CXR-JPG with the findings of their study.

    Rows have the columns ``subject_id``, ``study_id``, ``dicom_id`` and one per finding.
    """

    def __init__(self, source: Path, split: str) -> None:
        columns = ("dicom_id", "study_id", "subject_id", "split")
        images = CsvTable(mimic_cxr_file(source, "split"), columns, lambda row: row["split"] == split)
        self._images: dict[tuple[str, str], list[SourceRow]] = {}
        for row in images.rows():
            self._images.setdefault((row.text("study_id"), row.text("subject_id")), []).append(row)
        self._findings = CsvTable(
            mimic_cxr_file(source, "chexpert"),
            ("study_id", "subject_id", *FIVE_FINDINGS),
            lambda row: (row["study_id"], row["subject_id"]) in self._images,
        )

    def _listed(self) -> Iterator[tuple[str, ReadValues]]:
        for row in self._findings.rows():
            for image in self._images[row.text("study_id"), row.text("subject_id")]:
                yield row.place, {**row.values, "dicom_id": image.text("dicom_id")}.copy

    def unlabelled(self) -> Iterator[Row]:
        """Return a row without a document for each image whose study has no findings: a join leaves it out."""
        labelled = {(row.text("study_id"), row.text("subject_id")) for row in self._findings.rows()}
        for study, images in self._images.items():
            for image in images if study not in labelled else ():
                yield Row(image.place, None, cause="the findings table has no row for its study")


def study_folder(files: Path, subject_id: str, study_id: str) -> Path:
    """Return the folder of a study's images below the published folder ``files``, whether or not it exists."""
    return files / f"p{subject_id[:2]}" / f"p{subject_id}" / f"s{study_id}"


def mimic_cxr_file(source: Path, kind: str) -> SourceFile:
    """Return a table of MIMIC-CXR-JPG: ``"split"`` or ``"chexpert"``."""
    name = f"mimic-cxr-2.0.0-{kind}.csv"
    return physionet_file(source, "mimic-cxr-jpg", "2.0.0", (name, f"{name}.gz"))


def _mimic_test(source: Path, images: ImageStore) -> Iterator[Row]:
    table = LabelledImages(source, "test")
    yield from _with_five(table.rows(), "test", source, images)
    yield from table.unlabelled()


def _with_five(rows: Iterator[SourceRow], _split: str, source: Path, images: ImageStore) -> Iterator[Row]:
    files = mimic_cxr_file(source, "split").path.parent / "files"
    for row in rows:
        subject_id, dicom_id = row.text("subject_id"), row.text("dicom_id")
        path = study_folder(files, subject_id, row.text("study_id")) / f"{dicom_id}.jpg"
        known = {"options": list(FIVE_FINDINGS), "labels": [_label(row, finding) for finding in FIVE_FINDINGS]}
        document = new_document(MULTILABEL, dicom_id, patient_id=subject_id, **known)
        name = path.relative_to(files.parent).as_posix()
        yield image_row(row.place, name, functools.partial(images.add_file, path), document)


def _label(row: SourceRow, finding: str) -> int:
    value = row.text(finding)
    if value not in _VALUES:
        raise row.error(f"the label of {finding} is not 1.0, 0.0, -1.0 or empty")
    return _VALUES[value]


def _questions(source: Path, split: str) -> Table:
    file = physionet_file(source, "medical-diff-vqa", "1.0.0", (_QUESTIONS,))
    return CsvTable(file, _QUESTION_COLUMNS, lambda row: row["split"] == split)


def _with_questions(rows: Iterator[SourceRow], split: str, source: Path, images: ImageStore) -> Iterator[Row]:
    files = next((source / place for place in _MIMIC_IMAGES if (source / place).is_dir()), None)
    if files is None:
        raise not_found(source, "folder files/ of MIMIC-CXR-JPG")

    # A study has many questions, one after the other.
    @functools.lru_cache(maxsize=64)
    def of_study(folder: Path) -> list[StoredImage] | str:
        paths = sorted(folder.glob("*.jpg"))
        try:
            return [images.add_file(path) for path in paths] or f"its study {folder.name} has no images"
        except UnreadableImage as error:
            return f"an image of its study {folder.name} is broken ({error})"

    for row in rows:
        shown = of_study(study_folder(files, row.text("subject_id"), row.text("study_id")))
        if isinstance(shown, str):
            yield Row(row.place, None, cause=shown)
        else:
            yield Row(row.place, _question(split, row), shown)


def _question(split: str, row: SourceRow) -> Document:
    for column in ("question", "answer"):
        if not row.text(column).strip():
            raise row.error(f"{column} is empty")
    shown = {"image_id": f"s{row.text('study_id')}", "patient_id": row.text("subject_id")}
    texts = {column: row.text(column) for column in ("question", "answer", "question_type")}
    return new_document(OPEN_QUESTION, f"{split}/{row.index}", **shown, **texts)


_CHESTXRAY14_LAYOUT = (
    "Data_Entry_2017.csv, test_list.txt, train_val_list.txt and the folders images*/images/ of ChestX-ray14"
)
_MIMIC_LAYOUT = "mimic-cxr-2.0.0-split.csv.gz, mimic-cxr-2.0.0-chexpert.csv.gz and the folder files/ of MIMIC-CXR-JPG"
_DIFF_VQA_LAYOUT = f"{_QUESTIONS} and, beside it, the folder files/ of MIMIC-CXR-JPG 2.0.0"
_MIMIC = Recipe.of_splits(MULTILABEL, LabelledImages, _with_five, _MIMIC_LAYOUT)

RECIPES: Mapping[str, Recipe] = {
    "chestxray14": Recipe.of_splits(MULTILABEL, _listed, _with_fourteen, _CHESTXRAY14_LAYOUT),
    "mimic_cxr_classification": replace(_MIMIC, test=_mimic_test),
    "diff_vqa": Recipe.of_splits(OPEN_QUESTION, _questions, _with_questions, _DIFF_VQA_LAYOUT),
}
