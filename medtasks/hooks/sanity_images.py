"""What a question of a sanity variant shows in place of its images, see :mod:`medtasks.harness.variant_documents`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from medtasks.data.blanks import blank_picture, blank_volume
from medtasks.harness.eligibility import BLANK, BLIND, COLUMN

_MARK = "<image>"


def is_blind(doc: Mapping[str, Any]) -> bool:
    """Return whether a document's own images are left out."""
    return doc.get(COLUMN) == BLIND


def shown(doc: Mapping[str, Any], pictures: Sequence[Image.Image]) -> list[Image.Image]:
    """Return a document's pictures as its variant shows them."""
    return [blank_picture(picture) for picture in pictures] if doc.get(COLUMN) == BLANK else list(pictures)


def shown_volume(doc: Mapping[str, Any], path: Path) -> Path:
    """Return the file of a document's volume as its variant shows it.

    Raises:
        OSError: The volume is missing or damaged, or a grey one cannot be written.
    """
    return blank_volume(path) if doc.get(COLUMN) == BLANK else path


def own_marks_removed(template: str, settings: Mapping[str, Any]) -> str:
    """Return a template with the marks of its demonstrations' images, and without those of the question's.

    Args:
        template: Text with one ``<image>`` per image, demonstrations first; or without any.
        settings: Settings of the model family; ``demonstrations`` lists the images of solved examples.

    Example:
        >>> own_marks_removed("<image>One? Yes. <image>Two?", {"demonstrations": ["one.jpg"]})
        '<image>One? Yes. Two?'
        >>> own_marks_removed("Two?", {})
        'Two?'
    """
    parts = template.split(_MARK)
    kept = len(settings.get("demonstrations") or ()) + 1
    return _MARK.join(parts[:kept]) + "".join(parts[kept:])
