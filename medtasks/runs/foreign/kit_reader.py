"""Shape of the readers of all kits, and the choice of the files of a folder that hold the replies of one run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from medtasks.data.table_files import TableRow
from medtasks.errors import RepliesError, join_names
from medtasks.runs.foreign.file_content import FileContent
from medtasks.runs.foreign.foreign_rows import ForeignFile


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
