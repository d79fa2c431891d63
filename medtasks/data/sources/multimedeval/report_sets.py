r"""Radiology reports: to summarise (MIMIC-III), or to write from images (MIMIC-CXR) or volumes (CT-RATE).

Sections of a report are those of the official MIMIC-CXR parser: ``section_text`` of MultiMedEval at d9ac283, which is
``section_parser.py`` of https://github.com/MIT-LCP/mimic-cxr without its corrections of single studies. A header is a
line that begins with a blank and goes on in capitals, blanks and ``()/,-`` to a colon with white space after it. The
text before the first header is the ``preamble``. Names are brought to a common spelling by ``report_headers.json``:
whole names by a table, then by a main section whose name they contain; then headers that name a view (``CHEST, PA AND
LATERAL``) are called ``findings``. Two entries look like mistakes and are kept: ``ndication`` counts as impression,
``pfi`` as history. Impression and findings that hold white space only are dropped. Where neither is left, the text
after the first empty line of the last section becomes the ``last_paragraph``. Texts are never stripped.

MIMIC-III 1.4: findings of radiology notes, and the impression a radiologist drew from them. Notes have the reference's
test ids (``croyer/MIMIC-III-split`` on the Hugging Face Hub); group after group, each in the order of
``NOTEEVENTS.csv``. That table has two million rows; it is read row by row, and test notes are kept. The exams are those
of 11 groups in ``mimic_iii_groups.json``. A note counts from ``FINAL REPORT`` on, with page breaks ``(Over) ...
(Cont)`` cut out. It must have exactly one impression; its findings are the first section that is not empty under the
names its group has for them. White space becomes one blank, a placeholder ``[**...**]`` becomes ``___``. Notes are cut

- by ``paper`` (ViLMedic's cutter, in the reference until July 2024, and so for the published numbers) in lower case,
  lines joined without a blank of their own, names as written;
- by ``head`` with :func:`~medtasks.data.sources.multimedeval.report_sets.report_sections`, case kept.

Both keep a slip of the reference: a section after the impression is given the text of the section before it.
Source: Johnson et al., https://physionet.org/content/mimiciii/1.4/; split of Delbrouck et al. (2022),
https://github.com/jbdel/vilmedic; ``multimedeval/mimic_iii.py`` at 1873076 (``paper``) and d9ac283 (``head``).

MIMIC-CXR: the studies of the test split whose report has findings, each with all its images, in the order of the split
table. The report is the first findings section, the indication the first indication section, with all white space.
Images are those of MIMIC-CXR-JPG 2.0.0, reports those of MIMIC-CXR: ``s<study>.txt`` next to the study's folder of
images, in a tree of their own, or in ``mimic-cxr-reports.zip``. Source: Johnson et al.,
https://physionet.org/content/mimic-cxr/2.0.0/; ``multimedeval/mimic.py`` at d9ac283.

CT-RATE: volumes of the validation split, each with the findings of its report, in the order of
``validation_reports.csv``; a repeated row counts once. They stay in the source folder. Source: Hamamci et al.,
https://huggingface.co/datasets/ibrahimhamamci/CT-RATE; ``multimedeval/ct_rate.py`` at d9ac283.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from tqdm import tqdm

from medtasks.data.images.image_store import ImageStore
from medtasks.data.images.volume_files import ENDING
from medtasks.data.prepare.physionet import PhysioNet
from medtasks.data.prepare.source_files import (
    SourceFile,
    file_reader,
    physionet_file,
    required_file,
)
from medtasks.data.prepare.source_recipe import (
    PublishedRow,
    PublishedRows,
    Recipes,
    SourceRecipe,
    check_count,
    images_row,
)
from medtasks.data.prepare.source_tables import SourceRow, csv_table, read_json
from medtasks.data.schema import REPORT, new_document
from medtasks.data.sources.multimedeval.x_rays import (
    MIMIC_CXR_JPG,
    MIMIC_SPLIT,
    image_name,
    mimic_cxr_file,
    split_rows,
    study_folder,
)

_HEADER = re.compile(r"\n ([A-Z ()/,-]+):\s")
_EMPTY_LINE = "\n \n"
FULL_REPORT = "full report"
PREAMBLE = "preamble"
LAST_PARAGRAPH = "last_paragraph"
_ESSENTIAL = ("impression", "findings")
_KNOWN = read_json(SourceFile(Path(__file__).with_name("report_headers.json")))
_CANONICAL: dict[str, str] = {
    spelling: name for name, all_of in _KNOWN["spellings"].items() for spelling in all_of
}
_MAIN = ("impression", "findings", "history", "comparison", "addendum")
SetProtocol = Literal["paper", "head"]
_START = "FINAL REPORT"
_BREAK = "(Over)"
_CONTINUED = "(Cont)"
_IMPRESSION = "impression"
_PLACEHOLDER = re.compile(r"\[\*\*.*?\*\*\]")
_NOTES = "NOTEEVENTS.csv"
_COLUMNS = ("ROW_ID", "SUBJECT_ID", "DESCRIPTION", "TEXT")
_TEST_IDS = "idsTest.csv"
_NUMBER_OF_IDS = 13_057
_EXAMS = read_json(SourceFile(Path(__file__).with_name("mimic_iii_groups.json")))
# Groups of exams by modality and anatomy, joined by ``_``, in the reference's order.
GROUPS: Mapping[str, Mapping[str, Sequence[str]]] = _EXAMS["groups"]
GROUP_OF = {exam: name for name, group in GROUPS.items() for exam in group["descriptions"]}
SPELLINGS = {
    spelling: name for name, spellings in _EXAMS["spellings"].items() for spelling in spellings
}
_NOTES_LAYOUT = f"{_NOTES}.gz of MIMIC-III 1.4 and, in a folder split, {_TEST_IDS} of croyer/MIMIC-III-split on the Hub"
_UNPACKED = "mimic-cxr-reports"
_ARCHIVE = f"{_UNPACKED}.zip"
_PROJECT = "mimic-cxr/*/"
# Locations of MIMIC-CXR below the folder of MIMIC-CXR-JPG or the folder the user names.
_PLACES = ("", _PROJECT, f"files/{_PROJECT}", f"physionet.org/files/{_PROJECT}", "*/")
_CT_REPORTS = "radiology_text_reports/validation_reports.csv"
_CT_TOPS = ("", "dataset/", "ct_rate/dataset/", "*/dataset/")
_CT_FOLDERS = ("valid", "valid_fixed")


@dataclass(frozen=True)
class ReportSection:
    """One section."""

    name: str  # its header in lower case, or the parser's name
    text: str  # after the header, with all white space
    start: int  # of the text in the report


def split_at_headers(report: str) -> list[ReportSection]:
    r"""Cut a report at its headers: the preamble and one section per header, named by it in lower case.

    Without a header it is one section, ``full report``. The search goes on at the new line after a header and the
    character that follows its colon. A header right below an empty one is therefore the empty one's text.

    Example:
        >>> [section.name for section in split_at_headers("Chest\n FINDINGS: Clear.\n IMPRESSION: Normal.")]
        ['preamble', 'findings', 'impression']
    """
    header = _HEADER.search(report)
    if header is None:
        return [ReportSection(FULL_REPORT, report, 0)]
    sections = [ReportSection(PREAMBLE, report[: header.start(1)], 0)]
    while header is not None:
        name = header[1].lower()
        start = header.end()
        header = _HEADER.search(report, max(report.find("\n", start), start))
        end = header.start() if header else len(report)
        sections.append(ReportSection(name, report[start:end], start))
    return sections


def report_sections(report: str) -> list[ReportSection]:
    r"""Return the sections of a report under their common names, in order. Names may repeat.

    Args:
        report: Its text, with new lines as ``\n``.

    Example:
        >>> report_sections("\n CONCLUSION: No change.")[-1]
        ReportSection(name='impression', text='No change.', start=14)
    """
    sections = []
    for section in split_at_headers(report):
        name = _common_name(section.name.strip())
        if name not in _ESSENTIAL or section.text.strip():
            sections.append(replace(section, name=name))
    if any(section.name in _ESSENTIAL for section in sections):
        return sections
    last = sections[-1]
    before, empty_line, after = last.text.partition(_EMPTY_LINE)
    if not empty_line:
        return sections
    # The start is that of the empty line, as the official parser counts it.
    return [
        *sections[:-1],
        replace(last, text=before),
        ReportSection(LAST_PARAGRAPH, after, last.start + len(before)),
    ]


def _common_name(header: str) -> str:
    """Return the common name of a header in lower case, or the header itself if it is unknown."""
    if header in _CANONICAL:
        return _CANONICAL[header]
    for main in _MAIN:
        if main in header:
            return main
    return "findings" if any(view in header for view in _KNOWN["views"]) else header


def summary_of(note: str, group: str, protocol: SetProtocol) -> tuple[str, str] | None:
    r"""Return findings and impression of a note of a group of exams (:data:`GROUPS`).

    None where the note has no final report, no or several impressions, or no findings.

    Example:
        >>> note = "FINAL REPORT\n FINDINGS: Seen by [**Name**].\n IMPRESSION: Clear.\n"
        >>> summary_of(note, "CT_head", "paper")
        ('seen by ___.', 'clear.')
    """
    report = _final_report(note)
    sections = split_at_headers(report) if protocol == "paper" else report_sections(report)
    names = [SPELLINGS.get(section.name, section.name) for section in sections]
    texts = [section.text for section in sections]
    if protocol == "paper":
        texts = [re.sub(" +", " ", text.strip().lower().replace("\n", "")) for text in texts]
    if names.count(_IMPRESSION) != 1:
        return None
    impression = texts[names.index(_IMPRESSION)]
    names.remove(_IMPRESSION)  # and not from the texts: the reference's slip
    first_texts = dict(reversed([*zip(names, texts, strict=False)]))
    findings = next(filter(None, map(first_texts.get, GROUPS[group]["findings"])), None)
    if not findings or not impression:
        return None
    return _without_placeholders(findings), _without_placeholders(impression)


def _final_report(note: str) -> str:
    """Return the final report of a note without its page breaks. Empty for a note without a final report."""
    _, start, report = note.partition(_START)
    report = start + report
    while (cut := report.find(_BREAK)) >= 0 and (end := report.find(_CONTINUED, cut)) >= 0:
        report = report[:cut] + report[end + len(_CONTINUED) :]
    return report


def _without_placeholders(text: str) -> str:
    text = re.sub(r"\s+", " ", text)
    # One after the other, because a placeholder may be part of the text of a later one.
    for placeholder in _PLACEHOLDER.findall(text):
        text = text.replace(placeholder, "___")
    return text


def mimic_iii(protocol: SetProtocol, source: Path, _images: ImageStore) -> PublishedRows:
    """Read the notes of the test ids, group after group."""
    published = f"split/{_TEST_IDS}, the test ids of https://huggingface.co/datasets/croyer/MIMIC-III-split"
    ids = required_file(source, [f"split/{_TEST_IDS}"], published)
    places = {}  # location in the split, by the note's id
    for row in csv_table(ids, ("ids",)).rows():
        note = str(row.values["ids"]).strip()
        if not note.isdecimal():
            raise row.error("ids is no whole number")
        places[note] = row.place
    file = physionet_file(source, "mimiciii", "1.4", (_NOTES, f"{_NOTES}.gz"))
    notes = csv_table(file, _COLUMNS, lambda row: row["ROW_ID"] in places)
    by_group: dict[str, list[PublishedRow]] = {group: [] for group in GROUPS}
    outside = 0
    missing = dict(places)
    for row in tqdm(
        notes.rows(), file.name, total=len(places), unit="note", leave=False, disable=None
    ):
        missing.pop(row.text("ROW_ID"), None)
        group = GROUP_OF.get(row.text("DESCRIPTION"))
        summary = summary_of(row.text("TEXT"), group, protocol) if group else None
        if group and summary:
            findings, impression = summary
            document = new_document(
                REPORT,
                row.text("ROW_ID"),
                patient_id=row.text("SUBJECT_ID"),
                context=findings,
                report=impression,
            )
            by_group[group].append(PublishedRow(row.place, document))
        else:
            outside += 1
    for rows in by_group.values():
        yield from rows
    cause = "notes of the split without findings and exactly one impression"
    yield from [PublishedRow(file.name, cause=cause, outside=True)] * outside
    for location in missing.values():
        yield PublishedRow(location, cause=f"its note is not in {file.name}")
    if protocol == "head":  # of the other one the number of documents is published
        yield from check_count(_TEST_IDS, len(places), _NUMBER_OF_IDS)


def _test_studies(source: Path) -> dict[str, list[SourceRow]]:
    """Return the rows of the test split by study.

    Raises:
        SourceError: An image occurs twice, or a study belongs to two patients.
    """
    studies: dict[str, list[SourceRow]] = {}
    for row in split_rows(source, "test"):
        rows = studies.setdefault(row.text("study_id"), [])
        image = row.text("dicom_id")
        patient = row.text("subject_id")
        for before in rows:
            if before.text("dicom_id") == image or before.text("subject_id") != patient:
                raise row.error(
                    "its image stands in an earlier row, or its study belongs to two patients"
                )
        rows.append(row)
    return studies


def _report_places(roots: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return the folders and the archives below some folders in which reports may be, in the order to search them."""
    folders: list[Path] = []
    archives: list[Path] = []
    for folder, below in itertools.product(dict.fromkeys(roots), _PLACES):
        for tree in ("files", f"{_UNPACKED}/files"):
            folders += [files.parent for files in sorted(folder.glob(below + tree))]
        archives += sorted(folder.glob(below + _ARCHIVE))
    return folders, archives


