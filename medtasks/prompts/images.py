"""Images of a document, for ``doc_to_visual``.

Adapters call these hooks for each sample. An error must never name the file of private data.
"""

import contextlib
import functools
import hashlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from loguru import logger
from PIL import Image

from medtasks.data.dataset_lookup import is_known, prepared_folder
from medtasks.data.dataset_manifest import Manifest, manifest_of
from medtasks.data.document_store import embedded_path
from medtasks.data.images.decoding import LINEAR, NEARLY_FLAT, Decoding, decode_image
from medtasks.data.images.degrading import degrade
from medtasks.data.images.strict_pillow import UnclearRange
from medtasks.data.images.volume_files import GREY, holds_volume
from medtasks.data.images.volume_rule import SETTINGS, VolumeRule
from medtasks.data.privacy import hidden_id, is_private
from medtasks.data.samples import Document, Sample
from medtasks.data.schema import DEMONSTRATIONS_FOLDER
from medtasks.data.variants import BLANK, COLUMN, DEGRADATION, DEGRADED, SEVERITY, images_of
from medtasks.errors import (
    DatasetNotPrepared,
    MedTasksError,
    SourceError,
    UnknownName,
    join_names,
)
from medtasks.families.templates import fill_template

Settings = Mapping[str, Any]
Key = tuple[Path, Decoding | VolumeRule]
_LOGGED: set[str] = set()  # conversions
_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".7z", ".rar")


class OpenedImage(NamedTuple):
    """An image as models saw it."""

    name: str  # the first sample with it, and its file unless the data are private
    conversions: tuple[str, ...]  # as of DecodedImage


OPENED: dict[Key, OpenedImage] = {}
"""Images in prompts of this process since the last results."""


def images(doc: Document, lmms_eval_specific_kwargs: Settings | None = None) -> list[Any]:
    """Open the images of a document as RGB, after the demonstration images of the model family's prompt.

    Sanity variants change images. A volume becomes its slices, or with ``slices: 0`` the name of its file or an array,
    see :mod:`medtasks.data.images.volume_rule`.

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
        MedTasksError: A setting is impossible, or a volume is to be degraded as a whole.
    """
    settings = lmms_eval_specific_kwargs or {}
    files = Sample(doc).images
    opened = []
    for example in settings.get("demonstrations") or ():
        path = prepared_folder(doc["dataset"]) / DEMONSTRATIONS_FOLDER / example
        opened.append(_open_image(path, doc, settings))
    for index in image_order(doc, settings):
        path = image_path(files[index], doc, settings)
        digest = images_of(doc)[index].sha256
        if not holds_volume(path):
            opened += visible_images(doc, [_open_image(path, doc, settings)], [digest])
            continue
        rule = volume_rule(doc, settings)
        if not rule.slices:
            opened.append(_volume_itself(path, doc))
            continue
        from medtasks.data.images.volume_slices import show_volume  # which brings NumPy

        with _name_source_in_errors(path, doc):
            seen = show_volume(path, rule)
        _record(path, doc, rule, seen.conversions, "a volume")
        digests = [f"{digest} {number}" for number in range(len(seen.images))]
        opened += visible_images(doc, seen.images, digests)
    return opened


def _open_image(path: Path, doc: Document, settings: Settings) -> Image.Image:
    """Open an image as its document's decoding says, and record how it was converted. Errors are SourceErrors."""
    decoding = image_decoding(doc, settings)
    with _name_source_in_errors(path, doc):
        seen = decode_image(path, decoding)
    _record(path, doc, decoding, seen.conversions, f"image_rule {decoding.rule}")
    return seen.pixels


def _volume_itself(path: Path, doc: Document) -> Any:
    """Return a volume as models that read volumes get it, grey if the document's variant is blank.

    Raises:
        MedTasksError: The variant degrades images, which files of volumes cannot be.
        SourceError: The file is missing or broken.
    """
    from medtasks.data.images.volume_slices import grey_volume, volume_for_model

    if doc.get(COLUMN) == DEGRADED:
        raise MedTasksError(
            "files of volumes cannot be degraded; set slices under lmms_eval_specific_kwargs"
        )
    with _name_source_in_errors(path, doc):
        return grey_volume(path) if doc.get(COLUMN) == BLANK else volume_for_model(path)


def _name_of(doc: Document) -> str:
    """Return the name of a sample in messages, without its id if the data are private."""
    number = hidden_id("doc", doc.get("doc_id")) if _is_private(doc) else doc.get("doc_id", "?")
    return f"sample {number}"


def _is_private(doc: Document) -> bool:
    """Return whether a document is of a dataset whose texts and file names may not be shown."""
    return doc.get("dataset") is not None and is_private(str(doc["dataset"]))


@contextlib.contextmanager
def _name_source_in_errors(path: Path, doc: Document) -> Iterator[None]:
    """Raise SourceError for an image that cannot be read."""
    try:
        yield
    except OSError as error:
        fix = ""
        if is_known(str(doc.get("dataset"))):
            fix = f"; run 'medtasks data prepare {doc['dataset']}' again"
        sample = _name_of(doc)
        if _is_private(doc):  # without the cause, which names the file: the caller may log both
            raise SourceError(f"an image of {sample} cannot be read{fix}") from None
        source = path.resolve() if path.is_symlink() else path
        raise SourceError(
            f"image {source} of {sample} {_fault_of(path, error)}{fix}"
        ) from error


