"""Images of a document, for ``doc_to_visual``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from medtasks.data.decoding import decoded
from medtasks.data.mediconfusion import DEMONSTRATIONS
from medtasks.data.path_of import prepared_folder
from medtasks.errors import SourceError


def images(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> list[Image.Image]:
    """Open the image of a document, after the demonstration images that the model family's prompt shows.

    Args:
        doc: A document with ``image_file``: an absolute path, or one below ``image_root``, or one below the folder of
            the prepared ``dataset`` the document names.
        lmms_eval_specific_kwargs: Settings of the model family: ``image_root`` is a folder, ``demonstrations`` lists
            files of the dataset's folder of demonstrations.

    Returns:
        RGB images, demonstrations first.

    Raises:
        SourceError: An image is missing or broken.
    """
    settings = lmms_eval_specific_kwargs or {}
    shots = [prepared_folder(doc["dataset"]) / DEMONSTRATIONS / shot for shot in settings.get("demonstrations") or ()]
    file = Path(doc["image_file"])
    if not file.is_absolute():
        root = settings.get("image_root")
        file = (Path(root).expanduser() if root else _dataset_folder(doc)) / file
    return [_open(path, doc) for path in (*shots, file)]


def _dataset_folder(doc: Mapping[str, Any]) -> Path:
    if "dataset" not in doc:
        raise SourceError(
            f"image {doc['image_file']} of sample {doc.get('doc_id', '?')} has a relative path; write absolute paths "
            f"or set image_root under lmms_eval_specific_kwargs"
        )
    return prepared_folder(doc["dataset"])


def _open(path: Path, doc: Mapping[str, Any]) -> Image.Image:
    try:
        return decoded(path)
    except OSError as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is broken ({error})"
        fix = f"; run 'medtasks data prepare {doc['dataset']}' again" if "dataset" in doc else ""
        raise SourceError(f"image {path} of sample {doc.get('doc_id', '?')} {what}{fix}") from error