def mimic_cxr(source: Path, images: ImageStore) -> PublishedRows:
    """Read the studies of the test split."""
    studies = _test_studies(source)
    root = mimic_cxr_file(source, "split").path.parent
    folders, archives = _report_places([root, source])
    with file_reader(folders, archives, ("", f"{_UNPACKED}/")) as read:
        for study_id, rows in studies.items():
            location = rows[0].place
            subject_id = rows[0].text("subject_id")
            name = study_folder(Path("files"), subject_id, study_id).with_suffix(".txt")
            try:
                report = read(name.as_posix()).decode("utf-8")
            except FileNotFoundError:
                cause = f"the report of its study is missing ({_ARCHIVE} of MIMIC-CXR has it)"
                yield PublishedRow(location, cause=cause)
                continue
            except UnicodeDecodeError:
                yield PublishedRow(location, cause="the report of its study is no UTF-8 text")
                continue
            sections = report_sections(report.replace("\r\n", "\n").replace("\r", "\n"))
            first = {section.name: section.text for section in reversed(sections)}
            if "findings" not in first:
                cause = "studies whose report has no findings section"
                yield PublishedRow(location, cause=cause, outside=True)
                continue
            document = new_document(
                REPORT,
                study_id,
                report=first["findings"],
                image_id=f"s{study_id}",
                patient_id=subject_id,
                indication=first.get("indication", ""),
            )
            # No file name in messages: it holds the patient's number, and messages end up in results.
            adding = []
            for number, row in enumerate(rows, 1):
                add = partial(images.add_file, root / image_name(row), root=root)
                adding.append((f"{number} of {len(rows)}", add))
            yield images_row(location, adding, document)


