"""Image classification: MedMNIST and PAD-UFES-20.

MedMNIST: the test sets at 28 x 28 pixels, as the authors publish them: one ``.npz`` archive per set. Class names and
their order are those of the package ``medmnist`` 3.0.2, see ``medmnist_classes.json``. Images of one channel stay grey.
Yang et al., Scientific Data 10:41 (2023); https://zenodo.org/records/10519652.

PAD-UFES-20: smartphone images of skin lesions, seven classes, one row per image. ``pad_ufes_20`` holds every row of
``metadata.csv``, as the reference evaluates them: it builds a test split and then takes the whole table. Its
demonstrations are therefore among the evaluated rows. ``pad_ufes_20_disjoint`` holds the rows whose lesion is in the
test split and not in the training split, which share 204 lesions. The split is the one the reference reads
(``croyer/Pad-UFES-20-split`` on the Hugging Face Hub): files whose column ``ids`` holds lesion ids, in the source's
folder ``split``. Pacheco et al., Data in Brief 32:106221 (2020); ``PadUFES20`` in
``multimedeval/image_classification.py`` at d9ac283.
"""

import contextlib
import fnmatch
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from PIL import Image

from medtasks.data.catalogue import dataset_info
from medtasks.data.images.image_store import ImageStore
from medtasks.data.named_files import read_named, read_stream
from medtasks.data.prepare.downloads import Published, download, hub_download
from medtasks.data.prepare.source_files import (
    ReadFile,
    SourceFile,
    not_found,
    open_archive,
    required_file,
    unpacking,
)
from medtasks.data.prepare.source_recipe import (
    PublishedRow,
    PublishedRows,
    Recipes,
    SourceRecipe,
    check_count,
)
from medtasks.data.prepare.source_tables import (
    SourceRow,
    SourceRows,
    SourceTable,
    TableReader,
    csv_table,
    hub_table,
    read_json,
    records_table,
)
from medtasks.data.schema import CLASSIFICATION, NewDocument, new_document
from medtasks.errors import SourceError

MEDMNIST_VARIABLE = "MEDTASKS_MEDMNIST_URL"
_MEDMNIST_URL = "https://zenodo.org/records/10519652/files"
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, MemoryError)
_SIDE = 28  # pixels
_COLOUR = frozenset({"pathmnist", "bloodmnist", "dermamnist", "retinamnist"})
# Splits of which the reference takes the first quarter
_QUARTERED = frozenset({("tissuemnist", "test")})
CLASSES: Mapping[str, Sequence[str]] = read_json(
    SourceFile(Path(__file__).with_name("medmnist_classes.json"))
)
PAD_UFES_VARIABLE = "MEDTASKS_PAD_UFES_URL"
_PAD_UFES_URL = "https://data.mendeley.com/public-files/datasets/zr7vgbcyr2/files"
_INFO = dataset_info("multimedeval_pad_ufes_20")
_SPLIT = replace(
    _INFO,
    source="https://huggingface.co/datasets/croyer/Pad-UFES-20-split",
    revision="main",
    sha256={},
)
_NAMES = read_json(SourceFile(Path(__file__).with_name("pad_ufes.json")))
_FILES: Mapping[str, str] = _NAMES["files"]  # their keys in the downloads' addresses
SKIN_CLASSES: Mapping[str, str] = _NAMES["classes"]  # in questions, by the table's names
# Columns of the table, by their names in the prompt.
_HISTORY: Mapping[str, str] = _NAMES["history"]
_COLUMNS = ("patient_id", "lesion_id", "diagnostic", "img_id", *_HISTORY.values())
_ENDING = ".png"
_TRUTH_VALUES = {"true": "True", "false": "False"}
_NEEDED = "metadata.csv, the images (unpacked or in imgs_part_*.zip)"
_SPLIT_FILES = "the folder split with the test and train files of croyer/Pad-UFES-20-split"


