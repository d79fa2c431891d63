"""The records of MedHEval's files, as published, and the documents they become.

A record with a missing field, or a value of another type or an unknown one, is a SourceError.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from medtasks.data.medheval.gold import YES_NO, Flag, bare_letters, parsed_options, resolve_choice, resolve_yes_no
from medtasks.data.medheval.image_roots import image_source
from medtasks.data.schema import CLOSED_QUESTION, COMPONENT_REPORT, OPEN_QUESTION, Columns
from medtasks.data.source_files import SourceFile
from medtasks.data.tables import SourceRow, listed_records

BINARY, MULTI_CHOICE = "binary", "multi-choice"
HALLUCINATIONS: Mapping[str, str] = {
    "type_1": "anatomy",
    "type_2": "measurement",
    "type_3": "symptom",
    "type_4": "technique",
}
COMPONENTS = ("anatomy", "measurement", "symptom")
_PATIENT = re.compile(r"p\d{2}/p(\d+)/s\d+/")

Document = dict[str, Any]


@dataclass(frozen=True)
class RecordKind:
    """How the records of one file become documents."""

    columns: Columns  # of the documents
    fields: tuple[str, ...]  # what every record must have
    document: Callable[[SourceRow], Document]  # returns the columns of a record, without those about its images


def read_records(path: Path, kind: RecordKind) -> list[SourceRow]:
    """Return the records of a file in order; two of the same number are an error."""
    rows = list(listed_records(SourceFile(path), kind.fields).rows())
    first: dict[int, SourceRow] = {}
    for row in rows:
        before = first.setdefault(row.integer("qid"), row)
        if before is not row:
            raise row.error(f"it has the qid {row.integer('qid')} of row {before.index + 1}; qids must be unique")
    return rows


def source_of(row: SourceRow) -> str:
    """Return the source of a record's image, see :data:`~medtasks.data.medheval.image_roots.IMAGE_SOURCES`."""
    source = image_source(row.text("img_name"))
    if source is None:
        raise row.error("img_name has none of the forms xmlab7/x.jpg, synpic7.jpg, CXR7_IM-7/0.png, p10/p100/s5/x.jpg")
    return source


def document_of(row: SourceRow, kind: RecordKind, file: str) -> Document:
    """Return the columns of a record's document but for its images; its number is unique in the file only."""
    patient = _PATIENT.match(row.text("img_name"))
    return {
        "doc_id": f"{PurePosixPath(file).stem}/{row.integer('qid')}",
        "patient_id": patient[1] if patient else None,
        **kind.document(row),
    }


def _visual(row: SourceRow) -> Document:
    published = row.text("hallucination_type")
    if published not in HALLUCINATIONS:
        raise row.error(f"hallucination_type is '{published}', and only {', '.join(HALLUCINATIONS)} are known")
    kind = row.text("question_type")
    if kind not in (BINARY, MULTI_CHOICE):
        raise row.error(f"question_type is '{kind}', and only {BINARY} and {MULTI_CHOICE} are known")
    return _closed(row, kind, HALLUCINATIONS[published])


def _yes_no(row: SourceRow) -> Document:
    """Return a document of the files that do not say of which type their questions are: all are yes/no."""
    return _closed(row, BINARY, None)


def _closed(row: SourceRow, kind: str, hallucination: str | None) -> Document:
    question, choices, gold = row.text("question"), row.text("choices"), row.text("answer")
    if kind == BINARY:
        options, (answer, flags) = list(YES_NO), resolve_yes_no(gold, question, choices)
    else:
        options, answer, flags = _choice(choices, gold)
    return {
        "question": question,
        "kind": kind,
        "choices": choices,
        "options": options,
        "answer": answer,
        "gold": gold,
        "flags": [str(flag) for flag in flags],
        "hallucination": hallucination,
        "source": source_of(row),
        "modality": row.optional_text("modality"),
        "location": row.optional_text("location"),
    }


def _choice(choices: str, gold: str) -> tuple[list[str], str | None, tuple[Flag, ...]]:
    """Return options, answer and flags; letters without text ask for nothing, so that no answer is right."""
    options = parsed_options(choices)
    if options:
        return options, *resolve_choice(gold, options)
    letters = bare_letters(choices)
    return letters, None, (Flag.OPTIONS_WITHOUT_TEXT if letters else Flag.OPTIONS_UNPARSED,)


def _open(row: SourceRow) -> Document:
    return {
        "question": row.text("question"),
        "answer": row.text("answer"),
        "question_type": row.optional_text("question_type"),
    }


def _report(row: SourceRow) -> Document:
    components = row.values["structured_answer"]
    if not isinstance(components, dict):
        raise row.error("structured_answer is not an object with anatomy, measurement and symptom")
    lists = SourceRow(f"{row.place} structured_answer", row.index, {name: components.get(name) for name in COMPONENTS})
    return {
        "question": row.text("question"),
        "context": None,
        "indication": None,
        "report": row.text("answer"),
        **{name: lists.texts(name) for name in COMPONENTS},
    }


_SHARED = ("img_name", "question", "answer", "qid")
VISUAL = RecordKind(CLOSED_QUESTION, (*_SHARED, "hallucination_type", "question_type", "choices"), _visual)
YES_NO_ONLY = RecordKind(CLOSED_QUESTION, (*_SHARED, "choices"), _yes_no)
OPEN = RecordKind(OPEN_QUESTION, _SHARED, _open)
REPORT = RecordKind(COMPONENT_REPORT, (*_SHARED, "structured_answer"), _report)
KINDS: Mapping[str, RecordKind] = {
    "medheval_visual_mm": VISUAL,
    "medheval_visual_cxr": VISUAL,
    "medheval_visual_report": REPORT,
    "medheval_knowledge_closed": YES_NO_ONLY,
    "medheval_knowledge_open": OPEN,
    "medheval_context": YES_NO_ONLY,
}
