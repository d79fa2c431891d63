"""WordNet's database, from which METEOR takes its synonyms.

It is in ``$MEDTASKS_HOME/nltk_data/corpora/wordnet``, which ``medtasks weights fetch wordnet`` fills and which NLTK
reads, too; a WordNet in NLTK's own data folders serves as well. Nothing here downloads but :func:`prepare_wordnet`.

NLTK's reader is handed the database in memory: by path it reads only from its own data folders, asks for files that
METEOR does not need and for a second WordNet to compare with, and does not notice a damaged database.

Source: ``wndb(5WN)`` of WordNet 3.0, https://wordnet.princeton.edu.
"""

import io
import os
import re
import shutil
import tarfile
import tempfile
import warnings
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from medtasks.errors import WeightsMissing
from medtasks.home import home
from medtasks.metrics.weight_files import packed_files
from medtasks.metrics.word_overlaps import from_report_extra

_FETCH = "medtasks weights fetch wordnet"
PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
_NEEDED = tuple(f"{kind}.{part}" for kind in ("data", "index") for part in PARTS_OF_SPEECH) + tuple(
    f"{part}.exc" for part in PARTS_OF_SPEECH
)
_KEPT = ("LICENSE", "README", "citation.bib", "cntlist.rev", "index.sense", "lexnames")  # the rest of NLTK's package
_MARK = _NEEDED[0]
_FILE = re.compile(rf"(?:.*/)?(?:{'|'.join(map(re.escape, (*_NEEDED, *_KEPT)))})")
# For a database without names of the lexicographers' files; synonyms have no use for them.
_NO_NAMES = "".join(f"{number:02d}\tunnamed\t0\n" for number in range(100)).encode()


def read_wordnet(source: Path) -> Any:
    """Return NLTK's ``WordNetCorpusReader`` of a folder or archive, which remembers the words it was asked for.

    Raises what :func:`database_files` does.
    """
    nltk = from_report_extra("nltk.corpus.reader.wordnet", "METEOR")
    data = from_report_extra("nltk.data", "METEOR")
    files = {"lexnames": _NO_NAMES, **database_files(source)}

    class Reader(nltk.WordNetCorpusReader):  # type: ignore[misc,name-defined]  # nltk has no types
        def open(self, file: str) -> io.TextIOWrapper:
            return io.TextIOWrapper(io.BytesIO(files[file]), "utf-8")

        def map_wn(self, version: str = "wordnet") -> None:
            """Leave out what only other languages need, and NLTK looks for in its own data folders."""

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are no other languages
            reader = Reader(data.ZipFilePathPointer(None), None)  # of no file: all come from open
    except (ValueError, LookupError, StopIteration, nltk.WordNetError) as error:
        raise WeightsMissing(f"WordNet in {source} is damaged: {error}") from error
    reader.synsets = lru_cache(maxsize=None)(reader.synsets)
    return reader


def database_files(source: Path) -> dict[str, bytes]:
    """Read the files of WordNet's database from a folder, zip or tar file with the database somewhere in it.

    That is NLTK's ``wordnet.zip``, a folder of NLTK data, Princeton's ``WNdb-3.0.tar.gz`` or what it unpacks to, or
    ``/usr/share/wordnet`` of Debian. Line ends become those of Princeton's files: the index gives places in the data by
    their byte, which other line ends would move.

    Contents are by name: ``data.noun``, ``index.noun``, ``noun.exc`` and so on, and the other files of NLTK's package
    that are there. Raises WeightsMissing where they are not there, not complete, there more than once, or damaged.
    """
    try:
        members = {name: file.read() for name, file in packed_files(source, _FILE)}
        zipped = [] if members or not source.is_dir() else sorted(source.rglob("wordnet.zip"))
        if zipped:
            members = {name: file.read() for name, file in packed_files(zipped[0], _FILE)}
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise WeightsMissing(f"WordNet cannot be read from {source} ({error}); give its folder or archive") from error
    folders = sorted(name.removesuffix(_MARK) for name in members if name == _MARK or name.endswith(f"/{_MARK}"))
    if not folders:
        raise WeightsMissing(f"there is no WordNet database in {source}; it has files like '{_MARK}'")
    if len(folders) > 1 and folders[0]:
        raise WeightsMissing(f"{source} holds several WordNet databases; give one of them: {', '.join(folders)}")
    files = {
        name: members[folders[0] + name].replace(b"\r", b"") for name in _NEEDED + _KEPT if folders[0] + name in members
    }
    if missing := [name for name in _NEEDED if name not in files]:
        raise WeightsMissing(f"WordNet in {source} is not complete: {', '.join(missing)} missing")
    try:
        for part in PARTS_OF_SPEECH:
            _check(files[f"index.{part}"], files[f"data.{part}"])
    except (ValueError, IndexError) as error:
        raise WeightsMissing(f"WordNet in {source} is damaged: {error}") from error
    return files


