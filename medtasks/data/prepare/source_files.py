"""Finding a source's files, in a folder or still in the published archive.

Everything here raises SourceError: for a file that is missing or exists twice, and for a damaged or encrypted archive.
A source is a folder or a zip archive. Patterns are locations of a file, likeliest first: ``"US/test.jsonl"``, or
``"*.zip!*/US/test.jsonl"`` for a member of an archive. ``*`` is any text, in a member's name slashes included. Where
nothing matches, a location in a folder may differ from its pattern in capitals and punctuation.
"""

import contextlib
import fnmatch
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

from medtasks.data.named_files import read_named, read_stream
from medtasks.errors import SourceError

_MOST_UNPACKED = (
    200  # times the size of an archive; text is packed to a tenth, a file of zeros to a thousandth
)
_PUNCTUATION = re.compile(r"[\s_-]")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\b")
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError)
# A name from a table may be empty, that of a folder, or no name that a file can have.
_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, ValueError)


@dataclass(frozen=True)
class SourceFile:
    """A file of a source."""

    path: Path  # the file, or the archive that holds it
    member: str | None = None  # its name in the archive; None for a file of its own

    @property
    def name(self) -> str:
        """Its name in messages: ``test.jsonl``, or ``mednli.zip/mli_test_v1.jsonl``."""
        return (
            self.path.name if self.member is None else f"{self.path.name}/{Path(self.member).name}"
        )

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open for reading; that an archive is damaged may also show while reading."""
        if self.member is None:
            with self.path.open("rb") as stream:
                yield stream
        else:
            with (
                unpacking(self.path),
                open_archive(self.path) as archive,
                archive.open(self.member) as stream,
            ):
                yield stream


def open_archive(path: Path) -> zipfile.ZipFile:
    """Open a zip archive; SourceError if it would fill the disk."""
    archive = zipfile.ZipFile(path)
    size = sum(member.file_size for member in archive.infolist())
    if size > _MOST_UNPACKED * path.stat().st_size:
        raise SourceError(
            f"{path} would fill {size / 1e6:,.0f} MB, which no real one of its size does; download it again"
        )
    return archive


@contextlib.contextmanager
def unpacking(archive: Path) -> Iterator[None]:
    """Raise SourceError for Python's errors on a damaged or encrypted archive."""
    try:
        yield
    except _BROKEN as error:
        raise SourceError(f"{archive} cannot be unpacked ({error}); download it again") from error


@contextlib.contextmanager
def file_reader(
    folders: Sequence[Path], archives: Iterable[Path], below: Sequence[str]
) -> Iterator[Callable[[str], bytes]]:
    """Yield a function that reads a file by name, from folders or archives (after a prefix of ``below``).

    The function raises FileNotFoundError or UnusableFile.
    """
    with contextlib.ExitStack() as stack:
        opened: dict[Path, zipfile.ZipFile] = {}
        for path in archives:
            with unpacking(path):
                opened[path] = stack.enter_context(open_archive(path))

        def read(name: str) -> bytes:
            for folder in folders:
                with contextlib.suppress(*_NO_FILE):
                    return read_named(folder / name, folder)
            for path, archive in opened.items():
                for prefix in below:
                    with (
                        contextlib.suppress(KeyError),
                        unpacking(path),
                        archive.open(prefix + name) as stream,
                    ):
                        return read_stream(stream)
            raise FileNotFoundError(name)

        yield read


def folder_or_archive_reader(
    source: Path, folders: Sequence[str], archive: str, below: Sequence[str]
) -> contextlib.AbstractContextManager[Callable[[str], bytes]]:
    """Return a reader of files by name, in one of the ``folders`` of a source or below a prefix in their archive."""
    unpacked = [source / folder for folder in folders if (source / folder).is_dir()]
    archives = [source / archive] if (source / archive).is_file() else []
    if not unpacked and not archives:
        raise not_found(source, f"{archive} and no folder {folders[0]}")
    return file_reader(unpacked, archives, below)


