"""MediConfusion: a local copy, the published files with figures from PubMed Central, or the synthetic sample.

A published file (``dataset.json``, ``image_dict.json``) that is missing or malformed is a SourceError, which names the
pair and the field.
"""

import hashlib
import os
import re
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Annotated, Literal, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from tqdm import tqdm

from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.document_store import SCRATCH
from medtasks.data.images.decoding import is_whole_image
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.named_files import file_sha256, named_file
from medtasks.data.prepare.downloads import (
    Failure,
    Published,
    SafeSession,
    Transient,
    Unreachable,
    answer_to,
    download,
    patiently,
)
from medtasks.data.prepare.source_recipe import (
    Options,
    PublishedRow,
    PublishedRows,
    SourceRecipe,
    first_and_number,
)
from medtasks.data.safe_parsing import parse_json
from medtasks.data.schema import DEMONSTRATIONS_FOLDER, PAIRED_CHOICE
from medtasks.errors import SourceError, UnusableFile
from medtasks.home import written_whole

QUESTIONS_VARIABLE = "MEDTASKS_MEDICONFUSION_URL"
_QUESTIONS_URL = (
    f"https://raw.githubusercontent.com/AIF4S/MediConfusion/{MEDICONFUSION.revision}/data"
)

_Text = Annotated[str, Field(pattern=r"\S")]
_Number = Annotated[str, Field(pattern="^[0-9]+$", coerce_numbers_to_str=True)]
_Labels = Annotated[tuple[_Text, ...], Field(min_length=1)]
STORAGE_VARIABLE = "MEDTASKS_PMC_URL"
_STORAGE_URL = "https://pmc-oa-opendata.s3.amazonaws.com"
_PACKAGE = re.compile(r"/(PMC\d+)\.tar\.gz$")
_UNREACHABLE_ARTICLES = 3
# "<hex>-<parts>" of a multi-part upload is no digest of the body.
_PLAIN_MD5 = re.compile(r'"([0-9a-f]{32})"')
_WORKERS = 4  # articles fetched at the same time
_ATTEMPTS = 5
_BACKOFF_S = 1.0
_TIMEOUT_S = (10.0, 30.0)  # to connect, longest silence of the server


class PairImage(NamedTuple):
    """One image of a pair."""

    image_id: str
    answer: str
    categories: tuple[str, ...]


class Pair(BaseModel):
    """A question with two options, asked of two images, as published."""

    pair_id: str = ""
    question: _Text
    option_A: _Text
    option_B: _Text
    im_1_correct: Literal["A", "B"]
    im_2_correct: Literal["A", "B"]
    im_1_local: _Number
    im_2_local: _Number
    category_1: _Labels
    category_2: _Labels

    @property
    def images(self) -> tuple[PairImage, PairImage]:
        """Its images, in order."""
        first = PairImage(self.im_1_local, self.im_1_correct, self.category_1)
        return first, PairImage(self.im_2_local, self.im_2_correct, self.category_2)

    @property
    def image_ids(self) -> set[str]:
        """Ids of its images."""
        return {self.im_1_local, self.im_2_local}


_PAIRS = TypeAdapter(dict[_Text, Pair])


def _recipe(options: Options) -> SourceRecipe:
    """Return the recipe. It raises SourceError at once for a user's folder without a question file."""
    if options.source is not None:
        find_question_file(options.source)  # an error before anything is written

    def revision(source: Path) -> str:
        """Return the published commit if the question file is the published one, else ``local``, or ``sample``."""
        question_file = find_question_file(source)
        digest = file_sha256(question_file)
        if options.sample:
            return "sample"
        is_published = digest == MEDICONFUSION.sha256[question_file.name]
        return MEDICONFUSION.revision if is_published else "local"

    def download_questions(folder: Path) -> Path:  # without the images
        base = os.environ.get(QUESTIONS_VARIABLE, _QUESTIONS_URL)
        for name, digest in MEDICONFUSION.sha256.items():
            download(Published(f"{base}/{name}", sha256=digest), folder / name)
        return folder

    return SourceRecipe(
        columns=PAIRED_CHOICE,
        test_rows=partial(_rows, options),
        layout="dataset.json and images/<number>.jpg",
        download=download_questions,
        revision=revision,
        counted=False,  # missing pairs are reported together with missing images
    )


