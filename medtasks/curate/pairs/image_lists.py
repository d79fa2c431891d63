"""Images with captions that pairs are looked for in: a user's own list, or a published set as it was downloaded.

========  ==========================================================================================================
own list  a file of lines ``{"id", "image", "caption"}``, also ``"group"`` and ``"licence"``; paths are relative to it
ROCO      a checkout of ``razorx89/roco-dataset`` after its ``fetch.py``: ``data/<split>/radiology/captions.txt``
ROCOv2    ``<split>_captions.csv`` and ``license_information.csv`` (Zenodo 10821435) with the archives unpacked
PMC-OA    ``pmc_oa.jsonl`` or ``pmc_oa_beta.jsonl`` with ``images.zip`` unpacked; the file, or the folder it is in
========  ==========================================================================================================

The group of an image of the published sets is its article. An own list that contradicts itself is refused; what a
published one lacks or holds twice is left out and counted.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from medtasks.curate.study import list_rows
from medtasks.data.prepare.table_files import SourceRow
from medtasks.errors import SourceError, near_match
from medtasks.net.journal import digest_of

KEYS = ("id", "image", "caption", "group", "licence")
_PMC_ID = re.compile(r"PMC\d+")
_PMC_OA_FILES = ("pmc_oa.jsonl", "pmc_oa_beta.jsonl")
_PMC_OA_ARCHIVE = "caption_T060_filtered_top4_sep_v0_subfigures"  # the folder in images.zip
_PMC_OA_FOLDERS = ("images", f"images/{_PMC_OA_ARCHIVE}", _PMC_OA_ARCHIVE, ".")
_ROCO_V2_FOLDERS = ("{0}", "{0}_images", "{0}_images/{0}", "{0}/{0}")
NO_CAPTION, NO_FILE, TWICE = "without a caption", "image file missing", "listed twice"


@dataclass(frozen=True, slots=True)
class ListedImage:
    """One image of a list."""

    image_id: str
    file: Path | None  # absolute; None if it is missing
    caption: str
    group: str | None = None  # patient, study or article
    licence: str | None = None


@dataclass(frozen=True)
class ImageList:
    """A list of images with captions."""

    layout: str  # the first column of the module's table
    images: tuple[ListedImage, ...]  # by id, all with a caption and a file
    left_out: Counter[str]  # number of other rows by reason
    unused: tuple[str, ...] = ()  # keys of its rows that mean nothing here

    @property
    def files(self) -> list[Path]:
        """The files of the images."""
        return [image.file for image in self.images if image.file is not None]

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that change with every row that counts; not with the pixels."""
        rows = [(one.image_id, str(one.file), one.caption, one.group, one.licence) for one in self.images]
        return digest_of(rows)[:16]


def read_image_list(source: Path) -> ImageList:
    """Return the images of a list that have a caption and a file; SourceError for one that holds fewer than two."""
    source = source.expanduser().absolute()
    unused: set[str] = set()
    layout, rows = _rows(source, unused)
    images: dict[str, ListedImage] = {}
    left_out: Counter[str] = Counter()
    for row in rows:
        if row.image_id in images:
            left_out[TWICE] += 1
        elif not row.caption or row.file is None:
            left_out[NO_CAPTION if row.file else NO_FILE] += 1
        images.setdefault(row.image_id, row)
    usable = tuple(one for _, one in sorted(images.items()) if one.caption and one.file)
    if len(usable) < 2:
        why = "".join(f"; {count} {reason}" for reason, count in sorted(left_out.items()))
        raise SourceError(f"{source} holds {len(usable)} usable images ({layout}{why}); pairs need two")
    return ImageList(layout, usable, left_out, tuple(sorted(unused)))


def _rows(source: Path, unused: set[str]) -> tuple[str, Iterable[ListedImage]]:
    if source.is_file():
        first = next((row.values for row in list_rows(source)), {})
        is_pmc_oa = "id" not in first and _PMC_ID.match(str(first.get("image", "")))
        return ("PMC-OA", _pmc_oa(source)) if is_pmc_oa else ("own list", _own(source, unused))
    for data in (source / "data", source):
        if captions := sorted(data.glob("*/radiology/captions.txt")):
            return "ROCO", _roco(captions)
    if tables := sorted(source.glob("*_captions.csv")):
        return "ROCOv2", _roco_v2(tables)
    for name in _PMC_OA_FILES:
        if (source / name).is_file():
            return "PMC-OA", _pmc_oa(source / name)
    if not source.exists():
        raise SourceError(f"{source} does not exist; give a file of lines with {', '.join(KEYS[:3])}")
    raise SourceError(
        f"{source} is neither a list nor a checkout of ROCO (data/*/radiology/captions.txt), ROCOv2 (*_captions.csv) "
        f"or PMC-OA ({_PMC_OA_FILES[0]}); give a file of lines with {', '.join(KEYS[:3])}"
    )


