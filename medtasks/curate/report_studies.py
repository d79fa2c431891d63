"""Studies of reports and images, from which hallucination questions are drafted, with knowledge from own texts.

Knowledge for a report is retrieved from the user's texts, passage by passage, by BM25. MedHEval retrieves from
radiology textbooks and USMLE questions and does not describe the method.
"""

import hashlib
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    checked_name,
    existing_study,
    list_rows,
    write_lines,
    write_study,
)
from medtasks.data.catalogue import Access
from medtasks.data.images.decoding import LINEAR, decode_image, fault_of_kind
from medtasks.data.named_files import file_sha256, read_file
from medtasks.data.prepare.source_files import SourceFile
from medtasks.data.prepare.source_tables import SourceRow, json_lines
from medtasks.errors import MedTasksError, SourceError
from medtasks.net.journal import digest_of

PASSAGES = "passages"
"""Key of the passages retrieved for a report."""
# Either is enough for a visual question without a report.
_SHOWN = ("bounding_boxes", "qa_pairs")
_CONTEXT: Mapping[StudyKind, tuple[str, ...]] = {
    StudyKind.VISUAL_CLOSED: ("metadata", *_SHOWN),
    StudyKind.CONTEXTUAL: ("notes",),
}

PASSAGE = 1000
"""Most characters of a passage."""
_ENDINGS = (".txt", ".md", ".jsonl")

Search = Callable[[str], list[str]]
"""From a text to passages."""


def planned_study(
    reports: Path,
    folder: Path,
    kind: StudyKind,
    name: str | None,
    access: Access,
    knowledge: Sequence[Path] = (),
    passages: int = 5,
) -> Study:
    """Return the study of a file of reports, before these are read.

    Args:
        reports: JSONL file, see :func:`made_study`.
        folder: Folder of the study.
        kind: Kind of the questions. Only ``knowledge_open`` retrieves passages.
        name: Name of the dataset that it becomes, by default that of the folder.
        access: Who may see the study.
        knowledge: Files and folders of texts to retrieve from.
        passages: Most passages shown with a report.

    Raises:
        MedTasksError: The kind and ``knowledge`` do not fit, or the name cannot be a task's.
        SourceError: There is no file of reports, or a text of ``knowledge`` is no text.
    """
    retrieves = kind is StudyKind.KNOWLEDGE_OPEN
    if retrieves and not knowledge:
        raise MedTasksError(
            "knowledge_open retrieves from texts of your own; name them with --knowledge FILE_OR_FOLDER"
        )
    if knowledge and not retrieves:
        raise MedTasksError(
            f"--knowledge is for knowledge_open, and {kind} retrieves nothing; leave it out"
        )
    if not reports.is_file():
        raise SourceError(
            f"there is no file {reports}; name a JSONL file with id, image and report in each line"
        )
    texts = knowledge_files(knowledge)
    reports_digest = file_sha256(reports)[:16]
    made_with: dict[str, Any] = {"reports": reports_digest, "knowledge": None, "passages": None}
    if retrieves:
        digests = list(map(file_sha256, texts))
        made_with |= {"knowledge": digest_of(digests)[:16], "passages": passages}
    return Study(
        name=checked_name(name or folder.resolve().name),
        kind=kind,
        access=access,
        source=str(reports.resolve()),
        made_with=made_with,
    )


def made_study(folder: Path, planned: Study, knowledge: Sequence[Path] = ()) -> Study:
    """Return the study in a folder, or make it from the file of reports.

    Each line of the JSONL file of reports has ``id`` and ``image``, a path relative to the file's folder, and the
    fields that its kind needs of ``report``, ``notes``, ``metadata``, ``qa_pairs`` and ``bounding_boxes``; it may have
    ``group`` and ``licence``.

    Args:
        folder: Folder of the study.
        planned: Description of the study, from :func:`planned_study`.
        knowledge: Files and folders of texts to retrieve from, as they were given to :func:`planned_study`.

    Returns:
        The study. ``made_with["counts"]`` has the number of reports left out, by reason.

    Raises:
        SourceError: No report can be used, or a line of the file is malformed.
        MedTasksError: The folder holds another study or other files.
    """
    existing = existing_study(folder, planned)
    if existing is not None:
        return existing
    path = Path(planned.source)
    find = None
    if knowledge:
        passages = read_passages(knowledge_files(knowledge))
        find = retriever(passages, planned.made_with["passages"])
    images = []
    left_out = Counter[str]()
    for row in tqdm(list_rows(path, "id", "image"), "Reading", unit="report", disable=None):
        image = _image_or_fault(path.parent, row, planned.kind, find)
        if isinstance(image, StudyImage):
            images.append(image)
        else:
            left_out[image] += 1
    if not images:
        why = ", ".join(f"{reason} ({count})" for reason, count in left_out.items())
        raise SourceError(
            f"{path} has nothing that {planned.kind} can be made of: {why or 'it is empty'}"
        )
    made_with = {**planned.made_with, "counts": dict(left_out)}
    study = planned.model_copy(update={"made_with": made_with})
    write_lines(folder / IMAGES, images)
    write_study(folder, study)
    return study


