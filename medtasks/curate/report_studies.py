"""Studies of reports and images, from which hallucination questions are drafted."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from medtasks.curate.knowledge_retrieval import knowledge_files, read_passages, retriever
from medtasks.curate.study import (
    IMAGES,
    Study,
    StudyImage,
    StudyKind,
    begun,
    checked_name,
    list_rows,
    write_lines,
    write_study,
)
from medtasks.data.catalogue import Access
from medtasks.data.dataset_manifest import file_sha256
from medtasks.data.images.decoding import LINEAR, decode_image, fault_of_kind
from medtasks.data.named_files import read_file
from medtasks.data.prepare.source_tables import SourceRow
from medtasks.errors import MedTasksError, SourceError
from medtasks.net.journal import digest_of

PASSAGES = "passages"
"""Key of the passages retrieved for a report."""
_SHOWN = ("bounding_boxes", "qa_pairs")  # enough for a visual question without a report
_CONTEXT: Mapping[StudyKind, tuple[str, ...]] = {
    StudyKind.VISUAL_CLOSED: ("metadata", *_SHOWN),
    StudyKind.CONTEXTUAL: ("notes",),
}


def planned_study(
    reports: Path,
    folder: Path,
    kind: StudyKind,
    name: str | None,
    access: Access,
    knowledge: Sequence[Path] = (),
    passages: int = 5,
) -> Study:
    """Return the study of a file of reports, before these are read; ``name`` is by default that of its folder.

    ``knowledge`` are files and folders of texts to retrieve from, ``passages`` the number shown with a report.
    """
    retrieves = kind is StudyKind.KNOWLEDGE_OPEN
    if retrieves != bool(knowledge):
        raise MedTasksError(
            "knowledge_open retrieves from texts of your own; name them with --knowledge FILE_OR_FOLDER"
            if retrieves
            else f"--knowledge is for knowledge_open, and {kind} retrieves nothing; leave it out"
        )
    if not reports.is_file():
        raise SourceError(f"there is no file {reports}; name a JSONL file with id, image and report in each line")
    texts = knowledge_files(knowledge)
    made_with = {
        "reports": file_sha256(reports)[:16],
        "knowledge": digest_of([file_sha256(file) for file in texts])[:16] if retrieves else None,
        "passages": passages if retrieves else None,
    }
    chosen = checked_name(name or folder.resolve().name)
    return Study(name=chosen, kind=kind, access=access, source=str(reports.resolve()), made_with=made_with)


def made_study(folder: Path, planned: Study, knowledge: Sequence[Path] = ()) -> Study:
    """Return the study in a folder, made from its reports unless it exists; it counts what is left out.

    Each line of the JSONL file of reports has ``id`` and ``image``, a path relative to the file's folder, and the
    fields that its kind needs of ``report``, ``notes``, ``metadata``, ``qa_pairs`` and ``bounding_boxes``; it may have
    ``group`` and ``licence``.
    """
    if study := begun(folder, planned):
        return study
    path, find = Path(planned.source), None
    if knowledge:
        find = retriever(read_passages(knowledge_files(knowledge)), planned.made_with["passages"])
    images: list[StudyImage] = []
    left_out: Counter[str] = Counter()
    for row in tqdm(list_rows(path, "id", "image"), "Reading", unit="report", disable=None):
        image = _image(path.parent, row, planned.kind, find)
        if isinstance(image, StudyImage):
            images.append(image)
        else:
            left_out[image] += 1
    if not images:
        why = ", ".join(f"{reason} ({count})" for reason, count in left_out.items())
        raise SourceError(f"{path} has nothing that {planned.kind} can be made of: {why or 'it is empty'}")
    study = planned.model_copy(update={"made_with": {**planned.made_with, "counts": dict(left_out)}})
    write_lines(folder / IMAGES, images)
    write_study(folder, study)
    return study


def _image(folder: Path, row: SourceRow, kind: StudyKind, find: Callable[[str], list[str]] | None) -> StudyImage | str:
    report = (row.optional_text("report") or "").strip()
    context: dict[str, Any] = {name: row.values[name] for name in _CONTEXT.get(kind, ()) if row.values.get(name)}
    if kind is StudyKind.CONTEXTUAL and not (row.optional_text("notes") or "").strip():
        return "it has no notes"
    if not report and not any(name in context for name in _SHOWN):
        others = ", no question pairs and no bounding boxes" if kind is StudyKind.VISUAL_CLOSED else ""
        return f"it has no report{others}"
    file = folder.resolve() / row.text("image")
    try:
        data = read_file(file)
    except (OSError, ValueError):  # also of a text that cannot be a file's name
        return "its image file cannot be opened"
    try:
        decode_image(file, LINEAR)
    except OSError as error:
        return fault_of_kind(error) or "its image cannot be read"
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
