"""X-rays: chest X-rays with findings or questions, and mammograms.

- ChestX-ray14: frontal images with fourteen findings, the official test list. Wang et al., CVPR 2017; published by the
  NIH and at https://www.kaggle.com/datasets/nih-chest-xrays/data.
- MIMIC-CXR-JPG 2.0.0: images with five findings (Irvin et al., 2019), one row per image of the test split, in the order
  in which a join of the findings table and the split table gives them. Of the labels only 1.0 counts as positive: 0.0
  (negative), -1.0 (uncertain) and none do not. Johnson et al., https://physionet.org/content/mimic-cxr-jpg/2.0.0/.
- Medical-Diff-VQA 1.0.0: as in MultiMedEval, a question shows the images of the current study only, whatever it asks
  about the earlier one. The reference takes them in the order in which the file system lists them; here they come in
  the order of their names. Hu et al., https://physionet.org/content/medical-diff-vqa/1.0.0/.
- VinDr-Mammo: BI-RADS grades of findings; rows of ``finding_annotations.csv`` with a grade, in its order. The
  source names no patients: the study, four views of one exam, is the cluster. Nguyen et al., Scientific Data 10:277
  (2023).
- CBIS-DDSM: pathology of a mass or a calcification from its cropped mammogram, official test cases. The case tables
  name DICOM files of the original archive; the JPEG copies on Kaggle are found through the series, as the reference
  does: an image described as "cropped images", or one without a description. Where neither exists the reference
  silently shows the image of the case before; here such a case cannot be used. Lee et al., Scientific Data 4:170177
  (2017).

Source of the last two: ``VinDrMammo`` and ``CBISDDSM`` in ``multimedeval/image_classification.py`` at d9ac283.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from operator import itemgetter
from pathlib import Path

import numpy as np
from PIL import Image

from medtasks.data.images.dicom_images import reading_dicom
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.named_files import named_file
from medtasks.data.prepare.source_files import (
    OpenedFiles,
    SourceFile,
    file_reader,
    not_found,
    physionet_file,
    required_file,
)
from medtasks.data.prepare.source_recipe import (
    PublishedRow,
    PublishedRows,
    Recipes,
    check_count,
    images_row,
)
from medtasks.data.prepare.source_tables import (
    Records,
    SourceRow,
    SourceRows,
    SourceTable,
    TableReader,
    UnusableRow,
    by_name,
    csv_table,
)
from medtasks.data.schema import (
    CLASSIFICATION,
    MULTILABEL,
    OPEN_QUESTION,
    NewDocument,
    new_document,
)
from medtasks.data.sources.multimedeval.question_sets import open_question
from medtasks.errors import UnusableFile

FOURTEEN_FINDINGS = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)
FIVE_FINDINGS = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")
_NONE = "No Finding"
# The archives of the source unpack into folders of their own.
_IMAGES = ("images*/images/*.png", "images*/*.png")
_LISTS = {"test": "test_list.txt", "train": "train_val_list.txt"}
_VALUES = {"1.0": 1, "1": 1, "0.0": 0, "0": 0, "-1.0": 0, "-1": 0, "": 0}
_SPLIT_COLUMNS = ("dicom_id", "study_id", "subject_id", "split")
_QUESTIONS = "mimic_pair_questions.csv"
_QUESTIONS_IN_ALL = 700_703  # of all splits; Hu et al., KDD 2023
_QUESTION_COLUMNS = ("study_id", "subject_id", "question_type", "question", "answer", "split")
_MIMIC_IMAGES = (
    "files",
    "mimic-cxr-jpg/2.0.0/files",
    "physionet.org/files/mimic-cxr-jpg/2.0.0/files",
)
_STRETCHED = "DICOM scaled from its least to its largest value"
_ALLOCATED_BITS = 16
_GRADED_COLUMNS = ("study_id", "image_id", "finding_birads", "split")
_GRADES = "12345"
PATHOLOGIES = ("BENIGN", "MALIGNANT", "BENIGN_WITHOUT_CALLBACK")
_CASE_COLUMNS = ("patient_id", "pathology", "cropped image file path")
_DESCRIBED = "cropped images"
_UNDESCRIBED = ""
_annotations = partial(
    physionet_file,
    project="vindr-mammo",
    version="1.0.0",
    names=("finding_annotations.csv",),
)
MIMIC_CXR_JPG = "mimic-cxr-jpg/2.0.0"
MIMIC_SPLIT = "mimic-cxr-2.0.0-split.csv.gz"
_CBIS_LAYOUT = "the folders csv/ and jpeg/ of the Kaggle copy"


class _ChestXray14(TableReader):
    columns = MULTILABEL
    image_name = "Image Index"

    def table(self, source: Path, split: str) -> SourceTable:
        """Return the rows of the findings table whose image a list names, in the table's order."""
        if next(self._images(source), None) is None:
            raise not_found(source, _IMAGES[0])
        with required_file(source, [_LISTS[split]]).open() as stream:
            names = {
                line.strip() for line in stream.read().decode("utf-8", "replace").splitlines()
            }
        tables = ("Data_Entry_2017.csv", "Data_Entry_2017_v2020.csv")
        columns = ("Image Index", "Finding Labels", "Patient ID")
        file = required_file(source, tables, " or ".join(tables))
        return csv_table(file, columns, lambda row: row["Image Index"] in names)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        findings = row.text("Finding Labels").split("|")
        unknown = [name for name in findings if name not in (*FOURTEEN_FINDINGS, _NONE)]
        if unknown:
            raise row.error(
                f"unknown finding {unknown[0]!r}; known: {', '.join(FOURTEEN_FINDINGS)}, {_NONE}"
            )
        if _NONE in findings and len(findings) > 1:
            raise row.error(f"{_NONE!r} stands beside findings")
        return new_document(
            MULTILABEL,
            patient_id=row.text("Patient ID"),
            doc_id=row.text("Image Index"),
            options=list(FOURTEEN_FINDINGS),
            labels=[int(finding in findings) for finding in FOURTEEN_FINDINGS],
        )

    def files(self, source: Path) -> OpenedFiles:
        return by_name(self._images(source))

    def _images(self, source: Path) -> Iterator[Path]:
        for pattern in _IMAGES:
            yield from source.glob(pattern)


