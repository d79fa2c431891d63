"""Documents of a dataset in preparation, packed: as Python objects, 90,000 of them take 200 MB."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from medtasks.data.schema import Columns, arrow_schema

Documents = Collection[Mapping[str, Any]]
BATCH = 1000  # rows


class DocumentBatches(Collection[Mapping[str, Any]]):
    """Documents of a schema in batches of Arrow; each is unpacked when it is asked for."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._batches: list[Any] = []
        self._waiting: list[Mapping[str, Any]] = []

    def append(self, document: Mapping[str, Any]) -> None:
        """Add a document at the end."""
        self._waiting.append(document)
        if len(self._waiting) == BATCH:
            self._batches.append(_packed(self._waiting, arrow_schema(self._columns)))
            self._waiting.clear()

    def __len__(self) -> int:
        return BATCH * len(self._batches) + len(self._waiting)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for batch in self._batches:
            yield from batch.to_pylist()
        yield from self._waiting

    def table(self) -> Any:
        """Return all of them as an Arrow table in one piece."""
        rest = [_packed(self._waiting, arrow_schema(self._columns))] if self._waiting else []
        return _joined([*self._batches, *rest], arrow_schema(self._columns))

    def __contains__(self, document: object) -> bool:
        return any(document == one for one in self)


def packed_table(documents: Documents, schema: Any) -> Any:
    """Return documents as an Arrow table, packed a batch at a time; columns have the order of the first document's."""
    if isinstance(documents, DocumentBatches):
        return documents.table()
    rows = iter(documents)
    return _joined([_packed(some, schema) for some in iter(lambda: list(islice(rows, BATCH)), [])], schema)


def _packed(documents: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    import pyarrow

    ordered = pyarrow.schema([schema.field(name) for name in documents[0]])
    return pyarrow.RecordBatch.from_pylist(list(documents), ordered)


def _joined(batches: Sequence[Any], schema: Any) -> Any:
    import pyarrow

    return pyarrow.Table.from_batches(batches, None if batches else schema).combine_chunks()
