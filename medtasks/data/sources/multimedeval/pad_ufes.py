"""PAD-UFES-20: smartphone images of skin lesions, seven classes, one row per image.

``pad_ufes_20`` holds every row of ``metadata.csv``, as the reference evaluates them: it builds a test split and then
takes the whole table. Its demonstrations are therefore among the evaluated rows. ``pad_ufes_20_disjoint`` holds the
rows whose lesion is in the test split and not in the training split, which share 204 lesions.

The split is the one the reference reads (``croyer/Pad-UFES-20-split`` on the Hugging Face Hub): files whose column
``ids`` holds lesion ids, in the source's folder ``split``.

Source: Pacheco et al., Data in Brief 32:106221 (2020); ``PadUFES20`` in ``multimedeval/image_classification.py`` at
d9ac283.
"""

import contextlib
import dataclasses
import functools
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath, PurePosixPath
from typing import IO

from medtasks.data.catalogue import dataset_info
from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare.downloads import Published, download, hub_download
from medtasks.data.prepare.source_files import SourceFile, open_archive, required_file, unpacking
from medtasks.data.prepare.source_recipe import PublishedRow, ReadFile, SourceRecipe, TableReader, by_name
from medtasks.data.prepare.table_files import SourceRow, SourceTable, csv_table, hub_table, read_json
from medtasks.data.schema import CLASSIFICATION, Document, new_document
from medtasks.errors import SourceError
from medtasks.home import home

URL_VARIABLE = "MEDTASKS_PAD_UFES_URL"
_URL = "https://data.mendeley.com/public-files/datasets/zr7vgbcyr2/files"
_INFO = dataset_info("multimedeval_pad_ufes_20")
_SPLIT = dataclasses.replace(
    _INFO, source="https://huggingface.co/datasets/croyer/Pad-UFES-20-split", revision="main", sha256={}
)
_NAMES = read_json(SourceFile(Path(__file__).with_name("pad_ufes.json")))
_FILES: Mapping[str, str] = _NAMES["files"]  # their keys in the downloads' addresses
CLASSES: Mapping[str, str] = _NAMES["classes"]  # in questions, by the table's names
_HISTORY: Mapping[str, str] = _NAMES["history"]  # columns of the table, by their names in the prompt
_COLUMNS = ("patient_id", "lesion_id", "diagnostic", "img_id", *_HISTORY.values())
_ENDING = ".png"
_TRUTH_VALUES = {"true": "True", "false": "False"}


def patient_history(values: Mapping[str, str]) -> str:
    """Return the text on a patient in the reference's later prompt; unknown fields are left out.

    Example:
        >>> patient_history(dict.fromkeys(_HISTORY.values(), "") | {"drink": "TRUE", "age": "55", "gender": "FEMALE"})
        'Patient history: drink True, age 55, gender FEMALE'
    """
    known_fields = {name: values[column] for name, column in _HISTORY.items() if values[column]}
    return "Patient history: " + ", ".join(
        f"{name} {_TRUTH_VALUES.get(value.lower(), value)}" for name, value in known_fields.items()
    )


def _metadata(source: Path) -> SourceFile:
    name = "metadata.csv"
    return required_file(source, [name, f"*/{name}", f"*.zip!{name}", f"*.zip!*/{name}"])


def _lesions(source: Path, split: str) -> frozenset[str]:
    folder = source / "split" if source.is_dir() else source.parent / "split"
    missing = f"{split} split of {_SPLIT.source} (its files {split}*.parquet or {split}*.csv)"
    table = hub_table(folder, split, "default", ("ids",)) or csv_table(
        required_file(folder, [f"{split}*.csv", f"data/{split}*.csv"], missing), ("ids",)
    )
    return frozenset(str(row.values["ids"]).strip() for row in table.rows())