def split_rows(source: Path, split: str) -> SourceRows:
    """Yield the images of one split of MIMIC-CXR-JPG.

    Args:
        source: Folder of the user.
        split: ``train``, ``validate`` or ``test``.

    Yields:
        Rows with ``dicom_id``, ``study_id`` and ``subject_id``.
    """
    return csv_table(
        mimic_cxr_file(source, "split"), _SPLIT_COLUMNS, lambda row: row["split"] == split
    ).rows()


def study_folder(files: Path, subject_id: str, study_id: str) -> Path:
    """Return the folder of a study's images, whether or not it exists.

    Example:
        >>> study_folder(Path("files"), "10000032", "50414267").as_posix()
        'files/p10/p10000032/s50414267'
    """
    return files / f"p{subject_id[:2]}" / f"p{subject_id}" / f"s{study_id}"


def image_name(row: SourceRow) -> str:
    """Return the path of an image below the folder of MIMIC-CXR-JPG, from a row of its split table.

    Example:
        >>> values = {"subject_id": "10000032", "study_id": "50414267", "dicom_id": "02aa"}
        >>> image_name(SourceRow("split row 1", 0, values))
        'files/p10/p10000032/s50414267/02aa.jpg'
    """
    folder = study_folder(Path("files"), row.text("subject_id"), row.text("study_id"))
    return f"{folder.as_posix()}/{row.text('dicom_id')}.jpg"


def mimic_cxr_file(source: Path, kind: str) -> SourceFile:
    """Return a table of MIMIC-CXR-JPG.

    Args:
        source: Folder of the user.
        kind: ``"split"`` or ``"chexpert"``.
    """
    name = f"mimic-cxr-2.0.0-{kind}.csv"
    return physionet_file(source, "mimic-cxr-jpg", "2.0.0", (name, f"{name}.gz"))


class _MimicCxr(TableReader):
    columns = MULTILABEL

    def table(self, source: Path, split: str) -> SourceTable:
        """Return the images of a split with the findings of their study.

        At the end of the test split are its images without any.
        """
        study_of = itemgetter("study_id", "subject_id")
        images: dict[tuple[str, str], list[SourceRow]] = {}
        for row in split_rows(source, split):
            images.setdefault(study_of(row.values), []).append(row)
        columns = ("study_id", "subject_id", *FIVE_FINDINGS)
        findings = csv_table(
            mimic_cxr_file(source, "chexpert"), columns, lambda row: study_of(row) in images
        )

        def records() -> Records:
            unlabelled = dict(images)
            for row in findings.rows():
                study = study_of(row.values)
                unlabelled.pop(study, None)
                for image in images[study]:
                    yield row.place, {**row.values, "dicom_id": image.text("dicom_id")}.copy
            if split == "test":
                for image in itertools.chain.from_iterable(unlabelled.values()):
                    yield image.place, partial(dict, image.values)

        return SourceTable(records)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        if FIVE_FINDINGS[0] not in row.values:
            raise UnusableRow("the findings table has no row for its study")
        for finding in FIVE_FINDINGS:
            if row.text(finding) not in _VALUES:
                raise row.error(f"the label of {finding} is not 1.0, 0.0, -1.0 or empty")
        return new_document(
            MULTILABEL,
            labels=[_VALUES[row.text(finding)] for finding in FIVE_FINDINGS],
            patient_id=row.text("subject_id"),
            doc_id=row.text("dicom_id"),
            options=list(FIVE_FINDINGS),
        )

    def names_of_images(self, row: SourceRow) -> Sequence[str]:
        return [image_name(row)]

    def files(self, source: Path) -> OpenedFiles:
        return file_reader([mimic_cxr_file(source, "split").path.parent])


