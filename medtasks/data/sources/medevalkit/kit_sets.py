"""MedEvalKit's sets of one table each: PMC-VQA, MedXpertQA, MedFrameQA, and SLAKE in its two languages.

- PMC-VQA: ``test_2.csv`` with images that are no compound ones, and the 2,000 questions of ``test_clean.csv``. Cells
  are kept as they are but for line breaks, which MedEvalKit reads as plain ones. Zhang et al., arXiv 2305.10415.
- MedXpertQA: questions with one to six images (MM) and without any (Text), from the Hub or from the authors' code.
  Questions end with their options, in the published words, and are kept so. Zuo et al., arXiv 2501.18362.
- MedFrameQA: questions on two to five frames of a video. Frames of one video are alike, so the video is the cluster.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.data.prepare.preparation import Recipe, TableReader
from medtasks.data.prepare.source_files import required_file, required_shards, unpacked_or_archived
from medtasks.data.prepare.table_files import ParquetTable, SourceRow, Table, csv_table, json_lines
from medtasks.data.samples import option_index
from medtasks.data.schema import KIT_CHOICE, KIT_QUESTION, Document
from medtasks.data.sources.medevalkit.kit_documents import OTHER_ANSWER_TEXT, kit_choice, kit_recipe, lettered
from medtasks.data.sources.multimedeval.question_sets import keyed_options
from medtasks.data.sources.multimedeval.visual_questions import (
    SLAKE_ARCHIVE,
    SLAKE_LAYOUT,
    slake_question,
    slake_reader,
)

_CHOICES = ("Choice A", "Choice B", "Choice C", "Choice D")
_LETTER = re.compile(r"\s*[A-D]\s*:")
_EXPERT_GROUPS = ("medical_task", "body_system", "question_type")
_EXPERT_COLUMNS = ("id", "question", "options", "label", *_EXPERT_GROUPS)
_EXPERT_ARCHIVE = "images.zip"
_EXPERT_LAYOUT = "the Hub's {0}/test.jsonl or the authors' medxpertqa_{1}_input.jsonl"
_FRAME_FILES = "data/test-*.parquet"
_FRAME_COLUMNS = ("question_id", "question", "options", "correct_answer", "video_id", "image_1", "image_2")
_FRAMES = tuple(f"image_{number}" for number in range(1, 6))


def without_letter(cell: str) -> str:
    """Return an option of PMC-VQA without its letter, which may be that of another option, and without outer blanks.

    Example:
        >>> without_letter(" C: T: thyroid gland "), without_letter("None")
        ('T: thyroid gland', 'None')
    """
    return _LETTER.sub("", cell, count=1).strip() if _LETTER.match(cell) else cell.strip()


def _pmc_vqa(table: str, gold: str, folder: str, archive: str, text: str | None = None) -> Recipe:
    """Return the recipe of a test set; ``gold`` is the column of the right letter, ``text`` that of the right text."""
    columns = ("Figure_path", "Question", *_CHOICES, gold, *([text] if text else []))

    def document(row: SourceRow, _split: str) -> Document:
        cells = (row.text(column).replace("\r\n", "\n").replace("\r", "\n") for column in (*_CHOICES, "Question"))
        *lines, question = cells
        options = [without_letter(line) for line in lines]
        doc_id = f"{table.removesuffix('.csv')}/{row.index}"
        made = kit_choice(doc_id, options, lines, row.text(gold), question=question)
        if text and made["answer"] is not None and row.text(text).strip() != options[option_index(made["answer"])]:
            made["flags"].append(OTHER_ANSWER_TEXT)
        return made

    reader = TableReader(
        KIT_CHOICE,
        lambda source, _split: csv_table(required_file(source, [table]), columns, missing=None),
        document,
        lambda row: [row.text("Figure_path")],
        lambda source: unpacked_or_archived(source, [folder], archive, (f"{folder}/", "")),
    )
    return kit_recipe(reader, f"{table} and {archive}, or the folder {folder} unpacked from it", table, archive)


def _expert_table(config: str, source: Path, split: str) -> Table:
    own = f"medxpertqa_{config.lower()}_input.jsonl"
    places = [f"{config}/{split}.jsonl", own, f"input/{own}", f"eval/data/medxpertqa/input/{own}"]
    columns = (*_EXPERT_COLUMNS, "images") if config == "MM" else _EXPERT_COLUMNS
    return json_lines(required_file(source, places, f"{places[0]} or {own}"), columns)


def _expert_document(row: SourceRow, _split: str) -> Document:
    _, options = keyed_options(row, "letter", "content")
    groups = {column: row.optional_text(column) for column in _EXPERT_GROUPS}
    label: Any = row.values["label"]
    gold = label[0] if isinstance(label, list) and len(label) == 1 else label
    if not isinstance(gold, str):
        raise row.error("label is neither a letter nor a list of one")
    lines = lettered(options, "{}. {}")
    return kit_choice(row.text("id"), options, lines, gold, question=row.text("question"), **groups)


def _expert_images(row: SourceRow) -> Sequence[str]:
    """Return the files' names, a list of texts on the Hub and of objects where the authors publish them."""
    images: Any = row.values["images"]
    names: list[Any] = [item.get("image_path") if isinstance(item, dict) else item for item in images or ()]
    if not isinstance(images, list) or not all(isinstance(name, str) for name in names):
        raise row.error("images are neither a list of names nor one of objects with 'image_path'")
    return names


