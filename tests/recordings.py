"""Recorded behaviour of reference code: the archives in ``recorded/``, unpacked once per session.

``python tests/recordings.py FOLDER`` packs ``FOLDER/golden`` and ``FOLDER/data`` again, one archive per subfolder.
"""

import lzma
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

ARCHIVES = Path(__file__).with_name("recorded")
# The folder that all processes of a session share; conftest.py names and removes it.
UNPACKED = "MEDTASKS_TEST_UNPACKED"
LOOSE = "files"  # the archive of the files that are in no subfolder


def recordings(variable: str, part: str) -> Path:
    """Return the folder that an environment variable names, by default a part of the unpacked archives.

    Args:
        variable: ``MEDTASKS_GOLDEN`` or ``MEDTASKS_TEST_DATA``.
        part: ``golden`` or ``data``.
    """
    named = os.environ.get(variable)
    return Path(named) if named else _unpacked() / part


def _unpacked() -> Path:
    folder = Path(os.environ[UNPACKED])
    if not folder.is_dir():
        own = Path(tempfile.mkdtemp(dir=folder.parent))
        for archive in sorted(ARCHIVES.glob("*/*.tar.xz")):
            unpack(archive, own / archive.parent.name)
        try:
            own.rename(folder)
        except OSError:  # another process of the session was first
            shutil.rmtree(own)
    return folder


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of an archive into a folder."""
    with tarfile.open(archive, "r:xz") as tar:
        # Python before 3.11.4 has no filters.
        tar.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        tar.extractall(folder)


def pack(files: Iterable[Path], root: Path, archive: Path) -> None:
    """Write an archive that depends on the names and contents of the files alone.

    Args:
        files: The files, in any order.
        root: The folder that their names in the archive are relative to.
        archive: The file to write.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (
        lzma.open(archive, "wb", preset=9 | lzma.PRESET_EXTREME) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for file in sorted(files):
            entry = tarfile.TarInfo(file.relative_to(root).as_posix())
            entry.size = file.stat().st_size
            with file.open("rb") as content:
                tar.addfile(entry, content)


def pack_all(source: Path) -> None:
    """Pack each subfolder of ``golden`` and ``data``, and the files next to them."""
    for part in (source / "golden", source / "data"):
        archives: dict[str, list[Path]] = {}
        for file in filter(Path.is_file, part.rglob("*")):
            names = file.relative_to(part).parts
            archives.setdefault(names[0] if len(names) > 1 else LOOSE, []).append(file)
        for name, files in archives.items():
            pack(files, part, ARCHIVES / part.name / f"{name}.tar.xz")


if __name__ == "__main__":
    pack_all(Path(sys.argv[1]))
