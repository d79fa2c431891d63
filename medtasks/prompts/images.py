"""Images of a document, for ``doc_to_visual``."""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loguru import logger
from PIL import Image

from medtasks.data.dataset_lookup import known, prepared_folder
from medtasks.data.dataset_manifest import manifest_of
from medtasks.data.document_store import embedded_path
from medtasks.data.images.decoding import LINEAR, NEARLY_FLAT, Decoding, decoded
from medtasks.data.images.strict_pillow import UnclearRange
from medtasks.data.images.volume_files import blank_image, blank_volume
from medtasks.data.privacy import hidden_id, is_private
from medtasks.data.samples import Sample
from medtasks.data.schema import DEMONSTRATIONS_FOLDER
from medtasks.data.variants import BLANK, BLIND, COLUMN
from medtasks.errors import DatasetNotPrepared, MedTasksError, SourceError, UnknownName
from medtasks.families.templates import filled

_MARK = "<image>"


Key = tuple[Path, Decoding]


class OpenedImage(NamedTuple):
    """An image as models saw it."""

    name: str  # the first sample that showed it, and its file unless the data are private
    conversions: tuple[str, ...]  # as of DecodedImage


OPENED: dict[Key, OpenedImage] = {}
"""Images that prompts of this process have shown since the last results."""
_LOGGED: set[str] = set()  # conversions