def _questions(source: Path) -> SourceFile:
    return physionet_file(source, "medical-diff-vqa", "1.0.0", (_QUESTIONS,))


class _DiffVqa(TableReader):
    columns = OPEN_QUESTION

    def table(self, source: Path, split: str) -> SourceTable:
        return csv_table(
            _questions(source), _QUESTION_COLUMNS, lambda row: row["split"] == split
        )

    def rows(
        self,
        rows: SourceRows,
        split: str,
        source: Path,
        images: ImageStore,
    ) -> PublishedRows:
        files = next(filter(Path.is_dir, map(source.joinpath, _MIMIC_IMAGES)), None)
        if files is None:
            raise not_found(source, "folder files/ of MIMIC-CXR-JPG")
        # A study has many questions, one after the other.
        of_study = lru_cache(64)(partial(_add_study, images, files))
        for row in rows:
            subject = row.text("subject_id")
            study = row.text("study_id")
            stored = of_study(study_folder(files, subject, study))
            if isinstance(stored, str):
                yield PublishedRow(row.place, cause=stored)
                continue
            for column in ("question", "answer"):
                if not row.text(column).strip():
                    raise row.error(f"{column} is empty")
            document = open_question(
                row,
                f"{split}/{row.index}",
                question_type=row.text("question_type"),
                image_id=f"s{study}",
                patient_id=subject,
            )
            yield PublishedRow(row.place, document, stored)
        if split == "test":
            of_all_splits = csv_table(_questions(source), _QUESTION_COLUMNS).count()
            yield from check_count(_QUESTIONS, of_all_splits, _QUESTIONS_IN_ALL)


def _add_study(images: ImageStore, files: Path, folder: Path) -> list[StoredImage] | str:
    """Store the images of a study, or return why it has none."""
    paths = sorted(folder.glob("*.jpg"))
    if not paths:
        return f"its study {folder.name} has no images"
    try:
        return [images.add_file(path, root=files) for path in paths]
    except (UnreadableImage, UnusableFile) as error:
        return f"an image of its study {folder.name} is broken ({error})"


def read_dicom(path: Path) -> Image.Image:
    """Read the image of a DICOM file as MultiMedEval shows mammograms to models: grey (mode L), rows and columns kept.

    Every bit of a stored value counts, whatever ``BitsStored`` says. ``MONOCHROME1`` is inverted, so that dense tissue
    is bright. Then the least value becomes 0 and the largest 255, rounded down. No window is applied. An image of a
    single value becomes black. Source: ``VinDrMammo.format_question`` in ``multimedeval/image_classification.py`` at
    d9ac283.

    Args:
        path: The file, or a member that was unpacked from an archive.

    Raises:
        UnreadableImage: It holds no single grey image. Further errors are those of
            :func:`~medtasks.data.images.dicom_images.reading_dicom`.
    """
    with reading_dicom(path, str(path)) as (_, dataset):
        # Some files say 12 bits and use more.
        dataset.BitsStored = min(_ALLOCATED_BITS, dataset.BitsAllocated)
        values = dataset.pixel_array
        if dataset.PhotometricInterpretation == "MONOCHROME1":
            values = values.max() - values
    if values.ndim != 2 or not values.size:
        raise UnreadableImage(
            f"it holds values of shape {values.shape} and no single grey image"
        )
    spread = values - values.min()
    return Image.fromarray((spread / (spread.max() or 1) * 255).astype(np.uint8))


