"""Images of a document, for ``doc_to_visual``.

Adapters call these hooks for each sample. An error must never name the file of private data.
"""

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

    Sanity variants change images.

    Args:
        doc: It has ``image_files``, possibly none, or one ``image_file``: absolute paths, or paths below ``image_root``
            of the settings, or below the folder of the prepared ``dataset`` it names.
        lmms_eval_specific_kwargs: ``demonstrations`` lists files of the dataset's folder of demonstrations.
            ``image_rule`` and ``image_range`` are for documents of no prepared dataset, see
            :mod:`medtasks.data.images.decoding`.

    Returns:
        In the order of :func:`image_order`.

    Raises:
        SourceError: An image is missing, broken, or of an unclear range.
        MedTasksError: ``image_rule`` or ``image_range`` is impossible.
    """
    settings = lmms_eval_specific_kwargs or {}
    decoding = image_decoding(doc, settings)
    shots = []
    for shot in settings.get("demonstrations") or ():
        shots.append(prepared_folder(doc["dataset"]) / DEMONSTRATIONS_FOLDER / shot)
    files = Sample(doc).images
    order = image_order(doc, settings)
    paths = [image_path(files[index], doc, settings) for index in order]
    is_hidden = doc.get("dataset") is not None and is_private(str(doc["dataset"]))
    sample = f"sample {doc.get('doc_id', '?')}"
    if is_hidden:
        sample = f"sample {hidden_id('doc', doc.get('doc_id'))}"
    opened = []
    for path in (*shots, *paths):
        try:
            decoded = decode_image(path, decoding)
        except OSError as error:
            hint = _preparation_hint(doc)
            if is_hidden:  # without the cause, which names the file: the caller may log both
                raise SourceError(f"an image of {sample} cannot be read{hint}") from None
            raise SourceError(f"image {path} of {sample} {_fault_of(path, error)}{hint}") from error
        opened.append(decoded.pixels)
        if (path, decoding) not in OPENED:
            name = sample if is_hidden else f"{path} of {sample}"
            OPENED[path, decoding] = OpenedImage(name, decoded.conversions)
            _log_conversions(decoded.conversions, decoding.rule, name)
    digests = [images_of(doc)[index].sha256 for index in order]
    examples = opened[: len(shots)]
    return [*examples, *visible_images(doc, opened[len(shots) :], digests)]


def _preparation_hint(doc: Document) -> str:
    if not known(str(doc.get("dataset"))):
        return ""
    return f"; run 'medtasks data prepare {doc['dataset']}' again"


def _log_conversions(
    conversions: Sequence[str],
    rule: str,
    name: str,
) -> None:
    """Log how images differ from what is stored, each conversion once in a process."""
    for conversion in conversions:
        if conversion not in _LOGGED:
            _LOGGED.add(conversion)
            text = f"Some images are not shown to the model as they are stored (image_rule {rule})"
            level = "WARNING" if conversion == NEARLY_FLAT else "INFO"
            logger.log(level, f"{text}: {conversion}; the first is {name}")


def no_images(doc: Document) -> list[Image.Image]:
    """Return no image, for tasks without any: many models of the harness call ``doc_to_visual`` unseen."""
    return []


def image_decoding(doc: Document, settings: Settings) -> Decoding:
    """Return the decoding of a document's images.

    Args:
        doc: A document, which may name a prepared dataset.
        settings: ``image_rule`` and ``image_range``, for documents of no prepared dataset.

    Raises:
        SourceError: The settings contradict the prepared dataset.
        MedTasksError: The settings are impossible.
    """
    from_settings = Decoding.of_settings(settings)
    prepared = None
    if doc.get("dataset") is not None:
        with contextlib.suppress(DatasetNotPrepared, UnknownName):
            prepared = manifest_of(prepared_folder(doc["dataset"])).decoding
    if prepared is None:
        return from_settings or LINEAR
    if from_settings is not None and from_settings != prepared:
        raise SourceError(
            f"the images of '{doc['dataset']}' were prepared with image_rule {prepared.rule}; leave image_rule and "
            f"image_range out of lmms_eval_specific_kwargs"
        )
    return prepared


def image_path(file: str, doc: Document, settings: Settings) -> Path:
    """Return the path of a file of a document.

    It may differ from the file's name in separators, Unicode form and blanks around it, if it means one file only.

    Args:
        file: Absolute path, or path below a folder, see :func:`images`.
        doc: The document, which may name a prepared dataset.
        settings: May have an ``image_root``.

    Raises:
        SourceError: A relative path has no folder, or the folder is an archive.
        DatasetNotPrepared: The document's dataset is missing.
    """
    stored = embedded_path(file)
    if stored is not None:
        return stored
    path = Path(file)
    root = settings.get("image_root")
    if path.is_absolute() or root:
        folder = Path(root or "").expanduser()
        if folder.suffix.lower() in _ARCHIVES:
            raise SourceError(f"image_root {root} is an archive; unpack it and name the folder")
        path = folder / path
        if path.is_file():
            return path
        same = [near for near in _near_files(path) if _plain(near) == _plain(path)]
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
    """Return the keys in :data:`OPENED` of the images of a task.

    Args:
        task: One of the harness's tasks.
    """
    keys: set[Key] = set()
    # Of any task, because results must not be lost over it.
    settings = getattr(task, "lmms_eval_specific_kwargs", None) or {}
    for doc in task.eval_docs_no_media:
        with contextlib.suppress(MedTasksError):  # then the sample failed, too
            decoding = image_decoding(doc, settings)
            files = [Sample(doc).images[index] for index in image_order(doc, settings)]
            keys |= {(image_path(file, doc, settings), decoding) for file in files}
    return keys


# ---- which of several images, and where ----


def image_order(doc: Document, settings: Settings) -> list[int]:
    """Return the indices of a document's images that are shown, in their order.

    Those named in texts of the document, see :func:`named_images`, follow the others in the order of their names.

    Args:
        doc: The document.
        settings: ``shown_images`` is their number, the first ones; all without it. With ``image_token`` only named
            images are shown.

    Example:
        >>> image_order({"image_files": ["a.png", "b.png", "c.png"]}, {"shown_images": 2})
        [0, 1]
    """
    first = range(len(Sample(doc).images))[: settings.get("shown_images")]
    named = named_images(doc, settings)
    order = [index for index in named if index in first]
    if settings.get("image_token"):
        return order
    return [index for index in first if index not in named] + order


def named_images(doc: Document, settings: Settings) -> dict[int, str]:
    """Return the names that images of a document have in its question and options.

    Args:
        doc: The document.
        settings: ``image_name`` is a template with ``number`` (from 1).

    Returns:
        Names by index, in the order of their places. Empty for a family with neither ``image_mark`` nor
        ``image_token``: its prompts have no places for images, and their names stay in the text.

    Example:
        >>> doc = {"question": "Is <image 2> later than <image 1>?", "image_files": ["a.png", "b.png"]}
        >>> named_images(doc, {"image_name": "<image {{ number }}>", "image_mark": "<image>"})
        {1: '<image 2>', 0: '<image 1>'}
    """
    form = settings.get("image_name")
    if not form or not (settings.get("image_mark") or settings.get("image_token")):
        return {}
    options = doc.get("option_lines") or doc.get("options") or ()
    text = "\n".join([str(doc.get("question") or ""), *options])
    complaint = f"image_name {form!r} cannot be filled in"
    names = {}
    for index in range(len(Sample(doc).images)):
        name = fill_template(form, {"number": index + 1}, ("number",), complaint)
        if name in text:
            names[index] = name
    ordered = sorted(names, key=lambda index: (text.index(names[index]), index))
    return {index: names[index] for index in ordered}


# ---- sanity and stress variants ----


def visible_images(
    doc: Document,
    opened: Sequence[Image.Image],
    digests: Sequence[str] = (),
) -> list[Image.Image]:
    """Return a document's images as its variant shows them.

    Args:
        doc: The document.
        opened: Its images.
        digests: Of the files, shape (images,). They seed the noise of degraded images; a path in their place counts by
            its last part, so that it is the same on every machine.
    """
    if doc.get(COLUMN) == BLANK:
        return [Image.new("RGB", image.size, GREY) for image in opened]
    if doc.get(COLUMN) != DEGRADED:
        return list(opened)
    degraded = []
    for image, digest in zip(opened, digests, strict=True):
        name = PurePath(digest).name
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
        degraded.append(degrade(image, doc[DEGRADATION], doc[SEVERITY], seed))
    return degraded


def without_own_marks(template: str, settings: Settings) -> str:
    """Return a template without the marks of the question's images.

    Args:
        template: The template, with ``<image>`` marks.
        settings: ``demonstrations`` are the images of solved examples, whose marks come first and stay.

    Example:
        >>> without_own_marks("<image>Example. <image>Question?", {"demonstrations": ["a.png"]})
        '<image>Example. Question?'
    """
    parts = template.split("<image>")
    marks = len(settings.get("demonstrations") or ()) + 1
    return "<image>".join(parts[:marks]) + "".join(parts[marks:])
