"""The records of MedHEval's files, as published, the documents they become, and where the images they name lie.

A record with a missing field, or a value of another type or an unknown one, is a SourceError. The benchmark ships no
images. Each of four sources has a root of its own on the user's disk; questions name an image by its path below it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from medtasks.data.prepare.source_files import SourceFile
from medtasks.data.prepare.table_files import SourceRow, listed_records
from medtasks.data.schema import CLOSED_QUESTION, COMPONENT_REPORT, OPEN_QUESTION, Columns
from medtasks.data.sources.medheval.gold import (
    YES_NO,
    Flag,
    bare_letters,
    parsed_options,
    resolve_choice,
    resolve_yes_no,
)
from medtasks.errors import SourceError, unknown_name


@dataclass(frozen=True)
class ImageSource:
    """One source of images."""

    title: str
    names: re.Pattern[str]  # of its images
    folders: tuple[str, ...]  # where the images lie below the folder a user names, likeliest first
    expected: str  # what to name, for messages
    private: bool = False  # names hold numbers of patients and stay out of messages


_PHYSIONET = "physionet.org/files/mimic-cxr-jpg"
IMAGE_SOURCES: Mapping[str, ImageSource] = {
    "slake": ImageSource(
        "SLAKE", re.compile(r"xmlab\d+/[\w-]+\.\w+"), ("", "imgs", "imgs/imgs"), "SLAKE's folder imgs"
    ),
    "vqa_rad": ImageSource(
        "VQA-RAD",
        re.compile(r"synpic\d+\.\w+"),
        ("", "images", "VQA_RAD Image Folder"),
        "the image folder of VQA-RAD at https://osf.io/89kps",
    ),
    "iu_xray": ImageSource(
        "IU-Xray",
        re.compile(r"CXR[\w-]+/[\w-]+\.\w+"),
        ("", "images", "iu_xray/images"),
        "the folder images of IU-Xray in R2Gen's package",
    ),
    "mimic_cxr": ImageSource(
        "MIMIC-CXR-JPG",
        re.compile(r"p\d{2}/p\d+/s\d+/[\w-]+\.\w+"),
        ("", "files", "2.1.0/files", "2.0.0/files", f"{_PHYSIONET}/2.1.0/files", f"{_PHYSIONET}/2.0.0/files"),
        "the folder files of MIMIC-CXR-JPG",
        private=True,
    ),
}
_UNASKED = ("images", "images/{0}", "{0}", "")  # where images may lie below the benchmark's own folder


class ImageRoots:
    """Finds image files by their source and the name that questions have for them.

    What the user does not name is looked for below the benchmark's own folder, in ``images``, ``images/<source>``,
    ``<source>`` and the folder itself. UnknownName is for a source, SourceError for a folder that does not exist.
    """

    def __init__(self, source: Path, named: Mapping[str, Path]) -> None:
        for key, folder in named.items():
            if key not in IMAGE_SOURCES:
                raise unknown_name("source of images", key, IMAGE_SOURCES)
            if not folder.is_dir():
                raise SourceError(f"the folder of {IMAGE_SOURCES[key].title} images, {folder}, does not exist")
        self._source, self._named = source, named
        self._folders: dict[str, list[Path]] = {}
        for key, images in IMAGE_SOURCES.items():
            roots = [named[key]] if key in named else [source / place.format(key) for place in _UNASKED]
            below = (root / folder for root in roots for folder in images.folders)
            self._folders[key] = list(dict.fromkeys(folder for folder in below if folder.is_dir()))

    def searched(self, key: str) -> Path:
        """Return the folder below which the images of a source are looked for."""
        return self._named.get(key, self._source)

    def find(self, key: str, name: str) -> Path | None:
        """Return the file of an image, or None where there is none."""
        return next((folder / name for folder in self._folders[key] if (folder / name).is_file()), None)


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
    """Return the source of a record's image, see :data:`IMAGE_SOURCES`."""
    name = row.text("img_name")
    source = next((key for key, images in IMAGE_SOURCES.items() if images.names.fullmatch(name)), None)
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


def _closed(row: SourceRow, kind: str, hallucination: str | None) -> Document:
    question, choices, gold = row.text("question"), row.text("choices"), row.text("answer")
    if kind == BINARY:
        options, (answer, flags) = list(YES_NO), resolve_yes_no(gold, question, choices)
    elif options := parsed_options(choices):
        answer, flags = resolve_choice(gold, options)
    else:  # letters without text ask for nothing, so that no answer is right
        options, answer = bare_letters(choices), None
        flags = (Flag.OPTIONS_WITHOUT_TEXT if options else Flag.OPTIONS_UNPARSED,)
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
# Files that do not say of which type their questions are: all are yes/no.
YES_NO_ONLY = RecordKind(CLOSED_QUESTION, (*_SHARED, "choices"), lambda row: _closed(row, BINARY, None))
OPEN = RecordKind(
    OPEN_QUESTION,
    _SHARED,
    lambda row: {
        **{name: row.text(name) for name in ("question", "answer")},
        "question_type": row.optional_text("question_type"),
    },
)
REPORT = RecordKind(COMPONENT_REPORT, (*_SHARED, "structured_answer"), _report)
KINDS: Mapping[str, RecordKind] = {
    "medheval_visual_mm": VISUAL,
    "medheval_visual_cxr": VISUAL,
    "medheval_visual_report": REPORT,
    "medheval_knowledge_closed": YES_NO_ONLY,
    "medheval_knowledge_open": OPEN,
    "medheval_context": YES_NO_ONLY,
}
