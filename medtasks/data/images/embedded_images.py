"""Images inside a user's own table, as the Hub's tables hold them: each is written once, below the data folder.

From there on they are files as all others. A document names one by its content, ``embedded:<digest>.png``, so that
questions on one image are one cluster and the fingerprint of documents is the same on every machine.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from medtasks.data.document_store import without_progress_bars
from medtasks.data.images.image_store import ending_of
from medtasks.errors import SourceError
from medtasks.home import home, written_whole

_MARK = "embedded:"
_FOLDER = "embedded_images"
_DIGITS = 16
_BATCH = 16  # rows whose images are in memory at a time


def embedded_path(file: str) -> Path | None:
    """Return the path of an image that a document names as embedded; None for any other file."""
    return home() / _FOLDER / file.removeprefix(_MARK) if file.startswith(_MARK) else None


def with_image_files(table: Any, name: str, sources: Sequence[str], where: str) -> Any:
    """Return a table of the ``datasets`` library with a column of image files in place of columns that hold images.

    ``name`` is ``image_file``, of one image, or ``image_files``, of all images of ``sources`` in their order. A source
    holds encoded images, paths, or lists of these; one of several may be empty. Raises SourceError, which names
    ``where`` the table is from and the row, where an image is missing.
    """
    # As the table is stored, so that nothing is decoded; the library keeps what comes out for the next process.
    stored = table.select_columns(sources).with_format("arrow")
    write = partial(_rows, name=name, folder=str(home() / _FOLDER), where=where)
    how = {"batched": True, "batch_size": _BATCH, "with_indices": True, "remove_columns": list(sources)}
    with without_progress_bars():
        column = stored.map(write, **how).with_format(None).to_dict()[name]
        files = (file for files in column for file in ([files] if isinstance(files, str) else files))
        if not all(path is None or path.is_file() for path in map(embedded_path, files)):  # the folder was emptied
            column = stored.map(write, **how, load_from_cache_file=False).with_format(None).to_dict()[name]
    others = table.remove_columns([source for source in {*sources, name} if source in table.column_names])
    return others.add_column(name, column)


def _rows(batch: Any, rows: Sequence[int], *, name: str, folder: str, where: str) -> dict[str, list[Any]]:
    column = []
    for row, cells in zip(rows, batch.to_pylist(), strict=True):
        images = [
            _file(image, Path(folder), f"{where}, row {row + 1}: '{source}'")
            for source, value in cells.items()
            if value is not None or len(cells) == 1  # of several columns, those after a row's last image are empty
            for image in (value if isinstance(value, list) else [value])
        ]
        column.append(images[0] if name == "image_file" else images)
    return {name: column}


def _file(image: Any, folder: Path, location: str) -> str:
    """Write an image unless it exists, and return its name in documents."""
    content = image if isinstance(image, Mapping) else {"path": image} if isinstance(image, str) else {"bytes": image}
    data, path = content.get("bytes"), content.get("path")
    if not data and path:
        return str(path)
    if not isinstance(data, bytes) or not data:
        raise SourceError(f"{location} lacks an image; fix the row, or leave it out")
    name = f"{hashlib.sha256(data).hexdigest()[:_DIGITS]}.{ending_of(data)}"
    if not (folder / name).is_file():
        with written_whole(folder / name) as partial_file:
            partial_file.write_bytes(data)
    return f"{_MARK}{name}"
