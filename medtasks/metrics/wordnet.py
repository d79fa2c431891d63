"""Where WordNet lies, which METEOR takes its synonyms from, and how it gets there.

It lies in ``$MEDTASKS_HOME/nltk_data/corpora/wordnet``, which ``medtasks weights fetch wordnet`` fills and which NLTK
will read, too; a WordNet in NLTK's own data folders serves as well. Nothing here downloads but :func:`prepare_wordnet`.
"""

import io
import os
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from medtasks.data.home import home
from medtasks.errors import MedTasksError, WeightsMissing
from medtasks.metrics.wordnet_database import WordNet, database_files, read_wordnet

_FETCH = "medtasks weights fetch wordnet"


def wordnet_folder() -> Path:
    """Return the folder that ``medtasks weights fetch wordnet`` fills, whether or not it exists."""
    return home() / "nltk_data" / "corpora" / "wordnet"


def load_wordnet() -> WordNet:
    """Return WordNet, read at the first call of a process in about a second.

    Raises:
        MedTasksError: NLTK is not installed.
        WeightsMissing: WordNet is not on this machine, or cannot be read.
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
    """Put WordNet into :func:`wordnet_folder`, in the place of what is there.

    Args:
        source: Folder or archive that has the database, see
            :func:`medtasks.metrics.wordnet_database.database_files`; None: NLTK downloads it (WordNet 3.0).

    Returns:
        The folder. NLTK accepts it, because nobody but its owner may write to it.

    Raises:
        MedTasksError: NLTK is to download it and is not installed.
        WeightsMissing: The source has no usable database, nothing could be downloaded, or the folder cannot be written.
    """
    folder = wordnet_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home(), prefix=".wordnet-") as scratch:
            found = source or _downloaded(Path(scratch))
            read_wordnet(found)
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            for name, content in database_files(found).items():
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
    try:
        import nltk.data
    except ImportError as error:
        raise MedTasksError("METEOR needs nltk; bring it with: pip install 'medtasks[report]'") from error
    return nltk
