"""Rows of result files of other kits before they are matched to samples, and the shape of the readers of all kits.

A reader also chooses the files of a folder that hold the replies of one run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError, join_names
from medtasks.runs.foreign.file_content import FileContent


@dataclass(frozen=True)
class ForeignRow:
    """One row of a file about one question. Texts are as written, not normalised.

    Attributes:
        number: Place in the kit's order, from 0.
        place: File and line, or cell, for messages.
        reply: The model's reply; ``""`` is an empty reply, None means that the kit says that the model gave none.
        identifier: Id in the file, as text; None without one.
        question: Text of the question alone; None where the file has only a prompt.
        options: Option texts in the order shown; None where the file has none in a place of their own.
        prompt: The whole prompt; None where the file has the question alone.
        image_names: File names, without folders, of the images.
        answer: Gold answer, a letter or a text; None without one.
        repeat: Which run of this question, from 0; None where the file knows only one run.
        reasoning: Thinking that the kit keeps in a field of its own; empty without one.
        is_cut: Whether the file says that the reply ended at a length limit.
    """

    number: int
    place: str
    reply: str | None
    identifier: str | None = None
    question: str | None = None
    options: tuple[str, ...] | None = None
    prompt: str | None = None
    image_names: tuple[str, ...] = ()
    answer: str | None = None
    repeat: int | None = None
    reasoning: str = ""
    is_cut: bool = False


@dataclass(frozen=True)
class ForeignFile:
    """All rows of one result file, or of the files of one run.

    Attributes:
        kit: Name of the kit, such as ``MedEvalKit``, for messages.
        rows: Its rows in the kit's order.
        reply_column: Column or key that the replies were read from.
        is_id_named: Whether the user named the column of ids, so that bare numbers in it are ids.
        has_our_prompts: Whether ``medtasks questions`` wrote what was asked.
        notes: Sentences about all rows, such as cells cut at a limit.
    """

    kit: str
    rows: tuple[ForeignRow, ...]
    reply_column: str
    is_id_named: bool = False
    has_our_prompts: bool = False
    notes: tuple[str, ...] = ()


def only_file(contents: Sequence[FileContent]) -> Sequence[FileContent]:
    """Return the one file of a folder, or raise RepliesError for several."""
    if len(contents) > 1:
        names = join_names([str(content.path) for content in contents])
        raise RepliesError(
            f"the folder holds {len(contents)} files of several runs or sets: {names}; name one"
        )
    return contents


@dataclass(frozen=True)
class KitReader:
    """Reader of the files of one kit.

    Attributes:
        name: Name of the kit, for messages.
        id_column: Column or key with the id of a question.
        recognise: Return whether the kit wrote a file.
        read: Return the rows of the files of one run, whose numbers are given later; RepliesError for what cannot be
            read.
        select: Return the files of a folder that hold the replies, each once; RepliesError for several runs.
    """

    name: str
    id_column: str
    recognise: Callable[[FileContent], bool]
    read: Callable[[Sequence[FileContent]], ForeignFile]
    select: Callable[[Sequence[FileContent]], Sequence[FileContent]] = only_file


def records_of(contents: Sequence[FileContent]) -> Iterator[TableRow]:
    """Yield the records of files, one file after the other."""
    for content in contents:
        yield from content.records()


def without_copies(
    contents: Sequence[FileContent],
    originals: Mapping[str, str] | None = None,
) -> list[FileContent]:
    """Leave out files made from others in their folder.

    Args:
        contents: Files of one kit.
        originals: Names, without endings, of files made from others: the name of the other. A name that goes on after
            that of another file and ``_`` is always one, such as ``results_0`` next to ``results``.
    """
    names = {(content.path.parent, content.path.stem) for content in contents}
    contents_kept = []
    for content in contents:
        stem = content.path.stem
        shorter = [*accumulate(stem.split("_"), "{}_{}".format)][:-1]
        shorter += [(originals or {}).get(stem, "")]
        if not any((content.path.parent, name) in names for name in shorter):
            contents_kept.append(content)
    return contents_kept