@contextlib.contextmanager
def _image_files(source: Path) -> Iterator[ReadFile]:
    """Open the images of a folder with all below it, or of an archive.

    A file in a folder goes before one of the same name in an archive. Archives within an archive are unpacked into
    temporary files in the data folder.
    """
    where: dict[str, Callable[[], bytes]] = {}

    def add(path: Path, archive: zipfile.ZipFile) -> None:
        """Add the images of an archive; ``path`` is the file it lies in."""

        def read(member: str) -> bytes:
            with unpacking(path):
                return archive.read(member)

        for member in archive.namelist():
            name = PurePosixPath(member).name
            if name.endswith(_ENDING):
                where.setdefault(name, functools.partial(read, member))

    archives = [source]
    if source.is_dir():
        for path in sorted(source.rglob(f"*{_ENDING}")):
            where.setdefault(path.name, path.read_bytes)
        archives = sorted(source.rglob("*.zip"))
    with contextlib.ExitStack() as opened:
        for path in archives:
            with unpacking(path):
                archive = opened.enter_context(open_archive(path))
                add(path, archive)
                for member in archive.namelist():  # archives in these are not opened: they could go on without end
                    if member.endswith(".zip"):
                        inner = open_archive(path, opened.enter_context(_unpacked(archive, member)))
                        add(path, opened.enter_context(inner))
        yield opened.enter_context(by_name(where))


@contextlib.contextmanager
def _unpacked(archive: zipfile.ZipFile, member: str) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile(dir=home()) as target:
        with archive.open(member) as packed:
            shutil.copyfileobj(packed, target)
        yield target


def _document(row: SourceRow, _split: str) -> Document:
    diagnosis = row.one_of("diagnostic", CLASSES.keys(), "diagnostic is not one of")
    about = {"patient_id": row.text("patient_id"), "details": patient_history(row.values)}
    classes = {"options": list(CLASSES.values()), "label": list(CLASSES).index(diagnosis)}
    return new_document(CLASSIFICATION, PurePath(row.text("img_id")).stem, **classes, **about)


def _whole(source: Path, split: str) -> SourceTable:
    if split == "test":
        return csv_table(_metadata(source), _COLUMNS)
    tested = _lesions(source, "test")
    return csv_table(_metadata(source), _COLUMNS, lambda row: row["lesion_id"] not in tested)


def _checked(source: Path, images: ImageStore) -> Iterator[PublishedRow]:
    """Yield the held-out rows; their published number is not known, so that of the whole table is checked."""
    metadata = _metadata(source)
    rows = csv_table(metadata, _COLUMNS).count()
    if rows != _INFO.rows:
        yield PublishedRow(metadata.name, None, cause=f"it holds {rows} rows, the published table {_INFO.rows}")
    lesions = _lesions(source, "test") - _lesions(source, "train")
    held_out = csv_table(metadata, _COLUMNS, lambda row: row["lesion_id"] in lesions)
    yield from _READER.rows(held_out.rows(), "test", source, images)


def _download(folder: Path, split_required: bool) -> Path:
    # Without the split only the demonstrations of the whole set are missing.
    with contextlib.nullcontext() if split_required else contextlib.suppress(SourceError):
        hub_download(_SPLIT, ["*test*", "*train*"])(folder / "split")
    base = os.environ.get(URL_VARIABLE, _URL)
    for name, key in _FILES.items():
        download(Published(f"{base}/{key}/file_downloaded", sha256=_INFO.sha256.get(name)), folder / name)
    return folder


_NEEDED = "metadata.csv, the images (unpacked, in imgs_part_*.zip or in the published zr7vgbcyr2-1.zip)"
_SPLIT_FILES = "the folder split with the test and train files of croyer/Pad-UFES-20-split"
_READER = TableReader(CLASSIFICATION, _whole, _document, lambda row: [row.text("img_id")], _image_files)
_WHOLE = _READER.recipe(f"{_NEEDED}, and for few-shot prompts {_SPLIT_FILES}")

RECIPES: Mapping[str, SourceRecipe] = {
    "pad_ufes_20": dataclasses.replace(_WHOLE, download=functools.partial(_download, split_required=False)),
    "pad_ufes_20_disjoint": dataclasses.replace(
        _WHOLE,
        test=_checked,
        layout=f"{_NEEDED} and {_SPLIT_FILES}",
        download=functools.partial(_download, split_required=True),
    ),
}
