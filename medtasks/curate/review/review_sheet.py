"""A review as a spreadsheet, for those who prefer one: a row per draft, with its images, written and read back.

Texts are texts, whatever they begin with: no program takes one for a formula. A hidden column holds the version that
a row was written from, which tells later what was changed in the sheet and what elsewhere.
"""

import contextlib
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpyxl import Workbook, load_workbook
from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
from openpyxl.drawing.image import Image
from openpyxl.styles import Alignment, Font
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.worksheet import Worksheet
from tqdm import tqdm

from medtasks.curate.drafts import Draft
from medtasks.curate.review.reviews import (
    ASPECTS,
    HALLUCINATIONS,
    HIGHEST,
    LOWEST,
    PASSING,
    ItemReview,
    ReviewerFile,
    letters,
    problems,
    settled,
    version_of,
)
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.errors import MedTasksError, SourceError
from medtasks.home import written_whole

_SIDE, _QUALITY = 260, 85  # pixels and JPEG quality of an image
_PIXELS_PER_CHARACTER, _PIXELS_PER_POINT = 7, 4 / 3
_LONGEST = 32_767  # characters that a cell can hold
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
ITEM, TEXT, DRAFT, VERSION = "draft", "text", "digest", "version"  # titles of columns
REVIEW, FACTS = "review", "medtasks"  # names of sheets
_NO_XML = re.compile(ILLEGAL_CHARACTERS_RE.pattern + "|[\ufffe\uffff]")  # the last two openpyxl lets pass
_YES_NO = {True: "yes", False: "no", None: None}
_NAMED = 20  # most bad cells that a message names
_NOTHING_HERE = "this draft has nothing here; leave it empty"
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
    """One column."""

    title: str
    field: str = ""  # of the review, see ``reviews.problems``; empty if it is only shown
    width: int = 14  # characters
    choices: str = ""  # of which a cell takes one


def write_sheet(file: ReviewerFile, path: Path) -> None:
    """Write a reviewer's spreadsheet; a MedTasksError for a file that exists or cannot be written."""
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
    for number, column in enumerate(columns, 1):
        letter = get_column_letter(number)
        sheet.cell(1, number, column.title).font = Font(bold=True)
        shape = sheet.column_dimensions[letter]
        shape.width = column.width
        if column.title.startswith(TEXT):
            shape.outlineLevel, shape.hidden = 1, True
        shape.hidden = shape.hidden or column.title in (DRAFT, VERSION)
        if column.choices:
            if column.title.startswith("score"):
                rule = DataValidation(type="whole", operator="between", formula1=str(LOWEST), formula2=str(HIGHEST))
            else:
                rule = DataValidation(type="list", formula1=f'"{column.choices}"')
            rule.allow_blank, rule.showErrorMessage = True, True
            rule.error = f"Take one of {column.choices}, or leave it empty."
            sheet.add_data_validation(rule)
            rule.add(f"{letter}2:{letter}{len(file.drafts) + 1}")
    sheet.freeze_panes = "B2"
    for row, item in enumerate(tqdm(file.drafts, "Writing", unit="draft", disable=None), 2):
        sheet.row_dimensions[row].height = _SIDE / _PIXELS_PER_POINT + 4
        draft, said = file.drafts[item], file.said(item)
        shown = {ITEM: item, DRAFT: draft.digest, VERSION: file.version(item)}
        texts, names = iter([file.images[image].text for image in draft.images]), iter(draft.images)
        for number, column in enumerate(columns, 1):
            what = column.title.split()[0]
            if what == "image" and (name := next(names, None)):
                try:
                    pixels = file.images[name].decoded(_SIDE).pixels
                    pixels.thumbnail((_SIDE, _SIDE))
                    pixels.save(encoded := io.BytesIO(), "JPEG", quality=_QUALITY)
                    sheet.add_image(Image(encoded), f"{get_column_letter(number)}{row}")
                except UnreadableImage as error:
                    _fill(sheet, row, number, f"this image cannot be shown: {error}")
            elif column.field:
                _fill(sheet, row, number, cell_of(column.field, draft, said))
            else:
                _fill(sheet, row, number, next(texts, None) if what == TEXT else shown.get(column.title))


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
    """Return the content of the cell of a field; None for an empty one."""
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


def read_sheet(file: ReviewerFile, path: Path) -> int:
    """Take a filled-in spreadsheet into the reviewer's file, all or nothing; return the number of drafts it changed.

    Raises a SourceError that names every bad cell, and for a file that is not the reviewer's spreadsheet.
    """
    bad: list[tuple[str, str]] = []
    said: dict[str, ItemReview] = {}
    made_from: dict[str, str] = {}
    columns = columns_of(file)
    for row in _rows(file, path, columns, bad):
        draft, before = file.drafts[row.item], file.said(row.item)
        if row.cells[DRAFT] != draft.digest:
            bad.append((row.places[ITEM], "this was drafted anew since; write a new spreadsheet"))
            continue
        one, causes = _review(row.cells, columns, draft, before)
        titles = {column.field: column.title for column in columns}
        bad += [(row.places[titles.get(field, ITEM)], why) for field, why in causes.items()]
        if not causes and one != before:
            version = str(row.cells[VERSION])
            if version == file.version(row.item):
                said[row.item], made_from[row.item] = one, file.version(row.item)
            elif version_of(one) != version:
                bad.append((row.places[ITEM], "this draft was changed elsewhere since the spreadsheet was written"))
    if bad:
        named = "; ".join(f"{cell}: {sentence}" for cell, sentence in bad[:_NAMED])
        more = f"; and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        raise SourceError(f"{path}: {named}{more}. Nothing was read; mend these cells and read it again")
    versions = {item: file.version(item) for item in said}
    file.save(said, made_from)
    return sum(file.version(item) != versions[item] for item in said)


