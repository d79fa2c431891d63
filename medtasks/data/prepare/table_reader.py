"""Reading of benchmarks whose splits are tables."""

import contextlib
import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.named_files import read_named
from medtasks.data.prepare.source_recipe import PublishedRow, SourceRecipe, images_row
from medtasks.data.prepare.source_tables import SourceRow, SourceTable, hub_table
from medtasks.data.schema import Columns, NewDocument

_WORKERS = min(4, os.cpu_count() or 1)  # rows whose images are stored at once: decoding them is most of the work
_AHEAD = 3 * _WORKERS  # rows read ahead of them
# Bytes of a file. Larger ones are decoded one at a time: each thread keeps the memory that it needed once.
_LARGE = 1 << 19
ReadFile = Callable[[str], bytes]
"""Reads a file of a source by its name, FileNotFoundError or KeyError where there is no such file."""


def by_name(files: Iterable[Path]) -> AbstractContextManager[ReadFile]:
    """Return a function that reads one of these files by its name alone, within a block."""
    paths = {path.name: path for path in files}
    return contextlib.nullcontext(lambda name: read_named(paths[name]))


class UnusableRow(Exception):
    """A row gives no document; its text says why, without a final stop. See :class:`PublishedRow` for ``outside``."""

    def __init__(self, cause: str, *, outside: bool = False) -> None:
        super().__init__(cause)
        self.outside = outside


class TableReader:
    """Reading of a benchmark whose splits are tables; every benchmark has a class of its own."""

    columns: Columns  # of its documents
    required: Sequence[str] = ()  # columns of the table; also those that not every copy has
    optional: Sequence[str] = ()
    hub_folder = "data"  # of the Hub's parquet files
    embedded: Sequence[str] = ()  # columns of the table with an image file in each, or none; shown in this order
    image_name = ""  # column with the name of an image file

    def table(self, source: Path, split: str) -> SourceTable:
        """Find a split in a source, by default in the Hub's parquet files."""
        return hub_table(source, split, self.required, self.optional, self.hub_folder)

    def document(self, row: SourceRow, split: str) -> NewDocument:
        """Return the document of a row of a split; UnusableRow if it gives none."""
        raise NotImplementedError

    def named(self, row: SourceRow) -> Sequence[str]:
        """Return the names of a row's images, in the order shown."""
        return [row.text(self.image_name)] if self.image_name else ()

    def files(self, source: Path) -> AbstractContextManager[ReadFile]:
        """Open the image files of a source."""
        return by_name(())

    def rows(self, rows: Iterator[SourceRow], split: str, source: Path, images: ImageStore) -> Iterator[PublishedRow]:
        """Read rows of a split in order; their images are stored in several threads, a few rows ahead."""
        waiting: deque[Future[PublishedRow]] = deque()
        with self.files(source) as read, ThreadPoolExecutor(1) as alone, ThreadPoolExecutor(_WORKERS) as workers:

            def add(data: bytes) -> StoredImage:
                return alone.submit(images.add_bytes, data).result() if len(data) > _LARGE else images.add_bytes(data)

            def published(row: SourceRow) -> PublishedRow:
                try:
                    document = self.document(row, split)
                except UnusableRow as error:
                    return PublishedRow(row.place, None, cause=str(error), outside=error.outside)
                adding = [(name, functools.partial(lambda name: add(read(name)), name)) for name in self.named(row)]
                for column in self.embedded:
                    if (data := row.encoded(column)) is not None:
                        adding.append((column if len(self.embedded) > 1 else "", functools.partial(add, data)))
                return images_row(row.place, adding, document)

            for row in rows:
                waiting.append(workers.submit(published, row))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def recipe(
        self, layout: str, splits: Sequence[str] = ("test", "train"), hub_files: Sequence[str] = ()
    ) -> SourceRecipe:
        """Return the recipe of a benchmark that evaluates one split and takes examples from the second, if any."""

        def read(position: int, source: Path, images: ImageStore) -> Iterable[PublishedRow]:
            table = self.table(source, splits[position])
            return self.rows(table.spread() if position else table.rows(), splits[position], source, images)

        examples = functools.partial(read, 1) if splits[1:] else None
        return SourceRecipe(self.columns, functools.partial(read, 0), layout, examples, hub_files)
