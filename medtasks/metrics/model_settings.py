"""Models of neural metrics: their weight files, their settings, and the cache of their results by text.

Weights are in ``$MEDTASKS_HOME/weights/NAME``, which ``medtasks weights fetch NAME`` fills, or in
``$MEDTASKS_WEIGHTS/NAME``: a folder of the same layout that is searched first and never downloaded to. Only
:func:`fetch` downloads, and :func:`weights_path` if the user names a repository on the Hub.
"""

import hashlib
import json
import os
import pickle
import re
import tarfile
import zipfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Literal, TypeVar, cast

from medtasks.data.privacy import UNKNOWN_TEXTS
from medtasks.errors import MedTasksError, SourceError, WeightsMissing, unknown_name
from medtasks.home import home, make_folder, packaged_facts, written_whole
from medtasks.net.disk_cache import SqliteCache

if TYPE_CHECKING:
    import torch

Text = TypeVar("Text", bound=Hashable)
Value = TypeVar("Value")

# Metrics need these besides the entries of WEIGHTS: NLTK's database, and the tokenizer of the extra "cider" with Java.
WORDNET = "wordnet"
TOKENIZER = "ptb-tokenizer"
WEIGHTS_VARIABLE = "MEDTASKS_WEIGHTS"
_HUB = "https://huggingface.co"
# The name of a repository, owner/name, that is not the name of a file.
_REPOSITORY = re.compile(
    r"[\w-][\w.-]*/[\w.-]+(?<!\.pth)(?<!\.p)(?<!\.json)(?<!\.gz)(?<!\.safetensors)"
)
DEVICE_VARIABLE = "MEDTASKS_METRICS_DEVICE"


@dataclass(frozen=True)
class WeightsInfo:
    """Files of a metric in one repository on the Hugging Face Hub, or one file at another address."""

    name: str
    description: str
    files: tuple[str, ...]  # of the repository; may be patterns of fnmatch
    size: float  # of the download, in megabytes (10^6 bytes)
    licence: str  # as stated by the source
    hub: str = ""  # repository
    url: str = ""  # of the file, if it is not on the Hub
    git_blob: str | None = None  # SHA-1 of that file as a git blob

    @property
    def source(self) -> str:
        """Address of the repository or of the file."""
        return self.url or f"{_HUB}/{self.hub}"


WEIGHTS: Mapping[str, WeightsInfo] = {
    name: WeightsInfo(name, **{**facts, "files": tuple(facts["files"])})
    for name, facts in packaged_facts(__package__, "weight_files").items()
}


def weights_info(name: str) -> WeightsInfo:
    """Return one entry of :data:`WEIGHTS`.

    Raises:
        UnknownName: There is no such entry.
    """
    if name not in WEIGHTS:
        raise unknown_name("weights", name, WEIGHTS)
    return WEIGHTS[name]


def weights_home() -> Path:
    """Return the folder that ``medtasks weights fetch`` fills."""
    return home() / "weights"


def weights_folder(name: str) -> Path:
    """Return the folder that ``medtasks weights fetch`` fills for ``name``."""
    return weights_home() / weights_info(name).name


def _shared_folder(name: str) -> Path | None:
    """Return the folder for ``name`` below ``$MEDTASKS_WEIGHTS``, or None if that variable is not set."""
    shared = os.environ.get(WEIGHTS_VARIABLE)
    return Path(shared).expanduser().absolute() / weights_info(name).name if shared else None


def complete_in(info: WeightsInfo, folder: Path) -> Path | None:
    """Return the path in a folder for a metric to open.

    Args:
        info: Entry of :data:`WEIGHTS`.
        folder: Folder that may hold its files.

    Returns:
        The only file of the entry, or the folder, or None if files are missing.
    """
    if len(info.files) == 1:
        file = folder / info.files[0]
        return file if file.is_file() else None
    for name in info.files:
        is_required = name == "config.json" or name.endswith(".safetensors")
        if is_required and not (folder / name).is_file():
            return None
    return folder


def weights_path(name: str, chosen: Path | None = None) -> Path:
    """Find weights on this machine.

    Args:
        name: Entry of :data:`WEIGHTS`.
        chosen: File or folder, or a repository on the Hub with files of the same names (``owner/name``), which is
            downloaded once. If None, the files in ``$MEDTASKS_WEIGHTS`` or else the fetched ones.

    Returns:
        The file of an entry with a single file, else the folder.

    Raises:
        WeightsMissing: The files are not there, with the command that fetches them, or a repository lacks some.
        UnknownName: There is no such entry.
    """
    info = weights_info(name)
    if chosen is not None:
        return chosen if chosen.exists() else _repository_path(info, chosen)
    for candidate in (_shared_folder(name), weights_folder(name)):
        if candidate and (complete := complete_in(info, candidate)):
            return complete
    file = info.files[0] if len(info.files) == 1 else ""
    path = weights_folder(name) / file
    raise WeightsMissing(
        f"{info.description}: {path} is missing or incomplete ({info.source}, {info.size:,.0f} MB); fetch it with "
        f"'medtasks weights fetch {name}'"
    )


