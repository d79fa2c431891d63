"""From reports to a study of hallucination questions: which images there are, and what a prompt shows of each."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from medtasks.curate.knowledge import Retriever, knowledge_digest, knowledge_files, read_passages
from medtasks.curate.study import (
    IMAGES,
    STUDY,
    Study,
    StudyImage,
    StudyKind,
    check_own_folder,
    checked_name,
    is_text,
    read_study,
    write_lines,
)
from medtasks.data.catalogue import Access
from medtasks.data.decoding import LINEAR, decoded, mend_of
from medtasks.data.json_tables import json_lines
from medtasks.data.source_files import SourceFile
from medtasks.data.tables import SourceRow
from medtasks.errors import MedTasksError, SourceError

PASSAGES = "passages"
"""Under which a study keeps what was retrieved for a report."""

_SHOWN = ("bounding_boxes", "qa_pairs")  # of these a question on what is visible can be made without a report
_CONTEXT: Mapping[StudyKind, tuple[str, ...]] = {
    StudyKind.VISUAL_CLOSED: ("metadata", *_SHOWN),
    StudyKind.CONTEXTUAL: ("notes",),
}
_COUNTS = "counts"


@dataclass(frozen=True)
class Knowledge:
    """Texts to retrieve from, and how much of them is shown with a report."""

    paths: Sequence[Path] = ()  # files and folders
    passages: int = 5


def planned_study(
    reports: Path, folder: Path, kind: StudyKind, name: str | None, access: Access, knowledge: Knowledge
) -> Study:
    """Return the study that reports give, before they are read; ``name`` is by default that of its folder.

    A MedTasksError says that no study can have this name, that texts are missing for this kind, or have no use.
    """
    retrieves = kind is StudyKind.KNOWLEDGE_OPEN
    if retrieves != bool(knowledge.paths):
        raise MedTasksError(
            "knowledge_open retrieves from texts of your own; name them with --knowledge FILE_OR_FOLDER"
            if retrieves
            else f"--knowledge is for knowledge_open, and {kind} retrieves nothing; leave it out"
        )
    if not reports.is_file():
        raise SourceError(f"there is no file {reports}; name a JSONL file with id, image and report in each line")
    made_with = {
        "reports": hashlib.sha256(reports.read_bytes()).hexdigest()[:16],
        "knowledge": knowledge_digest(knowledge_files(knowledge.paths)) if retrieves else None,
        "passages": knowledge.passages if retrieves else None,
    }
    return Study(
        name=checked_name(name or folder.resolve().name),
        kind=kind,
        access=access,
        source=str(reports.resolve()),
        made_with=made_with,
    )


def made_study(folder: Path, planned: Study, knowledge: Knowledge) -> Study:
    """Return the study in a folder, made from its reports if there is none yet.

    What is left out stands in its counts, with the reason. SourceError is for reports that cannot be read or used, and
    a MedTasksError for a folder that holds another study.
    """
    if (folder / STUDY).is_file():
        study = read_study(folder)
        made_with = {name: value for name, value in study.made_with.items() if name != _COUNTS}
        if study.model_copy(update={"made_with": made_with}) != planned:
            raise MedTasksError(
                f"{folder} holds '{study.name}', which was made with other reports or options; take another --out"
            )
        return study
    check_own_folder(folder, Path(planned.source))
    find = None
    if knowledge.paths:
        retriever = Retriever(read_passages(knowledge_files(knowledge.paths)))
        find = partial(retriever.best, count=knowledge.passages)
    images, counts = read_reports(Path(planned.source), planned.kind, find)
    study = planned.model_copy(update={"made_with": {**planned.made_with, _COUNTS: dict(counts)}})
    write_lines(folder / IMAGES, images)
    study.write(folder)
    return study


def read_reports(
    path: Path, kind: StudyKind, find: Callable[[str], list[str]] | None = None
) -> tuple[list[StudyImage], Counter[str]]:
    """Return the images of a JSONL file of reports, and how many others are left out by reason.

    Each line has ``id`` and ``image``, a path from the file's folder on, and what its ``kind`` needs of ``report``,
    ``notes``, ``metadata``, ``qa_pairs`` and ``bounding_boxes``; it may have ``group`` and ``licence``. With ``find``
    its passages are kept beside each report. SourceError is for a line that cannot be read, for an id that occurs
    twice, and where nothing can be used.
    """
    images: dict[str, StudyImage] = {}
    left_out: Counter[str] = Counter()
    rows = json_lines(SourceFile(path), ("id", "image")).rows()
    for row in tqdm(rows, "Reading", unit="report", disable=None):
        name = row.name("id")
        if not is_text(row.values):
            raise row.error("it holds half a surrogate pair, which is no text")
        if not name or name in images:
            raise row.error("its id is empty" if not name else f"it has the id of {_first(path, name)}; ids are unique")
        image = _image(path.parent, row, kind, find)
        if isinstance(image, StudyImage):
            images[name] = image
        else:
            left_out[image] += 1
    if not images:
        why = ", ".join(f"{reason} ({count})" for reason, count in left_out.items())
        raise SourceError(f"{path} has nothing that {kind} can be made of: {why or 'it is empty'}")
    return list(images.values()), left_out


def _first(path: Path, name: str) -> str:
    """Return the place of the row that had an id first."""
    rows = json_lines(SourceFile(path), ("id",)).rows()
    return next(row.place for row in rows if row.name("id") == name)


def _image(folder: Path, row: SourceRow, kind: StudyKind, find: Callable[[str], list[str]] | None) -> StudyImage | str:
    """Return the image of a row, or why it is left out."""
    report = (row.optional_text("report") or "").strip()
    context: dict[str, Any] = {name: row.values[name] for name in _CONTEXT.get(kind, ()) if row.values.get(name)}
    if kind is StudyKind.CONTEXTUAL and not (row.optional_text("notes") or "").strip():
        return "it has no notes"
    if not report and not any(name in context for name in _SHOWN):
        shown = ", no question pairs and no bounding boxes" if kind is StudyKind.VISUAL_CLOSED else ""
        return f"it has no report{shown}"
    file = folder.resolve() / row.text("image")
    try:
        data = file.read_bytes()
    except (OSError, ValueError):  # a text that no file can have as its name, too
        return "its image file cannot be opened"
    try:
        decoded(file, LINEAR)
    except OSError as error:
        return mend_of(error) or "its image cannot be read"
    if find is not None:
        context[PASSAGES] = find(report)
    return StudyImage(
        image_id=row.name("id"),
        file=str(file),
        sha256=hashlib.sha256(data).hexdigest(),
        text=report,
        group=row.name("group") if row.values.get("group") is not None else None,
        licence=row.optional_text("licence"),
        context=context,
    )