def _record(
    path: Path,
    doc: Document,
    rule: Decoding | VolumeRule,
    conversions: tuple[str, ...],
    description: str,
) -> None:
    """Record how an image was converted, and log conversions that are new."""
    if (path, rule) in OPENED:
        return
    sample = _name_of(doc)
    name = sample if _is_private(doc) else f"{path} of {sample}"
    OPENED[path, rule] = OpenedImage(name, conversions)
    for done in conversions:
        if done not in _LOGGED:
            _LOGGED.add(done)
            text = f"Some images are not shown to the model as they are stored ({description})"
            logger.log(
                "WARNING" if done == NEARLY_FLAT else "INFO",
                f"{text}: {done}; the first is {name}",
            )


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
    manifest = _manifest_of(doc)
    if manifest is None:
        return from_settings or LINEAR
    prepared = manifest.decoding
    if from_settings is not None and from_settings != prepared:
        raise SourceError(
            f"the images of '{doc['dataset']}' were prepared with image_rule {prepared.rule}; leave image_rule and "
            f"image_range out of lmms_eval_specific_kwargs"
        )
    return prepared


def volume_rule(doc: Document, settings: Settings) -> VolumeRule:
    """Return the rule by which a document's volumes are shown.

    A model that reads volumes itself may do so whatever the rule of the dataset.

    Args:
        doc: A document, which may name a prepared dataset.
        settings: Those of :mod:`medtasks.data.images.volume_rule`, for documents of no prepared dataset.

    Raises:
        SourceError: The settings contradict the prepared dataset.
        MedTasksError: The settings are impossible.
    """
    from_settings = VolumeRule.of_settings(settings)
    manifest = _manifest_of(doc)
    prepared = None if manifest is None else manifest.volume_rule
    if prepared is None or (from_settings is not None and not from_settings.slices):
        return from_settings or VolumeRule()
    if from_settings not in (None, prepared):
        raise SourceError(
            f"the volumes of '{doc['dataset']}' were prepared to be shown as {prepared}; leave "
            f"{', '.join(SETTINGS)} out of lmms_eval_specific_kwargs"
        )
    return prepared


def _manifest_of(doc: Document) -> Manifest | None:
    """Return the manifest of a document's prepared dataset, None if it names no dataset that is prepared here."""
    with contextlib.suppress(DatasetNotPrepared, UnknownName):
        if doc.get("dataset") is not None:
            return manifest_of(prepared_folder(doc["dataset"]))
    return None


def image_path(file: str, doc: Document, settings: Settings) -> Path:
    """Return the path of a file of a document.

    It may differ from the file's name in separators, Unicode form and blanks around it, if it means one file only. The
    path of a file that is missing is returned, too.

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
    root = str(settings.get("image_root") or "")
    if path.is_absolute() or root:
        folder = Path(root).expanduser()
        if folder.suffix.lower() in _ARCHIVES:
            raise SourceError(f"image_root {root} is an archive; unpack it and name the folder")
        path = folder / path
        if path.exists():
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
    """Describe the fault of an image's file, to follow its name in a message, and name files with nearly that name."""
    if isinstance(error, UnclearRange):
        return f"cannot be shown: {error}"
    if path.is_dir():
        return f"is a folder that cannot be shown as a volume: {error}"
    if not isinstance(error, FileNotFoundError):
        return f"is broken ({error})"
    near = join_names(list(map(str, _near_files(path))))
    return f"is missing; there is {near}" if near else "is missing"


def _near_files(path: Path) -> list[Path]:
    """Return the files whose paths differ from a missing one in separators, Unicode form, case or ending only."""
    first, *others = Path(_plain(path)).parts
    paths = [Path(first)]
    for part in others:
        near = chain.from_iterable(_entries(path).get(part.casefold(), ()) for path in paths)
        # A folder that may not be listed has no entries.
        paths = list(near) or [path / part for path in paths]
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
    keys = set()
    # Of any task, because results must not be lost over it.
    settings = getattr(task, "lmms_eval_specific_kwargs", None) or {}
    for doc in task.eval_docs_no_media:
        with contextlib.suppress(MedTasksError):  # then the sample failed, too
            for index in image_order(doc, settings):
                path = image_path(Sample(doc).images[index], doc, settings)
                rule_of = volume_rule if holds_volume(path) else image_decoding
                keys.add((path, rule_of(doc, settings)))
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


def image_counts(doc: Document, settings: Settings) -> dict[int, int]:
    """Return the number of images that each of :func:`image_order` becomes, by index: a volume may become several."""
    counts = {}
    for index in image_order(doc, settings):
        counts[index] = 1
        with contextlib.suppress(MedTasksError):  # of a path that opening it names
            if holds_volume(image_path(Sample(doc).images[index], doc, settings)):
                counts[index] = volume_rule(doc, settings).images
    return counts


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
        digests: Of the files, shape (images,), empty if the variant degrades nothing. They seed the noise of degraded
            images; a path in their place counts by its last part, so that it is the same on every machine.
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
