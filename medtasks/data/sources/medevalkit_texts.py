"""MedEvalKit's question sets without images: a table that says where their columns are.

Repositories and splits are those of the classes in ``utils`` of MedEvalKit at 9b12e3b. MedMCQA is not here: the kit
asks the file that MultiMedEval asks.

- MMLU-Med: the test questions of nine subjects, from the file of all subjects. Hendrycks et al., ICLR 2021.
- PubMedQA: the labelled test questions, with the abstract. Jin et al., EMNLP 2019.
- MedQA-USMLE: the English test questions with four options. Jin et al., arXiv 2009.13081.
- Medbullets: the same questions with four and with five options, from two repositories. Chen et al., arXiv 2402.18060.
- SuperGPQA-Med: the questions of the discipline Medicine. Du et al., arXiv 2502.14739.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from medtasks.data.prepare.source_files import required_file, required_shards
from medtasks.data.prepare.source_recipe import Recipes, SourceRecipe
from medtasks.data.prepare.source_tables import (
    ParquetTable,
    SourceRow,
    SourceTable,
    TableReader,
    UnusableRow,
    json_lines,
)
from medtasks.data.samples import first_letters, letter
from medtasks.data.schema import KIT_TEXT, NewDocument
from medtasks.data.sources.medevalkit import kit_choice, kit_recipe, letter_options
from medtasks.data.sources.multimedeval.question_sets import answer_index

_COLLEGE = (
    "anatomy",
    "clinical_knowledge",
    "college_biology",
    "college_medicine",
    "medical_genetics",
)
_SUBJECTS = (*_COLLEGE, "professional_medicine", "nutrition", "virology", "high_school_biology")


@dataclass(frozen=True)
class TextSet(TableReader):
    """File, columns and rows of one set."""

    file: str  # pattern of the Hub's file, Parquet or JSON Lines
    question: str = "question"
    # A column with a list or an object by letters, or a column for each.
    options: str | Sequence[str] = "options"
    gold: str = "answer_idx"  # a letter
    gold_is_index: bool = False  # from 0, in place of a letter
    option_line: str = "{}.{}"  # form in which the kit compares an option
    context: str | None = None  # column with the paragraphs of an abstract
    doc_id: str | None = None  # column with the id of a row, by default its position
    # Columns of the table by those of documents.
    groups: Mapping[str, str] = field(default_factory=dict)
    flags: Sequence[str] = ()  # faults of every row
    inside: str | None = None  # column with an object that holds all others
    # A column, and its values in the rows that the kit asks.
    only: tuple[str, Collection[str]] | None = None

    columns = KIT_TEXT

    def table(self, source: Path, _split: str) -> SourceTable:
        """Find the file in a source."""
        columns = [self.inside] if self.inside else self._needed_columns()
        patterns = [self.file, Path(self.file).name]
        if self.file.endswith(".jsonl"):
            return json_lines(required_file(source, patterns), columns)
        return ParquetTable(required_shards(source, patterns), columns)

    def _needed_columns(self) -> list[str]:
        options = [self.options] if isinstance(self.options, str) else self.options
        others = [self.context, self.doc_id, self.only and self.only[0], *self.groups.values()]
        return list(dict.fromkeys([self.question, *options, self.gold, *filter(None, others)]))

    def document(self, row: SourceRow, split: str) -> NewDocument:
        """Return a document of the ``KIT_TEXT`` schema.

        Raises:
            UnusableRow: The row is none that the kit asks, or has no two options in order.
        """
        if self.inside:
            row = row.inner(self.inside, self._needed_columns())
        if self.only:
            column, values = self.only
            if row.text(column) not in values:
                raise UnusableRow(f"its {column} is another one", outside=True)
        document = {**self._question(row, split), "context": None, "difficulty": None}
        document |= {ours: row.optional_text(theirs) for ours, theirs in self.groups.items()}
        if self.context:
            document["context"] = "\n".join(row.texts(self.context))
        return document

    def _question(self, row: SourceRow, split: str) -> NewDocument:
        """Return the columns of the ``KIT_CHOICE`` schema.

        Raises:
            UnusableRow: It has fewer than two options, or one after a null one.
        """
        texts = self._option_texts(row)
        options = [text for text in texts if text is not None]
        if len(options) < 2 or None in texts[: len(options)]:
            raise UnusableRow("it has fewer than two options, or one after an empty one")
        doc_id = row.text(self.doc_id) if self.doc_id else f"{split}/{row.index}"
        lines = letter_options(map(str, texts), self.option_line)
        if not self.gold_is_index:
            gold = row.text(self.gold)
        else:
            index = answer_index(row, self.gold, len(options))
            gold = letter(index)
        flags = [*self.flags]
        if None in texts:
            flags.append("null_option")
        return kit_choice(
            doc_id, options, lines, gold, question=row.text(self.question), flags=flags
        )

    def _option_texts(self, row: SourceRow) -> list[str | None]:
        """Return the options as published, None for one that is null."""
        if not isinstance(self.options, str):
            return [row.optional_text(column) for column in self.options]
        if isinstance(row.values[self.options], list):
            return [*row.texts(self.options)]
        by_letter = row.inner(self.options)
        if list(by_letter.values) != first_letters(len(by_letter.values)):
            raise row.error("the options' keys are not A, B, ... in order")
        return [by_letter.optional_text(name) for name in by_letter.values]

    def kit_recipe(self) -> SourceRecipe:
        """Return the recipe of the set."""
        return kit_recipe(self, f"the Hub's {self.file}", self.file)


_SETS: Mapping[str, TextSet] = {
    "mmlu_med": TextSet(
        "all/test-*.parquet",
        options="choices",
        gold="answer",
        gold_is_index=True,
        option_line="{1}",  # the kit compares these without letters
        groups={"subject": "subject"},
        flags=["no_context"],
        only=("subject", _SUBJECTS),
    ),
    "pubmedqa": TextSet(
        "data/test-*.parquet",
        question="Question",
        options="Options",
        gold="Correct Option",
        context="Context",
        inside="data",
    ),
    "medqa_usmle": TextSet("phrases_no_exclude_test.jsonl", option_line="{}. {}"),
    "medbullets_op4": TextSet("data/train-*.parquet"),
    "medbullets_op5": TextSet(
        "data/train-*.parquet", options=("opa", "opb", "opc", "opd", "ope")
    ),
    "supergpqa_med": TextSet(
        "SuperGPQA-all.jsonl",
        gold="answer_letter",
        doc_id="uuid",
        groups={"subject": "field", "difficulty": "difficulty"},
        only=("discipline", ("Medicine",)),
    ),
}
RECIPES: Recipes = {
    f"medevalkit_{name}": text_set.kit_recipe() for name, text_set in _SETS.items()
}
