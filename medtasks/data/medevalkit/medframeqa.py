"""MedFrameQA: questions on two to five frames of a video, in parquet files with the frames in them.

Frames of one video are alike, so that a video is what errors are clustered by.
"""

from collections.abc import Mapping
from pathlib import Path

from medtasks.data.medevalkit.documents import kit_choice, kit_recipe, lettered
from medtasks.data.preparation import Recipe
from medtasks.data.schema import KIT_CHOICE, Document
from medtasks.data.source_files import find_shards, not_found
from medtasks.data.table_recipe import TableReader
from medtasks.data.tables import ParquetTable, SourceRow, Table

_FILES = "data/test-*.parquet"
_COLUMNS = ("question_id", "question", "options", "correct_answer", "video_id", "image_1", "image_2")
_FRAMES = tuple(f"image_{number}" for number in range(1, 6))
_GROUPS = ("modality", "system")


def _table(source: Path, _split: str) -> Table:
    files = find_shards(source, [_FILES, "test-*.parquet"])
    if not files:
        raise not_found(source, _FILES)
    return ParquetTable(files, _COLUMNS, (*_FRAMES[2:], *_GROUPS))


def _document(row: SourceRow, _split: str) -> Document:
    options = row.texts("options")
    if len(options) < 2:
        raise row.error("options are fewer than two")
    modality, system = (row.optional_text(column) for column in _GROUPS)
    groups = {"modality": modality, "body_system": system, "image_id": row.name("video_id")}
    lines, gold = lettered(options, "{}.{}"), row.text("correct_answer")
    return kit_choice(row.name("question_id"), options, lines, gold, question=row.text("question"), **groups)


_READER = TableReader(KIT_CHOICE, _table, _document, embedded=_FRAMES)

RECIPES: Mapping[str, Recipe] = {
    "medframeqa": kit_recipe("medframeqa", _READER, f"the Hub's parquet files {_FILES}", _FILES)
}
