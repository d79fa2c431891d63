r"""MIMIC-III 1.4 for summarisation: findings of radiology notes, and the impression a radiologist drew from them.

Notes have the reference's test ids (``croyer/MIMIC-III-split`` on the Hugging Face Hub); group after group, each
in the order of ``NOTEEVENTS.csv``. That table has two million rows; it is read row by row, and test notes are kept.

The exams are those of 11 groups (``CT_head`` ... ``MR_neck``). A note counts from ``FINAL REPORT`` on, with page breaks
``(Over) ... (Cont)`` cut out. It must have exactly one impression; its findings are the first section that is not empty
under the names its group has for them, most frequent name first. White space becomes one blank, a placeholder
``[**...**]`` becomes ``___``.

Two protocols differ in how a note is cut:

- ``paper`` (ViLMedic's cutter, in the reference until July 2024, and so for the published numbers): lower case, lines
  joined without a blank of their own, names as written;
- ``head``: :func:`~medtasks.data.sources.multimedeval.report_sections.report_sections`, case kept.

Both keep a slip of the reference: a section after the impression is given the text of the section before it.

Source: Johnson et al., https://physionet.org/content/mimiciii/1.4/; split of Delbrouck et al. (2022),
https://github.com/jbdel/vilmedic; ``multimedeval/mimic_iii.py`` at 1873076 (``paper``) and d9ac283 (``head``). The
names are data of theirs, in ``mimic_iii_groups.json``.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from tqdm import tqdm

from medtasks.data.images.image_store import ImageStore
from medtasks.data.prepare.preparation import Recipe, Row
from medtasks.data.prepare.source_files import SourceFile, find_file, not_found, physionet_file
from medtasks.data.prepare.table_files import csv_table, hub_table, read_json
from medtasks.data.schema import REPORT, new_document
from medtasks.data.sources.multimedeval.report_sections import report_sections, split_at_headers

Protocol = Literal["paper", "head"]
_START, _BREAK, _CONTINUED = "FINAL REPORT", "(Over)", "(Cont)"
_IMPRESSION = "impression"
_PLACEHOLDER = re.compile(r"\[\*\*.*?\*\*\]")
_NOTES = "NOTEEVENTS.csv"
_COLUMNS = ("ROW_ID", "SUBJECT_ID", "DESCRIPTION", "TEXT")
_SPLIT = "idsTest.csv"
_OUTSIDE = "notes of the split without findings and exactly one impression"


class Summary(NamedTuple):
    """What a model is given and what a radiologist made of it."""

    findings: str
    impression: str


@dataclass(frozen=True)
class Groups:
    """Which exams belong together, and what their sections are called."""

    by_exam: Mapping[str, str]  # name of the group, modality and anatomy joined by ``_``, by the note's ``DESCRIPTION``
    findings: Mapping[str, Sequence[str]]  # names of its section, in lower case, by group, the first to look for first
    spellings: Mapping[str, str]  # common name of a section by other spellings


@functools.cache
def groups() -> Groups:
    """Read the groups; their order is that of the reference."""
    known = read_json(SourceFile(Path(__file__).with_name("mimic_iii_groups.json")))
    return Groups(
        by_exam={exam: name for name, group in known["groups"].items() for exam in group["descriptions"]},
        findings={name: group["findings"] for name, group in known["groups"].items()},
        spellings={spelling: name for name, spellings in known["spellings"].items() for spelling in spellings},
    )


def summary_of(note: str, group: str, protocol: Protocol) -> Summary | None:
    r"""Return findings and impression of a note of a group of exams (:class:`Groups`).

    None where the note has no final report, no or several impressions, or no findings.

    Example:
        >>> note = "FINAL REPORT\n FINDINGS: Seen by [**Name**].\n IMPRESSION: Clear.\n"
        >>> summary_of(note, "CT_head", "paper")
        Summary(findings='seen by ___.', impression='clear.')
    """
    start = note.find(_START)
    if start < 0:
        return None
    report = note[start:]
    while (cut := report.find(_BREAK)) >= 0 and (end := report.find(_CONTINUED, cut)) >= 0:
        report = report[:cut] + report[end + len(_CONTINUED) :]
    sections = split_at_headers(report) if protocol == "paper" else report_sections(report)
    names = [groups().spellings.get(section.name, section.name) for section in sections]
    texts = [section.text for section in sections]
    if protocol == "paper":
        texts = [re.sub(" +", " ", text.strip().lower().replace("\n", "")) for text in texts]
    if names.count(_IMPRESSION) != 1:
        return None
    impression = texts[names.index(_IMPRESSION)]
    names.remove(_IMPRESSION)  # and not from the texts: the reference's slip
    candidates = (texts[names.index(name)] for name in groups().findings[group] if name in names)
    findings = next(filter(None, candidates), "")
    return Summary(_plain(findings), _plain(impression)) if findings and impression else None


def _plain(text: str) -> str:
    plain = re.sub(r"\s+", " ", text)
    # One after the other, because a placeholder may stand within the text of a later one.
    for placeholder in _PLACEHOLDER.findall(plain):
        plain = plain.replace(placeholder, "___")
    return plain


def _places_by_id(source: Path) -> dict[str, str]:
    places = {}
    file = find_file(source, [f"split/{_SPLIT}", _SPLIT, f"*/{_SPLIT}"])
    table = csv_table(file, ("ids",)) if file else hub_table(source / "split", "test", "default", ("ids",))
    if table is None:
        raise not_found(
            source, f"split/{_SPLIT}, the test ids of https://huggingface.co/datasets/croyer/MIMIC-III-split"
        )
    for row in table.rows():
        note = str(row.values["ids"]).strip()
        if not note.isdecimal():
            raise row.error("ids is no whole number")
        places[note] = row.place
    return places


def _test(protocol: Protocol, source: Path, _images: ImageStore) -> Iterator[Row]:
    places = _places_by_id(source)
    file = physionet_file(source, "mimiciii", "1.4", (_NOTES, f"{_NOTES}.gz"))
    notes = csv_table(file, _COLUMNS, lambda row: row["ROW_ID"] in places)
    by_group: dict[str, list[Row]] = {group: [] for group in groups().findings}
    outside = 0
    found = set()
    for row in tqdm(notes.rows(), file.name, total=len(places), unit="note", leave=False, disable=None):
        found.add(row.text("ROW_ID"))
        group = groups().by_exam.get(row.text("DESCRIPTION"))
        summary = summary_of(row.text("TEXT"), group, protocol) if group else None
        if group and summary:
            about = {"patient_id": row.text("SUBJECT_ID"), "context": summary.findings}
            document = new_document(REPORT, row.text("ROW_ID"), report=summary.impression, **about)
            by_group[group].append(Row(row.place, document))
        else:
            outside += 1
    for rows in by_group.values():
        yield from rows
    yield from [Row(file.name, None, cause=_OUTSIDE, outside=True)] * outside
    for note, place in places.items():
        if note not in found:
            yield Row(place, None, cause=f"its note is not in {file.name}")


_LAYOUT = f"{_NOTES}.gz of MIMIC-III 1.4 and, in a folder split, {_SPLIT} of croyer/MIMIC-III-split on the Hub"
RECIPES: Mapping[str, Recipe] = {
    "mimic_iii_summary": Recipe(REPORT, functools.partial(_test, "paper"), _LAYOUT),
    "mimic_iii_summary_head": Recipe(REPORT, functools.partial(_test, "head"), _LAYOUT),
}
