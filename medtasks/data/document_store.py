"""Writing of prepared datasets (one writer at a time, resumable, all or nothing), and reading them.

Preparing and publishing write with :func:`work_folder` and :func:`publish`; tasks and scores read. A reader never sees
a dataset that is half written.
"""

import binascii
import errno
import functools
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import filelock

from medtasks.data.catalogue import Access
from medtasks.data.dataset_lookup import prepared_folder, preparing_again
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.images.image_store import ending_of
from medtasks.data.schema import DEMONSTRATIONS_SPLIT, SPLIT
from medtasks.errors import MedTasksError, SourceError, join_names
from medtasks.home import dataset_folder, home, make_folder, owner_only, written_whole

SCRATCH = "scratch"  # folder in a work folder for files that the finished dataset does not need
DocumentCollection = Collection[Mapping[str, Any]]
BATCH = 1000  # rows
_DATA_URI = re.compile(r"(?i)data:[^,]{,200}(?:,|$)")
_ADDRESS = re.compile(r"(?i)[a-z][a-z0-9+.-]+://")
LONGEST_NUMBER = 64  # characters of base64 that are no image
_LONGEST_NAME = 255  # characters of a file's name
_MARK = "embedded:"
_EMBEDDED = "embedded_images"
_LACKS_IMAGE = "lacks an image; fix the row, or leave it out"
_DIGITS = 16
_ROWS = 16  # rows whose images are in memory at a time


@contextmanager
def work_folder(name: str, access: Access) -> Iterator[Path]:
    """Yield the folder in which a dataset is being prepared.

    It is next to the final one and survives an interruption, so that the next attempt finds the files already fetched;
    its subfolder ``SCRATCH`` goes when the dataset is published.

    Args:
        name: Of the dataset.
        access: Of credentialed data, all files made within the block are readable by their owner alone.

    Raises:
        MedTasksError: Another process prepares it, or the disk fails.
    """
    final = dataset_folder(name)
    work = final.with_name(f".preparing-{name}")
    try:
        make_folder(final.parent)
        with (
            filelock.FileLock(final.with_name(f".{name}.lock"), blocking=False),
            ExitStack() as undo,
        ):
            old = final.with_name(f".old-{final.name}")
            # Publishing stopped between its two renames.
            if old.exists() and not final.exists():
                old.rename(final)
            work.mkdir(exist_ok=True)
            if access is Access.CREDENTIALED:
                undo.enter_context(owner_only())
                work.chmod(0o700)
            yield work
    except filelock.Timeout as error:
        raise MedTasksError(
            f"another process is preparing '{name}' in {final.parent}; wait for it to end"
        ) from error
    except OSError as error:
        path = error.filename or final.parent
        fault = error.strerror or error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            # A failed copy names the file it read from, which is not the one on the full disk.
            path = final.parent
            fault = "the disk is full"
        raise MedTasksError(
            f"cannot prepare '{name}': {path}: {fault}. What was fetched so far is kept; make room or repair it (or "
            f"set MEDTASKS_HOME to another folder), then run the same command again"
        ) from error


def publish(
    work: Path,
    manifest: Manifest,
    documents: DocumentCollection,
    schema: Any,
    demonstrations: DocumentCollection = (),
) -> Path:
    """Write a dataset into its work folder, and move that to the final folder.

    Args:
        work: From :func:`work_folder`.
        manifest: Of the dataset.
        documents: Its questions.
        schema: Of an Arrow table with their columns.
        demonstrations: Few-shot examples.

    Returns:
        The final folder.
    """
    import datasets
    import pyarrow

    features = datasets.Features.from_arrow_schema(schema)
    splits = {SPLIT: documents}
    if demonstrations:
        splits[DEMONSTRATIONS_SPLIT] = demonstrations
    tables = {}
    for split, rows in splits.items():
        # In the documents' order, without rows in the schema's
        names = next(iter(rows), features)
        columns = [features.arrow_schema.field(name) for name in names]
        table = pyarrow.Table.from_pylist(list(rows), pyarrow.schema(columns))
        digest = hashlib.sha256()
        for batch in table.to_batches(BATCH):
            digest.update(batch.serialize())
        # Columns are in the table's order. The library's own digest of the same rows takes four times their memory.
        in_order = datasets.Features({name: features[name] for name in table.column_names})
        info = datasets.DatasetInfo(features=in_order)
        fingerprint = digest.hexdigest()[:16]
        tables[split] = datasets.Dataset(table, info=info, fingerprint=fingerprint)
    for split in splits:  # of an attempt that was interrupted here
        rmtree(work / split, ignore_errors=True)
    with without_progress_bars():
        datasets.DatasetDict(tables).save_to_disk(str(work))
    manifest.write(work)
    final = dataset_folder(manifest.name)
    _move_work(work, final)
    return final


