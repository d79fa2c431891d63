"""Benchmarks that are tables: a row becomes a document, and shows the image file that it names or none.

A new one costs what it has of its own: where its table lies, what a row becomes, and how its image is called and found.
What a row becomes is asked first, so that a row of another form is an error even where its image is missing.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from medtasks.data.image_store import ImageStore, StoredImage
from medtasks.data.preparation import Recipe, Row, Tables, images_row
from medtasks.data.schema import Columns, Document
from medtasks.data.tables import SourceRow

ReadFile = Callable[[str], bytes]
"""Reads a file of a source by its name, FileNotFoundError where there is none."""


@contextlib.contextmanager
def by_name(where: Mapping[str, Callable[[], bytes]]) -> Iterator[ReadFile]:
    """Yield what reads one of these files."""

    def read(name: str) -> bytes:
        if name not in where:
            raise FileNotFoundError(name)
        return where[name]()

    yield read


def _no_files(_source: Path) -> AbstractContextManager[ReadFile]:
    return by_name({})


@dataclass(frozen=True)
class TableReader:
    """How the rows of a benchmark's splits are read."""

    columns: Columns  # of its documents
    table: Tables  # finds a split in a source
    document: Callable[[SourceRow, str], Document]  # what a row of a split becomes
    image: Callable[[SourceRow], str] | None = None  # what a row calls its image; None for questions without
    files: Callable[[Path], AbstractContextManager[ReadFile]] = _no_files  # opens the image files of a source

    def rows(self, rows: Iterator[SourceRow], split: str, source: Path, images: ImageStore) -> Iterator[Row]:
        """Read rows of a split."""
        with self.files(source) as read:
            for row in rows:
                document = self.document(row, split)
                name = self.image(row) if self.image else None
                adding = {} if name is None else {name: functools.partial(_add, read, name, images)}
                yield images_row(row.place, adding, document)

    def recipe(self, layout: str, splits: Sequence[str] = ("test", "train")) -> Recipe:
        """Return the recipe of a benchmark that evaluates one split and takes its examples from the second."""
        return Recipe.of_splits(self.columns, self.table, self.rows, layout, splits)


def _add(read: ReadFile, name: str, images: ImageStore) -> StoredImage:
    return images.add_bytes(read(name))