def _frame_table(source: Path, _split: str) -> Table:
    files = required_shards(source, [_FRAME_FILES, "test-*.parquet"])
    return ParquetTable(files, _FRAME_COLUMNS, (*_FRAMES[2:], "modality", "system"))


def _frame_document(row: SourceRow, _split: str) -> Document:
    options = row.texts("options")
    if len(options) < 2:
        raise row.error("options are fewer than two")
    modality, system = row.optional_text("modality"), row.optional_text("system")
    groups = {"modality": modality, "body_system": system, "image_id": row.name("video_id")}
    lines, gold = lettered(options, "{}.{}"), row.text("correct_answer")
    return kit_choice(row.name("question_id"), options, lines, gold, question=row.text("question"), **groups)


def _slake_document(row: SourceRow, _split: str) -> Document:
    if "answer_type" not in row.values:
        raise row.error("answer_type is missing")
    groups = {column: row.optional_text(column) for column in ("modality", "location")}
    kind = row.one_of("answer_type", ("OPEN", "CLOSED"), "answer_type is none of")
    return {**slake_question(row), "answer_type": kind, "language": row.text("q_lang"), **groups}


_MM = TableReader(
    KIT_CHOICE,
    functools.partial(_expert_table, "MM"),
    _expert_document,
    _expert_images,
    lambda source: unpacked_or_archived(source, ["images"], _EXPERT_ARCHIVE, ("images/", "")),
)
_TEXT = TableReader(KIT_CHOICE, functools.partial(_expert_table, "Text"), _expert_document)
_MM_LAYOUT = f"{_EXPERT_LAYOUT.format('MM', 'mm')}, and {_EXPERT_ARCHIVE} or the folder images unpacked from it"
_FRAME_READER = TableReader(KIT_CHOICE, _frame_table, _frame_document, embedded=_FRAMES)
_SLAKE = slake_reader(KIT_QUESTION, _slake_document)

RECIPES: Mapping[str, Recipe] = {
    "pmc_vqa": _pmc_vqa("test_2.csv", "Answer", "figures", "images_2.zip"),
    "pmc_vqa_clean": _pmc_vqa("test_clean.csv", "Answer_label", "images", "images.zip", "Answer"),
    "medxpertqa_mm": kit_recipe(_MM, _MM_LAYOUT, "MM/test.jsonl", _EXPERT_ARCHIVE),
    "medxpertqa_text": kit_recipe(_TEXT, _EXPERT_LAYOUT.format("Text", "text"), "Text/test.jsonl"),
    "medframeqa": kit_recipe(_FRAME_READER, f"the Hub's parquet files {_FRAME_FILES}", _FRAME_FILES),
    "slake": _SLAKE.recipe(SLAKE_LAYOUT, ("test",), ("test.json", SLAKE_ARCHIVE)),
}