def _rows(options: Options, source: Path, images: ImageStore) -> PublishedRows:
    """Read all pairs of which both images are usable, and notes on others if the user accepts the loss.

    Demonstrations next to the question file are copied at the end.
    """
    question_file = find_question_file(source)
    pairs = read_pairs(question_file)
    stored, causes = _store_images(options, pairs, question_file.parent, images)
    usable, notes = _usable_pairs(options, pairs, stored, causes)
    yield from (PublishedRow("", cause=cause) for cause in notes)
    for pair in usable:
        location = f"{question_file.name} pair {pair.pair_id}"
        for position, image in enumerate(pair.images, 1):
            document = {
                **dict.fromkeys(PAIRED_CHOICE),  # in the order of the schema
                "doc_id": f"{pair.pair_id}/{position}",
                "pair_id": pair.pair_id,
                "position": position,
                "image_id": image.image_id,
                "question": pair.question,
                "options": [pair.option_A, pair.option_B],
                "answer": image.answer,
                "categories": list(image.categories),
            }
            yield PublishedRow(location, document, [stored[image.image_id]])
    demonstrations = question_file.parent / DEMONSTRATIONS_FOLDER
    if demonstrations.is_dir():
        for file in demonstrations.rglob("*"):
            named_file(file, demonstrations)
        shutil.copytree(
            demonstrations,
            images.folder / DEMONSTRATIONS_FOLDER,
            dirs_exist_ok=True,
            copy_function=shutil.copyfile,
        )


def _usable_pairs(
    options: Options,
    pairs: Sequence[Pair],
    stored: Mapping[str, StoredImage],
    causes: Mapping[str, str],
) -> tuple[list[Pair], list[str]]:
    """Return the pairs with two stored images, and notes on what is missing.

    Args:
        options: Settings of the user.
        pairs: All pairs of the question file.
        stored: Images by id.
        causes: Why other images are unusable, by id; empty if all are stored.

    Raises:
        SourceError: Anything is missing, unless the user accepts the loss.
    """
    notes = [cause for _, cause in sorted(causes.items())]
    expected = (MEDICONFUSION.rows or 0) // 2
    if not options.sample and len(pairs) != expected:
        notes.append(
            f"the question file holds {len(pairs)} pairs, the published set {expected}"
        )
    usable = [pair for pair in pairs if causes.keys().isdisjoint(pair.image_ids)]
    if notes and not options.allow_incomplete:
        fetch = "" if _fetches(options) else ", add --fetch-images,"
        raise SourceError(
            f"MediConfusion is incomplete ({len(causes)} of {len(stored.keys() | causes)} images unusable, in "
            f"{len(pairs) - len(usable)} of {len(pairs)} pairs): {first_and_number(notes)}. Complete the "
            f"source{fetch} or accept the loss with --allow-incomplete"
        )
    return usable, notes


def _fetches(options: Options) -> bool:
    return options.fetch_images or options.source is None


def _store_images(
    options: Options,
    pairs: Sequence[Pair],
    source: Path,
    images: ImageStore,
) -> tuple[dict[str, StoredImage], dict[str, str]]:
    """Store all images, fetched if the options say so.

    Returns:
        The images, and the cause for each unusable one, both by image id.
    """
    image_ids = sorted(set[str]().union(*(pair.image_ids for pair in pairs)))
    files = {name: source / "images" / f"{name}.jpg" for name in image_ids}
    causes = {name: f"{file} is missing" for name, file in files.items() if not file.is_file()}
    if causes and _fetches(options):
        # In a folder apart: images that an interrupted run stored from another source were not fetched.
        targets = {name: images.folder / SCRATCH / "fetched" / f"{name}.jpg" for name in causes}
        files |= targets
        causes = _fetch_images(targets, source / "image_dict.json")
    stored = {}
    usable = sorted(files.keys() - causes)
    for name in tqdm(usable, "Checking images", unit="image", leave=False, disable=None):
        try:
            stored[name] = images.add_file(files[name], f"{name}.jpg")
        except (UnreadableImage, UnusableFile) as error:
            causes[name] = f"{name}.jpg is broken ({error})"
    return stored, causes