def _read_array(path: Path, name: str) -> NDArray[Any]:
    """Read an array of an ``.npz`` archive completely.

    Raises:
        SourceError: There is no such array, or the archive is damaged.
    """
    try:
        with open_archive(path) as archive, archive.open(f"{name}.npy") as stream:
            array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
            if not array.ndim:
                raise ValueError("an array of another kind than the published one")
            stream.read()  # only its end tells whether it is damaged
    except KeyError as error:
        raise SourceError(f"{path} holds no array '{name}'") from error
    except _BROKEN as error:
        raise SourceError(
            f"{path} is damaged at {name} ({error}); download it again"
        ) from error
    return array


def _other_array(path: Path, name: str, array: NDArray[Any], form: str) -> SourceError:
    """Build the error for an array of another type or shape than the published one, which is ``form``."""
    return SourceError(
        f"{path}: {name} is {array.dtype} in the shape {array.shape}, expected {form}"
    )


@dataclass(frozen=True)
class _MedMNIST(TableReader):
    name: str  # of the set

    columns = CLASSIFICATION

    def table(self, source: Path, split: str) -> SourceTable:
        """Return rows with the columns ``image`` (pixels, channels last) and ``label``.

        Args:
            source: The set's ``.npz`` file, or the folder with it.
            split: By which its arrays are named.
        """
        path = self.file(source)
        if not path.is_file():
            raise not_found(source, f"{self.name}.npz")
        images = _read_array(path, f"{split}_images")
        labels = _read_array(path, f"{split}_labels")
        pixels = (_SIDE, _SIDE, 3) if self.name in _COLOUR else (_SIDE, _SIDE)
        if images.shape[1:] != pixels or images.dtype != np.uint8:
            raise _other_array(
                path, f"{split}_images", images, f"uint8 in the shape (N, {str(pixels)[1:]}"
            )
        if (
            labels.shape not in ((len(images), 1), (len(images),))
            or labels.dtype.kind not in "iu"
        ):
            raise _other_array(
                path,
                f"{split}_labels",
                labels,
                f"whole numbers in the shape ({len(images)}, 1)",
            )
        if (self.name, split) in _QUARTERED:
            images = images[: len(images) // 4]
            labels = labels[: len(labels) // 4]

        def records() -> Iterator[tuple[str, dict[str, Any]]]:
            pairs = zip(images, labels.reshape(-1).tolist(), strict=True)
            for number, (image, label) in enumerate(pairs, 1):
                yield f"{path.name} {split} row {number}", {"image": image, "label": label}

        return records_table(records(), ("image", "label"))

    def rows(
        self,
        rows: SourceRows,
        split: str,
        _source: Path,
        images: ImageStore,
    ) -> PublishedRows:
        """Store the pixels of each row."""
        classes = CLASSES[self.name]
        for row in rows:
            label = row.integer("label")
            if not 0 <= label < len(classes):
                raise row.error(f"the label is {label} and not one of 0 to {len(classes) - 1}")
            stored = images.add_pixels(Image.fromarray(row.values["image"]))
            document = new_document(
                CLASSIFICATION,
                f"{split}/{row.index}",
                options=list(classes),
                label=label,
                image_id=stored.image_id,
            )
            yield PublishedRow(row.place, document, [stored])

    def file(self, source: Path) -> Path:
        return source / f"{self.name}.npz" if source.is_dir() else source

    def publication(self) -> Published:
        md5 = dataset_info(f"multimedeval_{self.name}").md5[f"{self.name}.npz"]
        return Published(
            f"{os.environ.get(MEDMNIST_VARIABLE, _MEDMNIST_URL)}/{self.name}.npz?download=1",
            md5,
        )

    def revision(self, source: Path) -> str:
        unchanged = self.publication().matches(self.file(source))
        return dataset_info(f"multimedeval_{self.name}").revision if unchanged else "local"

    def own_recipe(self) -> SourceRecipe:
        return replace(
            self.recipe(f"MedMNIST's {self.name}.npz"),
            download=lambda folder: download(self.publication(), folder / f"{self.name}.npz"),
            revision=self.revision,
        )


def _metadata(source: Path) -> SourceFile:
    name = "metadata.csv"
    return required_file(source, [name, f"*/{name}"])


def _lesions(source: Path, split: str) -> frozenset[str]:
    """Return the ids of the lesions of a split."""
    rows = hub_table(source / "split", split, ("ids",)).rows()
    return frozenset(str(row.values["ids"]).strip() for row in rows)


class _PadUfes(TableReader):
    columns = CLASSIFICATION
    image_name = "img_id"

    def table(self, source: Path, split: str) -> SourceTable:
        if split == "test":
            return csv_table(_metadata(source), _COLUMNS)
        tested = _lesions(source, "test")
        return csv_table(
            _metadata(source), _COLUMNS, lambda row: row["lesion_id"] not in tested
        )

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        diagnosis = row.one_of("diagnostic", SKIN_CLASSES.keys(), "diagnostic is not one of")
        # The text on a patient in the reference's later prompt, without unknown fields.
        fields = []
        for name, column in _HISTORY.items():
            text = row.values[column]
            if text:
                fields.append(f"{name} {_TRUTH_VALUES.get(text.lower(), text)}")
        return new_document(
            CLASSIFICATION,
            patient_id=row.text("patient_id"),
            doc_id=PurePath(row.text("img_id")).stem,
            details=f"Patient history: {', '.join(fields)}",
            options=list(SKIN_CLASSES.values()),
            label=list(SKIN_CLASSES).index(diagnosis),
        )

    @contextlib.contextmanager
    def files(self, source: Path) -> Iterator[ReadFile]:
        """Open the images of a folder with all below it. A file goes before one of the same name in an archive."""
        readers: dict[str, Callable[[], bytes]] = {}

        def read_member(path: Path, archive: zipfile.ZipFile, member: str) -> bytes:
            with unpacking(path), archive.open(member) as stream:
                return read_stream(stream)

        for path in sorted(source.rglob(f"*{_ENDING}")):
            readers.setdefault(path.name, partial(read_named, path, source))
        with contextlib.ExitStack() as opened:
            for path in sorted(source.rglob("*.zip")):
                with unpacking(path):
                    archive = opened.enter_context(open_archive(path))
                    for member in fnmatch.filter(archive.namelist(), f"*{_ENDING}"):
                        read = partial(read_member, path, archive, member)
                        readers.setdefault(PurePosixPath(member).name, read)
            yield lambda name: readers[name]()

    def held_out(self, source: Path, images: ImageStore) -> PublishedRows:
        """Yield the held-out rows. Their published number is unknown, so that of the whole table is checked."""
        metadata = _metadata(source)
        yield from check_count(metadata.name, csv_table(metadata, _COLUMNS).count(), _INFO.rows)
        lesions = _lesions(source, "test") - _lesions(source, "train")
        table = csv_table(metadata, _COLUMNS, lambda row: row["lesion_id"] in lesions)
        yield from self.rows(table.rows(), "test", source, images)


def _download(folder: Path, split_required: bool) -> Path:
    # Without the split only the demonstrations of the whole set are missing.
    """Download the published files and the split into a folder, and return it.

    Args:
        folder: Where they go.
        split_required: Whether a split that cannot be downloaded is an error.
    """
    with contextlib.nullcontext() if split_required else contextlib.suppress(SourceError):
        hub_download(_SPLIT, ["*test*", "*train*"], folder / "split")
    base = os.environ.get(PAD_UFES_VARIABLE, _PAD_UFES_URL)
    for name, key in _FILES.items():
        published = Published(f"{base}/{key}/file_downloaded", sha256=_INFO.sha256.get(name))
        download(published, folder / name)
    return folder


_WHOLE = _PadUfes().recipe(f"{_NEEDED}, and for few-shot prompts {_SPLIT_FILES}")

RECIPES: Recipes = {
    **{name: _MedMNIST(name).own_recipe() for name in CLASSES},
    "pad_ufes_20": replace(_WHOLE, download=partial(_download, split_required=False)),
    "pad_ufes_20_disjoint": replace(
        _WHOLE,
        test_rows=_PadUfes().held_out,
        layout=f"{_NEEDED} and {_SPLIT_FILES}",
        download=partial(_download, split_required=True),
    ),
}
