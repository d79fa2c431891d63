"""Rows that show images: what becomes of them if one is missing or broken."""

from collections.abc import Callable, Mapping
from typing import Any

from medtasks.data.decoding import UnreadableImage
from medtasks.data.image_store import StoredImage
from medtasks.data.preparation import Row


def image_row(place: str, name: str, add: Callable[[], StoredImage], document: Mapping[str, Any]) -> Row:
    """Store the image of a row.

    Args:
        place: File and row, for messages.
        name: What messages call the image.
        add: Stores the image.
        document: The row's columns; without an ``image_id``, equal files get the same.

    Returns:
        The row; one without a document where the image is missing or broken.

    Raises:
        OSError: The disk is full, or the image may not be read.
    """
    row = images_row(place, {name: add}, document)
    if row.document is None:
        return row
    return Row(place, {"image_id": row.images[0].image_id, **document}, row.images)


def images_row(place: str, adding: Mapping[str, Callable[[], StoredImage]], document: Mapping[str, Any]) -> Row:
    """Store the images of a row.

    Args:
        place: File and row, for messages.
        adding: What stores each image, in the order they are shown, by what messages call it.
        document: The row's columns.

    Returns:
        The row; one without a document where an image is missing or broken.

    Raises:
        OSError: The disk is full, or an image may not be read.
    """
    stored = []
    for name, add in adding.items():
        try:
            stored.append(add())
        except FileNotFoundError:
            return Row(place, None, cause=f"its image {name} is missing")
        except UnreadableImage as error:
            return Row(place, None, cause=f"its image {name} is broken ({error})")
    return Row(place, document, stored)
