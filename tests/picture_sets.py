"""Small prepared datasets of drawn pictures, and copies of these pictures as they are found in training sets."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from medtasks.data.catalogue import Access
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import publish, work_folder
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.schema import CHOICE, arrow_schema


def texture(seed: int, size: tuple[int, int] = (120, 100)) -> Image.Image:
    """A grey cloud that resembles no other seed's; width and height."""
    draw = np.random.default_rng(seed)
    width, height = size
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    frequency[0, 0] = np.inf
    noise = draw.standard_normal((2, *frequency.shape))
    cloud = np.fft.irfft2((noise[0] + 1j * noise[1]) / frequency**1.3, s=(height, width))
    return Image.fromarray(np.clip(cloud / cloud.std() * 45 + 120, 0, 255).astype(np.uint8))


def jpeg(picture: Image.Image, quality: int) -> Image.Image:
    return Image.open(io.BytesIO(jpeg_bytes(picture, quality)))


def jpeg_bytes(picture: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def prepare_set(
    name: str,
    rows: Sequence[Mapping[str, object]],
    examples: Sequence[Mapping[str, object]] = (),
    access: str = "public",
) -> None:
    """Prepare questions with options under ``MEDTASKS_HOME``.

    Args:
        name: The dataset.
        rows: ``doc_id`` and ``pictures`` each: images, stored by their pixels, bytes, stored as they are, or paths of
            volumes; and perhaps ``image_id``, ``patient_id`` and ``pair_id``.
        examples: Solved examples likewise.
        access: Who may read it.
    """
    with work_folder(name, Access(access)) as work:
        images = ImageStore(work)
        splits = [[_document(name, row, images) for row in part] for part in (rows, examples)]
        facts = {
            "source": "drawn",
            "revision": "local",
            "sample": False,
            "complete": True,
            "access": access,
        }
        counts = {
            "rows": len(rows),
            "images": len(rows),
            "text_sha256": "0",
            "pixels_sha256": "0",
        }
        manifest = Manifest.model_validate({"name": name, **facts, **counts})
        publish(
            work, manifest, splits[0], arrow_schema({**CHOICE, "pair_id": "string"}), splits[1]
        )


def _document(name: str, row: Mapping[str, object], images: ImageStore) -> dict[str, object]:
    pictures = row["pictures"]
    assert isinstance(pictures, list)
    adding: Mapping[type, Callable[[Any], StoredImage]] = {
        bytes: images.add_bytes,
        Image.Image: images.add_pixels,
        Path: images.add_volume,
    }
    stored = [
        next(add for kind, add in adding.items() if isinstance(item, kind))(item)
        for item in pictures
    ]
    question = {"question": "Is there an effusion?", "options": ["yes", "no"], "answer": "A"}
    ids = {
        "dataset": name,
        "image_id": stored[0].image_id if stored else None,
        "patient_id": None,
    }
    files = {
        "image_files": [image.file for image in stored],
        "image_sha256": [image.sha256 for image in stored],
    }
    own = {column: value for column, value in row.items() if column != "pictures"}
    return {"subject": None, "context": None, **question, **ids, **own, **files}


def write_folder(folder: Path, pictures: Mapping[str, Image.Image | bytes]) -> Path:
    for name, picture in pictures.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(picture, bytes):
            path.write_bytes(picture)
        else:
            picture.save(path)
    return folder
