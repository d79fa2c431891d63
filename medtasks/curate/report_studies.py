"""Studies of reports and images, from which hallucination questions are drafted, with knowledge from own texts.

Knowledge for a report is retrieved from the user's texts, passage by passage, by BM25. MedHEval retrieves from
radiology textbooks and USMLE questions and does not describe the method.
"""

import hashlib
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

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
from medtasks.data.prepare.source_files import SourceFile
from medtasks.data.prepare.source_tables import SourceRow, json_lines
from medtasks.errors import MedTasksError, SourceError
from medtasks.net.journal import digest_of

PASSAGES = "passages"
"""Key of the passages retrieved for a report."""
_SHOWN = ("bounding_boxes", "qa_pairs")  # enough for a visual question without a report
_CONTEXT: Mapping[StudyKind, tuple[str, ...]] = {
    StudyKind.VISUAL_CLOSED: ("metadata", *_SHOWN),
    StudyKind.CONTEXTUAL: ("notes",),
}

PASSAGE = 1000
"""Most characters of a passage."""
_ENDINGS = (".txt", ".md", ".jsonl")


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
        raise SourceError(
            f"there is no file {reports}; name a JSONL file with id, image and report in each line"
        )
    texts = knowledge_files(knowledge)
    made_with = {
        "reports": file_sha256(reports)[:16],
        "knowledge": digest_of([file_sha256(file) for file in texts])[:16] if retrieves else None,
        "passages": passages if retrieves else None,
    }
    chosen = checked_name(name or folder.resolve().name)
    return Study(
        name=chosen, kind=kind, access=access, source=str(reports.resolve()), made_with=made_with
    )


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
        raise SourceError(
            f"{path} has nothing that {planned.kind} can be made of: {why or 'it is empty'}"
        )
    study = planned.model_copy(
        update={"made_with": {**planned.made_with, "counts": dict(left_out)}}
    )
    write_lines(folder / IMAGES, images)
    write_study(folder, study)
    return study


def _image(
    folder: Path, row: SourceRow, kind: StudyKind, find: Callable[[str], list[str]] | None
) -> StudyImage | str:
    report = (row.optional_text("report") or "").strip()
    context: dict[str, Any] = {
        name: row.values[name] for name in _CONTEXT.get(kind, ()) if row.values.get(name)
    }
    if kind is StudyKind.CONTEXTUAL and not (row.optional_text("notes") or "").strip():
        return "it has no notes"
    if not report and context.keys().isdisjoint(_SHOWN):
        others = (
            ", no question pairs and no bounding boxes" if kind is StudyKind.VISUAL_CLOSED else ""
        )
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


def knowledge_files(paths: Sequence[Path]) -> list[Path]:
    """List the text files of files and folders, in order; SourceError if one has none."""
    texts: list[Path] = []
    for path in paths:
        files = (
            sorted(file for file in path.rglob("*") if file.suffix in _ENDINGS)
            if path.is_dir()
            else [path]
        )
        if not files or not all(file.is_file() and file.suffix in _ENDINGS for file in files):
            raise SourceError(f"{path} is no {', '.join(_ENDINGS)} file and no folder with any")
        texts += files
    return list(dict.fromkeys(texts))


def read_passages(files: Sequence[Path]) -> list[str]:
    """Return the passages of files in order, each once: whole paragraphs of up to 1,000 characters together.

    A longer paragraph is cut at white space. A JSONL file has its texts under ``text``.
    """
    texts: list[str] = []
    for file in files:
        try:
            if file.suffix == ".jsonl":
                texts += [
                    row.text("text") for row in json_lines(SourceFile(file), ("text",)).rows()
                ]
            else:
                texts.append(file.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise SourceError(f"{file} is no text in UTF-8") from error
    passages: dict[str, None] = {}
    for text in texts:
        gathered = ""
        for paragraph in re.split(r"\n\s*\n", text):
            for piece in textwrap.wrap(
                " ".join(paragraph.split()), PASSAGE, break_on_hyphens=False
            ):
                if gathered and len(gathered) + len(piece) + 1 > PASSAGE:
                    passages[gathered] = None
                    gathered = ""
                gathered = f"{gathered}\n{piece}" if gathered else piece
        if gathered:
            passages[gathered] = None
    if not passages:
        raise SourceError(f"{files[0]} and the other texts hold nothing to retrieve")
    return list(passages)


def retriever(passages: Sequence[str], count: int) -> Callable[[str], list[str]]:
    """Return a search of up to ``count`` passages that share a word with a text, by bm25s.

    That is Lucene's BM25 without English stop words. The best come first, of equal ones the earlier.
    """
    try:
        import bm25s
    except ImportError as error:
        raise MedTasksError(
            "to retrieve knowledge needs bm25s; install it with: pip install 'medtasks[curate]'"
        ) from error
    tokenize = partial(bm25s.tokenize, return_ids=False, show_progress=False)
    index = bm25s.BM25()
    index.index(tokenize(list(passages)), show_progress=False)

    def best(text: str) -> list[str]:
        tokens = index.get_tokens_ids(tokenize([text])[0])
        if not tokens:
            return []
        scores = index.get_scores_from_ids(tokens)
        order = np.argsort(-scores, kind="stable")[:count]
        return [passages[number] for number in order if scores[number] > 0]

    return best