def _image_or_fault(
    folder: Path,
    row: SourceRow,
    kind: StudyKind,
    find: Search | None,
) -> StudyImage | str:
    """Return the image of a row, or why it is left out.

    Args:
        folder: Folder of the file of reports, to which its paths of images are relative.
        row: Line of that file.
        kind: Kind of the study. It decides which texts the row must have, and which are kept.
        find: Search for the passages of a report, None for a study without knowledge.
    """
    report = (row.optional_text("report") or "").strip()
    context: dict[str, Any] = {}
    for name in _CONTEXT.get(kind, ()):
        if row.values.get(name):
            context[name] = row.values[name]
    if kind is StudyKind.CONTEXTUAL and not (row.optional_text("notes") or "").strip():
        return "it has no notes"
    if not report and context.keys().isdisjoint(_SHOWN):
        if kind is StudyKind.VISUAL_CLOSED:
            return "it has no report, no question pairs and no bounding boxes"
        return "it has no report"
    file = folder.resolve() / row.text("image")
    digest_or_fault = _digest_or_fault(file)
    if isinstance(digest_or_fault, str):
        return digest_or_fault
    if find is not None:
        context[PASSAGES] = find(report)
    return StudyImage(
        image_id=row.name("id"),
        file=str(file),
        sha256=digest_or_fault.hex(),
        text=report,
        group=None if row.values.get("group") is None else row.name("group"),
        licence=row.optional_text("licence"),
        context=context,
    )


def _digest_or_fault(file: Path) -> bytes | str:
    """Return the SHA-256 of an image file, or in words why the file cannot be used."""
    try:
        data = read_file(file)
    except (OSError, ValueError):  # also of a text that cannot be a file's name
        return "its image file cannot be opened"
    try:
        decode_image(file, LINEAR)
    except OSError as error:
        return fault_of_kind(error) or "its image cannot be read"
    return hashlib.sha256(data).digest()


def knowledge_files(paths: Sequence[Path]) -> list[Path]:
    """List the text files of files and folders, in order, each once.

    Raises:
        SourceError: A file is of another kind, or a folder has no text file.
    """
    texts = []
    for path in paths:
        files = [path]
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in _ENDINGS)
        if not files or not all(file.is_file() and file.suffix in _ENDINGS for file in files):
            raise SourceError(f"{path} is no {', '.join(_ENDINGS)} file and no folder with any")
        texts += files
    return list(dict.fromkeys(texts))


def read_passages(files: Sequence[Path]) -> list[str]:
    """Return the passages of files in order, each once.

    A passage is whole paragraphs of up to 1,000 characters together. A longer paragraph is cut at white space.

    Args:
        files: Texts in UTF-8. A JSONL file has its texts under ``text``.

    Raises:
        SourceError: A file is no text, or the files hold nothing.
    """
    texts = []
    for file in files:
        try:
            if file.suffix == ".jsonl":
                rows = json_lines(SourceFile(file), ("text",)).rows()
                texts += [row.text("text") for row in rows]
            else:
                texts.append(file.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise SourceError(f"{file} is no text in UTF-8") from error
    passages: dict[str, None] = {}
    for text in texts:
        passages |= dict.fromkeys(_passages_of(text))
    if not passages:
        raise SourceError(f"{files[0]} and the other texts hold nothing to retrieve")
    return list(passages)


def _passages_of(text: str) -> Iterator[str]:
    """Yield the passages of a text, see :func:`read_passages`."""
    gathered = ""
    for paragraph in re.split(r"\n\s*\n", text):
        words = " ".join(paragraph.split())
        for piece in textwrap.wrap(words, PASSAGE, break_on_hyphens=False):
            if gathered and len(gathered) + len(piece) + 1 > PASSAGE:
                yield gathered
                gathered = ""
            gathered = f"{gathered}\n{piece}" if gathered else piece
    if gathered:
        yield gathered


def retriever(passages: Sequence[str], count: int) -> Search:
    """Return a search for passages that share a word with a text, by bm25s.

    That is Lucene's BM25 without English stop words.

    Args:
        passages: Texts to search.
        count: Most passages that a search returns.

    Returns:
        A function from a text to its passages, the best first, of equal ones the earlier.

    Raises:
        MedTasksError: bm25s is not installed.
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
        """Return the passages with a score above 0, none for a text of stop words and unknown words alone."""
        tokens = index.get_tokens_ids(tokenize([text])[0])
        if not tokens:
            return []
        scores = index.get_scores_from_ids(tokens)
        order = np.argsort(-scores, kind="stable")[:count]
        return [passages[number] for number in order if scores[number] > 0]

    return best
