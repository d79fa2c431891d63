"""Preparing a dataset from rows, whatever the format of its source.

A source's module only reads: it yields a :class:`PublishedRow` per published row, or is a :class:`TableReader`, which
gives only the location of a table, the document of a row, and the names and files of its images.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from requests.auth import HTTPBasicAuth
from tqdm import tqdm

from medtasks.data.catalogue import Access, DatasetInfo
from medtasks.data.dataset_manifest import Manifest, measure_documents
from medtasks.data.document_store import SCRATCH, DocumentCollection, publish, work_folder
from medtasks.data.images.decoding import REFERENCE, Decoding
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.images.strict_pillow import NoReader, UnclearRange, UnreadableImage
from medtasks.data.prepare.physionet import PhysioNet
from medtasks.data.privacy import PHYSIONET_VARIABLES
from medtasks.data.samples import Document
from medtasks.data.schema import Columns, arrow_schema, image_digests, image_key
from medtasks.errors import SourceError, UnusableFile, join_names

_NAMED = 3
_SAMPLE = "synthetic sample of medtasks (no patient images)"


@dataclass(frozen=True)
class Options:
    """Settings of one preparation."""

    # laid out as it is published; None downloads what the licence allows
    source: Path | None = None
    fetch_images: bool = False  # fetch images that ``source`` lacks (MediConfusion only)
    # Even if rows are left out or fewer than published. The manifest says so.
    allow_incomplete: bool = False
    sample: bool = False  # the source is a synthetic sample; results say so
    # Accept other files than the published ones (MedHEval and GMAI-MMBench only).
    allow_changed: bool = False
    # Folder of the images of each source that ``source`` does not hold, by the source's name (MedHEval only).
    images: Mapping[str, Path] = field(default_factory=dict)
    # At PhysioNet; None downloads nothing from there
    login: HTTPBasicAuth | None = field(default=None, repr=False)


@dataclass(frozen=True)
class PublishedRow:
    """One row of a source."""

    # File and row, for messages: ``"test.csv row 12"``; empty where the cause says it
    place: str
    # Without ``dataset`` and image files; None if the row is unusable
    document: Document | None = None
    images: Sequence[StoredImage] = ()  # in the order they are shown
    cause: str = ""  # why the row cannot be used, one sentence without a final stop
    outside: bool = False  # no part of the evaluated set, which is no damage: such rows are only counted, by ``cause``


PublishedRows = Iterator[PublishedRow]


def images_row(
    location: str,
    adding: Iterable[tuple[str, Callable[[], StoredImage]]],
    document: Document,
) -> PublishedRow:
    """Store the images of a row.

    Without an ``image_id``, rows with equal files get one.

    Args:
        location: Of the row, for messages.
        adding: For each image, in the order shown, its name for messages and what stores it.
        document: Of the row.

    Returns:
        The row. It has no document where an image is missing or broken.
    """
    stored = []
    for name, add in adding:
        image = f"its image {name}".strip()
        try:
            stored.append(add())
        except (FileNotFoundError, KeyError):
            return PublishedRow(location, cause=f"{image} is missing")
        except (UnreadableImage, SourceError) as error:  # the latter from a damaged archive
            is_whole = isinstance(error, UnclearRange | NoReader | UnusableFile)
            fault = "cannot be read" if is_whole else "is broken"
            return PublishedRow(location, cause=f"{image} {fault} ({error})")
    shared = "+".join(image.image_id for image in stored) or None
    return PublishedRow(
        location, {**document, "image_id": document["image_id"] or shared}, stored
    )


def check_count(table: str, rows: int, published: int | None) -> PublishedRows:
    """Yield a row without document if a table has not as many rows as it was published with.

    For sets of which only the whole table's number is published, not that of the evaluated rows.

    Args:
        table: Its name, for messages.
        rows: Its number of rows.
        published: The published one.
    """
    if rows != published:
        yield PublishedRow(
            table, cause=f"it holds {rows} rows, the published table {published}"
        )


RowReader = Callable[[Path, ImageStore], Iterable[PublishedRow]]


@dataclass(frozen=True)
class SourceRecipe:
    """Reading and downloading of one dataset."""

    columns: Columns  # of its documents
    test_rows: RowReader  # reads the evaluated rows, in published order
    # Of the source folder, for messages: ``"the hub's parquet files test-*.parquet"``
    layout: str
    # Reads the examples for few-shot prompts; None: there are none
    demonstrations: RowReader | None = None
    # Patterns of the files to download, where the source is on the Hub.
    hub_files: Sequence[str] = ()
    # Brings the source into a folder. None: a person has to.
    download: Callable[[Path], Path] | None = None
    # The same with a login at PhysioNet. None: the source is not at PhysioNet.
    login_download: Callable[[PhysioNet, Path], Path] | None = None
    # Options with which a copy is prepared, with words to fill in.
    arguments: Sequence[str] = ("--source DIR",)
    # Revision of a source folder, for recipes that can tell it from the files. None: it is that of the catalogue, or
    # unknown for a user's folder.
    revision: Callable[[Path], str] | None = None
    # On the documents, a sentence each.
    remarks: Callable[[DocumentCollection], Iterable[str]] = lambda documents: ()
    decoding: Decoding = REFERENCE  # of its image files for models
    volume_settings: Mapping[str, Any] = field(default_factory=dict)  # see Manifest
    counted: bool = True  # whether its rows must be as many as the catalogue says
    how_to_obtain: str = ""  # where this is more than the catalogue and ``layout`` say
    # Writes what else belongs into a folder.
    enclose: Callable[[Path, Manifest], None] = lambda folder, manifest: None


Recipes = Mapping[str, SourceRecipe]
"""Recipes of a module's datasets, by name without the prefix of their package."""


