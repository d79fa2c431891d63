"""WordNet, which METEOR takes its synonyms from: its database, where that lies, and how it gets there.

It lies in ``$MEDTASKS_HOME/nltk_data/corpora/wordnet``, which ``medtasks weights fetch wordnet`` fills and which NLTK
will read, too; a WordNet in NLTK's own data folders serves as well. Nothing here downloads but :func:`prepare_wordnet`.

NLTK's own reader is not used: it asks for files that METEOR does not need, and does not notice a damaged database.

Source: ``wndb(5WN)`` and ``morphy(7WN)`` of WordNet 3.0, https://wordnet.princeton.edu; answers are those of
``nltk.corpus.wordnet`` 3.10.
"""

import io
import os
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from medtasks.data.home import home
from medtasks.errors import WeightsMissing
from medtasks.metrics.words import from_report_extra

_FETCH = "medtasks weights fetch wordnet"
PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
_NEEDED = tuple(f"{kind}.{part}" for kind in ("data", "index") for part in PARTS_OF_SPEECH) + tuple(
    f"{part}.exc" for part in PARTS_OF_SPEECH
)
_KEPT = ("LICENSE", "README", "citation.bib", "cntlist.rev", "index.sense", "lexnames")  # the rest of NLTK's package
_MARK = _NEEDED[0]
# Endings of inflected words and of their base forms.
_ENDINGS = {
    part: tuple(pair.partition(">")[::2] for pair in pairs.split())
    for part, pairs in {
        "noun": "s> ses>s ves>f xes>x zes>z ches>ch shes>sh men>man ies>y",
        "verb": "s> ies>y es>e es> ed>e ed> ing>e ing>",
        "adj": "er> est> er>e est>e",
        "adv": "",
    }.items()
}


