"""VQA-RAD and PathVQA, parquet files with the images in them; SLAKE, the English questions of ``test.json``.

Splits and order are those MultiMedEval evaluates (``multimedeval/vqa.py`` at d9ac283).
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from medtasks.data.catalogue import dataset_info
from medtasks.data.image_store import ImageStore
from medtasks.data.preparation import ReadRows, Recipe, Row, shown_row
from medtasks.data.schema import OPEN_QUESTION, Document, new_document
from medtasks.data.source_files import SourceFile, not_found, unpacked_or_archived
from medtasks.data.strict_pillow import UnreadableImage
from medtasks.data.tables import SourceRow, Table, listed_records, records_table, required_hub_table
from medtasks.errors import SourceError

_SLAKE_COLUMNS = ("qid", "img_name", "question", "answer", "q_lang")
_SLAKE_FOLDERS = ("imgs", "imgs/imgs")  # unpacked beside the archive, or in a folder of its name
SLAKE_ARCHIVE = "imgs.zip"
SLAKE_LAYOUT = "test.json and imgs.zip, or the folder imgs unpacked from it"


def open_question(row: SourceRow, doc_id: str, **known: str | None) -> Document:
    """Return a document of the ``OPEN_QUESTION`` schema from a row with ``question`` and ``answer``."""
    return new_document(OPEN_QUESTION, doc_id, question=row.text("question"), answer=row.text("answer"), **known)


def _parquet(source: Path, split: str) -> Table:
    return required_hub_table(source, split, "default", ("image", "question", "answer"))


def _with_images(rows: Iterator[SourceRow], split: str, _source: Path, images: ImageStore) -> Iterator[Row]:
    for row in rows:
        try:
            image = images.add_bytes(row.encoded("image") or b"")
            yield shown_row(row.place, open_question(row, f"{split}/{row.index}"), [image])
        except UnreadableImage:
            yield Row(row.place, None, cause="its image cannot be read")


def slake_table(source: Path, split: str) -> Table:
    """Return SLAKE's questions of a split, in all languages."""
    path = source / f"{split}.json"
    if not path.is_file():
        raise not_found(source, path.name)
    return listed_records(SourceFile(path), _SLAKE_COLUMNS)


def slake_rows(document: Callable[[SourceRow], Document]) -> ReadRows:
    """Return what reads SLAKE's questions with their images; ``document`` is what a row becomes."""

    def read_rows(rows: Iterator[SourceRow], _split: str, source: Path, images: ImageStore) -> Iterator[Row]:
        with unpacked_or_archived(source, _SLAKE_FOLDERS, SLAKE_ARCHIVE, ("imgs/",)) as read:
            for row in rows:
                name = row.text("img_name")
                try:
                    image = images.add_bytes(read(name))
                except FileNotFoundError:
                    yield Row(row.place, None, cause=f"its image imgs/{name} is missing")
                except (UnreadableImage, SourceError):
                    yield Row(row.place, None, cause=f"its image imgs/{name} cannot be read")
                else:
                    yield shown_row(row.place, document(row), [image])

    return read_rows


def slake_question(row: SourceRow) -> Document:
    """Return a document of the ``OPEN_QUESTION`` schema."""
    return open_question(row, str(row.integer("qid")), question_type=row.optional_text("content_type"))


def _english(source: Path, split: str) -> Table:
    rows = slake_table(source, split).rows()
    english = [(row.place, row.values) for row in rows if row.text("q_lang") == "en"]
    return records_table(english, _SLAKE_COLUMNS)


_PARQUET = Recipe.of_splits(OPEN_QUESTION, _parquet, _with_images, "the Hub's parquet files data/test-*.parquet")
_SLAKE = Recipe.of_splits(OPEN_QUESTION, _english, slake_rows(slake_question), SLAKE_LAYOUT)
_PARQUET_FILES = ("data/test-*.parquet", "data/train-*.parquet")

RECIPES: Mapping[str, Recipe] = {
    "vqa_rad": _PARQUET.from_hub(dataset_info("multimedeval_vqa_rad"), _PARQUET_FILES),
    "path_vqa": _PARQUET.from_hub(dataset_info("multimedeval_path_vqa"), _PARQUET_FILES),
    "slake": _SLAKE.from_hub(dataset_info("multimedeval_slake"), ("test.json", "train.json", SLAKE_ARCHIVE)),
}
