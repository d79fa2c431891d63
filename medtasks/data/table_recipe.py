"""Benchmarks that are tables: a row becomes a document, and shows the image files that it names or holds, or none.

A new one costs what it has of its own: where its table lies, what a row becomes, and how its images are called and
found. What a row becomes is asked first, so that a row of another form is an error even where its image is missing.
Images are decoded while further rows are read.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from medtasks.data.image_store import ImageStore, StoredImage
from medtasks.data.preparation import Recipe, Row, Tables, images_row, in_order
from medtasks.data.schema import Columns, Document
from medtasks.data.tables import SourceRow

# Bytes of a file. Larger ones are decoded in a thread of their own, one at a time: each thread keeps the memory that it
# needed once.
_LARGE = 1 << 19

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


class UnusableRow(Exception):
    """A row has the form of the others and still gives no document; its text says why, without a final stop."""


@dataclass(frozen=True)
class TableReader:
    """How the rows of a benchmark's splits are read."""

    columns: Columns  # of its documents
    table: Tables  # finds a split in a source
    document: Callable[[SourceRow, str], Document]  # what a row of a split becomes
    # what a row calls its images, in the order they are shown
    named: Callable[[SourceRow], Sequence[str]] = lambda row: ()
    # opens the image files of a source
    files: Callable[[Path], AbstractContextManager[ReadFile]] = lambda source: by_name({})
    embedded: Sequence[str] = ()  # columns with an image file in each, or none; shown in this order

    def rows(self, rows: Iterator[SourceRow], split: str, source: Path, images: ImageStore) -> Iterator[Row]:
        """Read rows of a split."""
        with self.files(source) as read, ThreadPoolExecutor(1) as alone:

            def add(data: bytes) -> StoredImage:
                return alone.submit(images.add_bytes, data).result() if len(data) > _LARGE else images.add_bytes(data)

            def storing(row: SourceRow) -> Callable[[], Row]:
                """Return what stores the images of a row and makes it one of a dataset."""
                try:
                    document = self.document(row, split)
                except UnusableRow as error:
                    return functools.partial(Row, row.place, None, cause=str(error))
                adding = [(name, functools.partial(lambda name: add(read(name)), name)) for name in self.named(row)]
                held = ((column, row.encoded(column)) for column in self.embedded)
                adding += [(column, functools.partial(add, data)) for column, data in held if data is not None]
                return functools.partial(images_row, row.place, adding, document)

            yield from in_order(map(storing, rows))

    def recipe(self, layout: str, splits: Sequence[str] = ("test", "train")) -> Recipe:
        """Return the recipe of a benchmark that evaluates one split and takes examples from the second, if any."""
        return Recipe.of_splits(self.columns, self.table, self.rows, layout, splits)