def _move_work(work: Path, final: Path) -> None:
    """Move a work folder, without its scratch files, to the final one, which may exist and stays if the move fails."""
    old = final.with_name(f".old-{final.name}")
    rmtree(old, ignore_errors=True)
    try:
        if final.exists():
            final.rename(old)
        work.rename(final)
    except BaseException:
        if old.exists() and not final.exists():
            old.rename(final)
        raise
    rmtree(final / SCRATCH, ignore_errors=True)
    rmtree(old, ignore_errors=True)


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Keep the ``datasets`` library from showing bars within this block."""
    import datasets

    enabled = datasets.utils.logging.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if enabled:
            datasets.enable_progress_bars()


def open_documents(name: str) -> Any:
    """Return the splits of a dataset as memory-mapped tables of the ``datasets`` library.

    Args:
        name: Of a prepared dataset.

    Returns:
        A ``DatasetDict``: the tables by name of the split.

    Raises:
        UnknownName: There is no such dataset.
        DatasetNotPrepared: It is not prepared.
        SourceError: Its files are damaged.
    """
    import datasets

    folder = prepared_folder(name)
    with _report_damage(name, folder):
        tables = datasets.load_from_disk(str(folder))
        _ = tables[SPLIT]  # a missing split is damage, too
        return tables


def load_documents(name: str, split: str = SPLIT) -> list[dict[str, Any]]:
    """Return the documents of a prepared dataset, in order.

    Args:
        name: Of the dataset.
        split: ``test`` or ``demonstrations``. A dataset without demonstrations has no documents of that split.

    Raises:
        UnknownName: There is no such dataset.
        DatasetNotPrepared: It is not prepared.
        SourceError: Its files are damaged.
    """
    import pyarrow  # as the ``datasets`` library takes a second to import, and six times as long per row

    folder = prepared_folder(name)
    if split != SPLIT and not (folder / split).exists():
        return []
    rows = []
    with _report_damage(name, folder):
        state = json.loads((folder / split / "state.json").read_text())
        for file in state["_data_files"]:
            with pyarrow.memory_map(str(folder / split / file["filename"])) as content:
                for batch in pyarrow.ipc.open_stream(content):
                    rows += batch.to_pylist()
    return rows


@contextmanager
def _report_damage(name: str, folder: Path) -> Iterator[None]:
    """Raise SourceError, with the command that prepares the dataset again, for errors in a block that reads it."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:  # also Arrow's own errors
        raise SourceError(
            f"the documents in {folder} are damaged ({type(error).__name__}); prepare the dataset again: "
            f"{preparing_again(name)}"
        ) from error


# Images inside a user's own table, as the Hub's tables hold them, are written once, below the data folder. A document
# names one by its content, ``embedded:<digest>.png``, so that questions on one image are one cluster and the
# fingerprint of documents is the same on every machine.


def embedded_path(file: str) -> Path | None:
    """Return the path of an image that a document names as embedded, or None for any other file.

    Example:
        >>> embedded_path("embedded:0123456789abcdef.png").name, embedded_path("scan.png")
        ('0123456789abcdef.png', None)
    """
    if not file.startswith(_MARK):
        return None
    return home() / _EMBEDDED / file.removeprefix(_MARK)


def embedded_name(data: bytes) -> str:
    """Return the name that documents have for an encoded image in a table, by its content."""
    return f"{_MARK}{hashlib.sha256(data).hexdigest()[:_DIGITS]}.{ending_of(data)}"


def encoded_image(text: str) -> bytes | None:
    """Return the image that a text holds as base64, bare or in a data URI, or None for any other text.

    Example:
        >>> encoded_image("data:image/png;base64,aW1hZ2U="), encoded_image("scan.png")
        (b'image', None)
    """
    head = _DATA_URI.match(text)
    if head:
        text = text[head.end() :]
    elif len(text) <= LONGEST_NUMBER:
        return None
    try:
        return binascii.a2b_base64("".join(text.split()), strict_mode=True)
    except ValueError:
        return None


def is_file_name(text: str) -> bool:
    """Return whether a text in a column of images can be the path of a file.

    Example:
        >>> is_file_name("scans/1.png"), is_file_name("https://example.org/1.png")
        (True, False)
    """
    if _DATA_URI.match(text) or _ADDRESS.match(text) or encoded_image(text) is not None:
        return False
    return max(map(len, re.split(r"[/\\]", text))) <= _LONGEST_NAME


