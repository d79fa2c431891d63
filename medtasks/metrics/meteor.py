"""METEOR of reports by NLTK, and WordNet's database, from which it takes its synonyms.

Words are matched as they are, then by Porter stem, then by WordNet's synonyms; the score is a mean of precision and
recall that leans on recall, less a penalty for matches in another order. Source: Lavie and Agarwal, "METEOR: an
automatic metric for MT evaluation with high levels of correlation with human judgments", 2007, as
``nltk.translate.meteor_score`` computes it: unmatched words go from the second step to the third as stems, so that
synonyms exist only for words that are their own stem; and each word takes the last free match, not the one with fewest
crossings. METEOR 1.5 (Java, with paraphrases and other weights) is another metric.

WordNet is in ``$MEDTASKS_HOME/nltk_data/corpora/wordnet``, which ``medtasks weights fetch wordnet`` fills and NLTK
reads, too; a WordNet in NLTK's own data folders serves as well. Only :func:`prepare_wordnet` downloads. NLTK's reader
gets the database in memory: by path it reads only its own data folders, needs files that METEOR does not use, and does
not notice a damaged database. Source: ``wndb(5WN)`` of WordNet 3.0, https://wordnet.princeton.edu.
"""

import io
import os
import re
import shutil
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from medtasks.data.named_files import read_stream
from medtasks.errors import SourceError, WeightsMissing
from medtasks.home import home, make_folder
from medtasks.metrics.model_settings import ModelSettings, packed_files
from medtasks.metrics.ngram_metrics import (
    TOKENISER,
    from_report_extra,
    porter_stemmer,
    word_tokens,
)
from medtasks.metrics.report_metrics import ReportScores, Texts, mean_scores

# weight of recall, power of the fragmentation, largest penalty
_FORMULA = {"alpha": 0.9, "beta": 3.0, "gamma": 0.5}
_NO_SYNONYMS = SimpleNamespace(synsets=lambda word: ())

_FETCH = "medtasks weights fetch wordnet"
_NLTK_DATA = (
    "https://raw.githubusercontent.com/nltk/nltk_data/5db857e6f7df11eabb5e5665836db9ec8df07e28"
)
_ZIP = f"{_NLTK_DATA}/packages/corpora/wordnet.zip"
_ZIP_BLOB = "3c68cd207844f071a5206f7fbed23e5c607ec02f"
PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
_REQUIRED = (
    *(f"data.{part}" for part in PARTS_OF_SPEECH),
    *(f"index.{part}" for part in PARTS_OF_SPEECH),
    *(f"{part}.exc" for part in PARTS_OF_SPEECH),
)
# the others of NLTK's
_OPTIONAL = ("LICENSE", "README", "citation.bib", "cntlist.rev", "index.sense", "lexnames")
_MARK = _REQUIRED[0]
_FILE = re.compile(rf"(?:.*/)?(?:{'|'.join(map(re.escape, (*_REQUIRED, *_OPTIONAL)))})")
# For a database without names of the lexicographers' files, which synonyms do not use.
_NO_NAMES = "".join(f"{number:02d}\tunnamed\t0\n" for number in range(100)).encode()


def meteor_score(
    reference_tokens: Sequence[str],
    hypothesis_tokens: Sequence[str],
    wordnet: Any = None,
) -> float:
    """Return METEOR of one pair of texts.

    With precision P and recall R of the matched words, in ``chunks`` of matches in the same order::

        F = P * R / (0.9 * P + 0.1 * R)
        METEOR = F * (1 - 0.5 * (chunks / matches)**3)

    Args:
        reference_tokens: Words of the reference.
        hypothesis_tokens: Words of the hypothesis.
        wordnet: Object with the ``synsets`` of NLTK's reader. If None, words match as they are and by stem alone.

    Returns:
        The score, 0 to 1. Identical texts of n words score ``1 - 0.5 / n**3``.
    """
    score = from_report_extra("nltk.translate.meteor_score", "METEOR").single_meteor_score
    return float(
        score(
            reference_tokens,
            hypothesis_tokens,
            stemmer=porter_stemmer(),
            wordnet=wordnet or _NO_SYNONYMS,
            **_FORMULA,
        )
    )