def _review(
    cells: dict[str, Any], columns: Sequence[SheetColumn], draft: Draft, said: ItemReview
) -> tuple[ItemReview, dict[str, str]]:
    """Return the review in a row as the file holds it, or as it was with the reasons why not, by field."""
    content = said.model_dump()
    content |= {name: list(content[name]) for name in ("options", "answers", "judgements", "categories")}
    content["categories"] = content["categories"] or [()] * len(draft.images)
    causes: dict[str, str] = {}
    for column in columns:
        if column.field and cells[column.title] != cell_of(column.field, draft, said):
            try:
                _put(content, column.field, cells[column.title])
            except ValueError as error:
                causes[column.field] = str(error)
    if causes:
        return said, causes
    if not any(content["categories"]) and not said.categories:
        content["categories"] = ()
    if content["hallucination"] == draft.hallucination:
        content["hallucination"] = None
    one = ItemReview.model_validate(content)
    if one == said:
        return said, {}
    causes = problems(draft, one)
    return (said, causes) if causes else (settled(draft, one), {})


def _put(content: dict[str, Any], field: str, cell: Any) -> None:
    """Set a field to the content of a cell; ValueError if it cannot be."""
    name, *places = field.split(".")
    judges = name == "judgements"
    if not judges and cell is not None and not isinstance(cell, str | int):
        raise ValueError("it is no text")
    text = "" if cell is None else str(cell)
    if not places:
        content[name] = text or None if name == "hallucination" else text
        return
    place = int(places[0])
    if place >= len(content[name]):
        if cell is not None if judges else text:
            raise ValueError(_NOTHING_HERE)
    elif judges:
        content[name][place] = {**content[name][place], places[1]: _judgement(places[1], cell)}
    elif name == "categories":
        content[name][place] = tuple(part.strip() for part in text.split(",") if part.strip())
    else:
        content[name][place] = text.strip().upper() if content["options"] and name == "answers" else text


def _judgement(aspect: str, cell: Any) -> bool | int | None:
    """Return the score or the met aspect in a cell; None for an empty one."""
    value = cell.strip().casefold() if isinstance(cell, str) else cell
    if value in (None, ""):
        return None
    if aspect != "score":
        met = {"yes": True, "no": False, True: True, False: False}.get(value)
        if met is None:
            raise ValueError(f"{aspect} is neither yes nor no")
        return met
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        if not isinstance(value, bool) and float(value) == int(float(value)):
            return int(float(value))
    raise ValueError(f"the score is no whole number from {LOWEST} to {HIGHEST}")


@dataclass(frozen=True)
class _Row:
    item: str
    cells: dict[str, Any]  # by title
    places: dict[str, str]  # of the cells, by title: A2


def _rows(file: ReviewerFile, path: Path, columns: Sequence[SheetColumn], bad: list[tuple[str, str]]) -> Iterator[_Row]:
    """Yield the rows of a reviewer's spreadsheet whose draft is known, each draft once; others are bad."""
    lines = _lines(file, path)
    titles = {title: number for number, (title, _) in enumerate(next(lines, [])) if isinstance(title, str)}
    if lost := [column.title for column in columns if column.title not in titles]:
        raise SourceError(f"{path} lacks the columns {', '.join(lost)}; write a new spreadsheet with --spreadsheet")
    seen: set[str] = set()
    known = {written(item): item for item in file.drafts}
    for number, line in enumerate(lines, 2):
        padded = [*line, *[(None, "n")] * len(titles)]
        cells = {title: padded[place] for title, place in titles.items()}
        places = {title: f"{get_column_letter(place + 1)}{number}" for title, place in titles.items()}
        if all(value is None for value, _ in cells.values()):
            continue
        formulas = [title for title, (_, kind) in cells.items() if kind in ("f", "e")]
        bad += [(places[title], "it is a formula; write a text or a number") for title in formulas]
        item = known.get(str(cells[ITEM][0]), "")
        if item not in file.drafts or item in seen:
            why = "this draft is in a row above, too" if item in seen else "the study has no such draft"
            bad.append((places[ITEM], why))
        elif not formulas:
            yield _Row(item, {title: value for title, (value, _) in cells.items()}, places)
        seen.add(item)


def _lines(file: ReviewerFile, path: Path) -> Iterator[list[tuple[Any, str]]]:
    """Yield the rows as values and their types; SourceError for what is not the reviewer's spreadsheet of the study."""
    try:
        book = load_workbook(path, read_only=True)
        facts = [cell.value for cell in next(iter(book[FACTS].iter_rows()))]
        sheet = book[REVIEW]
    except FileNotFoundError:
        raise SourceError(f"there is no {path}; write a spreadsheet with --spreadsheet first") from None
    except (OSError, KeyError, ValueError, StopIteration, zipfile.BadZipFile) as error:
        raise SourceError(
            f"{path} is no spreadsheet of a review ({type(error).__name__}); write one with --spreadsheet"
        ) from None
    with contextlib.closing(book):
        if facts != [file.study.digest, file.reviewer]:
            other = "of another study" if facts[:1] != [file.study.digest] else f"not that of {file.reviewer}"
            raise SourceError(f"{path} is {other}; name the right study and --reviewer")
        for row in sheet.iter_rows():
            yield [(cell.value, cell.data_type) for cell in row]
