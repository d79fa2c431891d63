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
from pathlib import Path

from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.prepare.source_files import SourceFile, file_reader, not_found, physionet_file, required_file
from medtasks.data.prepare.source_recipe import PublishedRow, SourceRecipe, TableReader, UnusableRow, by_name
from medtasks.data.prepare.table_files import ReadValues, SourceRow, SourceTable, csv_table
from medtasks.data.schema import MULTILABEL, OPEN_QUESTION, Document, new_document
from medtasks.data.sources.multimedeval.question_sets import open_question

FOURTEEN_FINDINGS = (
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax"),
    *("Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia"),
)
FIVE_FINDINGS = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")
_NONE = "No Finding"
_IMAGES = ("images*/images/*.png", "images*/*.png")  # the archives of the source unpack into folders of their own
_LISTS = {"test": "test_list.txt", "train": "train_val_list.txt"}
_VALUES = {"1.0": 1, "1": 1, "0.0": 0, "0": 0, "-1.0": 0, "-1": 0, "": 0}
_SPLIT_COLUMNS = ("dicom_id", "study_id", "subject_id", "split")
_QUESTIONS = "mimic_pair_questions.csv"
_QUESTION_COLUMNS = ("study_id", "subject_id", "question_type", "question", "answer", "split")
_MIMIC_IMAGES = ("files", "mimic-cxr-jpg/2.0.0/files", "physionet.org/files/mimic-cxr-jpg/2.0.0/files")


def _listed(source: Path, split: str) -> SourceTable:
    """Return the rows of ChestX-ray14's findings table whose image a list names, in the table's order."""
    if not any(path for pattern in _IMAGES for path in source.glob(pattern)):
        raise not_found(source, _IMAGES[0])
    with required_file(source, [_LISTS[split]]).open() as stream:
        names = {line.strip() for line in stream.read().decode("utf-8", "replace").splitlines()}
    tables = ("Data_Entry_2017.csv", "Data_Entry_2017_v2020.csv")
    table = required_file(source, tables, " or ".join(tables))
    return csv_table(table, ("Image Index", "Finding Labels", "Patient ID"), lambda row: row["Image Index"] in names)


def _fourteen(row: SourceRow, _split: str) -> Document:
    named = row.text("Finding Labels").split("|")
    unknown = [name for name in named if name not in (*FOURTEEN_FINDINGS, _NONE)]
    if unknown:
        raise row.error(f"unknown finding {unknown[0]!r}; known: {', '.join(FOURTEEN_FINDINGS)}, {_NONE}")
    if _NONE in named and len(named) > 1:
        raise row.error(f"{_NONE!r} stands beside findings")
    labels = [int(finding in named) for finding in FOURTEEN_FINDINGS]
    columns = {"patient_id": row.text("Patient ID"), "options": list(FOURTEEN_FINDINGS), "labels": labels}
    return new_document(MULTILABEL, row.text("Image Index"), **columns)


def split_rows(source: Path, split: str) -> Iterator[SourceRow]:
    """Yield the images of one split of MIMIC-CXR-JPG: ``dicom_id``, ``study_id`` and ``subject_id``."""
    return csv_table(mimic_cxr_file(source, "split"), _SPLIT_COLUMNS, lambda row: row["split"] == split).rows()


def _mimic_table(source: Path, split: str) -> SourceTable:
    """Return the images of a split with the findings of their study; of the test split, at its end, also the others."""
    images: dict[tuple[str, str], list[SourceRow]] = {}
    for row in split_rows(source, split):
        images.setdefault(_study_of(row), []).append(row)
    findings = csv_table(
        mimic_cxr_file(source, "chexpert"),
        ("study_id", "subject_id", *FIVE_FINDINGS),
        lambda row: (row["study_id"], row["subject_id"]) in images,
    )

    def records() -> Iterator[tuple[str, ReadValues]]:
        labelled = set()
        for row in findings.rows():
            labelled.add(_study_of(row))
            for image in images[_study_of(row)]:
                yield row.place, {**row.values, "dicom_id": image.text("dicom_id")}.copy
        for study in [study for study in images if study not in labelled] if split == "test" else ():
            yield from ((image.place, functools.partial(dict, image.values)) for image in images[study])

    return SourceTable(records)


