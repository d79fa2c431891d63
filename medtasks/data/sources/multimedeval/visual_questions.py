"""VQA-RAD and PathVQA, parquet files with the images in them; SLAKE, the English questions of ``test.json``.

Splits and order are those MultiMedEval evaluates (``multimedeval/vqa.py`` at d9ac283).
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from medtasks.data.prepare.preparation import Recipe, TableReader, UnusableRow
from medtasks.data.prepare.source_files import SourceFile, not_found, unpacked_or_archived
from medtasks.data.prepare.table_files import SourceRow, Table, listed_records, records_table, required_hub_table
from medtasks.data.schema import OPEN_QUESTION, Columns, Document, new_document

_SLAKE_COLUMNS = ("qid", "img_name", "question", "answer", "q_lang")
_SLAKE_FOLDERS = ("imgs", "imgs/imgs")  # unpacked beside the archive, or in a folder of its name
SLAKE_ARCHIVE = "imgs.zip"
SLAKE_LAYOUT = "test.json and imgs.zip, or the folder imgs unpacked from it"


def open_question(row: SourceRow, doc_id: str, **known: str | None) -> Document:
    """Return a document of the ``OPEN_QUESTION`` schema from a row with ``question`` and ``answer``."""
    return new_document(OPEN_QUESTION, doc_id, question=row.text("question"), answer=row.text("answer"), **known)


def _document(row: SourceRow, split: str) -> Document:
    if row.encoded("image") is None:
        raise UnusableRow("it has no image")
    return open_question(row, f"{split}/{row.index}")


def slake_reader(
    columns: Columns, document: Callable[[SourceRow, str], Document], language: str | None = None
) -> TableReader:
    """Return the reader of SLAKE's questions, in one language or all; ``document`` is what a row becomes."""

    def table(source: Path, split: str) -> Table:
        path = source / f"{split}.json"
        if not path.is_file():
            raise not_found(source, path.name)
        questions = listed_records(SourceFile(path), _SLAKE_COLUMNS)
        if language is None:
            return questions
        chosen = ((row.place, row.values) for row in questions.rows() if row.text("q_lang") == language)
        return records_table(chosen, _SLAKE_COLUMNS)

    return TableReader(
        columns,
        table,
        document,
        lambda row: [row.text("img_name")],
        lambda source: unpacked_or_archived(source, _SLAKE_FOLDERS, SLAKE_ARCHIVE, ("imgs/",)),
    )


def slake_question(row: SourceRow, _split: str = "") -> Document:
    """Return a document of the ``OPEN_QUESTION`` schema."""
    return open_question(row, str(row.integer("qid")), question_type=row.optional_text("content_type"))


_PARQUET = TableReader(
    OPEN_QUESTION,
    lambda source, split: required_hub_table(source, split, "default", ("image", "question", "answer")),
    _document,
    embedded=("image",),
).recipe("the Hub's parquet files data/test-*.parquet", hub_files=("data/test-*.parquet", "data/train-*.parquet"))
_SLAKE = slake_reader(OPEN_QUESTION, slake_question, "en")

RECIPES: Mapping[str, Recipe] = {
    "vqa_rad": _PARQUET,
    "path_vqa": _PARQUET,
    "slake": _SLAKE.recipe(SLAKE_LAYOUT, hub_files=("test.json", "train.json", SLAKE_ARCHIVE)),
}