def find_file(source: Path, patterns: Sequence[str]) -> SourceFile | None:
    """Return the file that the first matching pattern names, or None."""
    files = _matching(source, patterns)
    if len(files) > 1:
        names = " and ".join(
            str(file.member or file.path.relative_to(source)) for file in files[:2]
        )
        raise SourceError(f"{source} holds both {names}; keep the one that shall be used")
    return files[0] if files else None


def required_file(source: Path, patterns: Sequence[str], what: str | None = None) -> SourceFile:
    """Return the file that the first matching pattern names; messages call it ``what``, by default that pattern."""
    if file := find_file(source, patterns):
        return file
    raise not_found(source, what or patterns[0])


def physionet_file(source: Path, project: str, version: str, names: Sequence[str]) -> SourceFile:
    """Find a file of a PhysioNet project, whether the user names the project's folder or one it was downloaded into."""
    below = f"{project}/{version}"
    folders = (
        "",
        f"{version}/",
        f"{below}/",
        f"files/{below}/",
        f"physionet.org/files/{below}/",
        "*/",
    )
    return required_file(source, [folder + name for folder in folders for name in names])


def required_shards(
    source: Path, patterns: Sequence[str], what: str | None = None
) -> list[SourceFile]:
    """Return the files that the first matching pattern names, by name; an error where some or all are missing.

    Messages call them ``what``, by default the first pattern.
    """
    files = _matching(source, patterns)
    if not files:
        raise not_found(source, what or patterns[0])
    files.sort(key=lambda file: file.name)
    marks = [mark for file in files if (mark := _SHARD.search(file.name))]
    total, numbers = int(marks[0][2]) if marks else 0, sorted(int(mark[1]) for mark in marks)
    if marks and (len(files) != total or numbers != list(range(total))):
        missing = sorted(set(range(total)) - set(numbers))
        fault = (
            f"part {missing[0]:05d} of {total:05d} is missing"
            if missing
            else "its parts belong to several copies"
        )
        raise SourceError(
            f"{files[0].path.parent} holds {', '.join(file.name for file in files)}: {fault}"
        )
    return files


def not_found(source: Path, what: str, fix: str = "name the folder that holds it") -> SourceError:
    """Build the error for a source that lacks a file."""
    exists = source.is_dir() or zipfile.is_zipfile(source)
    return SourceError(
        f"{source}{'' if exists else ' is no folder and no zip archive and'} holds no {what}; {fix}"
    )


def _matching(source: Path, patterns: Sequence[str]) -> list[SourceFile]:
    for pattern in patterns:
        if files := _files_at(source, pattern):
            return files
    plain_patterns = [pattern for pattern in patterns if "*" not in pattern]
    variants = (_variants(source, pattern) for pattern in plain_patterns)
    return next(filter(None, variants), [])


def _files_at(source: Path, pattern: str) -> list[SourceFile]:
    outer, _, inner = pattern.partition("!")
    paths = sorted(source.glob(outer)) if source.is_dir() else []
    if not inner:
        return [SourceFile(path) for path in paths if path.is_file()]
    if not source.is_dir() and zipfile.is_zipfile(source):
        paths = [source]
    files: list[SourceFile] = []
    for archive in paths:
        with unpacking(archive), open_archive(archive) as opened:
            members = sorted(fnmatch.filter(opened.namelist(), inner))
        # Files that a Mac adds to an archive have the names of the real ones.
        files += [SourceFile(archive, name) for name in members if not name.startswith("__MACOSX/")]
    return files


def _variants(source: Path, location: str) -> list[SourceFile]:
    """Return the files whose location differs from a published one in capitals and punctuation only."""
    paths = [source]
    for part in location.split("/"):
        entries = chain.from_iterable(sorted(path.iterdir()) for path in paths if path.is_dir())
        paths = [entry for entry in entries if _letters(entry.name) == _letters(part)]
    return [SourceFile(path) for path in paths if path.is_file()]


def _letters(name: str) -> str:
    return _PUNCTUATION.sub("", name.casefold())
