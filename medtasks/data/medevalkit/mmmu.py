"""MMMU Health & Medicine: five subjects in alphabetical order, with choices and open questions.

Options are the text of a Python list, which is parsed as a literal and never run. All images of a question are kept,
also those that MedEvalKit does not show. The answers of the test split are with the authors: whatever a file says,
documents have none. Yue et al., CVPR 2024.
"""

import ast
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

from medtasks.data.catalogue import dataset_info
from medtasks.data.image_store import ImageStore
from medtasks.data.medevalkit.documents import kit_choice, lettered, remarks
from medtasks.data.preparation import Recipe, Row
from medtasks.data.schema import KIT_CHOICE, Document
from medtasks.data.source_files import find_shards, not_found
from medtasks.data.table_recipe import TableReader
from medtasks.data.tables import ParquetTable, SourceRow, Table

SUBJECTS = (
    "Basic_Medical_Science",
    "Clinical_Medicine",
    "Diagnostics_and_Laboratory_Medicine",
    "Pharmacy",
    "Public_Health",
)
CHOICE, OPEN = "multiple-choice", "open"
_COLUMNS = ("id", "question", "options", "answer", "question_type", "image_1")
_IMAGES = tuple(f"image_{number}" for number in range(1, 8))
_NO_LIST = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


def _table(subject: str, source: Path, split: str) -> Table:
    files = find_shards(source, [f"{subject}/{split}-*.parquet", f"{subject}/{split}.parquet"])
    if not files:
        raise not_found(source, f"{subject}/{split}-*.parquet")
    return ParquetTable(files, _COLUMNS, _IMAGES[1:])


def _document(subject: str, row: SourceRow, split: str) -> Document:
    kind = row.one_of("question_type", (CHOICE, OPEN), "question_type is none of")
    options = literal_options(row) if kind == CHOICE else []
    gold = row.text("answer") if split != "test" else None
    known = {"question": row.text("question"), "question_type": kind, "subject": subject}
    return kit_choice(row.text("id"), options, lettered(options, "({}) {}"), gold, **known)


def literal_options(row: SourceRow) -> list[str]:
    """Parse the options of a question, a Python list as text."""
    try:
        options = ast.literal_eval(row.text("options").strip())
    except _NO_LIST as error:
        raise row.error("options is not the text of a list") from error
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options) or len(options) < 2:
        raise row.error("options is not the text of a list of at least two texts")
    return options


def _read(split: str, source: Path, images: ImageStore) -> Iterator[Row]:
    tables = {subject: _table(subject, source, split) for subject in SUBJECTS}
    for subject, table in tables.items():
        reader = TableReader(
            KIT_CHOICE, functools.partial(_table, subject), functools.partial(_document, subject), embedded=_IMAGES
        )
        # Every subject has files of the same names.
        rows = (dataclasses.replace(row, place=f"{subject}/{row.place}") for row in table.rows())
        yield from reader.rows(rows, split, source, images)


def _recipe(name: str, split: str) -> Recipe:
    layout = f"the Hub's parquet files {SUBJECTS[0]}/{split}-*.parquet, and so on for five subjects"
    recipe = Recipe(KIT_CHOICE, functools.partial(_read, split), layout, remarks=remarks)
    return recipe.from_hub(dataset_info(f"medevalkit_{name}"), [f"{subject}/{split}-*.parquet" for subject in SUBJECTS])


RECIPES: Mapping[str, Recipe] = {
    "mmmu_med_val": _recipe("mmmu_med_val", "validation"),
    "mmmu_med_test": _recipe("mmmu_med_test", "test"),
}