def _check(index: bytes, data: bytes) -> None:
    """Raise ValueError or IndexError where index and data do not fit each other."""
    listed: set[bytes] = set()
    for fields in (line.split() for line in index.splitlines() if not line.startswith(b" ")):  # without the licence
        places = fields[-int(fields[2]) :]
        if not all(data.startswith(place + b" ", int(place)) for place in places):
            raise ValueError(f"its index does not fit its data at '{fields[0].decode(errors='replace')}'")
        listed.update(places)
    if len(listed) != sum(not line.startswith(b" ") for line in data.splitlines()) or not data.endswith(b"\n"):
        raise ValueError("its index or its data is cut short")


def wordnet_folder() -> Path:
    """Return the folder that ``medtasks weights fetch wordnet`` fills, whether or not it exists."""
    return home() / "nltk_data" / "corpora" / "wordnet"


def load_wordnet() -> Any:
    """Return :func:`read_wordnet` of the database on this machine, read once per process in a second or two.

    Raises a MedTasksError where NLTK is not installed, WeightsMissing where WordNet is not here or cannot be read.
    """
    corpora = [Path(str(folder), "corpora") for folder in _nltk().data.path]
    for path in (wordnet_folder(), *(folder / name for folder in corpora for name in ("wordnet", "wordnet.zip"))):
        if path.exists():
            return _read(path)
    raise WeightsMissing(
        f"WordNet, where METEOR's synonyms come from, is neither in {wordnet_folder()} nor in NLTK's data folders "
        f"(https://wordnet.princeton.edu, 11 MB); fetch it with '{_FETCH}', or take 'meteor_without_synonyms'"
    )


@lru_cache(maxsize=2)
def _read(path: Path) -> Any:
    try:
        return read_wordnet(path)
    except WeightsMissing as error:
        raise WeightsMissing(f"{error}; bring it anew with '{_FETCH}'") from error


def prepare_wordnet(source: Path | None = None) -> Path:
    """Put WordNet into :func:`wordnet_folder`, in the place of what is there, and return that folder.

    It comes from a folder or archive, see :func:`database_files`; None: NLTK downloads it (WordNet 3.0). NLTK accepts
    the folder, because no one but its owner may write to it. Raises a MedTasksError where NLTK is to download it and is
    not installed, WeightsMissing for a source without usable database, a failed download or a folder that cannot be
    written.
    """
    folder = wordnet_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home(), prefix=".wordnet-") as scratch:
            if source is None:
                _download(scratch)
            fresh = Path(scratch) / "fresh"
            files = database_files(source or Path(scratch))
            fresh.mkdir()
            for name, content in files.items():
                (fresh / name).write_bytes(content)
                (fresh / name).chmod(0o644)
            for place in (fresh, folder.parent, folder.parent.parent):
                place.chmod(0o755)
            if folder.exists():
                shutil.move(folder, Path(scratch) / "before")
            os.replace(fresh, folder)
    except OSError as error:
        raise WeightsMissing(
            f"WordNet cannot be written to {folder} ({error.strerror or error}); make room, or set MEDTASKS_HOME to a "
            "folder of your own"
        ) from error
    _read.cache_clear()
    return folder


def _download(folder: str) -> None:
    nltk = _nltk()
    searched = list(nltk.data.path)
    try:
        nltk.download("wordnet", folder, quiet=True, raise_on_error=True, print_error_to=io.StringIO())
    except (OSError, ValueError) as error:
        raise WeightsMissing(
            f"WordNet could not be downloaded ({error}); on a machine without network run '{_FETCH} --source FILE' "
            "with Princeton's WNdb-3.0.tar.gz or NLTK's wordnet.zip"
        ) from error
    finally:
        nltk.data.path[:] = searched  # NLTK adds every folder that it downloads to


def _nltk() -> Any:
    from_report_extra("nltk.data", "METEOR")
    return from_report_extra("nltk", "METEOR")
