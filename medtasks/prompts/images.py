"""Images of a document, for ``doc_to_visual``."""

import contextlib
import functools
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from loguru import logger
from PIL import Image

from medtasks.data.dataset_lookup import known, prepared_folder
from medtasks.data.dataset_manifest import manifest_of
from medtasks.data.document_store import embedded_path
from medtasks.data.images.decoding import LINEAR, NEARLY_FLAT, Decoding, decode_image
from medtasks.data.images.degrading import degrade
from medtasks.data.images.strict_pillow import UnclearRange
from medtasks.data.images.volume_files import GREY
from medtasks.data.privacy import hidden_id, is_private
from medtasks.data.samples import Document, Sample
from medtasks.data.schema import DEMONSTRATIONS_FOLDER
from medtasks.data.variants import BLANK, COLUMN, DEGRADATION, DEGRADED, SEVERITY, images_of
from medtasks.errors import DatasetNotPrepared, MedTasksError, SourceError, UnknownName, listed
from medtasks.families.templates import fill_template

Settings = Mapping[str, Any]
Key = tuple[Path, Decoding]
_LOGGED: set[str] = set()  # conversions
_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".7z", ".rar")


class OpenedImage(NamedTuple):
    """An image as models saw it."""

    name: str  # the first sample with it, and its file unless the data are private
    conversions: tuple[str, ...]  # as of DecodedImage


OPENED: dict[Key, OpenedImage] = {}
"""Images in prompts of this process since the last results."""


