"""Indiana University's chest X-rays as report generation: each study with its images and the findings of its report.

Two layouts are read. Rows of R2Gen's come first in its own order, those of Open-i's by the number of the study:

- R2Gen's ``annotation.json`` with the folder ``images``: its test split of 590 studies, two images each, which most
  published numbers are about;
- Open-i's own: reports as XML (``NLMCXR_reports.tgz``) and images (``NLMCXR_png.tgz``), or what was unpacked from one
  or both, in any folder below: all studies that have findings and an image. They have no split.

The files do not say which studies are of one patient, so the study is the cluster. Texts are as published; ``XXXX`` in
them marks what was removed to protect the patient.

Source: Demner-Fushman et al., JAMIA 23(2):304-310 (2016), https://openi.nlm.nih.gov/faq; Chen et al., EMNLP 2020,
https://github.com/zhjohnchan/R2Gen at e8cd3cf.
"""

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from medtasks.data.document_store import SCRATCH
from medtasks.data.images.image_store import ImageStore
from medtasks.data.named_files import read_named, read_stream
from medtasks.data.prepare.downloads import Published, download
from medtasks.data.prepare.source_files import (
    OpenedFiles,
    SourceFile,
    file_reader,
    find_file,
    not_found,
    unpacking,
)
from medtasks.data.prepare.source_recipe import (
    PublishedRows,
    Recipes,
    SourceRecipe,
    check_count,
)
from medtasks.data.prepare.source_tables import (
    SourceRow,
    SourceTable,
    TableReader,
    UnusableRow,
    by_name,
    numbered_table,
    read_json,
    records_table,
)
from medtasks.data.schema import REPORT, NewDocument, new_document
from medtasks.errors import SourceError

_ANNOTATION = "annotation.json"
_REPORTS = "NLMCXR_reports.tgz"
_IMAGES = "NLMCXR_png.tgz"
_STUDIES_OF_R2GEN = 590
_REPORTS_OF_OPEN_I = 3955
_OPEN_I = "https://openi.nlm.nih.gov/imgs/collections"


def _annotation(source: Path) -> SourceFile | None:
    """Return R2Gen's file of reports, or None for a source in Open-i's layout."""
    return find_file(source, [_ANNOTATION, f"*/{_ANNOTATION}"])


@dataclass(frozen=True)
class _R2Gen(TableReader):
    annotation: SourceFile

    columns = REPORT

    def table(self, _source: Path, split: str) -> SourceTable:
        name = self.annotation.name
        content = read_json(self.annotation)
        if not isinstance(content, dict) or not isinstance(content.get(split), list):
            raise SourceError(f"{name} is not an object with a list '{split}'")
        columns = ("id", "report", "image_path")
        return numbered_table(f"{name} {split} row", content[split], columns)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        study = row.text("id")
        report = row.text("report")
        if not report.strip():
            raise UnusableRow("its report is empty")
        return new_document(REPORT, study, report=report, image_id=study)

    def names_of_images(self, row: SourceRow) -> Sequence[str]:
        return row.texts("image_path")

    def files(self, _source: Path) -> OpenedFiles:
        return file_reader([self.annotation.path.parent / "images"])


@dataclass(frozen=True)
class _OpenI(TableReader):
    unpacked: Path  # folder for files of an archive, which has no index

    columns = REPORT

    def table(self, source: Path, _split: str) -> SourceTable:
        """Return all reports, in the order of their numbers, also those without findings or an image.

        Raises:
            SourceError: A report is damaged or has no number of its study.
        """
        reports = []  # by number without leading zeros; those with another name come first
        for path in self.unpacked_files(source, _REPORTS, ".xml"):
            number = path.stem.lstrip("0") if path.stem.isdecimal() else ""
            reports.append((len(number), number, path.stem, path.name, read_named(path)))
        records = []
        for *_, name, data in sorted(reports):
            try:
                root = ElementTree.fromstring(data)
            except ElementTree.ParseError as error:
                raise SourceError(
                    f"{name} is no whole XML file ({error}); download {_REPORTS} again"
                ) from error
            identity = root.find("uId")
            if identity is None or not identity.get("id"):
                raise SourceError(f"{name} has no uId; it is no report of Open-i")
            record: dict[str, object] = {
                "id": identity.get("id"),
                "images": [image.get("id", "") for image in root.iter("parentImage")],
            }
            for label in ("INDICATION", "FINDINGS"):
                part = root.find(f".//AbstractText[@Label='{label}']")
                record[label.lower()] = "" if part is None else "".join(part.itertext())
            records.append((name, record))
        return records_table(records, ())

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        study = row.text("id")
        findings = row.text("findings")
        if not findings.strip():
            raise UnusableRow("studies without findings", outside=True)
        if not row.texts("images"):
            raise UnusableRow("studies with findings and without an image", outside=True)
        return new_document(
            REPORT, study, report=findings, image_id=study, indication=row.text("indication")
        )

    def names_of_images(self, row: SourceRow) -> Sequence[str]:
        return [f"{image}.png" for image in row.texts("images")]

    def files(self, source: Path) -> OpenedFiles:
        return by_name(self.unpacked_files(source, _IMAGES, ".png"))

    def unpacked_files(self, source: Path, archive: str, ending: str) -> Iterator[Path]:
        """Yield the files of one of Open-i's archives, which are unpacked if the user has not done so."""
        packed = find_file(source, [archive])
        if packed is None:
            unpacked = sorted(source.rglob(f"[!.]*{ending}"))
            if not unpacked:
                raise not_found(source, f"{archive} of Open-i and no {_ANNOTATION} of R2Gen")
            yield from unpacked
            return
        self.unpacked.mkdir(parents=True, exist_ok=True)
        with unpacking(packed.path), tarfile.open(packed.path, "r|*") as opened:
            for member in opened:
                path = self.unpacked / PurePosixPath(member.name).name
                if member.isfile() and path.suffix == ending and not path.name.startswith("."):
                    content = opened.extractfile(member)
                    assert content is not None  # it is a file
                    path.write_bytes(read_stream(content))
                    yield path


def _test_rows(source: Path, images: ImageStore) -> PublishedRows:
    """Read R2Gen's test split if the source has its annotation, else all reports of Open-i."""
    annotation = _annotation(source)
    if annotation:
        reader: TableReader = _R2Gen(annotation)
        name = _ANNOTATION
        published = _STUDIES_OF_R2GEN
    else:
        reader = _OpenI(images.folder / SCRATCH / "unpacked")
        name = _REPORTS
        published = _REPORTS_OF_OPEN_I
    table = reader.table(source, "test")
    yield from reader.rows(table.rows(), "test", source, images)
    yield from check_count(name, table.count(), published)


def _download(folder: Path) -> Path:
    for name in (_REPORTS, _IMAGES):
        download(Published(f"{_OPEN_I}/{name}"), folder / name)
    return folder


RECIPES: Recipes = {
    "iu_xray_report": SourceRecipe(
        columns=REPORT,
        test_rows=_test_rows,
        layout=f"{_REPORTS} and {_IMAGES} of Open-i, or their files, or R2Gen's {_ANNOTATION} and folder images",
        download=_download,
        revision=lambda source: (
            "test split of R2Gen" if _annotation(source) else "all of Open-i with findings"
        ),
    )
}