def meteor(
    _: ModelSettings,
    references: Texts,
    hypotheses: Texts,
    *,
    synonyms: bool = True,
) -> ReportScores:
    """Score pairs by :func:`meteor_score`, by default with WordNet.

    Args:
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.
        synonyms: Whether words also match as synonyms in WordNet.

    Returns:
        ``meteor`` or ``meteor_without_synonyms`` by pair, and its mean, 0 to 1.
    """
    wordnet = load_wordnet() if synonyms else None
    values = []
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        words = word_tokens(reference)
        values.append(meteor_score(words, word_tokens(hypothesis), wordnet))
    constants = ", ".join(f"{name} {value:g}" for name, value in _FORMULA.items())
    settings = {
        "words": TOKENISER,
        "formula": f"NLTK, {constants}",
        "stemmer": "Porter",
        "synonyms": wordnet_version(wordnet) if wordnet else "none",
    }
    return mean_scores({"meteor" if synonyms else "meteor_without_synonyms": values}, settings)


def wordnet_version(wordnet: Any) -> str:
    """Return the name and version of the database of :func:`load_wordnet`."""
    return f"WordNet {wordnet.get_version() or 'of unknown version'}"


meteor_without_synonyms = partial(meteor, synonyms=False)


@lru_cache(maxsize=2)
def read_wordnet(source: Path) -> Any:
    """Return NLTK's ``WordNetCorpusReader`` of a database, with cached look-ups.

    Args:
        source: Folder or archive, see :func:`database_files`.

    Raises:
        WeightsMissing: Files are missing or damaged.
    """
    nltk = from_report_extra("nltk.corpus.reader.wordnet", "METEOR")
    data = from_report_extra("nltk.data", "METEOR")
    files = {"lexnames": _NO_NAMES, **database_files(source)}

    class Reader(nltk.WordNetCorpusReader):  # type: ignore[misc,name-defined]  # nltk has no types
        def open(self, file: str) -> io.TextIOWrapper:
            return io.TextIOWrapper(io.BytesIO(files[file]), "utf-8")

        def map_wn(self, version: str = "wordnet") -> None:
            """Leave out the mapping for other languages, which NLTK looks for in its own data folders."""

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NLTK warns that it finds no other languages
            # NLTK only checks the type of this root: the reader's own ``open`` serves every file.
            reader = Reader(data.ZipFilePathPointer(None), None)
    except (ValueError, LookupError, StopIteration, nltk.WordNetError) as error:
        raise WeightsMissing(f"WordNet in {source} is damaged: {error}") from error
    reader.synsets = lru_cache(maxsize=None)(reader.synsets)
    return reader


def database_files(source: Path) -> dict[str, bytes]:
    """Read the files of WordNet's database.

    Line ends become those of Princeton's files: the index has byte positions in the data.

    Args:
        source: Folder, zip or tar file with the database somewhere in it: NLTK's ``wordnet.zip``, a folder of NLTK
            data, Princeton's ``WNdb-3.0.tar.gz`` (packed or not), or ``/usr/share/wordnet`` of Debian.

    Returns:
        Content by file name.

    Raises:
        WeightsMissing: Files are missing, incomplete, there more than once, or damaged.
    """
    members = _members_of(source)
    folder = _database_folder(source, members)
    inside = {name.removeprefix(folder): content for name, content in members.items()}
    files = {
        name: inside[name].replace(b"\r", b"")
        for name in _REQUIRED + _OPTIONAL
        if name in inside
    }
    if missing := [name for name in _REQUIRED if name not in files]:
        raise WeightsMissing(
            f"WordNet in {source} is not complete: {', '.join(missing)} missing"
        )
    try:
        for part in PARTS_OF_SPEECH:
            _check_index(files[f"index.{part}"], files[f"data.{part}"])
    except (ValueError, IndexError) as error:
        raise WeightsMissing(f"WordNet in {source} is damaged: {error}") from error
    return files


def _database_folder(source: Path, members: Iterable[str]) -> str:
    """Return the folder of the database inside a source, empty for the source itself, else with ``/`` at its end.

    Args:
        source: Folder or archive, for messages.
        members: Names of its files.

    Raises:
        WeightsMissing: There is no database, or more than one and none at the top.
    """
    marks = [name for name in members if name == _MARK or name.endswith(f"/{_MARK}")]
    folders = sorted(name.removesuffix(_MARK) for name in marks)
    if not folders:
        raise WeightsMissing(
            f"there is no WordNet database in {source}; it has files like '{_MARK}'"
        )
    if len(folders) > 1 and folders[0]:  # the one at the top is "" and first
        raise WeightsMissing(
            f"{source} holds several WordNet databases; give one of them: {', '.join(folders)}"
        )
    return folders[0]


