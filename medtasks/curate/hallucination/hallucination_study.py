"""From reports to a study of hallucination questions: its images, and the texts that prompts show with each.

Knowledge for a report is retrieved from the user's own texts, passage by passage, by BM25. MedHEval retrieves from
radiology textbooks and USMLE questions and does not describe the method.
"""

import hashlib
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from medtasks.curate.study import (
    IMAGES,
    Study,
    StudyImage,
    StudyKind,
    begun,
    check_own_folder,
    checked_name,
    list_rows,
    write_lines,
)
from medtasks.data.catalogue import Access
from medtasks.data.dataset_manifest import file_sha256
from medtasks.data.images.decoding import LINEAR, decoded, fault_of_kind
from medtasks.data.prepare.source_files import SourceFile
from medtasks.data.prepare.table_files import SourceRow, json_lines
from medtasks.errors import MedTasksError, SourceError
from medtasks.net.journal import digest_of

PASSAGES = "passages"
"""Key of the passages retrieved for a report."""

PASSAGE = 1000
"""Most characters of a passage."""
_ENDINGS = (".txt", ".md", ".jsonl")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_SHOWN = ("bounding_boxes", "qa_pairs")  # enough for a visual question without a report
_CONTEXT: Mapping[StudyKind, tuple[str, ...]] = {
    StudyKind.VISUAL_CLOSED: ("metadata", *_SHOWN),
    StudyKind.CONTEXTUAL: ("notes",),
}


@dataclass(frozen=True)
class Knowledge:
    """Texts to retrieve from."""

    paths: Sequence[Path] = ()  # files and folders
    passages: int = 5  # shown with a report


def planned_study(
    reports: Path, folder: Path, kind: StudyKind, name: str | None, access: Access, knowledge: Knowledge
) -> Study:
    """Return the study of a file of reports, before these are read; ``name`` is by default that of its folder.

    MedTasksError: no study can have this name, or texts are missing or useless for this kind.
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
        "reports": file_sha256(reports)[:16],
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
    """Return the study in a folder, made from its reports unless it exists; it counts what is left out.

    SourceError: reports cannot be read or used. MedTasksError: the folder holds another study.
    """
    if study := begun(folder, planned):
        return study
    check_own_folder(folder, Path(planned.source))
    find = None
    if knowledge.paths:
        retriever = Retriever(read_passages(knowledge_files(knowledge.paths)))
        find = partial(retriever.best, count=knowledge.passages)
    images, counts = read_reports(Path(planned.source), planned.kind, find)
    study = planned.model_copy(update={"made_with": {**planned.made_with, "counts": dict(counts)}})
    write_lines(folder / IMAGES, images)
    study.write(folder)
    return study


def read_reports(
    path: Path, kind: StudyKind, find: Callable[[str], list[str]] | None = None
) -> tuple[list[StudyImage], Counter[str]]:
    """Return the images of a JSONL file of reports, and the number of others by reason.

    Each line has ``id`` and ``image``, a path relative to the file's folder, and the fields that its ``kind`` needs of
    ``report``, ``notes``, ``metadata``, ``qa_pairs`` and ``bounding_boxes``; it may have ``group`` and ``licence``.
    Passages that ``find`` returns are kept with each report. SourceError: a line cannot be read, an id occurs twice, or
    nothing can be used.
    """
    images: list[StudyImage] = []
    left_out: Counter[str] = Counter()
    for row in tqdm(list_rows(path, "id", "image"), "Reading", unit="report", disable=None):
        image = _image(path.parent, row, kind, find)
        if isinstance(image, StudyImage):
            images.append(image)
        else:
            left_out[image] += 1
    if not images:
        why = ", ".join(f"{reason} ({count})" for reason, count in left_out.items())
        raise SourceError(f"{path} has nothing that {kind} can be made of: {why or 'it is empty'}")
    return images, left_out


def _image(folder: Path, row: SourceRow, kind: StudyKind, find: Callable[[str], list[str]] | None) -> StudyImage | str:
    """Return the image of a row, or the reason to leave it out."""
    report = (row.optional_text("report") or "").strip()
    context: dict[str, Any] = {name: row.values[name] for name in _CONTEXT.get(kind, ()) if row.values.get(name)}
    if kind is StudyKind.CONTEXTUAL and not (row.optional_text("notes") or "").strip():
        return "it has no notes"
    if not report and not any(name in context for name in _SHOWN):
        others = ", no question pairs and no bounding boxes" if kind is StudyKind.VISUAL_CLOSED else ""
        return f"it has no report{others}"
    file = folder.resolve() / row.text("image")
    try:
        data = file.read_bytes()
    except (OSError, ValueError):  # also of a text that cannot be a file's name
        return "its image file cannot be opened"
    try:
        decoded(file, LINEAR)
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
        files = sorted(file for file in path.rglob("*") if file.suffix in _ENDINGS) if path.is_dir() else [path]
        if not files or not all(file.is_file() and file.suffix in _ENDINGS for file in files):
            raise SourceError(f"{path} is no {', '.join(_ENDINGS)} file and no folder with any")
        texts += files
    return list(dict.fromkeys(texts))


def knowledge_digest(files: Sequence[Path]) -> str:
    """Return sixteen hexadecimal digits that change with the files' contents and order."""
    return digest_of([file_sha256(file) for file in files])[:16]


def read_passages(files: Sequence[Path]) -> list[str]:
    """Return the passages of files in order, each once; SourceError for a file that is no text.

    A passage holds whole paragraphs of up to 1,000 characters together; a longer paragraph is cut at white space. A
    JSONL file has its texts under ``text``, and no passage reaches beyond one of them.
    """
    texts: list[str] = []
    for file in files:
        if file.suffix == ".jsonl":
            texts += [row.text("text") for row in json_lines(SourceFile(file), ("text",)).rows()]
            continue
        try:
            texts.append(file.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise SourceError(f"{file} is no text in UTF-8") from error
    passages: dict[str, None] = {}
    for text in texts:
        gathered = ""
        for paragraph in _PARAGRAPHS.split(text):
            for piece in textwrap.wrap(" ".join(paragraph.split()), PASSAGE, break_on_hyphens=False):
                if gathered and len(gathered) + len(piece) + 1 > PASSAGE:
                    passages[gathered] = None
                    gathered = ""
                gathered = f"{gathered}\n{piece}" if gathered else piece
        if gathered:
            passages[gathered] = None
    if not passages:
        raise SourceError(f"{files[0]} and the other texts hold nothing to retrieve")
    return list(passages)


class Retriever:
    """Search of passages that share words with a text, by bm25s (Lucene's BM25 without English stop words).

    MedTasksError: bm25s is not installed.
    """

    def __init__(self, passages: Sequence[str]) -> None:
        try:
            import bm25s
        except ImportError as error:
            raise MedTasksError(
                "to retrieve knowledge needs bm25s; install it with: pip install 'medtasks[curate]'"
            ) from error
        self._passages = passages
        self._tokenize = partial(bm25s.tokenize, return_ids=False, show_progress=False)
        self._index = bm25s.BM25()
        self._index.index(self._tokenize(list(passages)), show_progress=False)

    def best(self, text: str, count: int) -> list[str]:
        """Return up to ``count`` passages that share a word with a text, the best first, of equal ones the earlier."""
        import numpy as np

        tokens = self._index.get_tokens_ids(self._tokenize([text])[0])
        if not tokens:
            return []
        scores = self._index.get_scores_from_ids(tokens)
        order = np.argsort(-scores, kind="stable")[:count]
        return [self._passages[index] for index in order if scores[index] > 0]
