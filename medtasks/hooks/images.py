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
        doc: A document with ``image_file``: an absolute path, or one below the folder of the prepared ``dataset``.
        lmms_eval_specific_kwargs: Settings of the model family; ``demonstrations`` lists file names.

    Returns:
        RGB images, demonstrations first.

    Raises:
        SourceError: An image is missing or broken.
    """
    shots = list((lmms_eval_specific_kwargs or {}).get("demonstrations") or ())
    opened = [_open(_folder(doc) / DEMONSTRATIONS / shot, doc) for shot in shots]
    file = Path(doc["image_file"])
    return [*opened, _open(file if file.is_absolute() else _folder(doc) / file, doc)]


def _folder(doc: Mapping[str, Any]) -> Path:
    return prepared_folder(doc["dataset"])


def _open(path: Path, doc: Mapping[str, Any]) -> Image.Image:
    try:
        return decoded(path)
    except OSError as error:
        what = "is missing" if isinstance(error, FileNotFoundError) else f"is broken ({error})"
        fix = f"; run 'medtasks data prepare {doc['dataset']}' again" if "dataset" in doc else ""
        raise SourceError(f"image {path} of sample {doc.get('doc_id', '?')} {what}{fix}") from error
