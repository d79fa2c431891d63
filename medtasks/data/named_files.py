"""Files that other files name or hold: which of them are opened, and how much of one is read.

Tables, studies, task files and archives may come from anyone. A file that they name is opened only if it is a regular
one below the folder that its user named, by where its links lead. Sizes are limited so that no file takes more than
2 GB of memory, whatever is made of it.
"""

import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, AnyStr

from medtasks.errors import UnusableFile
from medtasks.home import dataset_holding

MOST_MEMORY = 1_800_000_000
"""Bytes that one file may take with all that is made of it; the process itself takes another 200 MB."""
MOST_WHOLE = 1 << 29
"""Bytes of a file, or a member of an archive, that is read whole: unpacking needs twice as many."""
MOST_TEXT = 1 << 26
"""Bytes of a line, or of a file of JSON or YAML: Python's objects may need 24 times as many."""
_PIECE = 1 << 20  # bytes
# Of the size of a large archive's members to that of the archive. Texts have 3 to 40.
_MOST_RATIO = 100
_WORK = "."  # first letter of the folders in which datasets are prepared


def check_size(size: int, most: int = MOST_WHOLE, name: str = "it") -> None:
    """Refuse a file that is too large.

    Args:
        size: In bytes.
        most: Allowed bytes.
        name: Of the file, for messages.

    Raises:
        UnusableFile: It is larger.
    """
    if size > most:
        raise UnusableFile(
            f"{name} takes more than {most / 1e6:,.0f} MB, as none of its kind does; make it smaller"
        )


def unpacked_size(archive: zipfile.ZipFile) -> int:
    """Return the size of all members of an archive in bytes, as its directory states it."""
    return sum(member.file_size for member in archive.infolist())


def check_archive(archive: zipfile.ZipFile, packed: int) -> None:
    """Refuse an archive that is large only when unpacked.

    Args:
        archive: Open for reading.
        packed: Its size in bytes.

    Raises:
        UnusableFile: It takes too much.
    """
    size = unpacked_size(archive)
    if size > max(MOST_TEXT, _MOST_RATIO * packed):
        raise UnusableFile(
            f"it unpacks to {size / 1e6:,.0f} MB, over {_MOST_RATIO} times its size, as no results do"
        )


def check_kind(path: Path) -> os.stat_result:
    """Return the state of a file or a folder.

    Raises:
        UnusableFile: It is a device or a pipe.
        OSError: It does not exist.
    """
    state = path.stat()
    if not (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)):
        raise UnusableFile("it is a device or a pipe, and no file")
    return state


def named_file(path: Path, folder: Path | None = None) -> Path:
    """Return the path of a file that another file names.

    Args:
        path: Of the file.
        folder: Where it has to be, by default its own.

    Raises:
        UnusableFile: It is outside of the folder, in a prepared dataset, or no regular file.
        OSError: It does not exist.
    """
    check_kind(path)
    folder = folder or path.parent
    root = Path(os.path.realpath(folder))
    allowed = [root]
    for parent in (root, *root.parents):
        # Files in the Hub's cache are links from a folder of snapshots to one next to it.
        if parent.name == "snapshots":
            allowed.append(parent.with_name("blobs"))
    is_below = any(map(Path(os.path.realpath(path)).is_relative_to, allowed))
    dataset = dataset_holding(path) or _WORK
    if not is_below or not dataset.startswith(_WORK):
        raise UnusableFile(
            f"it is outside of {folder} or in a prepared dataset; put a copy into the folder"
        )
    return path


def read_file(path: Path, most: int = MOST_WHOLE) -> bytes:
    """Return the content of a regular file.

    Args:
        path: Of the file.
        most: Allowed bytes.

    Raises:
        UnusableFile: It is a device or a pipe, or larger.
        OSError: It does not exist.
    """
    check_size(check_kind(path).st_size, most)
    return path.read_bytes()


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_named(path: Path, folder: Path | None = None, most: int = MOST_WHOLE) -> bytes:
    """Return the content of a file that another file names.

    Args:
        path: Of the file.
        folder: Where it has to be, by default its own.
        most: Allowed bytes.

    Raises:
        UnusableFile: As of :func:`named_file` and :func:`read_file`.
        OSError: It does not exist.
    """
    return read_file(named_file(path, folder), most)


def read_stream(stream: IO[bytes], most: int = MOST_WHOLE) -> bytes:
    """Return the rest of a stream whose length is unknown, such as what is packed.

    Args:
        stream: Open for reading.
        most: Allowed bytes.

    Raises:
        UnusableFile: It has more.
    """
    data = bytearray()
    while piece := stream.read(_PIECE):
        data += piece
        check_size(len(data), most)
    return bytes(data)


def limited_lines(stream: IO[AnyStr], name: str) -> Iterator[AnyStr]:
    """Yield the lines of a file.

    Args:
        stream: Open for reading.
        name: Of the file, for messages.

    Raises:
        UnusableFile: A line is longer than ``MOST_TEXT``.
    """
    while line := stream.readline(MOST_TEXT + 1):
        check_size(len(line), MOST_TEXT, f"a line of {name}")
        yield line
