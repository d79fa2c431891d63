"""MMMU and MMMU-Pro, Health & Medicine: five of 30 subjects, as MedEvalKit evaluates them.

MMMU: subjects in alphabetical order, with choices and open questions. All images of a question are kept, also those
that MedEvalKit does not show. The answers of the test split are with the authors: whatever a file says, documents have
none. Yue et al., CVPR 2024.

MMMU-Pro: with up to ten or four options, or with all text in a screenshot (``vision``); rows in published order. Yue et
al., arXiv 2409.02813.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from medtasks.data import schema
from medtasks.data.prepare import source_files
from medtasks.data.prepare.source_recipe import SourceRecipe, TableReader, UnusableRow
from medtasks.data.prepare.table_files import ParquetTable, ReadValues, SourceRow, SourceTable
from medtasks.data.samples import letter
from medtasks.data.sources.medevalkit import kit_choice, kit_recipe, lettered

SUBJECTS = (
    "Basic_Medical_Science",
    "Clinical_Medicine",
    "Diagnostics_and_Laboratory_Medicine",
    "Pharmacy",
    "Public_Health",
)
_CLOSED, _OPEN = "multiple-choice", "open"
_MMMU_COLUMNS = ("id", "question", "options", "answer", "question_type", "image_1")
_PRO_COLUMNS = ("id", "options", "answer", "subject")
_MMMU_IMAGES = tuple(f"image_{number}" for number in range(1, 8))
_NAMED_IMAGE = re.compile(r"<image (\d)>")


def _literal_options(row: SourceRow) -> list[str]:
    """Return options that are the text of a Python list, which is parsed as a literal and never run."""
    try:
        options = ast.literal_eval(row.text("options").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise row.error("options is not the text of a list") from error
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options) or len(options) < 2:
        raise row.error("options is not the text of a list of at least two texts")
    return options


class _MMMU(TableReader):
    columns = schema.KIT_CHOICE
    embedded = _MMMU_IMAGES

    def table(self, source: Path, split: str) -> SourceTable:
        patterns = {subject: [f"{subject}/{split}-*.parquet", f"{subject}/{split}.parquet"] for subject in SUBJECTS}
        files = {subject: source_files.required_shards(source, places) for subject, places in patterns.items()}

        def records() -> Iterator[tuple[str, ReadValues]]:
            for subject, shards in files.items():
                for row in ParquetTable(shards, _MMMU_COLUMNS, _MMMU_IMAGES[1:]).rows():
                    yield f"{subject}/{row.place}", functools.partial(dict, row.values, subject=subject)

        return SourceTable(records)

    def document(self, row: SourceRow, split: str) -> schema.Document:
        kind = row.one_of("question_type", (_CLOSED, _OPEN), "question_type is none of")
        options = _literal_options(row) if kind == _CLOSED else []
        gold = row.text("answer") if split != "test" else None
        columns = {"question": row.text("question"), "question_type": kind, "subject": row.text("subject")}
        return kit_choice(row.text("id"), options, lettered(options, "({}) {}"), gold, **columns)

    def kit_recipe(self, split: str) -> SourceRecipe:
        layout = f"the Hub's parquet files {SUBJECTS[0]}/{split}-*.parquet, and so on for five subjects"
        return kit_recipe(self, layout, *(f"{subject}/{split}-*.parquet" for subject in SUBJECTS), split=split)


class _MMMUPro(TableReader):
    columns = schema.CHOICE

    def __init__(self, config: str) -> None:
        self.config, self.embedded = config, ("image",) if config == "vision" else _MMMU_IMAGES

    def table(self, source: Path, split: str) -> SourceTable:
        files = source_files.required_shards(source, [f"{self.config}/{split}-*.parquet"])
        subjects = ParquetTable(files, ("subject",)).rows()
        medical = {row.index for row in subjects if row.text("subject") in SUBJECTS}
        columns = ("image",) if self.config == "vision" else ("question", _MMMU_IMAGES[0])
        table = ParquetTable(files, (*_PRO_COLUMNS, *columns), _MMMU_IMAGES[1:])
        return SourceTable(lambda: ((row.place, functools.partial(dict, row.values)) for row in table.rows(medical)))

    def document(self, row: SourceRow, _split: str) -> schema.Document:
        options, question = _literal_options(row), row.optional_text("question") or ""
        named = max(map(int, _NAMED_IMAGE.findall("\n".join([question, *options]))), default=0)
        if "question" in row.values and any(row.values.get(image) is None for image in _MMMU_IMAGES[:named]):
            raise UnusableRow(f"its text names <image {named}> and it holds fewer images")
        letters = [letter(index) for index in range(len(options))]
        answer = letters.index(row.one_of("answer", letters, "answer is none of"))
        return schema.choice_document(row.text("id"), question, options, answer, subject=row.text("subject"))

    def own_recipe(self) -> SourceRecipe:
        files = f"{self.config}/test-*.parquet"
        return self.recipe(f"the Hub's parquet files {files}", ("test",), [files])


RECIPES = {
    "medevalkit_mmmu_med_val": _MMMU().kit_recipe("validation"),
    "medevalkit_mmmu_med_test": _MMMU().kit_recipe("test"),
    "mmmu_pro_med_standard_10": _MMMUPro("standard (10 options)").own_recipe(),
    "mmmu_pro_med_standard_4": _MMMUPro("standard (4 options)").own_recipe(),
    "mmmu_pro_med_vision": _MMMUPro("vision").own_recipe(),
}