def _members_of(source: Path) -> dict[str, bytes]:
    """Read the files that may be of a database, by path, or those of the ``wordnet.zip`` in a folder without any.

    Raises:
        WeightsMissing: The source cannot be read.
    """
    try:
        members = {name: read_stream(file) for name, file in packed_files(source, _FILE)}
        if members or not source.is_dir():
            return members
        archives = sorted(source.rglob("wordnet.zip"))
        if archives:
            members = {
                name: read_stream(file) for name, file in packed_files(archives[0], _FILE)
            }
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise WeightsMissing(
            f"WordNet cannot be read from {source} ({error}); give its folder or archive"
        ) from error
    return members


def _check_index(index: bytes, data: bytes) -> None:
    """Raise ValueError or IndexError if the index of a part of speech is damaged or does not fit its data."""
    positions = set()
    for line in index.splitlines():
        if line.startswith(b" "):  # the licence
            continue
        fields = line.split()
        of_word = fields[-int(fields[2]) :]
        if not all(data.startswith(position + b" ", int(position)) for position in of_word):
            raise ValueError(
                f"its index does not fit its data at '{fields[0].decode(errors='replace')}'"
            )
        positions.update(of_word)
    entries = sum(not line.startswith(b" ") for line in data.splitlines())
    if len(positions) != entries or not data.endswith(b"\n"):
        raise ValueError("its index or its data is cut short")


def wordnet_folder() -> Path:
    """Return the folder that ``medtasks weights fetch wordnet`` fills."""
    return home() / "nltk_data" / "corpora" / "wordnet"


def load_wordnet() -> Any:
    """Return :func:`read_wordnet` of the database on this machine, read once per process in a second or two.

    Raises:
        WeightsMissing: No WordNet was found, or the first one found is damaged.
    """
    paths = [wordnet_folder()]
    for folder in from_report_extra("nltk.data", "METEOR").path:
        corpora = Path(str(folder), "corpora")
        paths += [corpora / "wordnet", corpora / "wordnet.zip"]
    path = next(filter(Path.exists, paths), None)
    if path is None:
        raise WeightsMissing(
            f"WordNet, for METEOR's synonyms, is neither in {wordnet_folder()} nor in NLTK's data folders "
            f"(https://wordnet.princeton.edu, 11 MB); fetch it with '{_FETCH}', or take 'meteor_without_synonyms'"
        )
    try:
        return read_wordnet(path)
    except WeightsMissing as error:
        raise WeightsMissing(f"{error}; fetch it again with '{_FETCH}'") from error


def prepare_wordnet(source: Path | None = None) -> Path:
    """Put WordNet into :func:`wordnet_folder`, replacing its content.

    NLTK accepts the folder, because only its owner may write to it.

    Args:
        source: Folder or archive, see :func:`database_files`. By default NLTK's data (WordNet 3.0) are downloaded.

    Returns:
        That folder.

    Raises:
        WeightsMissing: The database cannot be downloaded, read or written.
    """
    folder = wordnet_folder()
    try:
        make_folder(folder.parent)
        with tempfile.TemporaryDirectory(dir=home(), prefix=".wordnet-") as scratch:
            files = database_files(source or _download(Path(scratch)))
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            for name, content in files.items():
                (fresh / name).write_bytes(content)
                (fresh / name).chmod(0o644)
            for parent in (fresh, folder.parent, folder.parent.parent):
                parent.chmod(0o755)
            if folder.exists():
                shutil.move(folder, Path(scratch) / "before")
            os.replace(fresh, folder)
    except OSError as error:
        raise WeightsMissing(
            f"WordNet cannot be written to {folder} ({error.strerror or error}); free some space, or set MEDTASKS_HOME "
            "to a folder of your own"
        ) from error
    read_wordnet.cache_clear()
    return folder


def _download(folder: Path) -> Path:
    """Download NLTK's archive of WordNet into a folder, and return its path.

    Raises:
        WeightsMissing: The download fails.
    """
    from medtasks.data.prepare.downloads import Published, download

    try:
        return download(Published(_ZIP, git_blob=_ZIP_BLOB), folder / "wordnet.zip")
    except SourceError as error:
        raise WeightsMissing(
            f"WordNet could not be downloaded ({error.__cause__ or error}); on a machine without network "
            f"run '{_FETCH} --source FILE' with Princeton's WNdb-3.0.tar.gz or NLTK's wordnet.zip"
        ) from error