def _study_of(row: SourceRow) -> tuple[str, str]:
    return row.text("study_id"), row.text("subject_id")


def study_folder(files: Path, subject_id: str, study_id: str) -> Path:
    """Return the folder of a study's images below the published folder ``files``, whether or not it exists."""
    return files / f"p{subject_id[:2]}" / f"p{subject_id}" / f"s{study_id}"


def mimic_cxr_file(source: Path, kind: str) -> SourceFile:
    """Return a table of MIMIC-CXR-JPG: ``"split"`` or ``"chexpert"``."""
    name = f"mimic-cxr-2.0.0-{kind}.csv"
    return physionet_file(source, "mimic-cxr-jpg", "2.0.0", (name, f"{name}.gz"))


def _five(row: SourceRow, _split: str) -> Document:
    if FIVE_FINDINGS[0] not in row.values:
        raise UnusableRow("the findings table has no row for its study")
    for finding in FIVE_FINDINGS:
        if row.text(finding) not in _VALUES:
            raise row.error(f"the label of {finding} is not 1.0, 0.0, -1.0 or empty")
    labels = [_VALUES[row.text(finding)] for finding in FIVE_FINDINGS]
    columns = {"patient_id": row.text("subject_id"), "options": list(FIVE_FINDINGS), "labels": labels}
    return new_document(MULTILABEL, row.text("dicom_id"), **columns)


def _mimic_name(row: SourceRow) -> str:
    folder = study_folder(Path("files"), row.text("subject_id"), row.text("study_id"))
    return f"{folder.as_posix()}/{row.text('dicom_id')}.jpg"


def _questions(source: Path, split: str) -> SourceTable:
    file = physionet_file(source, "medical-diff-vqa", "1.0.0", (_QUESTIONS,))
    return csv_table(file, _QUESTION_COLUMNS, lambda row: row["split"] == split)


def _with_questions(rows: Iterator[SourceRow], split: str, source: Path, images: ImageStore) -> Iterator[PublishedRow]:
    files = next((source / folder for folder in _MIMIC_IMAGES if (source / folder).is_dir()), None)
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
        stored = of_study(study_folder(files, row.text("subject_id"), row.text("study_id")))
        if isinstance(stored, str):
            yield PublishedRow(row.place, None, cause=stored)
        else:
            empty = next((column for column in ("question", "answer") if not row.text(column).strip()), None)
            if empty:
                raise row.error(f"{empty} is empty")
            ids = {"image_id": f"s{row.text('study_id')}", "patient_id": row.text("subject_id")}
            document = open_question(row, f"{split}/{row.index}", question_type=row.text("question_type"), **ids)
            yield PublishedRow(row.place, document, stored)


_NIH = TableReader(
    MULTILABEL,
    _listed,
    _fourteen,
    lambda row: [row.text("Image Index")],
    lambda source: by_name({path.name: path.read_bytes for pattern in _IMAGES for path in source.glob(pattern)}),
)
_MIMIC = TableReader(
    MULTILABEL,
    _mimic_table,
    _five,
    lambda row: [_mimic_name(row)],
    lambda source: file_reader([mimic_cxr_file(source, "split").path.parent], (), ()),
)
_DIFF_VQA_LAYOUT = f"{_QUESTIONS} and, beside it, the folder files/ of MIMIC-CXR-JPG 2.0.0"
_NIH_LAYOUT = "Data_Entry_2017.csv, test_list.txt, train_val_list.txt and the folders images*/images/ of ChestX-ray14"
_MIMIC_LAYOUT = "mimic-cxr-2.0.0-split.csv.gz, mimic-cxr-2.0.0-chexpert.csv.gz and the folder files/ of MIMIC-CXR-JPG"

RECIPES: Mapping[str, SourceRecipe] = {
    "chestxray14": _NIH.recipe(_NIH_LAYOUT),
    "mimic_cxr_classification": _MIMIC.recipe(_MIMIC_LAYOUT),
    "diff_vqa": SourceRecipe.of_splits(OPEN_QUESTION, _questions, _with_questions, _DIFF_VQA_LAYOUT),
}