def _repository_path(info: WeightsInfo, repository: Path) -> Path:
    """Return the files of a user's repository on the Hub, downloaded once.

    Raises:
        WeightsMissing: ``repository`` is no name of a repository, the download fails, or files are missing.
    """
    if not _REPOSITORY.fullmatch(str(repository)):
        raise WeightsMissing(
            f"{repository} does not exist; it should hold {info.description} ({', '.join(info.files)})"
        )
    folder = weights_home() / "hub" / str(repository).replace("/", "--")
    if not complete_in(info, folder):
        _download(info, str(repository), folder)
    if path := complete_in(info, folder):
        return path
    raise WeightsMissing(
        f"{_HUB}/{repository} lacks some of {', '.join(info.files)}; name one that has them"
    )


def fetch(name: str) -> Path:
    """Download an entry into :func:`weights_folder`, without the files that are there already.

    Nothing is downloaded if ``$MEDTASKS_WEIGHTS`` has the files. A published pickle of counts is also stored as JSON.

    Args:
        name: Entry of :data:`WEIGHTS`.

    Returns:
        The result of :func:`weights_path`.

    Raises:
        WeightsMissing: The download fails, or a file is not the published one.
        UnknownName: There is no such entry.
    """
    info = weights_info(name)
    shared = _shared_folder(name)
    if shared and complete_in(info, shared):
        return weights_path(name)
    if not info.url:
        _download(info, info.hub, weights_folder(name))
        return weights_path(name)
    from medtasks.data.prepare.downloads import Published, download

    target = weights_folder(name) / PurePosixPath(info.url).name
    try:
        download(Published(info.url, git_blob=info.git_blob), target)
        if target.name not in info.files:
            _write_counts(target, str(info.git_blob), weights_folder(name) / info.files[0])
    except (SourceError, OSError) as error:
        raise WeightsMissing(
            f"{info.url} could not be downloaded ({error.__cause__ or error}); on a machine without network put it "
            f"into {target.parent} and run 'medtasks weights fetch {name}' again"
        ) from error
    return weights_path(name)


def _write_counts(
    published: Path,
    git_blob: str,
    table: Path,
) -> None:
    """Write the counts of a published pickle as JSON. A pickle can run code: no other file is ever unpickled.

    Raises:
        WeightsMissing: The pickle is not the published one.
    """
    content = published.read_bytes()
    digest = hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False)
    if digest.hexdigest() != git_blob:
        raise WeightsMissing(
            f"{published} is not the published file; remove it and fetch it again"
        )
    stored = pickle.loads(content, encoding="iso-8859-1")
    counts = {" ".join(ngram): float(count) for ngram, count in stored["df"].items()}
    facts = {"made_from": git_blob, "ref_len": float(stored["ref_len"]), "df": counts}
    with written_whole(table) as path:
        path.write_text(json.dumps(facts))


def _download(
    info: WeightsInfo,
    repository: str,
    folder: Path,
) -> None:
    """Download the files of an entry from a repository on the Hub into a folder.

    Raises:
        WeightsMissing: The download fails.
    """
    from huggingface_hub import snapshot_download

    make_folder(folder)
    try:
        snapshot_download(repository, allow_patterns=list(info.files), local_dir=folder)
    except Exception as error:  # the Hub's client raises kinds of several libraries
        reason = " ".join(str(error).split())
        raise WeightsMissing(
            f"{_HUB}/{repository} could not be downloaded ({type(error).__name__}: {reason}); on a machine without "
            f"network put {', '.join(info.files)} into {folder}"
        ) from error