def _fetch_images(targets: Mapping[str, Path], listing: Path) -> dict[str, str]:
    """Fetch images, and return the cause for each one that is still missing, by image id.

    Args:
        targets: File to write, by image id.
        listing: ``image_dict.json``, which names the article and the file in it for each image.

    Raises:
        SourceError: The listing is missing or malformed, or the storage cannot be reached.
    """
    links = {}  # address of the article's package, and name of the file in the article, by image id
    try:
        for entry in parse_json(listing.read_text(encoding="utf-8")).values():
            links[str(entry["local"])] = (str(entry["dlink"]), str(entry["file_name"]))
    except FileNotFoundError as error:
        raise SourceError(
            f"{listing} is missing; it names the article each image comes from"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(
            f"{listing} is malformed ({error!r}); get it again from the published repository"
        ) from error
    figures = {}
    causes = {}
    for name, target in targets.items():
        if name not in links:
            causes[name] = f"image {name} is not listed in image_dict.json"
            continue
        address, file_name = links[name]  # the address ends such as /25/da/PMC3284869.tar.gz
        package = _PACKAGE.search(address)
        if package is None:
            raise SourceError(
                f"'{address}' names no PubMed Central package (expected .../PMC<digits>.tar.gz)"
            )
        figures[Figure(package[1], file_name, target)] = name
    for figure, cause in fetch_figures(list(figures)).items():
        causes[figures[figure]] = cause
    return causes


def find_question_file(folder: Path) -> Path:
    """Return ``dataset.json`` in a folder.

    Args:
        folder: Of the user. The file may also be in its subfolder ``data``.

    Raises:
        SourceError: The file is missing.
    """
    for path in (folder / "dataset.json", folder / "data" / "dataset.json"):
        if path.is_file():
            return path
    raise SourceError(
        f"--source {folder} holds no dataset.json; give a folder laid out like the data/ folder of "
        f"https://github.com/AIF4S/MediConfusion (dataset.json, images/<number>.jpg)"
    )


def read_pairs(path: Path) -> list[Pair]:
    """Read all pairs of a question file in file order.

    Args:
        path: ``dataset.json``.

    Raises:
        SourceError: The file is malformed or holds no pairs.
    """
    try:
        pairs = _PAIRS.validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        levels = zip(("pair", "field", "label"), first["loc"], strict=False)
        location = "".join(f", {what} {part!r}" for what, part in levels)
        raise SourceError(
            f"{path}{location}: {first['msg']}; get it again from the published repository"
        ) from error
    if not pairs:
        raise SourceError(f"{path} holds no pairs")
    return [pair.model_copy(update={"pair_id": pair_id}) for pair_id, pair in pairs.items()]


@dataclass(frozen=True)
class Figure:
    """One figure of an article."""

    pmc_id: str  # such as ``"PMC3284869"``
    file_name: str  # original name of the figure's file in the article; unique only within it
    target: Path  # file to write; its folder is created


class ObjectStorage:
    """PubMed Central's open-access storage, read over HTTPS with retries and back-off.

    A public S3 bucket with one prefix per article *version* (``PMC3284869.1/1752-1947-6-45-2.jpg``). Published image
    lists name a package of the former FTP server and a file, so the key is looked up in the listing of the article.
    Source: https://pmc.ncbi.nlm.nih.gov/tools/pmcaws.
    """

    def __init__(self) -> None:
        url = (os.environ.get(STORAGE_VARIABLE) or _STORAGE_URL).rstrip("/")
        if not re.match(r"https?://[^/]", url):
            raise SourceError(
                f"'{url}' is no storage URL; set {STORAGE_VARIABLE} to one that begins with https:// or unset it"
            )
        self.base_url = url
        self.stop = threading.Event()
        self._patiently = patiently(_ATTEMPTS, _BACKOFF_S, self.stop)
        self._session = SafeSession()
        # A length and an ETag speak of the bytes as sent.
        self._session.headers["Accept-Encoding"] = "identity"

    def get(self, key: str, query: Mapping[str, str] | None = None) -> bytes:
        """Return an image or, without a ``key``, a page of the listing.

        Args:
            key: Name of the object, empty for the listing.
            query: Of the listing's page.

        Raises:
            Failure: It cannot be fetched, also when tried again. Neither can one that does not decode.
        """
        return self._patiently(partial(self._body, key, query))

    def _body(self, key: str, query: Mapping[str, str] | None) -> bytes:
        """Return an object of the storage by one request, see :meth:`get`.

        Raises:
            Failure: The server refuses, or the download was interrupted.
            Transient: There is no answer, or a damaged one.
        """
        what = quote(key) or "the listing"
        url = f"{self.base_url}/{quote(key)}"
        if self.stop.is_set():
            raise Failure("interrupted")
        asking = partial(self._session.get, url, params=query, timeout=_TIMEOUT_S, stream=True)
        with answer_to(asking, what) as answer:
            answer.raise_for_status()
            data = answer.content
        digest = _PLAIN_MD5.fullmatch(answer.headers.get("ETag", ""))
        if digest and hashlib.md5(data, usedforsecurity=False).hexdigest() != digest[1]:
            raise Transient(f"{what} arrived damaged (its MD5 differs)")
        if key:
            if not is_whole_image(BytesIO(data)):
                raise Transient(f"{key} does not decode as an image")
            return data
        try:
            ElementTree.fromstring(data)
        except ElementTree.ParseError as error:
            raise Transient("the storage's listing is no XML") from error
        return data


def fetch_figures(figures: Sequence[Figure]) -> dict[Figure, str]:
    """Fetch figures, of distinct targets, unless they exist, and return why each missing one could not be fetched.

    Every file that exists afterwards is a whole image. An interruption waits for the requests in flight.

    Args:
        figures: Article, file name in its package, and target of each.

    Raises:
        SourceError: The storage cannot be reached at all or its URL is malformed.
        OSError: A target cannot be written.
    """
    storage = ObjectStorage()
    articles: dict[str, list[Figure]] = defaultdict(list)  # their missing figures
    for figure in figures:
        if not is_whole_image(figure.target):
            articles[figure.pmc_id].append(figure)
    present = len(figures) - sum(map(len, articles.values()))
    failures: dict[Figure, Failure] = {}
    unreachable = 0
    with (
        tqdm(desc="Fetching images", total=len(figures), initial=present, unit="image") as bar,
        ThreadPoolExecutor(_WORKERS, thread_name_prefix="pmc") as pool,
    ):
        try:
            pending = {}
            for pmc_id, missing in articles.items():
                future = pool.submit(_fetch_article, storage, pmc_id, missing)
                pending[future] = len(missing)
            for done in as_completed(pending):
                of_article = done.result()
                silent = sum(
                    isinstance(failure, Unreachable) for failure in of_article.values()
                )
                unreachable = unreachable + 1 if silent == pending[done] else 0
                if unreachable >= min(_UNREACHABLE_ARTICLES, len(articles)):
                    raise SourceError(
                        f"cannot reach PubMed Central's storage at {storage.base_url} "
                        f"({next(iter(of_article.values()))}); check the connection or set {STORAGE_VARIABLE} to a "
                        f"mirror, then run the same command again: finished images are kept"
                    )
                failures |= of_article
                bar.update(pending[done])
        except BaseException:
            # Ctrl-C too: the pool would otherwise work through the whole queue before it ends.
            storage.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {figure: str(failures[figure]) for figure in figures if figure in failures}


def _fetch_article(
    storage: ObjectStorage,
    pmc_id: str,
    figures: Sequence[Figure],
) -> dict[Figure, Failure]:
    """Fetch the figures of one article with one listing, and return the failures. Empty if all are there."""
    try:
        keys = _list_files(storage, pmc_id)
    except Failure as failure:
        return dict.fromkeys(figures, failure)
    if not keys:
        missing = Failure(f"{pmc_id} is not in PubMed Central's open-access storage")
        return dict.fromkeys(figures, missing)
    failures = {}
    for figure in figures:
        versioned = re.compile(
            rf"{re.escape(pmc_id)}\.(\d+)/(?:.*/)?{re.escape(figure.file_name)}"
        )
        matches = filter(None, map(versioned.fullmatch, keys))
        versions = [(int(match[1]), match[0]) for match in matches]
        try:
            if not versions:
                raise Failure(
                    f"'{figure.file_name}' is not among the {len(keys)} files of {pmc_id}"
                )
            body = storage.get(max(versions)[1])
        except Failure as failure:
            failures[figure] = failure
        else:
            with written_whole(figure.target) as partial:
                partial.write_bytes(body)
    return failures


def _list_files(storage: ObjectStorage, pmc_id: str) -> list[str]:
    """Return the keys of all files of an article, page by page."""
    keys = []
    query = {"list-type": "2", "prefix": f"{pmc_id}."}
    while True:
        page = ElementTree.fromstring(storage.get("", query))
        keys += [key.text or "" for key in page.iterfind("{*}Contents/{*}Key")]
        token = page.findtext("{*}NextContinuationToken")
        if not token or token == query.get("continuation-token"):
            return keys
        query["continuation-token"] = token


RECIPES: Mapping[str, Callable[[Options], SourceRecipe]] = {"mediconfusion": _recipe}
