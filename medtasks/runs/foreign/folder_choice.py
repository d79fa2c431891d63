"""The files of a folder that hold the replies of one run, each reply once."""

from collections.abc import Mapping, Sequence

from medtasks.errors import RepliesError, listed
from medtasks.runs.foreign.file_content import FileContent


def without_copies(contents: Sequence[FileContent], originals: Mapping[str, str] | None = None) -> list[FileContent]:
    """Leave out files made from others in their folder.

    Args:
        contents: Files of one kit.
        originals: Names, without endings, of files made from others: the name of the other. A name that goes on after
            that of another file and ``_`` is always one, such as ``results_0`` next to ``results``.
    """
    names = {(content.path.parent, content.path.stem) for content in contents}
    kept: list[FileContent] = []
    for content in contents:
        folder = content.path.parent
        parts = content.path.stem.split("_")
        shorter = {"_".join(parts[:count]) for count in range(1, len(parts))}
        shorter.add((originals or {}).get(content.path.stem, ""))
        if not any((folder, name) in names for name in shorter):
            kept.append(content)
    return kept


def only_file(kit: str, contents: Sequence[FileContent]) -> list[FileContent]:
    """Return the file of a run; RepliesError for several."""
    if len(contents) > 1:
        names = listed([str(content.path) for content in contents])
        raise RepliesError(
            f"there are {len(contents)} files of {kit} in the folder, of several runs or sets: {names}; name one"
        )
    return list(contents)