def images(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> list[Image.Image]:
    """Open the images of a document as RGB, after the demonstration images of the model family's prompt.

    A document has ``image_files``, possibly none, or one ``image_file``: absolute paths, or paths below ``image_root``
    of the settings, or below the folder of the prepared ``dataset`` it names. ``demonstrations`` of the settings lists
    files of the dataset's folder of demonstrations. ``image_rule`` and ``image_range`` are for documents of no prepared
    dataset, see :mod:`medtasks.data.images.decoding`. Order: :func:`image_order`. Sanity variants change images.

    Raises SourceError if an image is missing, broken, or of an unclear range, and MedTasksError for an impossible
    ``image_rule`` or ``image_range``.
    """
    settings = lmms_eval_specific_kwargs or {}
    decoding = image_decoding(doc, settings)
    demonstrations, files = settings.get("demonstrations") or (), Sample(doc).images
    shots = [
        prepared_folder(doc["dataset"]) / DEMONSTRATIONS_FOLDER / shot for shot in demonstrations
    ]
    order = image_order(doc, settings)
    paths = [image_path(files[index], doc, settings) for index in order]
    private = doc.get("dataset") is not None and is_private(str(doc["dataset"]))
    sample = f"sample {hidden_id('doc', doc.get('doc_id')) if private else doc.get('doc_id', '?')}"
    opened = []
    for path in (*shots, *paths):
        try:
            seen = decode_image(path, decoding)
        except OSError as error:
            fix = (
                f"; run 'medtasks data prepare {doc['dataset']}' again"
                if known(str(doc.get("dataset")))
                else ""
            )
            if private:  # without the cause, which names the file: the caller may log both
                raise SourceError(f"an image of {sample} cannot be read{fix}") from None
            raise SourceError(f"image {path} of {sample} {_fault_of(path, error)}{fix}") from error
        opened.append(seen.pixels)
        if (path, decoding) in OPENED:
            continue
        name = sample if private else f"{path} of {sample}"
        OPENED[path, decoding] = OpenedImage(name, seen.conversions)
        for done in seen.conversions:
            if done not in _LOGGED:
                _LOGGED.add(done)
                text = f"Some images are not shown to the model as they are stored (image_rule {decoding.rule})"
                logger.log(
                    "WARNING" if done == NEARLY_FLAT else "INFO",
                    f"{text}: {done}; the first is {name}",
                )
    return [
        *opened[: len(shots)],
        *visible_images(
            doc, opened[len(shots) :], [images_of(doc)[index].sha256 for index in order]
        ),
    ]


def no_images(doc: Document) -> list[Image.Image]:
    """Return no image, for tasks without any: many models of the harness call ``doc_to_visual`` unseen."""
    return []


def image_decoding(doc: Document, settings: Settings) -> Decoding:
    """Return the decoding of a document's images.

    Raises SourceError if settings contradict the prepared dataset of the document, MedTasksError for impossible ones.
    """
    from_settings = Decoding.of_settings(settings)
    try:
        prepared = (
            manifest_of(prepared_folder(doc["dataset"])).decoding
            if doc.get("dataset") is not None
            else None
        )
    except (DatasetNotPrepared, UnknownName):
        prepared = None
    if prepared is None:
        return from_settings or LINEAR
    if from_settings is not None and from_settings != prepared:
        raise SourceError(
            f"the images of '{doc['dataset']}' were prepared with image_rule {prepared.rule}; leave image_rule and "
            f"image_range out of lmms_eval_specific_kwargs"
        )
    return prepared


def image_path(file: str, doc: Document, settings: Settings) -> Path:
    """Return the path of a file of a document, see :func:`images`.

    It may differ from the file's name in separators, Unicode form and blanks around it, if it means one file only.
    Raises SourceError for a relative path without a folder and for an archive, DatasetNotPrepared if its dataset is
    missing.
    """
    if (stored := embedded_path(file)) is not None:
        return stored
    path, root = Path(file), settings.get("image_root")
    if path.is_absolute() or root:
        folder = Path(root or "").expanduser()
        if folder.suffix.lower() in _ARCHIVES:
            raise SourceError(f"image_root {root} is an archive; unpack it and name the folder")
        path = folder / path
        same = (
            []
            if path.is_file()
            else [near for near in _near_files(path) if _plain(near) == _plain(path)]
        )
        return same[0] if len(same) == 1 else path
    if doc.get("dataset") is None:
        raise SourceError(
            f"image {file} of sample {doc.get('doc_id', '?')} has a relative path; write absolute paths "
            f"or set image_root under lmms_eval_specific_kwargs"
        )
    return prepared_folder(doc["dataset"]) / path


def _fault_of(path: Path, error: OSError) -> str:
    if isinstance(error, UnclearRange):
        return f"cannot be shown: {error}"
    if path.is_dir():
        return "is a folder; list its images in 'image_files'"
    if not isinstance(error, FileNotFoundError):
        return f"is broken ({error})"
    near = listed(list(map(str, _near_files(path))))
    return f"is missing; there is {near}" if near else "is missing"


def _near_files(path: Path) -> list[Path]:
    """Return the files whose paths differ from a missing one in separators, Unicode form, case or ending only."""
    first, *others = Path(_plain(path)).parts
    paths = [Path(first)]
    for part in others:
        near = chain.from_iterable(_entries(path).get(part.casefold(), ()) for path in paths)
        paths = list(near) or [path / part for path in paths]  # of a folder that may not be listed
    return [path for path in paths if path.is_file()]


@functools.lru_cache(maxsize=64)
def _entries(folder: Path) -> Mapping[str, list[Path]]:
    """Return the paths in a folder by their names, with and without ending, in any case and Unicode form."""
    paths: dict[str, list[Path]] = {}
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            for name in {path.name, path.stem}:
                paths.setdefault(_plain(name).casefold(), []).append(path)
    return paths


def _plain(path: str | Path) -> str:
    """Return a path with the usual separators, in composed Unicode and without blanks around it."""
    return unicodedata.normalize("NFC", str(path).replace("\\", "/").strip())


def image_keys(task: Any) -> set[Key]:
    """Return the keys in :data:`OPENED` of the images of one of the harness's tasks."""
    keys: set[Key] = set()
    settings = (
        getattr(task, "lmms_eval_specific_kwargs", None) or {}
    )  # results must not be lost over it
    for doc in task.eval_docs_no_media:
        with contextlib.suppress(MedTasksError):  # then the sample failed, too
            decoding = image_decoding(doc, settings)
            files = [Sample(doc).images[index] for index in image_order(doc, settings)]
            keys |= {(image_path(file, doc, settings), decoding) for file in files}
    return keys


# ---- which of several images, and where ----


def image_order(doc: Document, settings: Settings) -> list[int]:
    """Return the indices of a document's images that are shown, in their order.

    ``shown_images`` of the settings is their number, the first ones; all without it. Those named in texts of the
    document, see :func:`named_images`, follow the others in the order of their names. With ``image_token`` the others
    are left out.
    """
    first = range(len(Sample(doc).images))[: settings.get("shown_images")]
    named = named_images(doc, settings)
    unnamed = (
        [] if settings.get("image_token") else [index for index in first if index not in named]
    )
    return [*unnamed, *(index for index in named if index in first)]


def named_images(doc: Document, settings: Settings) -> dict[int, str]:
    """Return the names that images of a document have in its question and options, by index, in order of their places.

    ``image_name`` of the settings is a template with ``number`` (from 1). Empty for a family with neither
    ``image_mark`` nor ``image_token``: its prompts have no places for images, and their names stay in the text.
    """
    form = settings.get("image_name")
    if not form or not (settings.get("image_mark") or settings.get("image_token")):
        return {}
    text = "\n".join(
        [str(doc.get("question") or ""), *(doc.get("option_lines") or doc.get("options") or ())]
    )
    complaint = f"image_name {form!r} cannot be filled in"
    names = [
        fill_template(form, {"number": at + 1}, ("number",), complaint)
        for at in range(len(Sample(doc).images))
    ]
    named = sorted((text.index(name), index) for index, name in enumerate(names) if name in text)
    return {index: names[index] for _, index in named}


# ---- sanity and stress variants ----


def visible_images(
    doc: Document, opened: Sequence[Image.Image], digests: Sequence[str] = ()
) -> list[Image.Image]:
    """Return a document's images as its variant shows them.

    ``digests`` of the files, shape (images,), seed the noise of degraded images; a path in their place counts by its
    last part, so that it is the same on every machine.
    """
    if doc.get(COLUMN) == BLANK:
        return [Image.new("RGB", image.size, GREY) for image in opened]
    if doc.get(COLUMN) != DEGRADED:
        return list(opened)
    names = [PurePath(digest).name for digest in digests]
    seeds = [int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) for name in names]
    pairs = zip(opened, seeds, strict=True)
    return [degrade(image, doc[DEGRADATION], doc[SEVERITY], seed) for image, seed in pairs]


def own_marks_removed(template: str, settings: Settings) -> str:
    """Return a template without the marks of the question's images; those of demonstrations, before them, stay."""
    parts = template.split("<image>")
    marks = len(settings.get("demonstrations") or ()) + 1
    return "<image>".join(parts[:marks]) + "".join(parts[marks:])
