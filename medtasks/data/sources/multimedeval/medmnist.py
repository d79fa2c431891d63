"""MedMNIST's test sets at 28 x 28 pixels, as its authors publish them: one ``.npz`` archive per set.

Class names and their order are those of the package ``medmnist`` 3.0.2, see ``medmnist_classes.json``. Images of one
channel stay grey.

Source: Yang et al., Scientific Data 10:41 (2023); https://zenodo.org/records/10519652.
"""

import functools
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from PIL import Image

from medtasks.data.catalogue import dataset_info
from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare.downloads import Published, download
from medtasks.data.prepare.source_files import SourceFile, not_found
from medtasks.data.prepare.source_recipe import PublishedRow, SourceRecipe
from medtasks.data.prepare.table_files import SourceRow, SourceTable, read_json, records_table
from medtasks.data.schema import CLASSIFICATION, new_document
from medtasks.errors import SourceError

URL_VARIABLE = "MEDTASKS_MEDMNIST_URL"
_URL = "https://zenodo.org/records/10519652/files"
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError, MemoryError)
_SIDE = 28  # pixels
_COLOUR = frozenset({"pathmnist", "bloodmnist", "dermamnist", "retinamnist"})
_QUARTERED = frozenset({"tissuemnist"})
_NAMES = read_json(SourceFile(Path(__file__).with_name("medmnist_classes.json")))
CLASSES: Mapping[str, tuple[str, ...]] = {name: tuple(classes) for name, classes in _NAMES.items()}


def read_array(path: Path, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """Read one array of an ``.npz`` archive, a SourceError if that is damaged or has no such array."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
            array: np.ndarray[Any, np.dtype[Any]] = npy.read_array(stream, allow_pickle=False)
            if not array.ndim:
                raise ValueError("an array of another kind than the published one")
            stream.read()  # only its end tells whether it is damaged
            return array
    except KeyError as error:
        raise SourceError(f"{path} holds no array '{name}'") from error
    except _BROKEN as error:
        raise SourceError(f"{path} is damaged at {name} ({error}); download it again") from error


def _table(name: str, source: Path, split: str) -> SourceTable:
    """Return rows with the columns ``image`` (pixels, channels last) and ``label``; errors where there are others."""
    path = _archive(name, source)
    images, labels = read_array(path, f"{split}_images"), read_array(path, f"{split}_labels")
    pixels = (_SIDE, _SIDE, 3) if name in _COLOUR else (_SIDE, _SIDE)
    images_fit = images.shape[1:] == pixels and str(images.dtype) == "uint8"
    labels_fit = labels.shape in ((len(images), 1), (len(images),)) and labels.dtype.kind in "iu"
    for kind, array, fits, expected in (
        ("images", images, images_fit, f"uint8 in the shape (N, {str(pixels)[1:]}"),
        ("labels", labels, labels_fit, f"whole numbers in the shape ({len(images)}, 1)"),
    ):
        if not fits:
            actual = f"{array.dtype} in the shape {array.shape}"
            raise SourceError(f"{path}: {split}_{kind} is {actual}, expected {expected}")
    if name in _QUARTERED and split == "test":  # as the reference
        images, labels = images[: len(images) // 4], labels[: len(labels) // 4]
    rows = enumerate(zip(images, labels.reshape(-1).tolist(), strict=True), 1)
    records = ((f"{path.name} {split} row {n}", {"image": image, "label": label}) for n, (image, label) in rows)
    return records_table(records, ("image", "label"))


def _rows(
    name: str, rows: Iterator[SourceRow], split: str, _source: Path, images: ImageStore
) -> Iterator[PublishedRow]:
    classes = CLASSES[name]
    for row in rows:
        label = row.integer("label")
        if not 0 <= label < len(classes):
            raise row.error(f"the label is {label} and not one of 0 to {len(classes) - 1}")
        stored = images.add_pixels(Image.fromarray(row.values["image"]))
        columns = {"options": list(classes), "label": label, "image_id": stored.image_id}
        document = new_document(CLASSIFICATION, f"{split}/{row.index}", **columns)
        yield PublishedRow(row.place, document, [stored])


def _archive(name: str, source: Path) -> Path:
    path = source / f"{name}.npz" if source.is_dir() else source
    if not path.is_file():
        raise not_found(source, f"{name}.npz")
    return path


def _published(name: str) -> Published:
    url = f"{os.environ.get(URL_VARIABLE, _URL)}/{name}.npz?download=1"
    return Published(url, md5=dataset_info(f"multimedeval_{name}").md5[f"{name}.npz"])


def _recipe(name: str) -> SourceRecipe:
    table, rows = functools.partial(_table, name), functools.partial(_rows, name)

    def revision(source: Path) -> str:
        unchanged = _published(name).matches(_archive(name, source))
        return dataset_info(f"multimedeval_{name}").revision if unchanged else "local"

    recipe = SourceRecipe.of_splits(CLASSIFICATION, table, rows, f"MedMNIST's {name}.npz")
    return replace(
        recipe,
        download=lambda folder: download(_published(name), folder / f"{name}.npz"),
        revision=revision,
    )


RECIPES = {name: _recipe(name) for name in CLASSES}
