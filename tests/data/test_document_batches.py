from medtasks.data.dataset_manifest import text_fingerprint
from medtasks.data.document_store import BATCH, DocumentBatches
from medtasks.data.schema import CHOICE, arrow_schema, choice_document

from ..tables import each_row


def documents(count):
    shown = {"dataset": "d", "image_files": [], "image_sha256": []}
    return [{**choice_document(str(n), f"Wie groß {n}?", ["a", "b"], n % 2), **shown} for n in range(count)]


@each_row("count", [0, 1, BATCH, 2 * BATCH + 3])
def test_packed_documents_are_the_same(count):
    plain = documents(count)
    batches = DocumentBatches(arrow_schema(CHOICE), plain)
    assert (len(batches), bool(batches), list(batches)) == (count, count > 0, plain)
    assert text_fingerprint(batches) == text_fingerprint(plain)
    table = batches.table()
    assert table.to_pylist() == plain
    assert table.column_names == list(plain[0] if plain else CHOICE)
    assert max((column.num_chunks for column in table.columns), default=0) <= 1