@owner_only()
def with_image_files(
    table: Any,
    name: str,
    sources: Sequence[str],
    places: Sequence[str],
    root: str | None = None,
) -> Any:
    """Return a table of the ``datasets`` library with a column of image files in place of columns that hold images.

    Encoded images are written into the data folder, which only its owner may read.

    Args:
        table: A user's own.
        name: ``image_file``, for the first image of each row, or ``image_files``, for all images of ``sources`` in
            their order; a row may have none.
        sources: Columns of encoded images (bytes, base64 or data URIs), paths, or lists of these. Of several columns,
            those with None are skipped.
        places: Locations of the rows, for messages.
        root: Folder in which relative paths begin, None if unknown. Of paths, only that of an image object without
            bytes has to exist now; those of texts are looked up when they are asked.

    Returns:
        The table with the column ``name`` in place of ``sources``: for an encoded image its name by content (see
        :func:`embedded_path`), for a path the path.

    Raises:
        SourceError: A cell holds neither an image nor a path, a row has no image for ``image_file``, or the only column
            is None in a row.
    """
    # As the table is stored, so that nothing is decoded; the library keeps what comes out for the next process.
    stored = table.select_columns(sources).with_format("arrow")
    write = functools.partial(
        _write_images, name=name, folder=str(home() / _EMBEDDED), places=places, root=root
    )

    def names_in_documents(**settings: Any) -> list[Any]:
        """Return the names of a row's images, for each row. Images that are not on the disk are written."""
        names = stored.map(
            write,
            batched=True,
            batch_size=_ROWS,
            with_indices=True,
            remove_columns=list(sources),
            **settings,
        )
        return list(names.with_format(None).to_dict()[name])

    with without_progress_bars():
        column = names_in_documents()
        # The library's cache may name images that were deleted since.
        if not _all_written(column):
            column = names_in_documents(load_from_cache_file=False)
    replaced = [source for source in {*sources, name} if source in table.column_names]
    return table.remove_columns(replaced).add_column(name, column)


def _all_written(column: Sequence[str | Sequence[str]]) -> bool:
    """Return whether all embedded images of documents are there, as long as their folder was not emptied."""
    for names in column:
        for file in [names] if isinstance(names, str) else names:
            path = embedded_path(file)
            if path is not None and not path.is_file():
                return False
    return True


def _write_images(
    batch: Any,
    rows: Sequence[int],
    *,
    name: str,
    folder: str,
    places: Sequence[str],
    root: str | None,
) -> dict[str, list[Any]]:
    """Write the images of a batch unless they exist, and return the column of their names in documents.

    Args:
        batch: An Arrow table with the columns of images.
        rows: Positions of the batch's rows in the whole table.
        name: Of the new column; ``image_file`` holds the first image alone.
        folder: Where the images go.
        places: Locations of all rows, for messages.
        root: See :func:`with_image_files`.

    Raises:
        SourceError: A cell holds neither an image nor the path of one, or a row has no image for ``image_file``.
    """
    column = []
    for row, cells in zip(rows, batch.to_pylist(), strict=True):
        images = []
        for source, value in cells.items():
            # Of several columns, those after a row's last image are empty.
            if value is None and len(cells) > 1:
                continue
            for image in value if isinstance(value, list) else [value]:
                try:
                    images.append(_image_name(image, folder, root))
                except ValueError as fault:
                    raise SourceError(f"{places[row]}: '{source}' {fault}") from None
        if name == "image_file" and not images:
            raise SourceError(
                f"{places[row]}: {join_names(list(map(repr, cells)))} {_LACKS_IMAGE}"
            )
        column.append(images[0] if name == "image_file" else images)
    return {name: column}


def _image_name(image: Any, folder: str, root: str | None) -> str:
    """Return the name that documents have for a cell's image, which is written unless the cell names a file.

    Raises ValueError with the fault of the cell. It is not quoted: it may be a patient's image.
    """
    fields = image if isinstance(image, Mapping) else {"bytes": image, "path": image}
    data = fields.get("bytes")
    path = fields.get("path")
    if isinstance(data, str):
        data = encoded_image(data)
    if isinstance(data, bytes) and data:
        name = embedded_name(data)
        file = Path(folder) / name.removeprefix(_MARK)
        if not file.is_file():
            with written_whole(file) as partial_file:
                partial_file.write_bytes(data)
        return name
    if not isinstance(path, str) or not path:
        raise ValueError(_LACKS_IMAGE)
    _check_path(path, root, is_embedded=path is not image)
    return path


def _check_path(path: str, root: str | None, *, is_embedded: bool) -> None:
    """Refuse a cell's path that cannot be the path of an image.

    Args:
        path: Of the image.
        root: Folder in which a relative path begins, None if unknown.
        is_embedded: Whether the cell is an object for an image, without its bytes. Then the file has to exist, and a
            relative path needs a ``root``.

    Raises:
        ValueError: The fault of the cell, which continues a sentence that begins with the name of its column.
    """
    if _ADDRESS.match(path):
        raise ValueError(
            "is an address, from which nothing is downloaded; save the image and write the path of its file"
        )
    if not is_file_name(path):
        raise ValueError(
            f"is a text of {len(path):,} characters, neither whole base64 nor the path of a file"
        )
    file = Path(root or "").expanduser() / path
    if is_embedded and not ((root or file.is_absolute()) and file.is_file()):
        raise ValueError(
            "shows that the table holds no image bytes: it has only the path of a file, which is not there; write the "
            "images into the table, or set image_root to the folder in which the paths begin"
        )
