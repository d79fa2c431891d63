"""Texts of a user's own from which knowledge is retrieved for a report, passage by passage, by BM25.

MedHEval retrieves from radiology textbooks and USMLE questions and does not say how.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from medtasks.data.journal import digest_of
from medtasks.data.json_tables import json_lines
from medtasks.data.source_files import SourceFile
from medtasks.errors import MedTasksError, SourceError

PASSAGE = 1000
"""Most characters of a passage."""

_ENDINGS = (".txt", ".md", ".jsonl")
_PARAGRAPHS = re.compile(r"\n\s*\n")


def knowledge_files(paths: Sequence[Path]) -> list[Path]:
    """Return the texts that files and folders name, in order; SourceError where one names none."""
    found: list[Path] = []
    for path in paths:
        files = sorted(one for one in path.rglob("*") if one.suffix in _ENDINGS) if path.is_dir() else [path]
        if not files or not all(one.is_file() and one.suffix in _ENDINGS for one in files):
            raise SourceError(f"{path} is no {', '.join(_ENDINGS)} file and no folder with any")
        found += files
    return list(dict.fromkeys(found))


def knowledge_digest(files: Sequence[Path]) -> str:
    """Return sixteen hexadecimal digits that change with what stands in the files and their order."""
    return digest_of([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])[:16]


def read_passages(files: Sequence[Path]) -> list[str]:
    """Return the passages of files in order, each once; SourceError for a file that is no text.

    A passage holds whole paragraphs of up to 1,000 characters together; a longer paragraph is cut at white space. A
    JSONL file has its texts under ``text``, and no passage reaches beyond one of them.
    """
    passages = dict.fromkeys(passage for file in files for text in _texts(file) for passage in _passages(text))
    if not passages:
        raise SourceError(f"{files[0]} and the other texts hold nothing to retrieve")
    return list(passages)


def _texts(file: Path) -> Iterator[str]:
    if file.suffix == ".jsonl":
        yield from (row.text("text") for row in json_lines(SourceFile(file), ("text",)).rows())
        return
    try:
        yield file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SourceError(f"{file} is no text in UTF-8") from error


def _passages(text: str) -> Iterator[str]:
    gathered = ""
    for paragraph in _PARAGRAPHS.split(text):
        for piece in _pieces(" ".join(paragraph.split())):
            if gathered and len(gathered) + len(piece) + 1 > PASSAGE:
                yield gathered
                gathered = ""
            gathered = f"{gathered}\n{piece}" if gathered else piece
    if gathered:
        yield gathered


def _pieces(paragraph: str) -> Iterator[str]:
    """Yield a paragraph, cut into pieces short enough for a passage."""
    while len(paragraph) > PASSAGE:
        end = paragraph.rfind(" ", 0, PASSAGE + 1)
        end = end if end > 0 else PASSAGE
        yield paragraph[:end]
        paragraph = paragraph[end:].lstrip()
    if paragraph:
        yield paragraph


class Retriever:
    """Finds passages that share words with a text, as bm25s ranks them (Lucene's BM25, English stop words left out).

    MedTasksError says that bm25s is not installed.
    """

    def __init__(self, passages: Sequence[str]) -> None:
        try:
            import bm25s
        except ImportError as error:
            raise MedTasksError(
                "to retrieve knowledge needs bm25s; install it with: pip install 'medtasks[curate]'"
            ) from error
        self._passages = passages
        self._index = bm25s.BM25()
        self._index.index(self._words(passages), show_progress=False)

    def best(self, text: str, count: int) -> list[str]:
        """Return up to ``count`` passages that share a word with a text, the best first, of equal ones the earlier."""
        import numpy as np

        (words,) = self._words([text])
        known = self._index.get_tokens_ids(words)
        if not known:
            return []
        scores = self._index.get_scores_from_ids(known)
        least = np.sort(np.partition(scores, -count)[-count:])[0] if count < len(scores) else 0.0
        found = [int(index) for index in np.flatnonzero((scores > 0) & (scores >= least))]
        return [self._passages[index] for index in sorted(found, key=lambda index: (-scores[index], index))[:count]]

    @staticmethod
    def _words(texts: Sequence[str]) -> list[list[str]]:
        import bm25s

        words: list[list[str]] = bm25s.tokenize(list(texts), return_ids=False, show_progress=False)
        return words
