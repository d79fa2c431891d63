"""Downloading published files: one large file in pieces, or a dataset's files from the Hugging Face Hub.

Sources and PhysioNet download through this module. What has arrived is kept, so that the same command goes on where it
stopped, and no file is used that differs from its published digest.
"""

import contextlib
import errno
import fnmatch
import functools
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import requests
import tenacity
from tqdm import tqdm
from urllib3 import Retry
from urllib3.exceptions import InvalidHeader

from medtasks.data.catalogue import DatasetInfo
from medtasks.data.dataset_manifest import git_blob
from medtasks.data.named_files import file_sha256
from medtasks.errors import SourceError
from medtasks.home import make_folder

_ATTEMPTS = 5
_BACKOFF_S = 1.0  # before the second attempt
_LONGEST_BACKOFF_S = 60.0
_LONGEST_RETRY_AFTER_S = 300.0
_TIMEOUT_S = (10.0, 60.0)  # to connect, between two pieces
_PIECE = 1 << 20  # bytes
_WORTH_ANOTHER_TRY = frozenset({408, 416, 429})  # and all from 500
_HUB = "https://huggingface.co/datasets/"
_REVISION = "REVISION"  # file next to the downloaded ones


class Failure(Exception):
    """A request failed finally."""


class InsecureRedirect(requests.RequestException):
    """A server redirected to where anyone on the way can change the file, or where a login must not go."""


class SafeSession(requests.Session):
    """Session that follows no redirect from https to http and, with a login, none at all."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return the address of a redirect, or None for an answer that is no redirect.

        Raises:
            InsecureRedirect: It leads from https to http, or the session has a login.
        """
        target = super().get_redirect_target(resp)
        address = urljoin(resp.url, target or "")
        is_insecure = resp.url.startswith("https:") and not address.startswith("https:")
        if target and (is_insecure or self.auth is not None):
            raise InsecureRedirect(f"{resp.url} redirects to {target}")
        return target


class Transient(Failure):
    """Another try may succeed, though not before ``retry_after_s`` seconds."""

    def __init__(self, cause: str, retry_after_s: float = 0.0) -> None:
        super().__init__(cause)
        self.retry_after_s = retry_after_s


class Unreachable(Transient):
    """No answer at all."""


def patiently(
    attempts: int,
    backoff_s: float,
    stop: threading.Event | None = None,
) -> tenacity.Retrying:
    """Return a caller that repeats a request while its failures are :class:`Transient`.

    Args:
        attempts: Most tries.
        backoff_s: Seconds before the second try. They double before every further one, or are what a server asks for.
        stop: Ends the waiting when it is set. None: nothing ends it early.
    """
    stop = stop or threading.Event()
    backoff = tenacity.wait_exponential(multiplier=backoff_s, max=_LONGEST_BACKOFF_S)

    def wait_s(state: tenacity.RetryCallState) -> float:
        retry_after_s = getattr(
            state.outcome and state.outcome.exception(), "retry_after_s", 0.0
        )
        return max(backoff(state), min(retry_after_s, _LONGEST_RETRY_AFTER_S))

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Transient),
        stop=tenacity.stop_after_attempt(attempts) | tenacity.stop_when_event_set(stop),
        wait=wait_s,
        sleep=tenacity.sleep_using_event(stop),
        reraise=True,
    )


@contextlib.contextmanager
def answer_to(
    request: Callable[[], requests.Response], what: str
) -> Iterator[requests.Response]:
    """Send a request and yield its answer.

    Args:
        request: Sends it.
        what: Name of what is asked for, for messages.

    Raises:
        Unreachable: There is no answer.
        Transient: Another try may succeed. The answer may also break off while it is read.
        Failure: The server refuses.
    """
    try:
        answer = request()
    except InsecureRedirect as error:
        raise Failure(str(error)) from error
    except requests.RequestException as error:
        raise Unreachable(f"no answer: {_root_cause(error)}") from error
    with answer:
        try:
            yield answer
        except requests.HTTPError as error:
            status = answer.status_code
            cause = f"HTTP {status} for {what}"
            if status < 500 and status not in _WORTH_ANOTHER_TRY:
                raise Failure(cause) from error
            retry_after_s = 0.0
            with contextlib.suppress(InvalidHeader):
                retry_after_s = Retry().parse_retry_after(
                    answer.headers.get("Retry-After", "0")
                )
            raise Transient(cause, retry_after_s) from error
        except requests.RequestException as error:  # urllib3 compares with Content-Length
            raise Transient(f"{what} broke off: {_root_cause(error)}") from error


def _root_cause(error: BaseException) -> BaseException:
    while inner := error.__cause__ or error.__context__:
        error = inner
    return error


def file_md5(path: Path) -> str:
    """Return the MD5 of a file, as hex digits."""
    md5 = functools.partial(hashlib.md5, usedforsecurity=False)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, md5).hexdigest()


@dataclass(frozen=True)
class Published:
    """A file on the web."""

    url: str
    md5: str | None = None  # digest its publisher states; None: not known
    sha256: str | None = None  # the same with SHA-256
    git_blob: str | None = None  # name of the file in its publisher's git repository

    def matches(self, path: Path) -> bool:
        """Return whether the bytes of ``path`` are the published ones, as far as a digest is known."""
        checks = (
            (self.md5, file_md5),
            (self.git_blob, git_blob),
            (self.sha256, file_sha256),
        )
        return all(digest is None or digest == digest_of(path) for digest, digest_of in checks)