class _VinDrMammo(TableReader):
    columns = CLASSIFICATION

    def table(self, source: Path, split: str) -> SourceTable:
        graded = {"test": "test", "train": "training"}[split]

        def belongs(row: Mapping[str, str]) -> bool:
            return row["split"] == graded and row["finding_birads"] != ""

        return csv_table(_annotations(source), _GRADED_COLUMNS, belongs)

    def names_of_images(self, row: SourceRow) -> Sequence[str]:
        return [f"images/{row.text('study_id')}/{row.text('image_id')}.dicom"]

    def rows(
        self,
        rows: SourceRows,
        _split: str,
        source: Path,
        images: ImageStore,
    ) -> PublishedRows:
        folder = _annotations(source).path.parent

        @cache
        def add(name: str) -> StoredImage:
            path = named_file(folder / name, folder / "images")
            return images.add_pixels(read_dicom(path), _STRETCHED)

        findings: Counter[str] = Counter()  # of each image, from 1
        for row in rows:
            study = row.text("study_id")
            image = row.text("image_id")
            findings[image] += 1
            grade = row.text("finding_birads")[-1:]
            if grade not in _GRADES:
                raise row.error("finding_birads does not end in a grade from 1 to 5")
            document = new_document(
                CLASSIFICATION,
                doc_id=f"{image}/{findings[image]}",
                image_id=image,
                patient_id=study,
                options=list(_GRADES),
                label=_GRADES.index(grade),
            )
            adding = [(name, partial(add, name)) for name in self.names_of_images(row)]
            yield images_row(row.place, adding, document)


def _kaggle_table(name: str, columns: Sequence[str], source: Path) -> SourceTable:
    return csv_table(required_file(source, [f"csv/{name}.csv", f"{name}.csv"]), columns)


class _CbisDdsm(TableReader):
    columns = CLASSIFICATION

    def __init__(self, cases: str) -> None:
        self.cases = cases  # name of the table, with a gap for the split

    def table(self, source: Path, split: str) -> SourceTable:
        return _kaggle_table(self.cases.format(split), _CASE_COLUMNS, source)

    def rows(
        self,
        rows: SourceRows,
        _split: str,
        source: Path,
        images: ImageStore,
    ) -> PublishedRows:
        # The path of the JPEG to show for each series. Of several images in a series the last one counts.
        by_description: dict[str, dict[str, str]] = {_UNDESCRIBED: {}, _DESCRIBED: {}}
        columns = ("image_path", "SeriesDescription")
        for row in _kaggle_table("dicom_info", columns, source).rows():
            parts = row.text("image_path").split("/")
            if len(parts) < 4:
                raise row.error("image_path is not like CBIS-DDSM/jpeg/<series>/<image>.jpg")
            description = row.text("SeriesDescription")
            if description in by_description:
                by_description[description][parts[2]] = "/".join(parts[1:])
        images_of_series = by_description[_UNDESCRIBED] | by_description[_DESCRIBED]
        for row in rows:
            pathology = row.one_of("pathology", PATHOLOGIES, "the pathology is not one of")
            parts = row.text("cropped image file path").strip().split("/")
            if len(parts) < 3:
                raise row.error(
                    "the cropped image file path is not like <case>/<study>/<series>/<image>.dcm"
                )
            document = new_document(
                CLASSIFICATION,
                doc_id=parts[0],
                label=PATHOLOGIES.index(pathology),
                patient_id=row.text("patient_id"),
                options=list(PATHOLOGIES),
            )
            name = images_of_series.get(parts[2])
            if name:
                store = partial(images.add_file, source / name, root=source)
                yield images_row(row.place, [(name, store)], document)
            else:
                yield PublishedRow(
                    row.place, cause=f"dicom_info.csv has no image of its series {parts[2]}"
                )


RECIPES: Recipes = {
    "chestxray14": _ChestXray14().recipe(
        "Data_Entry_2017.csv, test_list.txt, train_val_list.txt and the folders images*/images/ of ChestX-ray14"
    ),
    "mimic_cxr_classification": _MimicCxr().physionet_recipe(
        "mimic-cxr-2.0.0-split.csv.gz, mimic-cxr-2.0.0-chexpert.csv.gz and the folder files/ of MIMIC-CXR-JPG",
        MIMIC_CXR_JPG,
        (MIMIC_SPLIT, "mimic-cxr-2.0.0-chexpert.csv.gz"),
    ),
    "diff_vqa": _DiffVqa().recipe(
        f"{_QUESTIONS} and, beside it, the folder files/ of MIMIC-CXR-JPG 2.0.0"
    ),
    "vindr_mammo": _VinDrMammo().physionet_recipe(
        "finding_annotations.csv and the folder images with <study_id>/<image_id>.dicom",
        "vindr-mammo/1.0.0",
        ["finding_annotations.csv"],
    ),
    "cbis_ddsm_mass": _CbisDdsm("mass_case_description_{}_set").recipe(_CBIS_LAYOUT),
    "cbis_ddsm_calcification": _CbisDdsm("calc_case_description_{}_set").recipe(_CBIS_LAYOUT),
}