def packed_files(
    source: Path,
    name_pattern: re.Pattern[str],
) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the files with a matching name in a folder or archive.

    Links count in a folder only.

    Args:
        source: Folder, zip or tar file.
        name_pattern: Pattern of the whole name, which has ``/`` between folders and no leading ``./``.

    Yields:
        The name, and the file opened for reading.

    Raises:
        OSError: The source cannot be read. Damaged archives raise errors of zipfile or tarfile.
    """
    if source.is_dir():
        paths = []
        for folder, _, names in os.walk(source, followlinks=True):
            paths += [Path(folder, name) for name in names]
        for path in sorted(paths):
            name = path.relative_to(source).as_posix()
            if not (name_pattern.fullmatch(name) and path.is_file()):
                continue
            with path.open("rb") as file:
                yield name, file
    elif zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            for name in filter(name_pattern.fullmatch, archive.namelist()):
                yield name, archive.open(name)
    else:
        with tarfile.open(source) as packed:
            for member in packed:
                name = member.name.removeprefix("./")
                if member.isfile() and name_pattern.fullmatch(name):
                    yield name, cast(IO[bytes], packed.extractfile(member))


def text_key(*texts: str) -> bytes:
    """Return the cache key of one or several texts, 32 bytes.

    Texts are not joined: ``("ab", "c")`` and ``("a", "bc")`` have different keys.
    """
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()


class TextCache(SqliteCache):
    """Values by text for one model, in one file.

    Args:
        folder: Folder of the file, or None for no file.
        model: Fingerprint of everything a value depends on besides the text: weights, vocabulary, dtype, and the
            version of the code. It names the file.
    """

    def __init__(self, folder: Path | None, model: str) -> None:
        name = hashlib.sha256(model.encode()).hexdigest()[:32]
        warning = (
            "Results of a metric's model cannot be kept in {path} ({error}); the run goes on, a rerun computes them "
            "again. Free some space, or remove that file if it is damaged."
        )
        super().__init__(
            None if folder is None else folder / f"{name}.sqlite",
            ("texts", "value"),
            warning,
        )

    def complete(
        self,
        keys: Mapping[Text, bytes],
        compute: Callable[[list[Text]], Iterable[tuple[int, Value]]],
        *,
        encode: Callable[[Value], bytes],
        decode: Callable[[bytes], Value],
    ) -> dict[Text, Value]:
        """Return the value of every text, from the cache or computed and then cached, also before an error.

        Args:
            keys: The :func:`text_key` of each text.
            compute: Takes the texts that have no value in the cache, and yields ``(position, value)`` of each, with its
                position among them, in any order. It is not called if there is no such text.
            encode: Makes bytes of a value.
            decode: Makes the value of its bytes.
        """
        stored = self.get(list(keys.values()))
        values = {text: decode(stored[key]) for text, key in keys.items() if key in stored}
        missing = [text for text in keys if text not in values]
        fresh = {}
        try:
            for position, value in compute(missing) if missing else ():
                values[missing[position]] = value
                fresh[keys[missing[position]]] = encode(value)
                if len(fresh) >= 256:
                    self.put(fresh)
                    fresh = {}
        finally:
            self.put(fresh)
        return values


@dataclass(frozen=True)
class ModelSettings:
    """Settings of a metric's model."""

    # files, folders or repositories by entry of WEIGHTS; the fetched ones for entries without one
    named_weights: Mapping[str, Path] = field(default_factory=dict, hash=False)
    device: str = "auto"  # "cpu", "cuda", "cuda:1", or "auto": the GPU if there is one
    # of the encoder; bfloat16 is faster and changes scores a little
    dtype: Literal["float32", "bfloat16"] = "float32"
    batch_size: int | None = None  # texts per pass; None: the metric's default
    # folder of results; None: no cache
    cache: Path | None = field(default_factory=lambda: home() / "metrics")
    progress: bool = True  # whether to show a progress bar
    # Datasets of the texts, None for a user's own documents: a metric that asks a judge is refused credentialed ones.
    datasets: frozenset[str | None] = frozenset({UNKNOWN_TEXTS})

    def __post_init__(self) -> None:
        for name in self.named_weights:
            weights_info(name)

    @classmethod
    def from_environment(cls) -> "ModelSettings":
        """Read ``MEDTASKS_METRICS_DEVICE`` and ``MEDTASKS_METRICS_DTYPE``.

        Raises:
            MedTasksError: The type of numbers is unknown.
        """
        dtype = os.environ.get("MEDTASKS_METRICS_DTYPE", "").strip() or "float32"
        if dtype not in ("float32", "bfloat16"):
            raise MedTasksError(
                f"MEDTASKS_METRICS_DTYPE={dtype} is unknown; it is one of float32, bfloat16"
            )
        device = os.environ.get(DEVICE_VARIABLE, "").strip() or "auto"
        return cls(device=device, dtype="bfloat16" if dtype == "bfloat16" else "float32")

    def find_weights(self, name: str) -> Path:
        """Find the weights that the settings name, or else the fetched ones, as :func:`weights_path`.

        Raises:
            WeightsMissing: The weights are not on this machine.
        """
        return weights_path(name, self.named_weights.get(name))

    def torch_device(self) -> "torch.device":
        """Return the device that the metric's model runs on.

        Raises:
            MedTasksError: The device is unknown, or this machine does not have it.
        """
        import torch

        name = self.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise MedTasksError(
                f"device '{name}' for metrics cannot be used ({error}); take 'cpu' or 'auto'"
            ) from error
        return device
