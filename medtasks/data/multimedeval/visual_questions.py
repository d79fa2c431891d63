"""VQA-RAD and PathVQA, parquet files with the images in them; SLAKE, the English questions of ``test.json``.

Splits and order are those MultiMedEval evaluates (``multimedeval/vqa.py`` at d9ac283).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import dataset_info
from medtasks.data.image_store import ImageStore
from medtasks.data.preparation import Recipe, Row, shown_row
from medtasks.data.schema import OPEN_QUESTION, Document, new_document
from medtasks.data.source_files import SourceFile, file_reader, not_found
from medtasks.data.strict_pillow import UnreadableImage
from medtasks.data.tables import SourceRow, Table, listed_records, records_table, required_hub_table
from medtasks.errors import SourceError

_SLAKE_COLUMNS = ("qid", "img_name", "question", "answer", "q_lang")
_SLAKE_FOLDERS = ("imgs", "imgs/imgs")  # unpacked beside the archive, or in a folder of its name
_SLAKE_ARCHIVE = "imgs.zip"


def open_question(row: SourceRow, doc_id: str, **known: str | None) -> Document:
    """Return a document of the ``OPEN_QUESTION`` schema from a row with ``question`` and ``answer``."""
    return new_document(OPEN_QUESTION, doc_id, question=row.text("question"), answer=row.text("answer"), **known)


def _parquet(source: Path, split: str) -> Table:
    return required_hub_table(source, split, "default", ("image", "question", "answer"))


def _with_images(rows: Iterator[SourceRow], split: str, _source: Path, images: ImageStore) -> Iterator[Row]:
    for row in rows:
        try:
            image = images.add_bytes(_encoded(row))
            yield shown_row(row.place, open_question(row, f"{split}/{row.index}"), [image])
        except UnreadableImage:
            yield Row(row.place, None, cause="its image cannot be read")


def _encoded(row: SourceRow) -> bytes:
    """Return the image file in the row; none at all is an unreadable one."""
    value: Any = row.values["image"]
    data = value.get("bytes") if isinstance(value, dict) else value
    if data is not None and not isinstance(data, bytes):
        raise row.error("image holds no image file")
    return data or b""


def _english(source: Path, split: str) -> Table:
    path = source / f"{split}.json"
    if not path.is_file():
        raise not_found(source, path.name)
    everything = listed_records(SourceFile(path), _SLAKE_COLUMNS)
    english = [(row.place, row.values) for row in everything.rows() if row.text("q_lang") == "en"]
    return records_table(english, _SLAKE_COLUMNS)


def _slake(rows: Iterator[SourceRow], _split: str, source: Path, images: ImageStore) -> Iterator[Row]:
    folders = [source / folder for folder in _SLAKE_FOLDERS if (source / folder).is_dir()]
    archives = [source / _SLAKE_ARCHIVE] if (source / _SLAKE_ARCHIVE).is_file() else []
    if not folders and not archives:
        raise not_found(source, f"{_SLAKE_ARCHIVE} and no folder imgs")
    with file_reader(folders, archives, ("imgs/",)) as read:
        for row in rows:
            name = row.text("img_name")
            try:
                image = images.add_bytes(read(name))
            except FileNotFoundError:
                yield Row(row.place, None, cause=f"its image imgs/{name} is missing")
            except (UnreadableImage, SourceError):
                yield Row(row.place, None, cause=f"its image imgs/{name} cannot be read")
            else:
                known = open_question(row, str(row.integer("qid")), question_type=row.optional_text("content_type"))
                yield shown_row(row.place, known, [image])


_PARQUET = Recipe.of_splits(OPEN_QUESTION, _parquet, _with_images, "the Hub's parquet files data/test-*.parquet")
_SLAKE = Recipe.of_splits(
    OPEN_QUESTION, _english, _slake, "test.json and imgs.zip, or the folder imgs unpacked from it"
)
_PARQUET_FILES = ("data/test-*.parquet", "data/train-*.parquet")

RECIPES: Mapping[str, Recipe] = {
    "vqa_rad": _PARQUET.from_hub(dataset_info("multimedeval_vqa_rad"), _PARQUET_FILES),
    "path_vqa": _PARQUET.from_hub(dataset_info("multimedeval_path_vqa"), _PARQUET_FILES),
    "slake": _SLAKE.from_hub(dataset_info("multimedeval_slake"), ("test.json", "train.json", _SLAKE_ARCHIVE)),
}
