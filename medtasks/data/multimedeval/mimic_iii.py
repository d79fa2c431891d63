"""MIMIC-III 1.4 for summarisation: findings of radiology notes, and the impression a radiologist drew from them.

Notes have the reference's test ids (``croyer/MIMIC-III-split`` on the Hugging Face Hub); group after group, each
in the order of ``NOTEEVENTS.csv``. That table has two million rows; it is read row by row, and test notes are kept.

Source: Johnson et al., https://physionet.org/content/mimiciii/1.4/; split of Delbrouck et al. (2022).
"""

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tqdm import tqdm

from medtasks.data.image_store import ImageStore
from medtasks.data.multimedeval.csv_table import CsvTable
from medtasks.data.multimedeval.mimic_iii_sections import Protocol, groups, summary_of
from medtasks.data.multimedeval.physionet import physionet_file
from medtasks.data.multimedeval.source_files import find_file, not_found
from medtasks.data.multimedeval.source_rows import SourceRow
from medtasks.data.multimedeval.tables import Table, hub_table
from medtasks.data.preparation import Recipe, Row
from medtasks.data.schema import REPORT

_NOTES = "NOTEEVENTS.csv"
_COLUMNS = ("ROW_ID", "SUBJECT_ID", "DESCRIPTION", "TEXT")
_SPLIT = "idsTest.csv"
_OUTSIDE = "notes of the split without findings and exactly one impression"


def _split(source: Path) -> Table:
    file = find_file(source, [f"split/{_SPLIT}", _SPLIT, f"*/{_SPLIT}"])
    table = CsvTable(file, ("ids",)) if file else hub_table(source / "split", "test", "default", ("ids",))
    if table is None:
        raise not_found(
            source, f"split/{_SPLIT}, the test ids of https://huggingface.co/datasets/croyer/MIMIC-III-split"
        )
    return table


def _test_ids(source: Path) -> dict[str, str]:
    """Return where each id stands in the split, by id."""
    places = {}
    for row in _split(source).rows():
        note = str(row.values["ids"]).strip()
        if not note.isdecimal():
            raise row.error("ids is no whole number")
        places[note] = row.place
    return places


def _test(protocol: Protocol, source: Path, _images: ImageStore) -> Iterator[Row]:
    places = _test_ids(source)
    file = physionet_file(source, "mimiciii", "1.4", (_NOTES, f"{_NOTES}.gz"))
    notes = CsvTable(file, _COLUMNS, lambda row: row["ROW_ID"] in places)
    by_group: dict[str, list[Row]] = {group: [] for group in groups().findings}
    outside = 0
    found = set()
    for row in tqdm(notes.rows(), file.name, total=len(places), unit="note", leave=False, disable=None):
        found.add(row.text("ROW_ID"))
        group = groups().by_exam.get(row.text("DESCRIPTION"))
        made = _row(row, group, protocol) if group else None
        if group and made:
            by_group[group].append(made)
        else:
            outside += 1
    for rows in by_group.values():
        yield from rows
    yield from [Row(file.name, None, cause=_OUTSIDE, outside=True)] * outside
    for note, place in places.items():
        if note not in found:
            yield Row(place, None, cause=f"its note is not in {file.name}")


def _row(row: SourceRow, group: str, protocol: Protocol) -> Row | None:
    summary = summary_of(row.text("TEXT"), group, protocol)
    if summary is None:
        return None
    document = {
        "doc_id": row.text("ROW_ID"),
        "image_id": None,
        "patient_id": row.text("SUBJECT_ID"),
        "context": summary.findings,
        "indication": None,
        "report": summary.impression,
    }
    return Row(row.place, document)


def _recipe(protocol: Protocol) -> Recipe:
    layout = f"{_NOTES}.gz of MIMIC-III 1.4 and, in a folder split, {_SPLIT} of croyer/MIMIC-III-split on the Hub"
    return Recipe(columns=REPORT, test=functools.partial(_test, protocol), layout=layout)


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {"mimic_iii_summary": _recipe("paper"), "mimic_iii_summary_head": _recipe("head")}
)
