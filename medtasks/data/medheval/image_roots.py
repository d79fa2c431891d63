"""Where the images that MedHEval names lie on the user's disk.

The benchmark ships no images. Each of four sources has a root of its own; questions name an image by its path below it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from medtasks.errors import SourceError, unknown_name


@dataclass(frozen=True)
class ImageSource:
    """One source of images."""

    title: str
    names: re.Pattern[str]  # of its images
    folders: tuple[str, ...]  # where the images lie below the folder a user names, likeliest first
    expected: str  # what to name, for messages
    private: bool = False  # names hold numbers of patients and stay out of messages


_PHYSIONET = "physionet.org/files/mimic-cxr-jpg"
IMAGE_SOURCES: Mapping[str, ImageSource] = {
    "slake": ImageSource(
        "SLAKE", re.compile(r"xmlab\d+/[\w-]+\.\w+"), ("", "imgs", "imgs/imgs"), "SLAKE's folder imgs"
    ),
    "vqa_rad": ImageSource(
        "VQA-RAD",
        re.compile(r"synpic\d+\.\w+"),
        ("", "images", "VQA_RAD Image Folder"),
        "the image folder of VQA-RAD at https://osf.io/89kps",
    ),
    "iu_xray": ImageSource(
        "IU-Xray",
        re.compile(r"CXR[\w-]+/[\w-]+\.\w+"),
        ("", "images", "iu_xray/images"),
        "the folder images of IU-Xray in R2Gen's package",
    ),
    "mimic_cxr": ImageSource(
        "MIMIC-CXR-JPG",
        re.compile(r"p\d{2}/p\d+/s\d+/[\w-]+\.\w+"),
        ("", "files", "2.1.0/files", "2.0.0/files", f"{_PHYSIONET}/2.1.0/files", f"{_PHYSIONET}/2.0.0/files"),
        "the folder files of MIMIC-CXR-JPG",
        private=True,
    ),
}
_UNASKED = ("images", "images/{0}", "{0}", "")  # where images may lie below the benchmark's own folder


def image_source(name: str) -> str | None:
    """Return the key in ``IMAGE_SOURCES`` of the source that an image's name belongs to, None for a name of no source.

    Example:
        >>> image_source("xmlab7/source.jpg"), image_source("CXR1_IM-0001/0.png"), image_source("cat.jpg")
        ('slake', 'iu_xray', None)
    """
    return next((key for key, source in IMAGE_SOURCES.items() if source.names.fullmatch(name)), None)


class ImageRoots:
    """Finds image files by their source and the name that questions have for them.

    What the user does not name is looked for below the benchmark's own folder, in ``images``, ``images/<source>``,
    ``<source>`` and the folder itself.

    Raises:
        UnknownName: A source is not known.
        SourceError: A folder does not exist.
    """

    def __init__(self, source: Path, named: Mapping[str, Path]) -> None:
        for key, folder in named.items():
            if key not in IMAGE_SOURCES:
                raise unknown_name("source of images", key, IMAGE_SOURCES)
            if not folder.is_dir():
                raise SourceError(f"the folder of {IMAGE_SOURCES[key].title} images, {folder}, does not exist")
        self._source, self._named = source, named
        self._folders = {key: list(dict.fromkeys(self._candidates(key))) for key in IMAGE_SOURCES}

    def searched(self, key: str) -> Path:
        """Return the folder below which the images of a source are looked for."""
        return self._named.get(key, self._source)

    def find(self, key: str, name: str) -> Path | None:
        """Return the file of an image, or None where there is none."""
        return next((folder / name for folder in self._folders[key] if (folder / name).is_file()), None)

    def _candidates(self, key: str) -> Iterator[Path]:
        roots = [self._named[key]] if key in self._named else [self._source / place.format(key) for place in _UNASKED]
        for root in roots:
            for below in IMAGE_SOURCES[key].folders:
                if (root / below).is_dir():
                    yield root / below
