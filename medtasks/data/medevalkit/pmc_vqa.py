"""PMC-VQA: ``test_2.csv`` with images that are no compound ones, and the 2,000 questions of ``test_clean.csv``.

Cells are kept as they are, blanks and line breaks included, of which MedEvalKit reads every kind as a plain one. Zhang
et al., arXiv 2305.10415.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from medtasks.data.medevalkit.documents import OTHER_ANSWER_TEXT, kit_choice, kit_recipe
from medtasks.data.option_lines import without_letter
from medtasks.data.preparation import Recipe
from medtasks.data.samples import option_index
from medtasks.data.schema import KIT_CHOICE, Document
from medtasks.data.source_files import required_file, unpacked_or_archived
from medtasks.data.table_recipe import ReadFile, TableReader
from medtasks.data.tables import SourceRow, Table, csv_table

_CHOICES = ("Choice A", "Choice B", "Choice C", "Choice D")


@dataclass(frozen=True)
class _Files:
    """The files of one test set."""

    table: str
    gold: str  # column of the right letter
    folder: str
    archive: str
    text: str | None = None  # column of the right text

    def questions(self, source: Path, _split: str) -> Table:
        columns = ("Figure_path", "Question", *_CHOICES, self.gold, *([self.text] if self.text else []))
        return csv_table(required_file(source, [self.table]), columns, missing=None)

    def document(self, row: SourceRow, _split: str) -> Document:
        lines = [_cell(row, column) for column in _CHOICES]
        options = [without_letter(line) for line in lines]
        doc_id = f"{self.table.removesuffix('.csv')}/{row.index}"
        document = kit_choice(doc_id, options, lines, row.text(self.gold), question=_cell(row, "Question"))
        if self.text and document["answer"] is not None:
            differs = row.text(self.text).strip() != options[option_index(document["answer"])]
            document["flags"] += [OTHER_ANSWER_TEXT] if differs else []
        return document

    def images(self, source: Path) -> AbstractContextManager[ReadFile]:
        return unpacked_or_archived(source, [self.folder], self.archive, (f"{self.folder}/", ""))

    def recipe(self, name: str) -> Recipe:
        reader = TableReader(
            KIT_CHOICE, self.questions, self.document, lambda row: [row.text("Figure_path")], self.images
        )
        layout = f"{self.table} and {self.archive}, or the folder {self.folder} unpacked from it"
        return kit_recipe(name, reader, layout, self.table, self.archive)


def _cell(row: SourceRow, column: str) -> str:
    return row.text(column).replace("\r\n", "\n").replace("\r", "\n")


RECIPES: Mapping[str, Recipe] = {
    "pmc_vqa": _Files("test_2.csv", "Answer", "figures", "images_2.zip").recipe("pmc_vqa"),
    "pmc_vqa_clean": _Files("test_clean.csv", "Answer_label", "images", "images.zip", text="Answer").recipe(
        "pmc_vqa_clean"
    ),
}
