"""Finding a source's files, in a folder or still in the published archive.

Everything here raises SourceError: for a file that is missing or exists twice, and for a damaged or encrypted archive.
A source is a folder or a zip archive. Patterns are locations of a file, likeliest first: ``"US/test.jsonl"``, or
``"*.zip!*/US/test.jsonl"`` for a member of an archive. ``*`` is any text, in a member's name slashes included. Where
nothing matches, a location in a folder may differ from its pattern in capitals and punctuation.
"""

import fnmatch
import itertools
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from medtasks.data.named_files import read_named, read_stream, unpacked_size
from medtasks.errors import SourceError

# Times the size of an archive. Text is packed to a tenth, a file of zeros to a thousandth.
_MOST_UNPACKED = 200
_PUNCTUATION = re.compile(r"[\s_-]")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\b")
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
)
# A name from a table may be empty, that of a folder, or no name that a file can have.
_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError)

ReadFile = Callable[[str], bytes]
"""Reads a file of a source by its name, FileNotFoundError or KeyError where there is no such file."""
OpenedFiles = AbstractContextManager[ReadFile]
"""Files of a source that a ``with`` block may read."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a source."""

    path: Path  # the file, or the archive that holds it
    member: str | None = None  # its name in the archive; None for a file of its own

    @property
    def name(self) -> str:
        """Its name in messages: ``test.jsonl``, or ``mednli.zip/mli_test_v1.jsonl``.

        Example:
            >>> SourceFile(Path("data/mednli.zip"), "mednli/mli_test_v1.jsonl").name
            'mednli.zip/mli_test_v1.jsonl'
        """
        if self.member is None:
            return self.path.name
        return f"{self.path.name}/{Path(self.member).name}"

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open for reading, as bytes, in a ``with`` statement.

        Raises:
            SourceError: The archive is damaged, encrypted or unreasonably large; also where that shows only while the
                block reads.
            FileNotFoundError: A file that is in no archive is gone.
        """
        if self.member is None:
            with self.path.open("rb") as stream:
                yield stream
            return
        with (
            unpacking(self.path),
            open_archive(self.path) as archive,
            archive.open(self.member) as stream,
        ):
            yield stream


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open a zip archive.

    Raises:
        SourceError: It would fill the disk.
    """
    archive = zipfile.ZipFile(path)
    size = unpacked_size(archive)
    if size > _MOST_UNPACKED * path.stat().st_size:
        raise SourceError(
            f"{path} would fill {size / 1e6:,.0f} MB, which no real one of its size does; download it again"
        )
    return archive


@contextmanager
def unpacking(archive: Path) -> Iterator[None]:
    """Raise SourceError for Python's errors on a damaged or encrypted archive."""
    try:
        yield
    except _BROKEN as error:
        raise SourceError(
            f"{archive} cannot be unpacked ({error}); download it again"
        ) from error


@contextmanager
def file_reader(
    folders: Sequence[Path],
    archives: Iterable[Path] = (),
    below: Sequence[str] = (),
) -> Iterator[ReadFile]:
    """Yield a function that reads a file by name.

    The function raises FileNotFoundError if the file is nowhere, and UnusableFile if it may not be read.

    Args:
        folders: Searched first.
        archives: Zip files, searched next.
        below: Prefixes to try before a name in each archive, ``""`` for none. Without any, archives are not searched.

    Raises:
        SourceError: An archive is damaged or encrypted; at the start, or where a file is read.
    """
    with ExitStack() as stack:
        opened = {}
        for path in archives:
            with unpacking(path):
                opened[path] = stack.enter_context(open_archive(path))

        def read(name: str) -> bytes:
            """Return the content of a file, see :func:`file_reader`."""
            for folder in folders:
                with suppress(*_NO_FILE):
                    return read_named(folder / name, folder)
            for path, archive in opened.items():
                for prefix in below:
                    with (
                        suppress(KeyError),
                        unpacking(path),
                        archive.open(prefix + name) as stream,
                    ):
                        return read_stream(stream)
            raise FileNotFoundError(name)

        yield read


def folder_or_archive_reader(
    source: Path,
    folders: Sequence[str],
    archive: str,
    below: Sequence[str],
) -> OpenedFiles:
    """Return a reader of files by name: from all of the folders that exist, then from the archive.

    Args:
        source: Folder of the user.
        folders: Where the files may be in it.
        archive: Name of the zip file.
        below: Prefixes to try before a name in the archive, ``""`` for none, see :func:`file_reader`.

    Raises:
        SourceError: There is neither a folder nor the archive. The reader raises it for a damaged archive.
    """
    unpacked = [source / folder for folder in folders if (source / folder).is_dir()]
    archives = [source / archive] if (source / archive).is_file() else []
    if not unpacked and not archives:
        raise not_found(source, f"{archive} and no folder {folders[0]}")
    return file_reader(unpacked, archives, below)