def prepare_recipe(info: DatasetInfo, recipe: SourceRecipe, options: Options) -> Manifest:
    """Prepare one dataset under ``MEDTASKS_HOME``, and return its manifest.

    Args:
        info: Of the dataset.
        recipe: How its source is read.
        options: Settings of the user.

    Raises:
        SourceError: The source is missing, malformed or incomplete; the message names file and row.
        MedTasksError: The disk is full, or another process prepares the same dataset.
    """
    _check_source(info, recipe, options.source)
    with work_folder(info.name, info.access) as work:
        source = options.source
        if source is None:
            assert recipe.download is not None  # or it would have been refused
            folder = work / SCRATCH / "source"
            folder.mkdir(parents=True, exist_ok=True)
            source = recipe.download(folder)
        images = ImageStore(work, recipe.decoding)
        documents, left_out, outside = _gather(info, recipe, recipe.test_rows(source, images))
        demonstrations, notes = _demonstrations(info, recipe, source, images)
        if not documents:
            why = "; ".join([*left_out, *outside][:_NAMED]) or "it is empty"
            raise SourceError(f"'{info.name}': no usable row in the source ({why})")
        rows = len(documents) + len(left_out)
        if recipe.counted and info.rows not in (None, rows) and not options.sample:
            left_out.append(f"the source holds {rows} rows, the evaluated set {info.rows}")
        if left_out and not options.allow_incomplete:
            raise SourceError(
                f"'{info.name}' is incomplete: {first_and_number(left_out)}. Complete the source, or accept the loss "
                f"with --allow-incomplete"
            )
        files: set[str] = set().union(*map(image_digests, documents))
        images.keep_only(files.union(*map(image_digests, demonstrations)))
        facts = images.facts
        origin, revision = _origin_of(info, recipe, options, source)
        manifest = Manifest(
            name=info.name,
            source=origin,
            revision=revision,
            access=info.access,
            sample=options.sample,
            complete=not left_out,
            left_out=(*left_out, *outside, *recipe.remarks(documents), *notes),
            image_rule=recipe.decoding.rule,
            image_range=recipe.decoding.value_range,
            volume_settings=recipe.volume_settings,
            **measure_documents(documents, {image_key(file): facts[file] for file in files}),
        )
        recipe.enclose(work, manifest)
        publish(work, manifest, documents, arrow_schema(recipe.columns), demonstrations)
    return manifest


