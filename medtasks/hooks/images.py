"""Images of a document, for ``doc_to_visual``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from medtasks.data.decoding import decoded
from medtasks.data.mediconfusion import DEMONSTRATIONS
from medtasks.data.path_of import prepared_folder
from medtasks.errors import SourceError
from medtasks.hooks.sanity_images import shown
from medtasks.hooks.withheld import hidden_id, is_private_document


def images(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> list[Image.Image]:
    """Open the images of a document, after the demonstration images that the model family's prompt shows.

    Args:
        doc: A document with ``image_files``, possibly none, or with one ``image_file``: absolute paths, or paths below
            ``image_root``, or below the folder of the prepared ``dataset`` the document names.
        lmms_eval_specific_kwargs: Settings of the model family: ``image_root`` is a folder, ``demonstrations`` lists
            files of the dataset's folder of demonstrations.

    Returns:
        RGB images, demonstrations first; those of a sanity variant as it shows them.

    Raises:
        SourceError: An image is missing or broken.
    """
    settings = lmms_eval_specific_kwargs or {}
    shots = [prepared_folder(doc["dataset"]) / DEMONSTRATIONS / shot for shot in settings.get("demonstrations") or ()]
    files = doc["image_files"] if "image_files" in doc else [doc["image_file"]]
    opened = [_open(path, doc) for path in (*shots, *(_placed(file, doc, settings) for file in files))]
    return [*opened[: len(shots)], *shown(doc, opened[len(shots) :])]


def _placed(file: str, doc: Mapping[str, Any], settings: Mapping[str, Any]) -> Path:
    path, root = Path(file), settings.get("image_root")
    if path.is_absolute():
        return path
    return (Path(root).expanduser() if root else _dataset_folder(file, doc)) / path


def _dataset_folder(file: str, doc: Mapping[str, Any]) -> Path:
    if "dataset" not in doc:
        raise SourceError(
            f"image {file} of sample {doc.get('doc_id', '?')} has a relative path; write absolute paths "
            f"or set image_root under lmms_eval_specific_kwargs"
        )
    return prepared_folder(doc["dataset"])


def _open(path: Path, doc: Mapping[str, Any]) -> Image.Image:
    try:
        return decoded(path)
    except OSError as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is broken ({error})"
        fix = f"; run 'medtasks data prepare {doc['dataset']}' again" if "dataset" in doc else ""
        if is_private_document(doc):
            # Without the cause, which names the file: whoever catches this may log both.
            raise SourceError(f"an image of sample {hidden_id('doc', doc.get('doc_id'))} cannot be read{fix}") from None
        raise SourceError(f"image {path} of sample {doc.get('doc_id', '?')} {what}{fix}") from error
