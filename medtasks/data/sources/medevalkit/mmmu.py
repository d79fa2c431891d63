"""MMMU and MMMU-Pro, Health & Medicine: five of 30 subjects.

MMMU: subjects in alphabetical order, with choices and open questions. All images of a question are kept, also those
that MedEvalKit does not show. The answers of the test split are with the authors: whatever a file says, documents have
none. Yue et al., CVPR 2024.

MMMU-Pro: with up to ten or four options, or with all text in a screenshot (``vision``); rows in published order. Yue et
al., arXiv 2409.02813.

Options are the text of a Python list, which is parsed as a literal and never run.
"""

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from medtasks.data.prepare.source_files import required_shards
from medtasks.data.prepare.source_recipe import SourceRecipe, TableReader, UnusableRow
from medtasks.data.prepare.table_files import ParquetTable, ReadValues, SourceRow, SourceTable
from medtasks.data.samples import letter
from medtasks.data.schema import CHOICE, KIT_CHOICE, Document, choice_document
from medtasks.data.sources.medevalkit.kit_sets import kit_choice, kit_recipe, lettered

SUBJECTS = (
    "Basic_Medical_Science",
    "Clinical_Medicine",
    "Diagnostics_and_Laboratory_Medicine",
    "Pharmacy",
    "Public_Health",
)
_CLOSED, _OPEN = "multiple-choice", "open"
_COLUMNS = ("id", "question", "options", "answer", "question_type", "image_1")
_PRO_COLUMNS = ("id", "options", "answer", "subject")
_IMAGES = tuple(f"image_{number}" for number in range(1, 8))
_NAMED_IMAGE = re.compile(r"<image (\d)>")


def _literal_options(row: SourceRow) -> list[str]:
    try:
        options = ast.literal_eval(row.text("options").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise row.error("options is not the text of a list") from error
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options) or len(options) < 2:
        raise row.error("options is not the text of a list of at least two texts")
    return options


def _table(source: Path, split: str) -> SourceTable:
    patterns = {subject: [f"{subject}/{split}-*.parquet", f"{subject}/{split}.parquet"] for subject in SUBJECTS}
    files = {subject: required_shards(source, places) for subject, places in patterns.items()}

    def records() -> Iterator[tuple[str, ReadValues]]:
        for subject, shards in files.items():
            for row in ParquetTable(shards, _COLUMNS, _IMAGES[1:]).rows():
                yield f"{subject}/{row.place}", functools.partial(dict, row.values, subject=subject)

    return SourceTable(records)


def _document(row: SourceRow, split: str) -> Document:
    kind = row.one_of("question_type", (_CLOSED, _OPEN), "question_type is none of")
    options = _literal_options(row) if kind == _CLOSED else []
    gold = row.text("answer") if split != "test" else None
    known = {"question": row.text("question"), "question_type": kind, "subject": row.text("subject")}
    return kit_choice(row.text("id"), options, lettered(options, "({}) {}"), gold, **known)


def _pro_table(config: str, source: Path, split: str) -> SourceTable:
    files = required_shards(source, [f"{config}/{split}-*.parquet"])
    subjects = ParquetTable(files, ("subject",)).rows()
    wanted = {row.index for row in subjects if row.text("subject") in SUBJECTS}
    own = ("image",) if config == "vision" else ("question", _IMAGES[0])
    table = ParquetTable(files, (*_PRO_COLUMNS, *own), _IMAGES[1:])
    return SourceTable(lambda: ((row.place, functools.partial(dict, row.values)) for row in table.rows(wanted)))


def _pro_document(row: SourceRow, _split: str) -> Document:
    options, question = _literal_options(row), row.optional_text("question") or ""
    named = max(map(int, _NAMED_IMAGE.findall("\n".join([question, *options]))), default=0)
    if "question" in row.values and any(row.values.get(image) is None for image in _IMAGES[:named]):
        raise UnusableRow(f"its text names <image {named}> and it holds fewer images")
    letters = [letter(index) for index in range(len(options))]
    answer = letters.index(row.one_of("answer", letters, "answer is none of"))
    return choice_document(row.text("id"), question, options, answer, subject=row.text("subject"))


def _recipe(split: str) -> SourceRecipe:
    layout = f"the Hub's parquet files {SUBJECTS[0]}/{split}-*.parquet, and so on for five subjects"
    reader = TableReader(KIT_CHOICE, _table, _document, embedded=_IMAGES)
    return kit_recipe(reader, layout, *(f"{subject}/{split}-*.parquet" for subject in SUBJECTS), split=split)


def _pro_recipe(config: str) -> SourceRecipe:
    images = ("image",) if config == "vision" else _IMAGES
    reader = TableReader(CHOICE, functools.partial(_pro_table, config), _pro_document, embedded=images)
    files = f"{config}/test-*.parquet"
    return reader.recipe(f"the Hub's parquet files {files}", ("test",), [files])


RECIPES: Mapping[str, SourceRecipe] = {
    "mmmu_med_val": _recipe("validation"),
    "mmmu_med_test": _recipe("test"),
    "mmmu_pro_med_standard_10": _pro_recipe("standard (10 options)"),
    "mmmu_pro_med_standard_4": _pro_recipe("standard (4 options)"),
    "mmmu_pro_med_vision": _pro_recipe("vision"),
}
