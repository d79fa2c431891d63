"""Knowledge for a report, retrieved from the user's own texts, passage by passage, by BM25.

MedHEval retrieves from radiology textbooks and USMLE questions and does not describe the method.
"""

import re
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from medtasks.data.prepare.source_files import SourceFile
from medtasks.data.prepare.source_tables import json_lines
from medtasks.errors import MedTasksError, SourceError

PASSAGE = 1000
"""Most characters of a passage."""
_ENDINGS = (".txt", ".md", ".jsonl")


def knowledge_files(paths: Sequence[Path]) -> list[Path]:
    """List the text files of files and folders, in order; SourceError if one has none."""
    texts: list[Path] = []
    for path in paths:
        files = sorted(file for file in path.rglob("*") if file.suffix in _ENDINGS) if path.is_dir() else [path]
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
                texts += [row.text("text") for row in json_lines(SourceFile(file), ("text",)).rows()]
            else:
                texts.append(file.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise SourceError(f"{file} is no text in UTF-8") from error
    passages: dict[str, None] = {}
    for text in texts:
        gathered = ""
        for paragraph in re.split(r"\n\s*\n", text):
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
