"""MedXpertQA: questions with one to six images (MM) and without any (Text), from the Hub or from the authors' code.

Questions end with their options, in the published words, and are kept so. Zuo et al., arXiv 2501.18362.
"""

import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from medtasks.data.json_tables import json_lines
from medtasks.data.medevalkit.documents import kit_choice, kit_recipe, lettered
from medtasks.data.multimedeval.question_sets import keyed_options
from medtasks.data.preparation import Recipe
from medtasks.data.schema import KIT_CHOICE, Document
from medtasks.data.source_files import required_file, unpacked_or_archived
from medtasks.data.table_recipe import ReadFile, TableReader
from medtasks.data.tables import SourceRow, Table

_ARCHIVE = "images.zip"
_COLUMNS = ("id", "question", "options", "label", "medical_task", "body_system", "question_type")
_GROUPS = ("medical_task", "body_system", "question_type")


def _table(config: str, source: Path, split: str) -> Table:
    own = f"medxpertqa_{config.lower()}_input.jsonl"
    places = [f"{config}/{split}.jsonl", own, f"input/{own}", f"eval/data/medxpertqa/input/{own}"]
    columns = (*_COLUMNS, "images") if config == "MM" else _COLUMNS
    return json_lines(required_file(source, places, f"{places[0]} or {own}"), columns)


def _document(row: SourceRow, _split: str) -> Document:
    _, options = keyed_options(row, "letter", "content")
    groups = {column: row.optional_text(column) for column in _GROUPS}
    lines = lettered(options, "{}. {}")
    value: Any = row.values["label"]
    only = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(only, str):
        raise row.error("label is neither a letter nor a list of one")
    return kit_choice(row.text("id"), options, lines, only, question=row.text("question"), **groups)


def _images(row: SourceRow) -> Sequence[str]:
    """Return the files' names, a list of texts on the Hub and of objects where the authors publish them."""
    value: Any = row.values["images"]
    names: list[Any] = [item.get("image_path") if isinstance(item, dict) else item for item in value or ()]
    if not isinstance(value, list) or not all(isinstance(name, str) for name in names):
        raise row.error("images are neither a list of names nor one of objects with 'image_path'")
    return names


def _files(source: Path) -> AbstractContextManager[ReadFile]:
    return unpacked_or_archived(source, ["images"], _ARCHIVE, ("images/", ""))


_MM = TableReader(KIT_CHOICE, functools.partial(_table, "MM"), _document, _images, _files)
_TEXT = TableReader(KIT_CHOICE, functools.partial(_table, "Text"), _document)
_AUTHORS = "the Hub's {0}/test.jsonl or the authors' medxpertqa_{1}_input.jsonl"


RECIPES: Mapping[str, Recipe] = {
    "medxpertqa_mm": kit_recipe(
        *("medxpertqa_mm", _MM, f"{_AUTHORS.format('MM', 'mm')}, and {_ARCHIVE} or the folder images unpacked from it"),
        *("MM/test.jsonl", _ARCHIVE),
    ),
    "medxpertqa_text": kit_recipe("medxpertqa_text", _TEXT, _AUTHORS.format("Text", "text"), "Text/test.jsonl"),
}
