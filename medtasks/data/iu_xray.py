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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from xml.etree import ElementTree

from medtasks.data.downloads import Published, download
from medtasks.data.image_store import ImageStore, StoredImage
from medtasks.data.json_tables import read_json, records_table
from medtasks.data.preparation import Recipe, Row, images_row
from medtasks.data.schema import REPORT, new_document
from medtasks.data.source_files import SourceFile, find_file, required_file, unpacking
from medtasks.data.strict_pillow import UnreadableImage
from medtasks.errors import SourceError

_ANNOTATION = "annotation.json"
_REPORTS, _IMAGES = "NLMCXR_reports.tgz", "NLMCXR_png.tgz"
_OPEN_I = "https://openi.nlm.nih.gov/imgs/collections"
_REPORT_FILES = ("ecgen-radiology/*.xml", "*/ecgen-radiology/*.xml", "*.xml")
_IMAGE_FILES = ("NLMCXR_png/*.png", "images/*.png", "*/NLMCXR_png/*.png", "*.png")


class _Study(NamedTuple):
    """One report of Open-i's."""

    name: str
    indication: str
    findings: str
    images: tuple[str, ...]


def _test(source: Path, images: ImageStore) -> Iterator[Row]:
    annotation = _annotation(source)
    return _of_r2gen(annotation, images) if annotation else _of_open_i(source, images)


def _annotation(source: Path) -> SourceFile | None:
    return find_file(source, [_ANNOTATION, f"*/{_ANNOTATION}"])


def _revision(source: Path) -> str:
    return "test split of R2Gen" if _annotation(source) else "all of Open-i with findings"


def _of_r2gen(file: SourceFile, images: ImageStore) -> Iterator[Row]:
    content = read_json(file)
    if not isinstance(content, dict) or not isinstance(content.get("test"), list):
        raise SourceError(f"{file.name} is not an object with a list 'test'")
    records = ((f"{file.name} test row {number}", record) for number, record in enumerate(content["test"], 1))
    for row in records_table(records, ("id", "report", "image_path")).rows():
        if not row.text("report").strip():
            yield Row(row.place, None, cause="its report is empty")
            continue
        folder = file.path.parent / "images"
        adding = {name: functools.partial(images.add_file, folder / name) for name in row.texts("image_path")}
        study = row.text("id")
        yield images_row(
            row.place, adding.items(), new_document(REPORT, study, report=row.text("report"), image_id=study)
        )


def _of_open_i(source: Path, images: ImageStore) -> Iterator[Row]:
    studies = {}
    for name, data in _report_files(source):
        study = _study(name, data)
        if not study.findings.strip():
            yield Row(name, None, cause="studies without findings", outside=True)
        elif not study.images:
            yield Row(name, None, cause="studies with findings and without an image", outside=True)
        else:
            studies[name] = study
    known = _image_files(source, {image for study in studies.values() for image in study.images}, images)
    for name, study in studies.items():
        adding = {f"{image}.png": known.get(image, _refuse) for image in study.images}
        document = new_document(
            REPORT, study.name, report=study.findings, image_id=study.name, indication=study.indication
        )
        yield images_row(name, adding.items(), document)


def _report_files(source: Path) -> list[tuple[str, bytes]]:
    """Return name and content of all reports, in the order of their numbers."""
    for pattern in _REPORT_FILES:
        found = [(path.name, path.read_bytes()) for path in source.glob(pattern)]
        if found:
            return sorted(found, key=_number)
    wanted = f"{_REPORTS} of Open-i, no folder ecgen-radiology, and no {_ANNOTATION} of R2Gen"
    archive = required_file(source, [_REPORTS, f"*/{_REPORTS}"], wanted)
    return sorted(_unpacked(archive.path, ".xml"), key=_number)


def _number(report: tuple[str, bytes]) -> tuple[int, str]:
    stem = report[0].removesuffix(".xml")
    return int(stem) if stem.isdecimal() else 0, stem


def _study(name: str, data: bytes) -> _Study:
    try:
        root = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise SourceError(f"{name} is no whole XML file ({error}); download {_REPORTS} again") from error
    identity = root.find("uId")
    if identity is None or not identity.get("id"):
        raise SourceError(f"{name} has no uId; it is no report of Open-i")
    shown = tuple(image.get("id", "") for image in root.iter("parentImage"))
    return _Study(identity.get("id", ""), _section(root, "INDICATION"), _section(root, "FINDINGS"), shown)


def _section(root: ElementTree.Element, label: str) -> str:
    part = root.find(f".//AbstractText[@Label='{label}']")
    return "" if part is None else "".join(part.itertext())


def _image_files(source: Path, wanted: set[str], images: ImageStore) -> Mapping[str, Callable[[], StoredImage]]:
    """Return what stores each image, by name; images in an archive are stored at once, because it has no index."""
    archive = find_file(source, [_IMAGES, f"*/{_IMAGES}"])
    packed = _unpacked(archive.path, ".png", wanted) if archive else ()
    adding = {name.removesuffix(".png"): _stored(data, images) for name, data in packed}
    files = {path.stem: path for pattern in reversed(_IMAGE_FILES) for path in source.glob(pattern)}
    return adding | {name: functools.partial(images.add_file, path) for name, path in files.items()}


def _stored(data: bytes, images: ImageStore) -> Callable[[], StoredImage]:
    try:
        stored = images.add_bytes(data)
    except UnreadableImage as error:
        return functools.partial(_refuse, error)
    return lambda: stored


def _refuse(error: UnreadableImage | None = None) -> StoredImage:
    raise error or FileNotFoundError


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


RECIPES: Mapping[str, Recipe] = {
    "iu_xray_report": Recipe(
        columns=REPORT,
        test=_test,
        layout=f"{_REPORTS} and {_IMAGES} of Open-i, or R2Gen's {_ANNOTATION} and folder images",
        download=_download,
        revision=_revision,
    )
}