class WordNet:
    """A WordNet database in memory; ``version`` is as the database says, ``"3.0"`` for the one of NLTK's METEOR.

    It is made of what :func:`database_files` returns, or raises a ValueError if index and data do not fit each other.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        stated = re.search(rb"WordNet (\d[\d.]*) Copyright", files["data.adj"][:4096])
        self.version = stated[1].decode() if stated else "of unknown version"
        self._data = {part: files[f"data.{part}"] for part in PARTS_OF_SPEECH}
        self._senses = {part: _senses(files[f"index.{part}"], self._data[part]) for part in PARTS_OF_SPEECH}
        self._irregular = {part: _irregular_forms(files[f"{part}.exc"]) for part in PARTS_OF_SPEECH}
        self._synonyms: dict[str, frozenset[str]] = {}

    def synonyms(self, word: str) -> frozenset[str]:
        """Return the single words that share a sense with a word in lower case, whatever its part of speech and form.

        They are as the database writes them, with case, and none for a word that it does not know.
        """
        synonyms = self._synonyms.get(word)
        if synonyms is None:
            synonyms = self._synonyms[word] = frozenset(self._looked_up(word))
        return synonyms

    def _looked_up(self, word: str) -> Iterator[str]:
        for part in PARTS_OF_SPEECH:
            for form in self._base_forms(word, part):
                for place in self._senses[part].get(form, ()):
                    line = self._data[part][place : self._data[part].index(b"\n", place)]
                    fields = line.decode().split(" ")
                    words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
                    yield from (name.partition("(")[0] for name in words if "_" not in name)

    def _base_forms(self, word: str, part: str) -> set[str]:
        irregular = self._irregular[part].get(word)
        if irregular is not None:
            return {word, *irregular}
        return {word, *(word.removesuffix(old) + new for old, new in _ENDINGS[part] if word.endswith(old))}


def _senses(index: bytes, data: bytes) -> dict[str, tuple[int, ...]]:
    senses = {}
    for line in index.splitlines():
        if line.startswith(b" "):  # the licence
            continue
        fields = line.split()
        places = fields[-int(fields[2]) :]
        if not all(data.startswith(place + b" ", int(place)) for place in places):
            raise ValueError(f"its index does not fit its data at '{fields[0].decode(errors='replace')}'")
        senses[fields[0].decode()] = tuple(map(int, places))
    listed = {place for places in senses.values() for place in places}
    if len(listed) != sum(not line.startswith(b" ") for line in data.splitlines()) or not data.endswith(b"\n"):
        raise ValueError("its index or its data is cut short")
    return senses


def _irregular_forms(exceptions: bytes) -> dict[str, list[str]]:
    lines = (line.split() for line in exceptions.decode().splitlines())
    return {fields[0]: fields[1:] for fields in lines if fields}


def read_wordnet(source: Path) -> WordNet:
    """Read WordNet from a folder or archive; raises what :func:`database_files` does, also if it is damaged."""
    files = database_files(source)
    try:
        return WordNet(files)
    except (ValueError, IndexError) as error:
        raise WeightsMissing(f"WordNet in {source} is damaged: {error}") from error


def database_files(source: Path) -> dict[str, bytes]:
    """Read the files of WordNet's database.

    They are found in a folder, zip or tar file with the database somewhere in it: NLTK's ``wordnet.zip``, a folder of
    NLTK data, Princeton's ``WNdb-3.0.tar.gz`` or what it unpacks to, ``/usr/share/wordnet`` of Debian. Line ends become
    those of Princeton's files: the index gives places in the data by their byte, which other line ends would move.

    Contents are by name: ``data.noun``, ``index.noun``, ``noun.exc`` and so on, and the other files of NLTK's package
    that are there. Raises WeightsMissing where they are not there, not complete, or there more than once.
    """
    try:
        with _opened(source) as files:
            folder = _folder(source, files)
            missing = [name for name in _NEEDED if folder + name not in files]
            if missing:
                raise WeightsMissing(f"WordNet in {source} is not complete: {', '.join(missing)} missing")
            present = [name for name in (*_NEEDED, *_KEPT) if folder + name in files]
            return {name: files[folder + name]().replace(b"\r", b"") for name in present}
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise WeightsMissing(f"WordNet cannot be read from {source} ({error}); give its folder or archive") from error


@contextmanager
def _opened(source: Path) -> Iterator[Mapping[str, Callable[[], bytes]]]:
    if source.is_dir():
        inside = [path for name in (*_NEEDED, *_KEPT) for path in source.rglob(name)]
        zipped = [] if inside else sorted(source.rglob("wordnet.zip"))
        if not zipped:
            yield {path.relative_to(source).as_posix(): path.read_bytes for path in inside}
            return
        source = zipped[0]
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            yield {name: partial(archive.read, name) for name in archive.namelist()}
    else:
        with tarfile.open(source) as archive:
            yield {member.name: partial(_extracted, archive, member) for member in archive if member.isfile()}


def _extracted(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    content = archive.extractfile(member)
    return content.read() if content else b""


def _folder(source: Path, files: Mapping[str, object]) -> str:
    """Return the folder of the database inside the source, empty or with a slash at its end."""
    folders = sorted(name.removesuffix(_MARK) for name in files if name == _MARK or name.endswith(f"/{_MARK}"))
    if not folders:
        raise WeightsMissing(f"there is no WordNet database in {source}; it has files like '{_MARK}'")
    if len(folders) > 1 and folders[0]:
        raise WeightsMissing(f"{source} holds several WordNet databases; give one of them: {', '.join(folders)}")
    return folders[0]


def wordnet_folder() -> Path:
    """Return the folder that ``medtasks weights fetch wordnet`` fills, whether or not it exists."""
    return home() / "nltk_data" / "corpora" / "wordnet"


def load_wordnet() -> WordNet:
    """Return WordNet, read at the first call of a process in about a second.

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
def _read(path: Path) -> WordNet:
    try:
        return read_wordnet(path)
    except WeightsMissing as error:
        raise WeightsMissing(f"{error}; bring it anew with '{_FETCH}'") from error


def prepare_wordnet(source: Path | None = None) -> Path:
    """Put WordNet into :func:`wordnet_folder`, in the place of what is there, and return that folder.

    It comes from a folder or archive, see :func:`database_files`; None: NLTK downloads it (WordNet 3.0). NLTK accepts
    the folder, because nobody but its owner may write to it. Raises a MedTasksError where NLTK is to download it and is
    not installed, WeightsMissing for a source without usable database, a failed download or a folder that cannot be
    written.
    """
    folder = wordnet_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home(), prefix=".wordnet-") as scratch:
            database = source or _downloaded(Path(scratch))
            read_wordnet(database)
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            for name, content in database_files(database).items():
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


def _downloaded(folder: Path) -> Path:
    nltk = _nltk()
    searched = list(nltk.data.path)
    try:
        nltk.download("wordnet", str(folder), quiet=True, raise_on_error=True, print_error_to=io.StringIO())
    except (OSError, ValueError) as error:
        raise WeightsMissing(
            f"WordNet could not be downloaded ({error}); on a machine without network run '{_FETCH} --source FILE' "
            "with Princeton's WNdb-3.0.tar.gz or NLTK's wordnet.zip"
        ) from error
    finally:
        nltk.data.path[:] = searched  # NLTK adds every folder that it downloads to
    return folder


def _nltk() -> Any:
    from_report_extra("nltk.data", "METEOR")
    return from_report_extra("nltk", "METEOR")
