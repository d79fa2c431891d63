"""A filled-in spreadsheet of a review, read back into the reviewer's file."""

import contextlib
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openpyxl import load_workbook
from openpyxl.utils import get_column_letter

from medtasks.curate.judging import problems, settled
from medtasks.curate.review_sheet import DRAFT, FACTS, ITEM, REVIEW, VERSION, SheetColumn, cell_of, columns_of, written
from medtasks.curate.reviewer_file import ReviewerFile, version_of
from medtasks.curate.reviews import HIGHEST, LOWEST, ItemReview
from medtasks.errors import SourceError

_NAMED = 20  # bad cells


def read_sheet(file: ReviewerFile, path: Path) -> int:
    """Take what was filled in into the reviewer's file, all of it or nothing, and return how many drafts it changed.

    Raises a SourceError that names every bad cell, and for a file that is not the reviewer's spreadsheet.
    """
    bad: list[tuple[str, str]] = []
    said: dict[str, ItemReview] = {}
    made_from: dict[str, str] = {}
    for row in _rows(file, path, bad):
        if (one := row.review(file, bad)) is not None and one != file.said(row.item):
            base = file.version(row.item)
            if row.version == base:
                said[row.item], made_from[row.item] = one, base
            elif version_of(one) != row.version:
                bad.append((row.at(ITEM), "this draft was changed elsewhere since the spreadsheet was written"))
    if bad:
        named = "; ".join(f"{cell}: {sentence}" for cell, sentence in bad[:_NAMED])
        more = f"; and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        raise SourceError(f"{path}: {named}{more}. Nothing was read; mend these cells and read it again")
    before = {item: file.version(item) for item in said}
    file.save(said, made_from)
    return sum(file.version(item) != before[item] for item in said)


@dataclass(frozen=True)
class _Row:
    number: int
    item: str
    cells: dict[str, Any]  # by title
    letters: dict[str, str]  # of columns, by title
    columns: Sequence[SheetColumn]

    def at(self, title: str) -> str:
        return f"{self.letters[title]}{self.number}"

    @property
    def version(self) -> str:
        return str(self.cells[VERSION])

    def review(self, file: ReviewerFile, bad: list[tuple[str, str]]) -> ItemReview | None:
        """Return what the row says as the file holds it; None where a cell is bad, which is added to those."""
        draft, said = file.drafts[self.item], file.said(self.item)
        if self.cells[DRAFT] != draft.digest:
            bad.append((self.at(ITEM), "this was drafted anew since; write a new spreadsheet"))
            return None
        content = said.model_dump()
        content |= {name: list(content[name]) for name in ("options", "answers", "judgements", "categories")}
        content["categories"] = content["categories"] or [()] * len(draft.images)
        found: dict[str, str] = {}
        for column in self.columns:
            if column.field:
                cell = self.cells[column.title]
                same = cell == cell_of(column.field, draft, said)
                why = "" if same else _put(content, column.field, cell)
                if why:
                    found[column.field] = why
        if not any(content["categories"]) and not said.categories:
            content["categories"] = ()
        if content["hallucination"] == draft.hallucination:
            content["hallucination"] = None
        one = said
        if not found:
            one = ItemReview.model_validate(content)
            found = {} if one == said else problems(draft, one)
        titles = {column.field: column.title for column in self.columns}
        bad += [(self.at(titles.get(field, ITEM)), why) for field, why in found.items()]
        return None if found else one if one == said else settled(draft, one)


def _put(content: dict[str, Any], field: str, cell: Any) -> str:
    """Set a field to what a cell holds; return why it cannot be, or nothing."""
    name, *places = field.split(".")
    if name == "judgements":
        return _put_judgement(content["judgements"], int(places[0]), places[1], cell)
    if cell is not None and not isinstance(cell, str | int):
        return "it is no text"
    text = "" if cell is None else str(cell)
    if not places:
        content[name] = text or None if name == "hallucination" else text
    elif int(places[0]) >= len(content[name]):
        return "this draft has nothing here; leave it empty" if text else ""
    elif name == "categories":
        content[name][int(places[0])] = tuple(part.strip() for part in text.split(",") if part.strip())
    else:
        content[name][int(places[0])] = text.strip().upper() if content["options"] and name == "answers" else text
    return ""


def _put_judgement(judgements: list[dict[str, Any]], place: int, name: str, cell: Any) -> str:
    if place >= len(judgements):
        return "this draft has nothing here; leave it empty" if cell is not None else ""
    value = cell.strip().casefold() if isinstance(cell, str) else cell
    if value in (None, ""):
        judgements[place] = {**judgements[place], name: None}
    elif name == "score":
        number = _whole(value)
        if number is None:
            return f"the score is no whole number from {LOWEST} to {HIGHEST}"
        judgements[place] = {**judgements[place], name: number}
    else:
        met = {"yes": True, "no": False, True: True, False: False}.get(value)
        if met is None:
            return f"{name} is neither yes nor no"
        judgements[place] = {**judgements[place], name: met}
    return ""


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        if float(value) == int(float(value)):
            return int(float(value))
    return None


def _rows(file: ReviewerFile, path: Path, bad: list[tuple[str, str]]) -> Iterator[_Row]:
    """Yield the rows of a reviewer's spreadsheet whose draft is known, each draft once; others are bad."""
    columns = columns_of(file)
    lines = _lines(file, path)
    titles = {title: number for number, (title, _) in enumerate(next(lines, [])) if isinstance(title, str)}
    if lost := [column.title for column in columns if column.title not in titles]:
        raise SourceError(f"{path} lacks the columns {', '.join(lost)}; write a new spreadsheet with --spreadsheet")
    places = {title: get_column_letter(number + 1) for title, number in titles.items()}
    seen: set[str] = set()
    known = {written(item): item for item in file.drafts}
    for number, line in enumerate(lines, 2):
        padded = [*line, *[(None, "n")] * len(titles)]
        cells = {title: padded[place] for title, place in titles.items()}
        if all(value is None for value, _ in cells.values()):
            continue
        formulas = [title for title, (_, kind) in cells.items() if kind in ("f", "e")]
        bad += [(f"{places[title]}{number}", "it is a formula; write a text or a number") for title in formulas]
        item = known.get(str(cells[ITEM][0]), "")
        if item not in file.drafts or item in seen:
            why = "this draft is in a row above, too" if item in seen else "the study has no such draft"
            bad.append((f"{places[ITEM]}{number}", why))
        elif not formulas:
            yield _Row(number, item, {title: value for title, (value, _) in cells.items()}, places, columns)
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