def _first_file(files: Iterable[Path]) -> Path | None:
    for file in files:
        try:
            if file.is_file():
                return file
        except OSError:  # of a name that is too long, for example
            continue
    return None


def _caption(row: SourceRow) -> str:
    caption = row.values.get("caption")
    return caption.strip() if isinstance(caption, str) else ""


def _own(file: Path, unused: set[str]) -> Iterator[ListedImage]:
    keys: set[str] = set()
    for row in list_rows(file, "id"):
        keys.update(row.values)
        image, group, licence = (
            None if row.values.get(key) in (None, "") else row.name(key) for key in ("image", "group", "licence")
        )
        path = _first_file([file.parent / image] if image else [])
        yield ListedImage(row.name("id"), path, _caption(row), group, licence)
    unused.update(keys.difference(KEYS))
    if keys and "caption" not in keys:
        raise SourceError(f'{file}: no line has a caption; add "caption": "..."{near_match("caption", keys)}')


def _roco(captions: Iterable[Path]) -> Iterator[ListedImage]:
    for file in captions:
        about = {row["ROCO_ID"]: row for row in _table(file.with_name("licences.txt"), "ROCO_ID")}
        links = dict(_labelled_lines(file.with_name("dlinks.txt")))  # they name the article, too
        for image_id, caption in _labelled_lines(file):
            known = about.get(image_id, {})
            article = _PMC_ID.search(known.get("PMC_ID", "") or links.get(image_id, ""))
            image = _first_file([file.parent / "images" / f"{image_id}.jpg"])
            yield ListedImage(image_id, image, caption, article and article[0], known.get("CC") or None)


def _labelled_lines(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the id of each line and what follows its first tabulator; none without a file."""
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n") if file.is_file() else []
    for line in filter(str.strip, lines):
        image_id, _, text = line.partition("\t")
        yield image_id.strip(), text.strip()


def _roco_v2(tables: Iterable[Path]) -> Iterator[ListedImage]:
    """Articles and licences stand in ``license_information.csv``, with ID, PMCID, Attribution and Link."""
    about: dict[str, Mapping[str, str]] = {}
    for file in tables:
        split = file.name.removesuffix("_captions.csv")
        about = about or {row["ID"]: row for row in _table(file.with_name("license_information.csv"), "ID")}
        folders = [file.parent / folder.format(split) for folder in _ROCO_V2_FOLDERS]
        for row in _table(file, "ID"):
            known = about.get(row["ID"], {})
            article = _PMC_ID.search(" ".join(known.get(key, "") for key in ("PMCID", "Link")))
            file_of = _first_file(folder / f"{row['ID']}.jpg" for folder in folders)
            licence = known.get("Attribution") or None
            yield ListedImage(row["ID"], file_of, row.get("Caption", ""), article and article[0], licence)


def _table(file: Path, key: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a table with commas that have a value in the column ``key``; none without a file."""
    if not file.is_file():
        return
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        for row in csv.DictReader(stream, skipinitialspace=True):
            cells = {str(name).strip(): (value or "").strip() for name, value in row.items() if isinstance(value, str)}
            if cells.get(key):
                yield cells


def _pmc_oa(file: Path) -> Iterator[ListedImage]:
    """The name of an image begins with its article."""
    folders = [file.parent / folder for folder in _PMC_OA_FOLDERS]
    folder: Path | None = None
    for row in list_rows(file):
        name = str(row.values.get("image") or "")
        folder = folder or next((folder for folder in folders if name and (folder / name).is_file()), None)
        article = _PMC_ID.match(name)
        image = _first_file([folder / name] if folder and name else [])
        yield ListedImage(Path(name).stem or row.place, image, _caption(row), article and article[0])