def find_file(source: Path, patterns: Sequence[str]) -> SourceFile | None:
    """Return the file that the first matching pattern names, or None if nothing matches, as without a source.

    Args:
        source: Folder or zip archive. In an archive only patterns with ``!`` match, whatever stands before it.
        patterns: See the head of this module.

    Raises:
        SourceError: Several files match, or an archive is damaged or encrypted.
    """
    files = _matching(source, patterns)
    if len(files) > 1:
        names = " and ".join(
            str(file.member or file.path.relative_to(source)) for file in files[:2]
        )
        raise SourceError(f"{source} holds both {names}; keep the one that shall be used")
    return files[0] if files else None


def required_file(source: Path, patterns: Sequence[str], what: str | None = None) -> SourceFile:
    """Return the file that the first matching pattern names.

    Args:
        source: Folder or zip archive.
        patterns: See the head of this module.
        what: Name of the file in messages, by default the first pattern.

    Raises:
        SourceError: No file matches, or several do.
    """
    file = find_file(source, patterns)
    if file is None:
        raise not_found(source, what or patterns[0])
    return file


def physionet_file(
    source: Path, project: str, version: str, names: Sequence[str]
) -> SourceFile:
    """Find a file of a PhysioNet project, whether the user names the project's folder or one it was downloaded into.

    Args:
        source: Folder of the user.
        project: Such as ``mimic-cxr-jpg``.
        version: Such as ``2.0.0``.
        names: That the file may have.
    """
    below = f"{project}/{version}"
    downloaded = f"files/{below}/"
    folders = ("", f"{version}/", f"{below}/", downloaded, f"physionet.org/{downloaded}", "*/")
    patterns = [folder + name for folder, name in itertools.product(folders, names)]
    return required_file(source, patterns)


def required_shards(
    source: Path,
    patterns: Sequence[str],
    what: str | None = None,
) -> list[SourceFile]:
    """Return the files that the first matching pattern names, by name.

    Args:
        source: Folder or zip archive.
        patterns: See the head of this module.
        what: Name of the files in messages, by default the first pattern.

    Raises:
        SourceError: No file matches, or a part of several is missing.
    """
    files = _matching(source, patterns)
    if not files:
        raise not_found(source, what or patterns[0])
    files.sort(key=lambda file: file.name)
    names = [file.name for file in files]
    marks = list(filter(None, map(_SHARD.search, names)))
    if not marks:
        return files
    total = int(marks[0][2])
    numbers = sorted(int(mark[1]) for mark in marks)
    if len(files) != total or numbers != list(range(total)):
        missing = sorted(set(range(total)) - set(numbers))
        fault = "its parts belong to several copies"
        if missing:
            fault = f"part {missing[0]:05d} of {total:05d} is missing"
        raise SourceError(f"{files[0].path.parent} holds {', '.join(names)}: {fault}")
    return files


def not_found(
    source: Path, what: str, fix: str = "name the folder that holds it"
) -> SourceError:
    """Build the error for a source that lacks a file.

    Args:
        source: Of the user.
        what: Name of the file.
        fix: How to give it.
    """
    exists = source.is_dir() or zipfile.is_zipfile(source)
    return SourceError(
        f"{source}{'' if exists else ' is no folder and no zip archive and'} holds no {what}; {fix}"
    )


def _matching(source: Path, patterns: Sequence[str]) -> list[SourceFile]:
    """Return the files that the first matching pattern names, none if no pattern matches."""
    for pattern in patterns:
        files = _files_at(source, pattern)
        if files:
            return files
    # Files whose location differs from a published one in capitals and punctuation only.
    for location in patterns:
        if "*" in location:
            continue
        paths = [source]
        for part in location.split("/"):
            below = [sorted(path.iterdir()) for path in paths if path.is_dir()]
            entries = itertools.chain.from_iterable(below)
            paths = [entry for entry in entries if _letters(entry.name) == _letters(part)]
        files = list(map(SourceFile, filter(Path.is_file, paths)))
        if files:
            return files
    return []


def _files_at(source: Path, pattern: str) -> list[SourceFile]:
    """Return the files at exactly the location of a pattern, by name. There may be none."""
    outer, _, inner = pattern.partition("!")
    paths = sorted(source.glob(outer)) if source.is_dir() else []
    if not inner:
        return list(map(SourceFile, filter(Path.is_file, paths)))
    if not source.is_dir() and zipfile.is_zipfile(source):
        paths = [source]
    files = []
    for archive in paths:
        with unpacking(archive), open_archive(archive) as opened:
            members = sorted(fnmatch.filter(opened.namelist(), inner))
        # Files that a Mac adds to an archive have the names of the real ones.
        files += [
            SourceFile(archive, name) for name in members if not name.startswith("__MACOSX/")
        ]
    return files


def _letters(name: str) -> str:
    return _PUNCTUATION.sub("", name.casefold())