def download(
    published: Published, target: Path, session: requests.Session | None = None
) -> Path:
    """Download a file unless it exists. An interrupted download continues in ``<name>.part``.

    Args:
        published: Address and digests of the file.
        target: Location of the downloaded file.
        session: Session of many downloads, which keeps its connection; by default one for this file.

    Raises:
        SourceError: The server cannot be reached or has no such file (see its cause), or sent another file.
        OSError: The disk is full.
    """
    if target.is_file() and published.matches(target):
        return target
    make_folder(target.parent)
    partial = target.with_name(f"{target.name}.part")
    proceed = functools.partial(
        _continue, session or SafeSession(), published.url, partial, target.name
    )
    try:
        patiently(_ATTEMPTS, _BACKOFF_S)(proceed)
    except Failure as failure:
        error = failure.__cause__
        what = type(error).__name__
        if isinstance(error, requests.HTTPError):
            what = f"HTTP {error.response.status_code}"
        raise SourceError(
            f"cannot download {target.name} from {published.url} ({what}); check the connection and run the same "
            f"command again: what has arrived is kept. Or download it elsewhere and add '--source FOLDER' with "
            f"the folder it lies in"
        ) from error
    if not published.matches(partial):
        partial.unlink()
        raise SourceError(
            f"{published.url} did not arrive as published (its checksum differs); try again later"
        )
    partial.replace(target)
    return target


def _continue(session: requests.Session, url: str, partial: Path, name: str) -> None:
    """Append to a partial file what has not arrived yet, or write it anew where the server has no ranges."""
    arrived = partial.stat().st_size if partial.exists() else 0
    # An encoded body would have another length than the file, and other offsets.
    headers = {"Accept-Encoding": "identity"}
    if arrived:
        headers["Range"] = f"bytes={arrived}-"
    asking = functools.partial(
        session.get, url, headers=headers, timeout=_TIMEOUT_S, stream=True
    )
    with answer_to(asking, name) as answer:
        if answer.status_code == requests.codes.requested_range_not_satisfiable:
            partial.unlink()
        answer.raise_for_status()
        is_resumed = answer.status_code == requests.codes.partial_content
        before = arrived if is_resumed else 0
        total = (int(answer.headers.get("Content-Length", 0)) + before) or None
        bar = tqdm(
            desc=f"Downloading {name}",
            total=total,
            initial=before,
            unit="B",
            unit_scale=True,
            disable=None,
        )
        with bar, partial.open("ab" if is_resumed else "wb") as stream:
            for piece in answer.iter_content(_PIECE):
                bar.update(stream.write(piece))


def hub_download(info: DatasetInfo, patterns: Sequence[str], folder: Path) -> Path:
    """Bring the files of a dataset into a folder.

    It goes on where an earlier attempt stopped, and compares every file with the size and checksum the Hub publishes;
    where it publishes no checksum, as for small files, with the catalogue's.

    Args:
        info: Of the dataset.
        patterns: Of its files. Each must match at least one.
        folder: Where they go.

    Returns:
        The folder, with a note of the commit.

    Raises:
        SourceError: The Hub cannot be reached, lacks a file or sent another one.
        OSError: The disk is full.
    """
    try:
        commit = _download_from_hub(info, patterns, folder)
    except SourceError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        why = str(error).strip().split("\n")[0] or type(error).__name__
        raise SourceError(
            f"cannot download '{info.name}' from {info.source} ({why}). What was fetched so far is kept: run the same "
            f"command again when the Hub can be reached, or download {', '.join(patterns)} elsewhere and give their "
            f"folder with --source"
        ) from error
    (folder / _REVISION).write_text(commit, encoding="utf-8")
    return folder


def _download_from_hub(info: DatasetInfo, patterns: Sequence[str], folder: Path) -> str:
    """Download the files of a dataset, and return the commit that they are of.

    Raises:
        SourceError: A pattern matches no file, or a file differs from the published one.
        Exception: Of the Hub's library, where it cannot be reached.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.hf_api import RepoFile

    hub = HfApi()
    repository = info.source.removeprefix(_HUB)
    # Also for a known commit: without a network this fails at once, where listing tries again and again.
    commit = str(hub.repo_info(repository, repo_type="dataset", revision=info.revision).sha)
    tree = hub.list_repo_tree(repository, repo_type="dataset", revision=commit, recursive=True)
    files = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
    selected: dict[str, None] = {}  # in order, each once
    for pattern in patterns:
        matching = sorted(fnmatch.filter(files, pattern))
        if not matching:
            raise SourceError(
                f"{_HUB}{repository} has no {pattern} at {commit}; give a copy with --source"
            )
        selected |= dict.fromkeys(matching)
    for name in selected:
        file = files[name]
        path = Path(
            hf_hub_download(
                repository, name, repo_type="dataset", revision=commit, local_dir=folder
            )
        )
        published = file.lfs.sha256 if file.lfs else info.sha256.get(name)
        if path.stat().st_size != file.size or published not in (None, file_sha256(path)):
            path.unlink()  # so that the next attempt fetches it anew
            raise SourceError(
                f"{_HUB}{repository} sent another {name} than it published; run the same command again"
            )
    return commit


def hub_revision(info: DatasetInfo, source: Path) -> str:
    """Return the revision of a source folder.

    Args:
        info: Of the dataset.
        source: The folder, which may be a user's copy.

    Returns:
        The commit that it was downloaded at, if it was. Otherwise it is the catalogue's if all files with a known
        checksum are the published ones, or ``"local"``.
    """
    note = source / _REVISION
    if note.is_file():
        return note.read_text(encoding="utf-8").strip()
    if not info.sha256 or not source.is_dir():
        return "local"
    for name, sha256 in info.sha256.items():
        paths = (source / name, source / Path(name).name)
        path = next(filter(Path.is_file, paths), None)
        if path is None or file_sha256(path) != sha256:
            return "local"
    return info.revision
