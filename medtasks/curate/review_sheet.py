"""A review as a spreadsheet, for those who prefer one: a row per draft, with its images, to be filled in.

Texts are texts, whatever they begin with: no program takes one for a formula. What a hidden column holds, the version
that a row was written from, tells later what was changed in the sheet and what elsewhere.
:mod:`medtasks.curate.review_sheet_reading` reads it back.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpyxl import Workbook
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
from openpyxl.drawing.image import Image
from openpyxl.styles import Alignment, Font
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.worksheet import Worksheet
from tqdm import tqdm

from medtasks.curate.drafts import Draft
from medtasks.curate.judging import HALLUCINATIONS, letters
from medtasks.curate.review_images import ReviewImages
from medtasks.curate.reviewer_file import ReviewerFile
from medtasks.curate.reviews import ASPECTS, HIGHEST, LOWEST, PASSING, ItemReview
from medtasks.data.home import written_whole
from medtasks.data.strict_pillow import UnreadableImage
from medtasks.errors import MedTasksError

_SIDE = 260  # pixels of an image
_PIXELS_PER_CHARACTER, _PIXELS_PER_POINT = 7, 4 / 3
_LONGEST = 32_767  # characters that a cell can hold
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
ITEM, TEXT, DRAFT, VERSION = "draft", "text", "digest", "version"  # titles of columns
REVIEW, FACTS = "review", "medtasks"  # names of sheets
_NO_XML = re.compile(ILLEGAL_CHARACTERS_RE.pattern + "|[\ufffe\uffff]")  # the last two openpyxl lets pass
_YES_NO = {True: "yes", False: "no", None: None}
_HELP = (
    "One row is one draft. Edit question, options, answers, categories and note as you like; leave the other cells.",
    "correctness: valid for each image, answerable from it alone, and the answer is right. What is not has score 1.",
    "relevance: it matters to clinical practice or medical research.",
    "language: medical terms are proper and the wording is precise.",
    f"score: {LOWEST} to {HIGHEST} for each image; empty aspects beside it count as met. From {PASSING} on a "
    f"question stays in the benchmark, a pair only if both do.",
    "Captions and reports are in the folded columns 'text'; open them with the + above.",
)


@dataclass(frozen=True)
class SheetColumn:
    """What one column holds."""

    title: str
    field: str = ""  # of the review, as in medtasks.curate.judging; empty for what is only shown
    width: int = 14  # characters
    choices: str = ""  # of which a cell takes one


def write_sheet(file: ReviewerFile, path: Path) -> None:
    """Write what a reviewer said and did not say yet; a MedTasksError for a file that exists or cannot be written."""
    if path.suffix.lower() != ".xlsx":
        raise MedTasksError(f"{path} is no name for a spreadsheet; let it end in .xlsx")
    if path.exists():
        raise MedTasksError(f"{path} exists; read it back with --read, or name another file")
    book = Workbook()
    sheet = book.worksheets[0]
    sheet.title = REVIEW
    _write_rows(sheet, file, columns_of(file))
    guide = book.create_sheet("help")
    for line in _HELP:
        guide.append([line])
    facts = book.create_sheet(FACTS)
    facts.append([file.study.digest, file.reviewer])
    facts.sheet_state = "hidden"
    try:
        with written_whole(path) as partial:
            partial.touch(0o600)
            book.save(partial)
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}; make room and run it again") from error


def columns_of(file: ReviewerFile) -> list[SheetColumn]:
    """Return the columns of a reviewer's spreadsheet, which depend on the drafts alone."""
    drafts = list(file.drafts.values())
    options = max((letters(draft) for draft in drafts), key=len)
    places = range(max(len(draft.images) for draft in drafts))
    named = {place: f" {place + 1}" if len(places) > 1 else "" for place in places}
    found = [SheetColumn(ITEM, width=18)]
    found += [SheetColumn(f"image{named[place]}", width=_SIDE // _PIXELS_PER_CHARACTER + 2) for place in places]
    found += [SheetColumn(f"{TEXT}{named[place]}", width=60) for place in places]
    found += [SheetColumn("question", "question", 45)]
    found += [SheetColumn(f"option {letter}", f"options.{n}", 28) for n, letter in enumerate(options)]
    width = 10 if options else 45
    found += [SheetColumn(f"answer{named[n]}", f"answers.{n}", width, ",".join(options)) for n in places]
    for place in places:
        found.append(SheetColumn(f"score{named[place]}", f"judgements.{place}.score", 9, f"{LOWEST}-{HIGHEST}"))
        found += [
            SheetColumn(f"{aspect}{named[place]}", f"judgements.{place}.{aspect}", 12, "yes,no") for aspect in ASPECTS
        ]
    if any(draft.categories for draft in drafts):
        found += [SheetColumn(f"categories{named[place]}", f"categories.{place}", 24) for place in places]
    if any(draft.hallucination for draft in drafts):
        found.append(SheetColumn("hallucination", "hallucination", 15, ",".join(HALLUCINATIONS)))
    return [*found, SheetColumn("note", "note", 40), SheetColumn(DRAFT), SheetColumn(VERSION)]


def _write_rows(sheet: Worksheet, file: ReviewerFile, columns: Sequence[SheetColumn]) -> None:
    last = len(file.drafts) + 1
    for number, column in enumerate(columns, 1):
        letter = get_column_letter(number)
        sheet.cell(1, number, column.title).font = Font(bold=True)
        shape = sheet.column_dimensions[letter]
        shape.width = column.width
        if column.title.startswith(TEXT):
            shape.outlineLevel, shape.hidden = 1, True
        shape.hidden = shape.hidden or column.title in (DRAFT, VERSION)
        if column.choices:
            rule = _rule(column)
            sheet.add_data_validation(rule)
            rule.add(f"{letter}2:{letter}{last}")
    sheet.freeze_panes = "B2"
    images = ReviewImages(file.images)
    for row, item in enumerate(tqdm(file.drafts, "Writing", unit="draft", disable=None), 2):
        sheet.row_dimensions[row].height = _SIDE / _PIXELS_PER_POINT + 4
        draft, said = file.drafts[item], file.said(item)
        shown = {ITEM: item, DRAFT: draft.digest, VERSION: file.version(item)}
        shown |= _named(columns, TEXT, [file.images[image].text for image in draft.images])
        for number, column in enumerate(columns, 1):
            value = cell_of(column.field, draft, said) if column.field else shown.get(column.title)
            _fill(sheet, row, number, value)
        _add_images(sheet, row, columns, draft, images)


def _named(columns: Sequence[SheetColumn], what: str, texts: Sequence[str]) -> dict[str, str]:
    titles = [column.title for column in columns if column.title.split()[0] == what]
    return dict(zip(titles, texts, strict=False))


def _rule(column: SheetColumn) -> DataValidation:
    if column.title.startswith("score"):
        rule = DataValidation(type="whole", operator="between", formula1=str(LOWEST), formula2=str(HIGHEST))
    else:
        rule = DataValidation(type="list", formula1=f'"{column.choices}"')
    rule.allow_blank, rule.showErrorMessage = True, True
    rule.error = f"Take one of {column.choices}, or leave it empty."
    return rule


def _fill(sheet: Worksheet, row: int, column: int, value: str | int | None) -> None:
    cell = sheet.cell(row, column, value if isinstance(value, int) else None)
    cell.alignment = Alignment(wrap_text=True, vertical="top")
    if isinstance(value, str):
        cell.value = written(value)
        cell.data_type = "s"  # openpyxl takes what begins with = for a formula
        cell.number_format = "@"
        cell.quotePrefix = value.startswith(_FORMULA)  # so it stays one when edited


def written(text: str) -> str:
    """Return a text as a cell can hold it."""
    return str(_NO_XML.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))[:_LONGEST]


def cell_of(field: str, draft: Draft, said: ItemReview) -> str | int | None:
    """Return what the cell of a field holds for a review; None for nothing."""
    name, *places = field.split(".")
    if name == "hallucination":
        return said.hallucination or draft.hallucination
    value: Any = getattr(said, name)
    for place in places:
        if place.isdecimal() and int(place) >= len(value):
            return None
        value = value[int(place)] if place.isdecimal() else getattr(value, place)
    if isinstance(value, bool | None):
        return _YES_NO[value]
    return value if isinstance(value, int) else written(", ".join(value) if isinstance(value, tuple) else value) or None


def _add_images(sheet: Worksheet, row: int, columns: Sequence[SheetColumn], draft: Draft, images: ReviewImages) -> None:
    places = [number for number, column in enumerate(columns, 1) if column.title.split()[0] == "image"]
    for number, name in zip(places, draft.images, strict=False):
        try:
            sheet.add_image(
                Image(io.BytesIO(images.thumbnail(name, _SIDE))),
                f"{get_column_letter(number)}{row}",
            )
        except UnreadableImage as error:
            _fill(sheet, row, number, f"this image cannot be shown: {error}")
