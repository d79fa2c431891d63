"""Files of a folder, zip or tar file, read without anything being unpacked to disk."""

import os
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from re import Pattern
from typing import IO


def packed_files(source: Path, wanted: Pattern[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield files whose whole name in the source is ``wanted``, opened, by that name without a leading ``./``.

    Those of a folder, of which links are followed, come ordered by name, those of an archive, where links are left out,
    as they lie in it; names are never used as paths. Raises an OSError, or what zipfile and tarfile raise, for a source
    that cannot be read.
    """
    if source.is_dir():
        for path in sorted(
            Path(folder, name) for folder, _, names in os.walk(source, followlinks=True) for name in names
        ):
            name = path.relative_to(source).as_posix()
            if wanted.fullmatch(name) and path.is_file():
                with path.open("rb") as file:
                    yield name, file
        return
    with ExitStack() as opened:
        members: Iterator[tuple[str, IO[bytes] | None]]
        if zipfile.is_zipfile(source):
            archive = opened.enter_context(zipfile.ZipFile(source))
            members = ((name, archive.open(name)) for name in archive.namelist() if wanted.fullmatch(name))
        else:
            packed = opened.enter_context(tarfile.open(source))
            files = ((member.name.removeprefix("./"), member) for member in packed if member.isfile())
            members = ((name, packed.extractfile(member)) for name, member in files if wanted.fullmatch(name))
        yield from ((name, file) for name, file in members if file)
