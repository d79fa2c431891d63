"""Figures from PubMed Central's open-access storage."""

import functools
import hashlib
import os
import re
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import requests
from requests.adapters import HTTPAdapter
from tqdm import tqdm

from medtasks.data.images.decoding import is_whole_image
from medtasks.data.prepare.downloads import Failure, Transient, Unreachable, answer_to, patiently
from medtasks.errors import SourceError
from medtasks.home import written_whole

STORAGE_VARIABLE = "MEDTASKS_PMC_URL"
_STORAGE_URL = "https://pmc-oa-opendata.s3.amazonaws.com"

_PACKAGE = re.compile(r"/(PMC\d+)\.tar\.gz$")
_UNREACHABLE_ARTICLES = 3
_PLAIN_MD5 = re.compile(r'"([0-9a-f]{32})"')  # "<hex>-<parts>" of a multi-part upload is no digest of the body
_WORKERS = 4  # articles fetched at the same time
_ATTEMPTS = 5
_BACKOFF_S = 1.0
_TIMEOUT_S = (10.0, 30.0)  # to connect, longest silence of the server


@dataclass(frozen=True)
class Figure:
    """One figure of an article."""

    pmc_id: str  # such as ``"PMC3284869"``
    file_name: str  # original name of the figure's file in the article; unique only within it
    target: Path  # file to write; its folder is created


class ObjectStorage:
    """PubMed Central's open-access storage, read over HTTPS with retries and back-off; a Failure is final.

    A public S3 bucket with one prefix per article *version* (``PMC3284869.1/1752-1947-6-45-2.jpg``), which replaced the
    packages on PubMed Central's FTP server in 2026. Published image lists still name a package and a file name, so the
    key is looked up in the listing of the article. Bodies are checked against length and MD5.
    Source: https://pmc.ncbi.nlm.nih.gov/tools/pmcaws.
    """

    def __init__(self) -> None:
        url = (os.environ.get(STORAGE_VARIABLE) or _STORAGE_URL).rstrip("/")
        if not re.match(r"https?://[^/]", url):
            raise SourceError(
                f"'{url}' is no storage URL; set {STORAGE_VARIABLE} to one that begins with https:// or unset it"
            )
        self.base_url, self.stop = url, threading.Event()
        self._patiently = patiently(_ATTEMPTS, _BACKOFF_S, self.stop)
        self._session = requests.Session()
        self._session.headers["Accept-Encoding"] = "identity"  # a length and an ETag speak of the bytes as sent
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=_WORKERS))

    def listing(self, prefix: str) -> list[str]:
        """Return all keys that begin with ``prefix``."""

        def page(query: dict[str, str]) -> ElementTree.Element:
            try:
                return ElementTree.fromstring(self._get("", query))
            except ElementTree.ParseError as error:
                raise Transient("the storage's listing is no XML") from error

        keys: list[str] = []
        query = {"list-type": "2", "prefix": prefix}
        while True:
            listed = self._patiently(page, query)
            keys += [key.text or "" for key in listed.iterfind("{*}Contents/{*}Key")]
            token = listed.findtext("{*}NextContinuationToken")
            if not token or token == query.get("continuation-token"):
                return keys
            query = query | {"continuation-token": token}

    def image(self, key: str) -> bytes:
        """Return the body of an object that is an image; one that does not decode is fetched again."""

        def body() -> bytes:
            data = self._get(quote(key))
            if not is_whole_image(BytesIO(data)):
                raise Transient(f"{key} does not decode as an image")
            return data

        return self._patiently(body)

    def _get(self, path: str, query: dict[str, str] | None = None) -> bytes:
        what = path or "the listing"
        if self.stop.is_set():
            raise Failure("interrupted")
        asking = functools.partial(
            self._session.get, f"{self.base_url}/{path}", params=query, timeout=_TIMEOUT_S, stream=True
        )
        with answer_to(asking, what) as answer:
            answer.raise_for_status()
            body = answer.content
        digest = _PLAIN_MD5.fullmatch(answer.headers.get("ETag", ""))
        if digest and hashlib.md5(body, usedforsecurity=False).hexdigest() != digest[1]:
            raise Transient(f"{what} arrived damaged (its MD5 differs)")
        return body


def pmc_id_of(dlink: str) -> str:
    """Return the article of a package link ``ftp://.../25/da/PMC3284869.tar.gz``; SourceError for another link."""
    match = _PACKAGE.search(dlink)
    if match is None:
        raise SourceError(f"'{dlink}' names no PubMed Central package (expected .../PMC<digits>.tar.gz)")
    return match[1]


def fetch_figures(figures: Sequence[Figure]) -> dict[Figure, str]:
    """Fetch figures, of distinct targets, unless they exist; every file that exists afterwards is a whole image.

    Safe to interrupt and run again: a target that decodes is kept and costs no request. An interruption waits for the
    requests in flight.

    Returns:
        Why each figure that could not be fetched is missing, in the order of the figures.

    Raises:
        SourceError: The storage cannot be reached at all or its URL is malformed.
        OSError: A target cannot be written.
    """
    storage = ObjectStorage()
    articles: dict[str, list[Figure]] = defaultdict(list)
    for figure in figures:
        if not is_whole_image(figure.target):
            articles[figure.pmc_id].append(figure)
    present = len(figures) - sum(map(len, articles.values()))
    causes: dict[Figure, str] = {}
    unreachable = 0
    with (
        tqdm(desc="Fetching images", total=len(figures), initial=present, unit="image") as bar,
        ThreadPoolExecutor(_WORKERS, thread_name_prefix="pmc") as pool,
    ):
        try:
            pending = {pool.submit(_fetch_article, storage, *article): len(article[1]) for article in articles.items()}
            for done in as_completed(pending):
                failures = done.result()
                silent = len(failures) == pending[done] and all(isinstance(f, Unreachable) for f in failures.values())
                unreachable = unreachable + 1 if silent else 0
                if unreachable >= min(_UNREACHABLE_ARTICLES, len(articles)):
                    raise SourceError(
                        f"cannot reach PubMed Central's storage at {storage.base_url} ({next(iter(failures.values()))})"
                        f"; check the connection or set {STORAGE_VARIABLE} to a mirror, then run the same command "
                        f"again: finished images are kept"
                    )
                causes |= {figure: str(failure) for figure, failure in failures.items()}
                bar.update(pending[done])
        except BaseException:  # Ctrl-C too: the pool would otherwise work through the whole queue before it ends
            storage.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {figure: causes[figure] for figure in figures if figure in causes}


def _fetch_article(storage: ObjectStorage, pmc_id: str, figures: Sequence[Figure]) -> dict[Figure, Failure]:
    """Fetch the figures of one article with one listing; return the failures."""
    failures: dict[Figure, Failure] = {}
    try:
        keys = storage.listing(f"{pmc_id}.")
        if not keys:
            raise Failure(f"{pmc_id} is not in PubMed Central's open-access storage")
    except Failure as failure:
        return dict.fromkeys(figures, failure)
    for figure in figures:
        versioned = re.compile(rf"{re.escape(pmc_id)}\.(\d+)/(?:.*/)?{re.escape(figure.file_name)}")
        versions = [(int(match[1]), key) for key in keys if (match := versioned.fullmatch(key))]
        try:
            if not versions:
                raise Failure(f"'{figure.file_name}' is not among the {len(keys)} files of {pmc_id}")
            body = storage.image(max(versions)[1])
        except Failure as failure:
            failures[figure] = failure
        else:
            with written_whole(figure.target) as partial:
                partial.write_bytes(body)
    return failures
