"""Documents of a dataset in preparation, packed: as Python objects, 90,000 of them take 200 MB."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

Documents = Collection[Mapping[str, Any]]
BATCH = 1000  # rows


class DocumentBatches(Collection[Mapping[str, Any]]):
    """Documents of a schema in batches of Arrow; each is unpacked when it is asked for.

    Columns have the order of the first document's.
    """

    def __init__(self, schema: Any, documents: Iterable[Mapping[str, Any]] = ()) -> None:
        self._schema = schema
        self._batches: list[Any] = []
        self._waiting: list[Mapping[str, Any]] = []
        for document in documents:
            self.append(document)

    def append(self, document: Mapping[str, Any]) -> None:
        """Add a document at the end."""
        self._waiting.append(document)
        if len(self._waiting) == BATCH:
            self._batches.append(self._packed())
            self._waiting.clear()

    def __len__(self) -> int:
        return BATCH * len(self._batches) + len(self._waiting)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for batch in self._batches:
            yield from batch.to_pylist()
        yield from self._waiting

    def __contains__(self, document: object) -> bool:
        return any(document == one for one in self)

    def table(self) -> Any:
        """Return all of them as an Arrow table in one piece."""
        import pyarrow

        batches = [*self._batches, *([self._packed()] if self._waiting else [])]
        return pyarrow.Table.from_batches(batches, self._schema).combine_chunks()

    def _packed(self) -> Any:
        import pyarrow

        if not self._batches:
            self._schema = pyarrow.schema([self._schema.field(name) for name in self._waiting[0]])
        return pyarrow.RecordBatch.from_pylist(self._waiting, self._schema)
