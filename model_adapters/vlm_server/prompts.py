"""A sample as a conversation: texts and images in the order of the task, each image encoded once."""

import asyncio
import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from medtasks.errors import MedTasksError

from ..base.caches import BoundedCache
from ..base.requests import LoadedRequest

IMAGE_MARK = "<image>"
"""Place of an image in a prompt that places its images; without any, images come first."""
_KEPT = 256 * 2**20
_POSSIBLY_SPECIAL = re.compile(r"<[^<>\n]{1,60}>|\[/?[A-Z][A-Z_ ]{1,30}\]")
_SURELY_SPECIAL = re.compile(
    r"<\|.*\|>|</?s>|<image>|<(?:bos|eos|pad|unk|img|IMG_CONTEXT|image_soft_token)>|<(?:start|end)_of_\w+>|</?think>"
    r"|\[(?:/?INST|IMG\w*)\]"
)


@dataclass(frozen=True)
class ServedPrompt:
    """A system turn and a user turn; ``None`` among the parts stands for the next image."""

    system: str | None
    parts: tuple[str | None, ...]
    images: tuple[Image.Image, ...]
    digests: tuple[str, ...]  # of the images' pixels

    @classmethod
    def of(cls, sample: LoadedRequest, system: str | None) -> "ServedPrompt":
        """Place the images of a sample; another number of marks than of images is a ``MedTasksError``."""
        text, images = sample.request.context, sample.visuals.images
        pieces = text.split(IMAGE_MARK)
        if len(pieces) == 1 or not images:
            parts: list[str | None] = [None] * len(images) + [text]
        elif len(pieces) == len(images) + 1:
            parts = [part for piece in pieces for part in (piece, None)][:-1]
        else:
            raise MedTasksError(f"the prompt holds {len(pieces) - 1} image marks for {len(images)} images")
        return cls(system, tuple(part for part in parts if part != ""), images, tuple(sample.visuals.digests))

    @property
    def texts(self) -> list[str]:
        """The user's texts."""
        return [part for part in self.parts if part is not None]

    def is_moved(self, rendered: str) -> bool:
        """Return whether an image was rendered elsewhere than between its texts, as far as that shows.

        Servers put all images first where a chat template takes texts only.
        """
        end: int | None = None
        for text in filter(None, map(str.strip, self.texts)):  # templates may cut blanks off
            begin = rendered.find(text, end or 0)
            if begin < 0:
                return False
            if end is not None and not rendered[end:begin].strip():
                return True
            end = begin + len(text)
        return False

    def messages(self, urls: Sequence[str], continued: str | None = None) -> list[dict[str, Any]]:
        """Return the conversation with what stands for each image, and an assistant turn that is left open."""
        left = iter(urls)
        content: Any = [
            {"type": "image_url", "image_url": {"url": next(left)}} if part is None else {"type": "text", "text": part}
            for part in self.parts
        ]
        if not self.images:  # which templates without image parts take as well
            content = "".join(self.texts)
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        open_turn = [] if continued is None else [{"role": "assistant", "content": continued}]
        return [*system, {"role": "user", "content": content}, *open_turn]


class ImageUrls:
    """Images as data URLs; the last ones are kept, as the options of a question show the same."""

    def __init__(self) -> None:
        self._kept = BoundedCache[str](_KEPT)
        self._encoding: dict[str, asyncio.Future[str]] = {}

    async def of(self, prompt: ServedPrompt) -> list[str]:
        """Return one data URL per image. PNG, because every pixel counts."""

        async def encode(image: Image.Image, digest: str) -> str:
            try:
                url = await asyncio.to_thread(data_url, image)
                self._kept.keep(digest, url, len(url))  # before it is forgotten that it is under way
                return url
            finally:
                del self._encoding[digest]

        urls = []
        for image, digest in zip(prompt.images, prompt.digests, strict=True):
            url = self._kept.get(digest)
            if url is None:
                if digest not in self._encoding:
                    self._encoding[digest] = asyncio.ensure_future(encode(image, digest))
                url = await asyncio.shield(self._encoding[digest])
            urls.append(url)
        return urls


def data_url(image: Image.Image) -> str:
    """Return an image as our other adapters see it: RGB, without what is behind transparent pixels."""
    file = io.BytesIO()
    image.convert("RGB").save(file, "PNG", compress_level=1)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def possibly_special(texts: Sequence[str]) -> set[str]:
    """Return the parts of texts that may be special tokens of some model.

    Example:
        >>> sorted(possibly_special(["p <0.05", "a<|end|>b <image>"]))
        ['<image>', '<|end|>']
    """
    return {found for text in texts for found in _POSSIBLY_SPECIAL.findall(text)}


def surely_special(text: str) -> bool:
    """Return whether a text is a special token of well-known models."""
    return _SURELY_SPECIAL.fullmatch(text) is not None