def _fetch_reports(physionet: PhysioNet, folder: Path) -> Path:
    physionet.fetch("mimic-cxr/2.0.0", [_ARCHIVE], folder)
    physionet.fetch(MIMIC_CXR_JPG, [MIMIC_SPLIT], folder)
    physionet.fetch(MIMIC_CXR_JPG, map(image_name, split_rows(folder, "test")), folder)
    return folder


def ct_rate(source: Path, images: ImageStore) -> PublishedRows:
    """Read the volumes of the validation split."""
    file = required_file(source, [f"{top}{_CT_REPORTS}" for top in _CT_TOPS])
    root = file.path.parents[1]
    seen = set()
    for row in csv_table(file, ("VolumeName", "Findings_EN")).rows():
        name = row.text("VolumeName")
        findings = row.text("Findings_EN")
        if (name, findings) in seen:
            continue
        seen.add((name, findings))
        volume = name.removesuffix(ENDING)
        parts = volume.split("_")  # split, patient, scan, reconstruction
        if not name.endswith(ENDING) or len(parts) != 4:
            raise row.error(f"VolumeName is not of the form valid_1_a_1{ENDING}")
        if not findings.strip():
            yield PublishedRow(row.place, cause="its report has no findings")
            continue
        patient = "_".join(parts[:2])
        scan = "_".join(parts[:3])
        paths = [root / folder / patient / scan / name for folder in _CT_FOLDERS]
        path = next(filter(Path.is_file, paths), paths[0])
        document = new_document(
            REPORT, volume, report=findings, image_id=volume, patient_id=patient
        )
        adding = [(name, partial(images.add_volume, path, root))]
        yield images_row(row.place, adding, document)


RECIPES: Recipes = {
    "mimic_iii_summary": SourceRecipe(REPORT, partial(mimic_iii, "paper"), _NOTES_LAYOUT),
    "mimic_iii_summary_head": SourceRecipe(REPORT, partial(mimic_iii, "head"), _NOTES_LAYOUT),
    "mimic_cxr_report": SourceRecipe(
        REPORT,
        mimic_cxr,
        f"mimic-cxr-2.0.0-split.csv.gz and the folder files/ of MIMIC-CXR-JPG 2.0.0, and beside them {_ARCHIVE} of "
        f"MIMIC-CXR 2.0.0, or what was unpacked from it",
        login_download=_fetch_reports,
    ),
    "ct_rate_report": SourceRecipe(
        REPORT,
        ct_rate,
        f"the Hub's {_CT_REPORTS} and valid/valid_1/valid_1_a/valid_1_a_1{ENDING} ..., which must stay there",
    ),
}
