"""OmniMedVQA, as it is published and as VLMEvalKit evaluates it.

As published: the questions of ``QA_information/Open-access``, one JSON file per part, in the order of their names. The
published answer is a text; the right option is the first that is equal without the blanks around it. The restricted
parts have no images. Hu et al., CVPR 2024.

VLMEvalKit's: the first 14 of 30 TSV files, ``part_1.tsv`` to ``part_14.tsv``, with the images in them
(``vlmeval/dataset/image_mcq.py`` at e8e78f05, lines 2405 to 2464). Which of OmniMedVQA's own parts they hold is said
nowhere, so they are a dataset of their own and not a selection from that one.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare.preparation import ReadFile, Recipe, Row, TableReader, UnusableRow
from medtasks.data.prepare.source_files import SourceFile, file_reader, required_file, required_shards
from medtasks.data.prepare.table_files import ReadValues, SourceRow, Table, listed_in
from medtasks.data.samples import letter
from medtasks.data.schema import KIT_CHOICE, Document
from medtasks.data.sources.gmai.questions import TsvFile, read_questions, rows_of
from medtasks.data.sources.medevalkit.kit_documents import (
    INEXACT_GOLD,
    NO_MODALITY_TYPE,
    NULL_OPTION,
    REPEATED_GOLD,
    kit_choice,
    kit_recipe,
    lettered,
)
from medtasks.errors import SourceError

_QUESTIONS = "QA_information/Open-access/"
# At the root, in a folder below it, or in the archive, wherever in it.
_PLACES = (f"{_QUESTIONS}*.json", f"*/{_QUESTIONS}*.json", f"*.zip!*{_QUESTIONS}*.json")
_COLUMNS = ("question_id", "question_type", "question", "gt_answer", "image_path")
_LETTERS = "ABCD"
_TSV_PARTS = tuple(f"part_{number}" for number in range(1, 15))


def _parts(source: Path) -> list[SourceFile]:
    files = required_shards(source, _PLACES, f"folder {_QUESTIONS} and no OmniMedVQA.zip with it")
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
    published = {name: row.optional_text(f"option_{name}") for name in _LETTERS}
    options = [text for text in published.values() if text is not None]
    absent = next((name for name, text in published.items() if text is None), "")
    if absent and _LETTERS.index(absent) < len(options):
        raise UnusableRow(f"it has no option {absent} and one behind it")
    if len(options) < 2:
        raise UnusableRow("it has fewer than two options")
    gold, modality = row.text("gt_answer"), row.optional_text("modality_type")
    equal = [place for place, option in enumerate(options) if option.strip() == gold.strip()]
    flags = {
        NULL_OPTION: any(f"option_{name}" in row.values for name in _LETTERS[len(options) :]),
        INEXACT_GOLD: bool(equal) and gold not in options,
        REPEATED_GOLD: len(equal) > 1,
        NO_MODALITY_TYPE: modality is None,
    }
    return kit_choice(
        row.text("doc_id"),
        options,
        [f"{name}. {row.values[f'option_{name}']}" for name in _LETTERS if f"option_{name}" in row.values],
        gold,
        answer=letter(equal[0]) if equal else None,
        flags=[flag for flag, applies in flags.items() if applies],
        question=row.text("question"),
        question_type=row.optional_text("question_type"),
        modality=row.optional_text("modality") if modality is None else modality,
        part=row.text("part"),
    )


def _of_vlmevalkit(source: Path, images: ImageStore) -> Iterator[Row]:
    files = {part: required_file(source, [f"{part}.tsv"]).path for part in _TSV_PARTS}
    for part, path in files.items():
        for row in rows_of(read_questions(TsvFile(path), images, keyed=True, several=False)):
            if row.document is None:
                yield row
                continue
            doc_id, options = f"{part}/{row.document['doc_id']}", row.document["options"]
            known = {name: row.document[name] for name in ("image_id", "question", "modality")}
            lines = lettered(options, "{}. {}")
            document = kit_choice(doc_id, options, lines, row.document["answer"], part=part, **known)
            yield dataclasses.replace(row, document=document)


_READER = TableReader(KIT_CHOICE, _table, _document, lambda row: [row.text("image_path")], _files)
_LAYOUT = f"OmniMedVQA.zip, or what was unpacked from it: {_QUESTIONS} and Images/"

RECIPES: Mapping[str, Recipe] = {
    "omnimedvqa": kit_recipe(_READER, _LAYOUT, "OmniMedVQA.zip"),
    "omnimedvqa_vlmevalkit": Recipe(
        KIT_CHOICE, _of_vlmevalkit, "part_1.tsv to part_14.tsv", hub_files=[f"{part}.tsv" for part in _TSV_PARTS]
    ),
}
