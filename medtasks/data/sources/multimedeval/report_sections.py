r"""Sections of a radiology report, as the official MIMIC-CXR parser finds and names them.

A header is a line that begins with a blank and goes on in capitals, blanks and ``()/,-`` to a colon with white space
behind it. What stands before the first header is the ``preamble``. Names are brought to a common spelling: whole names
by a table, then by a main section whose name they contain; then headers that name a view (``CHEST, PA AND LATERAL``)
are called ``findings``. Sections called impression or findings that hold white space only are dropped. Where neither is
left, the text behind the first empty line of the last section becomes the ``last_paragraph``. Texts are never stripped.

Table and views are in ``report_headers.json``. Two entries look like mistakes and are kept: ``ndication`` counts as
impression, ``pfi`` as history.

Source: ``section_text`` of MultiMedEval at d9ac283, which is ``section_parser.py`` of the MIMIC-CXR authors
(https://github.com/MIT-LCP/mimic-cxr) without its corrections of single studies.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from medtasks.data.prepare.source_files import SourceFile
from medtasks.data.prepare.table_files import read_json

_HEADER = re.compile(r"\n ([A-Z ()/,-]+):\s")
_EMPTY_LINE = "\n \n"
FULL_REPORT, PREAMBLE, LAST_PARAGRAPH = "full report", "preamble", "last_paragraph"
_ESSENTIAL = ("impression", "findings")
_KNOWN = read_json(SourceFile(Path(__file__).with_name("report_headers.json")))
_CANONICAL: dict[str, str] = {spelling: name for name, all_of in _KNOWN["spellings"].items() for spelling in all_of}
_MAIN = ("impression", "findings", "history", "comparison", "addendum")


@dataclass(frozen=True)
class Section:
    """One section."""

    name: str  # its header in lower case, or what the parser calls it
    text: str  # what stands behind the header, with all white space
    start: int  # where the text starts in the report


def split_at_headers(report: str) -> list[Section]:
    r"""Cut a report at its headers: the preamble and one section per header, named by it in lower case.

    Without a header it is one section, ``full report``. The search goes on at the new line behind a header and the
    character that follows its colon. A header right below an empty one is therefore the empty one's text.

    Example:
        >>> [section.name for section in split_at_headers("CHEST FILM\n FINDINGS: Clear.\n")]
        ['preamble', 'findings']
    """
    header = _HEADER.search(report)
    if header is None:
        return [Section(FULL_REPORT, report, 0)]
    found = [Section(PREAMBLE, report[: header.start(1)], 0)]
    while header is not None:
        name, start = header[1].lower(), header.end()
        header = _HEADER.search(report, max(report.find("\n", start), start))
        found.append(Section(name, report[start : header.start() if header else len(report)], start))
    return found


def report_sections(report: str) -> list[Section]:
    r"""Return the sections of a report, new lines as ``\n``, under their common names, in order; names may repeat.

    Example:
        >>> [section.name for section in report_sections(" \n FINDNGS: Clear.\n IMPRESSION: \n ")]
        ['preamble', 'findings']
    """
    named = [replace(section, name=_common_name(section.name)) for section in split_at_headers(report)]
    kept = [section for section in named if section.name not in _ESSENTIAL or section.text.strip()]
    if any(section.name in _ESSENTIAL for section in kept):
        return kept
    last = kept[-1]
    before, empty_line, behind = last.text.partition(_EMPTY_LINE)
    if not empty_line:
        return kept
    # The start is that of the empty line, as the official parser counts it.
    return [*kept[:-1], replace(last, text=before), Section(LAST_PARAGRAPH, behind, last.start + len(before))]


def first_text(sections: list[Section], name: str) -> str | None:
    """Return the text of the first section of that name, or None."""
    return next((section.text for section in sections if section.name == name), None)


def _common_name(header: str) -> str:
    name = header.strip()
    if name in _CANONICAL:
        return _CANONICAL[name]
    contained = next((main for main in _MAIN if main in name), None)
    if contained is not None:
        return contained
    return "findings" if any(view in name for view in _KNOWN["views"]) else name