def images(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> list[Image.Image]:
    """Open the images of a document as RGB, after the demonstration images that the model family's prompt shows.

    A document has ``image_files``, possibly none, or one ``image_file``: absolute paths, or paths below ``image_root``
    of the settings, or below the folder of the prepared ``dataset`` it names. ``demonstrations`` of the settings lists
    files of the dataset's folder of demonstrations. ``image_rule`` and ``image_range`` are for documents of no prepared
    dataset, see :mod:`medtasks.data.images.decoding`. Order: :func:`image_order`. Sanity variants change images.

    Raises SourceError where an image is missing, broken, or of an unclear range, and MedTasksError where ``image_rule``
    or ``image_range`` is impossible.
    """
    settings = lmms_eval_specific_kwargs or {}
    decoding = image_decoding(doc, settings)
    shots = [
        prepared_folder(doc["dataset"]) / DEMONSTRATIONS_FOLDER / shot for shot in settings.get("demonstrations") or ()
    ]
    files = Sample(doc).images
    own = [image_path(files[index], doc, settings) for index in image_order(doc, settings)]
    opened = [_open(path, doc, decoding) for path in (*shots, *own)]
    return [*opened[: len(shots)], *shown(doc, opened[len(shots) :])]


def no_images(doc: Mapping[str, Any]) -> list[Image.Image]:
    """Return no image, for tasks without any: many models of the harness call ``doc_to_visual`` unseen."""
    return []


def image_decoding(doc: Mapping[str, Any], settings: Mapping[str, Any]) -> Decoding:
    """Return how the images of a document are decoded.

    Raises SourceError where settings contradict the prepared dataset of the document, MedTasksError for impossible
    ones.
    """
    given = Decoding.of_settings(settings)
    try:
        prepared = manifest_of(prepared_folder(doc["dataset"])).decoding if doc.get("dataset") is not None else None
    except (DatasetNotPrepared, UnknownName):
        prepared = None
    if prepared is None:
        return given or LINEAR
    if given is not None and given != prepared:
        raise SourceError(
            f"the images of '{doc['dataset']}' were prepared with image_rule {prepared.rule}; leave image_rule and "
            f"image_range out of lmms_eval_specific_kwargs"
        )
    return prepared


def image_path(file: str, doc: Mapping[str, Any], settings: Mapping[str, Any]) -> Path:
    """Return where a file of a document lies, see :func:`images`.

    Raises SourceError where nothing says to what the path is relative, DatasetNotPrepared where that dataset is not
    there.
    """
    if (stored := embedded_path(file)) is not None:
        return stored
    path, root = Path(file), settings.get("image_root")
    if path.is_absolute() or root:
        return Path(root or "").expanduser() / path
    if doc.get("dataset") is None:
        raise SourceError(
            f"image {file} of sample {doc.get('doc_id', '?')} has a relative path; write absolute paths "
            f"or set image_root under lmms_eval_specific_kwargs"
        )
    return prepared_folder(doc["dataset"]) / path


def _open(path: Path, doc: Mapping[str, Any], decoding: Decoding) -> Image.Image:
    try:
        seen = decoded(path, decoding)
    except OSError as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is broken ({error})"
        what = f"cannot be shown: {error}" if isinstance(error, UnclearRange) else what
        fix = f"; run 'medtasks data prepare {doc['dataset']}' again" if known(str(doc.get("dataset"))) else ""
        if doc.get("dataset") is not None and is_private(str(doc["dataset"])):
            # Without the cause, which names the file: whoever catches this may log both.
            raise SourceError(f"an image of sample {hidden_id('doc', doc.get('doc_id'))} cannot be read{fix}") from None
        raise SourceError(f"image {path} of sample {doc.get('doc_id', '?')} {what}{fix}") from error
    if (path, decoding) not in OPENED:
        private = doc.get("dataset") is not None and is_private(str(doc["dataset"]))
        sample = hidden_id("doc", doc.get("doc_id")) if private else doc.get("doc_id", "?")
        name = f"sample {sample}" if private else f"{path} of sample {sample}"
        OPENED[path, decoding] = OpenedImage(name, seen.conversions)
        for done in seen.conversions:
            if done not in _LOGGED:
                _LOGGED.add(done)
                text = f"Some images are not shown to the model as they are stored (image_rule {decoding.rule})"
                logger.log("WARNING" if done == NEARLY_FLAT else "INFO", f"{text}: {done}; the first is {name}")
    return seen.pixels


def image_keys(task: Any) -> set[Key]:
    """Return by what :data:`OPENED` knows the images of one of the harness's tasks."""
    keys: set[Key] = set()
    settings = getattr(task, "lmms_eval_specific_kwargs", None) or {}  # results must not be lost over it
    for doc in task.eval_docs_no_media:
        with contextlib.suppress(MedTasksError):  # of which the sample failed
            decoding = image_decoding(doc, settings)
            files = [Sample(doc).images[index] for index in image_order(doc, settings)]
            keys |= {(image_path(file, doc, settings), decoding) for file in files}
    return keys


# ---- which of several images, and where ----


def image_order(doc: Mapping[str, Any], settings: Mapping[str, Any]) -> list[int]:
    """Return the indices of a document's images that are shown, in their order.

    ``shown_images`` of the settings is how many, the first ones; all without it. Those that texts of the document name,
    see :func:`named_images`, are in the order of their names there, after those that none names. With ``image_token``
    these are left out.
    """
    shown = range(len(Sample(doc).images))[: settings.get("shown_images")]
    named = named_images(doc, settings)
    unnamed = [] if settings.get("image_token") else [index for index in shown if index not in named]
    return [*unnamed, *(index for index in named if index in shown)]


def named_images(doc: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[int, str]:
    """Return the names that images of a document have in its question and options, by index, in order of their places.

    ``image_name`` of the settings is a template with ``number`` (from 1). None for a family without ``image_mark``: its
    prompts have no places for images, so that names stay what the text calls them by, unless ``image_token`` is given.

    Example:
        >>> document = {"question": "<2> or <1>?", "image_files": ["a.png", "b.png", "c.png"]}
        >>> named_images(document, {"image_name": "<{{ number }}>", "image_mark": "<image>"})
        {1: '<2>', 0: '<1>'}
    """
    form = settings.get("image_name")
    if not form or not (settings.get("image_mark") or settings.get("image_token")):
        return {}
    text = "\n".join([str(doc.get("question") or ""), *(doc.get("option_lines") or doc.get("options") or ())])
    complaint = f"image_name {form!r} cannot be filled in"
    names = [filled(form, {"number": at + 1}, ("number",), complaint) for at in range(len(Sample(doc).images))]
    named = sorted((text.index(name), index) for index, name in enumerate(names) if name in text)
    return {index: names[index] for _, index in named}


# ---- sanity variants ----


def is_blind(doc: Mapping[str, Any]) -> bool:
    """Return whether a document's own images are left out."""
    return doc.get(COLUMN) == BLIND


def shown(doc: Mapping[str, Any], opened: Sequence[Image.Image]) -> list[Image.Image]:
    """Return a document's images as its variant shows them."""
    return list(map(blank_image, opened)) if doc.get(COLUMN) == BLANK else list(opened)


def shown_volume(doc: Mapping[str, Any], path: Path) -> Path:
    """Return the file of a document's volume as its variant shows it; OSError where that cannot be read or written."""
    return blank_volume(path) if doc.get(COLUMN) == BLANK else path


def own_marks_removed(template: str, settings: Mapping[str, Any]) -> str:
    """Return a template without the marks of the question's images, which follow those of its demonstrations' images.

    Example:
        >>> own_marks_removed("<image>One? Yes. <image>Two?", {"demonstrations": ["one.jpg"]})
        '<image>One? Yes. Two?'
        >>> own_marks_removed("Two?", {})
        'Two?'
    """
    parts = template.split(_MARK)
    kept = len(settings.get("demonstrations") or ()) + 1
    return _MARK.join(parts[:kept]) + "".join(parts[kept:])