def _check_source(info: DatasetInfo, recipe: SourceRecipe, source: Path | None) -> None:
    """Check that a source exists or can be downloaded.

    Raises:
        SourceError: The user's folder does not exist, or ``source`` is None and the dataset cannot be downloaded.
    """
    if source is None and recipe.download is None:
        raise SourceError(recipe.how_to_obtain or _how_to_obtain(info, recipe))
    if source is not None and not source.exists():
        raise SourceError(f"{source} does not exist; give the path of {recipe.layout}")


def first_and_number(causes: Sequence[str]) -> str:
    """Join the first causes for rows left out, and the number of others.

    Example:
        >>> first_and_number(["row 1 is empty", "row 2 is empty", "row 3 is empty", "row 4 is empty"])
        'row 1 is empty; row 2 is empty; row 3 is empty and 1 more'
    """
    more = f" and {len(causes) - _NAMED} more" if len(causes) > _NAMED else ""
    return "; ".join(causes[:_NAMED]) + more


def _origin_of(
    info: DatasetInfo,
    recipe: SourceRecipe,
    options: Options,
    source: Path,
) -> tuple[str, str]:
    """Return source and revision of a dataset for its manifest.

    A recipe that recognises its source's revision decides, also for a user's folder.
    """
    origin = info.source
    revision = info.revision
    if options.source:
        origin = str(options.source.resolve())
        revision = "local"
    if options.sample:
        origin = _SAMPLE
    if recipe.revision:
        revision = recipe.revision(source)
    return origin, revision


def _how_to_obtain(info: DatasetInfo, recipe: SourceRecipe) -> str:
    """Describe how a person obtains a dataset that cannot be downloaded here."""
    need = {
        Access.CREDENTIALED: f"needs credentials: sign its agreement at {info.source}, download it there",
        Access.GATED: f"has to be downloaded by a person at {info.source}",
        Access.PUBLIC: f"has to be downloaded at {info.source}",
    }[info.access]
    run = f"then run 'medtasks data prepare {info.name} --source DIR', where DIR holds {recipe.layout}"
    login = ""
    if recipe.login_download:
        login = f"; or set {join_names(PHYSIONET_VARIABLES)}, and it is downloaded"
    return f"'{info.name}' ({info.description}) {need}, {run}{login}"


def _gather(
    info: DatasetInfo,
    recipe: SourceRecipe,
    rows: Iterable[PublishedRow],
) -> tuple[DocumentCollection, list[str], list[str]]:
    """Return all documents, the cause for each row that gives none, and notes on those outside of the evaluated set.

    Raises:
        SourceError: Two documents have the same id. Further errors are those of the iterator of ``rows``.
    """
    documents = []
    causes = []
    outside: Counter[str] = Counter()
    places: dict[str, str] = {}
    for row in tqdm(rows, f"Reading {info.name}", unit="row", leave=False, disable=None):
        if row.outside:
            outside[row.cause] += 1
            continue
        if row.document is None:
            causes.append(f"{row.place}: {row.cause}".removeprefix(": "))
            continue
        doc_id = row.document["doc_id"]
        if doc_id in places:
            raise SourceError(
                f"{row.place} has the id '{doc_id}' of {places[doc_id]}; ids must be unique"
            )
        places[doc_id] = row.place
        document = {**row.document, "dataset": info.name}
        if "image_file" in recipe.columns:
            (image,) = row.images
            document |= {"image_file": image.file, "image_sha256": image.sha256}
        else:
            document["image_files"] = [image.file for image in row.images]
            document["image_sha256"] = [image.sha256 for image in row.images]
        documents.append(document)
    notes = [f"{count} not in the evaluated set: {cause}" for cause, count in outside.items()]
    return documents, causes, notes


def _demonstrations(
    info: DatasetInfo,
    recipe: SourceRecipe,
    source: Path,
    images: ImageStore,
) -> tuple[DocumentCollection, list[str]]:
    """Return the few-shot examples, and notes. A training split that is missing or broken costs only them."""
    if recipe.demonstrations is None:
        return [], []
    try:
        documents, causes, _ = _gather(info, recipe, recipe.demonstrations(source, images))
    except SourceError as error:
        documents = []
        causes = [str(error)]
    if causes:
        return [], [f"no few-shot demonstrations: {causes[0]}"]
    if not documents:
        return [], ["no few-shot demonstrations: the source has no training split"]
    return documents, []
