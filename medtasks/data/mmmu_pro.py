"""MMMU-Pro Health & Medicine: with up to ten or four options, or with all text in a screenshot (``vision``).

The published files hold 30 subjects; five are kept, in published order. Yue et al., arXiv 2409.02813.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from medtasks.data.catalogue import dataset_info
from medtasks.data.medevalkit.mmmu import SUBJECTS, literal_options
from medtasks.data.preparation import Recipe
from medtasks.data.samples import letter
from medtasks.data.schema import CHOICE, Document, choice_document
from medtasks.data.source_files import find_shards, not_found
from medtasks.data.table_recipe import TableReader, UnusableRow
from medtasks.data.tables import ParquetTable, ReadValues, SourceRow, Table

_COLUMNS = ("id", "options", "answer", "subject")
_IMAGES = tuple(f"image_{number}" for number in range(1, 8))
_NAMED_IMAGE = re.compile(r"<image (\d)>")


def _table(config: str, source: Path, split: str) -> Table:
    files = find_shards(source, [f"{config}/{split}-*.parquet"])
    if not files:
        raise not_found(source, f"{config}/{split}-*.parquet")
    subjects = ParquetTable(files, ("subject",)).rows()
    wanted = {row.index for row in subjects if row.text("subject") in SUBJECTS}
    own = ("image",) if config == "vision" else ("question", _IMAGES[0])
    table = ParquetTable(files, (*_COLUMNS, *own), _IMAGES[1:])

    def medical() -> Iterator[tuple[str, ReadValues]]:
        return ((row.place, functools.partial(dict, row.values)) for row in table.rows(wanted))

    return Table(medical)


def _document(row: SourceRow, _split: str) -> Document:
    options, question = literal_options(row), row.optional_text("question") or ""
    named = max(map(int, _NAMED_IMAGE.findall("\n".join([question, *options]))), default=0)
    if "question" in row.values and any(row.values.get(image) is None for image in _IMAGES[:named]):
        raise UnusableRow(f"its text names <image {named}> and it holds fewer images")
    letters = [letter(index) for index in range(len(options))]
    answer = letters.index(row.one_of("answer", letters, "answer is none of"))
    return choice_document(row.text("id"), question, options, answer, subject=row.text("subject"))


def _recipe(name: str, config: str) -> Recipe:
    images = ("image",) if config == "vision" else _IMAGES
    reader = TableReader(CHOICE, functools.partial(_table, config), _document, embedded=images)
    files = f"{config}/test-*.parquet"
    return reader.recipe(f"the Hub's parquet files {files}", ("test",)).from_hub(dataset_info(name), [files])


RECIPES: Mapping[str, Recipe] = {
    name: _recipe(name, config)
    for name, config in (
        ("mmmu_pro_med_standard_10", "standard (10 options)"),
        ("mmmu_pro_med_standard_4", "standard (4 options)"),
        ("mmmu_pro_med_vision", "vision"),
    )
}
