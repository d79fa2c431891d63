"""Indiana University's chest X-rays as report generation: each study with its images and the findings of its report.

Two layouts are read. Rows of R2Gen's come first in its own order, those of Open-i's by the number of the study:

- R2Gen's ``annotation.json`` with the folder ``images``: its test split of 590 studies, two images each, which most
  published numbers are about;
- Open-i's own: reports as XML (``NLMCXR_reports.tgz``, or ``ecgen-radiology/*.xml`` from it) and images
  (``NLMCXR_png.tgz``, or what was unpacked from it): all studies that have findings and an image. They have no split.

The files do not say which studies are of one patient, so the study is the cluster. Texts are as published; ``XXXX`` in
them stands for what was removed to protect the patient.

Source: Demner-Fushman et al., JAMIA 23(2):304-310 (2016), https://openi.nlm.nih.gov/faq; Chen et al., EMNLP 2020,
https://github.com/zhjohnchan/R2Gen at e8cd3cf.
"""

import functools
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.prepare.downloads import Published, download
from medtasks.data.prepare.source_files import SourceFile, file_reader, find_file, required_file, unpacking
from medtasks.data.prepare.source_recipe import PublishedRow, SourceRecipe, TableReader, UnusableRow, images_row
from medtasks.data.prepare.table_files import SourceRow, read_json, records_table
from medtasks.data.schema import REPORT, Document, new_document
from medtasks.errors import SourceError

_ANNOTATION = "annotation.json"
_REPORTS, _IMAGES = "NLMCXR_reports.tgz", "NLMCXR_png.tgz"
_OPEN_I = "https://openi.nlm.nih.gov/imgs/collections"
_REPORT_FILES = ("ecgen-radiology/*.xml", "*/ecgen-radiology/*.xml", "*.xml")
_IMAGE_FILES = ("NLMCXR_png/*.png", "images/*.png", "*/NLMCXR_png/*.png", "*.png")


def _annotation(source: Path) -> SourceFile | None:
    return find_file(source, [_ANNOTATION, f"*/{_ANNOTATION}"])


def _test(source: Path, images: ImageStore) -> Iterator[PublishedRow]:
    file = _annotation(source)
    if file is None:
        return _of_open_i(source, images)
    content, split = read_json(file), "test"
    if not isinstance(content, dict) or not isinstance(content.get(split), list):
        raise SourceError(f"{file.name} is not an object with a list '{split}'")
    records = ((f"{file.name} {split} row {number}", record) for number, record in enumerate(content[split], 1))
    table = records_table(records, ("id", "report", "image_path"))
    folder = file.path.parent / "images"
    reader = TableReader(
        REPORT,
        lambda _source, _split: table,
        _of_r2gen,
        lambda row: row.texts("image_path"),
        lambda _source: file_reader([folder], (), ()),
    )
    return reader.rows(table.rows(), split, source, images)


def _of_r2gen(row: SourceRow, _split: str) -> Document:
    study, report = row.text("id"), row.text("report")
    if not report.strip():
        raise UnusableRow("its report is empty")
    return new_document(REPORT, study, report=report, image_id=study)


def _of_open_i(source: Path, images: ImageStore) -> Iterator[PublishedRow]:
    studies = {}
    for name, data in _report_files(source):
        document, shown = _study(name, data)
        if not document["report"].strip():
            yield PublishedRow(name, None, cause="studies without findings", outside=True)
        elif not shown:
            yield PublishedRow(name, None, cause="studies with findings and without an image", outside=True)
        else:
            studies[name] = document, shown
    wanted = {image for _, shown in studies.values() for image in shown}
    stored: dict[str, StoredImage | UnreadableImage] = {}
    if archive := find_file(source, [_IMAGES, f"*/{_IMAGES}"]):
        for name, data in _unpacked(archive.path, ".png", wanted):  # at once: the archive has no index
            try:
                stored[name.removesuffix(".png")] = images.add_bytes(data)
            except UnreadableImage as error:
                stored[name.removesuffix(".png")] = error
    files = {path.stem: path for pattern in reversed(_IMAGE_FILES) for path in source.glob(pattern)}

    def add(image: str) -> StoredImage:
        if image in files:
            return images.add_file(files[image])
        known = stored.get(image, FileNotFoundError(image))
        if isinstance(known, OSError):
            raise known
        return known

    for name, (document, shown) in studies.items():
        adding = {f"{image}.png": functools.partial(add, image) for image in shown}
        yield images_row(name, adding.items(), document)


def _report_files(source: Path) -> list[tuple[str, bytes]]:
    """Return name and content of all reports, in the order of their numbers."""
    folders = ([(path.name, path.read_bytes()) for path in source.glob(pattern)] for pattern in _REPORT_FILES)
    reports = next(filter(None, folders), [])
    if not reports:
        wanted = f"{_REPORTS} of Open-i, no folder ecgen-radiology, and no {_ANNOTATION} of R2Gen"
        archive = required_file(source, [_REPORTS, f"*/{_REPORTS}"], wanted)
        reports = list(_unpacked(archive.path, ".xml"))
    stems = {name: name.removesuffix(".xml") for name, _ in reports}
    return sorted(reports, key=lambda one: (int(stems[one[0]]) if stems[one[0]].isdecimal() else 0, stems[one[0]]))


def _study(name: str, data: bytes) -> tuple[Document, tuple[str, ...]]:
    """Return the document of a report of Open-i's, and the names of its images."""
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise SourceError(f"{name} is no whole XML file ({error}); download {_REPORTS} again") from error
    identity = root.find("uId")
    if identity is None or not identity.get("id"):
        raise SourceError(f"{name} has no uId; it is no report of Open-i")
    parts = (root.find(f".//AbstractText[@Label='{label}']") for label in ("INDICATION", "FINDINGS"))
    indication, findings = ("" if part is None else "".join(part.itertext()) for part in parts)
    shown = tuple(image.get("id", "") for image in root.iter("parentImage"))
    study = identity.get("id", "")
    return new_document(REPORT, study, report=findings, image_id=study, indication=indication), shown


def _unpacked(archive: Path, ending: str, wanted: set[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files in an archive; with ``wanted`` only of those, named without ending."""
    with unpacking(archive), tarfile.open(archive, "r|*") as opened:
        for member in opened:
            name = PurePosixPath(member.name).name
            if not member.isfile() or not name.endswith(ending) or name.startswith("."):
                continue
            if wanted is None or name.removesuffix(ending) in wanted:
                content = opened.extractfile(member)
                assert content is not None  # it is a file
                yield name, content.read()


def _download(folder: Path) -> Path:
    for name in (_REPORTS, _IMAGES):
        download(Published(f"{_OPEN_I}/{name}"), folder / name)
    return folder


RECIPES: Mapping[str, SourceRecipe] = {
    "iu_xray_report": SourceRecipe(
        columns=REPORT,
        test=_test,
        layout=f"{_REPORTS} and {_IMAGES} of Open-i, or R2Gen's {_ANNOTATION} and folder images",
        download=_download,
        revision=lambda source: "test split of R2Gen" if _annotation(source) else "all of Open-i with findings",
    )
}
