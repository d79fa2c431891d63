"""OmniMedVQA: the questions of ``QA_information/Open-access``, one JSON file per part, in the order of their names.

The published answer is a text; the right option is the first that is equal without the blanks around it. The
restricted parts have no images. Hu et al., CVPR 2024.
"""

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from medtasks.data.json_tables import listed_in
from medtasks.data.medevalkit.documents import (
    INEXACT_GOLD,
    NO_MODALITY_TYPE,
    NULL_OPTION,
    REPEATED_GOLD,
    kit_choice,
    kit_recipe,
)
from medtasks.data.preparation import Recipe
from medtasks.data.samples import letter
from medtasks.data.schema import KIT_CHOICE, Document
from medtasks.data.source_files import SourceFile, file_reader, find_shards, not_found
from medtasks.data.table_recipe import ReadFile, TableReader, UnusableRow
from medtasks.data.tables import ReadValues, SourceRow, Table
from medtasks.errors import SourceError

_QUESTIONS = "QA_information/Open-access/"
# At the root, in a folder below it, or in the archive, wherever in it.
_PLACES = (f"{_QUESTIONS}*.json", f"*/{_QUESTIONS}*.json", f"*.zip!*{_QUESTIONS}*.json")
_COLUMNS = ("question_id", "question_type", "question", "gt_answer", "image_path")
_LETTERS = "ABCD"


def _parts(source: Path) -> list[SourceFile]:
    files = find_shards(source, _PLACES)
    if not files:
        raise not_found(source, f"folder {_QUESTIONS} and no OmniMedVQA.zip with it")
    if len({(file.path if file.member else file.path.parent, _below(file)) for file in files}) > 1:
        raise SourceError(f"{source} holds the folder {_QUESTIONS} more than once; name the folder that holds the one")
    return files


def _below(file: SourceFile) -> str:
    """Return the folder, in an archive, that holds the questions and the images."""
    return (file.member or "").rpartition(_QUESTIONS)[0]


def _files(source: Path) -> AbstractContextManager[ReadFile]:
    first = _parts(source)[0]
    if first.member is None:
        return file_reader([first.path.parents[2]], (), ())
    return file_reader((), [first.path], (_below(first),))


def _table(source: Path, _split: str) -> Table:
    names = [PurePosixPath(file.member or file.path.name).name for file in _parts(source)]

    def records() -> Iterator[tuple[str, ReadValues]]:
        seen: Counter[str] = Counter()
        with _files(source) as read:
            for name in names:
                for row in listed_in(name, read(_QUESTIONS + name), _COLUMNS).rows():
                    published = row.text("question_id")
                    seen[published] += 1
                    again = f" ({seen[published]})" if seen[published] > 1 else ""
                    known = {"doc_id": published + again, "part": name.removesuffix(".json")}
                    yield row.place, functools.partial(dict, row.values, **known)

    return Table(records)


def _document(row: SourceRow, _split: str) -> Document:
    options, flags = _options(row)
    gold = row.text("gt_answer")
    equal = [place for place, option in enumerate(options) if option.strip() == gold.strip()]
    flags += [INEXACT_GOLD] if equal and gold not in options else []
    flags += [REPEATED_GOLD] if len(equal) > 1 else []
    modality = row.optional_text("modality_type")
    flags += [NO_MODALITY_TYPE] if modality is None else []
    return kit_choice(
        row.text("doc_id"),
        options,
        [f"{name}. {row.values[f'option_{name}']}" for name in _LETTERS if f"option_{name}" in row.values],
        gold,
        answer=letter(equal[0]) if equal else None,
        flags=flags,
        question=row.text("question"),
        question_type=row.optional_text("question_type"),
        modality=row.optional_text("modality") if modality is None else modality,
        part=row.text("part"),
    )


def _options(row: SourceRow) -> tuple[list[str], list[str]]:
    """Return the options and flags; an UnusableRow says that there is one behind another that is missing."""
    texts = [row.optional_text(f"option_{name}") for name in _LETTERS]
    options = [text for text in texts if text is not None]
    if None in texts[: len(options)]:
        raise UnusableRow(f"it has no option {_LETTERS[texts.index(None)]} and one behind it")
    if len(options) < 2:
        raise UnusableRow("it has fewer than two options")
    null = any(f"option_{name}" in row.values for name in _LETTERS[len(options) :])
    return options, [NULL_OPTION] if null else []


_READER = TableReader(KIT_CHOICE, _table, _document, lambda row: [row.text("image_path")], _files)
_LAYOUT = f"OmniMedVQA.zip, or what was unpacked from it: {_QUESTIONS} and Images/"

RECIPES: Mapping[str, Recipe] = {"omnimedvqa": kit_recipe("omnimedvqa", _READER, _LAYOUT, "OmniMedVQA.zip")}
